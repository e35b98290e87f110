"""Cache files that are damaged, lost, or cannot be written: functions are compiled again."""

from __future__ import annotations

import errno
import importlib.util
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from faults import damage
from numba.core import caching

import ooc_svm.ops.compiled as module
from ooc_svm.ops import cache, compile_events

SOURCE = "def total(values):\n    s = 0.0\n    for v in values:\n        s += v\n    return s\n"


MEANS = """
import numpy as np
from ooc_svm.ops.compiled import compiled

@compiled
def mean(values):
    if len(values) == 0:
        raise ValueError("empty")
    return np.ascontiguousarray(values[::-1]).mean()

def outcomes():
    try:
        mean(np.empty(0))
    except ValueError as error:
        return f"{mean(np.array([1.0, 2.0]))}/{error}"
"""

SUMS = """
import numpy as np
from ooc_svm.ops.compiled import compiled

@compiled
def square(value):
    return value * value

@compiled
def squares(values):
    total = 0.0
    for value in values:
        total += square(value)
    return total

def outcomes():
    assert square(3.0) == 9.0
    return squares(np.array([1.0, 2.0])), sum(square.stats.cache_hits.values())
"""

OWN = "from typing import NamedTuple\n\nclass Loss(NamedTuple):\n    C: float\n"

CALLS = """
from ooc_svm.ops.compiled import compiled

@compiled
def cost(loss):
    return 2.0 * loss[0]

def outcome(loss):
    return cost(loss), sum(cost.stats.cache_hits.values())
"""


class Functions:
    """Compiles a function of a file, as a new process would; says whether it was in the cache."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "functions.py"
        self._path.write_text(SOURCE)

    def found_in_cache(self) -> bool:
        spec = importlib.util.spec_from_file_location("functions", self._path)
        loaded = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
        total = module.compiled(loaded.total)
        assert total((1.0, 2.5)) == 3.5
        return bool(total.stats.cache_hits)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_CACHE_FOLDER", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def functions(folder, tmp_path):
    functions = Functions(tmp_path)
    assert not functions.found_in_cache()
    assert functions.found_in_cache()
    return functions


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.rglob("*.nb?")}


@pytest.mark.fault
@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("way", [each for each in damage.WAYS if each is not damage.add])
def test_what_is_damaged_is_compiled_again(functions, folder, suffix, way):
    (path,) = folder.rglob(f"*{suffix}")
    rng = random.Random(f"{suffix} {way.__name__}")
    for _ in range(3):
        whole = contents(folder)
        way(rng, path)
        assert functions.found_in_cache() == (contents(folder) == whole)
        assert functions.found_in_cache()


@pytest.mark.fault
def test_a_full_disk_does_not_end_the_run(functions, folder, monkeypatch):
    failed = []

    def full(*paths):
        failed.append(paths)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for path in folder.rglob("*.nb?"):
        path.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        assert not functions.found_in_cache()
    assert failed
    assert not functions.found_in_cache()
    assert functions.found_in_cache()


@pytest.mark.fault
def test_two_processes_that_save_at_once(folder, monkeypatch):
    folder.mkdir()
    files = cache._CheckedFiles(str(folder), "function", "source")
    files.save("one signature", 1)
    index = (folder / "function.nbi").read_bytes()
    with monkeypatch.context() as patch:  # neither knows of the other, and both take the same name
        patch.setattr(files, "_load_index", dict)
        files.save("another", 2)
    (folder / "function.nbi").write_bytes(index)
    assert files.load("one signature") is None
    files.save("one signature", 1)
    assert files.load("one signature") == 1


@pytest.mark.fault
def test_no_folder_for_a_cache(functions, monkeypatch):
    def read_only(locator):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    module._warn_of_no_cache.cache_clear()
    monkeypatch.setattr(caching._CacheLocator, "ensure_cache_path", read_only)
    with pytest.warns(RuntimeWarning, match="compiled functions cannot be kept"):
        assert not functions.found_in_cache()


def test_listeners_hear_of_compiling_and_not_of_loading(folder, tmp_path, monkeypatch):
    heard = []
    monkeypatch.setattr(compile_events, "listeners", [heard.append])
    functions = Functions(tmp_path)
    functions.found_in_cache()
    assert heard[:1] == [True]
    assert heard[-1:] == [False]
    assert heard.count(True) == heard.count(False)
    heard.clear()
    assert functions.found_in_cache()
    assert heard == []
    assert module.cache_folder() == folder


def test_there_may_be_no_folder(monkeypatch):
    def none(function, folder):
        raise RuntimeError("no locator")

    monkeypatch.setattr(module, "CheckedCache", none)
    assert module.cache_folder() is None


def test_no_setting_of_the_process_changes(folder, monkeypatch):
    """Not even for a moment: other threads import modules meanwhile, and would look for their place here."""
    seen, ensure = [], caching._CacheLocator.ensure_cache_path

    def watched(locator):
        seen.append(caching.config.CACHE_DIR)
        ensure(locator)

    monkeypatch.setattr(caching._CacheLocator, "ensure_cache_path", watched)
    assert module.cache_folder() == folder
    assert seen == [caching.config.CACHE_DIR]


def test_what_was_compiled_is_known_to_the_next_process(folder, tmp_path):
    Functions(tmp_path).found_in_cache()
    assert not module.was_compiled("svc")
    module.keep_compiled("svc")
    assert module.was_compiled("svc")
    assert not module.was_compiled("svr")


def test_loading_imports_nothing_that_only_compiling_needs(tmp_path):
    """A function that raises, and allocates, so that it takes code and constants of Numba's own modules."""
    (tmp_path / "functions.py").write_text(MEANS)
    run = "import sys, functions; print(functions.outcomes(), *sys.modules)"
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)}
    for loaded in (False, True):
        done = subprocess.run(
            [sys.executable, "-c", run], env=environment, capture_output=True, text=True, check=True
        )
        outcome, *modules = done.stdout.split()
        assert outcome == "1.5/empty"
        assert ("numba.np.arraymath" in modules) != loaded
        assert ("scipy.linalg" in modules) != loaded


def test_a_function_from_the_cache_is_linked_into_one_that_is_compiled(tmp_path):
    (tmp_path / "functions.py").write_text(SUMS)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)}
    run = "import functions; print(*functions.outcomes())"
    for outcome in ("5.0 0", "5.0 1"):
        done = subprocess.run(
            [sys.executable, "-c", run], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == outcome
        for kept in (tmp_path / "cache").rglob("functions.squares*"):
            kept.unlink()


@pytest.mark.fault
def test_types_of_another_program_are_not_asked_for(tmp_path):
    """One that has a loss of its own, which cannot be imported here."""
    (tmp_path / "functions.py").write_text(CALLS)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "own_loss.py").write_text(OWN)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)}
    own = "import sys; sys.path.append('own'); import own_loss, functions"
    calls = [
        (f"{own}; print(*functions.outcome(own_loss.Loss(1.5)))", "3.0 0"),
        ("import functions; print(*functions.outcome((2.5,)))", "5.0 0"),
        ("import functions; print(*functions.outcome((2.5,)))", "5.0 1"),
    ]
    for run, outcome in calls:
        done = subprocess.run(
            [sys.executable, "-c", run], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.stdout.strip() == outcome, done.stderr


def test_a_folder_of_another_process_stays(tmp_path, monkeypatch):
    """Both are the first to use this state of the package."""
    package = tmp_path / "package"
    for name in ("current", "numba-00000001"):
        (package / "__pycache__" / name).mkdir(parents=True)
    exists = Path.exists

    def make_then(path):
        found = exists(path)
        path.mkdir()
        return found

    monkeypatch.setattr(module, "_PACKAGE", package)
    monkeypatch.setattr(module._SETTINGS, "CACHE_DIR", "")
    monkeypatch.setattr(Path, "exists", make_then)
    folder = Path(module._cache_folder())
    assert {each.name for each in (package / "__pycache__").iterdir()} == {"current", folder.name}


def test_functions_that_are_not_called_are_not_looked_for(folder):
    module.compiled(damage.add)
    assert not folder.exists()

"""Commands where the environment is against them: variables, libraries, standard files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import SmallData
from helpers.processes import COMMAND, assert_one_sentence, run

from ooc_svm.cli.compiling import NOTICE
from ooc_svm.model.file import save_model
from ooc_svm.training.train import train

# Fails to load one module, as a disk that cannot be read or a file of zeros would.
BROKEN_MODULE = """
import errno, importlib.machinery as machinery, os, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name != os.environ["BROKEN_MODULE"]:
            return None
        spec = machinery.PathFinder.find_spec(name, path, target)
        def get_data(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        def create_module(spec):
            raise ImportError(f"{spec.origin}: cannot read file data: Input/output error", name=name)
        if isinstance(spec.loader, machinery.ExtensionFileLoader):
            spec.loader.create_module = create_module
        elif os.environ["BROKEN_HOW"] == "EIO":
            spec.loader.get_data = get_data
        else:
            spec.loader.get_data = lambda path: bytes(10)
        return spec

sys.meta_path.insert(0, Finder())
"""


@pytest.fixture(scope="module")
def model(small: SmallData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "m.model"
    save_model(train(small.store), path)
    return path


def run_with(environment: dict[str, str], *arguments: object) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    return run(*arguments, env={**inherited, **environment})


@pytest.mark.fault
@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"NUMBA_NUM_THREADS": "0"}, "cannot be loaded with NUMBA_NUM_THREADS=0 in the environment"),
        ({"NUMBA_DISABLE_JIT": "1"}, "NUMBA_DISABLE_JIT is set"),
    ],
)
@pytest.mark.parametrize("command", ["train", "predict"])
def test_variables_that_nothing_can_be_done_with(
    environment: dict[str, str], words: str, command: str, small: SmallData, model: Path, tmp_path: Path
) -> None:
    arguments = {
        "train": [small.store, "-o", tmp_path / "m"],
        "predict": [model, small.test],
    }[command]
    process = run_with(environment, command, *arguments)
    assert_one_sentence(process, 2)
    assert words in process.stderr
    process = run_with(environment, "info", small.store)  # which calls nothing compiled
    assert (process.returncode, process.stderr) == (0, "")


@pytest.mark.fault
def test_settings_of_zarr_do_not_matter(small: SmallData, tmp_path: Path) -> None:
    """Stores are written and read without Zarr."""
    environment = {"ZARR_ASYNC__CONCURRENCY": "x", "ZARR_CODEC_PIPELINE__PATH": "x.y"}
    process = run_with(environment, "convert", small.text, "-o", tmp_path / "s", "--quiet")
    assert (process.returncode, process.stderr) == (0, "")


@pytest.mark.fault
@pytest.mark.parametrize(
    "environment",
    [
        {"OMP_NUM_THREADS": "x"},
        {"PYTHONWARNINGS": "error"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"LC_ALL": "xx_YY.nothing"},
        {"PYTHONIOENCODING": "ascii"},
        {"HOME": "/nowhere", "TMPDIR": "/nowhere"},
    ],
)
def test_variables_that_do_not_matter(environment: dict[str, str], small: SmallData, tmp_path: Path) -> None:
    path = tmp_path / "caf\u00e9.model"
    process = run_with(environment, "train", small.store, "-o", path, "--quiet")
    assert (process.returncode, process.stderr) == (0, "")
    assert path.exists()


@pytest.mark.fault
def test_a_cache_that_cannot_be_one_does_not_matter(small: SmallData, model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    process = run_with({"NUMBA_CACHE_DIR": str(tmp_path / "file")}, "predict", model, small.test)
    told = process.stderr.replace(f"{NOTICE}\n", "")  # Where it takes long
    assert (process.returncode, told) == (0, "")


@pytest.mark.fault
@pytest.mark.parametrize("warnings", ["", "error"])
def test_without_a_folder_for_a_cache_there_is_a_warning(
    warnings: str, small: SmallData, tmp_path: Path
) -> None:
    program = (
        "import sys\n"
        "from numba.core import caching\n"
        "def read_only(locator):\n"
        "    raise OSError('it is read-only')\n"
        "caching._CacheLocator.ensure_cache_path = read_only\n"
        "from ooc_svm.cli import main\n"
        "main()\n"
    )
    few_functions = ["--solver", "cutting-plane", "--bias", "none"]  # that are compiled each time
    train = ["train", str(small.store), "-o", str(tmp_path / "m"), "--quiet", *few_functions]
    process = subprocess.run(
        [sys.executable, "-c", program, *train],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": warnings},
        check=False,
    )
    assert process.returncode == 0
    [line] = process.stderr.splitlines()
    assert line.startswith("ooc-svm: warning: compiled functions cannot be kept")


@pytest.mark.fault
@pytest.mark.parametrize("warnings", ["", "error"])
def test_a_value_that_a_library_does_not_understand_is_a_warning(
    warnings: str, small: SmallData, model: Path
) -> None:
    process = run_with({"NUMBA_OPT": "x", "PYTHONWARNINGS": warnings}, "predict", model, small.test)
    assert process.returncode == 0
    [line] = process.stderr.replace(f"{NOTICE}\n", "").splitlines()
    assert line.startswith("ooc-svm: warning: ")
    assert "NUMBA_OPT" in line
    assert "Traceback" not in line


@pytest.mark.fault
@pytest.mark.parametrize("how", ["EIO", "zeros"])
@pytest.mark.parametrize(
    "module",
    [
        "typer",
        "numpy",
        "numpy._core._multiarray_umath",
        "numba.core.config",
        "llvmlite.binding.ffi",
        "numcodecs",
        "google_crc32c",
        "ooc_svm.cli.app",
        "ooc_svm.cli.exit_codes",
        "ooc_svm.losses.hinge",
        "ooc_svm.training.train",
    ],
)
def test_a_module_that_cannot_be_read(module: str, how: str, small: SmallData, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(BROKEN_MODULE)
    environment = {"PYTHONPATH": str(tmp_path), "BROKEN_MODULE": module, "BROKEN_HOW": how}
    process = run_with(environment, "train", small.store, "-o", tmp_path / "m")
    assert_one_sentence(process, 5)
    assert "check the disk, or install" in process.stderr
    assert not (tmp_path / "m").exists()


COMMANDS = ["--help", "--version", "info", "predict", "train", "convert"]


def in_shell(
    redirection: str, command: str, small: SmallData, model: Path, folder: Path
) -> subprocess.CompletedProcess[str]:
    """A command with its standard files redirected by bash; its exit code is that of the script."""
    arguments: list[object] = {
        "info": ["info", small.store],
        "predict": ["predict", model, small.test],
        "train": ["train", small.store, "-o", folder / "m"],
        "convert": ["convert", small.text, "-o", folder / "s.zarr"],
    }.get(command, [command])
    script = f'"$@" {redirection}; exit ${{PIPESTATUS[0]}}'
    return subprocess.run(
        ["bash", "-c", script, "bash", *COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.fault
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("redirection", "code"),
    [
        ("<&-", 0),
        ("2>&-", 0),
        ("2>/dev/full", 0),
        ("2> >(true)", 0),
        (">&-", 5),
        ("<&- >&-", 5),
        ("<&- >&- 2>&-", 5),
        (">/dev/full", 5),
        (">/dev/full 2>&1", 5),
        ("| true", 141),
    ],
)
def test_standard_files(
    redirection: str, code: int, command: str, small: SmallData, model: Path, tmp_path: Path
) -> None:
    process = in_shell(redirection, command, small, model, tmp_path)
    assert process.returncode == code, process.stderr
    assert "Traceback" not in process.stderr
    assert "ignored" not in process.stderr
    assert process.stderr.count("ooc-svm: error: ") == (code == 5 and "2>&" not in redirection)
    if code == 0 and command == "convert":
        # No line of the progress is in a file that took the place of a closed one.
        assert run("verify", tmp_path / "s.zarr").returncode == 0


@pytest.mark.fault
def test_a_closed_standard_input_is_an_empty_one(tmp_path: Path) -> None:
    script = '"$@" <&-'
    command = ["bash", "-c", script, "bash", *COMMAND, "convert", "-", "-o", str(tmp_path / "s.zarr")]
    process = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert_one_sentence(process, 3)
    assert "standard input is empty; check the command that writes it" in process.stderr

"""Folders that the next run removes: those that a killed one left, and nothing else, however it is named."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from helpers.store_data import random_rows, write_store

from ooc_svm.conversion.convert import convert
from ooc_svm.errors import UsageError
from ooc_svm.store import open_store
from ooc_svm.system import private_folders
from ooc_svm.system.files import atomic_write, check_writable, sweep_leftovers
from ooc_svm.system.folders import shared_folder

pytestmark = pytest.mark.fault

TOKEN = "0123456789abcdef"
KINDS = {
    "a.zarr.building-": "",
    "a.zarr.replaced-": "",
    "a.zarr.scratch-": "",
    ".a.model.": ".partial",
    "ooc-svm-rows-": "",
}


def use(folder: Path) -> None:
    """Everything that removes leftovers in a folder."""
    (folder / "a.svm").write_text("1 1:1\n-1 2:1\n")
    convert(folder / "a.svm", folder / "a.zarr", shuffle=1, overwrite=(folder / "a.zarr").exists())
    for act in (
        lambda path: atomic_write(path, lambda file: file.write(b"x")),
        check_writable,
        sweep_leftovers,
    ):
        act(folder / "a.model")
    with shared_folder(folder, "ooc-svm-rows"):
        pass


def tree(folder: Path) -> dict[str, object]:
    """All that there is in a folder, and what it is."""
    found = {}
    for path in folder.rglob("*"):
        content = path.readlink() if path.is_symlink() else None if path.is_dir() else path.read_bytes()
        found[path.relative_to(folder).as_posix()] = (path.lstat().st_mode, content)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_ours_stays(tmp_path, kind):
    def folder(name, **files):
        (tmp_path / name).mkdir()
        for file, content in files.items():
            (tmp_path / name / file.replace("mark", private_folders.MARK)).write_text(content)

    end = KINDS[kind]
    matrix, labels = random_rows(1)
    (tmp_path / "elsewhere").mkdir()
    os.close(private_folders.make(tmp_path / "elsewhere" / "marked"))
    folder(f"{kind}plans{end}", notes="plans")
    folder(f"{kind}by-me{end}", mark=private_folders._TEXT.decode())
    folder(f"{kind}{TOKEN[::-1]}{end}", notes="the name is as ours")
    folder(f"{kind}{TOKEN.replace('0', '1')}{end}", mark="of another kind", notes="")
    folder(f"{kind}{TOKEN.replace('0', '2')}{end}")
    folder(f"{kind}{TOKEN.upper()}{end}", mark=private_folders._TEXT.decode())
    folder(f"{kind}{TOKEN}0{end}", mark=private_folders._TEXT.decode())
    folder(f"b{kind}{TOKEN}{end}", mark=private_folders._TEXT.decode())
    (tmp_path / f"{kind}{TOKEN.replace('0', '3')}{end}").write_text("a file")
    (tmp_path / f"{kind}{TOKEN.replace('0', '4')}{end}").symlink_to(tmp_path / "elsewhere" / "marked")
    (tmp_path / f"{kind}{TOKEN.replace('0', '5')}{end}").mkdir()
    (tmp_path / f"{kind}{TOKEN.replace('0', '5')}{end}" / private_folders.MARK).symlink_to("/dev/null")
    write_store(tmp_path / f"{kind}of-mine{end}", matrix, labels)
    before = tree(tmp_path)
    use(tmp_path)
    use(tmp_path)
    after = tree(tmp_path)
    assert {name: after.get(name) for name in before} == before
    new = {name.split("/")[0] for name in after.keys() - before.keys()}
    assert new == {"a.svm", "a.zarr", "a.model"}


def test_a_lock_that_is_not_ours_stays(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1\n-1 2:1\n")
    (tmp_path / "a.zarr.lock").write_text("my notes")
    with pytest.raises(UsageError, match=r"a\.zarr\.lock is not a lock of this program"):
        convert(tmp_path / "a.svm", tmp_path / "a.zarr")
    assert (tmp_path / "a.zarr.lock").read_text() == "my notes"
    (tmp_path / "a.zarr.lock").unlink()
    os.mkfifo(tmp_path / "a.zarr.lock")
    with pytest.raises(UsageError, match=r"a\.zarr\.lock is not a lock of this program"):
        convert(tmp_path / "a.svm", tmp_path / "a.zarr")


CALLS = ("mkdir", "open", "close", "write", "chmod", "unlink", "rmdir", "rename", "fsync", "listdir", "stat")


def killed_at(step: int, act) -> bool:
    """Call a function in a child that is killed before a call of the system; False if it makes fewer."""
    child = os.fork()
    if child == 0:
        calls = 0

        def dying(function):
            def call(*args, **kwargs):
                nonlocal calls
                calls += 1
                if calls == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*args, **kwargs)

            return call

        status = 1
        try:
            for name in CALLS:
                setattr(os, name, dying(getattr(os, name)))
            act()
            status = 0
        finally:
            os._exit(status)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0


def write_file(folder):
    atomic_write(folder / "a.model", lambda file: file.write(b"new"))


def hold_shared(folder):
    with shared_folder(folder, "ooc-svm-rows") as shared:
        (shared / "part").mkdir()
        (shared / "part" / "rows").write_bytes(b"rows")


def replace_store(folder):
    matrix, _ = random_rows(2, n_rows=4)
    write_store(folder / "a.zarr", matrix, np.ones(4), overwrite=True)


@pytest.mark.parametrize("act", [write_file, hold_shared, replace_store])
def test_what_a_killed_run_left_is_removed_by_the_next(tmp_path, act):
    matrix, _ = random_rows(1, n_rows=3)
    write_store(tmp_path / "whole", matrix, np.ones(3))
    step, left, stride = 0, set(), 1 if act is not replace_store else 13
    while True:
        step += stride
        shutil.rmtree(tmp_path / "a.zarr", ignore_errors=True)
        shutil.copytree(tmp_path / "whole", tmp_path / "a.zarr")
        if not killed_at(step, lambda: act(tmp_path)):
            break
        found = {path.name for path in tmp_path.iterdir()} - {"a.zarr", "whole", "a.model"}
        left |= {name.split("-")[0] for name in found}
        if (tmp_path / "a.zarr").exists():
            assert open_store(tmp_path / "a.zarr").n_rows in (3, 4)
        act(tmp_path)
        assert {path.name for path in tmp_path.iterdir()} <= {"a.zarr", "whole", "a.model"}
    assert step > 8 * stride
    assert left  # something was there to be removed

"""The harness itself: faults fire where they are told to, and what goes wrong is found."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import pytest
from faults import calls, server
from faults.calls import FOREVER, NEVER, CallFault
from faults.processes import ROOT, interrupted_early
from faults.scenes import SCENES
from faults.server import Ended, ForkServer
from faults.world import World, own_disk

pytestmark = pytest.mark.fault


def write_files(folder: str, count: int) -> list[str]:
    """Write files in a folder and one outside; the names of those that could not be written."""
    failed = []
    for path in (*(Path(folder, str(number)) for number in range(count)), Path("/dev/null")):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
        try:
            if os.write(descriptor, b"ab") < 2:
                failed.append(f"half of {path.name}")
        except OSError as error:
            failed.append(f"{path.name}: {errno.errorcode[error.errno]}")
        os.close(descriptor)
    return failed


@pytest.fixture(params=["preloaded", "in Python"], scope="module")
def forks(request):
    """A server with each of the two ways to spoil calls."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "in Python":
            patch.setattr(server, "library", lambda: None)
        elif calls.library() is None:
            pytest.skip("there is no C compiler")
        started = ForkServer(warm=False)
    with started:
        yield started


def run(forks, folder, *plan):
    fault = CallFault(("write",), *plan)
    return forks.call("faults.test_harness:write_files", str(folder), 5, fault=fault, within=folder)


def test_calls_are_counted_and_the_nth_fails(forks, tmp_path):
    ended = run(forks, tmp_path, NEVER)
    assert (ended.code, ended.spoiled, ended.answer) == (0, 0, [])
    assert ended.calls in (5, 6)  # those in the folder; in Python, all of them
    ended = run(forks, tmp_path, 2, 2, "e", errno.EIO)
    assert (ended.spoiled, ended.answer) == (1, ["1: EIO"])
    ended = run(forks, tmp_path, 4, 5, "e", errno.ENOSPC)
    assert (ended.spoiled, ended.answer) == (2, ["3: ENOSPC", "4: ENOSPC"])
    assert run(forks, tmp_path, 3, FOREVER, "e", errno.EIO).answer[:3] == ["2: EIO", "3: EIO", "4: EIO"]


def test_signals_at_the_nth_call(forks, tmp_path):
    ended = run(forks, tmp_path, 3, 3, "s", signal.SIGKILL)
    assert (ended.code, ended.spoiled, ended.answer) == (-signal.SIGKILL, 1, None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2"]
    stopped = []
    fault = CallFault(("write",), 2, 2, "s", signal.SIGSTOP)
    options = {"fault": fault, "within": tmp_path, "on_stop": stopped.append}
    ended = forks.call("faults.test_harness:write_files", str(tmp_path), 5, **options)
    assert (ended.code, len(stopped), ended.answer) == (0, 1, [])


def test_half_of_the_bytes(tmp_path):
    if calls.library() is None:
        pytest.skip("there is no C compiler")
    with ForkServer(warm=False) as started:
        assert run(started, tmp_path, 2, 3, "h").answer == ["half of 1", "half of 2"]


def test_what_raises_and_what_hangs(fork_server):
    ended = fork_server.call("os:stat", "/nowhere")
    assert (ended.code, ended.error[0]) == (1, "FileNotFoundError")
    ended = fork_server.call("time:sleep", 60, timeout=1.0)
    assert ended.code is None
    assert "most recent call first" in ended.err
    assert fork_server.call("os:getcwd").code == 0


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with World(tmp_path_factory.mktemp("faults")) as world:
        yield world


def test_a_judge_finds_what_is_wrong(world):
    scene = SCENES["convert-overwrite"]
    world.reference(scene)
    with world.laid_out(scene):
        before = world.sources(scene)
        ended = world.run(scene)
        assert world.judge(scene, ended, set()) == world.judge_next(scene) == []
        (world.folder / "out.zarr.building-1").mkdir()
        (world.folder / "text.svm").write_text("1 1:1\n")
        (world.folder / "out.zarr/X/data/c/0").unlink()
        found = world.judge(scene, ended, set())
        assert [each.split()[0] for each in found] == ["exit", "out.zarr", "left"]
        assert world.sources(scene) != before
        assert world.judge_next(scene)
        for code, err, sign in (
            (1, "Traceback\n", "exit code 1"),
            (5, "ooc-svm: error: failed\n", "names no file"),
            (5, "ooc-svm: error: out.zarr\nooc-svm: error: out.zarr\n", "not one sentence"),
            (None, "", "hangs"),
        ):
            ended.code, ended.err = code, err
            assert any(each.startswith(sign) for each in world.judge_end(scene, ended, {5}))


def test_a_disk_of_its_own(tmp_path):
    try:
        with own_disk(tmp_path / "disk") as resize:
            resize(8192)
            with pytest.raises(OSError, match="No space"):
                (tmp_path / "disk/a").write_bytes(bytes(20_000))
    except PermissionError as error:
        pytest.skip(f"cannot mount a file system here: {error}")


@pytest.mark.parametrize(
    ("code", "file", "early"),
    [
        (-signal.SIGINT, "<frozen runpy>", True),
        (1, "<frozen runpy>", False),
        (-signal.SIGINT, f"{ROOT}/.venv/lib/__editable___ooc_svm_finder.py", True),
        (-signal.SIGINT, f"{ROOT}/cli/__init__.py", False),
        (-signal.SIGINT, f"{ROOT}/ooc_svm/errors.py", False),
    ],
)
def test_an_interrupt_before_anything_of_the_package(code, file, early):
    err = f'Traceback (most recent call last):\n  File "{file}", line 1, in main\nKeyboardInterrupt\n'
    assert interrupted_early(Ended(code, err, 0, 1, 0.0, 0)) == early
    site = "Fatal Python error: init_import_site: Failed to import the site module\n"
    if code == 1:
        assert interrupted_early(Ended(code, site + err, 0, 1, 0.0, 0))
    assert not interrupted_early(Ended(code, err + "ooc-svm: error: a\n", 0, 1, 0.0, 0))

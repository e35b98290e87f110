"""One place for experiments: the data, a warm process, what every command gives without a fault."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faults import data
from faults.calls import KINDS, CallFault, library
from faults.scenes import ABSENT, STDOUT, Scene
from faults.server import Ended, ForkServer

PEAK_BYTES = 690_000_000
"""Largest peak memory of a run: ``--memory 600MB`` and 15 %."""


class Skipped(Exception):
    """This machine cannot make such a fault."""


def require_library() -> None:
    """Skip what cannot be done by replacing functions of `os`."""
    if library() is None:
        raise Skipped("there is no C compiler, and functions of Python do not reach these calls")


@dataclass
class Result:
    """An experiment: whether its fault has fired, and what is wrong with what followed.

    ``early``: Python itself was interrupted, before it ran anything of the package. ``n_faults``: how many
    faults there were, where they fired.
    """

    what: str
    fired: bool
    findings: list[str] = field(default_factory=list)
    early: bool = False
    n_faults: int = 1


class World:
    """The data, two servers (one of which has imported next to nothing), and a folder to run in."""

    def __init__(self, folder: Path) -> None:
        self.base, self.folder = folder / "base", folder / "run"
        self._resources = ExitStack()
        self.server = self._resources.enter_context(ForkServer())
        self._cold: ForkServer | None = None
        self._references: dict[tuple[str, bool], dict[str, object]] = {}
        self._old: dict[str, dict[str, object]] = {}
        self._counts: dict[str, dict[str, int]] = {}
        with self._resources:
            if not self.base.exists():
                self.base.mkdir()
                data.make_data(self.base)
                data.make_models(self.base, self._prepare)
            self._resources = self._resources.pop_all()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *error: object) -> None:
        self._resources.close()

    @property
    def cold(self) -> ForkServer:
        """A server whose forks import what they need themselves."""
        if self._cold is None:
            self._cold = self._resources.enter_context(ForkServer(warm=False))
        return self._cold

    def _prepare(self, *arguments: str) -> None:
        ended = self.server.command(*arguments, cwd=self.base, settings=data.SETTINGS)
        assert ended.code == 0, ended.err

    def run(self, scene: Scene, *more: str, server: ForkServer | None = None, **options: Any) -> Ended:
        """Run the command of a scene in the folder."""
        options = {"cwd": self.folder, "out": self.folder / STDOUT, "settings": data.SETTINGS} | options
        return (server or self.server).command(*scene.arguments, *more, **options)

    @contextmanager
    def laid_out(self, scene: Scene) -> Iterator[None]:
        """The folder with the inputs of a scene, and nothing else."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        try:
            scene.lay_out(self.base, self.folder)
            yield
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def reference(self, scene: Scene, *, own_process: bool = False) -> dict[str, object]:
        """What the scene gives without a fault; a process of its own does not have our settings."""
        key = (scene.name, own_process)
        if key not in self._references:
            settings = {} if own_process else data.SETTINGS
            with self.laid_out(scene):
                self._old[scene.name] = scene.outcome(self.folder)
                ended = self.run(scene, fault=CallFault(tuple(KINDS)), within=self.folder, settings=settings)
                assert ended.code == 0, (scene.name, ended.err)
                if not own_process:
                    self._counts[scene.name] = ended.of_kind
                self._references[key] = scene.outcome(self.folder)
        return self._references[key]

    def count(self, scene: Scene, kinds: tuple[str, ...]) -> int:
        """How many calls of some kinds the scene makes on files of its folder."""
        self.reference(scene)
        return sum(self._counts[scene.name][kind] for kind in kinds)

    def call_to_spoil(self, rng: random.Random, scene: Scene, kinds: tuple[str, ...]) -> int:
        """The number of a call, often one of the last: there the order matters. At least 1."""
        calls = self.count(scene, kinds)
        first = calls - 8 if rng.random() < 0.3 else 1
        return rng.randint(max(first, 1), max(calls, 1))

    # What must hold

    def judge(
        self, scene: Scene, ended: Ended, codes: set[int], *, named: bool = True, tidy: bool = True
    ) -> list[str]:
        """What is wrong with a run that met a fault.

        ``codes`` are the exit codes that it may have besides 0; 0 means that all is as without the fault.
        ``named``: the sentence names a file. ``tidy``: nothing is left behind.
        """
        findings = self.judge_end(scene, ended, codes, named=named)
        reference, outcome = self.reference(scene), scene.outcome(self.folder)
        for name, content in outcome.items():
            if ended.code == 0 and content != reference[name]:
                findings.append(
                    f"exit code 0, but {name} is {_short(content)}, not {_short(reference[name])}"
                )
            allowed = [reference[name], self._old[scene.name].get(name, ABSENT)]
            if name != STDOUT and content not in allowed:
                findings.append(f"{name} is neither the old one nor the new one but {_short(content)}")
        if tidy and ended.code is not None and ended.code >= 0:
            findings += self.leftovers(scene)
        return findings

    def judge_end(self, scene: Scene, ended: Ended, codes: set[int], *, named: bool = True) -> list[str]:
        """What is wrong with the exit code, the message and the memory."""
        findings = []
        last = (ended.err.strip().splitlines() or [""])[-1]
        if ended.code is None:
            findings.append(f"hangs after {ended.seconds:.0f} s: {ended.err[-3000:]}")
        elif ended.code not in codes | {0}:
            findings.append(f"exit code {ended.code}: {_excerpt(ended.err)}")
        if ended.peak_bytes > PEAK_BYTES:
            findings.append(f"peak memory {ended.peak_bytes:,}")
        for sign in ("Traceback", "this is a bug", "Exception ignored", "Fatal", "core dumped"):
            if sign in ended.err:
                findings.append(f"{sign}: {_excerpt(ended.err)}")
        if ended.code is not None and ended.code > 0:
            if not last.startswith("ooc-svm: error: ") or ended.err.count("ooc-svm: error: ") != 1:
                findings.append(f"not one sentence: {_excerpt(ended.err)!r}")
            names = {*scene.inputs, *scene.outputs, *scene.arguments, "standard output"}
            if named and not any(name in last for name in names):
                findings.append(f"names no file: {last!r}")
        return findings

    def leftovers(self, scene: Scene) -> list[str]:
        """Files that a run should have removed."""
        known = {*scene.inputs, *scene.outputs, *scene.old, STDOUT, scene.rejects}
        known |= {scene.arguments[i + 1] for i, each in enumerate(scene.arguments) if each == "--checkpoint"}
        names = {entry.name for entry in self.folder.iterdir()} - known
        names |= {
            f"{folder.name}/{entry.name}"
            for folder in self.folder.iterdir()
            if folder.is_dir() and folder.name in ("saves", "saved")
            for entry in folder.iterdir()
            if not entry.name.startswith("checkpoint-")
        }
        return [f"left behind: {sorted(names)}"] if names else []

    def written(self, scene: Scene) -> list[str]:
        """The outputs that are not as they were before the run."""
        outcome, old = scene.outcome(self.folder), self._old[scene.name]
        return [f"{name} was written" for name, content in outcome.items() if content not in (old[name], b"")]

    def judge_next(self, scene: Scene, *, own_process: bool = False) -> list[str]:
        """What is wrong with the next run, which meets no fault; see `reference`."""
        ended = self.run(scene, *scene.again, settings={} if own_process else data.SETTINGS)
        if ended.code != 0:
            return [f"the next run ends with {ended.code}: {_excerpt(ended.err)}"]
        outcome, reference = scene.outcome(self.folder), self.reference(scene, own_process=own_process)
        wrong = [name for name, content in outcome.items() if content != reference[name]]
        findings = [f"after the next run {name} is {_short(outcome[name])}" for name in wrong]
        return findings + [f"after the next run: {each}" for each in self.leftovers(scene)]

    def sources(self, scene: Scene) -> dict[str, str]:
        """A hash of every input that the command only reads."""
        return {name: digest(self.folder / name) for name in scene.inputs if name != "saved"}


def digest(path: Path) -> str:
    """A hash of the names and bytes of a file, or of all files of a folder; empty if there is none."""
    if not path.exists():
        return ""
    files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
    found = hashlib.sha256()
    for each in files:
        found.update(os.fsencode(each.relative_to(path)) + b"\0")
        found.update(each.read_bytes())
    return found.hexdigest()


def _excerpt(err: str) -> str:
    return err if len(err) < 2000 else f"{err[:700]} ... {err[-1300:]}"


def _short(content: object) -> str:
    return str(content)[:200]


@contextmanager
def own_disk(folder: Path) -> Iterator[Callable[[int], None]]:
    """A file system of memory at a folder, and a function that sets its size; PermissionError without one."""
    folder.mkdir(exist_ok=True)

    def mount(*options: str) -> None:
        done = subprocess.run(["mount", *options, folder], capture_output=True, text=True, check=False)
        if done.returncode:
            raise PermissionError(done.stderr.strip())

    if shutil.which("mount") is None:
        raise PermissionError("there is no mount")
    mount("-t", "tmpfs", "-o", "size=64m", "tmpfs")
    try:
        yield lambda size: mount("-o", f"remount,size={size}")
    finally:
        subprocess.run(["umount", folder], check=True)

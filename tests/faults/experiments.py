"""The kinds of experiments: each draws a command, a fault and its place, and says what must hold after it.

An experiment follows from its kind and a number, so that it can be repeated.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

from faults import damage
from faults.calls import FOREVER, KINDS, CallFault
from faults.data import FOREIGN, NATIVE, SETTINGS
from faults.processes import cache, random_time, scheduler
from faults.scenes import ABSENT, DAMAGED, READING, SCENES, STDOUT, WRITING, Scene
from faults.service import service
from faults.world import Result, Skipped, World, digest, own_disk, require_library

Experiment = Callable[[World, random.Random], Result]

STORAGE, MEMORY, DAMAGE, INPUT, USAGE = 5, 6, 4, 3, 2


STEPS = (
    ("fsync",),
    ("rename", "mkdir", "unlink", "rmdir", "chmod"),
    ("open",),
    ("close",),
    ("write", "pwrite"),
    ("read", "pread"),
    ("stat", "listdir"),
)


def kill(world: World, rng: random.Random) -> Result:
    """Killed at the N-th call of a kind."""
    scene, kinds = rng.choice(WRITING), rng.choice(STEPS)
    world.reference(scene)
    at = world.call_to_spoil(rng, scene, kinds)
    fault = CallFault(kinds, at, at, "s", signal.SIGKILL)
    with world.laid_out(scene):
        before = world.sources(scene)
        ended = world.run(scene, fault=fault, within=world.folder)
        result = Result(f"{scene.name}: SIGKILL at call {at} of {kinds}", ended.spoiled > 0)
        if not result.fired:
            return result
        if ended.code != -signal.SIGKILL:
            result.findings.append(f"ended with {ended.code}")
        result.findings += world.judge(scene, ended, {-signal.SIGKILL}, tidy=False)
        result.findings += world.judge_next(scene)
        result.findings += changed(world, scene, before)
    return result


def changed(world: World, scene: Scene, before: dict[str, str]) -> list[str]:
    """The sources that are not as they were."""
    return [f"{name} was changed" for name, old in world.sources(scene).items() if old != before[name]]


ERRORS = {
    "read": (errno.EIO,),
    "pread": (errno.EIO,),
    "write": (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EFBIG),
    "pwrite": (errno.EIO, errno.ENOSPC),
    "fsync": (errno.EIO, errno.ENOSPC),
    "rename": (errno.EIO, errno.EACCES, errno.ENOSPC, errno.EXDEV),
    "mkdir": (errno.EIO, errno.EACCES, errno.ENOSPC, errno.EROFS),
    "unlink": (errno.EIO, errno.EACCES, errno.EROFS),
    "rmdir": (errno.EIO, errno.EACCES, errno.EBUSY),
    "mmap": (errno.ENOMEM, errno.EACCES),
    "close": (errno.EIO, errno.ENOSPC),
    "open": (errno.EIO, errno.EACCES, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EROFS),
    "truncate": (errno.EIO, errno.ENOSPC),
    "fallocate": (errno.EIO, errno.ENOSPC, errno.EOPNOTSUPP),
    "chmod": (errno.EPERM, errno.EIO),
    "stat": (errno.EIO, errno.EACCES, errno.ENOMEM),
    "listdir": (errno.EIO, errno.EACCES, errno.EMFILE),
}

# Of these failing, the next run has to tidy up.
TIDYING = {"unlink", "rmdir", "rename", "listdir", "stat", "open", "mkdir"}


def errors(world: World, rng: random.Random) -> Result:
    """A call that fails, once or from then on."""
    scene = rng.choice((*WRITING, *WRITING, *READING))
    kind = rng.choice([each for each in KINDS if world.count(scene, (each,))])
    number = rng.choice(ERRORS[kind])
    at = world.call_to_spoil(rng, scene, (kind,))
    fault = CallFault((kind,), at, rng.choice((at, at, FOREVER)), "e", number)
    world.reference(scene)
    with world.laid_out(scene):
        before = world.sources(scene)
        ended = world.run(scene, fault=fault, within=world.folder)
        how = "once" if fault.last == at else "for ever"
        what = f"{scene.name}: {errno.errorcode[number]} at call {at} of {kind}, {how}"
        result = Result(what, ended.spoiled > 0)
        if not result.fired:
            return result
        codes = {STORAGE, MEMORY} if number == errno.ENOMEM else {STORAGE}
        tidy = kind not in TIDYING and not (kind == "close" and fault.last == FOREVER)
        result.findings += world.judge(scene, ended, codes, tidy=tidy)
        result.findings += world.judge_next(scene)
        result.findings += changed(world, scene, before)
    return result


def halves(world: World, rng: random.Random) -> Result:
    """Reads and writes that move half of the bytes: nothing of it shows."""
    require_library()
    scene, kinds = rng.choice((*WRITING, *READING)), ("read", "pread", "write", "pwrite")
    at = world.call_to_spoil(rng, scene, kinds)
    world.reference(scene)
    with world.laid_out(scene):
        before = world.sources(scene)
        fault = CallFault(kinds, at, FOREVER, "h")
        ended = world.run(scene, fault=fault, within=world.folder)
        result = Result(f"{scene.name}: reads and writes of half the bytes from call {at}", ended.spoiled > 0)
        result.findings += world.judge(scene, ended, set())
        result.findings += changed(world, scene, before)
    return result


def signals(world: World, rng: random.Random) -> Result:
    """SIGINT or SIGTERM at the N-th call, or at two calls in a row."""
    scene, kinds = rng.choice((*WRITING, *WRITING, *READING)), rng.choice(STEPS)
    number = rng.choice((signal.SIGINT, signal.SIGTERM))
    world.reference(scene)
    at = world.call_to_spoil(rng, scene, kinds)
    fault = CallFault(kinds, at, rng.choice((at, at, at + 1)), "s", number)
    with world.laid_out(scene):
        before = world.sources(scene)
        ended = world.run(scene, fault=fault, within=world.folder)
        result = Result(f"{scene.name}: {number.name} at call {at} of {kinds}", ended.spoiled > 0)
        if not result.fired:
            return result
        result.findings += judge_stopped(world, scene, ended, number)
        if ended.seconds > 30:
            result.findings.append(f"took {ended.seconds:.0f} s to end")
        result.findings += world.judge_next(scene)
        result.findings += changed(world, scene, before)
    return result


def judge_stopped(world: World, scene: Scene, ended, number: int) -> list[str]:
    """After a signal a training may write its best model so far."""
    findings = world.judge(scene, ended, {128 + number}, named=False, tidy=False)
    if scene.name.startswith("train") and ended.code == 128 + number:
        findings = [each for each in findings if "neither the old one" not in each]
        content = [str(each) for each in scene.outcome(world.folder).values()]
        findings += [each for each in content if each.startswith(DAMAGED)]
    return findings


def full_disk(world: World, rng: random.Random) -> Result:
    """A disk with 1 to 100 % of the room that the outputs take."""
    scene, share = rng.choice(WRITING), rng.randint(1, 100)
    world.reference(scene)
    with world.laid_out(scene):
        room = 4096 * 40 if scene.arguments[0] == "convert" else 4096 * 6
        shutil.rmtree(world.folder)
        try:
            with own_disk(world.folder) as resize:
                scene.lay_out(world.base, world.folder)
                used = shutil.disk_usage(world.folder).used
                resize(used + room * share // 100)
                before = world.sources(scene)
                ended = world.run(scene, out=os.devnull)
                what = f"{scene.name}: a disk with {room * share // 100:,} bytes free"
                result = Result(what, ended.code != 0)
                result.findings += world.judge(scene, ended, {STORAGE})
                resize(1 << 26)
                result.findings += world.judge_next(scene)
                result.findings += changed(world, scene, before)
        except PermissionError as error:
            raise Skipped(f"cannot mount a file system of its own here: {error}") from error
    return result


def damaged(world: World, rng: random.Random) -> Result:
    """Damaged bytes in a store, a model or a checkpoint."""
    places = (*NATIVE, *FOREIGN, "model", "saved")
    place = rng.choice(places)
    scene = rng.choice(
        [scene for scene in SCENES.values() if place in scene.inputs and scene.arguments[0] != "export"]
    )
    world.reference(scene)
    with world.laid_out(scene):
        path = rng.choice([each for each in damage.files_of(world.folder / place) if each.stat().st_size])
        way = rng.choice([each for each in damage.WAYS if place != "model" or each not in MANY])
        before = digest(world.folder / place)
        way(rng, path)
        hurt = digest(world.folder / place)
        ended = world.run(scene)
        what = f"{scene.name}: {way.__name__} {path.relative_to(world.folder)}"
        result = Result(what, before != hurt)
        if not result.fired:
            return result
        result.findings += judge_damage(world, scene, ended, place, way, path)
        if place != "saved" and digest(world.folder / place) != hurt:
            result.findings.append(f"{place} was changed")
    return result


MANY = (damage.swap, damage.duplicate, damage.add)


def judge_damage(world: World, scene: Scene, ended, place: str, way, path: Path) -> list[str]:
    """Damage is found, or does not matter; without checksums, bytes may be other bytes."""
    if place in FOREIGN:
        codes = {DAMAGE, INPUT, MEMORY}
        findings = world.judge_end(scene, ended, codes)
        return findings + [
            f"{name}: {content}"
            for name, content in scene.outcome(world.folder).items()
            if str(content).startswith(DAMAGED)
            or (ended.code and name != STDOUT and content != ABSENT and not scene.old)
        ]
    gone = way is damage.delete and place == "model"
    findings = world.judge(scene, ended, {INPUT if gone else DAMAGE})
    if ended.code == 0 and way is not damage.add and (scene.arguments[0] == "verify" or place == "model"):
        findings.append("the damage was not found")
    return findings


def read_only(world: World, rng: random.Random) -> Result:
    """A folder that cannot be written, or a file that cannot be read."""
    scene = rng.choice((*WRITING, *WRITING, *READING))
    world.reference(scene)
    with world.laid_out(scene):
        before = world.sources(scene)
        files = [each for name in scene.inputs for each in damage.files_of(world.folder / name)]
        closed = rng.choice([world.folder, world.folder, rng.choice(files), world.folder / scene.inputs[-1]])
        mode = closed.stat().st_mode
        closed.chmod(0o555 if closed == world.folder else 0)
        ended = world.run(scene, plain=True, out=os.devnull)
        closed.chmod(mode)
        what = f"{scene.name}: no permission for {closed.relative_to(world.folder.parent)}"
        reads = scene in READING and closed == world.folder
        result = Result(what, ended.code != 0 or reads)
        if scene.outputs.keys() == {STDOUT}:
            result.findings += world.judge_end(scene, ended, {STORAGE})
        else:
            result.findings += world.judge(scene, ended, {STORAGE})
            if closed == world.folder and ended.code == 0:
                result.findings.append("exit code 0")
            result.findings += world.judge_next(scene)
        if reads and ended.code:
            result.findings.append(f"exit code {ended.code}: {ended.err}")
        result.findings += changed(world, scene, before)
    return result


STRANGE = (
    "a b", "new\nline", "quo'te\"s", "-dash", "--quiet", "\udcff\udcfe", "schön ☃", ".hidden", "a:b",
    "%s{0}\\", "tab\t\x1b[31m", "x" * 200, "x" * 234, "x" * 250, "x" * 255, "x" * 256, "*", "~", "#",
    "CON", "a,b",
)  # fmt: skip


def names(world: World, rng: random.Random) -> Result:
    """Strange names of files, of all paths that a command takes; sometimes there is no such file."""
    scene = rng.choice([*WRITING, *READING])
    world.reference(scene)
    paths = [each for each in scene.arguments if each in {*scene.inputs, *scene.outputs, "saves"}]
    chosen = dict(zip(paths, rng.sample(STRANGE, len(paths)), strict=True))
    if rng.random() < 0.5:
        chosen = dict([rng.choice(list(chosen.items()))])
    positional = scene.arguments[
        1 : next((i for i, each in enumerate(scene.arguments) if each[0] == "-"), 99)
    ]
    options = scene.arguments[1 + len(positional) :]
    swapped = [chosen.get(each, each) for each in (*options, "--", *positional)]
    missing = rng.random() < 0.25
    with world.laid_out(scene):
        for old, new in chosen.items():
            try:
                if missing and old in scene.inputs:
                    target = world.folder / old
                    shutil.rmtree(target) if target.is_dir() else target.unlink()
                elif os.path.lexists(world.folder / old):
                    (world.folder / old).rename(world.folder / new)
            except OSError:
                return Result(f"{scene.name}: a name that is too long", False)
        ended = world.server.command(
            scene.arguments[0], *swapped, cwd=world.folder, out=world.folder / STDOUT, settings=SETTINGS
        )
        what = f"{scene.name} with {chosen}{', missing' * missing}"
        result = Result(what, True)
        long = any(len(os.fsencode(each)) > 190 for each in chosen.values())
        codes = ({STORAGE, INPUT, USAGE} if long else set()) | ({INPUT} if missing else set())
        result.findings += world.judge_end(scene, ended, codes, named=False)
        if ended.err.count("\n") > 1 + (ended.err.count("ooc-svm: warning")):
            result.findings.append(f"more than a line: {ended.err!r}")
        if ended.code == 0:
            moved = scene.renamed(chosen)
            reference = world.reference(scene)
            for (name, content), old in zip(moved.outcome(world.folder).items(), scene.outputs, strict=True):
                if name != STDOUT and content != reference[old]:
                    result.findings.append(f"{name!r} is {str(content)[:200]}")
    return result


def sources(world: World, rng: random.Random) -> Result:
    """A source that grows, shrinks, is replaced or removed while it is read."""
    require_library()
    chosen = [
        scene for scene in SCENES.values() if any(each.endswith((".svm", ".zarr")) for each in scene.inputs)
    ]
    scene, kinds = rng.choice(chosen), rng.choice((("open",), ("read", "pread"), ("stat",)))
    source = next(each for each in scene.inputs if each.endswith((".svm", ".zarr")))
    text = source.endswith(".svm")
    change = rng.choice(TEXT_CHANGES if text else STORE_CHANGES)
    reference = world.reference(scene)
    at = world.call_to_spoil(rng, scene, kinds)
    seed = rng.random()
    with world.laid_out(scene):
        hurt: list[str] = []

        def act(pid: int) -> None:
            change(random.Random(seed), world, world.folder / source)
            hurt.append(digest(world.folder / source))

        fault = CallFault(kinds, at, at, "s", signal.SIGSTOP)
        ended = world.run(scene, fault=fault, within=world.folder, on_stop=act)
        result = Result(f"{scene.name}: {change.__name__} at call {at} of {kinds}", bool(hurt))
        if not hurt:
            return result
        result.findings += world.judge_end(scene, ended, {INPUT, DAMAGE, STORAGE})
        found = scene.outcome(world.folder)
        if hurt != [digest(world.folder / source)]:
            result.findings.append(f"{source} was changed")
        if ended.code == 0:
            again = world.run(scene, *scene.again)
            fresh = scene.outcome(world.folder) if again.code == 0 else None
            if found not in (reference, fresh):
                result.findings.append(
                    f"exit code 0, and neither of the old source nor of the new: {str(found)[:300]}"
                )
    return result


def grow(rng: random.Random, world: World, path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"1 1:1 2:5\n" * rng.choice((1, 100)))


def shrink(rng: random.Random, world: World, path: Path) -> None:
    os.truncate(path, rng.randrange(path.stat().st_size))


def replace_text(rng: random.Random, world: World, path: Path) -> None:
    shutil.copy(world.base / "other.svm", path.with_name("fresh"))
    path.with_name("fresh").rename(path)


def remove(rng: random.Random, world: World, path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def replace_store(rng: random.Random, world: World, path: Path) -> None:
    """As ``convert --overwrite`` does it."""
    shutil.copytree(
        world.base / rng.choice(("old.zarr", "float64.zarr", "ones.zarr")), world.folder.with_name("fresh")
    )
    path.rename(world.folder.with_name("gone"))
    world.folder.with_name("fresh").rename(path)
    shutil.rmtree(world.folder.with_name("gone"))


def flip_in_place(rng: random.Random, world: World, path: Path) -> None:
    damage.flip(rng, rng.choice([each for each in damage.files_of(path) if each.stat().st_size]))


TEXT_CHANGES = (grow, shrink, replace_text, remove)
STORE_CHANGES = (remove, replace_store, flip_in_place)


def imports(world: World, rng: random.Random) -> Result:
    """EIO, or a signal, at the N-th call on any file of a command that still has to import its libraries."""
    require_library()
    scene = rng.choice(
        (
            SCENES["convert-new"],
            SCENES["train-plain.zarr"],
            SCENES["predict-store"],
            SCENES["verify-plain.zarr"],
        )
    )
    kind = rng.choice(("open", "read", "stat", "mmap", "listdir"))
    at = int(10 ** rng.uniform(0, 3.5))
    stop = rng.choice((None, signal.SIGINT, signal.SIGTERM))
    fault = (
        CallFault((kind,), at, at, "e", errno.EIO) if stop is None else CallFault((kind,), at, at, "s", stop)
    )
    world.reference(scene)
    with world.laid_out(scene):
        ended = world.run(scene, server=world.cold, fault=fault)
        what = f"{scene.name}: {'EIO' if stop is None else stop.name} at call {at} of {kind} while importing"
        result = Result(what, ended.spoiled > 0)
        if not result.fired:
            return result
        if stop is None:
            result.findings += world.judge(scene, ended, {STORAGE}, named=False, tidy=False)
        else:
            result.findings += judge_stopped(world, scene, ended, stop)
        result.findings += world.judge_next(scene)
    return result


EXPERIMENTS: dict[str, tuple[Experiment, int]] = {
    "kill": (kill, 10),
    "error": (errors, 20),
    "half": (halves, 2),
    "signal": (signals, 6),
    "disk": (full_disk, 4),
    "damage": (damaged, 14),
    "permission": (read_only, 4),
    "name": (names, 6),
    "source": (sources, 8),
    "import": (imports, 4),
    "cache": (cache, 1),
    "time": (random_time, 2),
    "scheduler": (scheduler, 1),
    "service": (service, 4),
}
"""By name: what makes an experiment, and how often it is drawn."""


def run(world: World, kind: str, number: int) -> Result:
    """Make the experiment of a kind with a number."""
    experiment, _ = EXPERIMENTS[kind]
    return experiment(world, random.Random(f"{kind}:{number}"))

"""Experiments with processes of their own: damaged caches, signals at random times, a killed scheduler."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from faults import damage
from faults.calls import CallFault
from faults.scenes import SCENES, STDOUT, Scene
from faults.server import TIMEOUT, Ended
from faults.world import Result, World, require_library

COMMAND = [sys.executable, "-m", "ooc_svm.cli"]


def start(world: World, scene: Scene, **environment: str) -> subprocess.Popen[bytes]:
    """The command of a scene as a process of its own."""
    with open(world.folder / STDOUT, "wb") as out, open(world.folder.with_name("err"), "wb") as err:
        return subprocess.Popen(
            [*COMMAND, *scene.arguments],
            cwd=world.folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=os.environ | environment,
        )


def finish(world: World, process: subprocess.Popen[bytes]) -> Ended:
    """Wait for its end."""
    begin, code = time.monotonic(), None
    with contextlib.suppress(subprocess.TimeoutExpired):
        code = process.wait(timeout=TIMEOUT)
    process.kill()
    process.wait()
    err = world.folder.with_name("err").read_text(errors="surrogateescape")
    return Ended(code, err, 0, 1, time.monotonic() - begin, 0)


def cache(world: World, rng: random.Random) -> Result:
    """A damaged file in the cache of compiled functions: it is compiled again, and the result is the same."""
    scene = SCENES["evaluate"]
    world.reference(scene)
    caches = world.folder.with_name("caches")
    if not caches.exists():
        with world.laid_out(scene):
            assert finish(world, start(world, scene, NUMBA_CACHE_DIR=str(caches))).code == 0
    mine = world.folder.with_name("damaged-caches")
    shutil.rmtree(mine, ignore_errors=True)
    shutil.copytree(caches, mine)
    files = [each for each in damage.files_of(mine) if each.suffix in (".nbi", ".nbc")]
    hurt = rng.sample(files, rng.choice((1, 3, len(files))))
    way = rng.choice([each for each in damage.WAYS if each is not damage.add])
    for path in hurt:
        if path.exists() and path.stat().st_size:
            way(rng, path)
    with world.laid_out(scene):
        ended = finish(world, start(world, scene, NUMBA_CACHE_DIR=str(mine)))
        result = Result(f"{scene.name}: {way.__name__} {len(hurt)} files of the cache, {hurt[0].name}", True)
        result.findings += world.judge(scene, ended, set())
        if len(list(mine.iterdir())) > 1:
            result.findings.append("another cache was used")
    shutil.rmtree(mine)
    return result


ROOT = Path(__file__).parents[2]
OWN_FILES = tuple(f'File "{ROOT / name}/' for name in ("ooc_svm", "cli"))


def interrupted_early(ended: Ended) -> bool:
    """Whether Python was interrupted before it ran anything of the package, which nothing of it can explain.

    Python dies of the signal, or in the import of `site`, which comes before everything else, with code 1.
    """
    at_site = ended.code == 1 and "Fatal Python error: init_import_site" in ended.err
    return (
        (ended.code == -signal.SIGINT or at_site)
        and ended.err.rstrip().endswith("\nKeyboardInterrupt")
        and not any(each in ended.err for each in OWN_FILES)
    )


def random_time(world: World, rng: random.Random) -> Result:
    """SIGINT or SIGTERM, once or twice, at a random time in the life of a process."""
    scene = SCENES[rng.choice(("convert-new", "train-checkpoint", "predict-store", "verify-plain.zarr"))]
    number, delay = rng.choice((signal.SIGINT, signal.SIGTERM)), rng.uniform(0.0, 1.3)
    world.reference(scene, own_process=True)
    with world.laid_out(scene):
        process = start(world, scene)
        time.sleep(delay)
        fired = process.poll() is None
        process.send_signal(number)
        if rng.random() < 0.3:
            time.sleep(rng.uniform(0.0, 0.1))
            process.send_signal(number)
        ended = finish(world, process)
        result = Result(f"{scene.name}: {number.name} after {delay:.2f} s", fired)
        if not fired:
            return result
        if ended.code == -number and not ended.err:  # before Python has installed a handler
            return result
        if interrupted_early(ended):
            result.early = True
            result.findings += world.written(scene)
        else:
            result.findings += world.judge_end(scene, ended, {128 + number, -number}, named=False)
        result.findings += world.judge_next(scene, own_process=True)
    return result


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """An external scheduler and two workers: its address, and their processes."""
    log = folder / "scheduler-log"
    with contextlib.ExitStack() as stack:

        def begin(*arguments: str, out: Path) -> subprocess.Popen[bytes]:
            with out.open("wb") as file:
                process = subprocess.Popen(
                    [sys.executable, "-m", "distributed.cli." + arguments[0], *arguments[1:]],
                    cwd=folder, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                )  # fmt: skip
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        processes = [begin("dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", out=log)]
        deadline = time.monotonic() + 60
        while not (found := re.search(r"tcp://127\.0\.0\.1:\d+", log.read_text())):
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        for number in range(2):
            options = ("--nworkers", "1", "--nthreads", "1", "--no-nanny", "--no-dashboard")
            processes.append(begin("dask_worker", found[0], *options, out=folder / f"worker-log-{number}"))
        yield found[0], processes


def scheduler(world: World, rng: random.Random) -> Result:
    """The external scheduler, or all workers, killed in the middle of a run."""
    require_library()
    scene = SCENES[rng.choice(("train-checkpoint", "train-checkpoint", "convert-new"))]
    kind = rng.choice(("open", "fsync", "rename"))
    doomed, first, last = rng.choice((("scheduler", 0, 1), ("workers", 1, 3), ("all", 0, 3)))
    world.reference(scene)
    work = world.folder.with_name("cluster")
    work.mkdir(exist_ok=True)
    killed: list[int] = []
    with world.laid_out(scene), cluster(work) as (address, processes):

        def act(pid: int) -> None:
            for process in processes[first:last]:
                process.kill()
                killed.append(process.pid)

        more = ("--engine", "dask", "--scheduler", address, "--insecure-cluster")
        whole = world.run(scene, *more, fault=CallFault((kind,)), within=world.folder)
        findings = world.judge(scene, whole, set())
        for name in (*scene.outputs, "saves"):
            path = world.folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        at = rng.randint(1, max(whole.calls, 1))
        fault = CallFault((kind,), at, at, "s", signal.SIGSTOP)
        ended = world.run(scene, *more, fault=fault, within=world.folder, on_stop=act)
        what = f"{scene.name} on a cluster: {doomed} killed at call {at} of {kind}"
        result = Result(what, bool(killed), findings)
        result.findings += world.judge(scene, ended, {5}, named=False)
        if ended.seconds > 90:
            result.findings.append(f"took {ended.seconds:.0f} s")
        if killed:
            result.findings += world.judge_next(scene)
    shutil.rmtree(work, ignore_errors=True)
    return result

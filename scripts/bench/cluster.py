"""Whole trainings on a cluster beside one machine, and what a round costs that has nothing to do.

Run: python scripts/bench/cluster.py [--store STORE | --nonzeros 110M] [--workers 1,2] [--solvers ocas]
     python scripts/bench/cluster.py --processor 0.6 [...]
     python scripts/bench/cluster.py --rounds [--workers 1,2]

Trainings: `ooc-svm train` to a gap of 1e-3, every run a process of its own, from start to end: with
`--engine local` on `--threads` threads, and with `--engine dask` on so many workers of one thread each. The
store is in the page cache; compiled functions come from their cache. CPU seconds are those of all processes.
"same bits" compares the weights with those of the local engine. With ``--processor SHARE`` each process has
that share of a processor and no more (needs root, and control groups of version 1): so client and workers do
not take each other's time, as on machines of their own. The local engine then has it for each thread.

Rounds: the time of a sweep round over next to no rows, with 16 and with 2^20 features, and what each of the
vectors adds: w that is another one in each round, the reference that stays, and a second vector that comes
back; in brackets the CPU time of all processes. The rows are in the worker's memory: nothing is read.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from scipy import sparse

from ooc_svm.system.memory import format_size, parse_size

COMMAND = [sys.executable, "-m", "ooc_svm.cli"]
FEATURES = 1 << 20
PERIOD_MICROSECONDS = 10_000


@dataclass(frozen=True)
class Run:
    """One training."""

    engine: str
    seconds: float
    cpu_seconds: float
    report: dict
    weights: bytes


def train(
    store: Path, folder: Path, engine: str, count: int, options: argparse.Namespace, solver: str
) -> Run:
    """Train in a process of its own."""
    model, report = folder / "model", folder / "report.json"
    command = [*COMMAND, "train", str(store), "-o", str(model), "--report", str(report), "--quiet"]
    command += ["--engine", engine, "--threads", str(count), "--solver", solver, "--C", options.C]
    command += ["--memory", options.memory, "--tol", "1e-3"]
    if solver == "streamed-smo":
        command += ["--resident", options.resident, "--lanes", options.lanes]
    if options.max_passes:
        command += ["--max-passes", str(options.max_passes)]
    before, began = cpu_seconds(), time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        if options.processor is not None:
            threads = count if engine == "local" else 1
            limit_processors(process, options.processor, threads)
    seconds = time.perf_counter() - began
    print(f"{solver}, {engine}, {count}: {seconds:.1f} seconds", file=sys.stderr)
    if process.returncode:
        raise SystemExit(process.returncode)

    from ooc_svm import load_model

    return Run(
        f"{engine}, {count}",
        seconds,
        cpu_seconds() - before,
        json.loads(report.read_text()),
        load_model(model).weights.tobytes(),
    )


def limit_processors(process: subprocess.Popen, share: float, threads: int) -> None:
    """Until a process ends, let it use this share of so many processors, and its children of one each."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    own = next(path for _, names, path in (line.split(":", 2) for line in lines) if names == "cpu")
    groups: dict[int, Path] = {}
    while process.poll() is None:
        tasks = Path(f"/proc/{process.pid}/task").glob("*/children")
        with suppress(OSError):  # one has just ended
            children = [int(pid) for task in tasks for pid in task.read_text().split()]
            for pid in {process.pid, *children} - groups.keys():
                groups[pid] = group = Path(f"/sys/fs/cgroup/cpu{own}/bench-{pid}")
                group.mkdir()
                quota = PERIOD_MICROSECONDS * share * (threads if pid == process.pid else 1)
                (group / "cpu.cfs_period_us").write_text(str(PERIOD_MICROSECONDS))
                (group / "cpu.cfs_quota_us").write_text(str(int(quota)))
                (group / "cgroup.procs").write_text(str(pid))
        time.sleep(0.05)
    for group in groups.values():
        group.rmdir()


def cpu_seconds() -> float:
    """Of all processes that this one has waited for, and theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def trainings(store: Path, options: argparse.Namespace) -> None:
    """The table of whole trainings."""
    with tempfile.TemporaryDirectory() as name:
        for solver in options.solvers:
            print(
                f"\n| {solver} | seconds | CPU seconds | reads | bytes read | peak | of local | same bits |"
            )
            print("|---|--:|--:|--:|--:|--:|--:|---|")
            kinds = [("local", options.threads), *(("dask", n) for n in options.workers)]
            # By turns: the speed of a machine may change from one minute to the next.
            rounds = [
                [train(store, Path(name), *kind, options, solver) for kind in kinds]
                for _ in range(options.repeat)
            ]
            medians = [
                sorted(runs, key=lambda run: run.seconds)[len(runs) // 2]
                for runs in zip(*rounds, strict=True)
            ]
            local = medians[0]
            for run, runs in zip(medians, zip(*rounds, strict=True), strict=True):
                alike = all(each.weights == local.weights for each in runs)
                report, same = run.report, "yes" if alike else "NO"
                print(
                    f"| {run.engine} | {run.seconds:.1f} | {run.cpu_seconds:.1f} | {report['passes']} | "
                    f"{format_size(report['bytes_read'])} | {format_size(report['peak_memory_bytes'])} | "
                    f"{run.seconds / local.seconds:.2f} | {same} |",
                    flush=True,
                )


def few_rows(n_features: int) -> tuple[sparse.csr_array, np.ndarray]:
    """Rows for four lanes, with a feature each."""
    n_rows = 256
    columns = np.arange(n_rows) % n_features
    matrix = sparse.csr_array((np.ones(n_rows), (np.arange(n_rows), columns)), (n_rows, n_features))
    return matrix, np.where(np.arange(n_rows) % 2, 1.0, -1.0)


@contextmanager
def engine_of(cluster, n_features: int, n_workers: int) -> Iterator[tuple]:
    """An engine over those rows, with the row vectors of a dual problem, and a maker of rounds.

    With no workers it is the local engine with a thread.
    """
    from ooc_svm.cluster.engine import ClusterEngine
    from ooc_svm.cluster.worker import Resources
    from ooc_svm.data.matrix import MatrixSource
    from ooc_svm.engine.local import LocalEngine
    from ooc_svm.losses.hinge import Hinge
    from ooc_svm.problems.targets import TARGET, ValueTargets
    from ooc_svm.rowvectors.collection import RowVectors
    from ooc_svm.solvers.space import LinearSpace
    from ooc_svm.solvers.streamed_smo.dual import DualModel
    from ooc_svm.solvers.streamed_smo.rounds import cut_rounds
    from ooc_svm.solvers.streamed_smo.sweep import Residency, ScorePass, SweepPass

    matrix, labels = few_rows(n_features)
    source = MatrixSource(matrix, labels)
    first = cut_rounds(source.blocks, 1, 4)[0]
    model = DualModel(ValueTargets(), Hinge(), 1.0, LinearSpace(n_features))
    nobody = np.empty(0, np.int64)
    no_rows = Residency(nobody, nobody, nobody, np.empty(0), nobody)

    def requests(w: np.ndarray, reference: np.ndarray | None, rebuild: bool) -> list:
        bias, seed, where = np.zeros(3), np.uint64(1), (first.rows, first.position)
        sweep = SweepPass(model, w, None, rebuild, bias, 1.0, 0.0, no_rows, 1, seed, (0, 0), 0.0, *where)
        return [sweep] if reference is None else [sweep, ScorePass(model, reference, *where)]

    class Some:
        client = cluster.client

        def workers(self):
            return cluster.workers()[:n_workers]

        def require_visible(self, *paths):
            pass

    with ExitStack() as stack:
        if n_workers:
            engine = ClusterEngine(
                source,
                Some(),
                open_source=partial(MatrixSource, matrix, labels),
                resources_of=lambda member, partitions: Resources(1, 1 << 30, 1 << 30),
                folder=Path(stack.enter_context(tempfile.TemporaryDirectory())),
                rounds=[first.rows],
            )
        else:
            engine = LocalEngine(source, RowVectors(source.n_rows, 1 << 30), cache_bytes=1 << 30)
        stack.enter_context(engine)
        engine.vectors.create(TARGET, np.float64).write(0, labels)
        for name in model.row_vectors:
            engine.vectors.create(name, np.float64)
        yield engine, requests


def milliseconds(engine, rounds: Iterator, pids: list[int], count: int = 40) -> tuple[float, float]:
    """The median time of some rounds, after three of them, and the mean CPU time of all processes."""
    times, used = [], 0.0
    for number in range(count + 3):
        if number == 3:
            used = used_by(pids)
        requests = next(rounds)
        began = time.perf_counter()
        engine.stream(requests)
        times.append(time.perf_counter() - began)
    return 1e3 * statistics.median(times[3:]), 1e3 * (used_by(pids) - used) / count


def used_by(pids: list[int]) -> float:
    """CPU seconds of this process and of others."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def empty_rounds(options: argparse.Namespace) -> None:
    """The table of rounds with nothing to do."""
    from ooc_svm.cluster.connection import connect

    rng = np.random.default_rng(0)
    with connect(None, workers=max(options.workers), memory=None) as cluster:
        columns = [0, *options.workers]
        head = " | ".join(f"{n} worker{'' if n == 1 else 's'}, ms" for n in options.workers)
        print(f"\n| a round without rows | local engine, ms | {head} |\n|---|{'--:|' * len(columns)}")
        cases = {
            "16 features": (16, True, False, False),
            "2^20 features: the same w again": (FEATURES, False, False, False),
            "another w": (FEATURES, True, False, False),
            "another w, and the reference": (FEATURES, True, True, False),
            "another w, the reference, and a second vector back": (FEATURES, True, True, True),
        }
        for title, (n_features, fresh, scored, rebuild) in cases.items():
            cells = []
            for n_workers in columns:
                with engine_of(cluster, n_features, n_workers) as (engine, requests):
                    w, reference = rng.normal(size=(2, n_features))

                    def rounds(w=w, reference=reference, requests=requests, case=(fresh, scored, rebuild)):
                        while True:
                            if case[0]:
                                w = w + 1.0
                            yield requests(w, reference if case[1] else None, case[2])

                    pids = [worker.pid for worker in cluster.workers()]
                    wall, cpu = milliseconds(engine, rounds(), pids)
                    cells.append(f"{wall:.0f} ({cpu:.0f})")
            print(f"| {title} | {' | '.join(cells)} |", flush=True)


def make_store(folder: Path, nonzeros: int) -> Path:
    """Text-like rows of 2^20 columns, converted and shuffled."""
    texts = Path(__file__).with_name("texts.py")
    text, store = folder / "generated.svm", folder / "generated.zarr"
    subprocess.run([sys.executable, texts, "generated", text, "--nonzeros", str(nonzeros)], check=True)
    subprocess.run([*COMMAND, "convert", text, "-o", store, "--shuffle", "--quiet"], check=True)
    text.unlink()
    return store


def main() -> None:
    numbers = lambda text: [int(part) for part in text.split(",")]  # noqa: E731
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--nonzeros", type=parse_size, default="110M")
    parser.add_argument("--workers", type=numbers, default=[1, 2])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--solvers", type=lambda text: text.split(","), default=["ocas", "streamed-smo"])
    parser.add_argument("--C", default="1")
    parser.add_argument("--memory", default="2GB")
    parser.add_argument("--resident", default="0.05")
    parser.add_argument("--lanes", default="2")
    parser.add_argument("--max-passes", type=int)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--processor", type=float, metavar="SHARE")
    parser.add_argument("--rounds", action="store_true")
    options = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if options.rounds:
        empty_rounds(options)
    elif options.store is not None:
        trainings(options.store, options)
    else:
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            trainings(make_store(Path(folder), options.nonzeros), options)


if __name__ == "__main__":
    main()

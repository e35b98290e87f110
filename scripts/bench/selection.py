"""Time selections of order statistics of breakpoints beside NumPy.

The selections are those between two reads of the cutting planes: of a free bias one, of the nu problems two.
NumPy makes the breakpoints from the same row vectors and calls numpy.partition; the time of these calls alone
is that of breakpoints that lie ready in memory. The ratios are the times of the selections by both. Memory is
what the process takes at its peak beyond what it had before; it is to be 64 MB at most.

Run: python scripts/bench/selection.py [--rows 10000000] [--threads 2] [--repeat 5]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy import sparse

from ooc_svm.data.matrix import MatrixSource
from ooc_svm.engine.local import LocalEngine
from ooc_svm.losses.epsilon_insensitive import EpsilonInsensitive
from ooc_svm.losses.hinge import Hinge
from ooc_svm.problems.targets import CODES, TARGET, ClassTargets, ValueTargets
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.solvers.cutting_plane.quantile import weighted_quantiles
from ooc_svm.solvers.cutting_plane.row_rules import RowLosses
from ooc_svm.system.malloc import share_freed_memory

CHUNK = 1 << 18  # Rows that are made at a time
CLASSES = RowLosses(ClassTargets(np.array([-1.0, 1.0]), np.ones(2)), Hinge())
VALUES = RowLosses(ValueTargets(), EpsilonInsensitive(0.0))
# Sides of the pieces, and the share of the rows below each statistic
CASES: dict[str, tuple[RowLosses, list[tuple[float, float]]]] = {
    "free bias": (CLASSES, [(0.0, 0.4)]),
    "nu-svc": (CLASSES, [(1.0, 0.25), (-1.0, 0.1)]),
    "svr": (VALUES, [(0.0, 1.0)]),
    "nu-svr": (VALUES, [(1.0, 0.9), (-1.0, 0.1)]),
}


def make_vectors(n_rows: int) -> RowVectors:
    """Row vectors on disk: scores, classes, values."""
    vectors = RowVectors(n_rows, 0)
    for name in (CLASSES.best, CLASSES.previous, TARGET):
        vectors.create(name, np.float64)
    vectors.create(CODES, np.uint16)
    rng = np.random.default_rng(0)
    for start in range(0, n_rows, CHUNK):
        size = min(CHUNK, n_rows - start)
        for name in (CLASSES.best, CLASSES.previous, TARGET):
            vectors[name].write(start, rng.normal(size=size))
        vectors[CODES].write(start, (rng.random(size) < 0.4).astype(np.uint16))
    return vectors


def select(engine: LocalEngine, losses: RowLosses, wanted: list[tuple[float, float]]) -> None:
    """The order statistics."""
    levels = [(side, share * engine.source.n_rows) for side, share in wanted]
    steps = weighted_quantiles(losses, 0.5, levels, engine.source.n_rows)
    request = next(steps)
    try:
        while True:
            request = steps.send(engine.stream([request])[0])
    except StopIteration:
        pass


def select_by_numpy(vectors: RowVectors, losses: RowLosses, wanted: list[tuple[float, float]]) -> float:
    """The same by NumPy, all rows in memory; the seconds of numpy.partition alone."""
    names = (losses.best, losses.previous, *losses.targets.reads)
    whole = {name: vectors[name].read(0, vectors.n_rows) for name in names}
    targets, _ = losses.targets.values(whole)
    residuals = targets - (whole[losses.best] + 0.5 * (whole[losses.previous] - whole[losses.best]))
    alone = 0.0
    for side, share in wanted:
        if losses is CLASSES:
            points = residuals if side == 0.0 else residuals[targets == side]
        else:
            pieces = [residuals - sign * losses.loss.epsilon for sign in (1.0, -1.0) if side in (0.0, sign)]
            points = np.concatenate(pieces)
        place = min(int(share * vectors.n_rows), len(points) - 1)
        start = time.perf_counter()
        np.partition(points, place)
        alone += time.perf_counter() - start
    return alone


def seconds(run: Callable[[], object]) -> float:
    """Time of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def memory(name: str) -> int:
    """A size of this process, ``VmRSS`` or ``VmHWM``, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))


def peak_of(run: Callable[[], object]) -> int:
    """Bytes that a call takes at its peak beyond what the process had before."""
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    run()
    return memory("VmHWM") - before


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--threads", type=int, default=2, help="of the selection; numpy.partition takes one")
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    share_freed_memory()  # As training does
    source = MatrixSource(sparse.csr_array((options.rows, 1)), None)
    few = MatrixSource(sparse.csr_array((100, 1)), None)
    with make_vectors(100) as vectors, LocalEngine(few, vectors) as engine:
        for losses, wanted in CASES.values():
            select(engine, losses, wanted)
    columns = ("number", "NumPy s", "partition s", "selection s", "by NumPy", "by partition", "MB")
    print(f"{'statistics of':<16}" + "".join(f"{column:>14}" for column in columns))
    with (
        make_vectors(options.rows) as vectors,
        LocalEngine(source, vectors, threads=options.threads) as engine,
    ):
        for name, (losses, wanted) in CASES.items():
            peak = peak_of(lambda: select(engine, losses, wanted))  # noqa: B023  (called at once)
            whole, alone, own = [], [], []
            for _ in range(options.repeat):
                whole.append(seconds(lambda: alone.append(select_by_numpy(vectors, losses, wanted))))  # noqa: B023
                own.append(seconds(lambda: select(engine, losses, wanted)))  # noqa: B023
            plain, partition, selection = (statistics.median(times) for times in (whole, alone, own))
            times = (plain, partition, selection, selection / plain, selection / partition)
            cells = "".join(f"{each:>14.3f}" for each in times)
            print(f"{name:<16}{len(wanted):>14}{cells}{peak / 1e6:>14.0f}", flush=True)


if __name__ == "__main__":
    main()

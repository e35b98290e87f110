"""Time one scores-and-cut pass of a store against decoding alone and computing alone.

The store is made once, text-like, and read from the page cache. A pass overlaps reading with computing, so it
should take little more than the longer of the two.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ooc_svm.data.blocks import LabelledRows, RowBlock
from ooc_svm.engine.local import LocalEngine
from ooc_svm.engine.serial import SerialEngine
from ooc_svm.losses.hinge import Hinge
from ooc_svm.passes.base import StridedRange
from ooc_svm.passes.linear import LinearPass
from ooc_svm.problems.targets import ClassTargets
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.solvers.cutting_plane.row_oracle import RowCutOracle, RowLosses
from ooc_svm.solvers.space import LinearSpace
from ooc_svm.store import Store, StoreWriter, open_store

ROWS_A_BLOCK = 20_000


def make_store(path: Path, n_rows: int, n_features: int, length: int) -> Store:
    """A store of rows of about ``length`` values in columns of falling frequency."""
    with StoreWriter(path, threads=2, n_features=n_features) as writer:
        for start in range(0, n_rows, ROWS_A_BLOCK):
            rng = np.random.default_rng([1, start])
            size = min(ROWS_A_BLOCK, n_rows - start)
            ids = np.sort((n_features ** rng.random((size, length))).astype(np.int32) - 1, axis=1)
            kept = np.ones_like(ids, dtype=bool)
            kept[:, 1:] = ids[:, 1:] != ids[:, :-1]
            indptr = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
            values = rng.random(int(indptr[-1])).astype(np.float32) * np.float32(0.1)
            labels = rng.choice([-1.0, 1.0], size)
            writer.append(LabelledRows(RowBlock(start, indptr, ids[kept], values), labels))
        writer.commit()
    return open_store(path)


def median_seconds(run: Callable[[], object], repeat: int) -> float:
    """Median time of some runs after one that is not counted."""
    run()
    times = []
    for _ in range(repeat):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def oracle_of(store: Store) -> tuple[RowCutOracle, LinearPass]:
    losses = RowLosses(ClassTargets(np.array([-1.0, 1.0]), np.ones(2)), Hinge())
    oracle = RowCutOracle(losses, 1.0, LinearSpace(store.n_features))
    weights = np.random.default_rng(2).normal(size=store.n_features)
    request = next(oracle.read(weights, 0.3, np.array([0.2]), np.empty(0), None))
    assert isinstance(request, LinearPass)
    return oracle, request


def vectors_of(store: Store, oracle: RowCutOracle) -> RowVectors:
    vectors = RowVectors(store.n_rows, 1 << 40)
    vectors.create("codes", np.uint16).write(0, np.arange(store.n_rows, dtype=np.uint16) % 2)
    for name, dtype in oracle.vectors.items():
        vectors.create(name, dtype)
    return vectors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=600_000)
    parser.add_argument("--features", type=int, default=1 << 17)
    parser.add_argument("--length", type=int, default=110)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        store = make_store(Path(folder) / "bench.zarr", options.rows, options.features, options.length)
        oracle, request = oracle_of(store)
        buffers = store.new_buffers()
        n_blocks = len(store.blocks)

        def decode() -> None:
            for index in range(n_blocks):
                store.read_block(index, buffers)

        decoding = median_seconds(decode, options.repeat)
        with vectors_of(store, oracle) as vectors:
            engine = SerialEngine(store, vectors)
            block, span = store.read_block(0), store.blocks[0]
            part = StridedRange(0, span.start, span.stop)
            partial = request.empty()
            one = median_seconds(lambda: engine.visit([request], block, part, [partial]), 5 * options.repeat)
            computing = one * store.n_nonzeros / span.n_nonzeros
            with LocalEngine(store, vectors, threads=options.threads) as local:
                whole = median_seconds(lambda: local.stream([request]), options.repeat)
                counters = local.counters
                waiting = counters.waiting_seconds / (counters.waiting_seconds + counters.visiting_seconds)
    longer = max(decoding, computing)
    print(
        f"{store.n_rows:,} rows, {store.n_nonzeros:,} nonzeros, {n_blocks} blocks, {options.threads} threads"
    )
    print(f"{'':28}{'seconds':>9}{'ns a nonzero':>14}")
    for name, seconds in (
        ("decoding alone, one reader", decoding),
        ("computing alone, one thread", computing),
        ("one pass", whole),
    ):
        print(f"{name:28}{seconds:9.3f}{1e9 * seconds / store.n_nonzeros:14.2f}")
    print(f"pass / longer of the two     {whole / longer:8.2f}")
    print(f"share of time spent waiting  {waiting:8.2f}")


if __name__ == "__main__":
    main()

"""Time passes on a cluster of this machine against the speed of the network: what a round costs, and why.

The data is little, so a pass is mostly what goes to the workers and comes back. The loopback device of a
network namespace of its own is throttled (needs root, ``unshare`` and ``tc``); a delay is a sleep before
every message of the client.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ooc_svm.cluster.dask_calls import Channel
from ooc_svm.data.blocks import LabelledRows, RowBlock
from ooc_svm.store import StoreWriter
from ooc_svm.training.train import train

SOLVERS = {"cutting-plane": 12, "streamed-smo": 5}


def make_store(path: Path, n_rows: int, n_features: int, length: int) -> None:
    """Random rows, in some dozens of blocks."""
    rng = np.random.default_rng(0)
    ids = np.sort(rng.integers(0, n_features // length, (n_rows, length)) * length + np.arange(length))
    values = rng.random(ids.size).astype(np.float32)
    indptr = np.arange(n_rows + 1, dtype=np.int64) * length
    rows = RowBlock(0, indptr, ids.ravel().astype(np.int32), values)
    with StoreWriter(
        path, n_features=n_features, chunk_elements=max(ids.size // 32, 1), block_chunks=1
    ) as writer:
        writer.append(LabelledRows(rows, rng.choice([-1.0, 1.0], n_rows)))
        writer.commit()


def pass_seconds(store: Path, solver: str, workers: int) -> float:
    """Median time of a pass but the first two."""
    passes = SOLVERS[solver]
    model = train(
        store,
        solver=solver,
        C=1e4,
        resident=0.05 if solver == "streamed-smo" else None,
        lanes=2 if solver == "streamed-smo" else None,
        engine="dask",
        threads=workers,
        max_passes=passes,
        tol=1e-12,
        memory="4GB",
    )
    ends = [entry["seconds"] for entry in model.report["history"]]
    return statistics.median(b - a for a, b in pairwise(ends[1:]))


def delay_messages(seconds: float) -> None:
    """Let every message of the client wait."""
    ask = Channel.ask

    async def later(self: Channel, *arguments: Any) -> Any:
        await asyncio.sleep(seconds)
        return await ask(self, *arguments)

    Channel.ask = later  # type: ignore[method-assign]


def throttle(rate: str) -> None:
    """Begin again in a network namespace whose loopback device has this rate."""
    script = 'ip link set lo up && tc qdisc add dev lo root tbf rate "$0" burst 1mb latency 1s && exec "$@"'
    arguments = ["--inside" if each == "--rate" else each for each in sys.argv]
    os.execvp("unshare", ["unshare", "-n", "sh", "-c", script, rate, sys.executable, *arguments])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--features", type=int, default=2**20)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--solvers", default=",".join(SOLVERS))
    parser.add_argument("--rate", help="of the network, as tc takes it: 1gbit")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before every message")
    options = parser.parse_args()
    if options.rate is not None:
        throttle(options.rate)
    if options.delay:
        delay_messages(options.delay)
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "a.zarr"
        make_store(store, options.rows, options.features, 60)
        for solver in options.solvers.split(","):
            for workers in (1, 2):
                seconds = pass_seconds(store, solver, workers)
                network = f"{options.inside or 'free'}, delay {options.delay * 1e3:g} ms"
                print(
                    f"{network:24}  {solver:14}  {workers} worker(s)  {1e3 * seconds:7.0f} ms a pass",
                    flush=True,
                )


if __name__ == "__main__":
    main()

"""The time of a pass over a store in a bucket behind a line of some latency and bandwidth.

An S3 server runs on this machine, and before it a proxy that makes the line. The proxy keeps what it has
fetched once, so that the speed of the server is not measured. Compared are the bytes of a pass over the
bandwidth, the pass itself, a pass with a warm cache on the local disk, and one over the same store there.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from helpers.object_server import ObjectServer, Proxy, environment  # noqa: E402

import ooc_svm  # noqa: E402
from ooc_svm.data.blocks import LabelledRows, RowBlock  # noqa: E402
from ooc_svm.store import StoreWriter, open_store  # noqa: E402
from ooc_svm.system.memory import format_size, parse_size  # noqa: E402

ROW, FEATURES, ROWS = 100, 2**18, 20_000
MEMORY = "750MB"


def serve(latency, bandwidth, pipe):
    server = ObjectServer()
    proxy = Proxy(server.url, latency=latency, bandwidth=bandwidth, keeps=True)
    pipe.send(proxy.url)
    while (wanted := pipe.recv()) is not None:
        proxy.latency, proxy.bandwidth = wanted
        pipe.send((len(proxy.requests), proxy.n_bytes))


def write(targets, n_bytes):
    """The same store at several places: rows of random columns and values."""
    rng = np.random.default_rng(1)
    weights = rng.normal(size=FEATURES)
    writers = [StoreWriter(target, n_features=FEATURES) for target in targets]
    step = FEATURES // ROW
    for start in range(0, n_bytes // (8 * ROW), ROWS):
        ids = (rng.integers(0, step, (ROWS, ROW)) + step * np.arange(ROW)).astype(np.int32)
        values = rng.random((ROWS, ROW), np.float32)
        labels = np.sign((values * weights[ids]).sum(1) + 1e-9)
        block = RowBlock(start, np.arange(0, ROWS * ROW + 1, ROW, np.int64), ids.ravel(), values.ravel())
        for writer in writers:
            writer.append(LabelledRows(block, labels, None))
    for writer in writers:
        writer.commit()
        writer.close()


def pass_seconds(store, threads, **options):
    """Seconds of the passes after the first, and the peak memory of the run."""
    model = ooc_svm.train(
        store,
        solver="ocas",
        bias="none",
        C=1e-3,
        tol=1e-9,
        max_passes=4,
        memory=MEMORY,
        threads=threads,
        **options,
    )
    ends = [each["seconds"] for each in model.report["history"]]
    return float(np.median(np.diff(ends))), model.report["peak_memory_bytes"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="500MB", help="of the rows in memory")
    parser.add_argument("--latency", type=float, default=0.05, help="seconds")
    parser.add_argument("--bandwidth", default="50MB", help="bytes a second")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    here, there = multiprocessing.get_context("spawn").Pipe()
    bandwidth = parse_size(options.bandwidth)
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(0.0, None, there), daemon=True)
    server.start()
    os.environ.update(environment(here.recv()))
    with tempfile.TemporaryDirectory() as folder:
        local, remote = f"{folder}/rows.zarr", "s3://data/rows.zarr"
        write([local, remote], parse_size(options.size))
        store = open_store(local)
        n_bytes = sum(store.block_stored_bytes(span.index) for span in store.blocks)
        pass_seconds(remote, options.threads)  # fills the proxy, compiles
        here.send((options.latency, bandwidth))
        before = here.recv()
        far, peak = pass_seconds(remote, options.threads)
        here.send((options.latency, bandwidth))
        after = here.recv()
        cache = {"cache": f"{folder}/cache", "cache_size": "50GB"}
        pass_seconds(remote, options.threads, **cache)
        cached, _ = pass_seconds(remote, options.threads, **cache)
        near, near_peak = pass_seconds(local, options.threads)
    line = n_bytes / bandwidth
    print(
        f"{len(store.blocks)} blocks, {format_size(n_bytes)} stored; latency {options.latency:g} s, "
        f"{format_size(bandwidth)}/s"
    )
    print(f"bytes over bandwidth      {line:.2f} s")
    print(f"a pass                    {far:.2f} s, {far / line:.2f} times that")
    print(f"a pass on the local disk  {near:.2f} s; peak memory {format_size(near_peak)}")
    print(f"a pass with a warm cache  {cached:.2f} s, {cached / near:.2f} times the local disk")
    print(f"peak memory               {format_size(peak)}")
    print(f"requests of the run       {after[0] - before[0]}, {format_size(after[1] - before[1])}")
    here.send(None)


if __name__ == "__main__":
    began = time.perf_counter()
    main()
    print(f"all of it took {time.perf_counter() - began:.0f} s")

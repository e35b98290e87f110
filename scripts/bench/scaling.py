"""Time of a fixed number of passes against the number of rows; prints the slope on a log-log plot.

Nothing is kept in the block cache, so that every size reads and decodes all of its blocks in each pass.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from passes import make_store, oracle_of, vectors_of

from ooc_svm.engine.local import LocalEngine
from ooc_svm.solvers.cutting_plane.ocas import Ocas, OcasState
from ooc_svm.solvers.stopping import Stopping


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 300_000, 1_000_000, 3_000_000])
    parser.add_argument("--features", type=int, default=1 << 16)
    parser.add_argument("--length", type=int, default=30)
    parser.add_argument("--passes", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    times = []
    print(f"{'rows':>12}{'nonzeros':>14}{'seconds a pass':>16}{'ns a nonzero':>14}")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        for n_rows in options.rows:
            store = make_store(Path(folder) / f"{n_rows}.zarr", n_rows, options.features, options.length)
            oracle, _ = oracle_of(store)
            runs = []
            # The first run compiles and fills the page cache.
            for _ in range(1 + options.repeat):
                with vectors_of(store, oracle) as vectors:
                    state = OcasState.fresh(oracle, 100)
                    solver = Ocas(oracle, Stopping(1e-9, max_passes=options.passes), state)
                    with LocalEngine(store, vectors, threads=options.threads) as engine:
                        began = time.perf_counter()
                        engine.run([solver])
                        runs.append((time.perf_counter() - began) / options.passes)
            times.append(statistics.median(runs[1:]))
            nonzeros = store.n_nonzeros
            print(
                f"{n_rows:12,}{nonzeros:14,}{times[-1]:16.3f}{1e9 * times[-1] / nonzeros:14.2f}", flush=True
            )
    slope = np.polyfit(np.log(options.rows), np.log(times), 1)[0]
    print(f"slope on a log-log plot: {slope:.2f}")


if __name__ == "__main__":
    main()

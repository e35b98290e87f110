"""Time of a fixed number of passes against the number of rows; prints the slope on a log-log plot."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from passes import make_store

import ooc_svm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 300_000, 1_000_000, 3_000_000])
    parser.add_argument("--features", type=int, default=1 << 16)
    parser.add_argument("--length", type=int, default=30)
    parser.add_argument("--passes", type=int, default=8)
    parser.add_argument("--memory", default="800MB")
    options = parser.parse_args()
    times = []
    print(f"{'rows':>12}{'nonzeros':>14}{'seconds a pass':>16}{'ns a nonzero':>14}")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        for n_rows in options.rows:
            store = make_store(Path(folder) / f"{n_rows}.zarr", n_rows, options.features, options.length)
            limits = {"max_passes": options.passes, "tol": 1e-9, "memory": options.memory, "solver": "ocas"}
            ooc_svm.train(store, max_passes=1, tol=1e-9, memory=options.memory)
            history = ooc_svm.train(store, **limits).report["history"]
            seconds = (history[-1]["seconds"] - history[0]["seconds"]) / (len(history) - 1)
            times.append(seconds)
            print(
                f"{n_rows:12,}{store.n_nonzeros:14,}{seconds:16.3f}{1e9 * seconds / store.n_nonzeros:14.2f}"
            )
    slope = np.polyfit(np.log(options.rows), np.log(times), 1)[0]
    print(f"slope on a log-log plot: {slope:.2f}")


if __name__ == "__main__":
    main()

"""Time the counting of active pairs beside one numpy.argsort of the same scores.

Both are run in turns and medians are compared. Counting is to take at most 3 times as long for a million rows
whatever the number of ranks, and ten million rows at most 12 times as long as one million.

Run: python scripts/bench/orders.py [--rows 1000000] [--groups 1] [--threads 2] [--repeat 5] [--larger 10]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

from ooc_svm.pairs.counts import count_pairs


def seconds(run: Callable[[], object]) -> float:
    """Time of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def medians(n_rows: int, n_ranks: int, groups: int, threads: int, repeat: int) -> tuple[float, float]:
    """Median seconds of argsort and of counting, after one call of each that is not counted."""
    rng = np.random.default_rng([n_rows, n_ranks])
    scores = rng.normal(size=n_rows)
    ranks = (rng.permutation(n_rows) % n_ranks).astype(np.int32)
    plus, minus = np.empty(n_rows, np.int64), np.empty((n_rows, groups), np.int64)
    sorting, counting = [], []
    for _ in range(repeat + 1):
        sorting.append(seconds(lambda: np.argsort(scores)))
        counting.append(seconds(lambda: count_pairs(scores, ranks, n_ranks, plus, minus, threads=threads)))
    return statistics.median(sorting[1:]), statistics.median(counting[1:])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--groups", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2, help="of counting; argsort takes one")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--larger", type=int, default=10, help="also so many times the rows (1: do not)")
    options = parser.parse_args()
    print(
        f"{'rows':>11}{'ranks':>11}{'argsort s':>11}{'counting s':>12}{'x argsort':>11}{'x fewer rows':>14}"
    )
    few: dict[str, float] = {}
    for n_rows in sorted({options.rows, options.rows * options.larger}):
        for name, n_ranks in (("2", 2), ("10", 10), ("100000", 100_000), ("all", n_rows)):
            sorting, counting = medians(n_rows, n_ranks, options.groups, options.threads, options.repeat)
            growth = f"{counting / few[name]:>14.1f}" if name in few else ""
            few.setdefault(name, counting)
            ratio = counting / sorting
            print(
                f"{n_rows:>11}{name:>11}{sorting:>11.3f}{counting:>12.3f}{ratio:>11.1f}{growth}", flush=True
            )


if __name__ == "__main__":
    main()

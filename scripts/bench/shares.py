"""What a larger resident share takes and saves: `streamed-smo` on a store, by share, C and loss.

    python scripts/bench/shares.py STORE [--shares 0.1,0.3,1] [--C 1,8] [--loss hinge,logistic] [--bias none]
        [--threads 1] [--runs 1]

Each line has the reads, the visits of a row, the seconds of the processors and by the clock, the least of the
runs, in a process that has compiled and loaded its functions before. A star marks the share that follows from
the memory.
"""

from __future__ import annotations

import argparse
import time
import warnings
from itertools import product
from typing import NamedTuple

import ooc_svm


class Found(NamedTuple):
    """One training."""

    cpu: float  # Seconds
    seconds: float
    passes: int
    visits: float  # As multiples of the rows
    resident: float


def measure(arguments: argparse.Namespace, share: float | None, C: float, loss: str) -> Found:
    """Train once."""
    cpu, clock = time.process_time(), time.perf_counter()
    report = ooc_svm.train(
        arguments.store, C=C, loss=loss, bias=arguments.bias, resident=share, threads=arguments.threads
    ).report
    visits = report["models"][0]["row_visits"]
    spent = time.process_time() - cpu, time.perf_counter() - clock
    return Found(*spent, report["passes"], visits, report["resident"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("store")
    parser.add_argument("--shares", default="0.1,0.3,1")
    parser.add_argument("--C", default="1")
    parser.add_argument("--loss", default="hinge")
    parser.add_argument("--bias", default="none")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=1)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ooc_svm.HintWarning)
    shares = [None, *map(float, arguments.shares.split(","))]
    print(f"{'loss':14}{'C':>8}{'share':>9}{'reads':>7}{'visits':>9}{'CPU s':>8}{'s':>8}")
    for loss, C in product(arguments.loss.split(","), map(float, arguments.C.split(","))):
        measure(arguments, None, C, loss)  # Compiles and loads
        for share in shares:
            found = min(measure(arguments, share, C, loss) for _ in range(arguments.runs))
            name = f"{'*' if share is None else ''}{found.resident:.2g}"
            times = f"{found.cpu:8.2f}{found.seconds:8.2f}"
            print(f"{loss:14}{C:8g}{name:>9}{found.passes:7}{found.visits:7.1f} n{times}", flush=True)
    print("*: by default")


if __name__ == "__main__":
    main()

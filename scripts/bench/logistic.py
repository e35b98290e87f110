"""Logistic regression and LIBLINEAR's, training alone, and what a step takes next to one of the hinge.

    python scripts/bench/logistic.py STORE... [--C 1] [--threads 2] [--runs 3]

Each STORE has two classes; scripts/bench/train.py --keep FOLDER makes those that it races on. No bias, one
process for all, which also compiles before anything is timed:

ours       `ooc_svm.train(STORE, loss="logistic")` to a gap of 1e-3, which reads the store
LIBLINEAR  the package liblinear-official with -s 7 (dual; one thread) on a matrix in memory, at the first
           tolerance of 0.1, 0.01, ... whose primal value is at most 1e-3 above our lower bound. Neither
           making the matrix nor handing it over is timed.

Both take turns, --runs times, and each figure is a median. Seconds are those of the processors; of the clock
in brackets. "ns a nonzero" is what a nonzero takes each time that its row is looked at, everything else in
the run included; that of the hinge is next to it.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

import numpy as np
from liblinear.liblinear import parameter, problem
from liblinear.liblinearutil import train as train_liblinear
from probabilities import matrix_of, timed
from scipy import sparse
from train import table

import ooc_svm
from ooc_svm.training.warmup import warm_up

TOLERANCES = (0.1, 0.01, 1e-3, 1e-4)
GAP = 1e-3


def primal(X: sparse.csr_matrix, y: Any, w: Any, C: float) -> float:
    """The value of logistic regression without a bias."""
    return 0.5 * float(w @ w) + C * float(np.logaddexp(0.0, -y * (X @ w)).sum())


def ours(path: Path, loss: str, C: float, threads: int) -> tuple[dict[str, Any], dict[str, float]]:
    """The report of a run, and what it took."""
    options: dict[str, Any] = {"loss": loss, "C": C, "bias": "none", "threads": threads}
    model, took = timed(lambda: ooc_svm.train(path, progress=lambda _: None, **options))
    report = model.report
    visits = report["models"][0]["row_visits"] * report["n_nonzeros"]
    return report, {**took, "ns": 1e9 * took["cpu"] / visits}


class Theirs:
    """LIBLINEAR on a matrix in memory, at the first tolerance that is good enough."""

    def __init__(self, X: sparse.csr_matrix, y: Any, C: float, bound: float) -> None:
        self._rows, self._C = problem(y, X, bias=-1), C
        for tolerance in TOLERANCES:
            self.tolerance = tolerance
            model = self.train()
            w = np.array(model.w[: X.shape[1]]) * (1.0 if model.get_labels()[0] == 1 else -1.0)
            self.primal = primal(X, y, w, C)
            if self.primal <= (1.0 + GAP) * bound:
                break

    def train(self) -> Any:
        """The model at that tolerance."""
        given = parameter(f"-s 7 -c {self._C!r} -e {self.tolerance!r} -q")
        return train_liblinear(self._rows, given)


def median(runs: list[dict[str, float]], key: str) -> float:
    """Of one of the figures."""
    return statistics.median(run[key] for run in runs)


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("stores", nargs="+", type=Path)
    arguments.add_argument("--C", type=float, default=1.0)
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--runs", type=int, default=3)
    options = arguments.parse_args()
    C, lines = options.C, []
    for path in options.stores:
        store = ooc_svm.open_store(path)
        for loss in ("hinge", "logistic"):
            warm_up(ooc_svm.TrainOptions(loss=loss, bias="none"), store.value_type, False, lambda _: None)
        report, _ = ours(path, "logistic", C, options.threads)
        [row] = report["models"]
        peer = Theirs(*matrix_of(path, store.n_features), C, row["dual"])
        took: list[dict[str, float]] = []
        their: list[dict[str, float]] = []
        hinge: list[dict[str, float]] = []
        for _ in range(options.runs):
            took.append(ours(path, "logistic", C, options.threads)[1])
            their.append(timed(peer.train)[1])
            hinge.append(ours(path, "hinge", C, options.threads)[1])
        cpu, seconds = (median(took, key) for key in ("cpu", "seconds"))
        their_cpu, their_seconds = (median(their, key) for key in ("cpu", "seconds"))
        lines.append(
            (
                *(path.stem, f"{report['passes']}", f"{row['row_visits']:.1f}", f"{row['primal']:.7g}"),
                f"{cpu:.1f} ({seconds:.1f})",
                f"{peer.tolerance:g}: {peer.primal:.7g}",
                f"{their_cpu:.1f} ({their_seconds:.1f})",
                f"{cpu / their_cpu:.2f} ({seconds / their_seconds:.2f})",
                *(f"{median(took, 'ns'):.1f}", f"{median(hinge, 'ns'):.1f}"),
            )
        )
    head = ("store", "reads", "visits / n", "P", "ours, s", "LIBLINEAR -e: P", "LIBLINEAR, s", "ratio")
    print(table((*head, "ns a nonzero", "hinge"), lines))


if __name__ == "__main__":
    main()

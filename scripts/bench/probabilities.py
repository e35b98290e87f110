"""Probabilities of rows that are not trained on: fitted to the scores of a hinge, and of logistic regression.

    python scripts/bench/probabilities.py FOLDER [--only NAME ...] [--out FILE.json]

FOLDER holds the data sets of `SETS`; what is missing is left out. Where there is no test file, the last tenth
of the rows is for testing. The contenders, with the same C and a penalized bias:

hinge, sigmoid   `ooc-svm train --calibrate sigmoid`: five folds in the reads of training
hinge, isotonic  `--calibrate isotonic`
..., held out    with `--validation 0.1` in place of the folds, so that a single model is trained
logistic         `--loss logistic`
CalibratedClassifierCV   scikit-learn's, of LinearSVC(loss="hinge"), sigmoid, cv=5
LogisticRegression       scikit-learn's, lbfgs, to its default tolerance; its bias has no penalty

Ours train on a store, with all processors; scikit-learn's on a matrix in memory, whose reading is not timed.
Seconds are those of the fit: of the clock, and of the processors.
"""

from __future__ import annotations

import argparse
import bz2
import json
import tempfile
import time
import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from contenders import blocks_of
from scipy import sparse
from sklearn.calibration import CalibratedClassifierCV
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss
from sklearn.svm import LinearSVC
from train import table

import ooc_svm
from ooc_svm.data.blocks import Float64Array
from ooc_svm.training.warmup import warm_up

TEST_PART = 10  # One of so many rows is for testing
ERROR_BINS = 15


class Set(NamedTuple):
    """A data set: its files, C, and the labels of the positive class where there are several."""

    train: str
    C: float
    test: str | None = None
    positive: tuple[int, ...] = (1,)


SETS = {
    "a9a": Set("adult/a9a.bz2", 1.0, "adult/a9a.t.bz2"),
    "w1a": Set("web/w1a.bz2", 1.0, "web/w1a.t.bz2"),
    "arxiv, astro-ph": Set("arxiv/arxiv.svm.bz2", 0.01, positive=tuple(range(5, 12))),
}
OURS: dict[str, dict[str, Any]] = {
    "hinge, sigmoid": {"calibrate": "sigmoid"},
    "hinge, isotonic": {"calibrate": "isotonic"},
    "hinge, sigmoid, held out": {"calibrate": "sigmoid", "validation": 0.1},
    "hinge, isotonic, held out": {"calibrate": "isotonic", "validation": 0.1},
    "logistic": {"loss": "logistic"},
}
THEIRS: dict[str, Callable[[float], Any]] = {
    "CalibratedClassifierCV": lambda C: CalibratedClassifierCV(LinearSVC(loss="hinge", C=C), cv=5),
    "LogisticRegression": lambda C: LogisticRegression(C=C, max_iter=1000),
}


def write_texts(data: Set, folder: Path, target: Path) -> tuple[Path, Path]:
    """Text to train on and text to test with, the labels 1 and -1."""
    train, test = target / "train.svm", target / "test.svm"
    lines = _lines(folder / data.train, data.positive)
    if data.test is not None:
        rest = _lines(folder / data.test, data.positive)
    else:
        first = len(lines) - len(lines) // TEST_PART
        lines, rest = lines[:first], lines[first:]
    train.write_text("".join(lines))
    test.write_text("".join(rest))
    return train, test


def _lines(path: Path, positive: tuple[int, ...]) -> list[str]:
    with bz2.open(path, "rt") as file:
        return [_two_classes(line, positive) for line in file]


def _two_classes(line: str, positive: tuple[int, ...]) -> str:
    label, _, features = line.partition(" ")
    return f"{1 if float(label) in positive else -1} {features.strip()}\n"


def matrix_of(store: Path, n_features: int) -> tuple[sparse.csr_matrix, Float64Array]:
    """The rows of a store as a matrix of so many columns, and their labels."""
    parts = [(rows.copy(), y) for rows, y in blocks_of(ooc_svm.open_store(store))]
    blocks, labels = zip(*parts, strict=True)
    rows = sparse.vstack(blocks, "csr")
    rows.resize(rows.shape[0], n_features)
    return rows, np.concatenate(labels)


def qualities(p: Any, y: Any) -> dict[str, float]:
    """Log-loss, Brier score, and the mean distance of the share predicted right from its probability."""
    largest, hit = np.maximum(p, 1 - p), (p > 0.5) == (y > 0)
    bins = np.minimum((largest * ERROR_BINS).astype(int), ERROR_BINS - 1)
    error = np.abs(np.bincount(bins, hit - largest, ERROR_BINS)).sum() / len(y)
    return {"log-loss": log_loss(y, p), "brier": brier_score_loss(y, p), "error": float(error)}


def timed(fit: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """What a function returns, and its seconds by the clock and by the processors."""
    began, worked = time.perf_counter(), time.process_time()
    found = fit()
    return found, {"seconds": time.perf_counter() - began, "cpu": time.process_time() - worked}


def measure(data: Set, folder: Path) -> list[dict[str, Any]]:
    """All contenders on a set."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        stores = [Path(scratch, name) for name in ("train.zarr", "test.zarr")]
        for text, store in zip(write_texts(data, folder, Path(scratch)), stores, strict=True):
            ooc_svm.convert(text, store)
        source = ooc_svm.open_store(stores[0])
        X, y = matrix_of(stores[0], source.n_features)
        Z, truth = matrix_of(stores[1], source.n_features)
        for loss, weighted in product(("hinge", "logistic"), (False, True)):
            warm_up(ooc_svm.TrainOptions(loss=loss), source.value_type, weighted, lambda _: None)
        for name, options in OURS.items():
            given = {"C": data.C, **options}
            model, took = timed(
                lambda given=given: ooc_svm.train(stores[0], progress=lambda _: None, **given)
            )
            facts = {"passes": model.report["passes"], "converged": model.report["converged"]}
            p = model.predict_proba(stores[1])[:, 1]
            rows.append({"contender": name, **qualities(p, truth), **took, **facts})
        for name, make in THEIRS.items():
            estimator, took = timed(lambda make=make: make(data.C).fit(X, y))
            p = estimator.predict_proba(Z)[:, 1]
            rows.append({"contender": name, **qualities(p, truth), **took})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", action="append", metavar="NAME", choices=SETS)
    parser.add_argument("--out", type=Path, help="Also write all numbers as JSON.")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # LIBLINEAR says that it did not converge
    everything: dict[str, Any] = {}
    head = ("contender", "log-loss", "Brier score", "calibration error", "seconds", "CPU seconds", "reads")
    for name, data in SETS.items():
        wanted = options.only is None or name in options.only
        if not wanted or not (options.folder / data.train).exists():
            continue
        everything[name] = measure(data, options.folder)
        lines = [
            (
                *(row["contender"], f"{row['log-loss']:.4f}", f"{row['brier']:.4f}", f"{row['error']:.4f}"),
                *(f"{row['seconds']:.1f}", f"{row['cpu']:.1f}", str(row.get("passes", ""))),
            )
            for row in everything[name]
        ]
        print(f"{name}, C = {data.C:g}\n\n{table(head, lines)}\n", flush=True)
        if options.out is not None:
            options.out.write_text(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main()

"""Kernels: block SMO against LIBSVM (scikit-learn's SVC), one thread each, fits alone, CPU time.

    scripts/bench/kernels.py FOLDER            # of the data sets, see the page of benchmarks
    scripts/bench/kernels.py FOLDER --only a9a

Both are given a free bias and the same C and gamma. LIBSVM stops at its tolerance of 1e-3, and block SMO at
the relative gap that this comes to: P of LIBSVM's model, from its decisions, and D of its multipliers. They
take turns, `--runs` times, and a line has the medians.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_svmlight_file
from sklearn.preprocessing import MaxAbsScaler
from sklearn.svm import SVC

import ooc_svm


class Case(NamedTuple):
    """Data, and what they are trained with."""

    path: str
    gamma: float
    C: float
    rows: int = 0  # The first ones, 0: all
    positive: float | None = None  # Against the rest, columns scaled


CASES = {
    "a9a": Case("adult/a9a.bz2", 0.05, 1.0),
    "w8a": Case("web/w8a.bz2", 0.05, 5.0),
    "ijcnn1": Case("ijcnn1/ijcnn1.trn.bz2", 0.5, 8.0),
    "covtype, 20 k rows": Case("covtype/covtype.multiclass.bz2", 1.0, 1.0, 20_000, 2.0),
}


def load(folder: Path, case: Case) -> tuple[Any, Any]:
    rows, labels = load_svmlight_file(str(folder / case.path), dtype=np.float32)
    if case.positive is not None:
        labels = np.where(labels == case.positive, 1.0, -1.0)
        rows = MaxAbsScaler().fit_transform(rows).tocsr()
    if case.rows:
        chosen = np.random.default_rng(0).permutation(rows.shape[0])[: case.rows]
        rows, labels = rows[chosen], labels[chosen]
    rows.sort_indices()
    # SVC takes no other ids.
    rows.indices, rows.indptr = rows.indices.astype(np.int32), rows.indptr.astype(np.int32)
    return rows, labels


class Fits(NamedTuple):
    """CPU seconds, and what is reached."""

    theirs: float
    ours: float
    their_prediction: float
    our_prediction: float
    their_gap: float
    our_gap: float
    reads: float
    support: float


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    found = work()
    return time.process_time() - began, found


def relative_gap(peer: SVC, scores: Any, labels: Any, C: float) -> float:
    """``(P - D) / P`` of a model of LIBSVM."""
    v, bias = np.asarray(peer.dual_coef_.todense()).ravel(), float(peer.intercept_[0])
    norm = float(v @ (scores[peer.support_] - bias))
    primal = 0.5 * norm + C * float(np.maximum(0.0, 1.0 - labels * scores).sum())
    return (primal - float(np.abs(v).sum()) + 0.5 * norm) / primal


def measure(rows: Any, labels: Any, case: Case) -> Fits:
    options = {"kernel": "rbf", "gamma": case.gamma, "C": case.C, "bias": "free", "threads": 1}
    few = np.concatenate([np.flatnonzero(labels > 0)[:100], np.flatnonzero(labels <= 0)[:100]])
    ooc_svm.train(rows[few], labels[few], **options)  # compiles
    peer = SVC(gamma=case.gamma, C=case.C, cache_size=1000)
    theirs, _ = seconds(lambda: peer.fit(rows, labels))
    slow, scores = seconds(lambda: peer.decision_function(rows))
    gap = relative_gap(peer, scores, labels, case.C)
    ours, model = seconds(lambda: ooc_svm.train(rows, labels, tol=gap, **options))
    fast, _ = seconds(lambda: model.decision_function(rows, threads=1))
    (row,) = model.report["models"]
    return Fits(theirs, ours, slow, fast, gap, row["relative_gap"], row["passes"], row["n_support"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", action="append", choices=list(CASES))
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    print("| data | LIBSVM s | its gap | block SMO s | gap | reads | support vectors | ratio | prediction |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for name in arguments.only or CASES:
        rows, labels = load(arguments.folder, CASES[name])
        runs = [measure(rows, labels, CASES[name]) for _ in range(arguments.runs)]
        own = Fits(*np.median(runs, axis=0))
        found = f"| {name} | {own.theirs:.1f} | {own.their_gap:.1e} | {own.ours:.2f} | {own.our_gap:.1e} "
        found += f"| {own.reads:.0f} | {own.support:.0f} | {own.ours / own.theirs:.3f} "
        print(found + f"| {own.our_prediction / own.their_prediction:.3f} |", flush=True)


if __name__ == "__main__":
    main()

"""Kernels: block SMO against LIBSVM (scikit-learn's SVC), one thread each, fits alone, CPU time.

    scripts/bench/kernels.py FOLDER            # of the data sets, see the page of benchmarks
    scripts/bench/kernels.py FOLDER --only a9a

Both are given a free bias and the same C and gamma. LIBSVM stops at its tolerance of 1e-3, and block SMO at a
relative gap of 1e-4; the objectives are those of the fitted models, from their decisions.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_svmlight_file
from sklearn.preprocessing import MaxAbsScaler
from sklearn.svm import SVC

import ooc_svm

GAP = 1e-4


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


def objective(scores: Any, own_scores: Any, v: Any, bias: float, labels: Any, C: float) -> float:
    norm = float(v @ (own_scores - bias))
    return 0.5 * norm + C * float(np.maximum(0.0, 1.0 - labels * scores).sum())


def measure(rows: Any, labels: Any, case: Case) -> tuple[float, ...]:
    options = {"kernel": "rbf", "gamma": case.gamma, "C": case.C, "bias": "free", "tol": GAP}
    few = np.concatenate([np.flatnonzero(labels > 0)[:100], np.flatnonzero(labels <= 0)[:100]])
    ooc_svm.train(rows[few], labels[few], **options)  # compiles
    began = time.process_time()
    model = ooc_svm.train(rows, labels, **options)
    ours = time.process_time() - began
    peer = SVC(gamma=case.gamma, C=case.C, cache_size=1000)
    began = time.process_time()
    peer.fit(rows, labels)
    theirs = time.process_time() - began
    began = time.process_time()
    scores = peer.decision_function(rows)
    theirs_predict = time.process_time() - began
    began = time.process_time()
    model.decision_function(rows, threads=1)
    ours_predict = time.process_time() - began
    (row,) = model.report["models"]
    v = np.asarray(peer.dual_coef_.todense()).ravel()
    primal = objective(scores, scores[peer.support_], v, float(peer.intercept_[0]), labels, case.C)
    gap = (primal - row["dual"]) / primal
    return (
        theirs,
        ours,
        gap,
        row["relative_gap"],
        row["passes"],
        row["n_support"],
        theirs_predict,
        ours_predict,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", action="append", choices=list(CASES))
    arguments = parser.parse_args()
    print("| data | LIBSVM s | its gap | block SMO s | gap | reads | support vectors | ratio | prediction |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for name in arguments.only or CASES:
        rows, labels = load(arguments.folder, CASES[name])
        theirs, ours, gap, own_gap, passes, support, slow, fast = measure(rows, labels, CASES[name])
        found = f"| {name} | {theirs:.1f} | {gap:.1e} | {ours:.1f} | {own_gap:.1e} | {passes:.0f} "
        ratios = f"| {support:.0f} | {ours / theirs:.2f} | {slow:.1f} s / {fast:.1f} s |"
        print(found + ratios, flush=True)


if __name__ == "__main__":
    main()

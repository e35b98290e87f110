"""Kernels: block SMO against LIBSVM (scikit-learn's SVC and SVR), fits alone, CPU time of one thread each.

    scripts/bench/kernels.py FOLDER            # of the data sets, see the page of benchmarks
    scripts/bench/kernels.py FOLDER --only a9a
    scripts/bench/kernels.py FOLDER --onedal   # against oneDAL (scikit-learn-intelex), where it is installed

Both are given a free bias and the same C and gamma. The other program stops at its tolerance of 1e-3, and
block SMO at the relative gap that this comes to: P of its model, from its decisions, and D of its
multipliers. They take turns, `--runs` times, and a line has the medians. The last column is the time by the
clock of block SMO with two threads, divided by that with one.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_svmlight_file
from sklearn.preprocessing import MaxAbsScaler, StandardScaler
from sklearn.svm import SVC, SVR

import ooc_svm

EPSILON = 0.1  # Of a regression, in standard deviations of the values


class Case(NamedTuple):
    """Data, and what they are trained with."""

    path: str
    gamma: float
    C: float
    rows: int = 0  # The first ones, 0: all
    positive: float | None = None  # Against the rest, columns scaled
    values: bool = False  # Targets are values; they and the columns are standardized


CASES = {
    "a9a": Case("adult/a9a.bz2", 0.05, 1.0),
    "w8a": Case("web/w8a.bz2", 0.05, 5.0),
    "ijcnn1": Case("ijcnn1/ijcnn1.trn.bz2", 0.5, 8.0),
    "covtype, 20 k rows": Case("covtype/covtype.multiclass.bz2", 1.0, 1.0, 20_000, 2.0),
    "californiahousing": Case("ranking/californiahousing_ordinal.bz2", 0.125, 1.0, values=True),
    "abalone": Case("regression/abalone.trn.bz2", 0.125, 1.0, values=True),
    "protein": Case("regression/protein.bz2", 0.125, 1.0, values=True),
}


def load(folder: Path, case: Case) -> tuple[Any, Any]:
    rows, labels = load_svmlight_file(str(folder / case.path), dtype=np.float32)
    if case.positive is not None:
        labels = np.where(labels == case.positive, 1.0, -1.0)
        rows = MaxAbsScaler().fit_transform(rows).tocsr()
    if case.values:
        labels = StandardScaler().fit_transform(labels[:, None])[:, 0]
        rows = StandardScaler(with_mean=False).fit_transform(rows).tocsr()
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
    two_threads: float  # Seconds by the clock, divided by those of one


class Timed(NamedTuple):
    """What some work came to, with its seconds of processors and by the clock."""

    found: Any
    cpu: float
    wall: float


def timed(work: Callable[[], Any]) -> Timed:
    cpu, wall = time.process_time(), time.perf_counter()
    found = work()
    return Timed(found, time.process_time() - cpu, time.perf_counter() - wall)


def relative_gap(peer: Any, scores: Any, targets: Any, case: Case) -> float:
    """``(P - D) / P`` of a model of another program."""
    v, epsilon = peer.dual_coef_, EPSILON if case.values else 0.0
    v = np.asarray(v.todense() if hasattr(v, "todense") else v).ravel()
    norm = float(v @ (scores[peer.support_] - float(np.ravel(peer.intercept_)[0])))
    losses = np.abs(targets - scores) - epsilon if case.values else 1.0 - targets * scores
    primal = 0.5 * norm + case.C * float(np.maximum(0.0, losses).sum())
    dual = float(v @ targets[peer.support_]) - epsilon * float(np.abs(v).sum()) - 0.5 * norm
    return (primal - dual) / primal


def peers(onedal: bool) -> tuple[Any, Any]:
    """Classes of the other program, for labels and for values."""
    if not onedal:
        return SVC, SVR
    from sklearnex import svm

    return svm.SVC, svm.SVR


def measure(rows: Any, targets: Any, case: Case, onedal: bool) -> Fits:
    options: dict[str, Any] = {"kernel": "rbf", "gamma": case.gamma, "C": case.C, "bias": "free"}
    theirs: dict[str, Any] = {"gamma": case.gamma, "C": case.C, "cache_size": 1000}
    if case.values:
        options |= {"problem": "svr", "epsilon": EPSILON}
        theirs |= {"epsilon": EPSILON}
    few = np.concatenate([np.flatnonzero(targets > 0)[:100], np.flatnonzero(targets <= 0)[:100]])
    # Loads what is compiled, that for values of float64 too.
    ooc_svm.train(rows[few], targets[few], tol=1e-9, **options)
    peer = peers(onedal)[case.values](**theirs)
    # It has no regression of sparse rows.
    own = np.asarray(rows.todense()) if onedal and case.values else rows
    fit = timed(lambda: peer.fit(own, targets))
    scoring = peer.predict if case.values else peer.decision_function
    slow = timed(lambda: np.ravel(scoring(own)))
    gap = relative_gap(peer, slow.found, targets, case)
    one, two = (
        timed(lambda n=n: ooc_svm.train(rows, targets, tol=max(gap, 1e-9), threads=n, **options))
        for n in (1, 2)
    )
    fast = timed(lambda: one.found.decision_function(rows, threads=1))
    (row,) = one.found.report["models"]
    reached = gap, row["relative_gap"], row["passes"], row["n_support"]
    return Fits(fit.cpu, one.cpu, slow.cpu, fast.cpu, *reached, two.wall / one.wall)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", action="append", choices=list(CASES))
    parser.add_argument("--onedal", action="store_true", help="against oneDAL, not LIBSVM")
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    peer = "oneDAL" if arguments.onedal else "LIBSVM"
    print(
        f"| data | {peer} s | its gap | ours, s | gap | reads | support vectors | ratio | prediction | two |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for name in arguments.only or CASES:
        rows, targets = load(arguments.folder, CASES[name])
        runs = [measure(rows, targets, CASES[name], arguments.onedal) for _ in range(arguments.runs)]
        own = Fits(*np.median(runs, axis=0))
        found = f"| {name} | {own.theirs:.1f} | {own.their_gap:.1e} | {own.ours:.2f} | {own.our_gap:.1e} "
        found += f"| {own.reads:.0f} | {own.support:.0f} | {own.ours / own.theirs:.3f} "
        found += f"| {own.our_prediction / own.their_prediction:.3f} | {own.two_threads:.2f} |"
        print(found, flush=True)


if __name__ == "__main__":
    main()

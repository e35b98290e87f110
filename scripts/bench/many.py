"""Many models at once against scikit-learn, and two threads against one: seconds, peak memory, quality.

    python scripts/bench/many.py [--only NAME ...] [--scale SHARE] [--a9a FILE]

Every contestant has a process of its own, which loads the data, compiles on a small part of it, and then is
timed; the contestants of a row run one after another. P is the sum of the objectives of all models: the
lower, the closer to the optimum. ``--scale`` makes the generated data smaller. The contests are

grid     5 folds x 8 values of C on a9a (FILE, of the LIBSVM collection): `tune`; GridSearchCV, 2 processes
counts   12 classes, 160,000 x 2,000 counts, 11 % of them not 0: LinearSVC
dense    26 classes, 15,000 x 16: LinearSVC
text     20 classes, 16,000 rows, 62,000 columns, 80 values a row: LinearSVC
threads  16 values of C on the data of ``text``, two classes: one thread, and two
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import linalg

import ooc_svm

COSTS = [2.0**k for k in range(-4, 4)]
PATH = [2.0**k for k in range(-10, 6)]
SMALL = 500  # Rows that are trained on first, for compiling
Data = tuple[Any, Any]


def of_classes(X: Any, n_classes: int, rng: np.random.Generator) -> Data:
    """Rows with noisy labels that linear functions give; LinearSVC takes ids of 32 bits alone."""
    if sparse.issparse(X):
        X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    scores = X @ rng.standard_normal((X.shape[1], n_classes))
    return X, np.argmax(scores + 0.3 * scores.std() * rng.gumbel(size=scores.shape), axis=1)


def make(name: str, options: argparse.Namespace) -> Data:
    """The data of a contest."""
    rng, scale = np.random.default_rng(0), options.scale
    if name == "grid":
        from sklearn.datasets import load_svmlight_file

        X, y = load_svmlight_file(options.a9a)
        X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
        return X, y
    if name == "counts":
        X = sparse.random_array((int(160_000 * scale), 2_000), density=0.11, format="csr", rng=rng)
        X.data = np.log1p(rng.poisson(2.0, X.nnz) + 1.0)
        return of_classes(X, 12, rng)
    if name == "dense":
        return of_classes(rng.standard_normal((int(15_000 * scale), 16)), 26, rng)
    n_rows = int(16_000 * scale)
    columns = np.minimum(rng.zipf(1.3, (n_rows, 80)), 62_000) - 1
    rows = np.repeat(np.arange(n_rows), 80)
    X = sparse.csr_array((np.ones(rows.size), (rows, columns.ravel())), shape=(n_rows, 62_000))
    X.sum_duplicates()
    X = sparse.csr_array(X.multiply(1.0 / linalg.norm(X, axis=1)[:, None]))
    return of_classes(X, 20 if name == "text" else 2, rng)


def ours(X: Any, y: Any, **options: Any) -> dict[str, Any]:
    """All models by one call."""
    model = ooc_svm.train(X, y, progress=lambda _: None, **options)
    rows = model.report["models"]
    return {"gap": max(row["relative_gap"] for row in rows), "P": sum(row["primal"] for row in rows)}


def linear_svc(X: Any, y: Any) -> dict[str, Any]:
    """The same by scikit-learn, whose intercept is penalised as ours is; with its default tolerance."""
    from sklearn.svm import LinearSVC

    machine = LinearSVC(loss="hinge", max_iter=10_000, random_state=0).fit(X, y)
    scores, signs = machine.decision_function(X), np.where(y[:, None] == machine.classes_, 1.0, -1.0)
    penalty = 0.5 * float((machine.coef_**2).sum() + (machine.intercept_**2).sum())
    return {"P": penalty + float(np.maximum(0.0, 1.0 - signs * scores).sum())}


def tune(X: Any, y: Any) -> dict[str, Any]:
    """All folds and values of C together."""
    tuning = ooc_svm.tune(X, y, C=COSTS, folds=5, progress=lambda _: None).report["tuning"]
    best = max(tuning["values"], key=lambda each: each["mean"])
    return {"C": best["C"], "accuracy": best["mean"], "standard_error": best["standard_error"]}


def grid_search(X: Any, y: Any) -> dict[str, Any]:
    """Each of them by itself, in two processes."""
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import LinearSVC

    machine = LinearSVC(loss="hinge", random_state=0)
    search = GridSearchCV(machine, {"C": COSTS}, cv=5, n_jobs=2).fit(X, y)
    return {"C": search.best_params_["C"], "accuracy": search.best_score_}


Contestant = Callable[[Any, Any], dict[str, Any]]
AGAINST: dict[str, Contestant] = {"ours": ours, "LinearSVC": linear_svc}
CONTESTS: dict[str, dict[str, Contestant]] = {
    "grid": {"ours": tune, "GridSearchCV": grid_search},
    "counts": AGAINST,
    "dense": AGAINST,
    "text": AGAINST,
    "threads": {
        "one": lambda X, y: ours(X, y, C=PATH, threads=1),
        "two": lambda X, y: ours(X, y, C=PATH, threads=2),
    },
}


def run(name: str, contestant: str, options: argparse.Namespace) -> None:
    """One contestant, in this process: prints its facts."""
    warnings.simplefilter("ignore")
    X, y = make(name, options)
    work = CONTESTS[name][contestant]
    small = np.random.default_rng(1).permutation(len(y))[:SMALL]
    work(X[small], y[small])
    began, cpu = time.perf_counter(), time.process_time()
    found = work(X, y)
    facts = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(facts | {"peak_bytes": peak} | found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", action="append", metavar="NAME", choices=CONTESTS)
    parser.add_argument("--scale", type=float, default=1.0, metavar="SHARE")
    parser.add_argument("--a9a", metavar="FILE")
    parser.add_argument("--contestant", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contestant is not None:
        run(options.only[0], options.contestant, options)
        return
    print("| contest | who | seconds | CPU | peak | found |\n|---|---|---|---|---|---|", flush=True)
    for name, contestants in CONTESTS.items():
        if (options.only is not None and name not in options.only) or (name == "grid" and not options.a9a):
            continue
        for each in contestants:
            own = ["--only", name, "--contestant", each, "--scale", str(options.scale)]
            own += ["--a9a", options.a9a] if options.a9a else []
            done = subprocess.run([sys.executable, __file__, *own], check=True, stdout=subprocess.PIPE)
            facts = json.loads(done.stdout.splitlines()[-1])
            times = f"{facts.pop('seconds'):.2f} | {facts.pop('cpu_seconds'):.2f}"
            peak = f"{facts.pop('peak_bytes') / 1e6:.0f} MB"
            rest = ", ".join(f"{key} {value:.4g}" for key, value in facts.items())
            print(f"| {name} | {each} | {times} | {peak} | {rest} |", flush=True)


if __name__ == "__main__":
    main()

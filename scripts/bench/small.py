"""Time `OocSVC.fit` on little data in memory, beside scikit-learn's LinearSVC on the same problem.

Both minimise the hinge loss with the same C and bias. LinearSVC takes the first tolerance of 0.1, 0.01, ...
at which its primal value is within 1e-3 of the optimum, as OocSVC's is; the optimum is bounded from below by
the dual value of a finer run. The two are run in turns, after one fit of each that is not counted.

Run: python scripts/bench/small.py [--rows 1000] [--columns 20] [--bias penalized] [--repeat 50]
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable

import numpy as np
from sklearn.svm import LinearSVC

from ooc_svm.data.blocks import Float64Array
from ooc_svm.estimators.svm import OocSVC

GAP = 1e-3
TOLERANCES = [10.0**-k for k in range(1, 9)]


def data(n_rows: int, n_columns: int) -> tuple[Float64Array, Float64Array]:
    """Normal rows, and classes of which about a fifth is on the wrong side of any plane."""
    rng = np.random.default_rng([n_rows, n_columns])
    X = rng.normal(size=(n_rows, n_columns))
    scores = X @ rng.normal(size=n_columns) / np.sqrt(n_columns)
    return X, np.where(scores + rng.normal(size=n_rows) > 0.0, 1.0, -1.0)


def primal(X: Float64Array, y: Float64Array, C: float, model: OocSVC | LinearSVC) -> float:
    """``1/2 (|w|^2 + b^2) + C sum_i max(0, 1 - y_i (w.x_i + b))``."""
    w, b = np.ravel(model.coef_), float(np.ravel(model.intercept_)[0])
    loss = np.maximum(0.0, 1.0 - y * (X @ w + b)).sum()
    return float(0.5 * (w @ w + b * b) + C * loss)


def seconds(fit: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU time of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    fit()
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--C", type=float, default=1.0)
    parser.add_argument("--bias", choices=("none", "penalized"), default="penalized")
    parser.add_argument("--repeat", type=int, default=50)
    options = parser.parse_args()
    X, y = data(options.rows, options.columns)
    bound = OocSVC(C=options.C, bias=options.bias, tol=1e-5).fit(X, y).report_["models"][0]["dual"]

    def ours() -> OocSVC:
        return OocSVC(C=options.C, bias=options.bias, tol=GAP).fit(X, y)

    def peer(tol: float) -> LinearSVC:
        intercept = options.bias == "penalized"
        svc = LinearSVC(
            loss="hinge", C=options.C, tol=tol, fit_intercept=intercept, max_iter=10**6, random_state=0
        )
        return svc.fit(X, y)

    def distance(model: OocSVC | LinearSVC) -> float:
        return primal(X, y, options.C, model) / bound - 1.0

    with warnings.catch_warnings(action="ignore"):
        tol = next((tol for tol in TOLERANCES if distance(peer(tol)) <= GAP), TOLERANCES[-1])
        fits = {"OocSVC": ours, f"LinearSVC, tol={tol:g}": lambda: peer(tol)}
        distances = {name: distance(fit()) for name, fit in fits.items()}
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in fits}
        for _ in range(options.repeat):
            for name, fit in fits.items():
                times[name].append(seconds(fit))
    print(f"{'milliseconds':<24}{'wall':>8}{'cpu':>8}{'least cpu':>11}{'above the optimum':>19}")
    for name, taken in times.items():
        wall, cpu = (1e3 * statistics.median(each) for each in zip(*taken, strict=True))
        least = 1e3 * min(cpu for _, cpu in taken)
        print(f"{name:<24}{wall:>8.1f}{cpu:>8.1f}{least:>11.1f}{distances[name]:>19.1e}")


if __name__ == "__main__":
    main()

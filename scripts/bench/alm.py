"""Reads of the augmented Lagrangian on well-known data sets, by p, by C and by the number of rows.

    python scripts/bench/alm.py FOLDER reads|C|rows [--only NAME ...]

``reads``: of both algorithms to a certified gap of 1e-2; in brackets those after which P is within 1 % of the
optimum, which streamed SMO finds to 1e-4. ``C``: reads for values of C. ``rows``: reads and, in
brackets, CPU microseconds a row and read (one thread) of growing parts of covtype. All with a free bias.
FOLDER holds adult/a9a.bz2, web/w8a.bz2, ijcnn1/ijcnn1.trn.bz2 and covtype/covtype.multiclass.bz2 (the LIBSVM
collection); what is missing is left out.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from pairs import matrix_of

import ooc_svm

SETS: dict[str, tuple[str, dict[str, Any]]] = {
    "a9a": ("adult/a9a.bz2", {}),
    "w8a": ("web/w8a.bz2", {}),
    "ijcnn1": ("ijcnn1/ijcnn1.trn.bz2", {}),
    "covtype": ("covtype/covtype.multiclass.bz2", {"positive": 1.0, "scale": "maxabs"}),
}
SOLVERS = ("alm", "inexact-alm")
POWERS, COSTS, PARTS = (1.0, 1.2, 1.5, 2.0), (0.01, 0.1, 1.0, 10.0, 100.0), (64, 16, 4, 1)
MOST_READS, NEAR = 200, 1.01


def train(store: ooc_svm.Store, **options: Any) -> dict[str, Any]:
    """The report of a training with a free bias and one thread."""
    common: dict[str, Any] = {"bias": "free", "loss": "lp", "threads": 1, "progress": lambda _: None}
    found: dict[str, Any] = ooc_svm.train(store, **common, **options).report
    return found


def optimum(store: ooc_svm.Store, **options: Any) -> float:
    """P of streamed SMO at a gap of 1e-4."""
    return float(train(store, tol=1e-4, **options)["models"][0]["primal"])


def cell(report: dict[str, Any], best: float) -> str:
    """Reads to the certified gap and, in brackets, to within 1 % of the optimum."""
    near = [row["pass"] for row in report["history"] if row["primal"] <= NEAR * best]
    mark = "" if report["converged"] else "*"
    return f"{mark}{report['passes']} ({near[0] if near else '-'})"


def table(title: str, columns: Iterable[Any], rows: Iterable[tuple[str, Iterable[str]]]) -> None:
    """Print a table row by row as it comes about."""
    columns = list(columns)
    print(f"| {title} | " + " | ".join(str(each) for each in columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for name, cells in rows:
        print(f"| {name} ", end="", flush=True)
        for each in cells:
            print(f"| {each} ", end="", flush=True)
        print("|", flush=True)


def by_power(store: ooc_svm.Store, name: str, extra: dict[str, Any]) -> None:
    """Reads for each p."""
    best = {p: optimum(store, p=p, **extra) for p in POWERS}

    def cells(solver: str) -> Iterable[str]:
        for p in POWERS:
            report = train(store, solver=solver, p=p, tol=1e-2, max_passes=MOST_READS, **extra)
            yield cell(report, best[p])

    table(name, (f"p = {p:g}" for p in POWERS), ((f"`{solver}`", cells(solver)) for solver in SOLVERS))


def by_cost(store: ooc_svm.Store, name: str, extra: dict[str, Any]) -> None:
    """Reads for each C."""

    def cells(solver: str, p: float) -> Iterable[str]:
        for C in COSTS:
            report = train(store, solver=solver, p=p, C=C, tol=1e-2, max_passes=MOST_READS, **extra)
            yield f"{report['passes']}" if report["converged"] else f"> {MOST_READS}"

    kinds = [(solver, p) for solver in SOLVERS for p in (1.0, 2.0)]
    rows = ((f"`{solver}`, p = {p:g}", cells(solver, p)) for solver, p in kinds)
    table(name, (f"C = {C:g}" for C in COSTS), rows)


def by_rows(store: ooc_svm.Store, name: str, extra: dict[str, Any]) -> None:
    """Reads and CPU microseconds a row and read, of parts of the data in a random order."""
    matrix, labels = matrix_of(store)
    order = np.random.default_rng(0).permutation(store.n_rows)

    def cells(solver: str, p: float) -> Iterable[str]:
        for part in PARTS:
            rows = np.sort(order[: store.n_rows // part])
            with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
                ooc_svm.convert_matrix(matrix[rows], labels[rows], Path(folder) / "s")
                own = ooc_svm.open_store(Path(folder) / "s")
                options = {"solver": solver, "p": p, "tol": 1e-2, "max_passes": MOST_READS, **extra}
                train(own, **options | {"max_passes": 2})  # Compiles.
                before = time.process_time()
                reads = train(own, **options)["models"][0]["passes"]
                seconds = time.process_time() - before
            yield f"{reads} ({1e6 * seconds / reads / len(rows):.2f})"

    kinds = [(solver, p) for solver in SOLVERS for p in (1.0, 2.0)]
    rows = ((f"`{solver}`, p = {p:g}", cells(solver, p)) for solver, p in kinds)
    table(f"{name}, rows", (f"{store.n_rows // part:,}" for part in PARTS), rows)


TABLES = {"reads": by_power, "C": by_cost, "rows": by_rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("what", choices=TABLES)
    parser.add_argument("--only", action="append", metavar="NAME", choices=SETS)
    options = parser.parse_args()
    names = options.only or (["covtype"] if options.what == "rows" else list(SETS))
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        for name in names:
            file, extra = SETS[name]
            if (options.folder / file).exists():
                ooc_svm.convert(options.folder / file, Path(scratch) / name)
                TABLES[options.what](ooc_svm.open_store(Path(scratch) / name), name, extra)


if __name__ == "__main__":
    main()

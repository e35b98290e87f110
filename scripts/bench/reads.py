"""Reads of the data to a certified gap of 1e-3 on well-known data sets, and the optimum they certify.

    python scripts/bench/reads.py FOLDER [--of cuts|smo] [--bias none|penalized|free]

With ``--of smo`` those of streamed SMO, in brackets the rows looked at as multiples of n, else those of
the cutting planes. FOLDER holds adult/a9a.bz2, web/w8a.bz2, ijcnn1/ijcnn1.tst.bz2, ijcnn1/ijcnn1.trn.bz2 and
covtype/covtype.multiclass.bz2 (the LIBSVM collection). What is missing is left out. With ``--reference`` each
primal value of the cutting planes without a bias is compared with that of scikit-learn's LinearSVC run to
1e-8.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from pairs import matrix_of

import ooc_svm

Runs = list[tuple[str, dict[str, Any]]]

SETS: list[tuple[str, str, float, dict[str, Any]]] = [
    ("a9a, C = 0.05", "adult/a9a.bz2", 0.05, {}),
    ("a9a, C = 1", "adult/a9a.bz2", 1.0, {}),
    ("a9a, C = 8", "adult/a9a.bz2", 8.0, {}),
    ("a9a, C = 32", "adult/a9a.bz2", 32.0, {}),
    ("w8a, C = 1", "web/w8a.bz2", 1.0, {}),
    ("ijcnn1 (test), C = 1", "ijcnn1/ijcnn1.tst.bz2", 1.0, {}),
    ("ijcnn1 (train), C = 1", "ijcnn1/ijcnn1.trn.bz2", 1.0, {}),
    ("covtype 1, C = 1", "covtype/covtype.multiclass.bz2", 1.0, {"positive": 1.0, "scale": "maxabs"}),
]
CUTS: Runs = [
    ("Algorithm 1", {"solver": "cutting-plane", "max_passes": 1500}),
    ("ocas", {"solver": "ocas"}),
    ("1 group", {"solver": "ocas", "cut_groups": 1}),
    ("8 groups", {"solver": "ocas", "cut_groups": 8}),
    ("32 groups", {"solver": "ocas", "cut_groups": 32}),
]
SMO: Runs = [
    ("10 %", {"resident": 0.1}),
    ("10 %, free", {"resident": 0.1, "bias": "free"}),
    ("2 %", {"resident": 0.02}),
    ("10 %, 1e-6", {"resident": 0.1, "tol": 1e-6}),
]


def optimum(store: ooc_svm.Store, C: float, options: dict[str, Any]) -> float:
    """Primal value of LinearSVC run to 1e-8."""
    from scipy import sparse
    from sklearn.svm import LinearSVC

    matrix, labels = matrix_of(store)
    matrix = matrix.astype(np.float64)
    y = np.where(labels == options.get("positive", labels.max()), 1.0, -1.0)
    if options.get("scale") == "maxabs":
        largest = abs(matrix).max(axis=0).toarray().ravel()
        matrix = sparse.csr_matrix(matrix @ sparse.diags(1 / np.where(largest > 0, largest, 1)))
    svm = LinearSVC(loss="hinge", C=C, fit_intercept=False, tol=1e-8, max_iter=20_000)
    w = svm.fit(matrix, y).coef_.ravel()
    return float(0.5 * w @ w + C * np.maximum(0.0, 1.0 - y * (matrix @ w)).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--reference", action="store_true")
    parser.add_argument("--of", choices=("cuts", "smo"), default="cuts")
    parser.add_argument("--bias", choices=("none", "penalized", "free"), default="none")
    options = parser.parse_args()
    runs = SMO if options.of == "smo" else CUTS
    print(f"{'data':<22}" + "".join(f"{name:>20}" for name, _ in runs) + "   (reads, seconds)")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        for title, name, C, extra in SETS:
            source = options.folder / name
            if not source.exists():
                continue
            path = Path(scratch) / Path(name).stem
            if not path.exists():
                ooc_svm.convert(source, path)
            store = ooc_svm.open_store(path)
            cells, values = [], []
            for _, run in runs:
                report = ooc_svm.train(store, C=C, **({"bias": options.bias} | extra | run)).report
                values.append((report["models"][0]["primal"], report["models"][0]["gap"]))
                mark = "" if report["converged"] else "*"
                row_visits = f" ({report['models'][0]['row_visits']:.0f})" if options.of == "smo" else ""
                cells.append(f"{mark}{report['models'][0]['passes']}{row_visits}, {report['seconds']:.1f} s")
            print(f"{title:<22}" + "".join(f"{cell:>20}" for cell in cells), flush=True)
            if options.reference and options.of == "cuts" and options.bias == "none":
                best = optimum(store, C, extra)
                within = [
                    primal - gap <= best * (1 + 1e-7) and best <= primal * (1 + 1e-7)
                    for primal, gap in values
                ]
                print(f"{'':<22}optimum {best:.6f}; inside the certified interval: {within}", flush=True)


if __name__ == "__main__":
    main()

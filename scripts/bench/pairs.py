"""Problems over pairs of rows: reads to a certified gap, time against the number of rows, quality.

    python scripts/bench/pairs.py FOLDER [reads] [growth] [quality]

FOLDER holds adult/a9a.bz2 and a9a.t.bz2, web/w1a.bz2 and w1a.t.bz2, covtype/covtype.multiclass.bz2 (the
LIBSVM collection), and ranking/ with californiahousing_ordinal.bz2, mq2008.vali.bz2, mq2008.test.bz2,
mslr.train5k.bz2 and mslr.test5k.bz2. What is missing is left out.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import ooc_svm
from ooc_svm.model.linear import LinearFunctions

A9A, COVTYPE = "adult/a9a.bz2", "covtype/covtype.multiclass.bz2"
COVTYPE_1: dict[str, Any] = {"problem": "roc-area", "positive": 1.0, "scale": "maxabs"}
SETS: list[tuple[str, str, float, dict[str, Any]]] = [
    *((f"a9a, C = {C:g}", A9A, C, {"problem": "roc-area"}) for C in (100.0, 1000.0, 10000.0)),
    ("covtype 1, C = 100", COVTYPE, 100.0, COVTYPE_1),
    ("california, C = 100", "ranking/californiahousing_ordinal.bz2", 100.0, {"problem": "ordinal"}),
    ("mq2008, C = 100", "ranking/mq2008.vali.bz2", 100.0, {"problem": "ranking", "scale": "maxabs"}),
    ("mslr, C = 100", "ranking/mslr.train5k.bz2", 100.0, {"problem": "ranking", "scale": "maxabs"}),
]
RUNS: list[tuple[str, dict[str, Any]]] = [
    ("cutting-plane", {"solver": "cutting-plane", "max_passes": 100}),
    ("ocas", {"solver": "ocas"}),
    ("8 groups", {"solver": "ocas", "cut_groups": 8}),
    ("32 groups", {"solver": "ocas", "cut_groups": 32}),
]
VALUES_OF_C = [1.0, 10.0, 100.0, 1000.0, 10000.0]


def reads(stores: Stores) -> None:
    """Reads to a gap of 1e-2 and of 1e-3."""
    print(f"{'reads to 1e-2, 1e-3; s':<22}" + "".join(f"{name:>22}" for name, _ in RUNS))
    for title, name, C, options in SETS:
        if not stores.has(name):
            continue
        cells = []
        for _, run in RUNS:
            report = ooc_svm.train(stores[name], C=C, **options, **run).report
            coarse = [row["pass"] for row in report["history"] if row["relative_gap"] <= 1e-2]
            fine = report["models"][0]["passes"] if report["converged"] else f"> {report['passes']}"
            scaling = options.get("scale", "none") != "none"
            first = coarse[0] - scaling if coarse else "-"
            cells.append(f"{first}, {fine}; {report['seconds']:.1f}")
        print(f"{title:<22}" + "".join(f"{cell:>22}" for cell in cells), flush=True)


def growth(stores: Stores) -> None:
    """Reads and time of `roc-area` and of classification against the number of rows of covtype."""
    if not stores.has(COVTYPE):
        return
    matrix, labels = matrix_of(stores[COVTYPE])
    order = np.random.default_rng(0).permutation(len(labels))
    print(f"{'rows':>10}{'reads':>8}{'s a read':>10}{'us a row':>10}{'svc: reads':>12}{'s a read':>10}")
    for part in (64, 16, 4, 1):
        rows = np.sort(order[: len(labels) // part])
        cells = []
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
            ooc_svm.convert_matrix(matrix[rows], labels[rows], Path(folder) / "s")
            for problem, C in (("roc-area", 100.0), ("svc", 100.0 / len(rows))):
                options = COVTYPE_1 | {"problem": problem, "solver": "ocas", "C": C}
                # The first run compiles.
                ooc_svm.train(Path(folder) / "s", **options | {"max_passes": 2})
                report = ooc_svm.train(Path(folder) / "s", **options).report
                history = report["history"]
                seconds = (history[-1]["seconds"] - history[0]["seconds"]) / max(len(history) - 1, 1)
                cells.append((report["models"][0]["passes"], seconds))
        (own, each), (other, plain) = cells
        micro = 1e6 * each / len(rows)
        print(f"{len(rows):>10,}{own:>8}{each:>10.3f}{micro:>10.2f}{other:>12}{plain:>10.3f}", flush=True)


def quality(stores: Stores) -> None:
    """Test AUC beside classification's, and NDCG@10 beside that of least squares."""
    for train, test in ((A9A, "adult/a9a.t.bz2"), ("web/w1a.bz2", "web/w1a.t.bz2")):
        if stores.has(train) and stores.has(test):
            auc = {problem: best_auc(stores, train, test, problem) for problem in ("roc-area", "svc")}
            print(f"{train:<28} test AUC: " + ", ".join(f"{k} {v}" for k, v in auc.items()), flush=True)
    for train, test in (("mq2008.vali", "mq2008.test"), ("mslr.train5k", "mslr.test5k")):
        names = f"ranking/{train}.bz2", f"ranking/{test}.bz2"
        if not all(stores.has(name) for name in names):
            continue
        C, model = best_ranking(stores[names[0]])
        own = ooc_svm.evaluate(model, stores[names[1]], "ndcg@10")["ndcg@10"]
        plain = ooc_svm.evaluate(least_squares(stores[names[0]], model), stores[names[1]], "ndcg@10")
        print(f"{train:<28} NDCG@10: ranking {own:.4f} (C = {C:g}), least squares {plain['ndcg@10']:.4f}")


def best_auc(stores: Stores, train: str, test: str, problem: str) -> str:
    """AUC on the test rows with the C that is best on a fifth of the training rows, held out."""
    matrix, labels = matrix_of(stores[train])
    held = np.arange(len(labels)) % 5 == 0
    values = [C if problem == "roc-area" else C / 1000 for C in VALUES_OF_C]
    options: dict[str, Any] = {"problem": problem, "solver": "auto"}
    tried = ooc_svm.train(matrix[~held], labels[~held], C=values, **options)
    found = [ooc_svm.evaluate(tried, matrix[held], "auc", labels=labels[held], C=C)["auc"] for C in values]
    C = values[int(np.argmax(found))]
    model = ooc_svm.train(stores[train], C=C, **options)
    return f"{ooc_svm.evaluate(model, stores[test], 'auc')['auc']:.4f} (C = {C:g})"


def best_ranking(store: ooc_svm.Store) -> tuple[float, ooc_svm.Model]:
    """The model of the C that is best on a fifth of the groups, held out."""
    matrix, labels = matrix_of(store)
    qids = store.read_qids(0, store.n_rows)
    held = np.cumsum(np.concatenate([[0], qids[1:] != qids[:-1]])) % 5 == 0
    options: dict[str, Any] = {"problem": "ranking", "scale": "maxabs"}
    tried = ooc_svm.train(matrix[~held], labels[~held], qid=qids[~held], C=VALUES_OF_C, **options)
    rows = {"labels": labels[held], "qid": qids[held]}
    found = [ooc_svm.evaluate(tried, matrix[held], "ndcg@10", C=C, **rows)["ndcg@10"] for C in VALUES_OF_C]
    C = VALUES_OF_C[int(np.argmax(found))]
    return C, ooc_svm.train(store, C=C, **options)


def least_squares(store: ooc_svm.Store, like: ooc_svm.Model) -> ooc_svm.Model:
    """Weights of a linear regression of the grades, in a model of the same kind."""
    from sklearn.linear_model import LinearRegression

    matrix, labels = matrix_of(store)
    weights = LinearRegression().fit(matrix.toarray(), labels).coef_
    functions = LinearFunctions(weights[None, :], np.zeros(1))
    return ooc_svm.Model(problem=like.problem, loss=like.loss, solver=like.solver, functions=functions)


def matrix_of(store: ooc_svm.Store) -> tuple[sparse.csr_matrix, np.ndarray]:
    """All rows of a store and their labels."""
    parts = []
    for index in range(len(store.blocks)):
        block = store.read_block(index)
        values = np.ones(len(block.indices)) if block.values is None else block.values
        shape = (block.n_rows, store.n_features)
        parts.append(sparse.csr_matrix((values, block.indices, block.indptr), shape))
    return sparse.vstack(parts, format="csr"), store.read_labels(0, store.n_rows)


class Stores:
    """Stores of the data files, converted when they are first asked for."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self._folder, self._scratch = folder, scratch

    def has(self, name: str) -> bool:
        return (self._folder / name).exists()

    def __getitem__(self, name: str) -> ooc_svm.Store:
        path = self._scratch / Path(name).stem
        if not path.exists():
            ooc_svm.convert(self._folder / name, path)
        return ooc_svm.open_store(path)


TABLES = {"reads": reads, "growth": growth, "quality": quality}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("tables", nargs="*", choices=[*TABLES, []], default=[], metavar="TABLE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        for name in options.tables or TABLES:
            TABLES[name](Stores(options.folder, Path(scratch)))


if __name__ == "__main__":
    main()

"""The parts of scripts/bench/train.py that need NumPy; each command prints one line of JSON at its end.

primal             the exact primal value of a model, by SciPy in float64 over the blocks of a store
sgd                scikit-learn's SGDClassifier, a block of the store a `partial_fit`, one pass after another
liblinear-package  the Python package liblinear-official, where there is no binary of LIBLINEAR
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from ooc_svm.data.blocks import Float64Array
from ooc_svm.model.file import load_model
from ooc_svm.store import Store, open_store

SGD_TOLERANCE = 1e-3


def blocks_of(store: Store) -> Iterator[tuple[csr_matrix, Float64Array]]:
    """Rows and labels -1 or 1, block by block; a matrix lasts until the next one."""
    buffers = store.new_buffers()
    for index in range(len(store.blocks)):
        block = store.read_block(index, buffers)
        values = np.ones(len(block.indices), np.float32) if block.values is None else block.values
        # The elements of one block need no 64 bits to be counted.
        arrays = (values, block.indices, block.indptr.astype(np.int32))
        rows = csr_matrix(arrays, shape=(block.n_rows, store.n_features))
        yield rows, np.where(store.read_labels(block.start, block.stop) > 0.0, 1.0, -1.0)


def column_scale(store: Store, scaled: bool) -> Float64Array:
    """1 over the largest magnitude of each column, or ones."""
    largest: Float64Array = np.zeros(store.n_features)
    if scaled:
        for rows, _ in blocks_of(store):
            np.maximum.at(largest, rows.indices, np.abs(rows.data))
    return 1.0 / np.where(largest > 0.0, largest, 1.0)


def primal_value(store: Store, weights: Float64Array, C: float, scale: Float64Array) -> float:
    """``1/2 |w|^2 + C sum_i max(0, 1 - y_i w.(scale x_i))`` in float64."""
    losses = []
    for rows, y in blocks_of(store):
        scores = rows.astype(np.float64) @ (scale * weights)
        losses.append(math.fsum(np.maximum(0.0, 1.0 - y * scores)))
    return 0.5 * math.fsum(weights * weights) + C * math.fsum(losses)


def read_weights(path: Path, n_features: int) -> Float64Array:
    """Weights of a model of ours (those of the scaled columns) or of LIBLINEAR's text."""
    with path.open("rb") as file:
        is_text = file.read(11) == b"solver_type"
    if not is_text:
        model = load_model(path)
        weights: Float64Array = model.weights[0]
        return weights if model.scale is None else weights / model.scale
    head, _, body = path.read_bytes().partition(b"\nw\n")
    labels = next(line.split()[1:] for line in head.splitlines() if line.startswith(b"label "))
    # The weights are those of the label that is named first.
    sign = 1.0 if int(labels[0]) > 0 else -1.0
    weights = np.zeros(n_features)
    found = np.array(body.split(), np.float64)
    weights[: len(found)] = sign * found
    return weights


def run_primal(options: argparse.Namespace) -> dict[str, Any]:
    store = open_store(options.store)
    weights = read_weights(options.model, store.n_features)
    return {"primal": primal_value(store, weights, options.C, column_scale(store, options.scaled))}


def run_sgd(options: argparse.Namespace) -> dict[str, Any]:
    """Until the primal value is within 1e-3 of the bound, or so many passes; checks are timed apart."""
    from sklearn.linear_model import SGDClassifier

    store = open_store(options.store)
    began = time.perf_counter()
    sgd = SGDClassifier(
        loss="hinge", alpha=1.0 / (options.C * store.n_rows), fit_intercept=False, random_state=0
    )
    scale = column_scale(store, options.scaled)
    training, checking = time.perf_counter() - began, 0.0
    best, passes = math.inf, int(options.scaled)
    for _ in range(options.passes):
        began = time.perf_counter()
        for rows, y in blocks_of(store):
            if options.scaled:
                rows.data *= scale[rows.indices]
            sgd.partial_fit(rows, y, classes=np.array([-1.0, 1.0]))
        passes += 1
        checked = time.perf_counter()
        primal = primal_value(store, sgd.coef_[0].astype(np.float64), options.C, scale)
        training, checking = training + checked - began, checking + time.perf_counter() - checked
        best = min(best, primal)
        if primal <= (1.0 + SGD_TOLERANCE) * options.bound:
            break
    return {"primal": best, "passes": passes, "training": training, "checking": checking}


def run_liblinear(options: argparse.Namespace) -> dict[str, Any]:
    from liblinear.liblinear import parameter, problem
    from liblinear.liblinearutil import save_model, svm_read_problem, train

    labels, rows = svm_read_problem(str(options.text), return_scipy=True)
    task = problem(labels, rows)
    # What it says of its iterations goes to the standard output by itself.
    began = time.perf_counter()
    model = train(task, parameter(f"-s 3 -c {options.C!r} -e {options.tolerance!r}"))
    training = time.perf_counter() - began
    save_model(str(options.model), model)
    return {"training": training}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    primal, sgd, liblinear = (commands.add_parser(name) for name in ("primal", "sgd", "liblinear-package"))
    for command in (primal, sgd):
        command.add_argument("store", type=Path)
        command.add_argument(
            "--scaled", action="store_true", help="columns divided by their largest magnitude"
        )
    primal.add_argument("model", type=Path)
    sgd.add_argument("--bound", type=float, required=True, help="lower bound of the optimum")
    sgd.add_argument("--passes", type=int, default=20)
    liblinear.add_argument("text", type=Path)
    liblinear.add_argument("model", type=Path)
    liblinear.add_argument("--tolerance", type=float, default=0.1)
    for command, run in ((primal, run_primal), (sgd, run_sgd), (liblinear, run_liblinear)):
        command.add_argument("--C", type=float, default=1.0)
        command.set_defaults(run=run)
    options = parser.parse_args()
    print(json.dumps(options.run(options)), flush=True)


if __name__ == "__main__":
    main()

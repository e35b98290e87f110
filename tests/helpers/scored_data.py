"""Models and the same rows in every form that prediction takes, and their scores by SciPy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from ooc_svm.data.blocks import LabelledRows, RowBlock
from ooc_svm.model.linear import LinearFunctions
from ooc_svm.model.model import Model
from ooc_svm.store import StoreWriter
from ooc_svm.text.writer import format_rows

Floats = npt.NDArray[np.float64]


def model_of(weights: Any, bias: Any, scale: Any = None, **facts: Any) -> Model:
    """A model of linear functions."""
    return Model(functions=LinearFunctions(weights, bias, scale), **facts)


def linear_model(weights: Any, bias: Any = 0.0, **facts: Any) -> Model:
    """A binary model of the classes -1 and 1, unless other facts are given."""
    rows = np.atleast_2d(np.asarray(weights, np.float64))
    given: dict[str, Any] = {"positive": [1.0], "negative": -1.0, "classes": (-1.0, 1.0)}
    given |= {"problem": "svc", "loss": "hinge", "solver": "ocas"} | facts
    return model_of(rows, np.broadcast_to(np.asarray(bias, np.float64), len(rows)), **given)


def regressor(weights: Any, bias: Any = 0.0, **facts: Any) -> Model:
    """A model that gives values."""
    rows = np.atleast_2d(np.asarray(weights, np.float64))
    given: dict[str, Any] = {
        "problem": "svr",
        "loss": "epsilon-insensitive",
        "solver": "streamed-smo",
    } | facts
    return model_of(rows, np.broadcast_to(np.asarray(bias, np.float64), len(rows)), **given)


def one_vs_rest(weights: Any, bias: Any, classes: tuple[float, ...], **facts: Any) -> Model:
    """A model with a function for each class."""
    return linear_model(weights, bias, positive=list(classes), negative=None, classes=classes, **facts)


@dataclass(frozen=True)
class Data:
    """Rows with labels, and group numbers where there are groups."""

    matrix: sparse.csr_array
    labels: Floats
    qids: npt.NDArray[np.int64] | None = None

    @property
    def rows(self) -> LabelledRows:
        matrix = self.matrix
        indptr, indices = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)
        return LabelledRows(RowBlock(0, indptr, indices, matrix.data), self.labels, self.qids)

    def scores(self, model: Model) -> Floats:
        """Scores of all functions, shape (n, K), over the columns that both have."""
        width = min(self.matrix.shape[1], model.n_features)
        known = self.matrix[:, :width].astype(np.float64)
        return np.asarray(known @ model.weights[:, :width].T + model.bias)

    def text(self, path: Path) -> Path:
        path.write_bytes(format_rows(self.rows))
        return path

    def store(self, path: Path, **options: Any) -> Path:
        """A store of several small blocks."""
        small = {"chunk_elements": 256, "block_chunks": 2, "chunk_rows": 128}
        with StoreWriter(path, **(small | options)) as writer:
            writer.append(self.rows)
            writer.commit()
        return path


def random_data(n_rows: int, n_features: int, labels: tuple[float, ...] = (-1.0, 1.0), seed: int = 0) -> Data:
    """Rows of about eight float32 values, some of them empty, and random labels."""
    rng = np.random.default_rng(seed)
    density = min(8 / n_features, 1.0)
    matrix = sparse.random_array((n_rows, n_features), density=density, rng=rng, format="csr")
    matrix.data = rng.normal(size=matrix.nnz)
    matrix = matrix.astype(np.float32)
    matrix.sort_indices()
    return Data(matrix, rng.choice(np.array(labels), n_rows))

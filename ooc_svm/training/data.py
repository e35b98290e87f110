"""What is trained on: opened, and checked against the options."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ooc_svm.data.matrix import MatrixSource
from ooc_svm.data.source import Source
from ooc_svm.errors import InputError, UsageError
from ooc_svm.options import TrainOptions
from ooc_svm.problems.base import LabelSet
from ooc_svm.store import Store, open_store


@dataclass(frozen=True, slots=True)
class Data:
    """What is trained on."""

    source: Source
    labels: LabelSet
    id: Callable[[], str]  # Gives a text that changes with the content
    value_type: str  # {"ones", "float32", "float64"}
    index_base: int


def open_data(data: Any, labels: Any, sample_weight: Any, options: TrainOptions, qid: Any = None) -> Data:
    """Open what `train` was given."""
    if isinstance(data, str | os.PathLike):
        data = open_store(Path(data), label=options.label)
    if isinstance(data, Store):
        if not (labels is None and sample_weight is None and qid is None):
            raise UsageError("a store brings its labels, weights and qids; do not give them as well")
        if data.n_rows == 0:
            raise InputError(f"{data.path} has no rows; there is nothing to train on")
        known = LabelSet(data.labels.counts, data.label_names, data.has_qid)
        return Data(data, known, lambda: data.id, data.value_type, data.index_base)
    if options.engine == "dask":
        raise UsageError("the engine 'dask' reads a store; convert the matrix first, or leave the engine out")
    if labels is None:
        raise UsageError("a matrix needs labels, one a row")
    if options.label is not None:
        raise UsageError(f"label {options.label[:80]!r} names a column of a store; a matrix has none")
    source = MatrixSource(data, labels, sample_weight, qids=qid)
    if source.n_rows == 0:
        raise InputError("the matrix has no rows; there is nothing to train on")
    values, rows = np.unique(source.read_labels(0, source.n_rows), return_counts=True)
    counts = dict(zip(values.tolist(), rows.tolist(), strict=True))
    return Data(source, LabelSet(counts, None, source.has_qid), lambda: source.id, source.value_type, 0)

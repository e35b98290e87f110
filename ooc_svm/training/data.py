"""What is trained on: opened, checked against the options, and put into row vectors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.data.classes import binary_problems, label_text
from ooc_svm.data.matrix import MatrixSource
from ooc_svm.data.source import Source
from ooc_svm.errors import InputError, UsageError
from ooc_svm.options import TrainOptions
from ooc_svm.pairs.request import Pairs
from ooc_svm.problems.pairwise import check_ranks, fill_pairs
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.store import Store, open_store
from ooc_svm.system.memory import INTERPRETER_BYTES, TRAINER_BYTES
from ooc_svm.training.assembly import CODES, TARGET, WEIGHT, Task, coefficient_type, row_bytes
from ooc_svm.training.memory_plan import Workload

VALUE_BYTES = {"ones": 0, "float32": 4, "float64": 8}


@dataclass(frozen=True, slots=True)
class Data:
    """What is trained on.

    Attributes
    ----------
    source : Source
    counts : dict of float to int, or None
        Rows of each label; None where there are too many labels.
    id : callable
        Gives a text that changes with the content.
    value_type : str
    index_base : int
    label_names : tuple of str or None
    """

    source: Source
    counts: Mapping[float, int] | None
    id: Callable[[], str]
    value_type: str
    index_base: int
    label_names: tuple[str, ...] | None


def open_data(data: Any, labels: Any, sample_weight: Any, options: TrainOptions, qid: Any = None) -> Data:
    """Open what `train` was given."""
    if isinstance(data, str | os.PathLike):
        data = open_store(Path(data), label=options.label)
    if isinstance(data, Store):
        if not (labels is None and sample_weight is None and qid is None):
            raise UsageError("a store brings its labels, weights and qids; do not give them beside it")
        if data.n_rows == 0:
            raise InputError(f"{data.path} has no rows; there is nothing to train on")
        return Data(
            data, data.labels.counts, lambda: data.id, data.value_type, data.index_base, data.label_names
        )
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
    return Data(source, counts, lambda: source.id, source.value_type, 0, None)


def worker_threads(options: TrainOptions) -> int:
    """Threads asked for, else all that the process may use."""
    return options.threads or len(os.sched_getaffinity(0))


def workload(data: Data, options: TrainOptions) -> Workload:
    """The sizes that a run's memory follows from."""
    source = data.source
    n_models = len(make_tasks(data, options)[1])
    in_memory = isinstance(source, MatrixSource)
    coefficients = coefficient_type(source.has_weight, source.n_rows).itemsize
    return Workload(
        n_rows=source.n_rows,
        n_nonzeros=source.n_nonzeros,
        dimension=source.n_features + (options.bias == "penalized"),
        n_models=n_models,
        block_nbytes=0 if in_memory else max(span.nbytes for span in source.blocks),
        data_nbytes=0 if in_memory else sum(span.nbytes for span in source.blocks),
        vector_bytes=row_bytes(options, source.has_weight, n_models),
        value_bytes=VALUE_BYTES[data.value_type],
        threads=1 if in_memory else worker_threads(options),
        coefficient_bytes=coefficients if options.over_pairs else 0,
        sorts=options.over_pairs,
        n_ranks=_ranks_compared(data, options),
        # A cluster has libraries of its own.
        program_bytes=INTERPRETER_BYTES if options.engine == "dask" else TRAINER_BYTES,
    )


def _ranks_compared(data: Data, options: TrainOptions) -> int:
    """Ranks of the rows where all rows are compared; 0 where there are too many to count."""
    if options.problem == "roc-area":
        return 2
    return len(data.counts or ()) if options.problem == "ordinal" else 0


def make_tasks(data: Data, options: TrainOptions) -> tuple[Float64Array, list[Task]]:
    """The labels that rows are told apart by (none where labels are values), and what is to be trained."""
    if options.problem == "svr":
        return np.empty(0), [Task(C, None) for C in options.C]
    if options.over_pairs:
        if options.problem == "ranking" and not data.source.has_qid:
            raise InputError(
                "--problem ranking compares rows of equal qid, and the data have none; write qid:N after the "
                "label of each row and convert again, or take --problem ordinal"
            )
        if options.problem != "roc-area" and data.label_names is not None:
            raise InputError(
                f"--problem {options.problem} needs labels in an order, and these are names; "
                "choose a column of numbers with --label"
            )
        ranks = check_ranks(options.problem, data.counts, named_labels(data, options)[0])
        return ranks, [Task(C, None) for C in options.C]
    classes, problems = binary_problems(data.counts, *named_labels(data, options))
    return classes, [Task(C, problem) for C in options.C for problem in problems]


def fill_row_vectors(vectors: RowVectors, source: Source, labels: Float64Array, problem: str) -> None:
    """Class numbers or values, and weights of the rows held, block by block."""
    regression = problem == "svr"
    targets = vectors.create(*((TARGET, np.float64) if regression else (CODES, np.uint16)))
    for start, stop in _parts(vectors, source):
        found = source.read_labels(start, stop)
        if not np.isfinite(found).all():
            row = start + int(np.argmin(np.isfinite(found)))
            raise InputError(f"row {row} has no value to learn, {found[row - start]}; remove such rows")
        found = found if regression else np.searchsorted(labels, found).astype(np.uint16)
        targets.write(vectors.place(start), found)
    _fill_weights(vectors, source)


def fill_pair_vectors(
    vectors: RowVectors, data: Data, labels: Float64Array, options: TrainOptions, sorting_bytes: int
) -> Pairs:
    """Ranks, groups and weights of all rows, and the pairs that they make."""
    _fill_weights(vectors, data.source)
    weight = WEIGHT if data.source.has_weight else None
    positive = named_labels(data, options)[0]
    return fill_pairs(vectors, data.source, options.problem, labels, positive, weight, sorting_bytes)


def _fill_weights(vectors: RowVectors, source: Source) -> None:
    if not source.has_weight:
        return
    vector = vectors.create(WEIGHT, np.float64)
    for start, stop in _parts(vectors, source):
        weights = source.read_weights(start, stop)
        if weights.min(initial=0.0) < 0.0:
            row = start + int(np.argmin(weights))
            raise InputError(f"row {row} has the negative weight {weights.min()}; weights are 0 or more")
        vector.write(vectors.place(start), weights)


def _parts(vectors: RowVectors, source: Source) -> Iterator[tuple[int, int]]:
    """The rows that the vectors are of, block by block."""
    return (part for span in source.blocks for part in vectors.held_within(span.start, span.stop))


def named_labels(
    data: Data, options: TrainOptions
) -> tuple[tuple[float, ...], str | dict[float, float] | None]:
    """Positive labels and class weights, names replaced by the labels they stand for."""

    def label_of(label: float | str) -> float:
        if isinstance(label, str) and data.label_names is not None:
            if label not in data.label_names:
                known = ", ".join(map(repr, data.label_names[:20]))
                raise InputError(f"no row has the label {label[:80]!r}; the labels are {known}")
            return float(data.label_names.index(label))
        try:
            return float(label)
        except ValueError as error:
            raise UsageError(
                f"the label {label!r:.80} is not a number, and the labels have no names"
            ) from error

    weight = options.class_weight
    by_label = {label_of(k): v for k, v in weight.items()} if isinstance(weight, Mapping) else weight
    if isinstance(weight, Mapping) and len(by_label or ()) < len(weight):
        labels = [label_of(k) for k in weight]
        twice = next(label for label in labels if labels.count(label) > 1)
        raise UsageError(f"the label {label_text(twice)} is given two weights; give one")
    return tuple(label_of(label) for label in options.positive), by_label


def names_of(classes: Float64Array, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Names of the classes, where the data have names."""
    return None if names is None else tuple(names[int(label)] for label in classes)

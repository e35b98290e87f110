"""What is trained on: opened, and checked against the options."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ooc_svm.data.annotated import is_annotated, own_numbers, read_annotated, refuse_two_kinds
from ooc_svm.data.classes import label_name
from ooc_svm.data.feature_names import FeatureNames
from ooc_svm.data.matrix import MatrixSource
from ooc_svm.data.source import Source
from ooc_svm.errors import InputError, UsageError, parameter, shown
from ooc_svm.options import TrainOptions
from ooc_svm.parameters import is_path
from ooc_svm.problems.base import LabelSet
from ooc_svm.store import Store
from ooc_svm.store.feature_names import check_count, given_names
from ooc_svm.store.open import names_store
from ooc_svm.system.files import exists
from ooc_svm.training.opened import opened

if TYPE_CHECKING:
    from ooc_svm.data.folds import HeldOut

# What the data are known by.
_BY_MANIFEST = "the checksums in the manifest"
_BY_FILES = (
    "size, inode and time of change of each chunk file and a sample of their bytes: a store without a "
    "manifest that was copied, moved to another disk or written again is another one"
)
_BY_CONTENT = "all bytes of the matrix"


@dataclass(frozen=True, slots=True)
class Data:
    """What is trained on."""

    source: Source
    labels: LabelSet
    id: Callable[[], str]  # Gives a text that changes with the content
    known_by: str  # What the text follows from, for messages
    value_type: str  # {"ones", "float32", "float64"}
    index_base: int  # Number of the first feature, for people
    remark: str | None = None  # What a user should know of the data
    n_unlabelled: int = 0  # Rows without a label, which were left out
    conversion_seconds: Callable[[], float] | None = None  # Gives the time that reading text has taken
    feature_names: FeatureNames | None = None
    # Number of the first feature in text that the model reads; of a matrix the usual one
    text_base: int = 1
    n_held_out: int = 0  # Rows that are held out of training
    thread_nbytes: int = 0  # What reading needs in addition to blocks, for each thread
    shared_nbytes: int = 0  # And for all threads

    @property
    def columns_nbytes(self) -> int:
        """Bytes of the columns of a store that are in memory, as its rows are then."""
        return self.source.columns_nbytes if isinstance(self.source, Store) else 0

    @property
    def writing_seconds(self) -> float:
        """Time in which rows that were in memory were written, since they do not fit."""
        return self.source.writing_seconds if isinstance(self.source, Store) else 0.0

    @property
    def in_memory(self) -> bool:
        """Whether the rows are in memory, so that nothing is read."""
        return isinstance(self.source, MatrixSource)


def open_data(
    data: Any,
    labels: Any,
    sample_weight: Any,
    options: TrainOptions,
    qid: Any = None,
    feature_names: Any = None,
) -> Data:
    """Open what `train` was given."""
    if (inputs := text_inputs(data)) is not None:
        if absent := [path for path in inputs if path != "-" and not exists(path)]:
            raise InputError(f"{absent[0]:.200} does not exist; check the path")
        raise UsageError(
            f"{inputs[0]:.200} is text, whose rows and nonzeros are not known before it is read; convert it "
            "first (convert), and give the store"
        )
    if isinstance(data, str | os.PathLike | Store):
        data = opened(data, options)
    if options.cache is not None:
        if not isinstance(data, Store):
            raise UsageError(f"{parameter('cache')} keeps chunks of a store; leave it out for a matrix")
        data.keep_chunks(options.cache, options.cache_size)
    if isinstance(data, Store):
        refuse_columns("a store brings its labels, weights and qids", labels, sample_weight, qid)
        data.require_labels()
        if data.n_rows == 0:
            raise InputError(f"{data.path} has no rows; there is nothing to train on")
        _require_columns(data, options)
        _require_weight(data)
        known = LabelSet(data.labels.counts, data.label_names, data.has_qid)
        if data.label_sets:
            known = known.of_sets(str(data.path))
        known_by = _BY_FILES if data.format_version is None else _BY_MANIFEST
        names = _names_of(data.feature_names, feature_names, str(data.path), data.n_features)
        details = (data.value_type, data.index_base, data.remark, data.n_unlabelled)
        base = 1 if data.format_version is None else data.index_base
        return Data(
            data,
            known,
            lambda: data.id,
            known_by,
            *details,
            feature_names=names,
            text_base=base,
            thread_nbytes=data.parts.decoding_nbytes,
        )
    return _open_matrix(data, labels, sample_weight, qid, options, feature_names)


def _open_matrix(
    data: Any, labels: Any, sample_weight: Any, qid: Any, options: TrainOptions, feature_names: Any
) -> Data:
    """Open rows in memory: a matrix, or an AnnData object, which may bring columns and names."""
    if options.engine == "dask":
        engine = parameter("engine", "dask")
        raise UsageError(f"{engine} reads a store; convert the matrix first, or leave {engine} out")
    what = "the matrix"
    label_names: Sequence[str] | None = None
    own_names: FeatureNames | None = None
    if is_annotated(data):
        refuse_two_kinds(labels, options.label)
        columns, gaps = (options.label, options.layer), options.unlabelled if labels is None else "keep"
        own = read_annotated(data, *columns, labelled=labels is None, unlabelled=gaps)
        if sample_weight is None:
            sample_weight = own_numbers(data, "weight")
        if qid is None:
            qid = own_numbers(data, "qid", optional=options.problem != "ranking")
        data = own.matrix
        what, own_names = "the AnnData", own.feature_names
        if labels is None:
            labels, label_names = own.labels, own.label_names
    elif labels is None:
        raise UsageError(f"a matrix needs {parameter('labels')}, one a row")
    else:
        own_names = None if feature_names is not None else FeatureNames.of_frame(data)
        for name, kind in (("label", "column"), ("layer", "layer")):
            if (named := getattr(options, name)) is not None:
                found = f"{parameter(name)} {shown(named)}"
                raise UsageError(f"{found} names a {kind} of a store; a matrix has none")
    source = MatrixSource(
        data,
        labels,
        sample_weight,
        qids=qid,
        names=("data", "sample_weight"),
        skip_unlabelled=options.unlabelled == "skip",
    )
    if source.n_rows == 0:
        raise InputError("the matrix has no rows; there is nothing to train on")
    _require_weight(source)
    values, rows = np.unique(source.read_labels(0, source.n_rows), return_counts=True)
    counts = dict(zip(values.tolist(), rows.tolist(), strict=True))
    known = LabelSet(counts, _given(source.label_names, label_names), source.has_qid)
    if (sets := source.label_sets) is not None:
        known = replace(known, names=sets.labels, sets=sets)
    names = _names_of(own_names, feature_names, what, source.n_features)
    of_matrix = Data(source, known, lambda: source.id, _BY_CONTENT, source.value_type, 0, feature_names=names)
    return replace(of_matrix, n_unlabelled=source.n_unlabelled)


def _given(entries: Any, own: Any) -> Any:
    """What was given, else the data's own."""
    return own if entries is None else entries


def _names_of(own: FeatureNames | None, given: Any, what: str, n_features: int) -> FeatureNames | None:
    """The names of the features, those that the data have or those that were given."""
    if given is None:
        return own
    if own is not None:
        raise UsageError(f"{what} names its features; leave {parameter('feature_names')} out")
    names = given_names(given)
    check_count(names, n_features, what)
    return names


def _require_columns(store: Store, options: TrainOptions) -> None:
    """InputError if a column of weights, or where it is needed of qids, has no numbers that can be used."""
    for name, numbers in {"weight": "numbers", "qid": "whole numbers"}.items():
        needed = name == "weight" or options.problem == "ranking"
        if needed and f"obs/{name}" in store.unused:
            raise InputError(
                f"obs/{name} of {store.path} has no plain {numbers} (nullable ones are none); make it a "
                f"column of {numbers}, or give it another name"
            )


def _require_weight(source: Source) -> None:
    """InputError if rows have weights, and all are 0; blocks are read up to one with another weight."""
    if source.has_weight and not any(
        source.read_weights(span.start, span.stop).any() for span in source.blocks
    ):
        raise InputError(
            "all rows have a weight of 0, so that there is nothing to train on; give some a weight above 0"
        )


def refuse_columns(reason: str, labels: Any, sample_weight: Any, qid: Any) -> None:
    """Refuse columns that were given with data that have their own."""
    for name, entries in {"labels": labels, "sample_weight": sample_weight, "qid": qid}.items():
        if entries is not None:
            raise UsageError(f"{reason}; leave {parameter(name)} out")


def text_inputs(data: Any) -> list[str] | None:
    """The paths of text, of one or several; None where what is trained on is a store or a matrix."""
    several = isinstance(data, list | tuple) and any(map(is_path, data))
    paths = [os.fspath(path) for path in (data if several else [data] if is_path(data) else [])]
    stores = [path for path in paths if names_store(path)]
    if len(paths) > 1 and stores:
        raise UsageError(f"{stores[0]:.200} is a store; give one store, or text files")
    return paths if paths and not stores else None


def refuse_text_options(given: Mapping[str, Any]) -> None:
    """Refuse options of text where there is none."""
    for name, value in given.items():
        if value is not None:
            raise UsageError(f"{parameter(name)} is for text, and this data is none; leave it out")


def without_rows(data: Data, held_out: HeldOut, has_classes: bool) -> Data:
    """The same data; where labels are classes they are counted of the rows alone that are trained on.

    InputError if no row is held out, or all rows of a class are.
    """
    share, counted = parameter("validation", held_out.share), has_classes and data.labels.counts is not None
    if held_out.by_query and not data.labels.has_qid:
        return data  # which the problem refuses
    counts: Counter[float] = Counter()
    n_held_out, source = 0, data.source
    for span in source.blocks:
        mask = held_out.mask(source, span.start, span.stop)
        n_held_out += int(np.count_nonzero(mask))
        if counted:
            found, rows = np.unique(source.read_labels(span.start, span.stop)[mask], return_counts=True)
            counts.update(dict(zip(found.tolist(), rows.tolist(), strict=True)))
    if n_held_out in (0, source.n_rows):
        which = "none" if n_held_out == 0 else "all"
        raise InputError(
            f"{share} holds {which} of the {source.n_rows} rows out; give another share or another "
            f"{parameter('seed')}"
        )
    if not counted:
        return replace(data, n_held_out=n_held_out)
    left = {label: rows - counts[label] for label, rows in (data.labels.counts or {}).items()}
    empty = next((label for label, rows in left.items() if rows == 0 and counts[label]), None)
    if empty is not None and data.labels.sets is None:  # The rows of a set may all be held out
        name = label_name(empty, data.labels.names)
        raise InputError(
            f"{share} holds all rows of the label {name!s:.80} out; give a smaller share or another "
            f"{parameter('seed')}"
        )
    return replace(data, labels=replace(data.labels, counts=left), n_held_out=n_held_out)

"""An AnnData object in memory as a matrix with columns; AnnData itself is not imported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.data.feature_names import FeatureNames
from ooc_svm.data.matrix import exact_numbers, is_missing
from ooc_svm.errors import InputError, UsageError, parameter, shown

# Column of obs that has the labels where none is named.
DEFAULT_LABEL = "label"

# Columns of obs that have weights and group numbers, and the kinds of numbers there.
OWN_COLUMNS = {"weight": "biuf", "qid": "iu"}


@dataclass(frozen=True, slots=True)
class Annotated:
    """The matrix of an AnnData object, and columns of ``obs``.

    Where labels have names, `labels` are places in `label_names`. Labels and group numbers are None where
    there is no such column.
    """

    matrix: Any
    labels: Any
    label_names: tuple[str, ...] | None
    qids: Any
    feature_names: FeatureNames

    @property
    def lacks_labels(self) -> bool:
        """Whether some rows have no label."""
        return self.labels is not None and bool(np.isnan(self.labels).any())


def is_annotated(data: Any) -> bool:
    """Whether an object is one of AnnData, or of the same form."""
    return all(hasattr(data, name) for name in ("X", "layers", "obs", "var", "obs_names"))


def refuse_two_kinds(labels: Any, label: str | None) -> None:
    """UsageError if labels are given, and a column of them is named as well."""
    if labels is not None and label is not None:
        raise UsageError(f"{parameter('labels')} and {parameter('label')} both name the labels; give one")


def read_annotated(
    data: Any,
    label: str | None = None,
    layer: str | None = None,
    *,
    labelled: bool = True,
    unlabelled: str = "error",
    may_skip: bool = True,
) -> Annotated:
    """The parts of an AnnData object; labels are optional unless it must be `labelled` or one is named.

    `unlabelled`: of rows without a label, {"error", "skip", "keep"}; unless they are an error, their label is
    NaN, and the caller leaves them out. `may_skip`: whether the caller has that parameter, so that a message
    may name it.

    InputError if there is no such column or layer, or a row has no label and that is an error.
    """
    if getattr(data, "isbacked", False):
        raise UsageError(
            f"the AnnData is backed by the file {str(data.filename)!r}; convert that file and use its "
            "store, or read it by to_memory()"
        )
    if layer in (None, "X"):
        matrix = data.X
        if matrix is None:
            raise InputError(f"the AnnData has no X; name a layer ({parameter('layer')})")
    else:
        if layer not in data.layers:
            raise InputError(
                f"the AnnData has no layer {shown(layer)}; choose one ({parameter('layer')}): "
                f"{_listed(data.layers)}"
            )
        matrix = data.layers[layer]
    columns = data.obs.columns
    labels, names = None, None
    if label is not None or labelled or DEFAULT_LABEL in columns:
        label = label or DEFAULT_LABEL
        if label not in columns:
            raise InputError(
                f"the AnnData has no column obs[{shown(label)}] to take the labels from; choose one "
                f"({parameter('label')}): {_listed(columns)}"
            )
        where = f"obs[{shown(label)}] of the AnnData"
        labels, names = label_column(data.obs[label], where)
        if unlabelled == "error":
            _require_labels(labels, where, may_skip)
    return Annotated(
        matrix,
        labels,
        names,
        own_numbers(data, "qid", optional=True),
        FeatureNames.of(data.var.index),
    )


def own_numbers(data: Any, name: str, *, optional: bool = False) -> Any:
    """The column ``weight`` or ``qid`` of an AnnData object, None where there is none.

    InputError if it is no column of numbers, for the second whole ones, and not `optional`.
    """
    if name not in data.obs.columns:
        return None
    column = np.asarray(data.obs[name])
    if column.dtype.kind not in OWN_COLUMNS[name]:
        if optional:
            return None
        whole = "whole numbers" if name == "qid" else "numbers"
        raise InputError(
            f"obs[{name!r}] of the AnnData has entries of type {column.dtype}, and {name} is a column of "
            f"{whole}; make it one, or give it another name"
        )
    return column


def _listed(names: Any) -> str:
    known = [f"{str(name)!r:.80}" for name in names]
    more = f" and {len(known) - 20} more" if len(known) > 20 else ""
    return (", ".join(known[:20]) or "none") + more


def label_column(column: Any, name: str) -> tuple[Float64Array, tuple[str, ...] | None]:
    """Labels as numbers, and their names where they have names, from a column of a data frame.

    A category that is a number is that number; others stand for their place. One that is missing is NaN, as
    empty text is. InputError for what is neither text nor a number, and for text next to numbers.
    """
    categories = getattr(column.dtype, "categories", None)
    if categories is not None:
        codes, values = np.asarray(column.cat.codes, np.int64), np.asarray(categories)
        if values.dtype.kind in "biuf":
            numbers = exact_numbers(name, values)
            return np.append(numbers, np.nan)[codes], None  # -1 is of the missing ones
        names = tuple(map(str, values))
        places = [place if each else np.nan for place, each in enumerate(names)]
        return np.array([*places, np.nan])[codes], names
    entries = np.asarray(column)
    if entries.dtype.kind in "biuf":
        return exact_numbers(name, entries), None
    present = np.array([not is_missing(entry) for entry in entries], np.bool_)
    labels, known = np.full(len(entries), np.nan), entries[present]
    texts = np.array([isinstance(entry, str) for entry in known], np.bool_)
    if not texts.any():
        # Pandas' own types of numbers come as objects.
        labels[present] = exact_numbers(name, np.array(known.tolist()))
        return labels, None
    if not texts.all():
        row = int(np.flatnonzero(present)[np.argmin(texts)])
        raise InputError(
            f"row {row}, from 0, has the label {shown(entries[row])} in {name}, next to labels that are "
            "text; give text for all"
        )
    different, codes = np.unique(known.astype(str), return_inverse=True)
    labels[present] = codes
    return labels, tuple(different.tolist())


def _require_labels(labels: Float64Array, name: str, may_skip: bool) -> None:
    present = np.isfinite(labels)
    if not present.all():
        way = f" ({parameter('unlabelled', 'skip')})" if may_skip else ""
        raise InputError(
            f"row {int(np.argmin(present))}, from 0, has no label in {name}; leave such rows out{way}, or "
            "give them one"
        )

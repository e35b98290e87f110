"""Which columns of some data are the features of a model: by their names, or by their numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import RowBlock
from ooc_svm.data.feature_names import FeatureNames
from ooc_svm.errors import InputError, UsageError, parameter, percent, shown
from ooc_svm.model.model import Model
from ooc_svm.ops.rows import keep_known, unsigned
from ooc_svm.parameters import MissingFeatures
from ooc_svm.prediction.column_loops import place_columns
from ooc_svm.store.feature_names import given_names

# Place of a column that is no feature of the model; no feature has such a large number.
_NOWHERE = np.uint32(2**32 - 1)

# Bits of numbers of features that rows are sorted by in two steps; of longer ones in four.
_TWO_DIGITS = 14

# Names that a message shows.
_SHOWN_NAMES = 3


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of some data that are features of a model.

    Attributes
    ----------
    n_features : int
        Number of features of the model.
    places : ndarray of uint32, or None
        The feature of each column, beyond `n_features` for those that are none. By default column j is
        feature j.
    missing : int
        Number of features that the data lack; their values are 0.
    extra : int
        Number of columns that are no features; they are ignored.
    remark : str or None
        What a user should know, where features are missing or columns are no features.
    nbytes : int
        Memory that the names and places take.
    """

    n_features: int
    places: npt.NDArray[np.uint32] | None = None
    missing: int = 0
    extra: int = 0
    remark: str | None = None
    nbytes: int = 0

    def select(self, block: RowBlock, *, in_place: bool) -> tuple[RowBlock, int, int]:
        """The block with the features of the model alone; the number of rows and of elements that lost some.

        With `in_place` the arrays of the block are written over, if it has to change.
        """
        ids = unsigned(block.indices)
        if self.places is None and (len(ids) == 0 or int(ids.max()) < self.n_features):
            return block, 0, 0
        indptr, indices, values = block.indptr, block.indices, block.values
        if not in_place:
            indptr, indices = np.empty_like(indptr), np.empty_like(indices)
            values = None if values is None else np.empty_like(values)
        rows, kept = (
            (unsigned(block.indptr), ids, block.values),
            (unsigned(indptr), unsigned(indices), values),
        )
        n_before = len(ids)
        if self.places is None:
            shorter = keep_known(*rows, self.n_features, *kept)
        else:
            shorter = place_columns(*rows, self.places, self.n_features, *self._spare(block), *kept)
        n = int(indptr[-1])
        selected = RowBlock(block.start, indptr, indices[:n], None if values is None else values[:n])
        return selected, int(shorter), n_before - n

    def _spare(self, block: RowBlock) -> tuple[Any, int]:
        """Room for sorting the longest row of a block, and the bits of a digit: 2 or 4 have a feature."""
        bits = max(self.n_features.bit_length(), 1)
        digit = -(-bits // (2 if bits <= _TWO_DIGITS else 4))
        longest = int(np.diff(block.indptr).max(initial=0))
        values = None if block.values is None else np.empty(longest, block.values.dtype)
        return (np.empty(longest, np.uint32), values, np.empty(1 << digit, np.int64)), digit


def match_columns(model: Model, rows: Any, feature_names: Any, missing_features: MissingFeatures) -> Columns:
    """Find the features of a model in the columns of a `RowStream`.

    `feature_names` are those that a user gave to data without names. Columns are found by their names where
    both data and model have names. Else they are taken by their numbers; data that state how many columns
    they have, as text does not, must have as many as the model.

    InputError if features are missing, or there is another number of columns, unless `missing_features` is
    "zero"; also if names do not fit or stand twice. UsageError if the data have names and others are given.
    """
    own, names = model.feature_names, _names_of(rows, feature_names)
    if own is not None and names is not None:
        nbytes = own.nbytes + names.nbytes
        if own == names:
            return Columns(model.n_features, nbytes=nbytes)
        places = _places(own, names, rows.name)
        missing = len(own) - int((places < len(own)).sum())
        extra = len(names) - (len(own) - missing)
        if missing and missing_features == "error":
            raise InputError(_missing(own, places, missing, rows.name))
        remark = _remark(rows.name, missing, extra, len(own))
        return Columns(len(own), places, missing, extra, remark, nbytes + places.nbytes)
    nbytes = 0 if own is None else own.nbytes
    missing = extra = 0
    if rows.n_features is not None:
        missing = max(model.n_features - rows.n_features, 0)
        extra = max(rows.n_features - model.n_features, 0)
    if (missing or extra) and missing_features == "error":
        raise InputError(
            f"{rows.name} has {rows.n_features:,} columns and the model {model.n_features:,} features; give "
            "the columns of the training data, or take columns by their numbers, missing ones as 0, with "
            f"{parameter('missing_features', 'zero')}"
        )
    remark = _remark(rows.name, missing, extra, model.n_features)
    return Columns(model.n_features, None, missing, extra, remark, nbytes)


def _names_of(rows: Any, feature_names: Any) -> FeatureNames | None:
    """The names of the columns: those that the data have, or those that were given."""
    found: FeatureNames | None = rows.feature_names
    if feature_names is None:
        return found
    names = given_names(feature_names)
    if found is not None and not rows.may_rename:
        raise UsageError(f"{rows.name} names its features; leave {parameter('feature_names')} out")
    if names is not None and rows.n_features not in (None, len(names)):
        raise InputError(
            f"{parameter('feature_names')} has {len(names)} names, and {rows.name} has {rows.n_features} "
            "columns; give one name to each"
        )
    return names


def _places(own: FeatureNames, names: FeatureNames, where: str) -> npt.NDArray[np.uint32]:
    """The place of each name among those of the model."""
    advice = "give names that differ, or the columns of the training data in the same order"
    if (double := own.first_double()) is not None:
        raise InputError(
            f"the features of {where} are not those of the model in the same order, and cannot be found by "
            f"name: the model has {shown(own[double[0]])} twice; {advice}"
        )
    found = own.places_of(names)
    counts = np.bincount(found[found >= 0], minlength=1)
    if counts.max() > 1:
        raise InputError(f"{where} has the feature {shown(own[int(counts.argmax())])} twice; {advice}")
    return np.where(found < 0, np.int64(_NOWHERE), found).astype(np.uint32)


def _missing(own: FeatureNames, places: npt.NDArray[np.uint32], missing: int, where: str) -> str:
    """The sentence about features that are missing."""
    there = np.zeros(len(own), np.bool_)
    there[places[places < len(own)]] = True
    named = ", ".join(shown(own[j]) for j in np.flatnonzero(~there)[:_SHOWN_NAMES].tolist())
    return (
        f"{where} lacks {missing:,} of the model's {len(own):,} features ({percent(missing, len(own))}), "
        f"{'such as ' if missing > _SHOWN_NAMES else ''}{named}; add them, or predict and evaluate "
        f"with {parameter('missing_features', 'zero')}, which takes them as 0"
    )


def _remark(where: str, missing: int, extra: int, n_features: int) -> str | None:
    """What a user should know of features that are missing and columns that are no features."""
    parts = []
    if missing:
        share = percent(missing, n_features)
        parts.append(
            f"lacks {missing:,} of the model's {n_features:,} features ({share}), which are taken as 0"
        )
    if extra:
        plural = "columns that are no features" if extra > 1 else "column that is no feature"
        parts.append(f"has {extra:,} {plural} of the model and {'are' if extra > 1 else 'is'} ignored")
    return f"{where} {', and '.join(parts)}" if parts else None

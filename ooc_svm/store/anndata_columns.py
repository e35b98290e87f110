"""Columns of AnnData stores of other writers: numbers, text, or categories for labels; weights, and qids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.annotated import OWN_COLUMNS
from ooc_svm.data.blocks import Float64Array
from ooc_svm.data.matrix import exact_numbers
from ooc_svm.errors import DamageError, InputError, parameter
from ooc_svm.store.anndata_opening import Opening
from ooc_svm.store.chunk_files import Elements
from ooc_svm.store.encoded_chunks import EncodedChunks
from ooc_svm.store.label_summary import MOST_COUNTED
from ooc_svm.store.metadata import read_group
from ooc_svm.store.reader import Column, NumberColumn

LONGEST_NAME = 1000
"""Limit of the length of a label's name, in characters."""


@dataclass(frozen=True)
class ExactColumn:
    """A column of numbers; InputError for integers that float64 does not tell apart."""

    array: EncodedChunks
    dtype: npt.DTypeLike

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """See `Column`."""
        given = np.empty(stop - start, self.dtype)
        self.array.read_into(start, stop, given)
        return exact_numbers(self.array.location, given, start)


@dataclass(frozen=True)
class TextColumn:
    """A column of strings; ``codes`` has the place of each name among the sorted names, NaN for none."""

    array: EncodedChunks
    codes: dict[str, float]

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """See `Column`."""
        texts = self.array.read_strings(start, stop).tolist()
        try:
            return np.array([self.codes[text] for text in texts], np.float64)
        except KeyError:
            raise DamageError(f"{self.array.location} changed while it was read; run again") from None


@dataclass(frozen=True)
class CodeColumn:
    """A categorical column: a code stands for its value; a missing category (-1) reads as NaN.

    The value of a category that is a number is that number, else the code.
    """

    array: EncodedChunks
    values: Float64Array

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """See `Column`."""
        codes = np.empty(stop - start, np.int64)
        self.array.read_into(start, stop, codes)
        if ((codes < -1) | (codes >= len(self.values))).any():
            raise DamageError(f"{self.array.location} has codes without a category; the store is damaged")
        return np.append(self.values, np.nan)[codes]  # -1 is the last entry


@dataclass(frozen=True)
class WholeColumn:
    """Categories that are whole numbers; InputError where one is missing."""

    values: Column  # NaN where it is missing
    name: str  # With its store

    @property
    def array(self) -> Elements:
        """See `Column`."""
        return self.values.array

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """See `Column`."""
        found = self.values.read(start, stop)
        if not (present := np.isfinite(found)).all():
            row = start + int(np.argmin(present))
            raise InputError(f"row {row}, from 0, has no number in {self.name}; remove that row")
        return found.astype(np.int64)


Labels = tuple[Column, tuple[str, ...] | None]
"""The labels, NaN where a row has none, and their names where they have names."""


def find_labels(opening: Opening, columns: Sequence[str], label: str) -> Labels:
    """The labels in one of the ``columns`` of ``obs``; InputError where it is missing, or none of labels."""
    if label not in columns or "/" in label or label in (".", ".."):
        known = ", ".join(f"{name!r:.80}" for name in columns[:20]) or "none"
        raise InputError(
            f"{opening.location} has no column obs/{label:.80} to take the labels from; choose one "
            f"({parameter('label')}): {known}"
            + (f" and {len(columns) - 20} more" if len(columns) > 20 else "")
        )
    name = f"obs/{label}"
    group = read_group(opening.storage, name)
    if group is not None:
        if group.get("encoding-type") != "categorical":
            raise InputError(
                f"{opening.location}/{name} is encoded as {group.get('encoding-type')!r:.80}; "
                "labels are numbers, strings or categories: make it a categorical column"
            )
        return _categories(opening, name)
    info = opening.column_info(name)
    array = opening.array(info)
    if info.dtype.kind == "O":
        names = _distinct(opening, array)
        return TextColumn(array, {name: code for code, name in enumerate(names)} | {"": np.nan}), names
    return ExactColumn(array, info.dtype), None


def find_numbers(opening: Opening, columns: Sequence[str], name: str) -> Column | None:
    """The column ``weight`` or ``qid`` of ``obs``; None where there is none, or it has no such numbers."""
    if name not in columns:
        return None
    place, kinds, is_whole = f"obs/{name}", OWN_COLUMNS[name], name == "qid"
    group = read_group(opening.storage, place)
    if group is None:
        info = opening.column_info(place)
        if info.dtype.kind in kinds:
            return NumberColumn(opening.array(info), np.int64 if is_whole else np.float64)
    is_category = group is not None and group.get("encoding-type") == "categorical"
    if is_category and opening.info(f"{place}/categories").dtype.kind in kinds:
        values, _ = _categories(opening, place)
        if is_whole:
            return WholeColumn(values, f"{opening.location}/{place}")
        return values
    opening.unused.append(place)
    return None


def _categories(opening: Opening, name: str) -> Labels:
    codes, categories = opening.column_info(f"{name}/codes"), opening.info(f"{name}/categories")
    if codes.dtype.kind not in "iu":
        raise DamageError(f"{opening.location}/{name} has codes of type {codes.dtype}; the store is damaged")
    if categories.length > MOST_COUNTED:
        raise _too_many(f"{opening.location}/{name}")
    array, names = opening.array(categories), None
    if categories.dtype.kind == "O":
        names = tuple(array.read_strings(0, categories.length).tolist())
        if max(map(len, names), default=0) > LONGEST_NAME:
            raise _too_many(array.location)
        values = np.array([code if name else np.nan for code, name in enumerate(names)], np.float64)
    else:
        values = ExactColumn(array, categories.dtype).read(0, categories.length)
    return CodeColumn(opening.array(codes), values), names


def _distinct(opening: Opening, array: EncodedChunks) -> tuple[str, ...]:
    """The different strings of a column that are not empty, sorted."""
    names: set[str] = set()
    for start, stop in opening.row_ranges():
        names.update(array.read_strings(start, stop).tolist())
        if len(names) > MOST_COUNTED or max(map(len, names)) > LONGEST_NAME:
            raise _too_many(array.location)
    return tuple(sorted(names - {""}))


def _too_many(column: str) -> InputError:
    return InputError(
        f"{column} has more than {MOST_COUNTED} different names, or names of more than {LONGEST_NAME} "
        "characters; choose a column of classes or of numbers"
    )

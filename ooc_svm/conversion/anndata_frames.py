"""The data frames of AnnData files, copied column by column in bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy.typing as npt

from ooc_svm.errors import DamageError, InputError
from ooc_svm.store.anndata_writer import AnnDataWriter
from ooc_svm.store.codecs import most_text_bytes
from ooc_svm.store.layout import CHUNK_ROWS, METADATA
from ooc_svm.store.row_names import index_array
from ooc_svm.store.trees import Tree
from ooc_svm.system.memory import format_size

# Columns of several arrays: what each encoding consists of.
_PARTS = {
    "categorical": ("codes", "categories"),
    "nullable-integer": ("values", "mask"),
    "nullable-boolean": ("values", "mask"),
    "nullable-string-array": ("values", "mask"),
}

# Attributes of such columns that have a meaning; their values are text, or true and false.
_ATTRIBUTES = ("encoding-type", "encoding-version", "ordered", "na-value")

# Names in a frame that are no columns.
_NO_COLUMNS = (".", "..", "_index", METADATA)

# Characters of a chunk from which on the next one is read when this one is written: they would add up.
_LONG_TEXT = 1 << 22
# Most bytes of a character in UTF-8.
_CHARACTER_BYTES = 4


class FrameCopies:
    """Copies ``obs`` and ``var`` to a store; `left_out` are columns of a kind that cannot be kept.

    `check_step` refuses arrays by their name and the bytes that are decoded at once.
    """

    def __init__(self, tree: Tree, writer: AnnDataWriter, check_step: Callable[[str, int], None]) -> None:
        self._tree, self._writer, self._check_step = tree, writer, check_step
        self.left_out: list[str] = []

    def copy(self, name: str, length: int) -> list[str]:
        """Copy the names and the columns of as many cells or genes; returns the columns that were kept."""
        attributes = self._tree.attributes(name) or {}
        index, columns = index_array(self._tree.attributes, name), attributes.get("column-order", [])
        if index is None or not isinstance(columns, list):
            raise DamageError(
                f"{name} of {self._tree.location} names no index or columns that can be read; "
                "write the file again"
            )
        self._copy_array(index, f"{name}/_index", length)
        kept = []
        for column in columns:
            if column in kept:  # named twice
                continue
            if self._copy_column(name, column, length):
                kept.append(column)
            else:
                self.left_out.append(f"{name}/{column}")
        self._writer.frame(name, kept)
        return kept

    def _copy_column(self, frame: str, column: Any, length: int) -> bool:
        """Copy a column, of one array or of two; False where it is of another kind."""
        if not isinstance(column, str) or not column or "/" in column or column in _NO_COLUMNS:
            return False
        name = f"{frame}/{column}"
        attributes = self._tree.attributes(name)
        if attributes is None:
            self._copy_array(name, name, length)
            return True
        parts = _PARTS.get(str(attributes.get("encoding-type")))
        if parts is None:
            return False
        known = {key: attributes[key] for key in _ATTRIBUTES if isinstance(attributes.get(key), str | bool)}
        self._writer.group(name, known)
        for part in parts:
            place = f"{name}/{part}"
            self._copy_array(place, place, None if part == "categories" else length)
        return True

    def _copy_array(self, source: str, target: str, length: int | None) -> None:
        array = self._tree.array(source)
        if length is not None and array.length != length:
            raise DamageError(
                f"{source} of {self._tree.location} has {array.length} entries for {length}; "
                "the file is damaged"
            )
        self._check_step(source, array.step * array.dtype.itemsize)
        copy = self._writer.array(target, array.dtype)
        for start in range(0, array.length, CHUNK_ROWS):
            entries = array.read(start, min(start + CHUNK_ROWS, array.length))
            if array.dtype.kind == "O":
                self._check_text(source, entries)
            with self._writer.writing():
                copy.extend(entries)
            if array.dtype.kind == "O" and sum(map(len, entries)) > _LONG_TEXT:
                self._writer.wait()
            del entries  # before the next ones are read
        if array.dtype.kind == "O":
            self._writer.finish(copy)

    def _check_text(self, source: str, entries: npt.NDArray[Any]) -> None:
        """Raise InputError for text that could not be read again from one chunk of the store."""
        most = most_text_bytes(CHUNK_ROWS) - 4 * (1 + CHUNK_ROWS)  # each has its length before it
        if _CHARACTER_BYTES * sum(map(len, entries)) <= most:
            return
        if sum(len(entry.encode(errors="surrogatepass")) for entry in entries) > most:
            raise InputError(
                f"{source} of {self._tree.location} has more than {format_size(most)} of text in "
                f"{len(entries)} entries; leave the column out, or shorten them"
            )

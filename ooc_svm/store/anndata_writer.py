"""`AnnDataWriter`: rows and data frames in, an AnnData store without a manifest out, whole or not at all.

Every chunk has a checksum. The root carries a mark, so that the store may be replaced by one like it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import RowBlock
from ooc_svm.store import layout
from ooc_svm.store.array_writer import GrowingArray, PointerArray
from ooc_svm.store.unpublished import UnpublishedStore

_GROUPS = ("", "X", "obs", "var", "uns", "layers", "obsm", "varm", "obsp", "varp")

# What stands for the elements that a chunk's end has too many.
_FILL: dict[str, float | str] = {"f": np.nan, "i": -1, "u": 0, "b": False, "O": ""}


class AnnDataWriter(UnpublishedStore):
    """Writes an AnnData store; use it as a context manager, which removes what was not committed.

    Raises what `UnpublishedStore` does.
    """

    def __init__(
        self, path: str | os.PathLike[str], dtype: npt.DTypeLike, *, overwrite: bool, threads: int
    ) -> None:
        super().__init__(path, overwrite=overwrite, threads=threads)
        with self.writing():
            self._groups = {name: self.files.create_group(name) for name in _GROUPS}
            self._pointers = PointerArray(self.files, "X/indptr", layout.CHUNK_ROWS)
            self._pointers.extend(np.zeros(1, np.int64))
            self._elements = [
                GrowingArray(self.files, f"X/{name}", kind, layout.CHUNK_ELEMENTS, fill_value=fill)
                for name, kind, fill in (("indices", np.int32, -1), ("data", dtype, np.nan))
            ]
        self._arrays: list[GrowingArray] = [self._pointers, *self._elements]
        self._unfinished = list(self._arrays)
        self.n_rows = self.n_nonzeros = 0

    def append(self, rows: RowBlock) -> None:
        """Append rows, which were checked; they have values."""
        with self.writing():
            self._pointers.extend(rows.indptr[1:] + self.n_nonzeros)
            for array, entries in zip(self._elements, (rows.indices, rows.values), strict=True):
                assert entries is not None
                array.extend(entries)
            self.n_rows += rows.n_rows
            self.n_nonzeros += len(rows.indices)

    def array(self, name: str, dtype: np.dtype[Any]) -> GrowingArray:
        """An array of one dimension to append to."""
        with self.writing():
            array = GrowingArray(self.files, name, dtype, layout.CHUNK_ROWS, fill_value=_FILL[dtype.kind])
        self._arrays.append(array)
        self._unfinished.append(array)
        return array

    def wait(self) -> None:
        """Return when all chunks appended so far are written."""
        with self.writing():
            self.files.wait()

    def finish(self, array: GrowingArray) -> None:
        """Write the rest of an array that has all of its elements now, which does not keep them; and wait."""
        with self.writing():
            array.finish()
            self.files.wait()
        self._unfinished.remove(array)

    def group(self, name: str, attributes: dict[str, Any]) -> None:
        """Make a group, or give one its attributes."""
        with self.writing():
            if name not in self._groups:
                self._groups[name] = self.files.create_group(name)
            self._groups[name].update_attributes(attributes)

    def frame(self, name: str, columns: Sequence[str]) -> None:
        """Make ``obs`` or ``var`` a data frame of these columns."""
        self.group(name, layout.dataframe_attributes(list(columns)))

    def commit(self, n_features: int, source: dict[str, Any]) -> int:
        """Write what is left, and put the store in its place; returns the bytes of all chunk files."""
        with self.writing():
            for array in self._unfinished:
                array.finish()
            self.group("X", layout.csr_attributes(self.n_rows, n_features))
            for name in _GROUPS[4:]:
                self.group(name, layout.DICT_ATTRIBUTES)
            self.files.settle()
            self._groups[""].update_attributes(layout.ROOT_ATTRIBUTES | {layout.SOURCE: source})
            self.publish()
        return sum(sum(array.sizes) for array in self._arrays)

    def __enter__(self) -> AnnDataWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

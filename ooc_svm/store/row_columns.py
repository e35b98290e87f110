"""The arrays of a store that is being written, but for its elements: one entry a row, and the tails."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int32Array, Int64Array, Values
from ooc_svm.store.array_writer import GrowingArray, PointerArray
from ooc_svm.store.layout import CODES, LABEL, MANIFEST, code_type
from ooc_svm.store.zarr_files import StoreFiles

Tail = tuple[Int32Array, Values | None]

NO_TAIL: Tail = (np.empty(0, np.int32), None)
"""The tail of a block that ends where a chunk ends."""


class RowColumns:
    """Row pointers, labels, and qids and weights where the data have them, with ``chunk`` rows in a chunk.

    ``arrays`` are those that every store has. Labels that are names are places among the names, which may be
    those of sets.
    """

    def __init__(self, files: StoreFiles, chunk: int, named_labels: bool, label_sets: bool = False) -> None:
        self._files, self._chunk = files, chunk
        self.arrays = (
            PointerArray(files, "X/indptr", chunk),
            self._column("obs/_index", np.int64, -1),
            self._column(CODES, code_type(label_sets), -1)
            if named_labels
            else self._column(LABEL, np.float64, np.nan),
        )
        self.arrays[0].extend(np.zeros(1, np.int64))
        self.qids: GrowingArray | None = None
        self.weights: GrowingArray | None = None

    def _column(self, name: str, dtype: npt.DTypeLike, fill_value: float) -> GrowingArray:
        return GrowingArray(self._files, name, dtype, self._chunk, fill_value=fill_value)

    @property
    def names(self) -> list[str]:
        """Names of the columns of ``obs``."""
        optional = {"qid": self.qids, "weight": self.weights}
        return ["label", *(name for name, array in optional.items() if array)]

    def append(
        self,
        first: tuple[int, int],
        indptr: Int64Array,
        labels: Float64Array,
        qids: Int64Array | None,
        weights: Float64Array | None,
    ) -> None:
        """Append the columns of the next rows, which were checked; ``first``: their first row and element."""
        row, element = first
        pointers, names, label = self.arrays
        pointers.extend(indptr[1:] + element)
        names.extend(np.arange(row, row + len(labels)))
        label.extend(labels)
        if qids is not None:
            self.qids = self.qids or self._column("obs/qid", np.int64, -1)
            self.qids.extend(qids)
        if weights is not None:
            self.weights = self.weights or self._column("obs/weight", np.float64, np.nan)
            self.weights.extend(weights)


class TailArrays:
    """The tails of all blocks (`ooc_svm.store.blocks`), appended in order; no values while all are 1."""

    def __init__(self, files: StoreFiles, chunk: int, dtype: npt.DTypeLike) -> None:
        self._files, self._chunk, self._dtype = files, chunk, dtype
        self.pointers = self._array("pointers", np.int64, -1)
        self.pointers.extend(np.zeros(1, np.int64))
        self.indices = self._array("indices", np.int32, -1)
        self.values: GrowingArray | None = None

    def _array(self, name: str, dtype: npt.DTypeLike, fill_value: float) -> GrowingArray:
        return GrowingArray(self._files, f"{MANIFEST}/tail_{name}", dtype, self._chunk, fill_value=fill_value)

    def begin_values(self) -> None:
        """Keep values from here on, where not all of them are 1; those of the tails so far are ones."""
        self.values = self._array("values", self._dtype, np.nan)
        self.values.extend_ones(self.indices.total)

    def append(self, indices: Int32Array, values: Values | None) -> None:
        """Append the tail of the next block; values are None where all are 1."""
        self.indices.extend(indices)
        if self.values is not None:
            self.values.extend(np.ones(len(indices), self._dtype) if values is None else values)
        self.pointers.extend(np.array([self.indices.total], np.int64))

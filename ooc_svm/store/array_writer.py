"""Arrays of a store that is being written: elements of any number in, whole chunks out."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.store import layout
from ooc_svm.store.layout import chunk_count
from ooc_svm.store.manifest import ListedArray
from ooc_svm.store.zarr_files import StoreFiles


class GrowingArray:
    """One array of the store, appended to, in chunks of ``chunk`` elements.

    ``fill_value`` is what other programs read for a lost chunk: never something that looks like data. Chunks
    before number ``first`` are written elsewhere. ``encode`` turns a chunk of strings (dtype object) into
    bytes. ``sizes`` and ``checksums``, the bytes and the crc32c of every chunk file, are complete when
    `StoreFiles.wait` has returned.
    """

    def __init__(
        self,
        files: StoreFiles,
        name: str,
        dtype: npt.DTypeLike,
        chunk: int,
        *,
        fill_value: float | str,
        first: int = 0,
        encode: Callable[[npt.NDArray[Any]], npt.NDArray[Any]] | None = None,
    ) -> None:
        self.name = name
        self._files, self._fill_value, self._first, self._encode = files, fill_value, first, encode
        self._chunk = chunk
        self._begin(np.dtype(dtype))

    def _begin(self, dtype: np.dtype[Any]) -> None:
        """Begin with no elements."""
        self._dtype = dtype
        self._array = self._files.create_array(self.name, dtype, self._chunk, self._fill_value)
        self.sizes, self.checksums = array("q"), array("I")
        self._buffer = np.empty(self._chunk, dtype)
        self._filled = 0

    @property
    def total(self) -> int:
        """Elements appended so far."""
        return len(self.sizes) * self._chunk + self._filled

    def extend(self, elements: npt.NDArray[Any]) -> None:
        """Append elements (copied, converted to the array's type)."""
        taken = 0
        while taken < len(elements):
            count = min(len(elements) - taken, self._chunk - self._filled)
            self._buffer[self._filled : self._filled + count] = elements[taken : taken + count]
            taken += count
            self._filled += count
            if self._filled == self._chunk:
                self._flush()
                self._buffer = np.empty_like(self._buffer)

    def extend_ones(self, count: int) -> None:
        """Append ones."""
        ones = np.ones(min(count, self._chunk), self._dtype)
        for start in range(0, count, self._chunk):
            self.extend(ones[: count - start])

    def _flush(self) -> None:
        index = len(self.sizes)
        self.sizes.append(-1)
        self.checksums.append(0)
        self._files.put(self._write, index, self._buffer)
        self._filled = 0

    def _write(self, index: int, content: npt.NDArray[Any]) -> None:
        number = self._first + index
        if self._encode is not None:
            content = self._encode(content)
        self.sizes[index], self.checksums[index] = self._files.write_chunk(self.name, number, content)

    def finish(self) -> ListedArray:
        """Write what is left, filled up to a whole chunk; return what the manifest must list."""
        length = self.total
        if self._filled:
            self._buffer[self._filled :] = self._fill_value
            self._flush()
        self._buffer = np.empty(0, self._dtype)
        self._array.resize(length)
        return ListedArray(self.name, self._dtype.name, length, self._chunk)


class PointerArray(GrowingArray):
    """Row pointers: int32 as long as they fit, as programs that take no 64-bit indices need them.

    The first one that does not fit makes all of them int64: what was written by then is written again.
    """

    def __init__(self, files: StoreFiles, name: str, chunk: int) -> None:
        super().__init__(files, name, np.int32, chunk, fill_value=-1)

    def extend(self, elements: npt.NDArray[Any]) -> None:
        """Append pointers, none less than those before."""
        if self._dtype.itemsize == 4 and len(elements) and elements[-1] > layout.LARGEST_NARROW:
            self._widen()
        super().extend(elements)

    def _widen(self) -> None:
        self._files.wait()
        n_chunks, narrow, rest = len(self.sizes), self._dtype, self._buffer[: self._filled]
        self._begin(np.dtype(np.int64))
        for index in range(n_chunks):  # a chunk is read before the one in its place is written
            super().extend(self._files.read_chunk(self.name, index, narrow, self._chunk))
        super().extend(rest)


class AdoptedArray:
    """Like `GrowingArray`, an array of ``length`` elements whose chunks are written elsewhere."""

    def __init__(
        self,
        files: StoreFiles,
        name: str,
        dtype: npt.DTypeLike,
        chunk: int,
        length: int,
        *,
        fill_value: float,
    ) -> None:
        n_chunks = chunk_count(length, chunk)
        self.name = name
        self.sizes = array("q", [-1]) * n_chunks
        self.checksums = array("I", [0]) * n_chunks
        self._array = files.create_array(name, dtype, chunk, fill_value)
        self._listed = ListedArray(name, np.dtype(dtype).name, length, chunk)

    def adopt(self, first: int, sizes: array[int], checksums: array[int]) -> None:
        """Record the chunks from number `first` on, which are on the disk."""
        self.sizes[first : first + len(sizes)] = sizes
        self.checksums[first : first + len(checksums)] = checksums

    def finish(self) -> ListedArray:
        """Return what the manifest must list."""
        assert -1 not in self.sizes, f"{self.name} is not complete"
        self._array.resize(self._listed.length)
        return self._listed

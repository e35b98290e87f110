"""Arrays that grow: pieces of any length in, whole chunks out, written behind the caller's back."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.store.layout import ARRAY_ATTRIBUTES, chunk_count
from ooc_svm.store.manifest import ListedArray
from ooc_svm.store.zarr_files import StoreFiles


class WriteBehind:
    """Compresses and writes chunks in threads of its own while the caller makes the next ones.

    At most ``2 * workers`` chunks wait; a failed write is raised by a later call.

    Parameters
    ----------
    workers : int
        Chunks written at once.
    """

    def __init__(self, workers: int) -> None:
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="ooc-svm-write")
        self._pending: deque[Future[None]] = deque()
        self._room = 2 * workers

    def put(
        self, write: Callable[[int, npt.NDArray[Any]], None], index: int, content: npt.NDArray[Any]
    ) -> None:
        """Have a chunk written; the caller gives the buffer away."""
        while len(self._pending) >= self._room:
            self._pending.popleft().result()
        self._pending.append(self._pool.submit(write, index, content))

    def wait(self) -> None:
        """Return when everything put so far is written."""
        while self._pending:
            self._pending.popleft().result()

    def __enter__(self) -> WriteBehind:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


class GrowingArray:
    """One array of the store, appended to.

    Parameters
    ----------
    files : StoreFiles
    behind : WriteBehind
    name : str
        Path in the store.
    dtype : dtype
    chunk : int
        Elements in a chunk.
    fill_value : float
        What a lost chunk would read as to others: never something that looks like data.
    first : int
        Number of the first chunk, where those before are written elsewhere.

    Attributes
    ----------
    sizes, checksums : array of int
        Bytes and crc32c of every chunk file, complete when the `WriteBehind` has written all.
    """

    def __init__(
        self,
        files: StoreFiles,
        behind: WriteBehind,
        name: str,
        dtype: npt.DTypeLike,
        chunk: int,
        *,
        fill_value: float,
        first: int = 0,
    ) -> None:
        self.name = name
        self.sizes = array("q")
        self.checksums = array("I")
        self._array = files.create_array(
            name, dtype, chunk, attributes=ARRAY_ATTRIBUTES, fill_value=fill_value
        )
        self._files = files
        self._behind = behind
        self._fill_value = fill_value
        self._first = first
        self._dtype = np.dtype(dtype)
        self._chunk = chunk
        self._buffer = np.empty(chunk, self._dtype)
        self._filled = 0

    @property
    def total(self) -> int:
        """Elements appended so far."""
        return len(self.sizes) * self._chunk + self._filled

    def extend(self, piece: npt.NDArray[Any]) -> None:
        """Append elements (copied, converted to the array's type)."""
        taken = 0
        while taken < len(piece):
            count = min(len(piece) - taken, self._chunk - self._filled)
            self._buffer[self._filled : self._filled + count] = piece[taken : taken + count]
            taken += count
            self._filled += count
            if self._filled == self._chunk:
                self._flush()
                self._buffer = np.empty_like(self._buffer)

    def extend_ones(self, count: int) -> None:
        """Append ones."""
        ones = np.ones(min(count, self._chunk), self._dtype)
        while count:
            piece = ones[:count]
            self.extend(piece)
            count -= len(piece)

    def _flush(self) -> None:
        index = len(self.sizes)
        self.sizes.append(-1)
        self.checksums.append(0)
        self._behind.put(self._write, index, self._buffer)
        self._filled = 0

    def _write(self, index: int, content: npt.NDArray[Any]) -> None:
        number = self._first + index
        self.sizes[index], self.checksums[index] = self._files.write_chunk(self.name, number, content)

    def finish(self) -> ListedArray:
        """Write what is left, filled up to a whole chunk; say what the manifest must list."""
        length = self.total
        if self._filled:
            self._buffer[self._filled :] = self._fill_value
            self._flush()
        self._array.resize((length,))
        return ListedArray(self.name, self._dtype.name, length, self._chunk)


class AdoptedArray:
    """One array of the store whose chunks are written elsewhere.

    Parameters
    ----------
    files : StoreFiles
    name, dtype, chunk, fill_value
        As for `GrowingArray`.
    length : int
        Elements of the whole array.

    Attributes
    ----------
    sizes, checksums : array of int
        Bytes and crc32c of every chunk file.
    """

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
        self._array = files.create_array(
            name, dtype, chunk, attributes=ARRAY_ATTRIBUTES, fill_value=fill_value
        )
        self._listed = ListedArray(name, np.dtype(dtype).name, length, chunk)

    def adopt(self, first: int, sizes: array[int], checksums: array[int]) -> None:
        """Take note of the chunks from number `first` on, which are on the disk."""
        self.sizes[first : first + len(sizes)] = sizes
        self.checksums[first : first + len(checksums)] = checksums

    def finish(self) -> ListedArray:
        """Say what the manifest must list."""
        assert -1 not in self.sizes, f"{self.name} is not complete"
        self._array.resize((self._listed.length,))
        return self._listed

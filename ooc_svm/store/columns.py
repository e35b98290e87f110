"""Arrays that grow: pieces of any length in, groups of whole chunks out, written behind the caller's back."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.store.access import DurableStore, ZarrArray, create_array
from ooc_svm.store.layout import ARRAY_ATTRIBUTES
from ooc_svm.store.manifest import ListedArray


class WriteBehind:
    """Writes groups of chunks in threads of its own while the caller makes the next ones.

    At most ``2 * workers`` groups wait; a failed write is raised by the next call.

    Parameters
    ----------
    workers : int
        Groups written at once.
    """

    def __init__(self, workers: int) -> None:
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="ooc-svm-write")
        self._pending: deque[Future[None]] = deque()
        self._room = 2 * workers

    def put(self, array: ZarrArray, start: int, content: npt.NDArray[Any]) -> None:
        """Have ``content`` written from element ``start`` on; the caller gives the buffer away."""
        while len(self._pending) >= self._room:
            self._pending.popleft().result()
        self._pending.append(self._pool.submit(_write, array, start, content))

    def wait(self) -> None:
        """Return when everything put so far is on the disk."""
        while self._pending:
            self._pending.popleft().result()

    def __enter__(self) -> WriteBehind:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


def _write(array: ZarrArray, start: int, content: npt.NDArray[Any]) -> None:
    array[start : start + len(content)] = content


class GrowingArray:
    """One array of the store, appended to.

    Parameters
    ----------
    store : DurableStore
    behind : WriteBehind
    name : str
        Path in the store.
    dtype : dtype
    chunk : int
        Elements in a chunk.
    fill_value : float
        What a lost chunk would read as to others: never something that looks like data.
    group : int
        Chunks written at once.
    """

    def __init__(
        self,
        store: DurableStore,
        behind: WriteBehind,
        name: str,
        dtype: npt.DTypeLike,
        chunk: int,
        *,
        fill_value: float,
        group: int = 1,
    ) -> None:
        self.name = name
        self.length = 0
        self._array = create_array(
            store, name, dtype, chunk, attributes=ARRAY_ATTRIBUTES, fill_value=fill_value
        )
        self._behind = behind
        self._dtype = np.dtype(dtype)
        self._chunk = chunk
        self._buffer = np.empty(group * chunk, self._dtype)
        self._filled = 0

    @property
    def total(self) -> int:
        """Elements appended so far."""
        return self.length + self._filled

    def extend(self, piece: npt.NDArray[Any]) -> None:
        """Append elements (copied, converted to the array's type)."""
        taken = 0
        while taken < len(piece):
            count = min(len(piece) - taken, len(self._buffer) - self._filled)
            self._buffer[self._filled : self._filled + count] = piece[taken : taken + count]
            taken += count
            self._filled += count
            if self._filled == len(self._buffer):
                self._flush()
                self._buffer = np.empty_like(self._buffer)

    def extend_ones(self, count: int) -> None:
        """Append ones."""
        ones = np.ones(min(count, len(self._buffer)), self._dtype)
        while count:
            piece = ones[:count]
            self.extend(piece)
            count -= len(piece)

    def _flush(self) -> None:
        if self._filled:
            start = self.length
            self.length += self._filled
            # Growing before the write is put keeps the shape in one thread.
            self._array.resize((self.length,))
            self._behind.put(self._array, start, self._buffer[: self._filled])
            self._filled = 0

    def finish(self) -> ListedArray:
        """Write what is left; say what the manifest must list."""
        self._flush()
        return ListedArray(self.name, self._dtype.name, self.length, self._chunk)

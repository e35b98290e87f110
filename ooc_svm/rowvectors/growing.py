"""A row vector whose length is not known when it is begun."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ooc_svm.rowvectors.vector import SLICE_ROWS, DiskVector, MemoryVector, RowVector, default_scratch_folder

# Pieces double in length up to this: files stay few, and what is reserved and not used stays small.
_LARGEST_PIECE = 1 << 26


class GrowingVector(RowVector):
    """Entries are appended; what was appended can be read. A context manager.

    It is made of pieces, in memory while what is allowed lasts, on disk from then on.

    Parameters
    ----------
    dtype : data type
    memory_bytes : int
        What the pieces in memory may use.
    scratch_dir : path, optional
        Folder for the others; see `ooc_svm.rowvectors.vector.default_scratch_folder`.
    first_piece : int
        Rows of the first piece.
    """

    def __init__(
        self,
        dtype: npt.DTypeLike,
        memory_bytes: int,
        scratch_dir: Path | None = None,
        *,
        first_piece: int = SLICE_ROWS,
    ) -> None:
        super().__init__(0, dtype)
        self._memory_bytes = memory_bytes
        self._folder = default_scratch_folder() if scratch_dir is None else scratch_dir
        self._pieces: list[RowVector] = []
        self._starts: list[int] = []
        self._next_piece = max(first_piece, 1)

    @property
    def in_memory(self) -> bool:
        """Whether all pieces are in memory."""
        return all(piece.in_memory for piece in self._pieces)

    @property
    def bytes_in_memory(self) -> int:
        """Bytes of the pieces that are in memory."""
        return sum(piece.nbytes for piece in self._pieces if piece.in_memory)

    def append(self, array: npt.NDArray[Any]) -> None:
        """Add entries at the end; raises as `write` does."""
        while len(array):
            room = self._starts[-1] + self._pieces[-1].n_rows - self.n_rows if self._pieces else 0
            if room == 0:
                self._add_piece()
                continue
            part, array = array[:room], array[room:]
            self._pieces[-1].write(self.n_rows - self._starts[-1], part)
            self.n_rows += len(part)
            self.nbytes = self.n_rows * self.dtype.itemsize

    def close(self) -> None:
        """Give the entries up; closing twice does no harm."""
        for piece in self._pieces:
            piece.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _add_piece(self) -> None:
        n_rows = self._next_piece
        piece: RowVector
        if self.bytes_in_memory + n_rows * self.dtype.itemsize <= self._memory_bytes:
            piece = MemoryVector(n_rows, self.dtype)
        else:
            piece = DiskVector(n_rows, self.dtype, self._folder)
        self._pieces.append(piece)
        self._starts.append(self.n_rows)
        self._next_piece = min(2 * n_rows, max(_LARGEST_PIECE, n_rows))

    def _parts(self, start: int, stop: int) -> list[tuple[RowVector, int, int, int]]:
        """Pieces that hold the rows ``start .. stop``: (piece, its first row, from, to)."""
        parts = []
        place = bisect_right(self._starts, start) - 1
        while start < stop:
            first, piece = self._starts[place], self._pieces[place]
            end = min(stop, first + piece.n_rows)
            parts.append((piece, first, start, end))
            start, place = end, place + 1
        return parts

    def _read(self, start: int, stop: int, out: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
        parts = self._parts(start, stop)
        if len(parts) == 1:
            piece, first, _, _ = parts[0]
            return piece.read(start - first, stop - first, out)
        entries = np.empty(stop - start, self.dtype) if out is None else out[: stop - start]
        for piece, first, begin, end in parts:
            target = entries[begin - start : end - start]
            target[:] = piece.read(begin - first, end - first, target)
        return entries

    def _write(self, start: int, array: npt.NDArray[Any]) -> None:
        for piece, first, begin, end in self._parts(start, start + len(array)):
            piece.write(begin - first, array[begin - start : end - start])

"""The row vectors of a cluster run as they were last written, in a folder that all its processes share.

A worker that has changed row vectors writes the lots it has changed to a new file before it answers. So
nothing is lost with it: whoever gets its lots next takes them from there. Files are named by the client,
which alone knows which of them belong to a request that all have answered; the others might as well not be
there.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import google_crc32c
import numpy as np
import numpy.typing as npt

from ooc_svm.cluster.partition import Lot
from ooc_svm.errors import DamageError, StorageError
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.rowvectors.vector import AnyArray, RowVector, row_slices


@dataclass(frozen=True, slots=True)
class Saved:
    """Where the entries of a lot are: the file, their first byte there, and their checksum if it is known."""

    path: str
    offset: int
    crc32c: int | None


def write_lots(file: BinaryIO, vectors: RowVectors, names: Sequence[str], lots: Sequence[Lot]) -> list[int]:
    """Write the entries of some vectors, lot after lot, and of a lot vector after vector.

    Returns
    -------
    list of int
        Their checksums, in that order.
    """
    checksums = []
    for lot in lots:
        first = vectors.place(lot.start)
        for name in names:
            checksum = 0
            for start, stop in row_slices(lot.n_rows):
                part = vectors[name].read(first + start, first + stop).tobytes()
                checksum = google_crc32c.extend(checksum, part)
                file.write(part)
            checksums.append(checksum)
    return checksums


def load_lot(vectors: RowVectors, name: str, lot: Lot, saved: Saved) -> None:
    """Set the entries of a lot to what was saved.

    Raises
    ------
    StorageError
        The file cannot be read.
    DamageError
        It is not as it was written.
    """
    vector, first, checksum = vectors[name], vectors.place(lot.start), 0
    with _open(saved.path) as file:
        file.seek(saved.offset)
        for start, stop in row_slices(lot.n_rows):
            part = file.read((stop - start) * vector.dtype.itemsize)
            checksum = google_crc32c.extend(checksum, part)
            vector.write(first + start, _entries(part, stop - start, vector.dtype, saved.path))
    if saved.crc32c not in (None, checksum):
        raise _damage(saved.path)


class SharedVectors(RowVectors):
    """Knows where the newest entries of each lot of each vector are; the client's side of the row vectors.

    Parameters
    ----------
    folder : Path
        Seen by all workers under this name.
    lots : sequence of Lot
        All rows.

    Attributes
    ----------
    version : int
        Grows with what is not the workers' own doing: vectors that are made, entries that are written here.
    """

    def __init__(self, folder: Path, lots: Sequence[Lot]) -> None:
        super().__init__(sum(lot.n_rows for lot in lots), 0, folder)
        self.version = 0
        self._lots = lots
        self._saved: dict[tuple[str, int], Saved] = {}
        self._uses: Counter[str] = Counter()
        self._written: dict[str, str] = {}
        """For each vector the file of what was written here, in the order of the rows."""
        self._n_files = 0

    def new_path(self) -> str:
        """A name for a file that no file has had before."""
        self._n_files += 1
        return str(self.scratch_dir / f"{self._n_files:08d}")

    def saved(self, name: str, number: int) -> Saved | None:
        """Where the entries of a lot are; None if they never changed."""
        return self._saved.get((name, number))

    def kind(self, name: str) -> tuple[str, float]:
        """Type and first value of the entries of a vector."""
        vector = self[name]
        assert isinstance(vector, SharedVector)
        return vector.dtype.str, vector.fill

    def commit(
        self, path: str, names: Sequence[str], numbers: Sequence[int], checksums: Sequence[int]
    ) -> None:
        """Hold for true what `write_lots` wrote of these lots."""
        places = [(name, number) for number in numbers for name in names]
        offset = 0
        for (name, number), checksum in zip(places, checksums, strict=True):
            self._point(name, number, Saved(path, offset, checksum))
            offset += self._lots[number].n_rows * self[name].dtype.itemsize

    def discard(self, path: str) -> None:
        """Remove a file that is not wanted, if it is there."""
        if not self._uses[path]:
            del self._uses[path]
            with contextlib.suppress(OSError):
                os.unlink(path)

    def read(self, name: str, start: int, stop: int) -> AnyArray:
        """The entries of some rows."""
        vector = self[name]
        assert isinstance(vector, SharedVector)
        entries = np.full(stop - start, vector.fill, vector.dtype)
        for number, lot in self._within(start, stop):
            saved = self.saved(name, number)
            if saved is None:
                continue
            first, last = max(lot.start, start), min(lot.stop, stop)
            with _open(saved.path) as file:
                file.seek(saved.offset + (first - lot.start) * vector.dtype.itemsize)
                part = file.read((last - first) * vector.dtype.itemsize)
            entries[first - start : last - start] = _entries(part, last - first, vector.dtype, saved.path)
        return entries

    def write(self, name: str, start: int, array: AnyArray) -> None:
        """Set the entries of some rows; the workers take them with their next request."""
        stop, size = start + len(array), array.dtype.itemsize
        path = self._written.setdefault(name, self.new_path())
        with _open(path, "r+b" if self._uses[path] else "wb") as file:
            for number, lot in self._within(start, stop):
                saved = self.saved(name, number)
                if saved is None or saved.path != path:
                    file.seek(lot.start * size)
                    file.write(self.read(name, lot.start, lot.stop).data)
                    self._point(name, number, Saved(path, lot.start * size, None))
            file.seek(start * size)
            file.write(array.data)
        self.version += 1

    def _make(self, name: str, dtype: npt.DTypeLike, fill: float | None) -> RowVector:
        self.version += 1
        return SharedVector(self, name, dtype, fill or 0.0)

    def _within(self, start: int, stop: int) -> Iterator[tuple[int, Lot]]:
        for number, lot in enumerate(self._lots):
            if lot.start < stop and lot.stop > start:
                yield number, lot

    def _point(self, name: str, number: int, saved: Saved) -> None:
        """Keep where the entries of a lot are, and remove the file where they were if it holds no others."""
        before = self._saved.get((name, number))
        self._saved[name, number] = saved
        self._uses[saved.path] += 1
        if before is not None:
            self._uses[before.path] -= 1
            self.discard(before.path)


class SharedVector(RowVector):
    """One of the `SharedVectors`."""

    def __init__(self, vectors: SharedVectors, name: str, dtype: npt.DTypeLike, fill: float) -> None:
        super().__init__(vectors.n_rows, dtype)
        self.fill = fill
        self._vectors, self._name = vectors, name

    @property
    def in_memory(self) -> bool:
        """Always false."""
        return False

    def close(self) -> None:
        """The files go with their folder."""

    def _read(self, start: int, stop: int, out: AnyArray | None) -> AnyArray:
        return self._vectors.read(self._name, start, stop)

    def _write(self, start: int, array: AnyArray) -> None:
        self._vectors.write(self._name, start, array)


@contextlib.contextmanager
def _open(path: str, mode: str = "rb") -> Iterator[Any]:
    try:
        with open(path, mode) as file:
            yield file
    except OSError as error:
        raise StorageError(
            f"{path}: row vectors of the run cannot be read or written: {error.strerror}; check that all "
            "machines of the cluster see this folder and that it has free space, and run again"
        ) from error


def _entries(part: bytes, count: int, dtype: np.dtype[Any], path: str) -> AnyArray:
    if len(part) != count * dtype.itemsize:
        raise _damage(path)
    return np.frombuffer(part, dtype)


def _damage(path: str) -> DamageError:
    return DamageError(
        f"{path}: row vectors of the run are not as they were written; check the file system, and run again "
        "from the last checkpoint"
    )

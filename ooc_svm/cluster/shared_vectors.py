"""The row vectors of a cluster run as they were last written, in a folder that all its processes share.

A worker that has changed row vectors writes the partitions it has changed to a new file before it answers. So
nothing is lost with it: the worker that gets its partitions next reads them from there. The client names the
files. It alone knows which of them belong to a request that all workers have answered; the others count for
nothing.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import google_crc32c
import numpy as np
import numpy.typing as npt

from ooc_svm.cluster.partition import Partition
from ooc_svm.data.blocks import row_slices
from ooc_svm.errors import DamageError, OocSvmError, StorageError
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.rowvectors.vector import AnyArray, RowVector
from ooc_svm.system.address import Address, AnyPath
from ooc_svm.system.files import atomic_write, open_to_read, remove_file


@dataclass(frozen=True, slots=True)
class Saved:
    """Where the entries of a vector's partition are."""

    path: str
    offset: int  # Of their first byte in the file
    crc32c: int | None  # Their checksum, if it is known


def write_partitions(
    file: BinaryIO, vectors: RowVectors, names: Sequence[str], partitions: Sequence[Partition]
) -> list[int]:
    """Write the entries of some vectors: all vectors of the first partition, of the second, and so on.

    Returns checksums of the entries of each vector and partition, in that order.
    """
    checksums = []
    for partition in partitions:
        first = vectors.place(partition.start)
        for name in names:
            checksum = 0
            for start, stop in row_slices(partition.n_rows):
                content = vectors[name].read(first + start, first + stop).tobytes()
                checksum = google_crc32c.extend(checksum, content)
                file.write(content)
            checksums.append(checksum)
    return checksums


def load_partition(vectors: RowVectors, name: str, partition: Partition, saved: Saved) -> None:
    """Set the entries of a partition to what was saved.

    StorageError if the file cannot be read.
    DamageError if it is not as it was written.
    """
    vector, first, checksum = vectors[name], vectors.place(partition.start), 0
    with _open(saved.path) as file:
        file.seek(saved.offset)
        for start, stop in row_slices(partition.n_rows):
            content = file.read((stop - start) * vector.dtype.itemsize)
            checksum = google_crc32c.extend(checksum, content)
            vector.write(first + start, _entries(content, stop - start, vector.dtype, saved.path))
    if saved.crc32c not in (None, checksum):
        raise _damage(saved.path)


class SharedVectors(RowVectors):
    """The client's side of the row vectors: knows where the newest entries of each partition are.

    ``folder``: all workers see it under this name.
    ``partitions``: all rows.
    ``version``: grows with every change that workers do not make: new vectors, and entries written here.
    """

    def __init__(self, folder: AnyPath, partitions: Sequence[Partition]) -> None:
        n_rows = sum(partition.n_rows for partition in partitions)
        super().__init__(n_rows, 0, folder if isinstance(folder, Path) else None)
        self._folder = folder
        self.version = 0
        self._partitions = partitions
        self._saved: dict[tuple[str, int], Saved] = {}
        self._uses: Counter[str] = Counter()
        self._written: dict[str, str] = {}
        """For each vector the file of the entries written here, in the order of the rows."""
        self._n_files = 0
        self._verified: set[Saved] = set()  # Entries that were found to be as they were written

    def new_path(self) -> str:
        """A name that no file has had before."""
        self._n_files += 1
        return str(self._folder / f"{self._n_files:08d}")

    def saved(self, name: str, number: int) -> Saved | None:
        """Where the entries of a partition are; None if they never changed."""
        return self._saved.get((name, number))

    def kind(self, name: str) -> tuple[str, float]:
        """Type and first value of the entries of a vector."""
        vector = self[name]
        assert isinstance(vector, SharedVector)
        return vector.dtype.str, vector.fill

    def commit(
        self, path: str, names: Sequence[str], numbers: Sequence[int], checksums: Sequence[int]
    ) -> None:
        """Make what `write_partitions` wrote of these partitions their newest entries."""
        places = [(name, number) for number in numbers for name in names]
        offset = 0
        for (name, number), checksum in zip(places, checksums, strict=True):
            self._point(name, number, Saved(path, offset, checksum))
            offset += self._partitions[number].n_rows * self[name].dtype.itemsize

    def discard(self, path: str) -> None:
        """Remove a file without newest entries, if it is there."""
        if not self._uses[path]:
            del self._uses[path]
            with contextlib.suppress(OSError):
                remove_file(path)

    def read(self, name: str, start: int, stop: int) -> AnyArray:
        """The entries of some rows; DamageError if those of a partition are not as they were written."""
        vector = self[name]
        assert isinstance(vector, SharedVector)
        entries = np.full(stop - start, vector.fill, vector.dtype)
        for number, partition in self._within(start, stop):
            saved = self.saved(name, number)
            if saved is None:
                continue
            self._verify(saved, partition.n_rows * vector.dtype.itemsize)
            first, last = max(partition.start, start), min(partition.stop, stop)
            with _open(saved.path) as file:
                file.seek(saved.offset + (first - partition.start) * vector.dtype.itemsize)
                content = file.read((last - first) * vector.dtype.itemsize)
            entries[first - start : last - start] = _entries(content, last - first, vector.dtype, saved.path)
        return entries

    def _verify(self, saved: Saved, n_bytes: int) -> None:
        """Compare the entries of a partition with their checksum, once: parts of them are read after that."""
        if saved.crc32c is None or saved in self._verified:
            return
        checksum = 0
        with _open(saved.path) as file:
            file.seek(saved.offset)
            for start, stop in row_slices(n_bytes):
                checksum = google_crc32c.extend(checksum, file.read(stop - start))
        if checksum != saved.crc32c:
            raise _damage(saved.path)
        self._verified.add(saved)

    def write(self, name: str, start: int, array: AnyArray) -> None:
        """Set the entries of some rows; the workers load them before their next request."""
        self.version += 1
        if isinstance(self._folder, Address):
            self._write_objects(name, start, array)
            return
        stop, size = start + len(array), array.dtype.itemsize
        path = self._written.setdefault(name, self.new_path())
        with _open(path, "r+b" if self._uses[path] else "wb") as file:
            for number, partition in self._within(start, stop):
                saved = self.saved(name, number)
                if saved is None or saved.path != path:
                    file.seek(partition.start * size)
                    file.write(self.read(name, partition.start, partition.stop).data)
                    self._point(name, number, Saved(path, partition.start * size, None))
            file.seek(start * size)
            file.write(array.data)

    def _write_objects(self, name: str, start: int, array: AnyArray) -> None:
        """Set the entries of some rows: each partition becomes a new object, since none can be changed."""
        stop = start + len(array)
        for number, partition in self._within(start, stop):
            entries = self.read(name, partition.start, partition.stop)
            first, last = max(partition.start, start), min(partition.stop, stop)
            entries[first - partition.start : last - partition.start] = array[first - start : last - start]
            path, content = self.new_path(), entries.tobytes()
            atomic_write(path, lambda file, content=content: file.write(content))  # type: ignore[misc]
            self._point(name, number, Saved(path, 0, google_crc32c.value(content)))

    def _set_at_once(self) -> Iterable[tuple[int, int]]:
        """Whole partitions where they are objects: to set a part of one is to write all of it."""
        if not isinstance(self._folder, Address):
            return super()._set_at_once()
        return sorted((partition.start, partition.stop) for partition in self._partitions)

    def _make(self, name: str, dtype: npt.DTypeLike, fill: float | None) -> RowVector:
        self.version += 1
        return SharedVector(self, name, dtype, fill or 0.0)

    def _within(self, start: int, stop: int) -> Iterator[tuple[int, Partition]]:
        for number, partition in enumerate(self._partitions):
            if partition.start < stop and partition.stop > start:
                yield number, partition

    def _point(self, name: str, number: int, saved: Saved) -> None:
        """Remember where the entries of a partition are; remove their last file if it holds no others."""
        before = self._saved.get((name, number))
        self._saved[name, number] = saved
        self._uses[saved.path] += 1
        if before is not None:
            self._verified.discard(before)
            self._uses[before.path] -= 1
            self.discard(before.path)


class SharedVector(RowVector):
    """One vector of `SharedVectors`."""

    def __init__(self, vectors: SharedVectors, name: str, dtype: npt.DTypeLike, fill: float) -> None:
        super().__init__(vectors.n_rows, dtype)
        self.fill = fill
        self._vectors, self._name = vectors, name

    @property
    def in_memory(self) -> bool:
        """Always false."""
        return False

    def close(self) -> None:
        """Do nothing: the files are removed with their folder."""

    def _read(self, start: int, stop: int, out: AnyArray | None) -> AnyArray:
        return self._vectors.read(self._name, start, stop)

    def _write(self, start: int, array: AnyArray) -> None:
        self._vectors.write(self._name, start, array)


@contextlib.contextmanager
def _open(path: str, mode: str = "rb") -> Iterator[Any]:
    try:
        with open_to_read(path) if mode == "rb" else open(path, mode) as file:
            yield file
    except OocSvmError:
        raise
    except OSError as error:
        raise StorageError(
            f"{path}: row vectors of the run cannot be read or written: {error.strerror}; check that all "
            "machines of the cluster see this folder and that it has free space, and run again"
        ) from error


def _entries(content: bytes, count: int, dtype: np.dtype[Any], path: str) -> AnyArray:
    if len(content) != count * dtype.itemsize:
        raise _damage(path)
    return np.frombuffer(content, dtype)


def _damage(path: str) -> DamageError:
    return DamageError(
        f"{path}: row vectors of the run are not as they were written; check the file system, and run again "
        "from the last checkpoint"
    )

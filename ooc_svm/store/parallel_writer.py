"""A store whose elements are written by many processes: the part of each process, and the common part.

The rows are outlined first: labels, qids and row pointers in their order, from which the blocks follow. Then
runs of element chunks are written by any process, in any order, once or several times: a chunk is written in
another folder, forced to the disk and renamed, and always has the same bytes. So a process that was given up
cannot harm a store, not even one that is complete by then: its folder has another name.
"""

from __future__ import annotations

import os
import secrets
import shutil
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from ooc_svm.data.blocks import Float64Array, Int32Array, Int64Array, Values
from ooc_svm.store.array_writer import AdoptedArray, GrowingArray
from ooc_svm.store.builder import StoreBuilder
from ooc_svm.store.manifest import StoreMetadata, ValueType
from ooc_svm.store.options import StoreOptions
from ooc_svm.store.row_columns import NO_TAIL, Tail
from ooc_svm.store.sinks import sink_of
from ooc_svm.store.zarr_files import StoreFiles
from ooc_svm.system.address import AnyPath
from ooc_svm.system.files import sync_folder


@dataclass(frozen=True)
class ChunkRun:
    """Consecutive chunks of the elements of a store, for one process to write.

    ``folder`` is the store as it is being built, ``chunk`` the number of elements in a chunk, ``first`` the
    number of the first chunk. ``start`` and ``stop`` are elements in the whole data; ``tails`` are those of
    them that are the tails of blocks.
    """

    folder: AnyPath
    value_type: ValueType
    chunk: int
    first: int
    start: int
    stop: int
    tails: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class WrittenRun:
    """What the store needs of a `ChunkRun`: sizes and checksums of both arrays' chunks, and the tails."""

    sizes: tuple[array[int], ...]
    checksums: tuple[array[int], ...]
    tails: tuple[Tail, ...]


class RunWriter:
    """Writes the chunks of a run; a context manager.

    ``scratch`` is a folder on the same file system as the store. The element that is appended first has the
    number ``position``; those before the run are left out.
    """

    def __init__(self, run: ChunkRun, scratch: AnyPath, position: int) -> None:
        self._run = run
        self._position = position
        self._tails = [_empty_tail(end - start, run.value_type) for start, end in run.tails]
        self._resources = ExitStack()
        self._folder = run.folder
        if isinstance(run.folder, Path) and isinstance(scratch, Path):  # an object appears whole by itself
            self._folder = scratch / f"run-{secrets.token_hex(8)}"
            self._folder.mkdir(mode=0o700)
            self._resources.callback(shutil.rmtree, self._folder, ignore_errors=True)
        self._files = self._resources.enter_context(StoreFiles(sink_of(self._folder), 1))
        self._ids, self._data = (
            GrowingArray(self._files, name, dtype, run.chunk, fill_value=fill, first=run.first)
            for name, dtype, fill in _element_arrays(run.value_type)
        )

    @property
    def missing(self) -> int:
        """Elements still to be appended."""
        return self._run.stop - self._position

    def append(self, indices: Int32Array, values: Values | None) -> None:
        """Append the next elements; values are None where all are 1."""
        first, last = self._position, self._position + len(indices)
        self._position = last
        inside = slice(max(self._run.start - first, 0), max(min(last, self._run.stop) - first, 0))
        self._ids.extend(indices[inside])
        if values is None:
            self._data.extend_ones(len(indices[inside]))
        else:
            self._data.extend(values[inside])
        for (start, end), (tail, tail_values) in zip(self._run.tails, self._tails, strict=True):
            begin, stop = max(start, first), min(end, last)
            if begin < stop:
                tail[begin - start : stop - start] = indices[begin - first : stop - first]
                if tail_values is not None:
                    some = 1 if values is None else values[begin - first : stop - first]
                    tail_values[begin - start : stop - start] = some

    def finish(self) -> WrittenRun:
        """Force all chunks to the disk and move them to their place."""
        arrays = (self._ids, self._data)
        for each in arrays:
            each.finish()
        self._files.wait()
        if isinstance(self._run.folder, Path):
            for each in arrays:
                self._move(each, self._run.folder / each.name / "c")
        sizes, checksums = zip(*((each.sizes, each.checksums) for each in arrays), strict=True)
        return WrittenRun(sizes, checksums, tuple(self._tails))

    def _move(self, array: GrowingArray, place: Path) -> None:
        for number in range(self._run.first, self._run.first + len(array.sizes)):
            os.replace(self._folder / array.name / "c" / str(number), place / str(number))
        sync_folder(place)

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self._resources.close()


class ParallelWriter:
    """Writes all of a store but its elements, and commits it when others have written those.

    Parameters and errors are those of `ooc_svm.store.writer.StoreWriter`. `outline` is called for all rows,
    then `begin`, then `adopt` for all runs, then `commit`.
    """

    def __init__(self, path: str | os.PathLike[str], **options: Any) -> None:
        self._builder = StoreBuilder(path, StoreOptions(**options))
        self.chunk_elements = self._builder.options.chunk_elements
        self._value_type: ValueType = "ones"
        self._arrays: list[AdoptedArray] = []
        self._ends: list[tuple[int, int]] = []  # of the tails of all blocks
        self._n_stored = 0  # tails
        self._waiting: dict[int, Tail] = {}

    @property
    def folder(self) -> AnyPath:
        """The store as it is being built."""
        return self._builder.folder

    def outline(self, lengths: Int64Array, labels: Float64Array, qids: Int64Array | None) -> None:
        """Append rows of these numbers of elements (int64) without their elements."""
        if not len(labels):
            return
        self._builder.facts.check_columns(len(labels), labels, qids, None)
        indptr = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=indptr[1:])
        with self._builder.writing():
            self._ends += self._builder.append(indptr, labels, qids, None)

    def begin(self, value_type: ValueType) -> None:
        """Set the type of the values; all rows are outlined."""
        self._value_type = value_type
        builder, length = self._builder, self._builder.facts.n_nonzeros
        with builder.writing():
            for name, dtype, fill in _element_arrays(value_type):
                self._arrays.append(
                    AdoptedArray(builder.files, name, dtype, self.chunk_elements, length, fill_value=fill)
                )
                if length and isinstance(self.folder, Path):
                    (self.folder / name / "c").mkdir(parents=True)
            if value_type != "ones":
                builder.tails.begin_values()
            self._store_known_tails()

    def run(self, first: int, stop: int) -> ChunkRun:
        """The chunks ``first <= i < stop``, for a `RunWriter`."""
        chunk = self.chunk_elements
        begin, end = first * chunk, min(stop * chunk, self._builder.facts.n_nonzeros)
        since = bisect_left(self._ends, begin, key=itemgetter(0))
        until = bisect_left(self._ends, end, key=itemgetter(0))
        tails = tuple(tail for tail in self._ends[since:until] if tail[1] > tail[0])
        return ChunkRun(self.folder, self._value_type, chunk, first, begin, end, tails)

    def adopt(self, run: ChunkRun, written: WrittenRun) -> None:
        """Record a run that was written; each run once."""
        for each, sizes, checksums in zip(self._arrays, written.sizes, written.checksums, strict=True):
            each.adopt(run.first, sizes, checksums)
        self._waiting |= {start: tail for (start, _), tail in zip(run.tails, written.tails, strict=True)}
        with self._builder.writing():
            self._store_known_tails()

    def _store_known_tails(self) -> None:
        """Store the tails, in their order, as far as they are known or empty."""
        while self._n_stored < len(self._ends):
            start, end = self._ends[self._n_stored]
            if end > start and start not in self._waiting:
                return
            self._builder.tails.append(*self._waiting.pop(start, NO_TAIL))
            self._n_stored += 1

    def commit(
        self,
        *,
        n_features: int | None = None,
        provenance: dict[str, Any] | None = None,
        label_names: Sequence[str] | None = None,
    ) -> StoreMetadata:
        """See `ooc_svm.store.writer.StoreWriter.commit`."""
        with self._builder.writing():
            return self._builder.commit(self._arrays, n_features or 0, provenance, label_names)

    def close(self) -> None:
        """Release everything; what was not committed is removed."""
        self._builder.close()

    def __enter__(self) -> ParallelWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _empty_tail(length: int, value_type: ValueType) -> Tail:
    values = None if value_type == "ones" else np.empty(length, value_type)
    return np.empty(length, np.int32), values


def _element_arrays(value_type: ValueType) -> list[tuple[str, str, float]]:
    """Name, type and filling of the arrays of elements."""
    data = ("uint8", 0.0) if value_type == "ones" else (value_type, np.nan)
    return [("X/indices", "int32", -1), ("X/data", *data)]

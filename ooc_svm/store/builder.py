"""What the writers of a store have in common: one entry a row, blocks, manifest, commit."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import google_crc32c
import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int64Array, Values
from ooc_svm.errors import InputError, UsageError
from ooc_svm.store.array_writer import AdoptedArray, GrowingArray, WriteBehind
from ooc_svm.store.blocks import BlockCutter
from ooc_svm.store.fsync import BackgroundSync
from ooc_svm.store.label_summary import LabelCollector, LabelSummary, RunCounter
from ooc_svm.store.layout import (
    BLOCK_CHUNKS,
    BLOCK_ROWS,
    CHUNK_ELEMENTS,
    CHUNK_ROWS,
    DICT_ATTRIBUTES,
    LARGEST_FEATURE_COUNT,
    MANIFEST,
    METADATA,
    ROOT_ATTRIBUTES,
    csr_attributes,
    dataframe_attributes,
)
from ooc_svm.store.manifest import CHECKSUMS, HEADER, SIZES, ListedArray, Manifest, ValueType, root_mark
from ooc_svm.store.open import is_ours
from ooc_svm.store.zarr_files import StoreFiles
from ooc_svm.system.files import storage_errors
from ooc_svm.system.folders import Building


@dataclass(frozen=True)
class WrittenStore:
    """What was committed.

    Attributes
    ----------
    path : Path
    id : str
        The `Store.id` it will have.
    n_rows, n_features, n_nonzeros : int
    value_type : {"ones", "float32", "float64"}
    labels : LabelSummary
    label_runs : int
        Runs of equal labels in row order.
    n_bytes : int
        Bytes of all chunk files.
    """

    path: Path
    id: str
    n_rows: int
    n_features: int
    n_nonzeros: int
    value_type: ValueType
    labels: LabelSummary
    label_runs: int
    n_bytes: int


class OutlineWriter(ABC):
    """Writes everything of a store but the elements of its rows, which is for those who derive from it.

    Parameters and errors are those of `ooc_svm.store.writer.StoreWriter`.

    Attributes
    ----------
    path : Path
        Where the store will be.
    n_rows, n_nonzeros : int
        Of the rows appended so far.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        dtype: str = "float32",
        index_base: int = 1,
        n_features: int | None = None,
        overwrite: bool = False,
        threads: int = 1,
        provenance: dict[str, Any] | None = None,
        chunk_elements: int = CHUNK_ELEMENTS,
        chunk_rows: int = CHUNK_ROWS,
        block_chunks: int = BLOCK_CHUNKS,
        block_rows: int = BLOCK_ROWS,
    ) -> None:
        if dtype not in ("float32", "float64"):
            raise UsageError(f"values are stored as float32 or float64, not as {dtype!r:.80}")
        if index_base not in (0, 1):
            raise UsageError(f"features are counted from 0 or from 1, not from {index_base!r:.80}")
        if n_features is not None and not 0 <= n_features <= LARGEST_FEATURE_COUNT:
            raise UsageError(
                f"the number of features must be from 0 to {LARGEST_FEATURE_COUNT}, not {n_features}"
            )
        if min(threads, chunk_elements, chunk_rows, block_chunks, block_rows) < 1:
            raise UsageError("threads, chunks and blocks must be at least 1")
        self._dtype = np.dtype(dtype)
        self._index_base = index_base
        self._n_features = n_features
        self._provenance = dict(provenance or {})
        self._chunk_elements, self._chunk_rows = chunk_elements, chunk_rows
        self._block_chunks, self._block_rows = block_chunks, block_rows
        self._cutter = BlockCutter(chunk_elements, block_chunks, block_rows)
        self._label_collector, self._label_runs = LabelCollector(chunk_rows), RunCounter()
        self._largest_id = -1
        self.n_rows = 0
        self.n_nonzeros = 0
        self._qid_groups = 0
        self._last_qid = -1
        self._committed = False
        self._resources: ExitStack | None = None
        with ExitStack() as stack:
            self._building = stack.enter_context(Building(Path(path), is_ours, overwrite=overwrite))
            self.path = self._building.target
            self._advice = "free some space or check the disk, then run again"
            self._files = StoreFiles(self._building.folder, stack.enter_context(BackgroundSync()))
            self._behind = stack.enter_context(WriteBehind(threads))
            with storage_errors("writing", self.path, self._advice):
                self._create()
            self._resources = stack.pop_all()

    def _create(self) -> None:
        names = ("", "X", "obs", "var", "uns", MANIFEST)
        self._groups = {name: self._files.create_group(name) for name in names}
        self._indptr = self._column("X/indptr", np.int64, -1)
        self._indptr.extend(np.zeros(1, np.int64))
        self._names = self._column("obs/_index", np.int64, -1)
        self._labels = self._column("obs/label", np.float64, np.nan)
        self._qids: GrowingArray | None = None
        self._weights: GrowingArray | None = None
        self._tail_pointers = self._column(f"{MANIFEST}/tail_pointers", np.int64, -1)
        self._tail_pointers.extend(np.zeros(1, np.int64))
        self._tail_indices = self._column(f"{MANIFEST}/tail_indices", np.int32, -1)
        self._tail_values: GrowingArray | None = None

    def _column(self, name: str, dtype: npt.DTypeLike, fill_value: float) -> GrowingArray:
        return GrowingArray(self._files, self._behind, name, dtype, self._chunk_rows, fill_value=fill_value)

    # -- appending ---------------------------------------------------------------------------------

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Name the store in what goes wrong, and close: what was not written once must never be committed."""
        try:
            with storage_errors("writing", self.path, self._advice):
                yield
        except BaseException:
            self.close()
            raise

    def _require_open(self) -> None:
        if self._resources is None or self._committed:
            raise UsageError(f"the writer of {self.path} is closed")

    def _check_columns(
        self, n_rows: int, labels: Float64Array, qids: Int64Array | None, weights: Float64Array | None
    ) -> None:
        columns = {"label": labels, "qid": qids, "weight": weights}
        present = (True, qids is not None, weights is not None)
        if self.n_rows and present != (True, self._qids is not None, self._weights is not None):
            raise InputError(
                f"from row {self.n_rows} on, qids or weights begin or end; "
                f"{self.path} takes them for all rows or for none"
            )
        for name, column in columns.items():
            if column is None:
                continue
            if len(column) != n_rows:
                raise InputError(f"{len(column)} {name}s for {n_rows} rows to write to {self.path}")
            wrong = ~np.isfinite(column) if name == "label" else ~((column >= 0) & (column < np.inf))
            if wrong.any():
                row = int(wrong.argmax())
                raise InputError(
                    f"row {self.n_rows + row} has the {name} {column[row]}; {self.path} is not written"
                )

    def _append_columns(
        self, indptr: Int64Array, labels: Float64Array, qids: Int64Array | None, weights: Float64Array | None
    ) -> list[tuple[int, int]]:
        """Take everything of the next rows but their elements; the tails that `BlockCutter.add` gives."""
        count = len(labels)
        pointers = indptr + self.n_nonzeros
        tails = self._cutter.add(pointers[:-1], int(pointers[-1]))
        self._indptr.extend(pointers[1:])
        self._names.extend(np.arange(self.n_rows, self.n_rows + count))
        self._labels.extend(labels)
        self._label_collector.add(labels)
        self._label_runs.add(labels)
        if qids is not None:
            if self._qids is None:
                self._qids = self._column("obs/qid", np.int64, -1)
            self._qids.extend(qids)
            self._qid_groups += int(np.count_nonzero(qids[1:] != qids[:-1])) + bool(qids[0] != self._last_qid)
            self._last_qid = int(qids[-1])
        if weights is not None:
            if self._weights is None:
                self._weights = self._column("obs/weight", np.float64, np.nan)
            self._weights.extend(weights)
        self.n_rows += count
        self.n_nonzeros += int(indptr[-1])
        return tails

    def _begin_tail_values(self) -> None:
        """Not all values are 1: keep those of the tails from here on, those before being ones."""
        self._tail_values = self._column(f"{MANIFEST}/tail_values", self._dtype, np.nan)
        self._tail_values.extend_ones(self._tail_indices.total)

    def _store_tail(self, indices: npt.NDArray[np.int32], values: Values | None) -> None:
        self._tail_indices.extend(indices)
        if self._tail_values is not None:
            self._tail_values.extend(np.ones(len(indices), self._dtype) if values is None else values)
        self._tail_pointers.extend(np.array([self._tail_indices.total], np.int64))

    # -- committing --------------------------------------------------------------------------------

    def commit(
        self, *, n_features: int | None = None, provenance: dict[str, Any] | None = None
    ) -> WrittenStore:
        """Write what is left, the manifest last, and put the store in its place.

        Parameters
        ----------
        n_features : int, optional
            Least number of columns, for a writer that was not given their number.
        provenance : dict, optional
            Added to what the writer was given.

        Raises
        ------
        InputError
            There are no rows.
        StorageError
            Writing failed; nothing is left behind.
        """
        self._require_open()
        self._provenance |= provenance or {}
        if not self.n_rows:
            raise InputError(f"there are no rows to write to {self.path}; check the input")
        with self._writing():
            columns = max(n_features or 0, self._largest_id + 1)
            manifest = self._finish(columns if self._n_features is None else self._n_features)
            self._files.settle()
            self._write_manifest(manifest)
            self._building.publish()
        self._committed = True
        return WrittenStore(
            path=self.path,
            id=manifest.content_id(),
            n_rows=self.n_rows,
            n_features=manifest.n_features,
            n_nonzeros=self.n_nonzeros,
            value_type=manifest.value_type,
            labels=manifest.labels,
            label_runs=manifest.label_runs,
            n_bytes=int(manifest.sizes.sum()),
        )

    @abstractmethod
    def _finish_elements(self) -> Sequence[GrowingArray | AdoptedArray]:
        """The arrays ``X/indices`` and ``X/data``, complete but for their ends."""

    def _finish(self, n_features: int) -> Manifest:
        """Complete all arrays of the data; list them."""
        value_type: ValueType = "ones"
        if self._tail_values is not None:
            value_type = "float32" if self._dtype == np.float32 else "float64"
        features = self._column("var/_index", np.int32, -1)
        for start in range(0, n_features, self._chunk_rows):
            stop = min(start + self._chunk_rows, n_features)
            features.extend(np.arange(start, stop, dtype=np.int64) + self._index_base)
        block_rows, block_nonzeros = self._cutter.finish()
        self._store_tail(np.empty(0, np.int32), None)
        tables = []
        for name, table in (("block_rows", block_rows), ("block_nonzeros", block_nonzeros)):
            tables.append(self._column(f"{MANIFEST}/{name}", np.int64, -1))
            tables[-1].extend(table)
        columns = {"label": self._labels, "qid": self._qids, "weight": self._weights}
        optional = (self._qids, self._weights, self._tail_values)
        arrays: list[GrowingArray | AdoptedArray] = [*self._finish_elements()]
        arrays += [self._indptr, self._names, self._labels, features]
        arrays += [*tables, self._tail_pointers, self._tail_indices]
        arrays += [array for array in optional if array]
        listed = tuple(array.finish() for array in arrays)
        self._behind.wait()
        self._groups["X"].update_attributes(csr_attributes(self.n_rows, n_features))
        self._groups["obs"].update_attributes(
            dataframe_attributes([name for name, column in columns.items() if column])
        )
        self._groups["var"].update_attributes(dataframe_attributes([]))
        for name in ("uns", MANIFEST):
            self._groups[name].update_attributes(DICT_ATTRIBUTES)
        sizes = np.concatenate([np.array(array.sizes, np.int64) for array in arrays])
        checksums = np.concatenate([np.array(array.checksums, np.uint32) for array in arrays])
        return self._manifest(n_features, value_type, listed, sizes, checksums)

    def _manifest(
        self,
        n_features: int,
        value_type: ValueType,
        listed: tuple[ListedArray, ...],
        sizes: Int64Array,
        checksums: npt.NDArray[np.uint32],
    ) -> Manifest:
        metadata = self._files.metadata()
        del metadata[METADATA]
        return Manifest(
            n_rows=self.n_rows,
            n_features=n_features,
            n_nonzeros=self.n_nonzeros,
            value_type=value_type,
            index_base=self._index_base,
            has_qid=self._qids is not None,
            has_weight=self._weights is not None,
            labels=self._label_collector.summary(),
            label_runs=self._label_runs.n_runs,
            qid_groups=self._qid_groups,
            block_chunks=self._block_chunks,
            block_rows=self._block_rows,
            arrays=listed,
            metadata={key: google_crc32c.value(content) for key, content in metadata.items()},
            provenance=self._provenance,
            sizes=sizes,
            checksums=checksums,
        )

    def _write_manifest(self, manifest: Manifest) -> None:
        header = manifest.header()
        for name, table in (
            (SIZES, manifest.sizes),
            (CHECKSUMS, manifest.checksums),
            (HEADER, np.frombuffer(header, np.uint8)),
        ):
            chunk = max(len(table), 1)
            array = GrowingArray(self._files, self._behind, name, table.dtype, chunk, fill_value=0)
            array.extend(table)
            array.finish()
        self._behind.wait()
        self._files.settle()
        self._groups[""].update_attributes(ROOT_ATTRIBUTES | root_mark(header))
        self._files.seal()

    # -- leaving -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of everything; what was not committed is removed."""
        if self._resources is not None:
            resources, self._resources = self._resources, None
            resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

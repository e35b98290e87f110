"""What the writers of a store have in common: its options, all but its elements, the manifest, the commit."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int64Array
from ooc_svm.errors import InputError, UsageError
from ooc_svm.store import layout
from ooc_svm.store.array_writer import AdoptedArray, GrowingArray
from ooc_svm.store.blocks import BlockCutter
from ooc_svm.store.layout import LARGEST_FEATURE_COUNT, MANIFEST
from ooc_svm.store.manifest import CHECKSUMS, HEADER, SIZES, Manifest, StoreMetadata, ValueType, root_mark
from ooc_svm.store.open import is_ours
from ooc_svm.store.row_columns import NO_TAIL, RowColumns, TailArrays
from ooc_svm.store.zarr_files import StoreFiles
from ooc_svm.system.files import storage_errors
from ooc_svm.system.folders import Building

_ADVICE = "free some space or check the disk, then run again"


@dataclass(frozen=True)
class StoreOptions:
    """How a store is written; raises UsageError for a value that is not possible.

    Where every value is 1 no values are kept, whatever `dtype`. `index_base` is kept as information: column
    ids here count from 0. `n_features` is by default one more than the largest column id. `overwrite` allows
    to replace a store of ours. `threads` is the number of chunks compressed at once. `provenance` is anything
    that JSON can hold: sources, options, versions. For `block_chunks` and `block_rows` see
    `ooc_svm.store.blocks.BlockCutter`.
    """

    dtype: str = "float32"
    index_base: int = 1
    n_features: int | None = None
    overwrite: bool = False
    threads: int = 1
    provenance: dict[str, Any] = field(default_factory=dict)
    chunk_elements: int = layout.CHUNK_ELEMENTS
    chunk_rows: int = layout.CHUNK_ROWS
    block_chunks: int = layout.BLOCK_CHUNKS
    block_rows: int = layout.BLOCK_ROWS

    def __post_init__(self) -> None:
        if self.dtype not in ("float32", "float64"):
            raise UsageError(f"values are stored as float32 or float64, not as {self.dtype!r:.80}")
        if self.index_base not in (0, 1):
            raise UsageError(f"features are counted from 0 or from 1, not from {self.index_base!r:.80}")
        if self.n_features is not None and not 0 <= self.n_features <= LARGEST_FEATURE_COUNT:
            raise UsageError(
                f"the number of features must be from 0 to {LARGEST_FEATURE_COUNT}, not {self.n_features}"
            )
        sizes = (self.chunk_elements, self.chunk_rows, self.block_chunks, self.block_rows)
        if min(self.threads, *sizes) < 1:
            raise UsageError("threads, chunks and blocks must be at least 1")


class StoreBuilder:
    """A store that is being written, but for the elements of its rows: those are up to its owner.

    Raises UsageError where the path exists and may not be replaced, and StorageError where another run is
    writing there, or the folder cannot be written.
    """

    def __init__(self, path: str | os.PathLike[str], options: StoreOptions) -> None:
        self.options = options
        self._cutter = BlockCutter(options.chunk_elements, options.block_chunks, options.block_rows)
        with ExitStack() as stack:
            self._building = stack.enter_context(Building(Path(path), is_ours, overwrite=options.overwrite))
            self.path, self.folder = self._building.target, self._building.folder
            self.files = stack.enter_context(StoreFiles(self.folder, options.threads))
            with storage_errors("writing", self.path, _ADVICE):
                names = ("", "X", "obs", "var", "uns", MANIFEST)
                self._groups = {name: self.files.create_group(name) for name in names}
                self.rows = RowColumns(self.files, options.chunk_rows, self.path)
                self.tails = TailArrays(self.files, options.chunk_rows, options.dtype)
            self._resources = stack.pop_all()
        self._is_open = True

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Name the store in what goes wrong, and close: what was not written must never be committed."""
        if not self._is_open:
            raise UsageError(f"the writer of {self.path} is closed")
        try:
            with storage_errors("writing", self.path, _ADVICE):
                yield
        except BaseException:
            self.close()
            raise

    def append(
        self, indptr: Int64Array, labels: Float64Array, qids: Int64Array | None, weights: Float64Array | None
    ) -> list[tuple[int, int]]:
        """Append all of the next rows but their elements; return the tails that `BlockCutter.add` gives."""
        first = self.rows.n_nonzeros
        self.rows.append(indptr, labels, qids, weights)
        return self._cutter.add(indptr[:-1] + first, self.rows.n_nonzeros)

    def commit(
        self,
        elements: Sequence[GrowingArray | AdoptedArray],
        n_features: int,
        provenance: dict[str, Any] | None,
    ) -> StoreMetadata:
        """Write what is left, the manifest last, and put the store in its place.

        `elements` are ``X/indices`` and ``X/data``, complete but for their ends; `n_features` is for options
        that have none; `provenance` is added to that of the options. Raises InputError where there are no
        rows, and StorageError where writing failed; nothing is left behind.
        """
        if not self.rows.n_rows:
            raise InputError(f"there are no rows to write to {self.path}; check the input")
        if self.options.n_features is not None:
            n_features = self.options.n_features
        arrays = self._finish_arrays(elements, n_features)
        manifest = self._manifest(arrays, n_features, self.options.provenance | (provenance or {}))
        self.files.settle()
        self._write_manifest(manifest)
        self._building.publish()
        self._is_open = False
        return manifest.store_metadata(self.path)

    def _finish_arrays(
        self, elements: Sequence[GrowingArray | AdoptedArray], n_features: int
    ) -> list[GrowingArray | AdoptedArray]:
        """All arrays of the data in the order of the manifest, each lacking no more than `finish`."""
        chunk, rows, tails = self.options.chunk_rows, self.rows, self.tails
        features = GrowingArray(self.files, "var/_index", np.int32, chunk, fill_value=-1)
        for start in range(0, n_features, chunk):
            stop = min(start + chunk, n_features)
            features.extend(np.arange(start, stop, dtype=np.int64) + self.options.index_base)
        tables = []
        for name, table in zip(("block_rows", "block_nonzeros"), self._cutter.finish(), strict=True):
            tables.append(GrowingArray(self.files, f"{MANIFEST}/{name}", np.int64, chunk, fill_value=-1))
            tables[-1].extend(table)
        tails.append(*NO_TAIL)
        optional = [array for array in (rows.qids, rows.weights, tails.values) if array]
        return [*elements, *rows.arrays, features, *tables, tails.pointers, tails.indices, *optional]

    def _manifest(
        self, arrays: Sequence[GrowingArray | AdoptedArray], n_features: int, provenance: dict[str, Any]
    ) -> Manifest:
        """Write the ends of all arrays and list them."""
        listed = tuple(array.finish() for array in arrays)
        self.files.wait()
        rows, options = self.rows, self.options
        self._groups["X"].update_attributes(layout.csr_attributes(rows.n_rows, n_features))
        self._groups["obs"].update_attributes(layout.dataframe_attributes(rows.names))
        self._groups["var"].update_attributes(layout.dataframe_attributes([]))
        for name in ("uns", MANIFEST):
            self._groups[name].update_attributes(layout.DICT_ATTRIBUTES)
        metadata = self.files.metadata()
        del metadata[layout.METADATA]
        value_type: ValueType = "float32" if options.dtype == "float32" else "float64"
        return Manifest(
            n_rows=rows.n_rows,
            n_features=n_features,
            n_nonzeros=rows.n_nonzeros,
            value_type="ones" if self.tails.values is None else value_type,
            index_base=options.index_base,
            has_qid=rows.qids is not None,
            has_weight=rows.weights is not None,
            labels=rows.labels.summary(),
            label_runs=rows.label_runs.n_runs,
            qid_groups=rows.qid_groups.n_runs,
            block_chunks=options.block_chunks,
            block_rows=options.block_rows,
            arrays=listed,
            metadata={key: google_crc32c.value(content) for key, content in metadata.items()},
            provenance=provenance,
            sizes=np.concatenate([np.array(array.sizes, np.int64) for array in arrays]),
            checksums=np.concatenate([np.array(array.checksums, np.uint32) for array in arrays]),
        )

    def _write_manifest(self, manifest: Manifest) -> None:
        header = manifest.header()
        tables: tuple[npt.NDArray[Any], ...] = (
            manifest.sizes,
            manifest.checksums,
            np.frombuffer(header, np.uint8),
        )
        for name, table in zip((SIZES, CHECKSUMS, HEADER), tables, strict=True):
            array = GrowingArray(self.files, name, table.dtype, max(len(table), 1), fill_value=0)
            array.extend(table)
            array.finish()
        self.files.settle()
        self._groups[""].update_attributes(layout.ROOT_ATTRIBUTES | root_mark(header))
        self.files.seal()

    def close(self) -> None:
        """Release everything; what was not committed is removed."""
        self._is_open = False
        self._resources.close()

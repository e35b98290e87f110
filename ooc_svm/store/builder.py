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
from ooc_svm.store.array_writer import AdoptedArray, GrowingArray
from ooc_svm.store.blocks import BlockCutter
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
from ooc_svm.store.manifest import CHECKSUMS, HEADER, SIZES, Manifest, StoreMetadata, ValueType, root_mark
from ooc_svm.store.open import is_ours
from ooc_svm.store.row_columns import NO_TAIL, RowColumns, TailArrays
from ooc_svm.store.zarr_files import StoreFiles
from ooc_svm.system.files import storage_errors
from ooc_svm.system.folders import Building

_ADVICE = "free some space or check the disk, then run again"


@dataclass(frozen=True)
class StoreOptions:
    """How a store is written.

    Attributes
    ----------
    dtype : {"float32", "float64"}
        Type of the values. Where every value is 1 no values are kept at all.
    index_base : {0, 1}
        What the source counts its features from (kept as information; column ids here count from 0).
    n_features : int, optional
        Number of columns; by default one more than the largest column id.
    overwrite : bool
        Whether a store of ours is replaced.
    threads : int
        Chunks compressed at once.
    provenance : dict
        Anything that JSON can hold: sources, options, versions.
    chunk_elements, chunk_rows : int
        Elements in a chunk of the data, rows in a chunk of the columns.
    block_chunks, block_rows : int
        See `ooc_svm.store.blocks.BlockCutter`.

    Raises
    ------
    UsageError
        A value that is not possible.
    """

    dtype: str = "float32"
    index_base: int = 1
    n_features: int | None = None
    overwrite: bool = False
    threads: int = 1
    provenance: dict[str, Any] = field(default_factory=dict)
    chunk_elements: int = CHUNK_ELEMENTS
    chunk_rows: int = CHUNK_ROWS
    block_chunks: int = BLOCK_CHUNKS
    block_rows: int = BLOCK_ROWS

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

    Parameters
    ----------
    path : path-like
        Where the store will be; its parent folder must exist.
    options : StoreOptions

    Attributes
    ----------
    path : Path
    folder : Path
        The store as it is being built.
    options : StoreOptions
    files : StoreFiles
    rows : RowColumns
    tails : TailArrays

    Raises
    ------
    UsageError
        The path exists and may not be replaced.
    StorageError
        Another run is writing there, or the folder cannot be written.
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

        Parameters
        ----------
        elements : sequence of arrays
            ``X/indices`` and ``X/data``, complete but for their ends.
        n_features : int
            Number of columns where the options have none.
        provenance : dict, optional
            Added to that of the options.

        Raises
        ------
        InputError
            There are no rows.
        StorageError
            Writing failed; nothing is left behind.
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
        self._groups["X"].update_attributes(csr_attributes(rows.n_rows, n_features))
        self._groups["obs"].update_attributes(dataframe_attributes(rows.names))
        self._groups["var"].update_attributes(dataframe_attributes([]))
        for name in ("uns", MANIFEST):
            self._groups[name].update_attributes(DICT_ATTRIBUTES)
        metadata = self.files.metadata()
        del metadata[METADATA]
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
        tables: list[tuple[str, npt.NDArray[Any]]] = [
            (SIZES, manifest.sizes),
            (CHECKSUMS, manifest.checksums),
            (HEADER, np.frombuffer(header, np.uint8)),
        ]
        for name, table in tables:
            array = GrowingArray(self.files, name, table.dtype, max(len(table), 1), fill_value=0)
            array.extend(table)
            array.finish()
        self.files.settle()
        self._groups[""].update_attributes(ROOT_ATTRIBUTES | root_mark(header))
        self.files.seal()

    def close(self) -> None:
        """Release everything; what was not committed is removed."""
        self._is_open = False
        self._resources.close()

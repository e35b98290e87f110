"""What the writers of a store have in common: all but its elements, the manifest, the commit."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int64Array
from ooc_svm.store import layout
from ooc_svm.store.array_writer import AdoptedArray, GrowingArray
from ooc_svm.store.feature_names import given_names
from ooc_svm.store.layout import LABEL, MANIFEST
from ooc_svm.store.manifest import CHECKSUMS, HEADER, SIZES, Manifest, StoreMetadata, root_mark
from ooc_svm.store.names_writer import write_label_names, write_names
from ooc_svm.store.options import StoreOptions
from ooc_svm.store.row_columns import NO_TAIL, RowColumns, TailArrays
from ooc_svm.store.row_facts import RowFacts
from ooc_svm.store.unpublished import UnpublishedStore


class StoreBuilder(UnpublishedStore):
    """A store that is being written, but for the elements of its rows: those are up to its owner.

    Raises what `UnpublishedStore` does.
    """

    def __init__(self, path: str | os.PathLike[str], options: StoreOptions) -> None:
        self.options, names = options, given_names(options.feature_names)
        super().__init__(path, overwrite=options.overwrite, threads=options.threads, durable=options.durable)
        self.facts = RowFacts(self.path, options, names)
        named = self.facts.named
        with self.writing():
            groups: tuple[str, ...] = ("", "X", "obs", "var", "uns", MANIFEST)
            groups += (LABEL,) if named else ()
            self._groups = {name: self.files.create_group(name) for name in groups}
            self._columns = RowColumns(self.files, options.chunk_rows, named, options.label_sets)
            self.tails = TailArrays(self.files, options.chunk_rows, options.dtype)

    def append(
        self, indptr: Int64Array, labels: Float64Array, qids: Int64Array | None, weights: Float64Array | None
    ) -> list[tuple[int, int]]:
        """Append all of the next rows but their elements; return the tails that `BlockCutter.add` gives."""
        facts = self.facts
        self._columns.append((facts.n_rows, facts.n_nonzeros), indptr, labels, qids, weights)
        return facts.add(indptr, labels, qids, weights)

    def commit(
        self,
        elements: Sequence[GrowingArray | AdoptedArray],
        n_features: int,
        provenance: dict[str, Any] | None,
        label_names: Sequence[str] | None = None,
    ) -> StoreMetadata:
        """Write what is left, the manifest last, and put the store in its place.

        `elements` are ``X/indices`` and ``X/data``, complete but for their ends; `n_features` is the least
        number of columns, for options that have none; `provenance` is added to that of the options;
        `label_names` has the names of labels that are its places. Raises InputError where there are no rows,
        and StorageError where writing failed; nothing is left behind.
        """
        has_values = self.tails.values is not None
        known = self.facts.of_all(n_features, provenance, label_names, has_values=has_values)
        arrays = self._finish_arrays(elements, known["n_features"])
        if label_names is not None:
            arrays.append(write_label_names(self.files, label_names, self.options.chunk_rows))
        manifest = self._manifest(arrays, known)
        self.files.settle()
        self._write_manifest(manifest)
        self.publish()
        return manifest.store_metadata(self.path, None if label_names is None else tuple(sorted(label_names)))

    def _finish_arrays(
        self, elements: Sequence[GrowingArray | AdoptedArray], n_features: int
    ) -> list[GrowingArray | AdoptedArray]:
        """All arrays of the data in the order of the manifest, each lacking no more than `finish`."""
        chunk, rows, tails = self.options.chunk_rows, self._columns, self.tails
        features = self._features(n_features)
        tables = []
        for name, table in zip(("block_rows", "block_nonzeros"), self.facts.block_tables(), strict=True):
            tables.append(GrowingArray(self.files, f"{MANIFEST}/{name}", np.int64, chunk, fill_value=-1))
            tables[-1].extend(table)
        tails.append(*NO_TAIL)
        optional = [array for array in (rows.qids, rows.weights, tails.values) if array]
        return [*elements, *rows.arrays, features, *tables, tails.pointers, tails.indices, *optional]

    def _features(self, n_features: int) -> GrowingArray:
        """The names of the features, or their numbers in the source."""
        names, chunk = self.facts.feature_names, self.options.chunk_rows
        if names is not None:
            return write_names(self.files, names, chunk)
        features = GrowingArray(self.files, "var/_index", np.int32, chunk, fill_value=-1)
        for start in range(0, n_features, chunk):
            stop = min(start + chunk, n_features)
            features.extend(np.arange(start, stop, dtype=np.int64) + self.options.index_base)
        return features

    def _manifest(self, arrays: Sequence[GrowingArray | AdoptedArray], known: Mapping[str, Any]) -> Manifest:
        """Write the ends of all arrays and list them; ``known``: facts of all rows."""
        listed = tuple(array.finish() for array in arrays)
        self.files.wait()
        facts, options = self.facts, self.options
        self._groups["X"].update_attributes(layout.csr_attributes(facts.n_rows, known["n_features"]))
        self._groups["obs"].update_attributes(layout.dataframe_attributes(self._columns.names))
        self._groups["var"].update_attributes(layout.dataframe_attributes([]))
        for name in ("uns", MANIFEST):
            self._groups[name].update_attributes(layout.DICT_ATTRIBUTES)
        if facts.named:
            self._groups[LABEL].update_attributes(layout.CATEGORICAL_ATTRIBUTES)
        metadata = self.files.metadata()
        del metadata[layout.METADATA]
        return Manifest(
            **known,
            has_qid=facts.has_qid,
            has_weight=facts.has_weight,
            block_chunks=options.block_chunks,
            block_rows=options.block_rows,
            arrays=listed,
            metadata={key: google_crc32c.value(content) for key, content in metadata.items()},
            sizes=np.concatenate([np.array(array.sizes, np.int64) for array in arrays]),
            checksums=np.concatenate([np.array(array.checksums, np.uint32) for array in arrays]),
            has_names=facts.feature_names is not None,
            named_labels=facts.named,
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
        self._groups[""].update_attributes(
            layout.ROOT_ATTRIBUTES | root_mark(manifest.format_version, header)
        )

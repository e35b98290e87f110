"""What is known of the rows of a store while they come in: they are checked, and counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ooc_svm.data.blocks import Float64Array, Int32Array, Int64Array, LabelledRows, RowBlock, Values
from ooc_svm.data.feature_names import FeatureNames
from ooc_svm.data.limits import LARGEST_FEATURE_COUNT
from ooc_svm.errors import InputError, UsageError, parameter
from ooc_svm.store import layout
from ooc_svm.store.blocks import BlockCutter
from ooc_svm.store.feature_names import check_count
from ooc_svm.store.label_summary import LabelSummary, RunCounter, label_collector, label_ranks
from ooc_svm.store.options import StoreOptions
from ooc_svm.store.validate import NOT_FINITE, RuleError, check_rows
from ooc_svm.system.address import AnyPath


class RowFacts:
    """Facts of all rows so far; ``path`` names the store in messages.

    ``check`` first, then ``add``: rows that are refused leave no trace. Labels that are names are places
    among the names, which may be those of sets.
    """

    def __init__(self, path: AnyPath, options: StoreOptions, feature_names: FeatureNames | None) -> None:
        self._path, self._options, self.feature_names = path, options, feature_names
        self.n_rows = self.n_nonzeros = 0
        self.has_qid = self.has_weight = False
        self._label_runs, self._qid_groups = RunCounter(), RunCounter()
        self._labels = label_collector(options.chunk_rows, options.label_sets)
        self._cutter = BlockCutter(options.chunk_elements, options.block_chunks, options.block_rows)
        self._largest_id = -1
        self._n_columns = 0  # Of the widest matrix that was added
        self._frame_names: FeatureNames | None = None  # Of the first data frame

    @property
    def named(self) -> bool:
        """Whether labels are places among names."""
        return self._options.named_labels or self._options.label_sets

    @property
    def _given_features(self) -> int | None:
        """Number of columns, where it was given, or names that it follows from."""
        given, names = self._options.n_features, self.feature_names
        return len(names) if given is None and names is not None else given

    @property
    def block_starts(self) -> Sequence[int]:
        """First rows of the blocks known so far."""
        return self._cutter.starts

    def check(self, labelled: LabelledRows, weights: Float64Array | None) -> Values | None:
        """The values of the next rows in the type of the store, None where all are 1.

        InputError for rows that break the rules of a block, values beyond the type, and what `check_columns`
        refuses.
        """
        values = self._checked_values(labelled.rows)
        self.check_columns(labelled.rows.n_rows, labelled.labels, labelled.qids, weights)
        return values

    def _checked_values(self, rows: RowBlock) -> Values | None:
        values, dtype = rows.values, np.dtype(self._options.dtype)
        if values is not None:
            with np.errstate(over="ignore"):  # what overflows is found by the check
                values = values.astype(dtype, copy=False)
        given = self._given_features
        limit = LARGEST_FEATURE_COUNT if given is None else given
        try:
            check_rows(rows.indptr, rows.indices, values, limit)
        except RuleError as offence:
            if offence.reason == NOT_FINITE and rows.values is not None:
                self._refuse_overflow(offence, rows.indices, rows.values)
            raise InputError(
                f"row {self.n_rows + offence.row} cannot be written to {self._path}: {offence} "
                f"(n_features is {limit}, values are {dtype})"
            ) from None
        return None if values is None or bool((values == 1).all()) else values

    def _refuse_overflow(self, offence: RuleError, indices: Int32Array, values: Values) -> None:
        """Refuse a value that is finite in its own type, and not in that of the store."""
        value, column = values[offence.position], indices[offence.position]
        if np.isfinite(value):
            raise InputError(
                f"row {self.n_rows + offence.row}, column {column}, from 0, has the value {float(value)!r}, "
                f"beyond the range of {self._options.dtype}; write {self._path} with "
                f"{parameter('dtype', 'float64')}"
            ) from None

    def check_features(self, n_columns: int, names: FeatureNames | None) -> None:
        """Raise InputError where the next rows are of a matrix that has other columns than the store."""
        limit = self._given_features
        if limit is not None and n_columns > limit:
            raise InputError(
                f"{parameter('matrix')} has {n_columns} columns, and {self._path} has {limit}; give no more"
            )
        if names is None or names == self._frame_names:
            return
        if self._frame_names is not None:
            raise InputError(
                f"the columns of {parameter('matrix')} have other names, or another order, than those of the "
                "frame before; give the same columns"
            )
        if self.n_rows and limit is None:
            raise InputError(
                f"the columns of {parameter('matrix')} have names, and those of the rows before have none; "
                f"give the names to the writer ({parameter('feature_names')})"
            )

    def add_features(self, n_columns: int, names: FeatureNames | None) -> None:
        """Add the columns of a matrix, and their names where none were known."""
        self._n_columns = max(self._n_columns, n_columns)
        self._frame_names = self._frame_names or names
        if self.feature_names is None and self._options.n_features is None:
            self.feature_names = names

    def check_columns(
        self, n_rows: int, labels: Float64Array, qids: Int64Array | None, weights: Float64Array | None
    ) -> None:
        """Raise InputError where the columns of the next rows cannot be appended."""
        if self.n_rows and (qids is not None, weights is not None) != (self.has_qid, self.has_weight):
            raise InputError(
                f"from row {self.n_rows} on, qids or weights begin or end; "
                f"{self._path} takes them for all rows or for none"
            )
        for name, column in {"label": labels, "qid": qids, "weight": weights}.items():
            if column is None:
                continue
            if len(column) != n_rows:
                raise InputError(f"{len(column)} {name}s for {n_rows} rows to write to {self._path}")
            wrong = ~np.isfinite(column) if name == "label" else ~((column >= 0) & (column < np.inf))
            if wrong.any():
                row = int(wrong.argmax())
                raise InputError(
                    f"row {self.n_rows + row} has the {name} {column[row]}; {self._path} is not written"
                )

    def add(
        self, indptr: Int64Array, labels: Float64Array, qids: Int64Array | None, weights: Float64Array | None
    ) -> list[tuple[int, int]]:
        """Add all of the next rows but their elements; return the tails that `BlockCutter.add` gives."""
        first = self.n_nonzeros
        self._labels.add(labels)
        self._label_runs.add(labels)
        if qids is not None:
            self._qid_groups.add(qids)
        self.has_qid, self.has_weight = qids is not None, weights is not None
        self.n_rows += len(labels)
        self.n_nonzeros += int(indptr[-1])
        return self._cutter.add(indptr[:-1] + first, self.n_nonzeros)

    def add_ids(self, indices: Int32Array) -> None:
        """Add the column ids of rows."""
        if len(indices):
            self._largest_id = max(self._largest_id, int(indices.max()))

    def block_tables(self) -> tuple[Int64Array, Int64Array]:
        """First rows and first elements of all blocks, each closed by the end of the data."""
        return self._cutter.finish()

    def of_all(
        self,
        n_features: int,
        provenance: Mapping[str, Any] | None,
        label_names: Sequence[str] | None,
        *,
        has_values: bool,
    ) -> dict[str, Any]:
        """What the manifest says of all rows, and `StoreMetadata` too; no rows are added after it.

        ``n_features``: the least number of columns, where it is not given; ``provenance`` is added to that of
        the options; ``label_names``: what the labels are places of, if they are; ``has_values``: whether a
        value is not 1. InputError if there are no rows.
        """
        if not self.n_rows:
            raise InputError(f"there are no rows to write to {self._path}; check the input")
        options = self._options
        return {
            "n_rows": self.n_rows,
            "n_features": self._n_features(n_features),
            "n_nonzeros": self.n_nonzeros,
            "value_type": options.dtype if has_values else "ones",
            "index_base": options.index_base,
            "labels": self._label_summary(label_names),
            "label_runs": self._label_runs.n_runs,
            "qid_groups": self._qid_groups.n_runs,
            "label_sets": options.label_sets,
            "provenance": options.provenance | dict(provenance or {}),
            "format_version": layout.FORMAT_VERSION if options.label_sets else layout.PLAIN_VERSION,
        }

    def _n_features(self, least: int) -> int:
        given = self._given_features
        n_features = max(least, self._largest_id + 1, self._n_columns) if given is None else given
        check_count(self.feature_names, n_features, "the store")
        return n_features

    def _label_summary(self, names: Sequence[str] | None) -> LabelSummary:
        """The labels as readers see them: those that are places of names, as places of the sorted names."""
        labels = self._labels.summary()
        if names is None and not self.named:
            return labels
        if names is None or labels.counts is None or not set(labels.counts) <= set(range(len(set(names)))):
            raise UsageError(
                f"{parameter('label_names')} are for {parameter('named_labels', True)}: different names, one "
                "for each of the labels, which count from 0"
            )
        return labels.ranked(label_ranks(names))

"""Matrices in memory as conversions read them: without explicit zeros, and counted."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ooc_svm.conversion.options import ConvertOptions
from ooc_svm.conversion.plan import plan_conversion
from ooc_svm.conversion.spill import WeightedRows
from ooc_svm.data.annotated import is_annotated, own_numbers, read_annotated, refuse_two_kinds
from ooc_svm.data.blocks import LabelledRows, RowBlock, Values
from ooc_svm.data.feature_names import FeatureNames
from ooc_svm.data.matrix import MatrixSource
from ooc_svm.data.zeros import cast_values, without_zeros
from ooc_svm.errors import InputError, UsageError, parameter
from ooc_svm.text.inputs import InputMetadata
from ooc_svm.text.label_names import LabelNames
from ooc_svm.text.reader import TextCounts


class LabelledMatrix(NamedTuple):
    """A matrix with its columns of one number a row: arguments of `ooc_svm.convert_matrix`."""

    matrix: Any
    labels: Any
    qid: Any
    weight: Any
    feature_names: FeatureNames | None = None

    def of_anndata(self, label: str | None, layer: str | None) -> LabelledMatrix:
        """The matrix and the columns of an AnnData object; any other matrix as it is."""
        if not is_annotated(self.matrix):
            for name, given in (("label", label), ("layer", layer)):
                if given is not None:
                    raise UsageError(f"{parameter(name)} is for an AnnData object; leave it out")
            return self._replace(feature_names=FeatureNames.of_frame(self.matrix))
        refuse_two_kinds(self.labels, label)
        is_needed = self.labels is None
        gaps = "error" if is_needed else "keep"
        own = read_annotated(self.matrix, label, layer, labelled=is_needed, unlabelled=gaps, may_skip=False)
        labels = own.labels if self.labels is None else self.labels
        if self.labels is None and own.label_names is not None:
            labels = np.array(own.label_names, object)[own.labels.astype(np.int64)]
        qid = own_numbers(self.matrix, "qid") if self.qid is None else self.qid
        weight = own_numbers(self.matrix, "weight") if self.weight is None else self.weight
        return LabelledMatrix(own.matrix, labels, qid, weight, own.feature_names)


class MatrixRows:
    """Rows of a matrix; an `ooc_svm.conversion.formats.InputRows`."""

    def __init__(
        self, data: LabelledMatrix, options: ConvertOptions, scratch: Path, progress: Callable[[int], None]
    ) -> None:
        self.plan = plan_conversion(options)
        self.reject_file: Path | None = None
        self._source = source = MatrixSource(
            data.matrix,
            data.labels,
            data.weight,
            qids=data.qid,
            names=("matrix", "weight"),
            may_skip=False,
        )
        if source.label_sets is not None:
            raise InputError(
                f"{parameter('labels')} are an indicator matrix, which no store is made of; train on the "
                "matrix, or convert text with sets of labels"
            )
        self.label_names = None if source.label_names is None else _stored_names(source.label_names)
        options.check_width("the matrix", source.n_features)
        self._progress, self._options = progress, options
        self.counts = TextCounts(n_features=source.n_features)
        self.total_bytes: int | None = sum(span.nbytes for span in source.blocks)
        self.inputs = [InputMetadata("matrix", self.total_bytes, None, None)]

    def blocks(self) -> Generator[WeightedRows, None, None]:
        """The rows in order; the bytes of all blocks yielded so far are reported as progress."""
        done = 0
        source = self._source
        for index, span in enumerate(source.blocks):
            block = source.read_block(index)
            rows = block if block.values is None else self._converted(block, block.values)
            own = span.start, span.stop
            self.counts.rows += rows.n_rows
            self.counts.nonzeros += len(rows.indices)
            self.counts.explicit_zeros += len(block.indices) - len(rows.indices)
            qids = source.read_qids(*own) if source.has_qid else None
            weights = source.read_weights(*own) if source.has_weight else None
            yield LabelledRows(rows, source.read_labels(*own), qids), weights
            done += span.nbytes
            self._progress(done)

    def _converted(self, block: RowBlock, values: Values) -> RowBlock:
        """Rows as the store will have them; InputError for a value beyond the range of its type."""
        rows = without_zeros(block.start, block.indptr, block.indices, values, self._options.dtype)
        assert rows.values is not None
        finite = np.isfinite(rows.values)
        if finite.all():
            return rows
        dtype, output = self._options.dtype, self._options.output
        position = int(np.argmin(np.isfinite(cast_values(values, dtype))))
        row = block.start + int(np.searchsorted(block.indptr, position, side="right")) - 1
        raise InputError(
            f"row {row}, column {block.indices[position]}, from 0, has the value "
            f"{float(values[position])!r}, beyond the range of {dtype}; write {output} with "
            f"{parameter('dtype', 'float64')}"
        )


def _stored_names(names: tuple[str, ...]) -> LabelNames:
    """Names of labels, in their order, if a store takes them; InputError otherwise."""
    known = LabelNames()
    known.renumber(np.arange(len(names), dtype=np.float64), names, "the matrix")
    return known

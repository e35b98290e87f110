"""Parquet as conversions read it: lists of indices and of values, a label, perhaps qid and weight.

Row groups are read one after another, in batches of rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ooc_svm.conversion.options import ConvertOptions
from ooc_svm.conversion.plan import plan_conversion
from ooc_svm.conversion.spill import WeightedRows
from ooc_svm.data.blocks import Float64Array, Int64Array, LabelledRows, RowBlock
from ooc_svm.data.limits import LARGEST_FEATURE_COUNT
from ooc_svm.data.matrix import exact_numbers
from ooc_svm.data.zeros import cast_values, without_zeros
from ooc_svm.errors import DamageError, InputError, MemoryBudgetError, StorageError, parameter
from ooc_svm.store.validate import RuleError, check_rows, sort_rows
from ooc_svm.system.files import storage_errors
from ooc_svm.system.memory import format_size
from ooc_svm.text.inputs import InputMetadata
from ooc_svm.text.reader import TextCounts

_COLUMNS = ("indices", "values", "label")
_OPTIONAL = ("qid", "weight")
_LARGEST_QID = 2**63 - 1
_BATCH_ROWS = 1 << 12
# Arrow takes some 60 bytes for each entry of the two lists, twice what their rows take.
_ARROW_COPIES = 2


def _arrow() -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise InputError(
            "the package pyarrow to read Parquet is not installed; install it: pip install 'ooc-svm[parquet]'"
        ) from None
    return pyarrow


@contextmanager
def _damage(location: str) -> Iterator[None]:
    import pyarrow

    try:
        yield
    except (InputError, DamageError, StorageError, MemoryBudgetError):
        raise
    except pyarrow.ArrowMemoryError as error:
        raise MemoryBudgetError(f"{location}: memory ran out; write smaller row groups") from error
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise StorageError(f"{location} cannot be read: {error.strerror}; check the disk") from error
        raise DamageError(f"{location} cannot be read ({str(error)[:160]}); write it again") from error


class ParquetRows:
    """Rows of Parquet files; an `ooc_svm.conversion.formats.InputRows`."""

    label_names = None

    def __init__(
        self,
        paths: Sequence[str | os.PathLike[str]],
        options: ConvertOptions,
        scratch: Path,
        progress: Callable[[int], None],
    ) -> None:
        self._arrow = _arrow()
        self.plan = plan_conversion(options)
        self.reject_file: Path | None = None
        self._paths, self._options, self._progress = [os.fspath(path) for path in paths], options, progress
        self.counts = TextCounts()
        self.inputs: list[InputMetadata] = []
        sizes = []
        for path in self._paths:
            with storage_errors("reading", Path(path), "check the path"):
                status = os.stat(path)
            sizes.append(status.st_size)
            self.inputs.append(InputMetadata(path, status.st_size, status.st_mtime_ns, None))
        self.total_bytes: int | None = sum(sizes)
        self._optional = self._checked_columns()

    def _checked_columns(self) -> tuple[str, ...]:
        """The optional columns that all files have; raises InputError where one that is needed is missing."""
        found: set[tuple[str, ...]] = set()
        for path in self._paths:
            with _damage(path):
                names = self._arrow.parquet.read_schema(path).names
            for name in _COLUMNS:
                if name not in names:
                    raise InputError(
                        f"{path} has no column {name!r}: rows are a list of 'indices', a list of 'values' "
                        "and a 'label', with 'qid' and 'weight' where there are any"
                    )
            found.add(tuple(name for name in _OPTIONAL if name in names))
        if len(found) > 1:
            raise InputError("some of the files have a column 'qid' or 'weight', and others have not")
        return found.pop()

    def blocks(self) -> Generator[WeightedRows, None, None]:
        """The rows in order."""
        done = 0
        for path, metadata in zip(self._paths, self.inputs, strict=True):
            with (
                _damage(path),
                self._arrow.parquet.ParquetFile(path, page_checksum_verification=True) as file,
            ):
                self._check_groups(path, file.metadata)
                first_row, columns = self.counts.rows, [*_COLUMNS, *self._optional]
                for batch in file.iter_batches(self._batch_rows(file.metadata), columns=columns):
                    yield self._block(path, first_row, batch)
                    share = (self.counts.rows - first_row) / max(file.metadata.num_rows, 1)
                    self._progress(done + int(share * (metadata.size or 0)))
            done += metadata.size or 0

    def _check_groups(self, path: str, metadata: Any) -> None:
        """A row group is decoded a column at a time: the largest must fit the memory."""
        largest = max(
            (metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)), default=0
        )
        most = 16 * self.plan.chunk_bytes
        if largest > most:
            raise MemoryBudgetError(
                f"{path} has row groups of {format_size(largest)}, and {format_size(most)} are there for "
                f"one: allow more ({parameter('memory')}), or write smaller row groups"
            )

    def _batch_rows(self, metadata: Any) -> int:
        """Rows that are decoded at once: by the mean length of the lists, in the group where it is largest.

        Encoded values say nothing of it: a column of one number takes next to no bytes.
        """
        groups = map(metadata.row_group, range(metadata.num_row_groups))
        longest = max(
            (
                group.column(i).num_values / group.num_rows
                for group in groups
                if group.num_rows
                for i in range(group.num_columns)
            ),
            default=1.0,
        )
        return max(1, min(_BATCH_ROWS, int(self.plan.block_elements / (_ARROW_COPIES * longest))))

    def _block(self, path: str, first_row: int, batch: Any) -> WeightedRows:
        start = self.counts.rows
        place = f"{path}: row {{row}}, from 0,".format
        indptr, ids = self._lists(batch.column("indices"), path, "indices")
        bounds, values = self._lists(batch.column("values"), path, "values")
        if not np.array_equal(indptr, bounds):
            row = start - first_row + int(np.argmax(np.diff(indptr) != np.diff(bounds)))
            raise InputError(f"{place(row=row)} has lists of indices and values that are not of one length")
        if ids.dtype.kind not in "iu" or values.dtype.kind not in "iuf":
            raise InputError(f"{path} has indices of {ids.dtype} and values of {values.dtype}")
        rows = self._rows(indptr, ids, values, lambda row: place(row=start - first_row + row))
        label = exact_numbers(
            f"{path}: label", self._numbers(batch.column("label"), path, "label"), start - first_row
        )
        extra = {name: self._numbers(batch.column(name), path, name) for name in self._optional}
        qids = None
        if (given := extra.get("qid")) is not None:
            if (beyond := given > _LARGEST_QID).any():
                row = int(np.argmax(beyond))
                raise InputError(
                    f"{place(row=start - first_row + row)} has the qid {given[row]}, and {_LARGEST_QID} is "
                    "the largest that is possible; number the groups again"
                )
            qids = given.astype(np.int64)
        weights = extra["weight"].astype(np.float64) if "weight" in extra else None
        return LabelledRows(rows, label, qids), weights

    def _lists(self, column: Any, path: str, name: str) -> tuple[Int64Array, Any]:
        """The bounds of the lists of a column, and the entries of all."""
        types = self._arrow.types
        if not (types.is_list(column.type) or types.is_large_list(column.type)):
            raise InputError(f"{path} has the column {name!r} of {column.type}; lists of numbers are needed")
        if column.null_count or column.flatten().null_count:
            raise InputError(
                f"{path} has empty places in the column {name!r}; fill them or leave the rows out"
            )
        bounds = np.asarray(column.offsets, np.int64)
        return bounds - bounds[0], np.asarray(column.flatten())

    def _numbers(self, column: Any, path: str, name: str) -> Float64Array:
        found = np.asarray(column)
        if column.null_count:
            raise InputError(f"{path} has empty places in the column {name!r}; give each row a number")
        kinds, numbers = ("iu", "whole numbers") if name == "qid" else ("biuf", "numbers")
        if found.dtype.kind not in kinds:
            raise InputError(f"{path} has the column {name!r} of {column.type}; {numbers} are needed")
        return found

    def _rows(self, indptr: Int64Array, ids: Any, values: Any, place: Callable[[int], str]) -> RowBlock:
        base, features = self._options.index_base, self._options.features

        def refuse(position: int, what: str) -> InputError:
            row = int(np.searchsorted(indptr, position, side="right")) - 1
            return InputError(f"{place(row)} {what}")

        largest = (LARGEST_FEATURE_COUNT if features is None else features) - 1
        if len(ids) and (int(ids.min()) < base or int(ids.max()) - base > largest):
            low = int(ids.min()) < base
            position = int(np.argmin(ids) if low else np.argmax(ids))
            hint = (
                f"; if 0 is the first column here, use {parameter('index_base', 0)}" if low and base else ""
            )
            limit = f"{base} to {largest + base}"
            raise refuse(position, f"has the index {ids[position]}, and {limit} are possible{hint}")
        self.counts.n_features = max(self.counts.n_features, int(ids.max()) - base + 1 if len(ids) else 0)
        converted = cast_values(values, self._options.dtype)
        finite = np.isfinite(converted)
        if not finite.all():
            position = int(np.argmin(finite))
            wide = (
                f", beyond float32: use {parameter('dtype', 'float64')}"
                if np.isfinite(values[position])
                else ""
            )
            raise refuse(position, f"has the value {values[position]}, which is not finite{wide}")
        if not converted.flags.writeable:  # Arrow's own, and rows are sorted in place
            converted = converted.copy()
        columns = ids.astype(np.int64) - base
        block = without_zeros(self.counts.rows, indptr, columns, converted, self._options.dtype)
        sort_rows(block.indptr, block.indices, block.values)
        try:
            check_rows(block.indptr, block.indices, block.values, LARGEST_FEATURE_COUNT)
        except RuleError as offence:
            raise InputError(f"{place(offence.row)} has an index twice") from None
        self.counts.rows += block.n_rows
        self.counts.nonzeros += len(block.indices)
        self.counts.explicit_zeros += len(values) - len(block.indices)
        return block

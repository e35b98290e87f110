"""Files of SciPy's sparse matrices (``save_npz``), with labels from another file, as conversions read them.

The arrays in the archive are streams: each is read once, in order, a block at a time.
"""

from __future__ import annotations

import lzma
import os
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from ooc_svm.conversion.anndata_rows import Layout, MatrixBlocks, checked_shape
from ooc_svm.conversion.options import ConvertOptions
from ooc_svm.conversion.plan import plan_conversion
from ooc_svm.conversion.spill import WeightedRows
from ooc_svm.data.blocks import Float64Array, LabelledRows
from ooc_svm.data.limits import INEXACT
from ooc_svm.data.matrix import exact_numbers
from ooc_svm.errors import DamageError, InputError, UsageError, parameter
from ooc_svm.system.files import IrregularFileError, exists, open_to_read, storage_errors
from ooc_svm.text.diagnostics import show
from ooc_svm.text.inputs import InputMetadata
from ooc_svm.text.reader import TextCounts

_ADVICE = "save the file again"
_MOST_DIMENSIONS = 2
_NUMPY_MAGIC = b"\x93NUMPY"
_ROWS_AT_ONCE = 1 << 16
# Limit of a line with a label, in bytes: a file without lines is not read whole.
_LONGEST_LINE = 1 << 12

# Files of the root of a Zarr store; it has one of them at least.
_ZARR = frozenset(("zarr.json", ".zgroup", ".zmetadata"))

# What damaged archives and headers of arrays raise; RuntimeError where a member is encrypted.
_UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    tokenize.TokenError,
    ValueError,
    KeyError,
    EOFError,
    RuntimeError,
)


@contextmanager
def _damage(location: str) -> Iterator[None]:
    try:
        with storage_errors("reading", Path(location), "check the disk and permissions"):
            yield
    except _UNREADABLE as error:
        if isinstance(error, InputError | UsageError):
            raise
        raise DamageError(f"{location} cannot be read ({str(error)[:160]}); {_ADVICE}") from error


class _Stream:
    """An array of one dimension in an ``.npy`` file, read forwards; the last element can be read again."""

    step = 1

    def __init__(self, file: Any, location: str) -> None:
        self._file, self._location = file, location
        with _damage(location):
            version = np.lib.format.read_magic(file)
            read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            self.shape, _, dtype = read[version](file)
        # Text of no length is what a damaged header makes of a type.
        if dtype.kind not in "biufSU" or not dtype.itemsize or len(self.shape) > _MOST_DIMENSIONS:
            raise InputError(
                f"{location} has entries of type {dtype} and the shape {self.shape}; save numbers or text"
            )
        self._stored = dtype
        self.dtype = dtype.newbyteorder("=")
        self.length = self.shape[0] if self.shape else 1
        self._place, self._last = 0, np.empty(0, self.dtype)

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Elements ``start <= i < stop``; `start` is where the last call ended, or one before."""
        kept = self._last[len(self._last) - (self._place - start) :]
        with _damage(self._location):
            size = (stop - self._place) * self._stored.itemsize
            content = self._file.read(size)
            if len(content) != size:
                raise EOFError(f"it ends before element {stop}")
        found = np.concatenate([kept, np.frombuffer(content, self._stored).astype(self.dtype)])
        self._place, self._last = stop, found[-1:]
        return found


class _Archive:
    """The part of `ooc_svm.store.trees.Tree` that rows are read by."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self.location, self._stack = os.fspath(path), stack
        with _damage(self.location):
            self._zip = stack.enter_context(zipfile.ZipFile(path))

    def array(self, name: str) -> _Stream:
        """A new stream over an array, by the last part of its name."""
        member = f"{name.rpartition('/')[2]}.npy"
        if member not in (members := self._zip.namelist()):
            if not _ZARR.isdisjoint(members):
                raise InputError(
                    f"{self.location} is a Zarr store in an archive; unpack it and give the folder"
                )
            raise InputError(
                f"{self.location} has no {member}, so it holds no sparse matrix of SciPy; save one by "
                "scipy.sparse.save_npz"
            )
        location = f"{self.location} ({member})"
        with _damage(location):
            stream = _Stream(self._stack.enter_context(self._zip.open(member)), location)
        if len(stream.shape) > 1:
            raise InputError(f"{location} has the shape {stream.shape}, not of one dimension; {_ADVICE}")
        return stream

    def layout(self) -> Layout:
        """Form and shape of the matrix."""
        form = self.array("format")
        given = form.read(0, 1)[0]
        name = bytes(given).decode(errors="replace") if form.dtype.kind == "S" else str(given)
        if name not in ("csr", "csc"):
            raise InputError(f"{self.location} has a matrix of the form {name!r}; save it as CSR or CSC")
        shape = self.array("shape").read(0, 2).tolist()
        return Layout("the matrix", f"{name}_matrix", *checked_shape("the matrix", self.location, shape))


class NpzRows:
    """Rows of a file of SciPy; an `ooc_svm.conversion.formats.InputRows`."""

    label_names = None

    def __init__(
        self, path: Path, options: ConvertOptions, scratch: Path, progress: Callable[[int], None]
    ) -> None:
        self.reject_file: Path | None = None
        self._scratch, self._progress = scratch, progress
        self._resources = ExitStack()
        archive = _Archive(path, self._resources)
        layout = archive.layout()
        if options.labels_file is None:
            raise UsageError(f"{path} has no labels: name a file that has them ({parameter('labels_file')})")
        self._by_columns = layout.encoding == "csc_matrix"
        columns = np.dtype(np.float64).itemsize * layout.n_rows
        self.plan = plan_conversion(options, sorts=self._by_columns, columns=columns)
        self._blocks = MatrixBlocks(archive, layout, options.dtype, self.plan.block_elements)
        options.check_width(f"{path}", layout.n_features)
        self._labels = _read_labels(options.labels_file, layout.n_rows, f"{path}")
        self.counts = TextCounts(n_features=layout.n_features)
        self.total_bytes: int | None = self._blocks.total_bytes
        status = os.stat(path)
        self.inputs = [InputMetadata(os.fspath(path), status.st_size, status.st_mtime_ns, None)]

    def blocks(self) -> Generator[WeightedRows, None, None]:
        """The rows in order."""
        with self._resources:
            if self._by_columns:
                self._scratch.mkdir(exist_ok=True)
            for rows in self._blocks.blocks(self._scratch, self.plan.reorder_bytes // 2):
                self.counts.rows += rows.n_rows
                self.counts.nonzeros += len(rows.indices)
                self.counts.explicit_zeros = self._blocks.zeros
                self._progress(self._blocks.bytes_done)
                yield LabelledRows(rows, self._labels[rows.start : rows.stop]), None


def _read_labels(path: str | os.PathLike[str], n_rows: int, matrix: str) -> Float64Array:
    """The labels in a file: an array of NumPy (``.npy``), or a number on each line."""
    location = os.fspath(path)
    if not exists(path):
        raise InputError(f"{location}: there is no such file of labels; check the path")
    try:
        with storage_errors("reading", Path(path), "check the path"), open_to_read(path) as file:
            is_array = file.read(len(_NUMPY_MAGIC)) == _NUMPY_MAGIC
            file.seek(0)
            read = _array_labels if is_array else _text_labels
            labels = np.empty(n_rows)  # allocated first: all that is read is put in its place at once
            n_labels = read(file, location, labels)
    except IrregularFileError as error:
        raise InputError(f"{location} is {error.kind}; give a file with a label for each row") from None
    if n_labels != n_rows:
        raise InputError(f"{location} has {n_labels} labels for the {n_rows} rows of {matrix}")
    for start in range(0, n_rows, _ROWS_AT_ONCE):
        finite = np.isfinite(labels[start : start + _ROWS_AT_ONCE])
        if not finite.all():
            row = start + int(np.argmin(finite))
            raise InputError(
                f"{location} has the label {labels[row]} for row {row}, from 0; labels are finite"
            )
    return labels


def _array_labels(file: BinaryIO, location: str, labels: Float64Array) -> int:
    """Read an array of NumPy, if it has the right length; returns its length."""
    stream = _Stream(file, location)
    if len(stream.shape) != 1 or stream.dtype.kind not in "biuf":
        raise InputError(f"{location} has no numbers in one dimension; give one number a row")
    if stream.length == len(labels):
        for start in range(0, stream.length, _ROWS_AT_ONCE):
            stop = min(start + _ROWS_AT_ONCE, stream.length)
            labels[start:stop] = exact_numbers(location, stream.read(start, stop), start)
    return stream.length


def _text_labels(file: BinaryIO, location: str, labels: Float64Array) -> int:
    """Read a number from each line, as far as there are rows; returns the number of lines."""
    line = 0
    for line, text in enumerate(iter(partial(file.readline, _LONGEST_LINE), b""), 1):
        try:
            if b"_" in text or len(text) == _LONGEST_LINE:
                raise ValueError
            number = float(text)
        except ValueError:
            found = show(text.removesuffix(b"\n"))
            raise InputError(f"{location}:{line}: {found} is no number; give one on each line") from None
        if abs(number) >= INEXACT and text.strip().lstrip(b"+-").isdigit():
            raise InputError(
                f"{location}:{line}: {text.strip().decode()} is {INEXACT:,} or more, beyond which float64 "
                "does not tell integers apart; give smaller ones"
            )
        if line <= len(labels):
            labels[line - 1] = number
    return line

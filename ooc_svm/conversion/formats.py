"""The formats that conversions read."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ooc_svm.catalog import load
from ooc_svm.conversion.options import ConvertOptions
from ooc_svm.conversion.plan import ConversionPlan
from ooc_svm.errors import StorageError
from ooc_svm.store.storage import is_hdf5
from ooc_svm.system.address import address_of, located
from ooc_svm.system.files import read_head
from ooc_svm.system.recognition import PARQUET, ZIP
from ooc_svm.text.ahead import over_inputs
from ooc_svm.text.inputs import InputMetadata, check_text, display_name
from ooc_svm.text.reader import TextCounts

if TYPE_CHECKING:
    from ooc_svm.conversion.spill import WeightedRows


class InputRows(Protocol):
    """The rows of an input in any format.

    Attributes
    ----------
    plan : ConversionPlan
    total_bytes : int or None
        Size of the input; None if it is not known before the end.
    counts : TextCounts
        Of the blocks yielded so far.
    inputs : sequence of InputMetadata
        The inputs read so far.
    label_names : sequence of str or None
        The names of the labels in the blocks yielded so far, where they are names.
    reject_file : Path or None
        File in the scratch folder that gets the rows that break a rule; None if they are errors.
    """

    plan: ConversionPlan
    total_bytes: int | None
    reject_file: Path | None

    @property
    def counts(self) -> TextCounts: ...

    @property
    def inputs(self) -> Sequence[InputMetadata]: ...

    @property
    def label_names(self) -> Sequence[str] | None: ...

    def blocks(self) -> Generator[WeightedRows, None, None]:
        """The rows without explicit zeros, in order, with their weights if there are any; once."""


_MAGIC = {ZIP: "npz", PARQUET: "parquet"}


def format_of(paths: Sequence[str | os.PathLike[str]]) -> str:
    """The name of the format of files, from the first bytes of the first one; text if it is none of ours."""
    return _MAGIC.get(_head(paths[0]), "svmlight")


def is_anndata(path: str | os.PathLike[str]) -> bool:
    """Whether a path is converted as AnnData: a folder, or a file of HDF5."""
    return os.path.isdir(path) or located(path).suffix in (".h5ad", ".zarr") or is_hdf5(path)


def refuse_other_formats(paths: Sequence[str]) -> None:
    """Raise InputError, which says how they are converted, for files that are no text."""
    for path, head in zip(paths, over_inputs(_head, paths), strict=True):
        check_text(head, display_name(path), path)


def _head(path: str | os.PathLike[str]) -> bytes:
    """The first bytes of a file; none where it cannot be read: what reads it names the reason."""
    if address_of(path) is None and not os.path.isfile(path):
        return b""
    try:
        return read_head(path, 4)
    except StorageError:  # of an object: a request that was repeated already
        raise
    except OSError:
        return b""


# What reads each format; the module is imported when such data are converted.
_READERS = {
    "svmlight": "ooc_svm.conversion.text:TextBlocks",
    "matrix": "ooc_svm.conversion.matrix:MatrixRows",
    "npz": "ooc_svm.conversion.npz:NpzRows",
    "parquet": "ooc_svm.conversion.parquet:ParquetRows",
}


def open_rows(
    format_name: str, data: Any, options: ConvertOptions, scratch: Path, progress: Callable[[int], None]
) -> InputRows:
    """Open data of a format; what is wrong with them and can be found at once is raised.

    ``scratch``: path of the scratch folder, which is not there yet.
    ``progress``: called with the number of bytes read so far.
    """
    rows: InputRows = load(_READERS[format_name])(data, options, scratch, progress)
    return rows

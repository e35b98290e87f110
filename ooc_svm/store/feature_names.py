"""Names of features: in a file of names, one a line, and in the index of ``var`` of a store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from ooc_svm.data.feature_names import FeatureNames
from ooc_svm.errors import DamageError, InputError, MemoryBudgetError, parameter, shown
from ooc_svm.parameters import is_path
from ooc_svm.store.encoded_chunks import EncodedChunks
from ooc_svm.store.metadata import ArrayInfo, chunk_versions
from ooc_svm.store.row_names import text_index
from ooc_svm.store.storage import Storage
from ooc_svm.system.address import located
from ooc_svm.system.files import IrregularFileError, open_size, open_to_read, storage_errors
from ooc_svm.system.memory import available_memory, size_available, size_needed
from ooc_svm.system.recognition import BYTE_ORDER_MARK

NAMES = "var/_index"
"""The names of the features in a store of ours."""

# Memory that reading a file of names takes, as a multiple of the file.
_READING = 4


def given_names(names: Any) -> FeatureNames | None:
    """The names that a user gave: a path of a file, or a sequence; None where there are none.

    InputError for names that are no text, blank or stand twice, or a file that is none; StorageError.
    """
    if names is None or isinstance(names, FeatureNames):
        return names
    if is_path(names):
        return read_names_file(names)
    found = FeatureNames.of(names)
    if (double := found.first_double()) is not None:
        raise InputError(
            f"the name {shown(found[double[0]])} stands twice in {parameter('feature_names')}, for the "
            f"features {double[0]} and {double[1]}, from 0; features need different names"
        )
    return found


def read_names_file(path: str | os.PathLike[str]) -> FeatureNames:
    """The names in a file of UTF-8 text, one a line; errors name the line."""
    place = os.fspath(path)
    try:
        with (
            storage_errors("reading", located(path), "check the disk and permissions"),
            open_to_read(path) as file,
        ):
            size = open_size(file)
            if _READING * size > available_memory():
                raise MemoryBudgetError(
                    f"{place}: its names take {size_needed(_READING * size)} of memory, this process may use "
                    f"{size_available(available_memory())}; use a machine with more memory"
                )
            content = file.read(size)
    except IrregularFileError as error:
        raise InputError(f"{place}: is {error.kind}; give a file with a name on each line") from None
    except OSError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise InputError(f"{place}: there is no such file of names; check the path") from None
        raise
    content = content.removeprefix(BYTE_ORDER_MARK).replace(b"\r\n", b"\n")
    if content and not content.endswith(b"\n"):
        content += b"\n"
    text = np.frombuffer(content, np.uint8)
    ends = np.flatnonzero(text == ord("\n"))
    try:
        names = FeatureNames.from_lengths(text[text != ord("\n")], np.diff(ends, prepend=-1) - 1)
    except ValueError:
        raise InputError(f"{place}: is no text in UTF-8; give a file with a name on each line") from None
    _check_file(names, place)
    return names


def _check_file(names: FeatureNames, place: str) -> None:
    if not len(names):
        raise InputError(f"{place}: is empty; give a file with a name on each line")
    blank = next((line for line, name in enumerate(names, 1) if not name.strip()), None)
    if blank is not None:
        raise InputError(f"{place}:{blank}: has no name; each line is the name of a feature")
    if (double := names.first_double()) is not None:
        raise InputError(
            f"{place}:{double[1] + 1}: the name {shown(names[double[0]])} stands on line {double[0] + 1} "
            "already; features need different names"
        )


def check_count(names: FeatureNames | None, n_features: int, what: str) -> None:
    """Raise InputError unless there is a name for each feature of some data."""
    if names is not None and len(names) != n_features:
        raise InputError(
            f"{parameter('feature_names')} has {len(names)} names, and {what} has {n_features} features; "
            "give one name to each"
        )


def read_names(array: EncodedChunks, info: ArrayInfo, n_features: int) -> FeatureNames:
    """The names in an array of strings; DamageError if it is damaged or has not one for each feature."""
    if info.length != n_features:
        raise DamageError(
            f"{array.location} has {info.length} names for {n_features} features; the store is damaged"
        )
    parts = list(_encoded_parts(array, info))
    lengths = np.concatenate([lengths for _, lengths in parts] or [np.empty(0, np.int64)])
    return FeatureNames.from_lengths(np.frombuffer(b"".join(text for text, _ in parts), np.uint8), lengths)


def _encoded_parts(array: EncodedChunks, info: ArrayInfo) -> Iterator[tuple[bytes, Any]]:
    for start in range(0, info.length, info.inner_chunk):
        names = array.read_strings(start, min(start + info.inner_chunk, info.length))
        try:
            encoded = [name.encode() for name in names]
        except UnicodeEncodeError:
            raise DamageError(
                f"{array.location} has a name that is no valid text; the store is damaged"
            ) from None
        yield b"".join(encoded), np.fromiter(map(len, encoded), np.int64, len(encoded))


def names_of_anndata(storage: Storage, n_features: int) -> FeatureNames | None:
    """The index of ``var`` of an AnnData store where it is text; None where there is none, or of numbers."""
    info = text_index(storage, "var")
    if info is None:
        return None
    return read_names(EncodedChunks(storage, info, chunk_versions(storage, info)), info, n_features)

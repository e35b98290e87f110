"""The names of rows and of features: the indices of ``obs`` and ``var`` of an AnnData store."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ooc_svm.errors import DamageError
from ooc_svm.store.encoded_chunks import EncodedChunks
from ooc_svm.store.metadata import ArrayInfo, chunk_versions, read_array, read_group
from ooc_svm.store.storage import FILL_HINT, Storage

_NULLABLE_TEXT = "nullable-string-array"


def index_array(attributes: Callable[[str], dict[str, Any] | None], frame: str) -> str | None:
    """The path of the array with the index of ``obs`` or ``var``; None where it is none that is read.

    `attributes` gives those of a group, None where there is no group. The index is an array, or a group with
    one, as AnnData writes pandas' own type of text.
    """
    index = (attributes(frame) or {}).get("_index")
    if not isinstance(index, str) or "/" in index or index in ("", ".", ".."):
        return None
    name = f"{frame}/{index}"
    group = attributes(name)
    if group is None:
        return name
    return f"{name}/values" if group.get("encoding-type") == _NULLABLE_TEXT else None


def text_index(storage: Storage, frame: str) -> ArrayInfo | None:
    """The array with the index of ``obs`` or ``var``; None where there is none, or of numbers."""
    name = index_array(partial(read_group, storage), frame)
    info = None if name is None else read_array(storage, name)
    return None if info is None or info.dtype.kind != "O" else info


def open_row_names(storage: Storage, n_rows: int) -> EncodedChunks | None:
    """The names as an array of strings; None where rows are only numbered."""
    info = text_index(storage, "obs")
    if info is None:
        return None
    if info.length != n_rows:
        raise DamageError(
            f"{storage.location}/{info.name} has {info.length} names for {n_rows} rows; the store is damaged"
        )
    return EncodedChunks(storage, info, chunk_versions(storage, info, hint=FILL_HINT))

"""The names of rows: the index of ``obs`` of an AnnData store."""

from __future__ import annotations

from ooc_svm.errors import DamageError
from ooc_svm.store.encoded_chunks import EncodedChunks
from ooc_svm.store.metadata import chunk_versions, read_array, read_group
from ooc_svm.store.storage import FILL_HINT, Storage


def open_row_names(storage: Storage, n_rows: int) -> EncodedChunks | None:
    """The names as an array of strings; None where rows are only numbered."""
    index = (read_group(storage, "obs") or {}).get("_index")
    if not isinstance(index, str) or "/" in index or index in ("", ".", ".."):
        return None
    name = f"obs/{index}"
    if read_group(storage, name) is not None:
        return None
    info = read_array(storage, name)
    if info.dtype.kind != "O":
        return None
    if info.length != n_rows:
        raise DamageError(
            f"{storage.location}/{name} has {info.length} names for {n_rows} rows; the store is damaged"
        )
    return EncodedChunks(storage, info, chunk_versions(storage, info, hint=FILL_HINT))

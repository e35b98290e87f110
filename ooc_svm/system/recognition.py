"""What files and folders are, where that matters before they are read: by first bytes, or Zarr's metadata."""

from __future__ import annotations

import os
from pathlib import Path

from ooc_svm.errors import UsageError
from ooc_svm.system.address import address_of
from ooc_svm.system.files import exists, read_head

MODEL, STATE = b"OOCSVM1\n", b"OOCSVMC\n"
"""First bytes of a file of a model, and of the states in a checkpoint."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""First bytes of some texts in UTF-8, which are no part of the text."""

ZSTD = b"\x28\xb5\x2f\xfd"
"""First bytes of a frame of zstd."""

HDF5, ZIP, PARQUET = b"\x89HDF\r\n\x1a\n", b"PK\x03\x04", b"PAR1"
"""First bytes of files that are converted; ``.npz`` is an archive of zip."""

_NO_DATA = {
    MODEL: "a model of ooc-svm",
    STATE: "a saved state of a training",
    b"\x89PNG\r\n\x1a\n": "a picture",
}
_ZARR_METADATA = ("zarr.json", ".zgroup", ".zarray")


def first_bytes(path: str | os.PathLike[str], n_bytes: int = 8) -> bytes:
    """The first bytes of a file of the local disk; none of anything else, or where it cannot be read."""
    if address_of(path) is not None or not os.path.isfile(path):
        return b""
    try:
        return read_head(path, n_bytes)
    except OSError:
        return b""


def known_kind(path: str | os.PathLike[str]) -> str | None:
    """What a file of the local disk is, for a message, where it is known to hold no data."""
    return _NO_DATA.get(first_bytes(path))


def is_zarr(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder, or one of an address, is a store of Zarr or a part of one."""
    if (address := address_of(folder)) is not None:
        return any(exists(address / name) for name in _ZARR_METADATA)
    return any(os.path.lexists(os.path.join(folder, name)) for name in _ZARR_METADATA)


def zarr_around(path: str | os.PathLike[str]) -> str | None:
    """The Zarr store that a path of the local disk is or leads into, or that an address is."""
    if address_of(path) is not None:
        return os.fspath(path) if is_zarr(path) else None
    place = Path(os.path.realpath(path))
    return next((os.fspath(folder) for folder in (place, *place.parents) if is_zarr(folder)), None)


def check_outside_stores(path: str | os.PathLike[str]) -> None:
    """Refuse a path of the local disk at which a file would lie in a Zarr store: UsageError."""
    if address_of(path) is not None:
        return
    if (store := zarr_around(os.path.dirname(os.path.realpath(path)))) is not None:
        raise UsageError(f"{os.fspath(path)}: lies in the Zarr store {store}; choose another folder")

"""Arrays read through Zarr, which by itself gives fill values for a missing chunk, without a word."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr
from zarr.abc.store import ByteRequest
from zarr.buffer.cpu import NDBuffer
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import LocalStore, WrapperStore

from ooc_svm.errors import DamageError, OocSvmError, StorageError
from ooc_svm.store.frames import content_size, frame_codec
from ooc_svm.store.layout import METADATA
from ooc_svm.store.metadata import ArrayInfo

ZarrArray = zarr.Array[Any]

ADVICE = "copy the store again or make it anew"

_METADATA_NAMES = (METADATA, ".zarray", ".zattrs", ".zgroup", ".zmetadata")


class StrictStore(WrapperStore[LocalStore]):
    """A local store, read only, in which a missing chunk and one of another size are errors.

    Attributes
    ----------
    root : Path
    bytes_read : int
        Bytes read so far.
    """

    def __init__(self, store: LocalStore) -> None:
        super().__init__(store)
        self.root = store.root
        self.bytes_read = 0
        self._lock = threading.Lock()
        self._frames: dict[str, tuple[str, int]] = {}

    def count(self, n_bytes: int) -> None:
        """Add to `bytes_read`."""
        with self._lock:
            self.bytes_read += n_bytes

    def expect(self, info: ArrayInfo) -> None:
        """Hold the chunks of an array against their decoded size before they are decoded."""
        codec = frame_codec(info)
        if codec is not None:
            self._frames[info.key_prefix.rpartition("/")[0]] = (codec, info.chunk * info.dtype.itemsize)

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Bytes of a file; DamageError where a chunk's file is missing."""
        value = await self._store.get(key, prototype, byte_range)
        folder, _, name = key.rpartition("/")
        if name in _METADATA_NAMES:
            return value
        if value is None:
            raise DamageError(f"the chunk {self.root / key} is missing; {ADVICE}")
        self.count(len(value))
        if folder in self._frames:
            codec, expected = self._frames[folder]
            size = content_size(codec, bytes(value[:18].to_bytes()))
            if size != expected:
                raise DamageError(
                    f"the chunk {self.root / key} is no {codec} frame of {expected} bytes; {ADVICE}"
                )
        return value


def open_array(store: StrictStore, info: ArrayInfo) -> ZarrArray:
    """Open an array whose metadata was checked; never through consolidated metadata, which was not."""
    store.expect(info)
    return zarr.open_array(store, path=info.name, mode="r", zarr_format=info.zarr_format)  # type: ignore[arg-type]


def location(array: ZarrArray) -> Path:
    """Folder of an array."""
    store = array.store
    return store.root / array.path if isinstance(store, StrictStore) else Path(array.path)


def read_into(array: ZarrArray, start: int, stop: int, out: npt.NDArray[Any]) -> None:
    """Decode the elements ``start <= i < stop`` into ``out``.

    Raises
    ------
    DamageError
        A chunk is missing or cannot be decoded; the message names it.
    StorageError
        Reading failed.
    """
    if start == stop:
        return
    if out.dtype == np.int32 and array.dtype.itemsize == 8:
        _narrow_into(array, start, stop, out)
        return
    try:
        array.get_basic_selection(slice(start, stop), out=NDBuffer.from_numpy_array(out))
    except (OocSvmError, MemoryError):
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(
            f"reading {location(array)} failed: {reason}; check the disk and run again"
        ) from error
    except Exception as error:  # what a codec raises on damaged bytes is up to the codec
        chunk = _undecodable_chunk(array, start, stop)
        raise DamageError(f"the chunk {chunk} cannot be decoded ({str(error)[:80]}); {ADVICE}") from error


def _undecodable_chunk(array: ZarrArray, start: int, stop: int) -> Path:
    """The first chunk file of a range that cannot be decoded."""
    length = (array.shards or array.chunks)[0]
    last = (stop - 1) // length
    for index in range(start // length, last):
        try:
            array.get_basic_selection(slice(index * length, (index + 1) * length))
        except Exception:
            last = index
            break
    return location(array) / array.metadata.encode_chunk_key((last,))


def _narrow_into(array: ZarrArray, start: int, stop: int, out: npt.NDArray[Any]) -> None:
    """Column ids of 64 bits into int32: what does not fit must not wrap around to an id that looks right."""
    wide = np.empty(stop - start, array.dtype)
    read_into(array, start, stop, wide)
    if wide.min() < 0 or wide.max() > np.iinfo(np.int32).max:
        raise DamageError(
            f"{location(array)} holds a column id outside 0 .. 2^31 - 1 between elements {start} and "
            f"{stop}; the store is damaged"
        )
    out[:] = wide


def read_strings(array: ZarrArray, start: int, stop: int) -> npt.NDArray[np.object_]:
    """Decode elements of an array of strings; raises as `read_into` does."""
    out = np.empty(stop - start, object)
    read_into(array, start, stop, out)
    return out

"""Arrays of any codec on our list, with or without shards, decoded chunk by chunk.

Zarr is not asked: it reads a missing chunk as fill values, and its codecs allocate whatever a chunk decodes
to.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.errors import DamageError, MemoryBudgetError
from ooc_svm.store.codecs import chunk_size, decode_chunk, usual_text_bytes
from ooc_svm.store.metadata import NO_CHUNK, ArrayInfo
from ooc_svm.store.storage import ADVICE, FILL_HINT, Bytes, FileVersion, Storage, damage_in
from ooc_svm.system.memory import available_memory, format_size


class _Recent(threading.local):
    """What a thread decoded last: ranges that are read one after another often lie in the same chunk."""

    def __init__(self) -> None:
        self.key: tuple[Any, ...] = ()
        self.value: Any = None


_chunk, _index = _Recent(), _Recent()


class EncodedChunks:
    """An array whose chunks are decoded as its metadata say.

    `versions` are those of the chunk files when they were first seen: no other files are read. Raises
    MemoryBudgetError where a chunk may take more than the memory of this process.
    """

    def __init__(
        self, storage: Storage, info: ArrayInfo, versions: npt.NDArray[np.void] | None = None
    ) -> None:
        self._storage, self._info, self._versions = storage, info, versions
        self.location = f"{storage.location}/{info.name}"
        self._stored_size = chunk_size(info.codecs, info.inner_chunk, info.dtype)
        # Strings take as much as they are long: those of usual lengths have to fit.
        is_text = info.dtype.kind == "O"
        expected = usual_text_bytes(info.inner_chunk) if is_text else self._stored_size.most
        if expected > available_memory():
            size, limit = format_size(expected), format_size(available_memory())
            raise MemoryBudgetError(
                f"a chunk of {self.location} may take {size}, and this process may use {limit}; "
                "write the store again with smaller chunks"
            )

    def announce(self, start: int, stop: int) -> None:
        """See `Elements`. Of a shard only a part is read."""
        info = self._info
        if info.inner_chunk == info.chunk:
            for index in range(start // info.chunk, -(-stop // info.chunk)):
                self._storage.announce(info.key(index))

    def read_into(self, start: int, stop: int, out: npt.NDArray[Any]) -> None:
        """See `Elements`."""
        length = self._info.inner_chunk
        for index in range(start // length, -(-stop // length)):
            first, last = max(start, index * length), min(stop, (index + 1) * length)
            part = self.decoded(index)[first - index * length : last - index * length]
            if out.dtype == np.int32 and part.dtype.itemsize == 8:
                self._require_narrow(part, first, last)
            out[first - start : last - start] = part

    def read_strings(self, start: int, stop: int) -> npt.NDArray[np.object_]:
        """Decode elements of an array of strings; raises as `read_into` does."""
        out = np.empty(stop - start, object)
        self.read_into(start, stop, out)
        return out

    def _require_narrow(self, part: npt.NDArray[Any], start: int, stop: int) -> None:
        """A column id of 64 bits that does not fit must not wrap around to another valid id."""
        if part.min() < 0 or part.max() > np.iinfo(np.int32).max:
            raise DamageError(
                f"{self.location} holds a column id outside 0 .. 2^31 - 1 between elements {start} and "
                f"{stop}; the store is damaged"
            )

    def decoded(self, index: int) -> npt.NDArray[Any]:
        """The elements of a chunk, an inner one where there are shards."""
        info = self._info
        if _chunk.key != (self, index):
            _chunk.key, _chunk.value = (), None  # free before there is another
            content, name = self._stored(index)
            with damage_in(f"the chunk {self._storage.location}/{name} cannot be decoded", ADVICE):
                _chunk.value = decode_chunk(info.codecs, content, info.inner_chunk, info.dtype)
            _chunk.key = (self, index)
        elements: npt.NDArray[Any] = _chunk.value
        return elements

    def _stored(self, index: int) -> tuple[Bytes, str]:
        """The bytes of a chunk, and its name in the store."""
        shard, inner = divmod(index, self._info.chunk // self._info.inner_chunk)
        key = self._info.key(shard)
        version = None if self._versions is None else FileVersion(*self._versions[shard].item())
        if self._info.shard_index is None:
            room = partial(self._room, key)
            return self._storage.read(key, buffer=room, version=version), key
        offset, n_bytes = self._shard_entries(key, version)[inner].tolist()
        name = f"{key} (inner chunk {inner})"
        if n_bytes == NO_CHUNK:
            raise DamageError(f"the chunk {self._storage.location}/{name} is missing; {ADVICE}{FILL_HINT}")
        room = partial(self._room, name)
        return self._storage.read(key, offset, offset + n_bytes, buffer=room, version=version), name

    def _room(self, name: str, n_bytes: int) -> Bytes:
        """Memory for a stored chunk; DamageError where it is none by its size."""
        if not self._stored_size.allows(n_bytes):
            raise DamageError(
                f"the chunk {self._storage.location}/{name} cannot be decoded "
                f"({n_bytes} bytes instead of {self._stored_size}); {ADVICE}"
            )
        return np.empty(n_bytes, np.uint8)

    def _shard_entries(self, key: str, version: FileVersion | None) -> npt.NDArray[np.uint64]:
        """Offset and length of each inner chunk of a shard."""
        if _index.key != (self, key):
            form = self._info.shard_index
            assert form is not None
            place = (0, form.n_bytes) if form.at_start else (-form.n_bytes, None)
            content = self._storage.read(key, *place, version=version)
            with damage_in(f"the index of the shard {self._storage.location}/{key} is wrong", ADVICE):
                _index.value = form.entries(content)
            _index.key = (self, key)
        entries: npt.NDArray[np.uint64] = _index.value
        return entries

"""The files of a store that is being written: chunks as they come, metadata at the end, the mark last."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import google_crc32c
import numpy.typing as npt
import zarr
from numcodecs.blosc import Blosc
from zarr.codecs import BloscCodec, Crc32cCodec
from zarr.core.buffer import Buffer
from zarr.storage import MemoryStore

from ooc_svm.store.fsync import BackgroundCalls, BackgroundSync
from ooc_svm.store.layout import ARRAY_ATTRIBUTES, METADATA
from ooc_svm.store.storage import LocalStorage

_COMPRESSOR: Literal["lz4"] = "lz4"
_LEVEL = 5


class StoreFiles:
    """Writes the files of a store into a folder, with so many threads that compress; a context manager.

    Zarr makes the metadata, and rewrites them again and again: they stay in memory until `settle`. Chunks are
    encoded here as the metadata say: Zarr's own way takes the interpreter longer than the compression.
    """

    def __init__(self, folder: Path, threads: int) -> None:
        self._folder = folder
        self._entries: dict[str, Buffer] = {}
        self._settled: dict[str, bytes] = {}
        self._store = MemoryStore(self._entries)
        self._codec = Blosc(cname=_COMPRESSOR, clevel=_LEVEL, shuffle=Blosc.SHUFFLE)
        self._resources = ExitStack()
        self._sync = self._resources.enter_context(BackgroundSync())
        self._behind = self._resources.enter_context(BackgroundCalls(threads, 2 * threads, drop=True))

    def __enter__(self) -> StoreFiles:
        return self

    def __exit__(self, *error: object) -> None:
        self._resources.close()

    def create_group(self, name: str) -> zarr.Group:
        """Create a group; the root is ``""``."""
        return zarr.create_group(self._store, path=name, zarr_format=3)

    def create_array(self, name: str, dtype: npt.DTypeLike, chunk: int, fill_value: float) -> zarr.Array[Any]:
        """Create an array of length 0 with our codecs: blosc (lz4, shuffle), then crc32c."""
        return zarr.create_array(
            self._store,
            name=name,
            shape=(0,),
            chunks=(chunk,),
            dtype=dtype,
            filters=None,
            compressors=[BloscCodec(cname=_COMPRESSOR, clevel=_LEVEL, shuffle="shuffle"), Crc32cCodec()],
            fill_value=fill_value,
            zarr_format=3,
            attributes=ARRAY_ATTRIBUTES,
            config={"write_empty_chunks": True},
        )

    def metadata(self) -> dict[str, bytes]:
        """Content of every metadata file, by its path."""
        return {key: content.to_bytes() for key, content in sorted(self._entries.items())}

    def write_chunk(self, name: str, index: int, content: npt.NDArray[Any]) -> tuple[int, int]:
        """Compress and write a whole chunk; return the size of the file and its crc32c.

        Any thread may call it. `content` has the type of the array and the length of a chunk, and is free to
        be used again on return.
        """
        frame = self._codec.encode(content)
        checksum = google_crc32c.value(frame)
        self._sync.write(self._folder, f"{name}/c/{index}", frame, checksum.to_bytes(4, "little"))
        return len(frame) + 4, checksum

    def put(
        self, write: Callable[[int, npt.NDArray[Any]], None], index: int, content: npt.NDArray[Any]
    ) -> None:
        """Call ``write(index, content)`` in another thread, soon; `content` must not be changed any more."""
        self._behind.put(write, index, content)

    def wait(self) -> None:
        """Return when all chunks put so far are on the disk."""
        self._behind.wait()
        self._sync.wait()

    def settle(self) -> None:
        """Write new metadata except the root's; return when all files and folders are on the disk."""
        self._behind.wait()
        for key, content in self.metadata().items():
            if key != METADATA and self._settled.get(key) != content:
                self._sync.write(self._folder, key, content)
                self._settled[key] = content
        self._sync.wait()
        self._sync.sync_folders(self._folder)

    def seal(self) -> None:
        """Write the metadata of the root, which mark a complete store, after everything else."""
        LocalStorage(self._folder).write(METADATA, self._entries[METADATA].to_bytes())

"""The files of a store that is being written: chunks as they come, metadata at the end, the mark last."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Literal

import google_crc32c
import numpy as np
import numpy.typing as npt
import zarr
from numcodecs.blosc import Blosc
from numcodecs.vlen import VLenUTF8
from zarr.codecs import BloscCodec, Crc32cCodec
from zarr.core.buffer import Buffer
from zarr.registry import get_pipeline_class
from zarr.storage import MemoryStore

from ooc_svm.errors import UsageError
from ooc_svm.store.fsync import BackgroundCalls
from ooc_svm.store.layout import ARRAY_ATTRIBUTES, METADATA, STRING_ATTRIBUTES
from ooc_svm.store.sinks import Sink

_COMPRESSOR: Literal["lz4"] = "lz4"
_LEVEL = 5


def _check_settings() -> None:
    """UsageError where Zarr's settings cannot be used."""
    for name, least in (("async.concurrency", 1), ("threading.max_workers", 1)):
        value = zarr.config.get(name, None)
        if value is not None and not (isinstance(value, int) and value >= least):
            variable = f"ZARR_{name.replace('.', '__').upper()}"
            raise UsageError(
                f"Zarr's setting {name} is {value!r:.40}, which is no number of {least} or more; correct the "
                f"environment variable {variable} or Zarr's configuration file"
            )
    try:
        get_pipeline_class()
    except Exception as error:  # what importing a module of that name raises
        path = zarr.config.get("codec_pipeline.path", None)
        raise UsageError(
            f"Zarr's setting codec_pipeline.path is {path!r:.80}, which cannot be loaded; correct the "
            "environment variable ZARR_CODEC_PIPELINE__PATH or Zarr's configuration file"
        ) from error


class StoreFiles:
    """Writes the files of a store to a sink, with so many threads that compress; a context manager.

    Zarr makes the metadata, and rewrites them again and again: they stay in memory until `settle`. Chunks are
    encoded here as the metadata say: Zarr's own way takes the interpreter longer than the compression.
    Raises UsageError where Zarr's settings cannot be used.
    """

    def __init__(self, sink: Sink, threads: int) -> None:
        _check_settings()
        self._entries: dict[str, Buffer] = {}
        self._settled: dict[str, bytes] = {}
        self._store = MemoryStore(self._entries)
        self._codec = Blosc(cname=_COMPRESSOR, clevel=_LEVEL, shuffle=Blosc.SHUFFLE)
        self._text_codec = Blosc(cname=_COMPRESSOR, clevel=_LEVEL, shuffle=Blosc.NOSHUFFLE)
        self._resources = ExitStack()
        self._sink = self._resources.enter_context(sink)
        self._behind = self._resources.enter_context(BackgroundCalls(threads, 2 * threads, drop=True))

    def __enter__(self) -> StoreFiles:
        return self

    def __exit__(self, *error: object) -> None:
        self._resources.close()

    def create_group(self, name: str) -> zarr.Group:
        """Create a group; the root is ``""``."""
        return zarr.create_group(self._store, path=name, zarr_format=3)

    def create_array(
        self, name: str, dtype: npt.DTypeLike, chunk: int, fill_value: float | str
    ) -> zarr.Array[Any]:
        """Create an array of length 0 with our codecs: blosc (lz4, shuffle), then crc32c.

        It takes the place of one of this name. One of the type object is an array of strings, whose first
        codec is vlen-utf8.
        """
        is_text = np.dtype(dtype).kind == "O"
        return zarr.create_array(
            self._store,
            name=name,
            shape=(0,),
            chunks=(chunk,),
            dtype="str" if is_text else dtype,
            filters=None,
            compressors=[
                BloscCodec(cname=_COMPRESSOR, clevel=_LEVEL, shuffle="noshuffle" if is_text else "shuffle"),
                Crc32cCodec(),
            ],
            fill_value=fill_value,
            zarr_format=3,
            attributes=STRING_ATTRIBUTES if is_text else ARRAY_ATTRIBUTES,
            config={"write_empty_chunks": True},
            overwrite=True,
        )

    def metadata(self) -> dict[str, bytes]:
        """Content of every metadata file, by its path."""
        return {key: content.to_bytes() for key, content in sorted(self._entries.items())}

    def write_chunk(self, name: str, index: int, content: npt.NDArray[Any]) -> tuple[int, int]:
        """Compress and write a whole chunk; return the size of the file and its crc32c.

        Any thread may call it. `content` has the type of the array and the length of a chunk; of strings
        also their encoded bytes. It is free to be used again on return.
        """
        if content.dtype.kind == "O":
            frame = self._text_codec.encode(VLenUTF8().encode(content))
        else:
            frame = self._codec.encode(content)
        checksum = google_crc32c.value(frame)
        self._sink.write(f"{name}/c/{index}", frame, checksum.to_bytes(4, "little"))
        return len(frame) + 4, checksum

    def read_chunk(self, name: str, index: int, dtype: npt.DTypeLike, chunk: int) -> npt.NDArray[Any]:
        """Read a chunk of numbers that was written, and waited for."""
        content = self._sink.read(f"{name}/c/{index}")
        return np.frombuffer(self._codec.decode(content[:-4]), dtype, chunk)

    def put(
        self, write: Callable[[int, npt.NDArray[Any]], None], index: int, content: npt.NDArray[Any]
    ) -> None:
        """Call ``write(index, content)`` in another thread, soon; `content` must not be changed any more."""
        self._behind.put(write, index, content)

    def wait(self) -> None:
        """Return when all chunks put so far are on the disk."""
        self._behind.wait()
        self._sink.wait()

    def settle(self) -> None:
        """Write new metadata except the root's; return when all files and folders are on the disk."""
        self._behind.wait()
        for key, content in self.metadata().items():
            if key != METADATA and self._settled.get(key) != content:
                self._sink.write(key, content)
                self._settled[key] = content
        self._sink.settle()

    def seal(self) -> None:
        """Write the metadata of the root, which mark a complete store, after everything else."""
        self._sink.seal(self._entries[METADATA].to_bytes())

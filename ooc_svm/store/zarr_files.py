"""The files of a store that is being written: chunks as they come, metadata at the end, the mark last."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt
from numcodecs.blosc import Blosc
from numcodecs.vlen import VLenUTF8

from ooc_svm.store.fsync import BackgroundCalls
from ooc_svm.store.layout import METADATA
from ooc_svm.store.new_metadata import COMPRESSOR, LEVEL, NewNode, new_array, new_group
from ooc_svm.store.sinks import Sink


class StoreFiles:
    """Writes the files of a store to a sink, with so many threads that compress; a context manager.

    Metadata stay in memory until `settle`. Chunks are encoded here as the metadata say.
    """

    def __init__(self, sink: Sink, threads: int) -> None:
        self._nodes: dict[str, NewNode] = {}
        self._settled: dict[str, bytes] = {}
        self._codec = Blosc(cname=COMPRESSOR, clevel=LEVEL, shuffle=Blosc.SHUFFLE)
        self._text_codec = Blosc(cname=COMPRESSOR, clevel=LEVEL, shuffle=Blosc.NOSHUFFLE)
        self._resources = ExitStack()
        self._sink = self._resources.enter_context(sink)
        self._behind = self._resources.enter_context(BackgroundCalls(threads, 2 * threads, drop=True))

    def __enter__(self) -> StoreFiles:
        return self

    def __exit__(self, *error: object) -> None:
        self._resources.close()

    def create_group(self, name: str) -> NewNode:
        """Create a group; the root is ``""``."""
        return self._create(name, new_group())

    def create_array(self, name: str, dtype: npt.DTypeLike, chunk: int, fill_value: float | str) -> NewNode:
        """Create an array as `new_array` does; it takes the place of one of this name."""
        return self._create(name, new_array(dtype, chunk, fill_value))

    def _create(self, name: str, node: NewNode) -> NewNode:
        self._nodes[f"{name}/{METADATA}" if name else METADATA] = node
        return node

    def metadata(self) -> dict[str, bytes]:
        """Content of every metadata file, by its path."""
        return {key: node.content() for key, node in sorted(self._nodes.items())}

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
        self._sink.seal(self._nodes[METADATA].content())

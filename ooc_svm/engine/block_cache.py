"""Decoded blocks for computing threads: read ahead, shared while in use, pinned where memory allows."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from ooc_svm.data.blocks import RowBlock
from ooc_svm.data.source import Source
from ooc_svm.engine.base import Counters


@dataclass(slots=True)
class _Entry:
    """A block in use, the buffers that it lies in, and the number of its users."""

    coming: Future[RowBlock]
    buffers: Any
    users: int = 0

    @property
    def failed(self) -> bool:
        """Whether the block could not be read."""
        return self.coming.done() and self.coming.exception() is not None


class BlockCache:
    """Reads each block that is acquired once, and keeps it until all its users have released it.

    ``readers``: threads that read and decode.
    ``cache_bytes``: memory for pinned blocks: a fixed, evenly spread part, since a cyclic scan defeats a
        least recently used cache.
    ``counters``: where the blocks fetched from storage and their stored bytes are counted.
    ``blocks``: those that may be pinned; by default all.

    ``pinned`` are the numbers of those that are.
    """

    def __init__(
        self,
        source: Source,
        readers: int,
        cache_bytes: int,
        counters: Counters,
        blocks: Sequence[int] | None = None,
    ) -> None:
        self._source, self._counters = source, counters
        own = range(len(source.blocks)) if blocks is None else blocks
        pinned = pinned_blocks([source.blocks[index].nbytes for index in own], cache_bytes)
        self.pinned = frozenset(own[number] for number in pinned)
        self._entries: dict[int, _Entry] = {}
        self._free: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._readers = ThreadPoolExecutor(readers, thread_name_prefix="read")
        self._lock = threading.Lock()

    def acquire(self, index: int) -> None:
        """Announce a use of a block; reading it begins now unless it is here. Pair with `release`."""
        with self._lock:
            entry = self._entries.get(index)
            if entry is None or (entry.users == 0 and entry.failed):
                entry = self._entries[index] = self._fetch(index)
            entry.users += 1

    def announce(self, index: int) -> None:
        """Begin to fetch a block that will be acquired soon, unless it is here."""
        with self._lock:
            if index not in self._entries:
                self._source.announce_block(index)

    def get(self, index: int) -> RowBlock:
        """An acquired block, when it has been read."""
        return self._entries[index].coming.result()

    def release(self, index: int) -> None:
        """End a use of a block."""
        with self._lock:
            entry = self._entries[index]
            entry.users -= 1
            unused = entry.users == 0 and index not in self.pinned
            if unused:
                del self._entries[index]
        if unused:
            wait([entry.coming])
            self._free.put(entry.buffers)

    def close(self) -> None:
        """End the threads and drop the blocks."""
        self._readers.shutdown(cancel_futures=True)
        self._entries.clear()

    def _fetch(self, index: int) -> _Entry:
        self._counters.blocks_read += 1
        self._counters.bytes_read += self._source.block_stored_bytes(index)
        if index in self.pinned:
            return _Entry(self._readers.submit(self._source.read_block, index), None)
        try:
            buffers = self._free.get_nowait()
        except queue.Empty:
            buffers = self._source.new_buffers()
        return _Entry(self._readers.submit(self._source.read_block, index, buffers), buffers)


def pinned_blocks(sizes: Sequence[int], cache_bytes: int) -> frozenset[int]:
    """Numbers of the blocks that are kept decoded: an evenly spread share that fits."""
    total = sum(sizes)
    if total <= cache_bytes:
        return frozenset(range(len(sizes)))
    pinned: set[int] = set()
    passed = used = 0
    for index, size in enumerate(sizes):
        passed += size
        if used + size <= cache_bytes * passed // total:
            pinned.add(index)
            used += size
    return frozenset(pinned)

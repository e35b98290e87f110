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
class _Lent:
    """A block in use, the buffers it lies in, and how many are going to use it."""

    coming: Future[RowBlock]
    buffers: Any
    users: int = 0

    @property
    def failed(self) -> bool:
        """Whether the block could not be read."""
        return self.coming.done() and self.coming.exception() is not None


class Feed:
    """Reads each wanted block once and keeps it until nobody wants it any more.

    Parameters
    ----------
    source : Source
    readers : int
        Threads that read and decode.
    cache_bytes : int
        Memory for pinned blocks: a fixed, evenly spread part, since a cyclic scan defeats a least recently
        used cache.
    counters : Counters
        Where the blocks fetched from storage and their stored bytes are counted.
    blocks : sequence of int, optional
        Those that may be pinned; by default all.
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
        self._pinned = frozenset(own[number] for number in pinned)
        self._lent: dict[int, _Lent] = {}
        self._free: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._readers = ThreadPoolExecutor(readers, thread_name_prefix="read")
        self._lock = threading.Lock()

    def want(self, index: int) -> None:
        """Say that a block will be taken; reading it begins now unless it is here. Pair with `leave`."""
        with self._lock:
            lent = self._lent.get(index)
            if lent is None or (lent.users == 0 and lent.failed):
                lent = self._lent[index] = self._fetch(index)
            lent.users += 1

    def take(self, index: int) -> RowBlock:
        """A wanted block, when it has been read."""
        return self._lent[index].coming.result()

    def leave(self, index: int) -> None:
        """Say that a wanted block is not needed any more by this user."""
        with self._lock:
            lent = self._lent[index]
            lent.users -= 1
            gone = lent.users == 0 and index not in self._pinned
            if gone:
                del self._lent[index]
        if gone:
            wait([lent.coming])
            self._free.put(lent.buffers)

    def close(self) -> None:
        """End the threads and let the blocks go."""
        self._readers.shutdown(cancel_futures=True)
        self._lent.clear()

    def _fetch(self, index: int) -> _Lent:
        self._counters.blocks_read += 1
        self._counters.bytes_read += self._source.block_stored_bytes(index)
        if index in self._pinned:
            return _Lent(self._readers.submit(self._source.read_block, index), None)
        try:
            buffers = self._free.get_nowait()
        except queue.Empty:
            buffers = self._source.new_buffers()
        return _Lent(self._readers.submit(self._source.read_block, index, buffers), buffers)


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

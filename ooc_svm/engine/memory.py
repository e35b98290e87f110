"""The reference engine: one thread, block after block. What the other engines are measured against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ooc_svm.engine.base import Engine, MergeTree
from ooc_svm.passes import Pass


class MemoryEngine(Engine):
    """Serves passes one block at a time in the calling thread; made for matrices in memory."""

    def _stream(self, passes: Sequence[Pass], segments: Sequence[range], data: bool) -> list[Any]:
        blocks = self.source.blocks
        trees = [MergeTree(len(segments), request.merge) for request in passes]
        done = 0
        for number, segment in enumerate(segments):
            partials = [request.empty() for request in passes]
            for index in segment:
                block = self.source.read_block(index) if data else None
                self.counters.blocks_read += data
                self.counters.bytes_read += self.source.block_stored_bytes(index) if data else 0
                self.visit(passes, block, blocks[index], partials)
                done += 1
                if self.on_block is not None and data:
                    self.on_block(done, len(blocks))
            for tree, partial in zip(trees, partials, strict=True):
                tree.add(number, partial)
        return [tree.total for tree in trees]

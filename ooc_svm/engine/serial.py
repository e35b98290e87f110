"""The reference engine: one thread, block after block. What the other engines are measured against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ooc_svm.engine.base import Engine, MergeTree
from ooc_svm.passes.base import Extent, Pass


class MemoryEngine(Engine):
    """Serves passes one block at a time in the calling thread; made for matrices in memory."""

    def close(self) -> None:
        """There is nothing to let go of."""

    def _stream(self, passes: Sequence[Pass], extent: Extent, data: bool) -> list[Any]:
        for request in passes:
            if request.meanwhile is not None:
                request.meanwhile()
        trees = [MergeTree(len(extent.segments), request.merge) for request in passes]
        done, n_pieces = extent.before, extent.of or extent.n_pieces
        for number, segment in enumerate(extent.segments):
            partials = [request.empty() for request in passes]
            for piece in segment:
                block = self.source.read_block(piece.block) if data else None
                self.counters.blocks_read += data
                self.counters.bytes_read += self.source.block_stored_bytes(piece.block) if data else 0
                self.visit(passes, block, piece, partials)
                done += 1
                if self.on_block is not None and data:
                    self.on_block(done, n_pieces)
            for tree, partial in zip(trees, partials, strict=True):
                tree.add(number, partial)
        return [tree.total for tree in trees]

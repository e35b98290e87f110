"""The reference engine: one thread, block after block. What the other engines are measured against."""

from __future__ import annotations

from typing import Any

from ooc_svm.engine.base import Engine, Stream
from ooc_svm.engine.merge import MergeTree


class SerialEngine(Engine):
    """Serves passes one block at a time in the calling thread; made for matrices in memory."""

    def close(self) -> None:
        """There is nothing to release."""

    def _stream(self, stream: Stream) -> list[Any]:
        while stream.works:
            stream.works.pop(0)()
        trees = [MergeTree(len(stream.rows.segments), request.merge) for request in stream.passes]
        done, total = stream.position.before, stream.end
        for number, segment in enumerate(stream.rows.segments):
            partials = [request.empty() for request in stream.passes]
            for part in segment:
                block = self.source.read_block(part.block) if stream.data else None
                self.counters.blocks_read += stream.data
                self.counters.bytes_read += self.source.block_stored_bytes(part.block) if stream.data else 0
                self.visit(stream.passes, block, part, partials)
                done += 1
                if self.on_block is not None and stream.data:
                    self.on_block(done, total)
            for tree, sums in zip(trees, partials, strict=True):
                tree.add(number, sums)
        return [tree.total for tree in trees]

"""Protocols of the sources of row blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ooc_svm.data.blocks import Float64Array, Int64Array, RowBlock


class Span(Protocol):
    """The row range of one block, known before the block is read."""

    @property
    def start(self) -> int: ...

    @property
    def stop(self) -> int: ...

    @property
    def n_nonzeros(self) -> int: ...

    @property
    def nbytes(self) -> int:
        """Bytes of the decoded block."""


class Source(Protocol):
    """Rows of a data matrix in blocks, with their labels, weights and group numbers."""

    @property
    def n_rows(self) -> int: ...

    @property
    def n_features(self) -> int: ...

    @property
    def n_nonzeros(self) -> int: ...

    @property
    def blocks(self) -> Sequence[Span]: ...

    @property
    def blocks_ahead(self) -> int:
        """Blocks to be announced by each thread before it reads them; 0 where reading begins at once."""

    @property
    def ahead_nbytes(self) -> int:
        """Bytes that a reading thread has fetched ahead at most."""

    def announce_block(self, index: int) -> None:
        """Begin to fetch a block that will be read soon."""

    def block_stored_bytes(self, index: int) -> int:
        """Bytes fetched from storage to read a block."""

    def new_buffers(self) -> Any:
        """Buffers for `read_block`, large enough for every block."""

    def read_block(self, index: int, buffers: Any = None) -> RowBlock:
        """Read, decode and check a block; with ``buffers``, its arrays are views into them."""

    @property
    def has_weight(self) -> bool: ...

    @property
    def has_qid(self) -> bool: ...

    def read_labels(self, start: int, stop: int) -> Float64Array: ...

    def read_qids(self, start: int, stop: int) -> Int64Array: ...

    def read_weights(self, start: int, stop: int) -> Float64Array: ...


class NothingAhead:
    """What sources have in common that begin to read a block when it is wanted."""

    @property
    def blocks_ahead(self) -> int:
        """Always 0."""
        return 0

    @property
    def ahead_nbytes(self) -> int:
        """Always 0."""
        return 0

    def announce_block(self, index: int) -> None:
        """Do nothing."""

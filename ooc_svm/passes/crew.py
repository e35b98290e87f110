"""Threads that go through loops of a solver's work together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

Piece = TypeVar("Piece")


class Crew(Protocol):
    """The threads that go through the loops of one model's solves, one loop after another."""

    def begin(self) -> None:
        """Loops follow: those who help stay in between."""

    def end(self) -> None:
        """There are no more loops for now."""

    def each(self, work: Callable[[Piece], None], pieces: Sequence[Piece]) -> None:
        """Do a work for each piece, in any order and by any thread."""

    def help(self) -> bool:
        """Take part in the loops of another thread, see `Overlap`; whether there was something to do."""


class Alone:
    """A crew of one thread."""

    def begin(self) -> None:
        """Nothing to do."""

    def end(self) -> None:
        """Nothing to do."""

    def each(self, work: Callable[[Piece], None], pieces: Sequence[Piece]) -> None:
        """Do a work for each piece."""
        for piece in pieces:
            work(piece)

    def help(self) -> bool:
        """There is no other thread."""
        return False

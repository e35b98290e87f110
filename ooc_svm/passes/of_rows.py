"""Requests whose passes over row vectors visit given rows, in the segments of these.

A solver whose reads come in rounds makes all its passes over the rows of its lanes: on a cluster they lie
where the lanes do.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, ClassVar

from ooc_svm.data.blocks import RowBlock
from ooc_svm.passes.base import WHOLE, Pass, Position, Request, RowSet, RowSlice, is_pass


@dataclass(frozen=True, slots=True)
class PassOfRows:
    """A pass over row vectors, of these rows."""

    own: Pass
    rows: RowSet
    needs_data: ClassVar[bool] = False
    position: ClassVar[Position] = WHOLE
    prefetch: ClassVar[tuple[int, ...]] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        return self.own.reads

    @property
    def writes(self) -> tuple[str, ...]:
        return self.own.writes

    def empty(self) -> Any:
        return self.own.empty()

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: Any) -> None:
        self.own.visit(block, rows, partial)

    def merge(self, left: Any, right: Any) -> Any:
        return self.own.merge(left, right)


def of_rows(requests: Generator[Request, Any, Any], rows: RowSet) -> Generator[Request, Any, Any]:
    """The same requests, passes over row vectors being of these rows."""
    answer = None
    while True:
        try:
            request = requests.send(answer)
        except StopIteration as end:
            return end.value
        answer = yield PassOfRows(request, rows) if is_pass(request) and not request.needs_data else request

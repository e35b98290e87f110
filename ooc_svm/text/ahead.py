"""Text inputs that are opened before they are needed.

The first bytes of an object are here after two answers of its service: with many small objects, waiting for
them would take most of the time. Files of the local disk are opened when they are needed.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from ooc_svm.system.address import address_of
from ooc_svm.system.object_files import RANGE_BYTES, RANGES_AHEAD
from ooc_svm.system.threads import parallel_map
from ooc_svm.text.compression import window_bytes
from ooc_svm.text.inputs import READ_BYTES, FileState, TextInput, inspect_input, open_input

AnyName = str | os.PathLike[str]
Result = TypeVar("Result")

OPENED_AT_ONCE = 16
"""Objects that are opened at once, or wait to be read."""

AHEAD_BYTES = 32 << 20
"""Largest number of bytes that objects which wait to be read may hold together, unless it is one."""

READER_BYTES = RANGES_AHEAD * RANGE_BYTES
"""Largest number of bytes that an object which is read holds."""


class Segment(Protocol):
    """An input, or some lines of it; see `ooc_svm.text.reader.TextSegment`."""

    @property
    def path(self) -> str: ...

    @property
    def state(self) -> FileState | None: ...

    @property
    def extent(self) -> tuple[int, int] | None: ...


def memory_for_objects(paths: Sequence[AnyName]) -> int:
    """Bytes of memory that reading inputs takes because some of them are objects."""
    return AHEAD_BYTES + READER_BYTES if any(map(address_of, paths)) else 0


def over_inputs(function: Callable[..., Result], paths: Sequence[AnyName], *arguments: Any) -> list[Result]:
    """The results of ``function(path, *arguments)`` in the order of the inputs, several objects at once."""
    threads = OPENED_AT_ONCE if any(map(address_of, paths)) else 1
    return parallel_map(function, [(path, *arguments) for path in paths], threads)


def max_window_bytes(paths: Sequence[AnyName]) -> int:
    """The largest `window_bytes` of inputs."""
    return max(over_inputs(window_bytes, paths), default=0)


def inspected(paths: Sequence[str], read_bytes: int = READ_BYTES) -> list[TextInput]:
    """The inputs, opened and closed again: of the first that `open_input` refuses, the error is raised."""
    return over_inputs(inspect_input, paths, read_bytes)


@contextmanager
def opened_in_order(
    segments: Sequence[Segment], read_bytes: int = READ_BYTES
) -> Iterator[Iterator[TextInput]]:
    """The inputs of segments, one after another; the caller closes each."""
    with ThreadPoolExecutor(OPENED_AT_ONCE, thread_name_prefix="object") as pool:
        waiting: deque[tuple[Segment, Future[TextInput] | None]] = deque()
        try:
            yield _opened(segments, read_bytes, pool, waiting)
        finally:
            for _, opening in waiting:
                if opening is not None and not opening.cancel() and opening.exception() is None:
                    opening.result().close()


def _opened(
    segments: Sequence[Segment],
    read_bytes: int,
    pool: ThreadPoolExecutor,
    waiting: deque[tuple[Segment, Future[TextInput] | None]],
) -> Generator[TextInput, None, None]:
    coming, held = deque(segments), 0
    while coming or waiting:
        while coming and len(waiting) < OPENED_AT_ONCE and _fits(coming[0], held):
            segment = coming.popleft()
            remote = address_of(segment.path) is not None
            arguments = segment.path, read_bytes, segment.extent
            waiting.append((segment, pool.submit(open_input, *arguments) if remote else None))
            held += _held_bytes(segment)
        segment, opening = waiting.popleft()
        held -= _held_bytes(segment)
        if opening is None:
            yield open_input(segment.path, read_bytes, segment.extent)
        else:
            yield opening.result()


def _fits(segment: Segment, held: int) -> bool:
    """Whether one more input may wait to be read."""
    return held == 0 or held + _held_bytes(segment) <= AHEAD_BYTES


def _held_bytes(segment: Segment) -> int:
    """Bytes that an input holds before it is read."""
    if address_of(segment.path) is None or segment.state is None:
        return 0
    return min(segment.state.size, READER_BYTES)

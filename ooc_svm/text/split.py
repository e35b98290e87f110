"""Text inputs split into segments that processes can read independently."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ooc_svm.errors import OocSvmError, StorageError, UsageError, parameter
from ooc_svm.system.address import address_of, located
from ooc_svm.system.descriptors import close_unwritten
from ooc_svm.system.files import open_regular
from ooc_svm.system.objects import Bucket
from ooc_svm.text.ahead import inspected
from ooc_svm.text.inputs import MAX_LINE_BYTES, InputMetadata, display_name
from ooc_svm.text.reader import InputPath, TextSegment

# Sizes of the smallest and of the largest segment, in bytes.
_LEAST_BYTES, _MOST_BYTES = 1 << 20, 64 << 20
# Number of segments per reader: enough that waiting for the last one is short.
_SEGMENTS_PER_READER = 4
# Size of a read that looks for the end of a line, in bytes.
_SEARCH_BYTES = 1 << 16


@dataclass(frozen=True)
class SplitText:
    """The segments of all inputs, in their order; ``n_bytes`` is the size of all inputs on disk."""

    segments: list[TextSegment]
    inputs: list[InputMetadata]
    n_bytes: int


def split_text(inputs: Sequence[InputPath], readers: int) -> SplitText:
    """Split plain files at ends of lines; every other input is one segment.

    `readers` is the number of processes and threads that read at once; segments have from 1 to 64 MiB. Raises
    UsageError where there is no input, or one is standard input; InputError and StorageError where an input
    cannot be read, as `ooc_svm.text.reader.TextRows` does.
    """
    if not inputs:
        raise UsageError("no input: name at least one file")
    names = [os.fspath(each) for each in inputs]
    if "-" in names:
        advice = f"write it to a file, or leave out {parameter('engine', 'dask')}"
        raise UsageError(f"standard input (-) can be read by one process alone: {advice}")
    segments, metadata = [], []
    for name, opened in zip(names, inspected(names), strict=True):
        assert opened.state is not None
        # Other processes may have other working directories.
        segments.append(TextSegment(os.fspath(located(name).absolute()), opened.state.anywhere()))
        metadata.append(opened.metadata)
    n_bytes = sum(map(segment_bytes, segments))
    length = min(max(n_bytes // (_SEGMENTS_PER_READER * readers), _LEAST_BYTES), _MOST_BYTES)
    shorter = [
        segment
        for whole, about in zip(segments, metadata, strict=True)
        for segment in ([whole] if about.compression else _split(whole, length))
    ]
    return SplitText(shorter, metadata, n_bytes)


def segment_bytes(segment: TextSegment) -> int:
    """Bytes of a segment as they are on disk."""
    if segment.extent is not None:
        return segment.extent[1] - segment.extent[0]
    return 0 if segment.state is None else segment.state.size


def _split(whole: TextSegment, length: int) -> Iterator[TextSegment]:
    """Segments of a plain file of about this length."""
    size = segment_bytes(whole)
    try:
        with _placed_reads(whole.path) as read:
            start = 0
            while start < size:
                stop = _line_start(read, min(start + length, size), size)
                yield TextSegment(whole.path, whole.state, (start, stop))
                start = stop
    except OocSvmError:
        raise
    except OSError as error:
        name = display_name(whole.path)
        raise StorageError(f"{name}: reading failed: {error.strerror}; check the disk") from error


@contextmanager
def _placed_reads(path: str) -> Iterator[Callable[[int], bytes]]:
    """A function that reads some bytes of a file or object at a place."""
    if (address := address_of(path)) is not None:
        bucket = Bucket(address)
        yield lambda place: bytes(bucket.read(address.key, place, place + _SEARCH_BYTES))
        return
    descriptor = open_regular(path)
    try:
        yield lambda place: os.pread(descriptor, _SEARCH_BYTES, place)
    finally:
        close_unwritten(descriptor)


def _line_start(read: Callable[[int], bytes], place: int, size: int) -> int:
    """Where the first line begins that does not begin before a place; the end of the file if none does."""
    place -= 1  # where the line before may end
    limit = place + MAX_LINE_BYTES + 1
    while place < size:
        found = read(place).find(b"\n")
        if found >= 0:
            return place + found + 1
        place += _SEARCH_BYTES
        if place > limit:  # too long a line: its reader reports it
            return size
    return size

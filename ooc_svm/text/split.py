"""Text inputs cut into parts that can be read on their own, by anybody."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ooc_svm.errors import StorageError, UsageError
from ooc_svm.text.inputs import MAX_LINE_BYTES, display_name, open_source
from ooc_svm.text.reader import Input, SourceFacts, TextPart

_LEAST_BYTES, _MOST_BYTES = 1 << 20, 64 << 20
# Parts for each of those who read: so many that nobody waits long for the last one.
_PARTS_EACH = 4
_SEARCH_BYTES = 1 << 16


@dataclass(frozen=True)
class CutText:
    """The parts of all inputs, in their order.

    Attributes
    ----------
    parts : list of TextPart
    sources : list of SourceFacts
        The inputs.
    n_bytes : int
        Size of all inputs as they are on disk.
    """

    parts: list[TextPart]
    sources: list[SourceFacts]
    n_bytes: int


def cut_text(inputs: Sequence[Input], readers: int) -> CutText:
    """Cut inputs into parts: plain files at ends of lines, others are one part each.

    Parameters
    ----------
    inputs : sequence of paths
    readers : int
        How many read at once; parts have from 1 to 64 MiB.

    Raises
    ------
    UsageError
        There is no input, or one is standard input.
    InputError, StorageError
        An input cannot be read, as for `ooc_svm.text.reader.read_rows`.
    """
    if not inputs:
        raise UsageError("no input: name at least one file")
    text = CutText([], [], 0)
    for name in [os.fspath(each) for each in inputs]:
        if name == "-":
            raise UsageError(
                "standard input (-) can be read by one process alone: write it to a file, or leave out "
                "--engine dask"
            )
        with open_source(name) as source:
            text.sources.append(SourceFacts(source.name, source.size, source.mtime_ns, source.compression))
            assert source.state is not None
            text.parts.append(TextPart(name, source.state.anywhere()))
    n_bytes = sum(source.size or 0 for source in text.sources)
    length = min(max(n_bytes // (_PARTS_EACH * readers), _LEAST_BYTES), _MOST_BYTES)
    parts = [
        part
        for whole, source in zip(text.parts, text.sources, strict=True)
        for part in ([whole] if source.compression else _cut(whole, source.size or 0, length))
    ]
    return CutText(parts, text.sources, n_bytes)


def part_bytes(part: TextPart) -> int:
    """Bytes of a part as they are on disk."""
    if part.span is not None:
        return part.span[1] - part.span[0]
    return 0 if part.state is None else part.state.size


def _cut(whole: TextPart, size: int, length: int) -> Iterator[TextPart]:
    """Parts of about this length."""
    try:
        descriptor = os.open(whole.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            start = 0
            while start < size:
                stop = _line_start(descriptor, min(start + length, size), size)
                yield TextPart(whole.path, whole.state, (start, stop))
                start = stop
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StorageError(f"{display_name(whole.path)}: reading failed: {error.strerror}") from error


def _line_start(descriptor: int, place: int, size: int) -> int:
    """Where the first line begins that does not begin before a place; the end of the file if none does."""
    place -= 1  # where the line before may end
    limit = place + MAX_LINE_BYTES + 1
    while place < size:
        found = os.pread(descriptor, _SEARCH_BYTES, place).find(b"\n")
        if found >= 0:
            return place + found + 1
        place += _SEARCH_BYTES
        if place > limit:  # too long a line, as whoever reads it will say
            return size
    return size

"""How the memory of a conversion is divided; what does not fit is refused before the first byte is read."""

from __future__ import annotations

from dataclasses import dataclass

from ooc_svm.errors import MemoryBudgetError
from ooc_svm.memory import INTERPRETER_BYTES, format_size
from ooc_svm.sources import BLOCK_BYTES, MAX_LINE_BYTES
from ooc_svm.store.layout import CHUNK_ELEMENTS

# Compressing takes a fifth of the time of parsing: more threads would only hold more chunks.
_MOST_WRITE_THREADS = 4
_SMALLEST_BLOCK = 1 << 18
# Columns of one entry a row, metadata, the reading buffer.
_SMALL_PARTS = 16 << 20
# Rows kept back to be spilled together: with less, the pieces that are written become tiny.
_SMALLEST_SHUFFLE = 32 << 20


@dataclass(frozen=True, slots=True)
class ConversionPlan:
    """Sizes that keep a conversion inside its memory; the store does not depend on them.

    Attributes
    ----------
    threads : int
        Threads that parse.
    write_threads : int
        Chunks compressed at once.
    block_bytes : int
        Text parsed in one piece.
    max_line_bytes : int
        Longest line that fits.
    shuffle_bytes : int
        For rows kept back to be shuffled; 0 without shuffling.
    """

    threads: int
    write_threads: int
    block_bytes: int
    max_line_bytes: int
    shuffle_bytes: int


def _writer_bytes(threads: int, value_bytes: int) -> int:
    """Memory of a `StoreWriter`: chunks that are filled, that wait, and that are compressed."""
    largest = max(4, value_bytes)
    per_element = (4 + value_bytes) + 2 * threads * largest + threads * (largest + largest // 2)
    return CHUNK_ELEMENTS * per_element + _SMALL_PARTS


def _text_bytes_per_byte(threads: int, value_bytes: int) -> int:
    """Memory for each byte of a block of text, on the worst text: features and rows as short as can be."""
    parsed = (4 + value_bytes) / 4 + 24 / 16
    in_flight = 2 if threads == 1 else threads + 4
    return int(in_flight * (1 + parsed) + threads * parsed) + 1


def plan_conversion(budget: int, threads: int, value_bytes: int, *, shuffle: bool) -> ConversionPlan:
    """Divide the memory: as many of the threads as fit, then blocks of text as large as fit.

    Parameters
    ----------
    budget : int
        Bytes for the whole process.
    threads : int
        Most threads to use.
    value_bytes : {4, 8}
        Bytes of a value.
    shuffle : bool
        Whether rows are shuffled.

    Returns
    -------
    ConversionPlan

    Raises
    ------
    MemoryBudgetError
        Not even one thread fits; the message holds the sum.
    """
    shuffle_least = _SMALLEST_SHUFFLE if shuffle else 0
    for count in range(threads, 0, -1):
        write_threads = min(count, _MOST_WRITE_THREADS)
        writer, per_byte = _writer_bytes(write_threads, value_bytes), _text_bytes_per_byte(count, value_bytes)
        free = budget - INTERPRETER_BYTES - writer - shuffle_least
        text = free // 2 if shuffle else free
        if text < _SMALLEST_BLOCK * per_byte:
            continue
        block_bytes = min(text // per_byte, BLOCK_BYTES)
        max_line_bytes = min(text // per_byte, MAX_LINE_BYTES)
        rest = budget - INTERPRETER_BYTES - writer - max(block_bytes, max_line_bytes) * per_byte
        return ConversionPlan(count, write_threads, block_bytes, max_line_bytes, rest if shuffle else 0)
    text = _SMALLEST_BLOCK * per_byte
    needed = INTERPRETER_BYTES + writer + text * (2 if shuffle else 1) + shuffle_least
    raise MemoryBudgetError(
        f"a conversion needs at least {format_size(needed)} of memory "
        f"(program {format_size(INTERPRETER_BYTES)}, chunks being written {format_size(writer)}, "
        f"text {format_size(text)}{', shuffling ' + format_size(text + shuffle_least) if shuffle else ''}), "
        f"and {format_size(budget)} are allowed: allow more"
    )

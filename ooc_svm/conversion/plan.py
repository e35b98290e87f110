"""How the memory of a conversion is divided; what does not fit is refused before the first byte is read."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ooc_svm.conversion.options import ConvertOptions
from ooc_svm.errors import MemoryBudgetError
from ooc_svm.store.layout import CHUNK_ELEMENTS
from ooc_svm.store.sinks import UPLOADS_AT_ONCE
from ooc_svm.system.address import Address
from ooc_svm.system.malloc import return_freed_memory, share_freed_memory
from ooc_svm.system.memory import INTERPRETER_BYTES, format_size, memory_budget, size_needed
from ooc_svm.text.ahead import max_window_bytes, memory_for_objects
from ooc_svm.text.inputs import CHUNK_BYTES, MAX_LINE_BYTES
from ooc_svm.text.reader import InputPath

# Largest number of threads that compress: it takes a fifth of the time of parsing, and more hold more memory.
_MOST_WRITE_THREADS = 4
# Smallest chunk of text, in bytes.
_SMALLEST_CHUNK = 1 << 18
# Memory for columns of one entry a row, metadata, and the reading buffer, in bytes.
_FIXED_BYTES = 16 << 20
# Share of the memory, that of the program left out, for the names of sets of labels, and the least in bytes.
_NAMES_SHARE, _FEWEST_NAMES = 0.4, 4 << 20
# Bytes of a chunk of text, each of which takes several of memory, for a stored value of a block of a matrix.
_BYTES_PER_ELEMENT = 4
# Smallest memory for rows that wait to be spilled together, in bytes: with less, single writes become tiny.
_SMALLEST_REORDER = 32 << 20


@dataclass(frozen=True, slots=True)
class ConversionPlan:
    """Sizes that keep a conversion inside its memory; the store does not depend on them.

    ``threads`` threads parse, and ``write_threads`` compress chunks of the store. All other sizes are in
    bytes; ``reorder_bytes`` are for rows that are put into another order, 0 where they keep theirs,
    ``names_bytes`` for the names of sets of labels, and ``held_bytes`` for rows that are kept for a reader in
    the same process: what is left when all is twice what it is on usual text.
    """

    threads: int
    write_threads: int
    chunk_bytes: int
    max_line_bytes: int
    reorder_bytes: int
    names_bytes: int = 0
    held_bytes: int = 0

    @property
    def block_elements(self) -> int:
        """Stored values of a block of a matrix: ids and values as read, as converted, and a mask."""
        return self.chunk_bytes // _BYTES_PER_ELEMENT


def _writer_bytes(threads: int, value_bytes: int) -> int:
    """Memory of a `StoreWriter`: chunks being filled, waiting and being compressed."""
    largest = max(4, value_bytes)
    per_element = (4 + value_bytes) + 2 * threads * largest + threads * (largest + largest // 2)
    return CHUNK_ELEMENTS * per_element + _FIXED_BYTES


def _object_bytes(options: ConvertOptions, inputs: Sequence[InputPath]) -> int:
    """Memory for objects on their way: text that is fetched ahead, chunks that are sent or wait for it."""
    fetched = memory_for_objects(inputs)
    if not isinstance(options.output, Address):
        return fetched
    chunk_bytes = CHUNK_ELEMENTS * max(4, np.dtype(options.dtype).itemsize)
    return fetched + (UPLOADS_AT_ONCE + _MOST_WRITE_THREADS) * chunk_bytes


def _text_bytes_per_byte(threads: int, value_bytes: int) -> int:
    """Memory for each byte of a chunk of text, on the worst text: features and rows as short as can be.

    Chunks are read ahead and parsed while the rows of others wait to be written; a part of one is being
    decompressed, and the writer makes some columns of the rows it takes.
    """
    texts, parsed = (2, 2) if threads == 1 else (threads + 4, threads + 3)
    rows = (4 + value_bytes) / 4 + 24 / 16
    copies = (1 + value_bytes) / 4 + 16 / 16
    return int(texts + 1 + parsed * rows + copies) + 1


def plan_conversion(
    options: ConvertOptions, inputs: Sequence[InputPath] = (), *, sorts: bool = False, columns: int = 0
) -> ConversionPlan:
    """Divide the memory that the options allow; raises MemoryBudgetError where it is too small.

    `sorts`: rows are put together from parts, as much as if they were put into another order. `columns`:
    bytes of columns of all rows that are in memory from the beginning.
    """
    budget, names = memory_budget(options.memory), _FEWEST_NAMES if options.labels == "sets" else 0
    divide = partial(
        divide_memory,
        threads=options.thread_count,
        value_bytes=np.dtype(options.dtype).itemsize,
        reorder=options.reorders or sorts,
        window=max_window_bytes(inputs),
        objects=_object_bytes(options, inputs),
        columns=columns,
    )
    plan = divide(budget)
    if names:  # which are a part of what the least plan leaves, or of its memory for metadata
        wanted = int(_NAMES_SHARE * max(budget - INTERPRETER_BYTES, 0))
        with suppress(MemoryBudgetError):
            plan, names = divide(budget - wanted), wanted
    if plan.held_bytes and options.engine == "local":
        share_freed_memory()
    else:
        return_freed_memory()
    return replace(plan, names_bytes=names)


def divide_memory(
    budget: int,
    threads: int,
    value_bytes: int,
    *,
    reorder: bool,
    window: int = 0,
    objects: int = 0,
    columns: int = 0,
) -> ConversionPlan:
    """Divide memory: as many of the threads as fit, then chunks of text as large as fit.

    `budget` is in bytes for the whole process, `value_bytes` is 4 or 8, `window` is what decompressing the
    text needs (`ooc_svm.text.compression.window_bytes`), `objects` what is on its way from or to an object
    store, and `columns` those of all rows that are in memory. `reorder` says that rows are put into another
    order. Raises MemoryBudgetError where not even one thread fits; the message holds the sum.
    """
    reorder_least = _SMALLEST_REORDER if reorder else 0
    for count in range(threads, 0, -1):
        write_threads = min(count, _MOST_WRITE_THREADS)
        writer, per_byte = _writer_bytes(write_threads, value_bytes), _text_bytes_per_byte(count, value_bytes)
        fixed = INTERPRETER_BYTES + window + objects + columns + writer
        free = budget - fixed - reorder_least
        text = free // 2 if reorder else free
        if text < _SMALLEST_CHUNK * per_byte:
            continue
        chunk_bytes = min(text // per_byte, CHUNK_BYTES)
        max_line_bytes = min(text // per_byte, MAX_LINE_BYTES)
        needed = fixed + max(chunk_bytes, max_line_bytes) * per_byte
        sizes = chunk_bytes, max_line_bytes
        if reorder:
            return ConversionPlan(count, write_threads, *sizes, budget - needed)
        kept = max(budget - needed - (fixed + chunk_bytes * per_byte), 0)
        return ConversionPlan(count, write_threads, *sizes, 0, held_bytes=kept)
    parts = {
        "program": INTERPRETER_BYTES,
        "chunks being written": writer,
        "text": _SMALLEST_CHUNK * per_byte,
        "decompressing": window,
        "objects on their way": objects,
        "labels of all rows": columns,
        "another order of the rows": reorder_least and _SMALLEST_CHUNK * per_byte + reorder_least,
    }
    raise _too_little(budget, parts)


def _too_little(budget: int, parts: dict[str, int]) -> MemoryBudgetError:
    listed = ", ".join(f"{name} {format_size(nbytes)}" for name, nbytes in parts.items() if nbytes)
    needed = sum(parts.values())
    return MemoryBudgetError(
        f"a conversion needs at least {size_needed(needed)} of memory ({listed}), "
        f"and {format_size(budget)} are allowed: allow more",
        needed,
    )

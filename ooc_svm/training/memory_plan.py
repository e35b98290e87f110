"""How the memory allowed is divided among what a run needs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from ooc_svm.engine.local import BLOCKS_A_THREAD
from ooc_svm.engine.merge import MAX_SEGMENTS
from ooc_svm.errors import DamageError, MemoryBudgetError, parameter
from ooc_svm.options import TrainOptions
from ooc_svm.solvers.base import DataSize, MemoryItem, Room, SolverPackage, SolverPlan
from ooc_svm.system.memory import (
    APART_BYTES,
    COMPILING_BOTH_BYTES,
    COMPILING_BYTES,
    CONVERTED_TRAINER_BYTES,
    INTERPRETER_BYTES,
    TRAINER_BYTES,
    format_size,
    memory_budget,
    size_needed,
)

LEAST_SORTING_BYTES = 16 * 10**6  # Bytes that sorting takes where most of it is in scratch files
SLACK = 0.05  # Share of the memory that is left unplanned
RESERVE = "reserve"  # What that share is called
# For measuring the quality: bytes at least, and of another store the part of the memory allowed
LEAST_VALIDATION_BYTES, VALIDATION_PART = 64 * 10**6, 8


@dataclass(frozen=True, slots=True)
class Workload:
    """The sizes that the division follows from."""

    size: DataSize
    target_bytes: int  # Bytes a row of the row vectors that come from the data
    block_nbytes: int  # Bytes of the largest decoded block; 0 for a matrix in memory
    data_nbytes: int  # Bytes of all decoded blocks, with columns that are held with them
    threads: int
    program_bytes: int = TRAINER_BYTES  # Bytes of Python and its libraries
    holds_rows: bool = True  # Whether row vectors are in this process
    ahead_nbytes: int = 0  # Bytes of chunks that a thread fetches ahead, where that is worth memory
    finished_bytes: int = 0  # Bytes of the weights of all batches, where models are trained in batches
    measuring: tuple[MemoryItem, ...] = ()  # The quality of the models

    @property
    def first_bytes(self) -> int:
        """Bytes that are taken whatever the solver is."""
        return self.program_bytes + sum(item.nbytes for item in self.measuring) + self.finished_bytes


@dataclass(frozen=True, slots=True)
class Budget:
    """The division of the memory."""

    total: int  # Bytes allowed
    plan: SolverPlan
    # What row vectors in memory, pinned blocks and sorting for the pairs of rows may use
    row_vector_bytes: int
    cache_bytes: int
    sorting_bytes: int
    ahead_bytes: int  # For chunks that are fetched ahead; they take no part in what the bits depend on
    items: tuple[MemoryItem, ...]  # What is needed, the cache left out

    @property
    def needed(self) -> int:
        """Sum of the items."""
        return sum(item.nbytes for item in self.items)

    @property
    def left(self) -> int:
        """Bytes that are planned for nothing."""
        return max(_usable(self.total) - self.needed - self.cache_bytes - self.ahead_bytes, 0)


def compiling(options: TrainOptions) -> AbstractContextManager[None]:
    """While this lasts functions are compiled in a process of their own, if there is memory for two."""
    if not _compiles_apart(options):
        return nullcontext()
    from ooc_svm.training.compile_process import compiled_apart

    return compiled_apart()


def _compiles_apart(options: TrainOptions) -> bool:
    if options.engine != "local" or memory_budget(options.memory) < APART_BYTES:
        return False
    from ooc_svm.training.compile_process import can_compile_apart

    return can_compile_apart()


def program_bytes(options: TrainOptions, *, converted: bool) -> int:
    """Bytes of Python and its libraries: a cluster has its own, and a conversion leaves some."""
    if options.engine == "dask":
        return INTERPRETER_BYTES
    if _compiles_apart(options):
        return CONVERTED_TRAINER_BYTES if converted else TRAINER_BYTES
    return COMPILING_BOTH_BYTES if converted else COMPILING_BYTES


def fold_bytes(options: TrainOptions, n_folds: int) -> int:
    """Bytes that comparing values of C on folds, or a calibration, may use."""
    return LEAST_VALIDATION_BYTES if n_folds or options.calibrate is not None else 0


def validation_bytes(options: TrainOptions) -> int:
    """Bytes that measuring the quality on another store may use."""
    if options.validation is None or options.held_out_share is not None:
        return 0
    return max(memory_budget(options.memory) // VALIDATION_PART, LEAST_VALIDATION_BYTES)


def measuring(options: TrainOptions, n_folds: int) -> tuple[MemoryItem, ...]:
    """The buffers for the rows that models are measured on: of folds, or of another store."""
    items = []
    if nbytes := fold_bytes(options, n_folds):
        name = "comparing folds" if options.calibrate is None else "calibration"
        items.append(MemoryItem(name, nbytes, "at most: scores in order"))
    if nbytes := validation_bytes(options):
        name = os.path.basename(str(options.validation).rstrip("/"))
        items.append(MemoryItem(f"measuring on {name}", nbytes, "at most: it takes what that store needs"))
    return tuple(items)


def room_of(work: Workload, total: int) -> Room:
    """What a solver may use of ``total`` bytes."""
    partials = work.threads + MAX_SEGMENTS.bit_length() // 2 + 2
    nbytes = _usable(total) - work.first_bytes
    return Room(nbytes, work.threads, work.block_nbytes, BLOCKS_A_THREAD, partials, LEAST_SORTING_BYTES)


def divide(
    work: Workload,
    solver: SolverPackage,
    options: TrainOptions,
    total: int,
    *,
    kept: Mapping[str, int] | None = None,
) -> Budget:
    """Divide ``total`` bytes.

    Nothing is refused but the least plan of a solver, which does not follow from the memory allowed: so the
    sum that a refusal names is enough.

    ``kept``: the solver's parameters that a saved state was made with; no others are tried.
    DamageError if the parameters kept cannot be those of a run on these data.
    MemoryBudgetError if not even the smallest division fits; the message holds the sum.
    """
    alone = None
    try:
        plan = solver.plan(work.size, options, room_of(work, total), kept)
        if _least_bytes(work, plan) > _usable(total):
            plan = least_plan(work, solver, options, kept)
            alone = least_plan(replace(work, threads=1), solver, options, kept)
    except ValueError as error:
        raise DamageError(f"the checkpoint cannot be of this run: {error}; start the run again") from error
    return with_plan(work, plan, total, options, alone=alone)


def least_plan(
    work: Workload, solver: SolverPackage, options: TrainOptions, kept: Mapping[str, int] | None
) -> SolverPlan:
    """The plan of a solver that needs the least memory."""
    return solver.plan(work.size, options, replace(room_of(work, 0), nbytes=0), kept)


def with_plan(
    work: Workload,
    plan: SolverPlan,
    total: int,
    options: TrainOptions | None = None,
    *,
    alone: SolverPlan | None,
) -> Budget:
    """Divide ``total`` bytes for a solver's plan.

    ``options``: those that the advice of a refusal follows from, where they are this process's.
    ``alone``: the plan of one thread; without it a refusal does not advise fewer threads.

    What is left goes to sorting, chunks ahead and row vectors, then to the block cache.

    MemoryBudgetError if it does not fit.
    """
    usable, size = _usable(total), work.size
    items = [MemoryItem("Python and libraries", work.program_bytes, "before any data"), *work.measuring]
    if work.finished_bytes:
        note = f"weights of all batches; {size.n_models} model(s) at a time"
        items.append(MemoryItem("finished models", work.finished_bytes, note))
    items += plan.items
    left = max(0, usable - sum(item.nbytes for item in items))
    sorting = 0
    if plan.sorts_by:
        items.append(_sorting(size.n_rows, plan.sorts_by, left))
        sorting = items[-1].nbytes
        left = max(0, left - sorting)
    row_bytes = plan.row_bytes + work.target_bytes if work.holds_rows else 0
    # A pass over a bucket waits for chunks longer than for row vectors on the local disk.
    ahead = min(left, work.threads * work.ahead_nbytes) if work.block_nbytes else 0
    row_vectors = min(left - ahead, size.n_rows * row_bytes)
    items.append(_row_vectors(size.n_rows, row_bytes, row_vectors))
    cache = min(left - ahead - row_vectors, work.data_nbytes) if work.block_nbytes else 0
    budget = Budget(total, plan, row_vectors, cache, sorting, ahead, tuple(items))
    if budget.needed <= usable:
        return budget
    needed = ceil(budget.needed / (1 - SLACK)) + 1
    fewer_threads = alone is not None and _least_bytes(work, alone) < _least_bytes(work, plan)
    parts = [*budget.items, MemoryItem(RESERVE, needed - budget.needed, "")]
    sum_text = " + ".join(f"{item.name} {format_size(item.nbytes)}" for item in parts)
    raise MemoryBudgetError(
        f"training needs {size_needed(needed)} of memory, "
        f"allowed are {format_size(total)}: {sum_text}; allow more ({parameter('memory')})"
        f"{_smaller(work, options, fewer_threads)}",
        needed,
    )


def _smaller(work: Workload, options: TrainOptions | None, fewer_threads: bool) -> str:
    """What would need less memory: only what the run has several of, or what was asked for."""
    several_costs = work.size.n_models > 1 if options is None else len(options.C) > 1
    fewer = ["values of C"] * several_costs + [parameter("threads")] * fewer_threads
    asked = ("cut_groups", "resident")  # By default these are as small as they have to be
    smaller = [parameter(name) for name in asked if options and getattr(options, name) is not None]
    parts = [f"use fewer {' or '.join(fewer)}"] if fewer else []
    parts += [f"give a smaller {' or '.join(smaller)}"] if smaller else []
    return f", or {', or '.join(parts)}" if parts else ""


def _usable(total: int) -> int:
    """Bytes of ``total`` that are planned."""
    return int(total * (1 - SLACK))


def _least_bytes(work: Workload, plan: SolverPlan) -> int:
    """Bytes without which nothing runs: row vectors and most of sorting may be on disk."""
    sorting = LEAST_SORTING_BYTES if plan.sorts_by else 0
    return work.first_bytes + sum(item.nbytes for item in plan.items) + sorting


def _sorting(n_rows: int, groups: int, left: int) -> MemoryItem:
    """Sorting for the pairs of rows: in memory if half of what is left will do, else by parts."""
    from ooc_svm.pairs.active import sorting_row_bytes

    wanted = n_rows * sorting_row_bytes(groups)
    nbytes = max(min(wanted, left // 2), LEAST_SORTING_BYTES)
    rest = "" if nbytes >= wanted else f", {format_size(wanted - nbytes)} of it in scratch files"
    return MemoryItem("sorting", nbytes, f"{n_rows} rows{rest}")


def _row_vectors(n_rows: int, row_bytes: int, in_memory: int) -> MemoryItem:
    needed = n_rows * row_bytes
    rest = "" if in_memory >= needed else f", {format_size(needed - in_memory)} of it in a scratch file"
    return MemoryItem("row vectors", in_memory, f"{n_rows} rows of {row_bytes} bytes{rest}")


def note_of(item: MemoryItem) -> str:
    """How the bytes of an item come about, for people."""
    return item.note.format(each=format_size(item.each))


def to_json(items: Sequence[MemoryItem]) -> list[dict[str, Any]]:
    """The items as JSON can hold them."""
    return [{"name": item.name, "bytes": item.nbytes, "note": note_of(item)} for item in items]

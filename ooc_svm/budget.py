"""How the memory allowed is divided among what a run needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ooc_svm.engine.base import MAX_SEGMENTS
from ooc_svm.engine.local import BLOCKS_A_THREAD
from ooc_svm.errors import MemoryBudgetError
from ooc_svm.memory import INTERPRETER_BYTES, format_size
from ooc_svm.options import TrainOptions

GROUP_CHOICES = (8, 4, 2, 1)
MANY_POINTS = 5
# Who asks for groups wants few reads, whatever they cost.
MOST_POINTS = 13

# Cuts kept for each one that a read adds; with less, cuts that are still needed have to go.
READS_KEPT = 20
FEWEST_READS_KEPT = 8
PLAIN_CUTS = 200

# Elements of the data for each group, and for each parameter of one: below, more groups and more points on
# a ray take more time in sums of rows and in the master problem than the reads that they save.
ELEMENTS_A_GROUP = 2_000_000
ELEMENTS_A_PARAMETER = 1000

SLACK = 0.05


@dataclass(frozen=True, slots=True)
class PlanItem:
    """One use of memory: its name, its bytes, and how they come about."""

    name: str
    nbytes: int
    note: str


@dataclass(frozen=True, slots=True)
class Budget:
    """The division of the memory.

    Attributes
    ----------
    total : int
        Bytes allowed.
    groups, points, max_cuts : int
        Groups of rows, points that cuts are taken at in one read, and cuts kept by each model: parameters of
        the algorithm.
    row_vector_bytes, cache_bytes : int
        What row vectors in memory and pinned blocks may use.
    items : tuple of PlanItem
        What is needed, the cache left out.
    """

    total: int
    groups: int
    points: int
    max_cuts: int
    row_vector_bytes: int
    cache_bytes: int
    items: tuple[PlanItem, ...]

    @property
    def needed(self) -> int:
        """Sum of the items."""
        return sum(item.nbytes for item in self.items)


@dataclass(frozen=True, slots=True)
class Workload:
    """The sizes that the division follows from.

    Attributes
    ----------
    n_rows, n_nonzeros : int
    dimension : int
        Parameters of one model.
    n_models : int
    block_nbytes : int
        Bytes of the largest decoded block; 0 for a matrix in memory.
    data_nbytes : int
        Bytes of all decoded blocks.
    vector_bytes : int
        Bytes a row of all row vectors.
    threads : int
    """

    n_rows: int
    n_nonzeros: int
    dimension: int
    n_models: int
    block_nbytes: int
    data_nbytes: int
    vector_bytes: int
    threads: int


def divide(
    work: Workload, options: TrainOptions, total: int, *, keep: tuple[int, int, int] | None = None
) -> Budget:
    """Divide ``total`` bytes.

    Parameters
    ----------
    work : Workload
    options : TrainOptions
    total : int
    keep : (groups, points, max_cuts), optional
        Parameters that a saved state was made with; no others are tried.

    Raises
    ------
    MemoryBudgetError
        If not even the smallest division fits; the message holds the sum.
    """
    usable = int(total * (1 - SLACK))
    budget = None
    for groups, points in _choices(work, options) if keep is None else [keep[:2]]:
        added = groups * points
        wanted = max(PLAIN_CUTS, READS_KEPT * added) if keep is None else keep[2]
        fewest = groups + added + 1 if keep is None else wanted
        budget = _with_cuts(work, total, usable, (groups, points), (fewest, wanted))
        if budget.needed <= usable and budget.max_cuts >= min(wanted, FEWEST_READS_KEPT * added):
            return budget
    assert budget is not None
    if budget.needed <= usable:
        return budget
    sum_text = " + ".join(f"{item.name} {format_size(item.nbytes)}" for item in budget.items)
    raise MemoryBudgetError(
        f"training needs {format_size(budget.needed / (1 - SLACK))} of memory, "
        f"allowed are {format_size(total)}: "
        f"{sum_text}; allow more with --memory, or use fewer values of C, threads or --cut-groups"
    )


def _choices(work: Workload, options: TrainOptions) -> list[tuple[int, int]]:
    """Groups and points worth trying, the best first."""
    asked = options.cut_groups
    if options.resolved_solver != "ocas":
        return [(asked or 1, 1)]
    groups_worth = work.n_nonzeros // (ELEMENTS_A_PARAMETER * max(work.dimension, 1))
    if groups_worth == 0:
        return [(asked or 1, 1)]
    if asked is not None:
        points = (MOST_POINTS, MANY_POINTS, 1) if asked > 1 else (MANY_POINTS, 1)
        return [(asked, p) for p in points]
    worth = min(groups_worth, work.n_nonzeros // ELEMENTS_A_GROUP)
    groups = [g for g in GROUP_CHOICES if g <= worth] or [1]
    return [*((g, MANY_POINTS) for g in groups), (1, 1)]


def _with_cuts(
    work: Workload, total: int, usable: int, algorithm: tuple[int, int], cuts_kept: tuple[int, int]
) -> Budget:
    """The division for these groups and points, with as many of the wanted cuts as fit."""
    (groups, points), (fewest, wanted) = algorithm, cuts_kept
    vector = 8 * work.dimension * work.n_models
    added = groups * points
    partials = work.threads + MAX_SEGMENTS.bit_length() // 2 + 2
    blocks = (BLOCKS_A_THREAD + 1) * work.threads
    sums_note = f"{partials} times {groups} group(s) at {points} point(s)"
    items = [
        PlanItem("Python and libraries", INTERPRETER_BYTES, "before any data"),
        PlanItem("weights", 8 * vector, f"8 vectors of {work.dimension} for {work.n_models} model(s)"),
        PlanItem("sums of a pass", partials * added * vector, sums_note),
        PlanItem(
            "blocks being read", blocks * work.block_nbytes, f"{blocks} of {format_size(work.block_nbytes)}"
        ),
    ]
    left = usable - sum(item.nbytes for item in items)
    cuts = int(min(max(fewest, left * 3 // 4 // max(vector, 1)), max(wanted, fewest)))
    gram = 24 * cuts * cuts * work.n_models
    items.append(
        PlanItem("cuts", cuts * vector + gram, f"{cuts} of {format_size(8 * work.dimension)} a model")
    )
    left -= items[-1].nbytes
    row_vectors = max(0, min(left, work.n_rows * work.vector_bytes))
    items.append(PlanItem("row vectors", row_vectors, _row_vector_note(work, row_vectors)))
    cache = min(max(0, left - row_vectors) if work.block_nbytes else 0, work.data_nbytes)
    return Budget(total, groups, points, cuts, row_vectors, cache, tuple(items))


def _row_vector_note(work: Workload, in_memory: int) -> str:
    needed = work.n_rows * work.vector_bytes
    note = f"{work.n_rows} rows of {work.vector_bytes} bytes"
    return (
        note if in_memory >= needed else f"{note}, {format_size(needed - in_memory)} of it in a scratch file"
    )


def to_json(items: Sequence[PlanItem]) -> list[dict[str, Any]]:
    """The items as JSON can hold them."""
    return [{"name": item.name, "bytes": item.nbytes, "note": item.note} for item in items]

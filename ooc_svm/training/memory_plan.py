"""How the memory allowed is divided among what a run needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ooc_svm.engine.base import MAX_SEGMENTS
from ooc_svm.engine.local import BLOCKS_A_THREAD
from ooc_svm.errors import MemoryBudgetError
from ooc_svm.options import TrainOptions
from ooc_svm.pairs.active import sorting_row_bytes
from ooc_svm.solvers.cutting_plane.row_oracle import slots_of
from ooc_svm.solvers.streamed_smo.solver import effort_for
from ooc_svm.system.memory import TRAINER_BYTES, format_size

GROUP_CHOICES = (8, 4, 2, 1)
MANY_POINTS = 5
# Who asks for groups wants few reads, whatever they cost.
MOST_POINTS = 13
# Where losses are of pairs of rows: one exact cut and guessed ones.
MANY_PAIR_POINTS, FEW_PAIR_POINTS = 4, 2

# Bins of the scores of each rank that guessed cuts are made from: fewer make cuts that are less tight, with
# 16 of them it takes a fifth to a half more reads. They are as many as cost next to nothing: in numbers, and
# in elements of the data for each number.
BIN_CHOICES = (256, 128, 64, 32, 16)
PLAIN_TABLE, ELEMENTS_A_SUM = 1 << 20, 16
# Pairs of bins are gone through one by one.
MOST_PAIRS_OF_BINS = 1 << 24

# Cuts kept for each one that a read adds; with less, cuts that are still needed have to go.
READS_KEPT = 20
FEWEST_READS_KEPT = 8
PLAIN_CUTS = 200

# Elements of the data for each group, and for each parameter of one: below, more groups and more points on
# a ray take more time in sums of rows and in the master problem than the reads that they save.
ELEMENTS_A_GROUP = 2_000_000
ELEMENTS_A_PARAMETER = 1000

# Shares of the data that may be held in memory; larger ones take more time than they save, and of little data
# the first ones do too.
SHARES = (
    *(0.2, 0.15, 0.12, 0.1, 0.08, 0.06, 0.05, 0.04, 0.03, 0.02, 0.015, 0.01),
    *(0.007, 0.005, 0.003, 0.002, 0.001, 1e-4, 1e-5, 1e-6),
)
LITTLE_DATA, MOST_OF_LITTLE = 20_000_000, 0.1
# Nonzeros and rows together that are all held, if there are no more: that saves reads. But they may take no
# more than this part of what resident rows could.
FEW_ELEMENTS, FEW_PART = 1 << 16, 0.25

# The part of what is left that resident rows may take: they save more than row vectors and blocks in memory.
RESIDENT_PART = 0.95

# What sorting takes where most of it is in scratch files.
LEAST_SORTING_BYTES = 16 * 10**6

# Bytes of a resident row beside its nonzeros: the same row being offered, the two being put together, and
# having left.
RESIDENT_ROW_BYTES = 400

SLACK = 0.05


@dataclass(frozen=True, slots=True)
class PlanItem:
    """One use of memory: its name, its bytes, and how they come about."""

    name: str
    nbytes: int
    note: str


@dataclass(frozen=True, slots=True)
class Parameters:
    """What follows from the memory and is a parameter of the algorithm.

    Attributes
    ----------
    groups, points, max_cuts : int
        Cutting planes: groups of rows, points that cuts are taken at in one read, and cuts kept by a model.
    bins : int
        Over pairs of rows: bins of the scores of each rank, which all points but one are guessed by.
    capacity : int
        Streamed SMO: nonzeros and rows together that a model holds in memory.
    """

    groups: int = 1
    points: int = 1
    max_cuts: int = 0
    capacity: int = 0
    bins: int = 0


@dataclass(frozen=True, slots=True)
class Budget:
    """The division of the memory.

    Attributes
    ----------
    total : int
        Bytes allowed.
    parameters : Parameters
    row_vector_bytes, cache_bytes, sorting_bytes : int
        What row vectors in memory, pinned blocks and sorting for the pairs of rows may use.
    items : tuple of PlanItem
        What is needed, the cache left out.
    """

    total: int
    parameters: Parameters
    row_vector_bytes: int
    cache_bytes: int
    items: tuple[PlanItem, ...]
    sorting_bytes: int = 0

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
    value_bytes : int
        Bytes of one stored value in memory: 0 where every value is 1.
    threads : int
    coefficient_bytes : int
        Bytes a row of the coefficients of one cut, where they are kept.
    sorts : bool
        Whether rows are sorted by their scores, for the pairs of rows.
    n_ranks : int
        Ranks of the rows, where all of them are compared; 0: they are not, or there are very many.
    program_bytes : int
        Bytes of Python and its libraries.
    """

    n_rows: int
    n_nonzeros: int
    dimension: int
    n_models: int
    block_nbytes: int
    data_nbytes: int
    vector_bytes: int
    value_bytes: int
    threads: int
    coefficient_bytes: int = 0
    sorts: bool = False
    n_ranks: int = 0
    program_bytes: int = TRAINER_BYTES


def divide(work: Workload, options: TrainOptions, total: int, *, keep: Parameters | None = None) -> Budget:
    """Divide ``total`` bytes.

    Parameters
    ----------
    work : Workload
    options : TrainOptions
    total : int
    keep : Parameters, optional
        Those that a saved state was made with; no others are tried.

    Raises
    ------
    MemoryBudgetError
        If not even the smallest division fits; the message holds the sum.
    """
    divided = _with_residents if options.resolved_solver == "streamed-smo" else _with_best_cuts
    budget = divided(work, options, total, keep)
    if budget.needed <= int(total * (1 - SLACK)):
        return budget
    sum_text = " + ".join(f"{item.name} {format_size(item.nbytes)}" for item in budget.items)
    raise MemoryBudgetError(
        f"training needs {format_size(budget.needed / (1 - SLACK))} of memory, "
        f"allowed are {format_size(total)}: {sum_text}; allow more with --memory, or use fewer values of C, "
        "threads, --cut-groups or --resident"
    )


def _with_residents(work: Workload, options: TrainOptions, total: int, keep: Parameters | None) -> Budget:
    """The division for streamed SMO: the resident set before row vectors in memory and the block cache."""
    vector = 8 * work.dimension * work.n_models
    size = max(work.n_nonzeros + work.n_rows, 1)
    row_bytes = RESIDENT_ROW_BYTES * work.n_rows / size
    lanes = effort_for(work.n_nonzeros, 1.0, options.lanes).lanes

    def rows_nbytes(capacity: int) -> int:
        """What the resident rows need, and those that a round offers on top of them."""
        share = min(1.0, capacity / size)
        element = (1 + effort_for(work.n_nonzeros, share).offered) * (4 + work.value_bytes)
        return int(share * size * work.n_models * (element + row_bytes))

    def without_rows(threads: int) -> list[PlanItem]:
        """What is needed beside the resident rows."""
        # No more threads have blocks than there are lanes, but where columns are measured first.
        blocks = (BLOCKS_A_THREAD + 1) * min(threads, lanes)
        blocks = max(blocks, BLOCKS_A_THREAD * threads if options.scale != "none" else 0)
        # Lanes being swept, and those that wait for a neighbour to be merged with.
        alive = min(lanes, threads + 3)
        return [
            *_common_items(work, blocks),
            PlanItem("weights", 9 * vector, f"9 vectors of {work.dimension} for {work.n_models} model(s)"),
            PlanItem("lanes", 2 * alive * vector, f"2 vectors for each of {alive}"),
        ]

    def left(threads: int) -> int:
        return int(total * (1 - SLACK)) - sum(item.nbytes for item in without_rows(threads))

    # The share is a parameter of the algorithm: where memory lets it, it does not follow from threads.
    room = RESIDENT_PART * max(min(left(lanes), left(work.threads)), 0)

    if keep is not None:
        capacity = keep.capacity
    elif options.resident is not None:
        capacity = math.ceil(options.resident * size)
    else:
        most = MOST_OF_LITTLE if work.n_nonzeros < LITTLE_DATA else 1.0
        shares = [share for share in SHARES if share <= most]
        capacities = [math.ceil(share * size) for share in shares]
        fitting = [capacity for capacity in capacities if rows_nbytes(capacity) <= room]
        capacity = (fitting or capacities[-1:])[0]
        few = min(size, FEW_ELEMENTS)
        if rows_nbytes(few) <= FEW_PART * room:
            capacity = max(capacity, few)
    note = f"{100 * capacity / size:.3g} % of the data for each of {work.n_models} model(s)"
    rows = PlanItem("resident rows", rows_nbytes(capacity), note)
    items = [*without_rows(work.threads), rows]
    return _rest(work, total, Parameters(capacity=capacity), items)


def _with_best_cuts(work: Workload, options: TrainOptions, total: int, keep: Parameters | None) -> Budget:
    """The division for cutting planes: the best of the choices whose cuts fit."""
    usable = int(total * (1 - SLACK))
    budget = None
    for choice in _choices(work, options) if keep is None else [keep]:
        added = choice.groups * choice.points
        wanted = max(PLAIN_CUTS, READS_KEPT * added) if keep is None else keep.max_cuts
        fewest = choice.groups + added + 1 if keep is None else wanted
        budget = _with_cuts(work, total, usable, choice, (fewest, wanted))
        enough = budget.parameters.max_cuts >= min(wanted, FEWEST_READS_KEPT * added)
        if budget.needed <= usable and enough:
            break
    assert budget is not None
    return budget


def can_follow(work: Workload, options: TrainOptions, kept: Parameters) -> bool:
    """Whether parameters can be those of a run on this data with these options."""
    if options.resolved_solver == "streamed-smo":
        return kept.capacity > 0 and replace(kept, capacity=0) == Parameters()
    return kept.max_cuts > 0 and replace(kept, max_cuts=0) in _choices(work, options)


def _choices(work: Workload, options: TrainOptions) -> list[Parameters]:
    """Groups and points worth trying, the best first."""
    asked = options.cut_groups
    if options.resolved_solver != "ocas":
        return [Parameters(asked or 1)]
    groups_worth = work.n_nonzeros // (ELEMENTS_A_PARAMETER * max(work.dimension, 1))
    if options.over_pairs:
        return _pair_choices(work, options.problem, asked or 1, groups_worth > 0)
    if groups_worth == 0:
        return [Parameters(asked or 1)]
    if asked is not None:
        points = (MOST_POINTS, MANY_POINTS, 1) if asked > 1 else (MANY_POINTS, 1)
        return [Parameters(asked, p) for p in points]
    worth = min(groups_worth, work.n_nonzeros // ELEMENTS_A_GROUP)
    groups = [g for g in GROUP_CHOICES if g <= worth] or [1]
    return [*(Parameters(g, MANY_POINTS) for g in groups), Parameters()]


def _pair_choices(work: Workload, problem: str, groups: int, many: bool) -> list[Parameters]:
    """Guessed points with as many bins as cost little, then none."""
    points = (MANY_PAIR_POINTS, FEW_PAIR_POINTS) if many else (FEW_PAIR_POINTS,)
    if problem == "ranking":
        return [Parameters(groups, points[0]), Parameters(groups)]
    each = work.n_ranks * groups * work.dimension
    # As above, who asks for groups wants few reads.
    most = max(PLAIN_TABLE, work.n_nonzeros // ELEMENTS_A_SUM) * groups
    bins = [b for b in BIN_CHOICES if groups * (b * work.n_ranks) ** 2 <= MOST_PAIRS_OF_BINS]
    fitting = [(p, b) for p in points for b in bins if 0 < (p - 1) * b * each <= most]
    return [*(Parameters(groups, p, bins=b) for p, b in fitting), Parameters(groups)]


def _with_cuts(
    work: Workload, total: int, usable: int, choice: Parameters, cuts_kept: tuple[int, int]
) -> Budget:
    """The division for these groups and points, with as many of the wanted cuts as fit."""
    fewest, wanted = cuts_kept
    vector = 8 * work.dimension * work.n_models
    partials = work.threads + MAX_SEGMENTS.bit_length() // 2 + 2
    sums, what = slots_of(choice.points) * vector, ""
    if choice.bins:
        slots = (choice.points - 1) * choice.bins * work.n_ranks
        # With each slot its weight and its score.
        sums = vector + slots * (vector + 16 * work.n_models)
        what = f", {choice.bins} bins of {work.n_ranks} rank(s)"
    sums_note = f"{partials} times {choice.groups} group(s) at {choice.points} point(s){what}"
    items = [
        *_common_items(work, (BLOCKS_A_THREAD + 1) * work.threads),
        PlanItem("weights", 8 * vector, f"8 vectors of {work.dimension} for {work.n_models} model(s)"),
        PlanItem("sums of a pass", partials * choice.groups * sums, sums_note),
    ]
    left = usable - sum(item.nbytes for item in items)
    cuts = int(min(max(fewest, left * 3 // 4 // max(vector, 1)), max(wanted, fewest)))
    gram = 24 * cuts * cuts * work.n_models
    items.append(
        PlanItem("cuts", cuts * vector + gram, f"{cuts} of {format_size(8 * work.dimension)} a model")
    )
    return _rest(work, total, replace(choice, max_cuts=cuts), items)


def _sorting(work: Workload, groups: int, left: int) -> PlanItem:
    """Sorting for the pairs of rows: in memory if half of what is left will do, else by parts."""
    wanted = work.n_rows * sorting_row_bytes(groups)
    nbytes = max(min(wanted, left // 2), LEAST_SORTING_BYTES)
    rest = "" if nbytes >= wanted else f", {format_size(wanted - nbytes)} of it in scratch files"
    return PlanItem("sorting", min(nbytes, max(wanted, LEAST_SORTING_BYTES)), f"{work.n_rows} rows{rest}")


def _common_items(work: Workload, blocks: int) -> list[PlanItem]:
    """What every solver needs, so many blocks being alive."""
    note = f"{blocks} of {format_size(work.block_nbytes)}"
    return [
        PlanItem("Python and libraries", work.program_bytes, "before any data"),
        PlanItem("blocks being read", blocks * work.block_nbytes, note),
    ]


def _rest(work: Workload, total: int, parameters: Parameters, items: list[PlanItem]) -> Budget:
    """What is left goes to sorting and row vectors, then to the block cache."""
    left = max(0, int(total * (1 - SLACK)) - sum(item.nbytes for item in items))
    sorting = 0
    if work.sorts:
        items.append(_sorting(work, parameters.groups, left))
        sorting = items[-1].nbytes
        left = max(0, left - sorting)
    row_bytes = work.vector_bytes + work.coefficient_bytes * parameters.groups * work.n_models
    row_vectors = min(left, work.n_rows * row_bytes)
    items.append(PlanItem("row vectors", row_vectors, _row_vector_note(work.n_rows, row_bytes, row_vectors)))
    cache = min(left - row_vectors if work.block_nbytes else 0, work.data_nbytes)
    return Budget(total, parameters, row_vectors, cache, tuple(items), sorting)


def _row_vector_note(n_rows: int, row_bytes: int, in_memory: int) -> str:
    needed = n_rows * row_bytes
    note = f"{n_rows} rows of {row_bytes} bytes"
    return (
        note if in_memory >= needed else f"{note}, {format_size(needed - in_memory)} of it in a scratch file"
    )


def to_json(items: Sequence[PlanItem]) -> list[dict[str, Any]]:
    """The items as JSON can hold them."""
    return [{"name": item.name, "bytes": item.nbytes, "note": item.note} for item in items]

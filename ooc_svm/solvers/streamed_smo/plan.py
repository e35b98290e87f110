"""What streamed SMO needs: the share of the data that its working set holds, and the solvers themselves."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import ClassVar

import numpy as np

from ooc_svm.options import TrainOptions
from ooc_svm.passes.base import RowSet
from ooc_svm.problems.base import ModelSpec
from ooc_svm.solvers.base import (
    MANY_COLUMNS,
    MANY_MODELS,
    NO_ROOM,
    Context,
    DataSize,
    FunctionKinds,
    MemoryItem,
    Room,
    Solver,
    SolverPlan,
)
from ooc_svm.solvers.streamed_smo.company import MOST_OFFERS, Company
from ooc_svm.solvers.streamed_smo.dual import DualModel
from ooc_svm.solvers.streamed_smo.effort import EFFORTS, FEWEST_FUSED, MOST_FUSED, Effort, effort_for
from ooc_svm.solvers.streamed_smo.first_bracket import N_MODELS, N_VECTORS
from ooc_svm.solvers.streamed_smo.path import Path
from ooc_svm.solvers.streamed_smo.resident_rows import (
    PARTS,
    ResidentRows,
    are_long,
    count_parts,
    factor_sweeps,
    has_factor,
    has_proximal_steps,
    has_shared_steps,
    is_narrow,
    most_columns,
    proximal_bytes,
)
from ooc_svm.solvers.streamed_smo.rounds import Round, cut_rounds, opening
from ooc_svm.solvers.streamed_smo.solver import StreamedSmo
from ooc_svm.solvers.streamed_smo.state import SmoState
from ooc_svm.solvers.streamed_smo.warm_start import SmoWarmStarting

# Shares of the data that may be held in memory: a tenth less each time. A larger one takes fewer reads, but
# moves rows that will not be free in the end. (61 M generated nonzeros with C of 1 and 8: 0.3 takes 4 and 8
# reads, 6.6 and 17 s of the processors; 0.5 takes 3 and 4 reads, 4.3 and 10.6 s; all of them 5.0 and 12.4 s.)
SHARES = tuple(round(0.1 * 3.0 ** (step / 10), 7) for step in range(15, -106, -1))
# Several models hold at most so many times the rows of one: many rows matter to most of them.
MOST_TOGETHER = 4
# Nonzeros and rows together: if there are no more all are held where they fit, and a read is one round. (15 M
# generated nonzeros with C of 1, 8 and 64: a tenth of the rows takes 6, 13 and 27 reads, 6, 12 and 31 s of
# the processors; all of them 2 reads, 1.4 to 2 s. Covtype with C of 1 and 32: 2.1 and 5.1 s, 1.4 and 1.6 s.)
ALL_ELEMENTS = 20_000_000
# Of more data so many are held in any case, if they take no more than this part of what resident rows could.
FEW_ELEMENTS, FEW_PART = 1 << 16, 0.25
COMPILED_BYTES = 35 * 10**6  # What compiling proximal steps leaves behind in a first run

# Rows of mean length that are held at least, even by a smaller share: with one or none the bound of a free
# bias would stay at 0, and with fewer than there are free rows each read undoes a part of what the one before
# it has gained. But no more than `FEW_ELEMENTS` for the second.
LEAST_ROWS, USEFUL_ROWS = 8, 1024

# A smaller share of the data, where that is also few rows, takes several times the reads of a larger one.
CROWDED = 0.02

# Less than this part of what one model of much data would hold alone takes more reads of all models than it
# saves by sharing them. (61 M generated nonzeros, 8 values of C, `--memory 1GB`: 38 s by twos that hold 28 %,
# 41 s one by one with 47 %; with 5 folds and `--memory 800MB` 457 s by threes with 6 %, 283 s one by one.)
ROOMY_PART = 0.55

# Of many models, a resident row is held for at least so many on average where memory is short: few rows are
# near the margin of more. (172 classes of texts: 5 to 8.)
PAIRS_A_ROW = 12

# Vectors of all models together: results on the way, and with a scale the statistics of the columns. Models
# that are swept as one bring one each: their weights are put side by side, and taken apart again.
SINGLE_VECTORS, SCALE_VECTORS = 3, 6

# Part of the memory left that resident rows may take: they save more than row vectors and blocks in memory.
RESIDENT_PART = 0.95

# Bytes of a resident row for each model that it is held for: of the row, of the copy while it is put together
# with candidates, and of the row when it has left; and of a candidate, until it is decided on.
PAIR_BYTES, CANDIDATE_BYTES = 240, 112

EXPECTED_READS, READS_AT_ONCE = 5, 2  # Reads to a gap of 1e-3; of a run whose reads are one round


@dataclass(frozen=True, slots=True)
class SmoParameters:
    """Parameters of the algorithm: nonzeros and rows together.

    Older releases had a ``capacity``, which each of the models had for itself.
    """

    resident_elements: int  # Held in memory, for all models together
    resident_pairs: int  # Of a resident row and a model that it is held for
    # What the rounds are cut for: as many, but of a run begun when each model had its own
    elements_cut_for: int
    parts: int = 1  # Of each row
    narrow: int = 0  # Whether proximal steps solve a model soon, and rounds are cut for that
    rounds: int = 0  # Of a read; 0, before there is a plan: those that `effort_for` has


@dataclass(frozen=True, slots=True)
class StreamedSmoPackage(SmoWarmStarting):
    """The solver package (`ooc_svm.solvers.base.SolverPackage`)."""

    solves_apart: ClassVar[bool] = True

    def plan(
        self, size: DataSize, options: TrainOptions, room: Room, kept: Mapping[str, int] | None = None
    ) -> SolverPlan:
        """As many resident rows as are worth it and fit, before row vectors and blocks in memory."""
        one = _with_members(replace(size, n_models=1, n_losses=1), options)
        size = _with_members(size, options)
        # The share is a parameter of the algorithm: where memory lets it, it does not follow from threads.
        lanes = effort_for(size.n_nonzeros, 1.0, options.lanes).lanes
        threads = lanes, room.threads
        roomy, cut_for, rounds = 0.0, None, 0
        if kept is not None:
            rounds = kept.get("rounds", 0)
            if not 0 <= rounds <= max(own.max_rounds for own in EFFORTS.values()):
                raise ValueError(f"no run reads data in {rounds} rounds")
            cut_for = kept.get("elements_cut_for", kept.get("capacity", 0))
            capacity = kept.get("resident_elements", kept.get("capacity", 0) * size.n_models)
            pairs = kept.get("resident_pairs", _pairs(size, capacity, size.n_models))
            least = min(capacity, cut_for)
            if least < size.elements and (rounds == 1 or cut_for >= size.elements):
                raise ValueError("no run reads data at once that it does not hold")
            if min(least, pairs) < 1:
                raise ValueError(f"no run on these data has a working set of {min(least, pairs)}")
        elif options.resident is not None:
            capacity = max(math.ceil(options.resident * size.elements), _least_capacity(size))
            capacity = min(capacity, size.elements)
            left = _left(size, options, room, threads, _may_be_by_factor(size, capacity))
            pairs = _fitting_pairs(size, options, capacity, left) or _pairs(size, capacity, PAIRS_A_ROW)
        else:
            capacity, pairs = _best_capacity(size, options, room, threads)
            if size.n_models > one.n_models and size.elements > ALL_ELEMENTS:
                alone, _ = _best_capacity(one, options, room, threads)
                roomy = ROOMY_PART * alone
        if cut_for is None:
            cut_for = capacity
            if not options.bounded and capacity < size.elements:
                own = effort_for(size.n_nonzeros, 1.0, few_columns=is_narrow(size.dimension))
                cut_for = math.ceil(own.unbounded_cut * capacity)
        narrow, parts = _narrow(size, capacity), _parts(size, capacity)
        if kept is not None:
            narrow, parts = kept.get("narrow", 0), kept.get("parts", 1)
            if parts not in PARTS:
                raise ValueError(f"no run has rows in {parts} parts")
        plan = _plan(size, options, room, SmoParameters(capacity, pairs, cut_for, parts, narrow, rounds))
        return replace(plan, cramped=capacity < roomy)

    def tiny_plan(self, size: DataSize, options: TrainOptions) -> SolverPlan:
        """So few rows are resident that some come and some leave, unless a factor is of all of them."""
        few = size.elements if _may_be_by_factor(size, size.elements) else size.n_nonzeros // 4
        size = _with_members(size, options)
        pairs = _pairs(size, few, size.n_models)
        parameters = SmoParameters(few, pairs, few, _parts(size, few), _narrow(size, few))
        return _plan(size, options, NO_ROOM, parameters)

    def worker_plan(self, size: DataSize, options: TrainOptions, room: Room, whole: SolverPlan) -> SolverPlan:
        """The lanes are those of all the data; candidates are in the worker before they are sent."""
        options = replace(options, lanes=whole.report["lanes"])
        size = _with_members(size, options)
        return _plan(size, options, room, whole.parameters, whole.report["resident"])

    def shared(self, own: SolverPlan, worker: SolverPlan) -> Mapping[str, int]:
        """No more rows are resident than the smallest worker can offer."""
        both = own.parameters, worker.parameters
        fewest = min(both, key=lambda found: found.resident_elements)
        return asdict(replace(fewest, resident_pairs=min(found.resident_pairs for found in both)))

    def rounds(self, plan: SolverPlan, context: Context) -> Sequence[RowSet]:
        return [each.rows for each in _rounds(plan, context)]

    def opening(self, plan: SolverPlan, context: Context) -> tuple[int, ...]:
        """The first blocks of each lane."""
        return opening(_rounds(plan, context))

    def build(self, models: Sequence[ModelSpec], plan: SolverPlan, context: Context) -> list[Solver]:
        """A solver for each model, with a working set of its own; the rows are those of all."""
        rounds, size, options = _rounds(plan, context), context.size, context.options
        ones = context.value_type == "ones"
        values = np.empty(0, np.float32 if ones else context.value_type)
        effort = _effort(size, options, plan.parameters)
        held = plan.parameters
        by_factor = _is_by_factor(size, held)
        n_numbered = context.space.n_features if _are_numbered(size, by_factor) else 0
        rows = ResidentRows(
            held.resident_elements, values, ones, most_pairs=held.resident_pairs, n_parts=held.parts,
            most_columns=most_columns(*_shape(size)), by_factor=by_factor,
            n_numbered=n_numbered, crew=context.crew,
        )  # fmt: skip
        alike = Counter((type(spec.loss), spec.loss) for spec in models)
        company = Company(offers_all=_n_copies(alike.values(), options) is not None)

        def solver(spec: ModelSpec, name: str) -> StreamedSmo:
            assert spec.targets is not None
            free = options.resolved_bias == "free"
            model = DualModel(spec.targets, spec.loss, spec.C, context.space, free, name)
            state = SmoState.fresh(context.space.n_features, len(rounds), rows)
            own = effort.unbounded() if model.unbounded else effort
            run = context.stopping, state, rounds, size.n_nonzeros, own, options.seed, company
            return StreamedSmo(model, *run)

        if not options.by_nu:
            solvers = [solver(spec, f"model{number}") for number, spec in enumerate(models)]
            _join_paths(models, solvers)
            return list(solvers)
        from ooc_svm.solvers.streamed_smo.by_nu import build_by_nu

        return [build_by_nu(spec, f"model{number}", solver, context) for number, spec in enumerate(models)]


def _n_copies(alike: Iterable[int], options: TrainOptions) -> int | None:
    """Copies of the rows that a round brings where each model offers all of them; None if they are many.

    Models that are swept as one share the copies, but none are with a mean row, which a free bias may bring.
    ``alike``: the number of models of each loss.
    """
    if options.resolved_bias == "free":
        return None
    n_copies = sum(n if n < FEWEST_FUSED else -(-n // MOST_FUSED) for n in alike)
    return n_copies if n_copies <= MOST_OFFERS else None


def _join_paths(models: Sequence[ModelSpec], solvers: Sequence[StreamedSmo]) -> None:
    """Let models that differ in C alone know of each other; where some do, all meet after each read."""
    paths: dict[tuple[int, int | None, int], list[StreamedSmo]] = {}
    for spec, solver in zip(models, solvers, strict=True):
        paths.setdefault((id(spec.classes), spec.fold, spec.variant), []).append(solver)
    if len(paths) < len(models):
        for members in paths.values():
            path = Path(members, len(paths))
            for member in members:
                member.path = path


def _with_members(size: DataSize, options: TrainOptions) -> DataSize:
    """The sizes with the models that a nu problem is solved by."""
    return replace(size, n_models=N_MODELS * size.n_models) if options.by_nu else size


def _effort(size: DataSize, options: TrainOptions, parameters: SmoParameters) -> Effort:
    share = min(1.0, parameters.elements_cut_for / size.elements)
    by_factor = _is_by_factor(size, parameters)
    return effort_for(
        size.n_nonzeros,
        share,
        options.lanes,
        rests=options.has_end,
        narrow=bool(parameters.narrow),
        few_columns=is_narrow(size.dimension),
        shared=has_shared_steps(size.dimension, size.elements, size.n_rows),
        long_rows=are_long(size.n_nonzeros, size.n_rows),
        factor_sweeps=factor_sweeps(size.n_rows) if by_factor else 0.0,
        rounds=parameters.rounds,
    )


def _rounds(plan: SolverPlan, context: Context) -> list[Round]:
    effort = _effort(context.size, context.options, plan.parameters)
    return cut_rounds(context.blocks, effort.rounds, effort.lanes)


def _plan(
    size: DataSize,
    options: TrainOptions,
    room: Room,
    parameters: SmoParameters,
    resident: float | None = None,
) -> SolverPlan:
    """The plan for these parameters; ``resident``: the share of the resident rows in all rows, if more."""
    held, by_factor = parameters.resident_elements, _is_by_factor(size, parameters)
    share = held / size.elements
    note = f"{100 * share:.3g} % of the data for {size.n_models} model(s)"
    if parameters.resident_pairs < size.n_rows * size.n_models:
        note += f", at most {parameters.resident_pairs:,} pairs of a row and a model"
    rows = MemoryItem("resident rows", _rows_nbytes(size, options, parameters, resident), note)
    effort = _effort(size, options, parameters)
    # A nu problem has several in any case.
    many = MANY_MODELS * (N_MODELS if options.by_nu else 1)
    return SolverPlan(
        replace(parameters, rounds=effort.rounds),
        (*_items(size, options, room, room.threads, by_factor, solves=resident is None), rows),
        row_bytes=32 * size.n_models + 8 * N_VECTORS * (size.n_models // N_MODELS if options.by_nu else 0),
        expected_reads=READS_AT_ONCE if effort.at_once else EXPECTED_READS,
        report={"resident": min(1.0, share), "rounds": effort.rounds, "lanes": effort.lanes},
        cut=(effort.rounds, effort.lanes),
        crowded=held < min(_least_capacity(size), CROWDED * size.elements),
        kinds=FunctionKinds(
            long_rows=parameters.parts > 1,
            many_columns=_are_numbered(size, by_factor),
            many_models=size.n_models >= many,
            by_factor=by_factor,
        ),
    )


def _narrow(size: DataSize, capacity: int) -> int:
    """`SmoParameters.narrow` of a run that holds so much."""
    if is_narrow(size.dimension) or _may_be_by_factor(size, capacity):
        return 1
    return int(capacity == size.elements and has_proximal_steps(*_shape(size)))


def _parts(size: DataSize, capacity: int) -> int:
    """`SmoParameters.parts` of a new run that holds so much."""
    return 1 if _may_be_by_factor(size, capacity) else count_parts(*_shape(size))


def _may_be_by_factor(size: DataSize, capacity: int) -> bool:
    """Whether rows are solved by a factor in a new run that holds so much."""
    return capacity == size.elements and has_factor(*_shape(size))


def _is_by_factor(size: DataSize, parameters: SmoParameters) -> bool:
    """Whether rows are solved by a factor: not in a run of an older release, which had them in parts."""
    return parameters.parts == 1 and _may_be_by_factor(size, parameters.resident_elements)


def _are_numbered(size: DataSize, by_factor: bool) -> bool:
    """Whether columns have numbers in the resident rows."""
    return size.dimension > MANY_COLUMNS and not by_factor


def _shape(size: DataSize) -> tuple[int, int, int]:
    """Columns, one of which may be the bias, nonzeros and rows."""
    return size.dimension, size.n_nonzeros, size.n_rows


def _least_capacity(size: DataSize) -> int:
    """The fewest elements worth holding."""
    row = size.elements / max(size.n_rows, 1)
    return math.ceil(max(LEAST_ROWS * row, min(USEFUL_ROWS * row, FEW_ELEMENTS)))


def _pairs(size: DataSize, capacity: int, a_row: int) -> int:
    """The limit of the pairs of a row and a model, if resident rows are held for so many models on average.

    Where that is all of them there is no limit: rows are short or long.
    """
    if a_row >= size.n_models:
        return size.n_rows * size.n_models
    return math.ceil(capacity * size.n_rows / size.elements * a_row)


def _fitting_pairs(size: DataSize, options: TrainOptions, capacity: int, nbytes: float) -> int | None:
    """The most pairs of so many resident rows that fit; None if too few do."""
    a_row, narrow = size.n_models, _narrow(size, capacity)
    while True:
        pairs = _pairs(size, capacity, a_row)
        parameters = SmoParameters(capacity, pairs, capacity, narrow=narrow)
        if _rows_nbytes(size, options, parameters) <= nbytes:
            return pairs
        if a_row <= PAIRS_A_ROW:
            return None
        a_row = max(a_row // 2, PAIRS_A_ROW)


def _best_capacity(
    size: DataSize, options: TrainOptions, room: Room, threads: Sequence[int]
) -> tuple[int, int]:
    """The largest of the shares worth holding that fits, and the pairs that fit."""

    def fitting(capacity: int, part: float) -> int | None:
        left = _left(size, options, room, threads, _may_be_by_factor(size, capacity))
        return _fitting_pairs(size, options, capacity, part * max(left, 0))

    together, all_of_it = min(size.n_models, MOST_TOGETHER), size.elements
    holds_all = all_of_it <= ALL_ELEMENTS or _may_be_by_factor(size, all_of_it)
    capacities = [all_of_it] if holds_all else []
    capacities += [min(math.ceil(together * share * size.elements), size.elements) for share in SHARES]
    tried = ((capacity, fitting(capacity, RESIDENT_PART)) for capacity in capacities)
    capacity, pairs = next((each for each in tried if each[1]), (capacities[-1], None))
    few = min(size.elements, FEW_ELEMENTS)
    if few > capacity and (few_pairs := fitting(few, FEW_PART * RESIDENT_PART)):
        return few, few_pairs
    return capacity, pairs or _pairs(size, capacity, PAIRS_A_ROW)


def _rows_nbytes(
    size: DataSize, options: TrainOptions, parameters: SmoParameters, resident: float | None = None
) -> int:
    """Bytes of the resident rows, and of the candidates that a round brings on top of them.

    Rows that are held for other models are offered without a copy; few of a round are, and they are not
    counted.
    """
    share = min(1.0, parameters.resident_elements / size.elements)
    effort = effort_for(
        size.n_nonzeros,
        share if resident is None else resident,
        narrow=bool(parameters.narrow),
        rounds=parameters.rounds,
    )
    of_mean_length = share * size.n_rows * size.n_models
    pairs = min(parameters.resident_pairs, of_mean_length)
    copies, candidates = min(size.n_models, MOST_OFFERS), pairs
    if effort.at_once:
        # Each point of a grid, and so each loss, has as many models.
        n_copies = _n_copies([size.n_models // size.n_losses] * size.n_losses, options)
        if n_copies is None:
            candidates = min(MOST_OFFERS * pairs, of_mean_length)
        else:
            # All rows are candidates of all models. In later reads fewer models may be swept as one, but rows
            # that are not held then are far from the margins, and hardly any is a candidate.
            copies, candidates = n_copies, of_mean_length
    element = (1 + copies * effort.offered) * (4 + size.value_bytes)
    held = parameters.resident_elements
    cuts = 4 * (_parts(size, held) + 1) * share * size.n_rows
    pair = PAIR_BYTES + proximal_bytes(*_shape(size), by_factor=_is_by_factor(size, parameters))[0]
    of_pairs = pair * pairs + CANDIDATE_BYTES * candidates
    return int(share * size.elements * element + cuts + of_pairs)


def _items(
    size: DataSize, options: TrainOptions, room: Room, threads: int, by_factor: bool, *, solves: bool = True
) -> tuple[MemoryItem, ...]:
    """What is needed apart from the resident rows; ``solves``: whether these are solved here."""
    lanes = effort_for(size.n_nonzeros, 1.0, options.lanes).lanes
    # No more threads have blocks than there are lanes, but where columns are measured first.
    blocks = (room.blocks_a_thread + 1) * min(threads, lanes)
    if options.scale != "none":
        blocks = max(blocks, room.blocks_a_thread * threads)
    # Lanes being swept, and those that wait for a neighbour to be merged with.
    alive = min(lanes, threads + 3)
    vector, n_models = 8 * size.dimension, size.n_models
    n_vectors = _vectors_a_model(options)
    # Of models that are swept as one, a lane has what their rows are scored with, too.
    as_one = min(n_models, MOST_FUSED) if n_models >= FEWEST_FUSED else 0
    in_lane = 3 if as_one else 2
    single = SINGLE_VECTORS + (SCALE_VECTORS if options.scale != "none" else 0) + as_one
    note = f"{n_vectors} vectors of {size.dimension} for {n_models} model(s)"
    items = [
        room.blocks(blocks),
        MemoryItem("weights", n_vectors * n_models * vector, note),
        MemoryItem("other vectors", single * vector, f"{single} of all models together"),
        MemoryItem("lanes", in_lane * alive * n_models * vector, f"{in_lane} vectors for each of {alive}"),
    ]
    solving = min(threads, n_models)
    if not solves:
        return tuple(items)
    if of_step := proximal_bytes(*_shape(size), by_factor=by_factor)[1]:
        note = f"compiled, and vectors and systems of {solving} model(s)"
        items.append(MemoryItem("proximal steps", COMPILED_BYTES + solving * of_step, note))
    if _are_numbered(size, by_factor):
        # Of each column its number, of each number its column; weights, scales and a mean row in that order.
        own = 1 + (options.scale != "none") + (options.resolved_bias == "free")
        note = f"2 of {size.dimension}, and {own} vectors of {solving} model(s)"
        items.append(MemoryItem("column numbers", (1 + own * solving) * vector, note))
    return tuple(items)


def _vectors_a_model(options: TrainOptions) -> int:
    """Vectors of a model that live through a round.

    Its weights, those that are being solved, those that the read began with, the best ones, and the sum of
    the rows so far. With a free bias the mean row, and the weights without it; without upper bounds of the
    multipliers the mean of the weights in this read, and in the one before. On a cluster both sides keep what
    was sent: weights, what rows are scored with, and the answers.
    """
    free, means, kept = options.resolved_bias == "free", not options.bounded, options.engine == "dask"
    return 5 + 2 * free + 2 * means + 4 * kept


def _left(size: DataSize, options: TrainOptions, room: Room, threads: Sequence[int], by_factor: bool) -> int:
    """Bytes that are left for resident rows, with whichever number of threads that is less."""
    return min(
        room.nbytes - sum(item.nbytes for item in _items(size, options, room, number, by_factor))
        for number in threads
    )


SOLVER = StreamedSmoPackage()

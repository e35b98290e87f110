"""What a training would need and take, before it is run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ooc_svm.data.blocks import RowBlock
from ooc_svm.data.source import Source
from ooc_svm.engine.serial import MemoryEngine
from ooc_svm.errors import UsageError
from ooc_svm.options import TrainOptions
from ooc_svm.pairs.request import PairPass, Pairs
from ooc_svm.passes.base import Pass, Piece
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.solvers.cutting_plane.ocas import Ocas
from ooc_svm.solvers.cutting_plane.pair_oracle import PairCutOracle
from ooc_svm.solvers.space import LinearSpace
from ooc_svm.solvers.stopping import Stopping
from ooc_svm.solvers.streamed_smo.solver import StreamedSmo
from ooc_svm.system.memory import format_size, memory_budget
from ooc_svm.training.assembly import AnySolver, Task, make_solvers
from ooc_svm.training.data import Data, fill_pair_vectors, fill_row_vectors, make_tasks, open_data, workload
from ooc_svm.training.memory_plan import Budget, Parameters, PlanItem, divide, to_json
from ooc_svm.training.progress import seconds_text
from ooc_svm.training.train import normal_options
from ooc_svm.training.warmup import warm_up

# Reads to a gap of 1e-3, as measured on data of several kinds.
EXPECTED_PASSES = {"streamed-smo": 5, "ocas": 40, "cutting-plane": 200}
EXPECTED_PAIR_PASSES = {"ocas": 20, "cutting-plane": 200}

# Sweeps over as many rows as the data has, that streamed SMO makes of resident rows in one read.
EXPECTED_SWEEPS = 3

# Counts of the pairs of rows in one line search that is not by bins.
EXPECTED_LOOKS = 3

# Blocks that are read and worked on to measure the speed.
SAMPLED_BLOCKS = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """Memory and time that a training would take.

    Attributes
    ----------
    items : tuple of PlanItem
        Uses of memory, the block cache last.
    total, budget : int
        Sum of the items, and bytes allowed.
    n_rows, n_features, n_nonzeros, n_models : int
    pass_bytes : int
        Stored bytes that one read of the data fetches.
    seconds_per_pass : float
        From a few blocks of this store; nothing of them was in the block cache.
    expected_passes : int
        Typical of the solver at a gap of 1e-3.
    parameters : Parameters
    threads : int
    """

    items: tuple[PlanItem, ...]
    total: int
    budget: int
    n_rows: int
    n_features: int
    n_nonzeros: int
    n_models: int
    pass_bytes: int
    seconds_per_pass: float
    expected_passes: int
    parameters: Parameters
    threads: int

    @property
    def fits(self) -> bool:
        """Whether the sum is within the budget; `plan` raises where it is not."""
        return self.total <= self.budget

    def lines(self) -> list[str]:
        """The plan for people, a line each."""
        width = max(len(item.name) for item in self.items)
        lines = [
            f"{self.n_rows} rows, {self.n_features} features, {self.n_nonzeros} nonzeros, "
            f"{self.n_models} model(s)"
        ]
        lines += [
            f"  {item.name:<{width}}  {format_size(item.nbytes):>10}  {item.note}" for item in self.items
        ]
        lines.append(
            f"  {'sum':<{width}}  {format_size(self.total):>10}  of {format_size(self.budget)} allowed"
        )
        seconds = self.seconds_per_pass
        lines.append(
            f"one pass: about {seconds_text(seconds)} with {self.threads} thread(s), "
            f"{format_size(self.pass_bytes)} to read"
        )
        lines.append(
            f"about {self.expected_passes} passes to a gap of 1e-3: "
            f"{seconds_text(self.expected_passes * seconds)}"
        )
        return lines

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON can hold it."""
        names = [name for name in self.__dataclass_fields__ if name not in ("items", "parameters")]
        return {
            "items": to_json(self.items),
            "parameters": asdict(self.parameters),
            "fits": self.fits,
            **{name: getattr(self, name) for name in names},
        }


def plan(data: Any, labels: Any = None, *, qid: Any = None, **options: Any) -> Plan:
    """Say what `train` with these arguments would need; a few blocks are read to measure the speed.

    Parameters
    ----------
    data, labels, qid, **options
        As `ooc_svm.train` takes them.

    Raises
    ------
    MemoryBudgetError
        What is needed does not fit ``memory``; the message holds the sum.
    UsageError, InputError, DamageError, StorageError
        As `ooc_svm.train` does before its first pass.
    """
    wanted = TrainOptions(**normal_options(options))
    if wanted.engine != "local":
        raise UsageError("a plan is for one machine; leave the engine out")
    opened = open_data(data, labels, None, wanted, qid)
    work = workload(opened, wanted)
    budget = divide(work, wanted, memory_budget(wanted.memory))
    items = budget.items
    if budget.cache_bytes:
        note = f"of {format_size(work.data_nbytes)} decoded"
        items += (PlanItem("block cache", budget.cache_bytes, note),)
    source = opened.source
    warm_up(wanted, opened.value_type, source.has_weight, lambda message: None)
    classes, tasks = make_tasks(opened, wanted)
    with RowVectors(source.n_rows, budget.row_vector_bytes) as vectors:
        pairs = None
        if wanted.over_pairs:
            pairs = fill_pair_vectors(vectors, opened, classes, wanted, budget.sorting_bytes)
        else:
            fill_row_vectors(vectors, source, classes, wanted.problem)
        seconds = _seconds_per_pass(opened, tasks, wanted, budget, vectors, pairs, work.threads)
    expected = EXPECTED_PAIR_PASSES if wanted.over_pairs else EXPECTED_PASSES
    return Plan(
        items=items,
        total=sum(item.nbytes for item in items),
        budget=budget.total,
        n_rows=source.n_rows,
        n_features=source.n_features,
        n_nonzeros=source.n_nonzeros,
        n_models=work.n_models,
        pass_bytes=sum(source.block_stored_bytes(index) for index in range(len(source.blocks))),
        seconds_per_pass=seconds,
        expected_passes=expected[wanted.resolved_solver],
        parameters=budget.parameters,
        threads=work.threads,
    )


def _seconds_per_pass(
    data: Data,
    tasks: Sequence[Task],
    options: TrainOptions,
    budget: Budget,
    vectors: RowVectors,
    pairs: Pairs | None,
    threads: int,
) -> float:
    """Seconds for a read of all blocks, from a few of them."""
    source = data.source
    scale = None if options.scale == "none" else np.ones(source.n_features)
    space = LinearSpace(source.n_features, scale, options.bias == "penalized")
    stopping = Stopping(options.tol)
    solvers, wanted = make_solvers(
        tasks, options, budget.parameters, source, data.value_type, space, stopping, pairs
    )
    for name, dtype in wanted.items():
        vectors.create(name, dtype)
    engine = MemoryEngine(source, vectors)
    engine.sorting_bytes = budget.sorting_bytes
    requests = [_typical_pass(solver, engine) for solver in solvers]
    # Pairs are counted once for each read, and for each look of a line search that is not by bins.
    looks = sum(map(_expected_counts, solvers)) / len(solvers)
    counting = engine.counters.visiting_seconds * looks
    partials = [request.empty() for request in requests]
    extent = requests[0].extent
    pieces = _sample(source) if extent is None else [p for s in extent.segments for p in s][:SAMPLED_BLOCKS]
    reading = visiting = 0.0
    blocks: dict[int, RowBlock] = {}
    for piece in pieces:
        began = time.perf_counter()
        block = blocks.get(piece.block) or source.read_block(piece.block)
        read = time.perf_counter()
        if options.resolved_solver == "streamed-smo":
            # At the first meeting every row moves.
            engine.visit(requests, block, piece, partials)
        visited = time.perf_counter()
        engine.visit(requests, block, piece, partials)
        reading, visiting = reading + read - began, visiting + time.perf_counter() - visited
        blocks = {piece.block: block}
    n_read = len({piece.block for piece in pieces})
    whole = visiting * source.n_rows / max(sum(piece.n_rows for piece in pieces), 1)
    if options.resolved_solver == "streamed-smo":
        whole *= 1 + EXPECTED_SWEEPS
    return counting + (whole + reading * len(source.blocks) / max(n_read, 1)) / threads


def _expected_counts(solver: AnySolver) -> int:
    """How often a solver counts pairs for one read."""
    problem = solver.problem
    return 1 if isinstance(problem, PairCutOracle) and problem.searches_by_bins else 1 + EXPECTED_LOOKS


def _sample(source: Source) -> list[Piece]:
    """A few blocks from all over the data."""
    spans, last = source.blocks, len(source.blocks) - 1
    sample = sorted({i * last // max(SAMPLED_BLOCKS - 1, 1) for i in range(SAMPLED_BLOCKS)})
    return [Piece(index, spans[index].start, spans[index].stop) for index in sample]


def _typical_pass(solver: AnySolver, engine: MemoryEngine) -> Pass:
    """What the solver asks for in most reads, its rows counted if need be."""
    if isinstance(solver, Ocas):
        solver.state.thetas = solver.problem.places(0.5, solver.points)
    if isinstance(solver, StreamedSmo):
        solver.state.rho = 1.0
        solver.state.start = np.zeros(solver.problem.space.n_features)
    steps = solver.steps()
    request = next(steps)
    while isinstance(request, PairPass):
        request = steps.send(engine.stream([request])[0])
    return request

"""What the cutting-plane solvers need: how many groups, points and cuts fit, and the solvers themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import isqrt
from typing import Any

import numpy as np

from ooc_svm.options import TrainOptions
from ooc_svm.problems.base import ModelSpec
from ooc_svm.solvers.base import (
    NO_ROOM,
    Context,
    DataSize,
    MemoryItem,
    Room,
    Solver,
    SolverPackage,
    SolverPlan,
)
from ooc_svm.solvers.cutting_plane.free_oracle import FIRST_THETAS, FreeCutOracle
from ooc_svm.solvers.cutting_plane.joachims import CuttingPlane, CuttingPlaneState
from ooc_svm.solvers.cutting_plane.ocas import Ocas, OcasState
from ooc_svm.solvers.cutting_plane.pair_oracle import PairCutOracle
from ooc_svm.solvers.cutting_plane.row_oracle import RowCutOracle
from ooc_svm.solvers.cutting_plane.row_rules import RowLosses, cells_of

GROUP_CHOICES = (8, 4, 2, 1)
MANY_POINTS = 7
MOST_POINTS = 13  # Points where groups are asked for: few reads are wanted then, whatever they cost
# Points where losses are of pairs of rows: one exact cut and trial cuts.
MANY_PAIR_POINTS, FEW_PAIR_POINTS = 4, 2

# Bins of the scores of each rank that trial cuts are made from: fewer make cuts that are less tight, with
# 16 of them it takes a fifth to a half more reads. They are as many as cost next to nothing: in numbers, and
# in elements of the data for each number.
BIN_CHOICES = (256, 128, 64, 32, 16)
PLAIN_TABLE, ELEMENTS_A_SUM = 1 << 20, 16
MOST_PAIRS_OF_BINS = 1 << 24  # Largest number of pairs of bins, which are gone through one by one

# Cuts kept for each one that a read adds; with less, cuts that are still needed have to go.
READS_KEPT = 20
FEWEST_READS_KEPT = 8
PLAIN_CUTS = 200
# Part of the memory left that cuts may take; row vectors and blocks are kept in the rest.
CUTS_PART = 0.75

# Elements of the data for each group, and for each parameter of one: below, more groups and more points on
# a ray take more time in sums of rows and in the master problem than the reads that they save.
ELEMENTS_A_GROUP = 2_000_000
ELEMENTS_A_PARAMETER = 1000

# Precision of a line search by values of the objective, as a share of the gap wanted: a smaller one takes
# more sorts of the rows and saves no reads (measured).
SEARCH_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class CutParameters:
    """Parameters of the algorithm."""

    # Groups of rows, points that cuts are taken at in one read, and cuts kept by a model
    groups: int = 1
    points: int = 1
    max_cuts: int = 0
    # Over pairs of rows: bins of the scores of each rank, which all cuts but one are made from
    bins: int = 0


@dataclass(frozen=True, slots=True)
class CuttingPlanes(SolverPackage):
    """A solver package (`ooc_svm.solvers.base.SolverPackage`)."""

    searches: bool  # Whether there is a line search (OCAS)
    # Expected of a run, losses being of rows or of pairs
    reads: int
    pair_reads: int

    def plan(
        self, size: DataSize, options: TrainOptions, room: Room, kept: Mapping[str, int] | None = None
    ) -> SolverPlan:
        if kept is not None:
            names = CutParameters.__dataclass_fields__
            parameters = CutParameters(**{name: kept[name] for name in names if name in kept})
            if parameters.max_cuts < 1 or replace(parameters, max_cuts=0) not in self._choices(size, options):
                raise ValueError(f"no run on these data has {parameters}")
            return self._with_cuts(size, options, room, parameters, (parameters.max_cuts,) * 2)
        found = None
        for choice in self._choices(size, options):
            fewest, wanted = _cuts_kept(choice, options.n_free)
            found = self._with_cuts(size, options, room, choice, (fewest, wanted))
            added = choice.groups * choice.points
            enough = found.parameters.max_cuts >= min(wanted, FEWEST_READS_KEPT * added)
            sorting = room.sorting_bytes if found.sorts_by else 0
            if enough and sum(item.nbytes for item in found.items) + sorting <= room.nbytes:
                break
        assert found is not None
        return found

    def tiny_plan(self, size: DataSize, options: TrainOptions) -> SolverPlan:
        """Few cuts; over pairs a trial cut."""
        choice = CutParameters(points=2, bins=4) if options.over_pairs and self.searches else CutParameters()
        return self._with_cuts(size, options, NO_ROOM, choice, (8, 8))

    def worker_plan(self, size: DataSize, options: TrainOptions, room: Room, whole: SolverPlan) -> SolverPlan:
        """The client keeps the cuts and sorts the rows."""
        parameters = replace(whole.parameters, max_cuts=min(whole.parameters.max_cuts, 1))
        plan = self._with_cuts(size, options, room, parameters, (parameters.max_cuts,) * 2)
        return replace(plan, sorts_by=0)

    def shared(self, own: SolverPlan, worker: SolverPlan) -> Mapping[str, int]:
        """The sums of a pass are no larger than either has room for; the client keeps the cuts."""
        lesser: CutParameters = min(own.parameters, worker.parameters, key=_n_sums)
        return asdict(replace(lesser, max_cuts=min(own.parameters.max_cuts, _cuts_kept(lesser, 0)[1])))

    def build(self, models: Sequence[ModelSpec], plan: SolverPlan, context: Context) -> list[Solver]:
        return [self._solver(spec, f"model{k}", plan.parameters, context) for k, spec in enumerate(models)]

    def _solver(self, spec: ModelSpec, name: str, parameters: CutParameters, context: Context) -> Solver:
        size, options = context.size, context.options
        space = replace(context.space, n_free=options.n_free)
        oracle: RowCutOracle | PairCutOracle
        if spec.pairs is not None:
            oracle = PairCutOracle(
                spec.pairs,
                spec.C,
                space,
                parameters.groups,
                name,
                precision=SEARCH_SHARE * options.tol,
                trials=parameters.points - 1,
                n_bins=parameters.bins,
                coefficient_type=coefficient_type(size),
            )
        else:
            assert spec.targets is not None
            losses = RowLosses(spec.targets, spec.loss, name)
            own = (losses, spec.C, space, parameters.groups, spec.held_out is not None)
            oracle = FreeCutOracle(*own, nu=spec.nu, mean=spec.mean) if space.n_free else RowCutOracle(*own)
        if not self.searches:
            sizes = space.dimension, parameters.max_cuts, space.n_free
            plain = CuttingPlaneState.fresh(*sizes, equal=oracle.equal)
            kept = None if spec.held_out is None else f"{name}/kept"
            if space.n_free:
                kept = losses.best
            return CuttingPlane(oracle, context.stopping, plain, kept)
        searching = OcasState.fresh(oracle, parameters.max_cuts)
        return Ocas(oracle, context.stopping, searching, parameters.points)

    def _choices(self, size: DataSize, options: TrainOptions) -> list[CutParameters]:
        """Groups and points worth trying, the best first."""
        asked = options.cut_groups
        if not self.searches:
            return [CutParameters(asked or 1)]
        groups_worth = size.n_nonzeros // (ELEMENTS_A_PARAMETER * max(size.dimension, 1))
        if options.over_pairs:
            return _pair_choices(size, asked or 1, groups_worth > 0)
        if groups_worth == 0:
            return [CutParameters(asked or 1)]
        if asked is not None:
            points = (MOST_POINTS, MANY_POINTS, 1) if asked > 1 else (MANY_POINTS, 1)
            return [CutParameters(asked, p) for p in points]
        worth = min(groups_worth, size.n_nonzeros // ELEMENTS_A_GROUP)
        groups = [g for g in GROUP_CHOICES if g <= worth] or [1]
        return [*(CutParameters(g, MANY_POINTS) for g in groups), CutParameters()]

    def _with_cuts(
        self,
        size: DataSize,
        options: TrainOptions,
        room: Room,
        choice: CutParameters,
        cuts_kept: tuple[int, int],
    ) -> SolverPlan:
        """The plan for these groups and points, with as many of the wanted cuts as fit."""
        fewest, wanted = cuts_kept
        size = replace(size, dimension=size.dimension + options.n_free)
        models = f"{size.n_models} model(s)"
        each = 8 * size.dimension
        vector = each * size.n_models
        points = max(choice.points, len(FIRST_THETAS)) if options.n_free else choice.points
        sums, what = cells_of(points) * vector, ""
        if choice.bins:
            cells = (choice.points - 1) * choice.bins * size.n_ranks
            # With each cell its weight and its score.
            sums = vector + cells * (vector + 16 * size.n_models)
            what = f", {choice.bins} bins of {size.n_ranks} rank(s)"
        note = f"{room.partials} times {choice.groups} group(s) at {choice.points} point(s){what}"
        items = (
            room.blocks((room.blocks_a_thread + 1) * room.threads),
            MemoryItem("weights", 8 * vector, f"8 vectors of {size.dimension} for {models}"),
            MemoryItem("sums of a pass", room.partials * choice.groups * sums, note),
            # For the bounds on rounding: of the first read, and what they make.
            MemoryItem(
                "sizes of columns", (room.partials + 1) * each, f"{room.partials + 1} times {{each}}", each
            ),
        )
        sorts_by = choice.groups if options.over_pairs else 0
        left = room.nbytes - sum(item.nbytes for item in items) - (room.sorting_bytes if sorts_by else 0)
        products = 24 * size.n_models
        fitting = _most_cuts(int(CUTS_PART * max(left, 0)), vector, products)
        cuts = min(max(fewest, fitting), max(wanted, fewest))
        gram = products * cuts * cuts
        note = f"{cuts} of {{each}} a model"
        parameters = replace(choice, max_cuts=cuts)
        return SolverPlan(
            parameters,
            (*items, MemoryItem("cuts", cuts * vector + gram, note, each)),
            row_bytes=self._row_bytes(size, options, choice.groups),
            expected_reads=self.pair_reads if options.over_pairs else self.reads,
            report={
                "cut_groups": choice.groups,
                "cut_points": choice.points,
                "bins": choice.bins,
                "max_cuts": cuts,
            },
            sorts_by=sorts_by,
        )

    def _row_bytes(self, size: DataSize, options: TrainOptions, groups: int) -> int:
        kept = 0 if self.searches else 8 * size.n_scored
        if options.over_pairs:
            return size.n_models * (16 + groups * coefficient_type(size).itemsize) + kept
        return 16 * size.n_models if self.searches or options.n_free else 2 * kept


def _cuts_kept(choice: CutParameters, n_free: int) -> tuple[int, int]:
    """The fewest cuts that a model can keep, and as many as are wanted."""
    added = choice.groups * choice.points
    # Of the first read of a problem with free parameters, and by nu those of no losses.
    first = choice.groups * (len(FIRST_THETAS) + n_free - 1) if n_free else 0
    return choice.groups + max(added, first) + 1, max(PLAIN_CUTS, READS_KEPT * added)


def _n_sums(parameters: CutParameters) -> int:
    """The size of the sums of a pass, up to what is the same for all choices."""
    cells = (parameters.points - 1) * parameters.bins
    return parameters.groups * (cells or cells_of(parameters.points))


def _most_cuts(nbytes: int, vector: int, products: int) -> int:
    """The largest number of cuts that take so many bytes: of each a vector, of each two of them products."""
    return (isqrt(vector * vector + 4 * products * nbytes) - vector) // (2 * products)


def coefficient_type(size: DataSize) -> np.dtype[Any]:
    """Type of the coefficients of a cut that are kept for each row where losses are of pairs of rows."""
    large = size.n_rows > np.iinfo(np.int32).max
    return np.dtype(np.float64 if size.has_weight or large else np.int32)


def _pair_choices(size: DataSize, groups: int, many: bool) -> list[CutParameters]:
    """Trial points with as many bins as cost little, then none."""
    points = (MANY_PAIR_POINTS, FEW_PAIR_POINTS) if many else (FEW_PAIR_POINTS,)
    if size.in_queries:
        return [CutParameters(groups, points[0]), CutParameters(groups)]
    each = size.n_ranks * groups * size.dimension
    # As above: where groups are asked for, few reads are wanted.
    most = max(PLAIN_TABLE, size.n_nonzeros // ELEMENTS_A_SUM) * groups
    bins = [b for b in BIN_CHOICES if groups * (b * size.n_ranks) ** 2 <= MOST_PAIRS_OF_BINS]
    fitting = [(p, b) for p in points for b in bins if 0 < (p - 1) * b * each <= most]
    return [*(CutParameters(groups, p, bins=b) for p, b in fitting), CutParameters(groups)]


OCAS = CuttingPlanes(searches=True, reads=40, pair_reads=20)
JOACHIMS = CuttingPlanes(searches=False, reads=200, pair_reads=200)

"""What training, its plan and its warm-up have in common: data and options, made into models and solvers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from ooc_svm.data.blocks import Float64Array
from ooc_svm.engine.base import Engine
from ooc_svm.options import TrainOptions
from ooc_svm.problems.base import ModelSpec, Problem
from ooc_svm.problems.folds import FoldPairs, filled_with_folds, fold_models
from ooc_svm.problems.targets import HELD_OUT, WEIGHT
from ooc_svm.solvers.base import Context, DataSize, Solver, SolverPackage, SolverPlan
from ooc_svm.solvers.space import LinearSpace
from ooc_svm.solvers.stopping import Stopping
from ooc_svm.training.batches import Batch
from ooc_svm.training.data import Data
from ooc_svm.training.grid import Variant
from ooc_svm.training.memory_plan import Workload, measuring, program_bytes

if TYPE_CHECKING:
    from ooc_svm.data.folds import Folds
    from ooc_svm.training.tuning import Tuning

VALUE_BYTES = {"ones": 0, "float32": 4, "float64": 8}

# Of a matrix in memory: nonzeros, times the models if they are solved apart, or rows with a kernel, below
# which one thread is as fast as several.
SHORT_ELEMENTS, SHORT_KERNEL_ROWS = 1 << 22, 1 << 13


@dataclass(frozen=True)
class Preparation:
    """Data and options, checked against each other."""

    data: Data
    options: TrainOptions
    problem: Problem
    solver: SolverPackage
    # The labels that rows are told apart by; empty where labels are values or too many
    classes: Float64Array
    variants: Sequence[Variant]  # The points of a grid; without one there is one, of the options
    tuning: Tuning | None = None  # How values of C are compared, if they are
    folds: Folds | None = None  # Those that there are models without, for a comparison or a calibration
    batch: Batch | None = None  # Some of the models, where not all are trained at the same time
    passes_before: int = 0  # Of the batches before

    @property
    def has_weight(self) -> bool:
        """Whether rows have weights: their own, or 0 where they are held out."""
        return self.data.source.has_weight or self.options.held_out_share is not None

    def options_of(self, variant: int) -> TrainOptions:
        """The options with the numbers of a point of the grid."""
        return self.variants[variant].options

    @property
    def n_folds(self) -> int:
        """Folds that models are trained without, in addition to those on all rows."""
        return 0 if self.folds is None else self.folds.n_folds

    @property
    def n_models(self) -> int:
        """Models to be trained, those of folds left out."""
        whole = len(self.variants) * self.problem.n_models(self.data.labels, self.options)
        return whole if self.batch is None else self.batch.n_models

    @property
    def n_trained(self) -> int:
        """The same, with those of folds."""
        return self.n_models * (1 + self.n_folds) if self.batch is None else self.batch.n_trained

    @property
    def weighted(self) -> bool:
        """Whether some model sees weights: those of the rows, or 0 in a fold."""
        return self.has_weight or self.n_folds > 0

    @property
    def _is_short(self) -> bool:
        """Whether passes are so short that threads would wait for each other for longer."""
        source, n_works = self.data.source, self.n_trained if self.solver.solves_apart else 1
        if self.options.is_linear:
            return source.n_nonzeros * n_works < SHORT_ELEMENTS
        return source.n_rows < SHORT_KERNEL_ROWS

    @cached_property
    def workload(self) -> Workload:
        """The sizes that a run's memory follows from."""
        data, options, source = self.data, self.options, self.data.source
        in_memory = data.in_memory
        threads = options.threads or len(os.sched_getaffinity(0))
        if in_memory and self._is_short:
            threads = 1
        marks = int(options.held_out_share is not None or self.n_folds > 0)
        if options.over_pairs:  # see `Problem.fold_pairs`
            marks += 8 * self.n_folds
        wanted, n_models = self.n_models, self.n_trained
        # Those whose scores of rows that they are not trained on are wanted.
        n_scored = n_models - wanted if self.n_folds else wanted * int(options.held_out_share is not None)
        size = DataSize(
            n_rows=source.n_rows,
            n_nonzeros=source.n_nonzeros,
            dimension=source.n_features + (options.resolved_bias == "penalized"),
            n_models=n_models,
            value_bytes=VALUE_BYTES[data.value_type],
            has_weight=self.weighted,
            n_scored=n_scored,
            n_losses=len(self.variants),
            n_ranks=self.problem.n_ranks(data.labels),
            in_queries=self.problem.in_queries,
        )
        return Workload(
            size,
            target_bytes=self.problem.target_bytes + 8 * self.has_weight + marks,
            block_nbytes=0 if in_memory else max(span.nbytes for span in source.blocks),
            data_nbytes=0 if in_memory else sum(span.nbytes for span in source.blocks) + data.columns_nbytes,
            threads=threads,
            program_bytes=program_bytes(options, converted=data.conversion_seconds is not None)
            + (0 if data.feature_names is None else data.feature_names.nbytes)
            + (0 if data.labels.sets is None else data.labels.sets.nbytes)
            + threads * data.thread_nbytes
            + data.shared_nbytes,
            ahead_nbytes=source.ahead_nbytes,
            measuring=measuring(options, self.n_folds),
            finished_bytes=0 if self.batch is None else self.batch.finished_bytes(source.n_features),
        )

    def fill(self, engine: Engine) -> FoldPairs:
        """Make the row vectors that come from the data; the pairs, where losses are of pairs."""
        fill: Any = partial(
            self.problem.fill,
            labels=self.data.labels,
            options=self.options,
            sorting_bytes=engine.sorting_bytes,
        )
        if self.folds is not None:
            fill = filled_with_folds(fill, self.folds)
        if self.problem.rowwise:
            engine.fill(fill)
            return [None] * (1 + self.n_folds)
        pairs = fill(engine.vectors, engine.source)
        return [pairs, *self.problem.fold_pairs(engine.vectors, pairs, self.n_folds, engine.sorting_bytes)]

    def models(self, pairs: FoldPairs) -> list[ModelSpec]:
        """The models to be trained: of all rows, for each C one after another; then those of each fold.

        Of a grid those of each point, one after another; of a batch only its own.
        """
        models = [
            replace(spec, variant=number)
            for number, variant in enumerate(self.variants)
            for spec in self._models_of(variant, pairs)
        ]
        return models if self.batch is None else self.batch.of(models)

    def _models_of(self, variant: Variant, pairs: FoldPairs) -> list[ModelSpec]:
        weight = WEIGHT if self.has_weight else None
        own = variant.options, variant.loss, weight
        models = self.problem.models(self.data.labels, *own, pairs[0])
        if self.options.held_out_share is not None:
            models = [replace(spec, held_out=HELD_OUT) for spec in models]
        if self.folds is not None:
            models += fold_models(self.problem, self.folds, self.data.labels, *own, pairs[1:])
        return models

    def context(
        self,
        size: DataSize,
        scale: Float64Array | None,
        stopping: Stopping,
        gammas: Sequence[float | None] | None = None,
    ) -> Context:
        """What the solvers share; ``gammas``: of the kernel of each variant, if they are known yet."""
        source, options = self.data.source, self.options
        space = LinearSpace(source.n_features, scale, options.resolved_bias == "penalized")
        numbers = zip(self.variants, gammas or [None] * len(self.variants), strict=True)
        kernels = tuple(variant.kernel(gamma) for variant, gamma in numbers)
        return Context(size, source.blocks, self.data.value_type, space, stopping, options, kernels)

    def solvers(
        self, models: Sequence[ModelSpec], plan: SolverPlan, context: Context, engine: Engine
    ) -> list[Solver]:
        """A solver for each model, and the row vectors that they work on."""
        solvers = self.solver.build(models, plan, replace(context, crew=engine.crew))
        for solver in solvers:
            for name, dtype in (*solver.vectors.items(), *solver.scratch_vectors.items()):
                engine.vectors.create(name, dtype)
        return solvers

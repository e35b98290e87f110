"""What training, its plan and its warm-up have in common: data and options made into solvers.

No solver, problem or loss is named here: the catalog says where each has its home.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from ooc_svm.catalog import KERNELS, LOSSES, PROBLEMS, SOLVERS, load
from ooc_svm.data.blocks import Float64Array
from ooc_svm.data.matrix import MatrixSource
from ooc_svm.engine.base import Engine
from ooc_svm.options import TrainOptions
from ooc_svm.problems.base import ModelSpec, Problem
from ooc_svm.problems.folds import FoldPairs, filled_with_folds, fold_models
from ooc_svm.problems.targets import HELD_OUT, WEIGHT
from ooc_svm.solvers.base import Context, DataSize, Solver, SolverPackage, SolverPlan
from ooc_svm.solvers.space import LinearSpace
from ooc_svm.solvers.stopping import Stopping
from ooc_svm.training.data import Data, open_data, without_rows
from ooc_svm.training.keys import RunKey, family_key, run_key
from ooc_svm.training.memory_plan import Workload, program_bytes, validation_bytes
from ooc_svm.training.tuning import TuneRequest, Tuning, check_request, plan_tuning

VALUE_BYTES = {"ones": 0, "float32": 4, "float64": 8}


@dataclass(frozen=True)
class Preparation:
    """Data and options, checked against each other."""

    data: Data
    options: TrainOptions
    problem: Problem
    loss: Any
    solver: SolverPackage
    # The labels that rows are told apart by; empty where labels are values or too many
    classes: Float64Array
    tuning: Tuning | None = None  # How values of C are compared, if they are

    @property
    def has_weight(self) -> bool:
        """Whether rows have weights: their own, or 0 where they are held out."""
        return self.data.source.has_weight or self.options.held_out_share is not None

    @property
    def n_folds(self) -> int:
        """Folds that models are trained without, besides those on all rows."""
        return 0 if self.tuning is None else self.tuning.n_folds

    @property
    def weighted(self) -> bool:
        """Whether some model sees weights: those of the rows, or 0 in a fold."""
        return self.has_weight or self.n_folds > 0

    @cached_property
    def workload(self) -> Workload:
        """The sizes that a run's memory follows from."""
        data, options, source = self.data, self.options, self.data.source
        in_memory = isinstance(source, MatrixSource)
        marks = int(options.held_out_share is not None or self.n_folds > 0)
        if options.over_pairs:  # see `Problem.fold_pairs`
            marks += 8 * self.n_folds
        wanted = self.problem.n_models(data.labels, options)
        size = DataSize(
            n_rows=source.n_rows,
            n_nonzeros=source.n_nonzeros,
            dimension=source.n_features + (options.resolved_bias == "penalized"),
            n_models=wanted * (1 + self.n_folds),
            value_bytes=VALUE_BYTES[data.value_type],
            has_weight=self.weighted,
            n_scored=wanted * (self.n_folds or int(options.held_out_share is not None)),
            n_ranks=self.problem.n_ranks(data.labels),
            in_queries=self.problem.in_queries,
        )
        return Workload(
            size,
            target_bytes=self.problem.target_bytes + 8 * self.has_weight + marks,
            block_nbytes=0 if in_memory else max(span.nbytes for span in source.blocks),
            data_nbytes=0 if in_memory else sum(span.nbytes for span in source.blocks),
            threads=1 if in_memory else options.threads or len(os.sched_getaffinity(0)),
            program_bytes=program_bytes(options, converted=data.conversion_seconds is not None)
            + (0 if data.feature_names is None else data.feature_names.nbytes)
            + (0 if data.labels.sets is None else data.labels.sets.nbytes)
            + validation_bytes(options, self.n_folds),
        )

    def key(self) -> RunKey:
        """What tells this run from others, for its checkpoints."""
        return run_key(self.data.id(), self.data.known_by, self.options, self._folds_key())

    def family(self) -> RunKey:
        """What this run has in common with those that it can start from, or they from it."""
        return family_key(self.data.id(), self.data.known_by, self.options, self._folds_key())

    def _folds_key(self) -> list[Any] | None:
        """What of the folds does not follow from data and options."""
        folds = None if self.tuning is None else self.tuning.folds
        return None if folds is None else [folds.n_folds, self.options.seed, folds.by_query]

    def fill(self, engine: Engine) -> FoldPairs:
        """Make the row vectors that come from the data; the pairs, where losses are of pairs."""
        fill: Any = partial(
            self.problem.fill,
            labels=self.data.labels,
            options=self.options,
            sorting_bytes=engine.sorting_bytes,
        )
        if self.tuning is not None and self.tuning.folds is not None:
            fill = filled_with_folds(fill, self.tuning.folds)
        if self.problem.rowwise:
            engine.fill(fill)
            return [None] * (1 + self.n_folds)
        pairs = fill(engine.vectors, engine.source)
        return [pairs, *self.problem.fold_pairs(engine.vectors, pairs, self.n_folds, engine.sorting_bytes)]

    def models(self, pairs: FoldPairs) -> list[ModelSpec]:
        """The models to be trained: of all rows, for each C one after another; then those of each fold."""
        weight = WEIGHT if self.has_weight else None
        models = self.problem.models(self.data.labels, self.options, self.loss, weight, pairs[0])
        if self.options.held_out_share is not None:
            models = [replace(spec, held_out=HELD_OUT) for spec in models]
        if self.tuning is not None and self.tuning.folds is not None:
            rest = self.data.labels, self.options, self.loss, weight, pairs[1:]
            models += fold_models(self.problem, self.tuning.folds, *rest)
        return models

    def kernel(self, gamma: float | None) -> Any:
        """The kernel with its numbers; where gamma is not known yet, a number stands for it."""
        numbers = self.options.kernel_numbers
        if "gamma" in numbers:
            numbers["gamma"] = 1.0 if gamma is None else gamma
        return load(KERNELS[self.options.kernel].home)(**numbers)

    def context(
        self, size: DataSize, scale: Float64Array | None, stopping: Stopping, gamma: float | None = None
    ) -> Context:
        """What the solvers share."""
        source, options = self.data.source, self.options
        space = LinearSpace(source.n_features, scale, options.resolved_bias == "penalized")
        kernel = self.kernel(gamma)
        return Context(size, source.blocks, self.data.value_type, space, stopping, options, kernel)

    def solvers(
        self, models: Sequence[ModelSpec], plan: SolverPlan, context: Context, engine: Engine
    ) -> list[Solver]:
        """A solver for each model, and the row vectors that they work on."""
        solvers = self.solver.build(models, plan, context)
        for solver in solvers:
            for name, dtype in (*solver.vectors.items(), *solver.scratch_vectors.items()):
                engine.vectors.create(name, dtype)
        return solvers


def open_prepared(
    data: Any,
    labels: Any,
    sample_weight: Any,
    qid: Any,
    options: TrainOptions,
    feature_names: Any = None,
    conversion_seconds: float | None = None,
    tuning: TuneRequest | None = None,
) -> Preparation:
    """Open what `train` was given, and prepare it; `conversion_seconds` if it was made from text."""
    if tuning is not None:
        check_request(tuning, options)
    opened = open_data(data, labels, sample_weight, options, qid, feature_names)
    return prepare(replace(opened, conversion_seconds=conversion_seconds), options, tuning)


def prepare(data: Data, options: TrainOptions, tuning: TuneRequest | None = None) -> Preparation:
    """Check data and options against each other, and plan the comparison of values of C if one is asked for.

    InputError, UsageError for labels that the problem cannot have, options that contradict the data.
    """
    problem: Problem = load(PROBLEMS[options.problem].home).of_labels(data.labels)
    held_out = problem.held_out(options)
    if held_out is not None:
        data = without_rows(data, held_out, problem.has_classes)
    entry = LOSSES[options.resolved_loss]
    loss = load(entry.home)(**{name: getattr(options, f"resolved_{name}") for name in entry.options})
    solver: SolverPackage = load(SOLVERS[options.resolved_solver].home)
    classes = problem.check(data.labels, options)
    plan = None if tuning is None else plan_tuning(tuning, problem, data, options)
    return Preparation(data, options, problem, loss, solver, classes, plan)

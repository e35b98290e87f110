"""What training, its plan and its warm-up have in common: data and options made into solvers.

No solver, problem or loss is named here: the catalog says where each has its home.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ooc_svm.catalog import LOSSES, PROBLEMS, SOLVERS, load
from ooc_svm.data.blocks import Float64Array
from ooc_svm.data.matrix import MatrixSource
from ooc_svm.engine.base import Engine
from ooc_svm.errors import UsageError
from ooc_svm.options import TrainOptions
from ooc_svm.pairs.request import Pairs
from ooc_svm.problems.base import ModelSpec, Problem
from ooc_svm.problems.targets import WEIGHT
from ooc_svm.solvers.base import Context, DataSize, Solver, SolverPackage, SolverPlan
from ooc_svm.solvers.space import LinearSpace
from ooc_svm.solvers.stopping import Stopping
from ooc_svm.system.memory import INTERPRETER_BYTES, TRAINER_BYTES
from ooc_svm.training.data import Data
from ooc_svm.training.memory_plan import Workload

VALUE_BYTES = {"ones": 0, "float32": 4, "float64": 8}


@dataclass(frozen=True, slots=True)
class Preparation:
    """Data and options, checked against each other."""

    data: Data
    options: TrainOptions
    problem: Problem
    loss: Any
    solver: SolverPackage
    # The labels that rows are told apart by; empty where labels are values or too many
    classes: Float64Array

    def workload(self) -> Workload:
        """The sizes that a run's memory follows from."""
        data, options, source = self.data, self.options, self.data.source
        in_memory = isinstance(source, MatrixSource)
        size = DataSize(
            n_rows=source.n_rows,
            n_nonzeros=source.n_nonzeros,
            dimension=source.n_features + (options.bias == "penalized"),
            n_models=self.problem.n_models(data.labels, options),
            value_bytes=VALUE_BYTES[data.value_type],
            has_weight=source.has_weight,
            n_ranks=self.problem.n_ranks(data.labels),
            in_queries=self.problem.in_queries,
        )
        return Workload(
            size,
            target_bytes=self.problem.target_bytes + 8 * source.has_weight,
            block_nbytes=0 if in_memory else max(span.nbytes for span in source.blocks),
            data_nbytes=0 if in_memory else sum(span.nbytes for span in source.blocks),
            threads=1 if in_memory else options.threads or len(os.sched_getaffinity(0)),
            # A cluster has libraries of its own.
            program_bytes=INTERPRETER_BYTES if options.engine == "dask" else TRAINER_BYTES,
        )

    def fill(self, engine: Engine) -> Pairs | None:
        """Make the row vectors that come from the data; the pairs, where losses are of pairs."""
        fill = partial(
            self.problem.fill,
            labels=self.data.labels,
            options=self.options,
            sorting_bytes=engine.sorting_bytes,
        )
        if self.problem.rowwise:
            engine.fill(fill)
            return None
        return fill(engine.vectors, engine.source)

    def models(self, pairs: Pairs | None) -> list[ModelSpec]:
        """The models to be trained, for each C one after another."""
        weight = WEIGHT if self.data.source.has_weight else None
        return self.problem.models(self.data.labels, self.options, self.loss, weight, pairs)

    def context(self, size: DataSize, scale: Float64Array | None, stopping: Stopping) -> Context:
        """What the solvers share."""
        source, options = self.data.source, self.options
        space = LinearSpace(source.n_features, scale, options.bias == "penalized")
        return Context(size, source.blocks, self.data.value_type, space, stopping, options)

    def solvers(
        self, models: Sequence[ModelSpec], plan: SolverPlan, context: Context, engine: Engine
    ) -> list[Solver]:
        """A solver for each model, and the row vectors that they work on."""
        solvers = self.solver.build(models, plan, context)
        for solver in solvers:
            for name, dtype in (*solver.vectors.items(), *solver.scratch_vectors.items()):
                engine.vectors.create(name, dtype)
        return solvers


def prepare(data: Data, options: TrainOptions) -> Preparation:
    """Check data and options against each other.

    InputError, UsageError for labels that the problem cannot have, options that contradict the data.
    """
    problem: Problem = load(PROBLEMS[options.problem].home)
    entry = LOSSES[options.resolved_loss]
    loss = load(entry.home)(**{name: getattr(options, f"resolved_{name}") for name in entry.options})
    solver: SolverPackage = load(SOLVERS[options.resolved_solver].home)
    return Preparation(data, options, problem, loss, solver, problem.check(data.labels, options))


def normal_options(options: dict[str, Any]) -> dict[str, Any]:
    """Options as `TrainOptions` takes them: numbers of Python, C and positive labels in tuples.

    UsageError if there is no such option.
    """
    unknown = set(options) - set(TrainOptions.__dataclass_fields__)
    if unknown:
        raise UsageError(f"unknown option {sorted(unknown)[0]!r}; see ooc_svm.options.TrainOptions")
    normal = {name: _plain(value) for name, value in options.items()}
    for name in ("C", "positive"):
        if name in normal:
            value = normal[name]
            single = isinstance(value, str) or np.ndim(value) == 0
            normal[name] = (value,) if single else tuple(_plain(item) for item in value)
    if isinstance(normal.get("class_weight"), Mapping):
        normal["class_weight"] = {_plain(k): _plain(v) for k, v in normal["class_weight"].items()}
    return normal


def _plain(value: Any) -> Any:
    """A number of NumPy as one of Python."""
    return value.item() if isinstance(value, np.generic) else value

"""Compile what a run will need before it starts, and say so where that takes a while."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ooc_svm.catalog import PROBLEMS, load
from ooc_svm.engine.serial import SerialEngine
from ooc_svm.ops.compiled import keep_compiled, was_compiled
from ooc_svm.options import TrainOptions
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.solvers.base import LONG_ROW, MANY_COLUMNS, MANY_MODELS, NO_KINDS, FunctionKinds
from ooc_svm.solvers.stopping import Stopping
from ooc_svm.training.data import open_data
from ooc_svm.training.prepare import prepare

# Seconds after which the user is told: loading compiled functions takes less, compiling them takes more.
PATIENCE = 1.5

COMPILING = "compiling, once for this version on this machine; takes up to a minute ..."

N_ROWS, N_FEATURES = 64, 8  # Rows and columns of the data of a warm-up
# Columns of long rows, two fifths of which are not 0; and all columns then: with fewer there are no parts
N_LONG, N_WIDE = 3 * LONG_ROW, 1 << 13
N_MORE = 300  # Columns that are more than the rows, and too many for systems of the columns
PRIME = 211  # More than the rows: none of their patterns comes twice
N_SPREAD = 8  # Sets of columns that rows are spread over, so that their mean is small

_done: set[tuple[object, ...]] = set()
"""Combinations of problem, loss, solver and kind of data for which this process is warm."""


def warm_up(
    options: TrainOptions,
    value_type: str,
    weighted: bool,
    note: Callable[[str], None],
    *,
    kinds: FunctionKinds = NO_KINDS,
    load: bool = False,
) -> None:
    """Run the solver on a few rows of the kind of data it will see, unless an earlier run has done so.

    What it compiles is kept: a run that follows loads it when it is called.

    ``value_type``: {"ones", "float32", "float64"}.
    ``weighted``: whether rows have weights.
    ``kinds``: see `ooc_svm.solvers.base.SolverPlan`.
    ``note``: gets a message where this takes longer than loading what an earlier run compiled.
    ``load``: also load what an earlier process has compiled, so that it takes no part of what is measured.
    """
    kind = (
        *(options.problem, options.resolved_loss, options.resolved_solver, options.resolved_bias),
        *(options.kernel, options.scale != "none", value_type, weighted),
        *(name.replace("_", " ") for name, own in kinds._asdict().items() if own),
    )
    if kind in _done or (not load and was_compiled(repr(kind))):
        return
    timer = threading.Timer(PATIENCE, note, [COMPILING])
    timer.daemon = True
    timer.start()
    try:
        for each in _variants(options, kinds):
            _tiny_run(options, value_type, weighted, *each)
    finally:
        timer.cancel()
    _done.add(kind)
    keep_compiled(repr(kind))


def _variants(options: TrainOptions, kinds: FunctionKinds) -> Iterator[tuple[FunctionKinds, bool]]:
    """What is run: kinds of data and models, and whether the mean of the rows is small.

    Many models become few when most of them have ended. With a free bias a mean that is not small is taken
    from the rows, by other functions, and models are not swept as one.
    """
    few = kinds._replace(many_models=False)
    many = kinds.many_models and "C" not in PROBLEMS[options.problem].without
    for each in (few, kinds) if many else (few,):
        for spread in (False, True) if options.resolved_bias == "free" else (False,):
            yield each, spread


def _tiny_run(
    options: TrainOptions, value_type: str, weighted: bool, kinds: FunctionKinds, spread: bool
) -> None:
    """A few reads of made-up rows; ``spread``: most have no column in common."""
    numbers = np.arange(N_ROWS)
    n_used = N_LONG if kinds.long_rows else N_MORE if kinds.by_factor else N_FEATURES
    pattern = (numbers[:, None] * (1 + np.arange(n_used))) % 5 < 2
    if kinds.by_factor:
        # No row follows from others, and their mean is not small.
        pattern = (1 + numbers[:, None]) * (1 + np.arange(n_used)) % PRIME % 5 < 4
    ones = value_type == "ones"
    values: Any = pattern.astype(np.float64 if ones else value_type) * (1.0 if ones else 0.5)
    if spread:
        wide = np.zeros((N_ROWS, N_SPREAD, n_used), values.dtype)
        wide[numbers, numbers % N_SPREAD] = values
        values = wide.reshape(N_ROWS, -1)
    if kinds.many_columns or kinds.long_rows:
        from scipy.sparse import csr_array

        values = csr_array(values)
        values.resize(N_ROWS, MANY_COLUMNS + 1 if kinds.many_columns else max(N_WIDE, values.shape[1]))
    problem = PROBLEMS[options.problem]
    # With a C as large as that streamed SMO does not solve rows so soon that it takes no proximal step.
    C = 1000.0 if options.resolved_solver == "streamed-smo" and "C" not in problem.without else 1.0
    n_costs = MANY_MODELS if kinds.many_models else 1
    # A kernel that is not positive semi-definite on these rows would end the run.
    kernel: dict[str, Any] = {"gamma": 1e-3, "coef0": 0.0} if options.kernel in ("poly", "sigmoid") else {}
    tiny = replace(
        options, **kernel, C=tuple(C * 2.0**k for k in range(n_costs)), nu=None, class_weight=None,
        positive=(), label=None, layer=None, engine="local", scheduler=None, insecure_cluster=False,
        validation=None, calibrate=None, landmarks=None, polish=False, cache=None, cache_size=None,
    )  # fmt: skip
    labels = load(problem.home).sample_labels(N_ROWS)
    weights = np.ones(N_ROWS) if weighted else None
    prepared = prepare(open_data(values, labels, weights, tiny, numbers // 16), tiny)
    size = prepared.workload.size
    plan = prepared.solver.tiny_plan(size, tiny)
    with RowVectors(N_ROWS, 1 << 20) as vectors:
        engine = SerialEngine(prepared.data.source, vectors)
        models = prepared.models(prepared.fill(engine))
        scale = None if options.scale == "none" else np.ones(values.shape[1])
        context = prepared.context(size, scale, Stopping(1e-9, max_passes=3))
        solvers = prepared.solvers(models, plan, context, engine)
        engine.run(solvers)
        solvers[0].hints()

"""Compile what a run will need before it starts, and say so where that takes a while."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ooc_svm.data.classes import BinaryProblem
from ooc_svm.data.matrix import MatrixSource
from ooc_svm.engine.serial import MemoryEngine
from ooc_svm.options import TrainOptions
from ooc_svm.pairs.request import PairRows, Pairs
from ooc_svm.problems.pairwise import HEADS, RANKS
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.solvers.space import LinearSpace
from ooc_svm.solvers.stopping import Stopping
from ooc_svm.training.assembly import CODES, TARGET, WEIGHT, Task, make_solvers
from ooc_svm.training.memory_plan import Parameters

# Loading compiled functions takes less, compiling them takes more.
PATIENCE = 1.5


def warm_up(options: TrainOptions, value_type: str, weighted: bool, note: Callable[[str], None]) -> None:
    """Run the solver on a few rows of the kind of data it will see.

    Parameters
    ----------
    options : TrainOptions
    value_type : {"ones", "float32", "float64"}
    weighted : bool
        Whether rows have weights.
    note : callable
        Told when this takes longer than loading what an earlier run compiled.
    """
    timer = threading.Timer(PATIENCE, note, ["compiling, once for this version on this machine ..."])
    timer.daemon = True
    timer.start()
    try:
        _tiny_run(options, value_type, weighted)
    finally:
        timer.cancel()


def _tiny_run(options: TrainOptions, value_type: str, weighted: bool) -> None:
    ones = value_type == "ones"
    n_rows, n_features = 64, 8
    numbers = np.arange(n_rows)
    pattern = (numbers[:, None] * (1 + np.arange(n_features))) % 5 < 2
    values = pattern.astype(np.float64 if ones else value_type) * (1.0 if ones else 0.5)
    codes = (numbers % 3 == 0).astype(np.uint16)
    source = MatrixSource(values, codes, np.ones(n_rows) if weighted else None)
    classes = BinaryProblem(1.0, -1.0, np.array([-1.0, 1.0]), np.ones(2))
    task = Task(1.0, classes if options.problem == "svc" else None)
    ranks = numbers % 3 if options.problem == "ordinal" else codes
    rows = PairRows(
        RANKS,
        int(ranks.max()) + 1,
        WEIGHT if weighted else None,
        HEADS if options.problem == "ranking" else None,
    )
    scale = None if options.scale == "none" else np.ones(n_features)
    space = LinearSpace(n_features, scale, options.bias == "penalized")
    # So few rows fit the resident set that some come and some leave.
    parameters = Parameters(max_cuts=8, capacity=source.n_nonzeros // 4)
    if options.over_pairs and options.resolved_solver == "ocas":
        parameters = replace(parameters, points=2, bins=4)
    stopping = Stopping(1e-9, max_passes=3)
    with RowVectors(n_rows, 1 << 20) as vectors:
        vectors.create(CODES, np.uint16).write(0, codes)
        vectors.create(TARGET, np.float64).write(0, codes.astype(np.float64))
        vectors.create(WEIGHT, np.float64, fill=1.0)
        vectors.create(RANKS, np.int32).write(0, ranks.astype(np.int32))
        vectors.create(HEADS, np.uint8).write(0, (numbers % 16 == 0).astype(np.uint8))
        kind = value_type, space, stopping, Pairs(rows, 1.0)
        solvers, wanted = make_solvers([task], options, parameters, source, *kind)
        for name, dtype in wanted.items():
            vectors.create(name, dtype)
        MemoryEngine(source, vectors).run(solvers)

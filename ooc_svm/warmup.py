"""Compile what a run will need before it starts, and say so where that takes a while."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from ooc_svm.engine.memory import MemoryEngine
from ooc_svm.problems.hinge import HingeProblem, Targets
from ooc_svm.problems.linear import LinearSpace
from ooc_svm.rowvectors import RowVectors
from ooc_svm.solvers.cutting_plane import CuttingPlane, CuttingPlaneState
from ooc_svm.solvers.ocas import Ocas, OcasState
from ooc_svm.source import MatrixSource
from ooc_svm.stopping import Stopping

# Loading compiled functions takes less, compiling them takes more.
PATIENCE = 1.5


def warm_up(solver: str, value_type: str, weighted: bool, note: Callable[[str], None]) -> None:
    """Run a solver on four rows of the kind of data it will see.

    Parameters
    ----------
    solver : {"ocas", "cutting-plane"}
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
        _tiny_run(solver, value_type, weighted)
    finally:
        timer.cancel()


def _tiny_run(solver: str, value_type: str, weighted: bool) -> None:
    ones = value_type == "ones"
    values = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.0, 0.0]]) * (1.0 if ones else 0.5)
    source = MatrixSource(values.astype(np.float64 if ones else value_type), [1.0, 1.0, -1.0, -1.0])
    targets = Targets("codes", np.array([-1.0, 1.0]), np.ones(2), "weight" if weighted else None)
    problem = HingeProblem(targets, 1.0, LinearSpace(2))
    stopping = Stopping(1e-3, max_passes=3)
    with RowVectors(4, 1 << 20) as vectors:
        vectors.create("codes", np.uint16).write(0, np.array([1, 1, 0, 0], dtype=np.uint16))
        vectors.create("weight", np.float64, fill=1.0)
        for name, dtype in problem.row_vectors.items():
            vectors.create(name, dtype)
        engine = MemoryEngine(source, vectors)
        if solver == "ocas":
            engine.run([Ocas(problem, stopping, OcasState.fresh(2, 8))])
        else:
            engine.run([CuttingPlane(problem, stopping, CuttingPlaneState.fresh(2, 8))])

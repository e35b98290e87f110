"""What block SMO knows between two reads."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ooc_svm.solvers.block_smo.backlog import Backlog
from ooc_svm.solvers.block_smo.working_set import WorkingSet
from ooc_svm.solvers.certificate import Certificate


@dataclass(slots=True)
class BlockSmoState:
    """Everything the solver knows between two reads, besides the row vectors."""

    working: WorkingSet
    backlog: Backlog
    certificate: Certificate = field(default_factory=Certificate)
    total: float = 0.0  # Sum of the multipliers, those of the working set as they are to be
    best_bias: float = 0.0
    # The bias of the moment, where it is not penalized: of the working set after its steps, or of the last P
    pivot: float = 0.0
    square: float = 0.0  # Of `RowSizes`, after the first read
    nonzeros: int = 0
    steps: float = 0.0  # Inside of working sets, so far
    values: float = 0.0  # Kernel values computed so far
    exact: int = 0  # Computations of the scores in float64 so far
    hidden: int = 0  # Reads in a row whose gap was less than its rounding
    # The smallest gap without rounding, and the read that it was found in
    nearest_gap: float = math.inf
    nearest: int = 0
    partial: int = 0  # Reads since all rows were brought up to date
    n_aside: int = 0  # Rows that are set aside
    violation: float = math.inf  # Between the extreme slopes, at the last read
    due_violation: float = 0.0  # From which on down rows set aside are brought up to date
    waits_for_exact: int = 0  # 1 if the next read is such a computation
    unbounded: int = 0  # 1 if the best point is that of landmarks, whose coefficients have no bounds
    # Landmarks whose point the run begins with
    begins: int = field(default=0, metadata={"saved": False})

"""Small weights set to 0 at the end of a run, and the certificate of what is left.

Models of many classes on many features are large, and most of their weights next to nothing. Those below a
threshold are set to 0, as in DiSMEC (Babbar and Schoelkopf 2017, whose threshold is a number; here it is a
share of the largest weight, so that it has no unit and suits every C). The model file keeps the others alone.
D is a bound for all weights, so it stays; P of the weights that are left is found by one read of the data,
for all models together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array
from ooc_svm.passes.base import Steps
from ooc_svm.solvers.base import Prunable
from ooc_svm.solvers.certificate import Certificate
from ooc_svm.solvers.stopping import CERTIFIED

if TYPE_CHECKING:
    from ooc_svm.training.run import Run


@dataclass(frozen=True, slots=True)
class _Pruning:
    """What the engine drives: a solver whose weights of some features become 0."""

    solver: Prunable
    features: npt.NDArray[np.bool_]

    def steps(self) -> Steps:
        """Yield the requests of the solver."""
        return self.solver.prune(self.features)


def prune(run: Run, share: float) -> None:
    """Set all weights to 0 that are smaller than a share of the largest one of their model.

    Interrupted by a signal before the read.
    """
    run.recorder.note("one read comes last, for the gaps of what pruning leaves")
    prunings, before = [], []
    for solver in run.solvers:
        assert isinstance(solver, Prunable)
        weights = solver.solution().weights
        prunings.append(_Pruning(solver, _small(weights, run.context.space.scale, share)))
        before.append(_facts(solver.certificate, weights))
    run.drive(prunings, run.heed_signals)
    run.unpruned = before


def pruning_report(run: Run, number: int) -> dict[str, Any]:
    """What the report says of a model that was pruned."""
    if not run.unpruned:
        return {}
    solver = run.solvers[number]
    assert isinstance(solver, Prunable)
    left = int(np.count_nonzero(solver.solution().weights))
    return {"n_nonzero_weights": left, "unpruned": run.unpruned[number]}


def _facts(certificate: Certificate, weights: Float64Array) -> dict[str, Any]:
    """What the report says of a model as it was before."""
    return {
        "primal": certificate.primal,
        "gap": certificate.gap,
        "relative_gap": certificate.relative_gap,
        "converged": certificate.stop_reason == CERTIFIED,
        "n_nonzero_weights": int(np.count_nonzero(weights)),
    }


def _small(weights: Float64Array, scale: Float64Array | None, share: float) -> npt.NDArray[np.bool_]:
    """Which weights are smaller than a share of the largest; of scaled columns, as they were trained."""
    sizes = np.abs(weights if scale is None else weights / scale)
    small: npt.NDArray[np.bool_] = sizes < share * sizes.max(initial=0.0)
    return small

"""The decision functions of a model, from what solvers end with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ooc_svm.model.kernel import KernelFunctions
from ooc_svm.model.linear import LinearFunctions
from ooc_svm.passes.base import UNCOUNTED
from ooc_svm.passes.gather import GatherPass, NonzeroRows, join_gathered
from ooc_svm.solvers.base import KernelExpansion, LinearFunction, Solution

if TYPE_CHECKING:
    from ooc_svm.training.run import Run


def decision_functions(run: Run, solutions: Sequence[Solution]) -> LinearFunctions | KernelFunctions:
    """The decision functions of the solutions; of kernels, a read that is not counted brings the rows."""
    bias, scale = np.array([each.bias for each in solutions]), run.context.space.scale
    linear = [each for each in solutions if isinstance(each, LinearFunction)]
    if linear:
        return LinearFunctions(np.array([each.weights for each in linear]), bias, scale)
    expansions = [each for each in solutions if isinstance(each, KernelExpansion)]
    names = tuple(each.coefficients for each in expansions)
    parts = run.engine.stream([GatherPass(NonzeroRows(names), names, UNCOUNTED, expansions[0].rows)])[0]
    found = join_gathered(parts, names)
    coefficients = np.array([found.vectors[name] for name in names])
    precision = max(each.precision for each in expansions)
    n_features = run.engine.source.n_features
    return KernelFunctions(
        run.context.kernels[run.variant], found.rows, coefficients, bias, n_features, scale, precision
    )

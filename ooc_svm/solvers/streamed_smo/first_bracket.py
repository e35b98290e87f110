"""The first bracket of a nu problem: values of C or epsilon that most optima are between."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ooc_svm.passes.base import Pass
from ooc_svm.solvers.streamed_smo.placement import RHO, place_rows, place_targets

if TYPE_CHECKING:
    from ooc_svm.solvers.streamed_smo.bracket import Member

N_MODELS = 6
N_VECTORS = 3  # Row vectors in addition to those of the models

# The values of epsilon, as multiples of the mean distance of the values from their center. The largest C, as
# a multiple of 1 over the mean squared norm of a row; the smallest is 1 over the sum of those norms.
EPSILONS = np.array([0.0, 0.1, 0.3, 0.6, 1.2, 3.0])
LARGEST_C = 100.0

LEAST = float(np.finfo(np.float64).tiny)


def place_members(members: Sequence[Member], weight: float) -> Generator[Pass, Any, None]:
    """Give the models their values, and what follows from where the data lies; ``weight``: of all rows."""
    first = members[0].solver
    center, unit = yield from place_targets(first.model, first.rows)
    rho, mean = yield from place_rows(replace(first.model, center=center), first.rounds, first.rows)
    if members[0].in_margins:
        # Norms or weights may add up to infinity, which the certificate reports.
        largest = math.log(max(LARGEST_C * RHO / max(rho, LEAST), LEAST))
        places = np.linspace(largest - math.log(LARGEST_C * weight), largest, len(members))
    else:
        places = EPSILONS * unit
    for member, place in zip(members, places.tolist(), strict=True):
        yield from member.move(place)
        state, costs = member.solver.state, member.solver.model.C * weight
        state.center, state.unit, state.mean = center, unit, mean
        state.rho = max(rho, 1.0 / costs if costs > 0.0 else math.inf)

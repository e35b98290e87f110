"""Everything the solver of one model knows between two reads, apart from its row vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array
from ooc_svm.solvers.alm.rules import Pending
from ooc_svm.solvers.certificate import Certificate
from ooc_svm.solvers.cutting_plane.bundle import Bundle


@dataclass(slots=True)
class Penalty:
    """The penalty mu as a multiple of C, and what its limit follows from."""

    ratio: float
    # Of the last update: ``mu |r - e|^2``, and ``|w|^2 / 2`` with the losses at e
    violation: float = 0.0
    value: float = math.inf


@dataclass(slots=True)
class Memory:
    """Past steps and changes of the gradient, newest last, ndarrays of shape (m, dimension)."""

    steps: Float64Array
    changes: Float64Array


@dataclass(slots=True)
class Search:
    """The conjugate gradient method under way: each product with the curvature is a read."""

    # shape (dimension,): what has been found, what is left of the right hand side, and the next direction
    found: Float64Array
    rest: Float64Array
    along: Float64Array
    size: float = 0.0  # Of the rest, in the norm of the preconditioner
    goal: float = 0.0  # Of that at the end
    products: int = 0  # So far
    active: int = 0  # 1 while it is under way


@dataclass(slots=True)
class AlmState:
    """The state of one model.

    Attributes
    ----------
    w, direction, best : ndarray of shape (dimension,)
        The point, the direction that the next read looks along, and the best point.
    plane : ndarray of shape (dimension,)
        The sum of the rows at the point, with the multipliers of the augmented Lagrangian.
    curvature : ndarray of shape (dimension, dimension) or (2, dimension)
        Of the augmented Lagrangian without ``|w|^2 / 2``; or its diagonal, and the sum of the rows, weighted
        with their slopes, over the root of the sum of these.
    reach : float
        The step that the next read tries first.
    step, renews, before : float, int, float
        See `ooc_svm.solvers.alm.rules.Pending`.
    fell : int
        Reads before the last one that lowered the augmented Lagrangian by more than rounding.
    score_error, best_error : float
        The scores at the two points are off by at most this times the norm of a row.
    sizes : ndarray of shape (4,)
        Largest norm of a row, most nonzeros of one, number of rows, longest chain of additions.
    largest : ndarray of shape (2,)
        Of all sums of multipliers so far: of their magnitudes, and of the terms of their offsets.
    """

    w: Float64Array
    direction: Float64Array
    best: Float64Array
    plane: Float64Array
    curvature: Float64Array
    penalty: Penalty
    memory: Memory
    search: Search
    bundle: Bundle
    certificate: Certificate = field(default_factory=Certificate)
    reach: float = 1.0
    step: float = 0.0
    renews: int = 0
    before: float = 1.0
    fell: int = 0
    score_error: float = 0.0
    best_error: float = 0.0
    sizes: Float64Array = field(default_factory=lambda: np.zeros(4))
    largest: Float64Array = field(default_factory=lambda: np.zeros(2))

    @classmethod
    def fresh(cls, dimension: int, n_free: int, max_cuts: int, ratio: float, *, diagonal: bool) -> AlmState:
        """The state before the first read; ``ratio``: of the penalty to the costs."""
        w, direction, best, plane, found, rest, along = (np.zeros(dimension) for _ in range(7))
        curvature = np.zeros((2 if diagonal else dimension, dimension))
        memory = Memory(np.empty((0, dimension)), np.empty((0, dimension)))
        bundle = Bundle.fresh(max_cuts, dimension, n_free)
        search = Search(found, rest, along)
        return cls(w, direction, best, plane, curvature, Penalty(ratio), memory, search, bundle, before=ratio)

    def upgrade(self, saved: dict[str, npt.NDArray[Any]]) -> None:
        """Give the arrays of a release that did not count this those of today."""
        saved.setdefault("fell", np.asarray(0))

    @property
    def pending(self) -> Pending:
        """What the next read does first."""
        return Pending(self.step, bool(self.renews), self.before)

    def is_sound(self, dimension: int, n_free: int, *, diagonal: bool) -> bool:
        """Whether the parts fit the model; a saved state may come from anywhere."""
        points = [self.w, self.direction, self.best, self.plane]
        points += [self.search.found, self.search.rest, self.search.along]
        shape = (2 if diagonal else dimension, dimension)
        past = self.memory.steps.shape == self.memory.changes.shape == (len(self.memory.steps), dimension)
        numbers = [getattr(self, item.name) for item in fields(self) if item.type == "float"]
        return (
            all(each.shape == (dimension,) and bool(np.isfinite(each).all()) for each in points)
            and self.curvature.shape == shape
            and past
            and all(math.isfinite(number) for number in numbers)
            and math.isfinite(self.penalty.ratio)
            and min(self.penalty.ratio, self.before, self.reach) > 0.0
            and len(self.sizes) == 4
            and len(self.largest) == 2
            and self.certificate.is_sound()
            and 0 <= self.fell <= self.certificate.passes
            and self.bundle.is_sound(dimension, 2, n_free)
        )

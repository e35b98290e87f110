"""How far rounding can have moved P and D: bounds of first order in the unit roundoff u = 2^-53.

Of the error of w, and of that of the sum of v, the squares count as well.

A sum of n terms is off by at most ``n u`` times the sum of their magnitudes, and the score of a row with m
nonzeros by at most ``(m + 2) u |x| |w|``. Sums over rows of such products follow from sums that are known, by
the inequality of Cauchy and Schwarz: ``sum_i a_i |x_i| <= sqrt(sum_i a_i^2 / c_i) sqrt(sum_i c_i |x_i|^2)``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.solvers.rounding import FEW, UNIT
from ooc_svm.solvers.streamed_smo import dual_loops
from ooc_svm.solvers.streamed_smo.sweep import COST, LENGTH, LONGEST, N_ROW_SUMS, NORM


@dataclass(slots=True)
class SmoRounding:
    """What is known of a run's rounding."""

    # shape (N_ROW_SUMS,): sums over all rows, see `ooc_svm.solvers.streamed_smo.sweep.NormPass`
    rows: Float64Array = field(default_factory=lambda: np.zeros(N_ROW_SUMS))
    # The score of a row at the best point is off by at most this times ``(m + 2) |x|``
    scores: float = 0.0
    per_score: float = 0.0  # What the rounding of P at the best point is of ``scores``, as a multiple of them
    # shape (dual_loops.N_SUMS,): sums of the moves since w was last summed from its rows, and the largest
    # norm of w since then
    moves: Float64Array = field(default_factory=lambda: np.zeros(dual_loops.N_SUMS))
    largest: float = 0.0
    # Of each addition to the sums: the number of changes times their magnitudes, those of D and of v
    size_chains: float = 0.0
    distance_chains: float = 0.0
    additions: float = 0.0  # To the sums since then
    rescalings: float = 0.0  # Of all multipliers since then

    def is_sound(self) -> bool:
        """Whether the parts have their shapes; saved ones may come from anywhere."""
        return len(self.rows) == N_ROW_SUMS and len(self.moves) == dual_loops.N_SUMS

    def start(self, sums: Float64Array, norm: float) -> None:
        """W is summed from its rows; ``sums`` are those of the multipliers, ``norm`` is that of w."""
        self.moves, self.largest = sums, norm
        self.size_chains = self.distance_chains = self.additions = self.rescalings = 0.0

    def moved(self, sums: Float64Array, norm: float) -> None:
        """Multipliers have moved; ``norm``: the largest that w had meanwhile, as far as is known."""
        self.moves = self.moves + sums
        changes = float(sums[dual_loops.CHANGES])
        self.size_chains += changes * float(sums[dual_loops.SIZE])
        self.distance_chains += changes * float(sums[dual_loops.DISTANCE])
        self.additions += 1.0
        self.largest = max(self.largest, norm)

    def rescale(self, ratio: float) -> None:
        """All costs and multipliers are multiplied, and so is what they are summed up to."""
        changes = self.moves[dual_loops.CHANGES]
        self.moves = self.moves * ratio
        self.moves[dual_loops.CHANGES] = changes
        self.largest *= ratio
        self.size_chains *= ratio
        self.distance_chains *= ratio
        self.additions += 1.0
        self.rescalings += 1.0

    def scores_at(self, t: float, best: float, reference: float, error: float) -> float:
        """`scores` where the best point goes to ``best + t (reference - best)``; given are norms.

        ``error``: that of the scores at the reference.
        """
        kept = abs(1.0 - t)
        return kept * self.scores + abs(t) * error + FEW * UNIT * (best + abs(t) * reference)

    @property
    def mean_square(self) -> float:
        """Mean squared norm of a row, by cost; 0 before the first read."""
        cost = float(self.rows[COST])
        return float(self.rows[NORM]) / cost if cost > 0.0 else 0.0

    @property
    def residual(self) -> float:
        """The largest error of a residual at the best point, that of its own arithmetic left out."""
        return self.scores * float(self.rows[LONGEST])

    def primal(self, norm: float, slopes: Float64Array, b: float, size: tuple[int, int]) -> float:
        """Bound of the rounding of P at the best point.

        ``norm``: ``|w|^2 / 2``.
        ``slopes``: see `ooc_svm.losses.row_loops.slope_sizes`.
        ``b``: the bias of the model, with the center.
        ``size``: numbers of rows and of features.
        """
        n, d = size
        square, magnitudes, total, losses = (float(each) for each in slopes)
        self.per_score = math.sqrt(square * float(self.rows[LENGTH]))
        of_residuals = UNIT * (FEW * magnitudes + abs(b) * total)
        return self.scores * self.per_score + of_residuals + UNIT * ((n + FEW) * losses + (d + FEW) * norm)

    def dual(self, norm: float, b: float, size: tuple[int, int]) -> float:
        """Bound of the rounding of D: that of w, of its linear part, and of the sum of v if there is a bias.

        ``norm``: ``|w|``. ``b``: the bias of the moment.
        """
        n, d = size
        # What has changed is rounded once more with each rescaling.
        was, moves = self.moves, (1.0 + self.rescalings) * self.moves[dual_loops.CHANGES] + FEW
        links = self.additions + FEW
        linear = (n + links) * was[dual_loops.WAS_SIZE] + links * was[dual_loops.SIZE] + self.size_chains
        rows = math.sqrt(float(was[dual_loops.WAS_SQUARE] * self.rows[NORM]))
        weights = UNIT * float((n + 2.0 * self.rescalings) * rows + 3 * moves * self.largest)
        total = self.total(n)
        # Where large products cancel each other w may be less than its error is: the squares count, too.
        squares = 0.5 * (weights * weights + total * total)
        return UNIT * float(linear + (d + FEW) * norm * norm) + norm * weights + abs(b) * total + squares

    def total(self, n_rows: int) -> float:
        """Bound of the rounding of the sum of v."""
        was, links = self.moves, self.additions + FEW
        total = (n_rows + links) * was[dual_loops.WAS_DISTANCE] + links * was[dual_loops.DISTANCE]
        return UNIT * float(total + self.distance_chains)

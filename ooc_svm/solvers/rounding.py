"""What rounding can have changed in P and D at most: bounds of first order, for the worst case.

With the unit roundoff ``u = 2^-53``, a number that n operations lead to, one after another, is off by at most
``gamma(n) = n u / (1 - n u)`` of the sum of the magnitudes of its terms (Higham, *Accuracy and Stability of
Numerical Algorithms*, 3.1). This holds in any order of the additions, with n the largest number of operations
on the way of a term, and where products and sums are fused.

Everything here is in sums over the rows with the weights ``a_i`` that their scores have in the loss. Where
that is ``sum_i omega_i l(s_i)`` with slopes of 1 at most, ``a_i = omega_i``. Where it is the mean over pairs,
``a_i`` is the share of the pairs that row i is in; these sum up to 2.

    mass_j = sum_i a_i |x_ij|               (for pairs at most 2 max_i |x_ij|)
    A(w)   = sum_i a_i sum_j |x_ij w_j| = sum_j mass_j |w_j|

A score ``x_i.w`` of m nonzeros goes through m + 3 operations: a product, m - 1 additions, the column's scale,
the bias and one to spare. So all scores together change a loss by at most ``gamma(m + 3) A(w)``, m being that
of the longest row. A sum over rows of terms that are at most ``a_i (1 + |s_i|)`` in n operations is off by at
most ``gamma(n) (sum_i a_i + A(w))``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.passes.columns import Magnitudes
from ooc_svm.solvers.space import LinearSpace

UNIT = 2.0**-53  # The unit roundoff
FEW = 8.0  # Roundings of a row's own loss or conjugate, and of what is put together from sums
DOT_BLOCK = 4096  # Products that are added one after another in `inner`


def gamma(operations: float) -> float:
    """Largest relative error after so many operations; infinite where no digit is left."""
    error = operations * UNIT
    return error / (1.0 - error) if error < 1.0 else math.inf


def exact_sum(terms: Sequence[float]) -> float:
    """A sum that is rounded once, however many terms it has."""
    try:
        return math.fsum(terms)
    except (OverflowError, ValueError):
        # The certificate reports it.
        return sum(terms)


def inner(a: Float64Array, b: Float64Array) -> float:
    """``a.b`` in short sums: off by at most `inner_error` of ``|a|.|b|``, however long the vectors are."""
    if len(a) <= DOT_BLOCK:
        return float(a @ b)
    starts = range(0, len(a), DOT_BLOCK)
    return exact_sum([float(a[k : k + DOT_BLOCK] @ b[k : k + DOT_BLOCK]) for k in starts])


def inner_error(length: int) -> float:
    """Relative error of `inner`: products, their sum in a block, the sum of the blocks."""
    return gamma(min(length, DOT_BLOCK) + 2)


@dataclass(frozen=True, slots=True)
class Rounding:
    """The bounds on some data, for the losses of one model."""

    space: LinearSpace
    columns: Float64Array  # shape (n_features,): in units of the data; times `factor`, it is mass_j
    factor: float
    constant: float  # The mass of a feature that is 1 in every row
    weight: float  # Sum of a_i, or of the largest terms that do not depend on the scores
    norm: float  # At least the norm of mass, in the solver's coordinates
    nonzeros: int  # Of the longest row
    rows: int
    chain: int  # Operations in a sum over all rows, such as those of a cut
    # Whether the offsets of cuts are sums of terms of both signs, which add up to `weight` at most
    signed: bool = False

    @classmethod
    def of_rows(
        cls, found: Magnitudes, space: LinearSpace, largest_weight: float, reach: float | None = None
    ) -> Rounding:
        """Where losses are of rows, which weigh ``largest_weight`` times their own weight at most.

        ``reach``: the largest term of a loss that does not depend on the score, where that is not 1.
        """
        # What the sums of magnitudes are off by themselves.
        factor = largest_weight * (1.0 + gamma(found.chain + 2))
        columns = found.columns if space.scale is None else found.columns * space.scale
        constants = math.sqrt(space.penalized_bias + space.n_free) * found.weight
        norm = math.hypot(np.linalg.norm(columns), constants)
        constant = factor * found.weight
        weight = constant * (1.0 if reach is None else max(reach, 1.0))
        sizes = (found.nonzeros, found.rows, found.chain, reach is not None)
        return cls(space, found.columns, factor, constant, weight, factor * norm, *sizes)

    @classmethod
    def of_pairs(cls, found: Magnitudes, space: LinearSpace) -> Rounding:
        """Where the mean is taken over pairs of rows: a pair is at most twice the largest row."""
        norm = 2.0 * math.sqrt(found.square) * (1.0 + gamma(found.nonzeros + 4))
        return cls(space, found.columns, 2.0, 2.0, 1.0, norm, found.nonzeros, found.rows, found.chain)

    @property
    def mass(self) -> float:
        """The norm of the masses of the features, in the solver's coordinates."""
        columns = self.columns if self.space.scale is None else self.columns * self.space.scale
        return self.factor * float(np.linalg.norm(columns))

    def products(self, w: Float64Array) -> float:
        """``A(w)`` at most: by the columns, or by norms (``mass.|w| <= |mass| |w|``), whichever is less."""
        weights, _ = self.space.to_data(np.abs(w))
        constants = float(np.abs(w[self.space.n_features :]).sum())
        by_columns = self.factor * float(weights @ self.columns) + constants * self.constant
        return min(by_columns, self.norm * math.sqrt(inner(w, w))) * (1.0 + gamma(len(w) + 4))

    def scores(self, w: Float64Array) -> float:
        """``sum_i a_i |error of s_i|`` of scores that come from w."""
        return gamma(self.nonzeros + 3) * self.products(w)

    def moved_scores(
        self, error: float, w: Float64Array, moved: Float64Array, t: float, ahead: float
    ) -> float:
        """The same of ``moved = best + t (w - best)``, where scores were moved like the weights.

        ``error`` is that of the scores at ``best``; those at w bring theirs. Each of the two combinations, of
        scores and of weights, goes through three operations on magnitudes that sum up to ``ahead``,
        ``|t| A(w - best)``, and one on those of the outcome.
        """
        combining = 2.0 * (gamma(3) * ahead + gamma(1) * self.products(moved))
        return abs(1.0 - t) * error + abs(t) * self.scores(w) + combining

    def losses(self, score_error: float, operations: float, reach: float) -> float:
        """The sum of the losses, made in so many operations from scores that are off by ``score_error``.

        ``reach``: ``A`` of the points that it was made from.
        """
        return score_error + gamma(operations) * (self.weight + reach)

    def primal(self, C: float, w: Float64Array, loss_error: float) -> float:
        """P at w: the loss, and ``|w|^2 / 2``."""
        own = self.space.penalized(w)
        return C * loss_error + inner_error(len(w)) * inner(own, own)

    def dual(
        self, linear: float, total: float, n_cuts: int, w: Float64Array, operations: float, box: float = 0.0
    ) -> float:
        """D of the master problem, ``sum_k beta_k delta_k - 1/2 |w|^2`` with ``w = sum_k beta_k a_k``.

        A cut is exactly one for its coefficients, whichever they are, and its plane and offset are off from
        that by ``gamma(operations)`` of mass and of the offset. So with ``g = gamma(operations + m)``, w is
        off by ``E <= g total mass`` in each coordinate, and

            |w + E|^2 / 2 - |w|^2 / 2 <= |w|.E + |E|^2 / 2 <= g total A(w) + (g total |mass|)^2 / 2.

        The multipliers of a group sum up to C but for ``gamma(m + 2)``, and for as much as rounding hides of
        that. Offsets are sums of what is not negative, unless they are `signed`. The sums of the cuts'
        coordinates of free parameters, which are no larger than ``box`` at the optimum, are off by
        ``g total constant``.

        ``linear``: ``sum_k beta_k delta_k``. ``total``: the largest sum of the multipliers of a group.
        ``n_cuts``: m. ``operations``: that a cut was made in.
        """
        own = self.space.penalized(w)
        g, square = gamma(operations + n_cuts + 2), inner(own, own)
        # A product of its own: a power that overflows raises.
        error = g * total * self.norm
        planes = g * total * self.products(w) + 0.5 * error * error
        rest = gamma(2 * n_cuts + 4) * (abs(linear) + square) + inner_error(len(w)) * square
        if self.signed:
            rest += g * total * self.weight
        rest += 2.0 * self.space.n_free * g * total * self.constant * box
        return planes + g * abs(linear) + rest

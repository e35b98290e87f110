"""P and D of a kernel model, and what rounding can have changed in them: bounds of first order.

With ``u`` the unit roundoff of the precision, m the nonzeros of the longest row and Q the largest ``x.x``, a
product of two rows is off by at most ``gamma(m + 3) Q``. Each row has a size s (`row_sizes`), so that no
value of the kernel is larger than ``s_i s_j``; it is off by at most ``e s_i s_j`` (`kernel_error`). Scores
``h = K v`` are sums of ``K change`` over all changes of the multipliers, so that each is off by at most
``s_i sum_j |change_j| s_j (e + gamma(additions))``. Sizes are 1 but for the polynomial kernel, whose values
differ by many orders of magnitude where a few rows are far longer than the others. A value of the Gaussian
kernel is off by a share of itself: such a score is off by that share of ``sum |change| K``, which is far less
where most rows are far from each other. Each row has a bound of its own, next to its score.

The certificate is that of the true kernel. Values of float32 serve for finding the multipliers; where their
rounding hides the gap, the scores of the last multipliers are computed once more with values of float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ooc_svm.data.blocks import Float64Array
from ooc_svm.ops import gram
from ooc_svm.ops.kernel_values import EXP_ULPS
from ooc_svm.ops.kernels import Gaussian, GaussianOfFullRows, Polynomial, Sigmoid
from ooc_svm.solvers.block_smo import set_loops as at
from ooc_svm.solvers.rounding import gamma

UNITS = {"float32": 2.0**-24, "float64": 2.0**-53}
_DOUBLE = UNITS["float64"]
ADDED = 4  # Roundings of what an update adds to a score, besides those of its sums
# Error of a float32 kernel value, as that share, above which float64 is used from the start.
LARGEST_ERROR = 1e-3
# Range of gamma, squared norms and kernel values in which products of float32 neither overflow nor vanish.
LEAST, MOST = 1e-30, 1e30


@dataclass(frozen=True, slots=True)
class RowSizes:
    """The largest squared norm of a row, and the nonzeros of the longest one.

    ``ones``: whether all values are 1, so that products of rows are whole numbers.
    """

    square: float
    nonzeros: int
    ones: bool = False

    def are_exact(self, precision: str) -> bool:
        """Whether products of rows, and squared distances, have no rounding."""
        return self.ones and 4.0 * self.square < 1.0 / UNITS[precision]


def _growth(operations: float, precision: str) -> float:
    """`gamma` in a precision."""
    return gamma(operations * (UNITS[precision] / _DOUBLE))


def largest_value(kernel: Any, sizes: RowSizes) -> float:
    """The largest magnitude of a kernel value."""
    if isinstance(kernel, Polynomial):
        return _power(kernel.gamma * sizes.square + abs(kernel.coef0), kernel.degree)
    return 1.0


def row_sizes(kernel: Any, squares: Float64Array) -> Float64Array:
    """Numbers so that the kernel value of two rows is at most the product of theirs.

    ``squares``: their squared norms.
    """
    if not isinstance(kernel, Polynomial):
        return np.ones(len(squares))
    with np.errstate(over="ignore"):
        found: Float64Array = (kernel.gamma * squares + abs(kernel.coef0)) ** (0.5 * kernel.degree)
    return found


def kernel_error(kernel: Any, sizes: RowSizes, precision: str) -> float:
    """What a kernel value can be off by at most, as a share of the product of the rows' sizes."""
    size, m = sizes.square, sizes.nonzeros
    if isinstance(kernel, GaussianOfFullRows):
        # The exponent t is a sum of 2 m squares of differences at most, and t e^-t is less than 1/2.
        return 0.5 * _growth(2 * m + 8, precision) + 2.0 * _growth(2.0 * EXP_ULPS, precision)
    if isinstance(kernel, Gaussian):
        # Magnitudes of 4 Q at most: gamma log2(e) and its product; two squares, a product, and their sum.
        exponent = 4.0 * kernel.gamma * size * _growth(4, precision)
        if not sizes.are_exact(precision):
            exponent += kernel.gamma * size * (2.0 * _growth(m + 3, precision) + 4.0 * _growth(4, precision))
        relative = _growth(2.0 * EXP_ULPS, precision)
        return math.expm1(min(exponent, 1.0)) + 2.0 * relative if exponent < 1.0 else 1.0
    if isinstance(kernel, Polynomial):
        return _growth(kernel.degree * (m + 7), precision)
    assert isinstance(kernel, Sigmoid)
    inner = kernel.gamma * size + abs(kernel.coef0)
    return float(min(_growth(m + 6, precision) * inner + _growth(4.0 * EXP_ULPS, precision), 2.0))


def precision_for(kernel: Any, sizes: RowSizes) -> str:
    """In which precision kernel values are good enough while multipliers are searched."""
    if sizes.ones and 2.0 * sizes.square < gram.LONGEST_TABLE:
        # Values are looked up, which takes no longer.
        return "float64"
    error, largest = kernel_error(kernel, sizes, "float32"), largest_value(kernel, sizes)
    fits = all(LEAST <= number <= MOST for number in (kernel.gamma, sizes.square))
    fits = fits and max(largest, abs(getattr(kernel, "coef0", 0.0))) < MOST
    return "float32" if fits and error <= LARGEST_ERROR else "float64"


def precision_of_predictions(kernel: Any, sizes: RowSizes) -> str:
    """That of a kernel of any rows: support vectors may have fewer of the columns than all rows have."""
    kernel = Gaussian(*kernel) if isinstance(kernel, Gaussian) else kernel
    return precision_for(kernel, RowSizes(sizes.square, sizes.nonzeros))


def update_errors(
    kernel: Any,
    sizes: RowSizes,
    precision: str,
    moved: tuple[Float64Array, Float64Array],
    squares: Float64Array,
    additions: int | None = None,
) -> Float64Array:
    """What an update ``h += K change`` adds to the errors of some scores at most.

    ``moved``: changes of multipliers, and the squared norms of their rows. ``squares``: those of the rows
    that follow. ``additions``: that a sum of a block goes through; by default as many as there are blocks.
    """
    change, m = np.abs(moved[0]), len(moved[0])
    size = float((change * row_sizes(kernel, moved[1])).sum()) * (1.0 + gamma(m + 1))
    roundings = gram.ROUNDINGS + (m // gram.BLOCK + 1 if additions is None else additions)
    share = kernel_error(kernel, sizes, precision) + gamma(roundings + ADDED)
    return size * share * row_sizes(kernel, squares)


def largest_update_error(
    kernel: Any, sizes: RowSizes, precision: str, change: float, additions: int
) -> float:
    """The same, of rows as long as the longest one; ``change``: the sum of the changes' magnitudes."""
    longest = np.array([sizes.square])
    return float(
        update_errors(kernel, sizes, precision, (np.array([change]), longest), longest, additions)[0]
    )


def scaling_error(largest: float, size: float) -> float:
    """What multiplying multipliers and scores apart adds to the error of each score.

    ``largest``: kernel value. ``size``: the sum of the magnitudes of the multipliers before.
    """
    return gamma(4) * largest * size


def has_own_share(kernel: Any, precision: str) -> bool:
    """Whether values of the kernel are off by a share of themselves that is worth knowing.

    That of float64 is next to nothing.
    """
    return (
        isinstance(kernel, Gaussian) and not isinstance(kernel, GaussianOfFullRows) and precision == "float32"
    )


def own_update_errors(
    kernel: Any, sizes: RowSizes, precision: str, change: Float64Array, reach: Float64Array
) -> Float64Array:
    """The same where values are off by a share of themselves.

    ``change``: those that grow and the others, shape (2, m). ``reach``: sums of ``|change| K``.
    """
    error = kernel_error(kernel, sizes, precision)
    # As a share of the value that was computed, not of the true one.
    share = error / (1.0 - error) if error < 1.0 else math.inf
    roundings = gram.ROUNDINGS + change.shape[1] // gram.BLOCK + 1
    # No power of two is smaller than the smallest normal number.
    least = float(np.abs(change).sum()) * float(np.finfo(precision).tiny)
    return reach * (share + gamma(roundings + ADDED)) + least


def _power(base: float, exponent: int) -> float:
    try:
        return float(base**exponent)
    except OverflowError:
        return math.inf


@dataclass(frozen=True, slots=True)
class Values:
    """P and D with what rounding can have changed in them."""

    primal: float
    primal_rounding: float
    dual: float
    dual_rounding: float
    support: int  # Support vectors

    @property
    def gap(self) -> float:
        """The gap without rounding."""
        return self.primal - self.dual


def values(
    sums: Float64Array, bias: float, kind: str, score_error: float, largest: float, n_rows: int
) -> Values:
    """P at a bias and D, from the sums of `ooc_svm.solvers.block_smo.update.Sums`.

    ``kind``: of the bias. ``score_error``: of each score, besides its own. ``largest``: the largest value of
    the kernel.

    With a free bias the multipliers have to sum up to 0, and do but for rounding. The larger of their two
    sides, multiplied by ``1 - share``, makes them a feasible point, whose D is less by no more than
    ``share pull + share^2 largest (sum |v|)^2 / 2``.
    """
    own = sums.tolist()
    total, size, losses, chain = own[at.V], own[at.ABS_V], own[at.LOSSES], gamma(n_rows + 8)
    scores_error = own[at.ABS_V_ERROR] + size * score_error
    norm, norm_error = own[at.VH], scores_error + chain * own[at.ABS_VH]
    added = total if kind == "penalized" else 0.0
    total_error = chain * size
    primal = 0.5 * norm + losses + (0.5 * bias * bias if kind == "penalized" else 0.0)
    # Slopes are the steepest near by, so that they hold for scores that are off.
    losses_error = own[at.SLOPE_ERRORS] + own[at.SLOPES] * score_error
    losses_error += gamma(16) * own[at.SLOPE_SIZES] + chain * losses
    dual = own[at.TV] - own[at.CONJUGATE] - 0.5 * norm - 0.5 * added * added
    dual_error = chain * (own[at.ABS_TV] + own[at.MAGNITUDE] + abs(norm)) + 0.5 * norm_error
    dual_error += total_error * (abs(added) + total_error) if kind == "penalized" else 0.0
    if kind == "free" and size > 0.0:
        side = own[at.POSITIVE] if total > 0.0 else size - own[at.POSITIVE]
        pull = (own[at.PULL_UP] if total > 0.0 else own[at.PULL_DOWN]) + scores_error
        share = (abs(total) + total_error) / side if side > 0.0 else math.inf
        dual_error += share * pull * (1.0 + chain) + 0.5 * share * share * largest * size * size
    primal_error = 0.5 * norm_error + losses_error + gamma(4) * abs(primal)
    dual_error += gamma(4) * abs(dual)
    return Values(primal, primal_error, dual, dual_error, int(own[at.SUPPORT]))

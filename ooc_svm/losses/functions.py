"""What a loss can be asked for, inside compiled functions.

A loss is a NamedTuple of numbers, and which function is meant follows from its type: Numba compiles every
loop apart for each loss, and caches it. Row i has the target ``t``, the cost ``c`` (C times its weights) and
the residual ``r = t - s``, s being its score with the bias; the loss l is a convex function of r, and ``r t``
is the slack ``1 - y s`` of a class. With the conjugate ``l*(v) = max_r (r v - l(r))``,

    P(w, b) = 1/2 |w|^2 + sum_i l_i(t_i - w.x_i - b)
    D(v)    = sum_i (t_i v_i - l*_i(v_i)) - 1/2 |sum_i v_i x_i|^2
    P - D   = sum_i (l_i(r_i) + l*_i(v_i) - r_i v_i)        at w = sum_i v_i x_i, each term being 0 or more

A file of this package implements these functions for one loss, with `implements`; a solver says by name which
ones it needs (`ooc_svm.catalog`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types
from numba.extending import overload

Function = Callable[..., Any]

# Where rows may be at a bound, the priority of a free one is more than that, and that of another one no more.
FREE_PRIORITY = 2.0


def value(loss, r, t, c):  # type: ignore[no-untyped-def]
    """The loss of a row."""
    raise NotImplementedError


def slope(loss, r, t, c):  # type: ignore[no-untyped-def]
    """Derivative of the loss with respect to r, 0 where the row has no loss: a multiplier that fits r."""
    raise NotImplementedError


def bounds(loss, t, c):  # type: ignore[no-untyped-def]
    """Smallest and largest multiplier: where the conjugate is finite."""
    raise NotImplementedError


def conjugate(loss, v, t, c):  # type: ignore[no-untyped-def]
    """The conjugate ``l*(v)`` of a multiplier inside its bounds."""
    raise NotImplementedError


def magnitude(loss, v, t, c):  # type: ignore[no-untyped-def]
    """What the rounding of the conjugate is a share of, that of v itself included."""
    raise NotImplementedError


def row_gap(loss, v, r, t, c):  # type: ignore[no-untyped-def]
    """The row's term of ``P - D``, which is ``l(r) + l*(v) - r v``."""
    raise NotImplementedError


def dual_step(loss, v, r, t, c, curvature):  # type: ignore[no-untyped-def]
    """The multiplier that maximises D with all others fixed; NaN if the row's norm overflows.

    ``curvature`` is ``|x|^2`` plus what the bias adds: r falls by so much as v grows by 1.
    """
    raise NotImplementedError


def violation(loss, v, r, t, c, gap):  # type: ignore[no-untyped-def]
    """How far a multiplier is from being stationary; ``gap`` is its `row_gap`.

    Positive: the size of the projected gradient of D, or the gap if no multiplier is ever at a bound. Not
    positive: the multiplier is consistent at a bound or at zero, and its residual would have to change by so
    much before it moved.
    """
    raise NotImplementedError


def priority(loss, v, stationarity, t, c):  # type: ignore[no-untyped-def]
    """How much a row is worth keeping in memory, from 0 to 4.

    ``stationarity``: its violation, in a unit in which residuals are of the order of 1.
    """
    raise NotImplementedError


def is_free(loss, v, t, c):  # type: ignore[no-untyped-def]
    """Whether a small change of v in either direction changes D smoothly: it is at no bound and no kink."""
    raise NotImplementedError


def gain(loss, v, new, t, c):  # type: ignore[no-untyped-def]
    """What ``t v - l*(v)`` gains by a change from v to ``new``."""
    raise NotImplementedError


def parabola(loss, v, new, t, c):  # type: ignore[no-untyped-def]
    """``linear`` and ``quadratic``: ``t v - l*(v)`` grows by ``theta linear - theta^2 quadratic / 2``.

    It does where the conjugate is a parabola; else it grows by that at theta of 0 and 1, and by no less in
    between. That is along ``v + theta (new - v)``, theta from 0 to 1, where `parabola_end` is ``new``.
    """
    raise NotImplementedError


def parabola_end(loss, v, new):  # type: ignore[no-untyped-def]
    """The last multiplier from v towards ``new`` up to which D is a parabola."""
    raise NotImplementedError


def step_slope(loss, v, t, c, curvature):  # type: ignore[no-untyped-def]
    """How fast the multiplier v that `dual_step` gives grows with r: 0 where it is at a bound."""
    raise NotImplementedError


def breakpoint(loss):  # type: ignore[no-untyped-def]
    """Of a piecewise linear loss: where its pieces begin, see `pieces`."""
    raise NotImplementedError


def pieces(loss):  # type: ignore[no-untyped-def]
    """Of a piecewise linear loss: the number of its pieces.

    It is the sum of ``c max(0, sign r - breakpoint)`` over them, each with its own sign.
    """
    raise NotImplementedError


def piece_sign(loss, p, t):  # type: ignore[no-untyped-def]
    """The sign of piece p of a row, 1 or -1."""
    raise NotImplementedError


FUNCTIONS: dict[str, Function] = {
    function.__name__: function
    for function in (
        value, slope, bounds, conjugate, magnitude, row_gap, dual_step, violation, priority, is_free, gain,
        parabola, parabola_end, step_slope, breakpoint, pieces, piece_sign
    )
}  # fmt: skip

_IMPLEMENTED: dict[type, set[str]] = {}


def implements(*losses: type) -> Callable[[Function], Function]:
    """Make a function of the same name the one that is meant for these losses; for use as a decorator."""

    def register(function: Function) -> Function:
        name = function.__name__

        def choose(loss: Any, *arguments: Any) -> Function | None:
            known = isinstance(loss, types.BaseNamedTuple)
            return function if known and getattr(loss, "instance_class", None) in losses else None

        overload(FUNCTIONS[name], strict=False, jit_options={"forceinline": True})(choose)
        for loss in losses:
            _IMPLEMENTED.setdefault(loss, set()).add(name)
        return function

    return register


def implemented(loss: type) -> frozenset[str]:
    """Names of the functions that a loss has."""
    return frozenset(_IMPLEMENTED.get(loss, ()))

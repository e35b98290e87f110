"""The functions of each loss: against its definition, against brute force, and against each other."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers import losses
from helpers.dual_data import dual_data
from helpers.losses import LOSSES, QUADRATIC, SMALL, Row, best_multiplier, make_loss, plain_losses, rows
from helpers.thinning import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from ooc_svm import train
from ooc_svm.catalog import LOSSES as ENTRIES
from ooc_svm.catalog import PROBLEMS, SOLVERS
from ooc_svm.errors import UsageError
from ooc_svm.losses import row_loops
from ooc_svm.losses.functions import FUNCTIONS, implemented
from ooc_svm.losses.logistic import SMALL_STEP
from ooc_svm.solvers.alm import trial_loops
from ooc_svm.solvers.block_smo import set_loops
from ooc_svm.solvers.cutting_plane import row_loops as cut_loops
from ooc_svm.solvers.streamed_smo import dual_loops, proximal_loops

# Loops that need what the catalog promises of a loss.
LOOPS = {
    "dual": (dual_loops, proximal_loops, row_loops),
    "quadratic dual": (set_loops,),
    "piecewise linear": (cut_loops,),
    "power": (trial_loops,),
}


class TestValue:
    @given(rows(), SMALL)
    @settings(deadline=None, max_examples=examples(300))
    def test_the_value_is_the_loss(self, row, score):
        expected = plain_losses(row.name, row.t, score, row.cost, row.eps)
        assert losses.value(row.loss, row.t - score, *row.own) == pytest.approx(expected, abs=1e-12)

    @pytest.mark.parametrize("loss", LOSSES)
    @pytest.mark.parametrize("r", [-3.0, -1.0, -0.2, 0.0, 0.1, 0.7, 2.5])
    def test_the_value_is_the_maximum_over_the_multipliers(self, loss, r):
        data = dual_data(loss, n_rows=8)
        for (_, low, high, _), t, cost in zip(data.box, data.t, data.cost, strict=True):
            ends = max(low, -100.0), min(high, 100.0)
            row = Row(loss, t, cost, data.eps, 0.0)
            found = minimize_scalar(
                lambda v, row=row: -(r * v - row.conjugate_at(v)),
                bounds=ends if low < high else (-1e-12, 1e-12),
                method="bounded",
                options={"xatol": 1e-10},
            )
            assert losses.value(data.functions, r, t, cost) == pytest.approx(-found.fun, abs=1e-6)

    @given(rows(), SMALL)
    @settings(deadline=None, max_examples=examples(300))
    def test_the_slope_is_the_derivative(self, row, r):
        slope, h = losses.slope(row.loss, r, *row.own), 1e-6
        behind, ahead = ((row.loss_at(r + s) - row.loss_at(r)) / s for s in (-h, h))
        # At a kink any number between the two is a subgradient.
        assert behind - 1e-4 <= slope <= ahead + 1e-4
        assert (slope != 0.0) == (losses.value(row.loss, r, *row.own) > 0.0)

    @given(rows())
    @settings(deadline=None, max_examples=examples(200))
    def test_bounds_and_the_conjugate(self, row):
        assert losses.bounds(row.loss, *row.own) == (row.low, row.high)
        found = losses.conjugate(row.loss, row.v, *row.own)
        assert found == pytest.approx(row.conjugate_at(row.v), rel=1e-14, abs=1e-15 * row.cost)
        assert losses.magnitude(row.loss, row.v, *row.own) >= abs(found) - abs(row.v)

    @given(rows(), SMALL)
    @example(Row("lp", 1.0, 1.0, 0.0, 2.2250738585072014e-308), 2.0)
    @example(Row("lp", 1.0, 1.0, 0.0, 5e-324), 2.0)
    @settings(deadline=None, max_examples=examples(500))
    def test_value_and_conjugate_enclose_the_product(self, row, r):
        """Fenchel and Young: never less than ``r v``, and equal at the slope, which is within the bounds."""
        both = losses.value(row.loss, r, *row.own) + losses.conjugate(row.loss, row.v, *row.own)
        assert both >= r * row.v - 1e-12 * max(1.0, both)
        gap = losses.row_gap(row.loss, row.v, r, *row.own)
        assert gap == pytest.approx(both - r * row.v, rel=1e-9, abs=1e-12)
        v = losses.slope(row.loss, r, *row.own)
        assert row.low <= v <= row.high
        both = losses.value(row.loss, r, *row.own) + losses.conjugate(row.loss, v, *row.own)
        assert both == pytest.approx(r * v, rel=1e-12, abs=1e-12)
        assert losses.violation(row.loss, v, r, *row.own) <= 1e-12

    @given(rows(), SMALL)
    @settings(deadline=None, max_examples=examples(300))
    def test_a_piecewise_linear_loss_begins_at_its_breakpoint(self, row, r):
        if "breakpoint" not in implemented(type(row.loss)):
            return
        signs = [losses.piece_sign(row.loss, p, row.t) for p in range(losses.pieces(row.loss))]
        assert set(signs) <= {-1.0, 1.0}
        begin = losses.breakpoint(row.loss)
        expected = row.cost * sum(max(0.0, sign * r - begin) for sign in signs)
        assert losses.value(row.loss, r, *row.own) == pytest.approx(expected, abs=1e-12)


class TestStep:
    @given(rows(QUADRATIC), SMALL, st.sampled_from([0.0, 0.3, 1.0, 20.0]))
    @settings(deadline=None, max_examples=examples(500))
    @example(Row("hinge", 1.0, 1.0, 0.0, 0.4), 0.0, 0.0)
    @example(Row("epsilon-insensitive", 0.0, 1.0, 0.5, 0.4), 0.1, 0.0)
    @example(Row("epsilon-insensitive", 0.0, 1.0, 0.5, -1.0), 0.5, 0.0)
    def test_a_step_maximises_the_dual(self, row, d, curvature):
        r, d = row.residual(d)
        new = losses.dual_step(row.loss, row.v, r, *row.own, curvature)
        assert row.low <= new <= row.high
        bend = curvature + row.damping
        best = best_multiplier(row.v, d, bend, row.low, row.high, row.eps)

        def value(u):
            return d * (u - row.v) - row.eps * abs(u) - 0.5 * bend * (u - row.v) ** 2

        assert value(new) == pytest.approx(value(best), abs=1e-9)

    @given(rows(), SMALL, st.sampled_from([0.0, 0.3, 1.0, 20.0]))
    @settings(deadline=None, max_examples=examples(200))
    def test_no_multiplier_of_a_grid_is_better(self, row, r, curvature):
        """By the definition of D: without the closed form of the conjugate's parabola."""

        def dual(v):
            change = v - row.v
            linear = losses.gain(row.loss, row.v, v, *row.own) - (row.t - r) * change
            return linear - 0.5 * curvature * change**2

        new = losses.dual_step(row.loss, row.v, r, *row.own, curvature)
        grid = np.linspace(max(row.low, -40.0), min(row.high, 40.0), 401)
        assert dual(new) >= max(map(dual, grid)) - 1e-9

    @pytest.mark.parametrize("loss", LOSSES)
    def test_a_row_whose_norm_overflows_has_no_step(self, loss):
        assert math.isnan(losses.dual_step(make_loss(loss, 0.1), 0.0, 3.0, 1.0, 1.0, math.inf))

    @pytest.mark.parametrize(("r", "expected"), [(0.3, 2.0), (-0.3, -2.0), (0.05, 0.0)])
    def test_a_row_whose_norm_is_next_to_nothing_goes_to_its_end(self, r, expected):
        loss = make_loss("epsilon-insensitive", 0.1)
        assert losses.dual_step(loss, 0.0, r, 0.0, 2.0, 1e-310) == expected

    @given(rows(QUADRATIC), SMALL)
    @settings(deadline=None, max_examples=examples(500))
    def test_a_violation_is_the_steepest_allowed_direction(self, row, d):
        r, d = row.residual(d)
        allowed = []
        if row.v < row.high:
            allowed.append(d - row.eps if row.v >= 0.0 else d + row.eps)
        if row.v > row.low:
            allowed.append(-d - row.eps if row.v <= 0.0 else -d + row.eps)
        found = losses.violation(row.loss, row.v, r, *row.own)
        if allowed:
            assert found == max(allowed)
        else:
            assert found <= 0.0

    @given(rows(), SMALL, st.sampled_from([0.0, 1.0]))
    @example(Row("logistic", -1.0, 7.0, 0.0, 0.0), -3.0, 1.0)
    @settings(deadline=None, max_examples=examples(300))
    def test_a_row_moves_only_where_it_violates_and_not_twice(self, row, d, curvature):
        r, _ = row.residual(d)
        new = losses.dual_step(row.loss, row.v, r, *row.own, curvature)
        if losses.violation(row.loss, row.v, r, *row.own) <= 0.0:
            assert new == pytest.approx(row.v, abs=1e-12)
        now, allowed = r - curvature * (new - row.v), 1e-12
        if row.name == "logistic":
            # Of the residual Newton's last step leaves half its square times the largest second derivative
            # of the step's equation, and the row's gap is at most c / 8 times the square of that.
            cost = row.own[1]
            left = 0.5 * SMALL_STEP**2 * curvature * cost / (6.0 * math.sqrt(3.0))
            allowed += cost / 8.0 * left**2
        assert losses.violation(row.loss, new, now, *row.own) <= allowed

    @given(rows())
    @settings(deadline=None, max_examples=examples(300))
    def test_free_is_off_the_bounds_and_the_kink(self, row):
        expected = row.low < row.v < row.high and (row.v != 0.0 or row.eps == 0.0)
        if row.name == "logistic":
            expected = row.low < row.high  # it leaves a bound at once
        assert losses.is_free(row.loss, row.v, *row.own) == expected


@st.composite
def moves(draw):
    """A row, and another multiplier that it may have."""
    row = draw(rows())
    inner = st.floats(max(row.low, -9.0), min(row.high, 9.0), allow_subnormal=False)
    return row, draw(st.one_of(st.just(row.v), inner))


class TestMove:
    @given(moves())
    @settings(deadline=None, max_examples=examples(300))
    def test_the_gain_is_the_difference_of_the_terms(self, move):
        row, new = move

        def term(v):
            return row.t * v - row.conjugate_at(v)

        expected = pytest.approx(term(new) - term(row.v), rel=1e-9, abs=1e-9)
        assert losses.gain(row.loss, row.v, new, *row.own) == expected

    @given(moves(), st.one_of(st.just(1.0), st.floats(0.0, 1.0)))
    @settings(deadline=None, max_examples=examples(300))
    def test_the_parabola_is_that_of_the_terms_along_a_step(self, move, theta):
        row, new = move
        end = losses.parabola_end(row.loss, row.v, new)
        assert min(row.v, new) <= end <= max(row.v, new)
        assert end == (0.0 if row.eps > 0.0 and row.v * new < 0.0 else new)
        linear, quadratic = losses.parabola(row.loss, row.v, end, *row.own)
        there = losses.gain(row.loss, row.v, row.v + theta * (end - row.v), *row.own)
        found = theta * linear - 0.5 * theta**2 * quadratic
        if row.name in QUADRATIC or theta == 1.0:
            assert found == pytest.approx(there, rel=1e-9, abs=1e-9)
        assert found <= there + 1e-9
        assert quadratic >= 0.0


@pytest.mark.parametrize("loss", LOSSES)
def test_losses_along_a_segment(loss):
    data = dual_data(loss)
    rng = np.random.default_rng(5)
    best, newest = rng.normal(size=(2, len(data.t)))
    points = np.array([[0.0, 0.0], [0.3, -0.2], [2.0, 1.0]])
    sums = np.ones(3)
    row_loops.losses_along(data.functions, best, newest, data.t, data.cost, points, sums)
    for (t, b), found in zip(points, sums, strict=True):
        scores = best + t * (newest - best) + b
        each = plain_losses(loss, data.t, scores, data.cost, data.eps)
        assert found == pytest.approx(1.0 + each.sum())
        count = row_loops.count_losses(data.functions, scores - b, b, data.t, data.cost)
        assert count == (each > 0.0).sum()


class TestCatalog:
    @pytest.mark.parametrize("loss", LOSSES)
    @pytest.mark.parametrize("promise", LOOPS)
    def test_a_loss_has_the_functions_that_it_promises(self, loss, promise):
        needed = {
            name
            for loops in LOOPS[promise]
            for name, function in FUNCTIONS.items()
            if vars(loops).get(name) is function
        }
        assert needed
        has = implemented(type(make_loss(loss)))
        # A power of the slack is a matter of mathematics, not of functions.
        assert (
            needed <= has if promise in ENTRIES[loss].properties else promise == "power" or not needed <= has
        )

    def test_these_are_all_promises(self):
        assert {promise for entry in ENTRIES.values() for promise in entry.properties} == set(LOOPS)
        assert {entry.needs for entry in SOLVERS.values()} == set(LOOPS)
        assert implemented(int) == frozenset()

    @pytest.mark.parametrize("loss", LOSSES)
    @pytest.mark.parametrize("solver", SOLVERS)
    @pytest.mark.parametrize("promised", [(), *((promise,) for promise in LOOPS), tuple(LOOPS)])
    def test_a_solver_that_needs_more_is_refused_before_any_work(
        self, monkeypatch, tmp_path, loss, solver, promised
    ):
        monkeypatch.setitem(ENTRIES, loss, ENTRIES[loss]._replace(properties=promised))
        needs, takers = SOLVERS[solver].needs, [n for n, e in SOLVERS.items() if e.needs in promised]
        for problem in (name for name, entry in PROBLEMS.items() if loss in entry.losses):
            if PROBLEMS[problem].form not in SOLVERS[solver].forms or needs in promised:
                continue
            # There is nothing to work on.
            kernel = SOLVERS[solver].kernels[0]
            with pytest.raises(UsageError, match=f"loss '{loss}' is for .*, not '{solver}'$") as caught:
                train(tmp_path / "nothing", problem=problem, loss=loss, solver=solver, kernel=kernel)
            named = str(caught.value).split(f"loss '{loss}'")[1].rpartition(", not")[0]
            assert [name for name in SOLVERS if f"'{name}'" in named] == takers
            assert not any(tmp_path.iterdir())

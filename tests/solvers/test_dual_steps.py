"""Dual coordinate steps against brute force, and sweeps of them against plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import losses
from helpers.dual_data import dual_data, spread_columns
from helpers.dual_runs import Sweep, check_sweep
from helpers.losses import LOSSES, QUADRATIC, SMALL, rows
from helpers.thinning import examples
from hypothesis import given, settings

from ooc_svm.ops import rows as row_ops
from ooc_svm.solvers.streamed_smo import dual_loops, order_loops


@given(rows(QUADRATIC), rows(QUADRATIC), SMALL, SMALL)
@settings(deadline=None, max_examples=examples(300))
def test_priorities(one, other, d, other_d):
    """Non-bound rows come first, then the violating, then the others; each by the violation."""

    def rank(row, d):
        size = losses.violation(row.loss, row.v, row.residual(d)[0], *row.own)
        free = row.low < row.v < row.high and (row.v != 0.0 or row.eps == 0.0)
        kind = 2 if free else 1 if size > 0.0 else 0
        return (kind, size), losses.priority(row.loss, row.v, size, *row.own)

    (a, key_a), (b, key_b) = rank(one, d), rank(other, other_d)
    assert key_a > 0.0
    if a[0] > b[0]:
        assert key_a >= key_b
    # A violation too small for rounding is as good as none.
    if (a[0] == 2 and b[0] < 2) or (a[0] >= b[0] and a[1] > b[1] + 1e-9):
        assert key_a > key_b


@pytest.mark.parametrize("rho", [0.0, 0.7])
@pytest.mark.parametrize("loss", LOSSES)
def test_row_gaps_sum_up_to_the_gap(loss, rho):
    data = dual_data(loss, rho=rho)
    for seed in range(5):
        v = data.random_multipliers(np.random.default_rng(seed))
        r = data.t - data.matrix @ data.weights(v) - rho * v.sum()
        gaps = [
            losses.value(data.functions, ri, *row) + losses.conjugate(data.functions, vi, *row) - ri * vi
            for ri, vi, row in zip(r, v, data.targets, strict=True)
        ]
        assert min(gaps) >= -1e-12
        assert sum(gaps) == pytest.approx(data.primal(v) - data.dual(v))


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("dtype", [None, np.float64])
def test_norms_and_sums_of_rows(dtype, scaled):
    data = dual_data("hinge", ones=dtype is None, scaled=scaled)
    some = np.arange(3, 250, 4)
    squares = np.empty(len(some))
    row_ops.row_squares(*data.arrays(dtype), data.scale2, some, squares)
    np.testing.assert_allclose(squares, data.squares[some])
    v = data.random_multipliers(np.random.default_rng(0))
    w = np.ones(data.matrix.shape[1])
    row_ops.add_rows(*data.arrays(dtype), data.scale2, v, w)
    np.testing.assert_allclose(w, 1.0 + data.weights(v), atol=1e-12)


class TestOrder:
    @pytest.mark.parametrize("m", [0, 1, 2, 15, 16, 17, 100, 1000])
    def test_packets_are_neighbours_and_no_row_is_left_out(self, m):
        rows = np.arange(m) * 3
        order = order_loops.packets(rows, np.uint64(9))
        assert sorted(order) == rows.tolist()
        cuts = np.flatnonzero(np.diff(order) != 3) + 1
        parts = np.split(order, cuts)
        assert all(len(part) % order_loops.PACKET == 0 or part[-1] == rows[-1] for part in parts if m)
        assert rows.tolist() == (np.arange(m) * 3).tolist()
        if m == 1000:
            assert len(parts) > 40
            assert order.tolist() != order_loops.packets(rows, np.uint64(10)).tolist()

    def test_every_order_is_as_likely(self):
        counts = np.zeros((4, 4))
        for seed in range(4000):
            order = np.arange(4)
            order_loops.shuffle(order, np.uint64(seed))
            counts[np.arange(4), order] += 1
        assert counts.sum(axis=0).tolist() == [4000] * 4
        assert np.abs(counts - 1000).max() < 150


class TestSweep:
    @pytest.mark.parametrize("visits", [1, 2])
    @pytest.mark.parametrize("rho", [0.0, 0.5])
    @pytest.mark.parametrize("loss", LOSSES)
    def test_against_plain_python(self, loss, rho, visits):
        check_sweep(Sweep(dual_data(loss, rho=rho), b=0.2, visits=visits))

    @pytest.mark.parametrize("loss", LOSSES)
    def test_each_visit_raises_the_dual(self, loss):
        data = dual_data(loss)
        found = [data.dual(np.zeros(len(data.t)))]
        for visits in (1, 2, 4):
            one = Sweep(data, visits=visits)
            one.v, one.w = np.zeros(len(data.t)), np.zeros(len(one.w))
            one.marks[:] = 0
            found.append(data.dual(one.compiled().step))
            assert one.sums[dual_loops.ROWS] == visits * len(data.t)
        assert found == sorted(set(found))

    @pytest.mark.parametrize("every", [1, 3, 50])
    @pytest.mark.parametrize("first", [0, 7])
    def test_every_so_many_rows(self, first, every):
        check_sweep(Sweep(dual_data("hinge"), first=first, every=every))

    @pytest.mark.parametrize("scaled", [False, True])
    @pytest.mark.parametrize("dtype", [None, np.float32, np.float64])
    def test_kinds_of_values(self, dtype, scaled):
        data = dual_data("epsilon-insensitive", rho=1.0, scaled=scaled, ones=dtype is None)
        if dtype == np.float32:
            data.matrix.data = data.matrix.data.astype(np.float32).astype(np.float64)
        check_sweep(Sweep(data, dtype=dtype))

    @pytest.mark.parametrize("dtype", [None, np.float32, np.float64])
    def test_more_columns_change_no_bit(self, dtype):
        """Where there are more weights than a core's own cache holds they are asked for ahead."""
        data = dual_data("hinge", ones=dtype is None)
        every = dual_loops.NEAR_WEIGHTS // data.matrix.shape[1] + 1
        one, other = Sweep(data, dtype=dtype), Sweep(spread_columns(data, every), dtype=dtype)
        other.v, other.marks = one.v, one.marks
        other.w[::every], other.reference[::every] = one.w, one.reference
        assert len(one.w) < dual_loops.NEAR_WEIGHTS < len(other.w)
        for name in ("step", "priority", "scores", "sums"):
            assert getattr(one.compiled(), name).tobytes() == getattr(other.compiled(), name).tobytes()
        assert one.w_after.tobytes() == other.w_after[::every].tobytes()
        assert one.rebuilt.tobytes() == other.rebuilt[::every].tobytes()

    def test_a_multiplier_that_rounding_put_out_of_its_bounds_goes_back(self):
        sweep = Sweep(dual_data("hinge"))
        low, high = sweep.box[:, 1], sweep.box[:, 2]
        sweep.v = np.where(high > 0.0, np.nextafter(high, np.inf), np.nextafter(low, -np.inf))
        moved = sweep.compiled().dual + sweep.step
        free = sweep.marks & dual_loops.HELD == 0
        assert ((low <= moved) & (moved <= high))[free].all()
        at_rest = free & (np.abs(sweep.step) > 0.0) & (np.abs(sweep.step) < 1e-12)
        assert at_rest.sum() > 10

    def test_rows_in_several_windows(self):
        sweep = Sweep(dual_data("squared-hinge", n_rows=700, density=0.9))
        assert 16 < sweep.plain()[-1] < 350
        check_sweep(sweep)

    @pytest.mark.parametrize("loss", LOSSES)
    def test_scaled_columns_equal_a_scaled_matrix(self, loss):
        data = dual_data(loss, scaled=True, rho=0.3)
        other = dual_data(loss, rho=0.3)
        scale = np.sqrt(data.scale2)
        other.matrix.data *= scale[other.matrix.indices]
        one, two = Sweep(data), Sweep(other)
        two.w, two.reference = one.w / scale, one.reference / scale
        one.compiled()
        two.compiled()
        for a, b in (
            (one.step, two.step),
            (one.scores, two.scores),
            (one.priority, two.priority),
            (one.sums, two.sums),
        ):
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(one.w_after, two.w_after * scale, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(one.rebuilt, two.rebuilt * scale, rtol=1e-8, atol=1e-10)

    def test_what_is_not_wanted_changes_nothing_else(self):
        data = dual_data("hinge")
        whole, bare = Sweep(data).compiled(), Sweep(data).compiled(building=False)
        assert bare.step.tobytes() == whole.step.tobytes()
        assert bare.w_after.tobytes() == whole.w_after.tobytes()
        assert bare.priority.tobytes() == whole.priority.tobytes()
        assert bare.sums.tobytes() == whole.sums.tobytes()

    def test_the_seed_decides_the_order(self):
        data = dual_data("hinge")
        one, same, other = (Sweep(data) for _ in range(3))
        other.seed = np.uint64(4)
        assert one.compiled().step.tobytes() == same.compiled().step.tobytes()
        assert one.step.tobytes() != other.compiled().step.tobytes()

    def test_sums_are_added_to(self):
        sweep = Sweep(dual_data("hinge")).compiled()
        again = Sweep(dual_data("hinge")).compiled()
        before = again.sums.copy()
        again.w_after[:], again.bias = again.w, np.zeros(3)
        dual_loops.sweep(
            again.data.functions, *again.data.arrays(), np.uint64(0), np.uint64(1), 1, again.seed, None,
            None, again.w_after, again.rebuilt, again.bias, 1.0, again.targets, again.marks, again.dual,
            again.step, again.priority, again.sums,
        )  # fmt: skip
        np.testing.assert_array_equal(again.sums, 2 * before)
        np.testing.assert_allclose(again.rebuilt, 2 * sweep.rebuilt)


class TestLanes:
    """Steps of several lanes from one w, added with the step that maximises D."""

    @pytest.mark.parametrize("rho", [0.0, 1.0])
    @pytest.mark.parametrize("loss", LOSSES)
    def test_the_dual_never_falls_and_theta_is_the_best(self, loss, rho):
        data = dual_data(loss, C=4.0, rho=rho)
        v = data.random_multipliers(np.random.default_rng(1)) * 0.5
        thetas = []
        for number in range(8):
            w, b = data.weights(v), rho * v.sum()
            change, s, steps = np.zeros(len(w)), np.zeros(dual_loops.N_SUMS), np.zeros(len(v))
            for lane in range(4):
                one = Sweep(data, first=lane, every=4, seed=10 * number + lane, b=b)
                one.w, one.v = w, v[lane::4]
                one.marks[:] = 0
                one.compiled(building=False)
                change += one.w_after - w
                s += one.sums
                steps[lane::4] = one.step
            np.testing.assert_allclose(change, data.weights(steps), atol=1e-9)
            moved = s[dual_loops.MOVED]
            slope = s[dual_loops.LINEAR] - w @ change - b * moved
            curvature = change @ change + rho * moved**2 + s[dual_loops.QUADRATIC]
            for theta in (0.0, 0.2, 0.6, 1.0):
                parabola = data.dual(v) + theta * slope - 0.5 * theta**2 * curvature
                there = data.dual(v + theta * steps)
                if loss in QUADRATIC or theta in (0.0, 1.0):
                    assert there == pytest.approx(parabola, rel=1e-9, abs=1e-9)
                assert there >= parabola - 1e-9
            theta = min(max(slope / curvature, 0.0), 1.0)
            thetas.append(theta)
            assert data.dual(v + theta * steps) >= data.dual(v) - 1e-9
            v = v + theta * steps
        assert min(thetas) < 1.0

    def test_one_lane_takes_its_whole_step(self):
        """Each step is the best for its row, so the sum of them still has an upward slope at its end."""
        data = dual_data("hinge")
        one = Sweep(data)
        one.v = np.zeros(len(data.t))
        one.w, one.marks = np.zeros(len(one.w)), np.zeros(len(data.t), np.uint8)
        one.compiled()
        assert data.dual(one.step) > 0.0
        np.testing.assert_allclose(data.weights(one.step), one.w_after, atol=1e-12)

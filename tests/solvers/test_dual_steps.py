"""Dual coordinate steps against brute force, and sweeps of them against plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import losses
from helpers.dual_data import dual_data, spread_columns
from helpers.losses import LOSSES, SMALL, best_multiplier, plain_losses, rows
from helpers.thinning import examples
from hypothesis import given, settings

from ooc_svm.ops import rows as row_ops
from ooc_svm.solvers.streamed_smo import dual_loops


@given(rows(), rows(), SMALL, SMALL)
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
        order = dual_loops.packets(rows, np.uint64(9))
        assert sorted(order) == rows.tolist()
        cuts = np.flatnonzero(np.diff(order) != 3) + 1
        parts = np.split(order, cuts)
        assert all(len(part) % dual_loops.PACKET == 0 or part[-1] == rows[-1] for part in parts if m)
        assert rows.tolist() == (np.arange(m) * 3).tolist()
        if m == 1000:
            assert len(parts) > 40
            assert order.tolist() != dual_loops.packets(rows, np.uint64(10)).tolist()

    def test_every_order_is_as_likely(self):
        counts = np.zeros((4, 4))
        for seed in range(4000):
            order = np.arange(4)
            dual_loops.shuffle(order, np.uint64(seed))
            counts[np.arange(4), order] += 1
        assert counts.sum(axis=0).tolist() == [4000] * 4
        assert np.abs(counts - 1000).max() < 150


def order_of_steps(m, n_elements, seed):
    """The order in which a sweep takes its rows."""
    order = dual_loops.packets(np.arange(m), seed)
    window = dual_loops._window(m, n_elements)
    for start in range(0, m, window):
        dual_loops.shuffle(order[start : start + window], np.uint64((int(seed) + start) % 2**64))
    return order, window


class Sweep:
    """One sweep of rows ``first, first + every, ...``: by the compiled function, and by plain Python."""

    def __init__(self, data, *, first=0, every=1, dtype=np.float64, seed=3, b=0.0):
        self.data, self.first, self.every, self.dtype, self.b = data, first, every, dtype, b
        self.seed = np.uint64(seed)
        self.own = np.arange(first, len(data.t), every)
        rng = np.random.default_rng(seed)
        m, d = len(self.own), data.matrix.shape[1]
        self.w, self.reference = 0.1 * rng.normal(size=(2, d))
        self.v = data.random_multipliers(rng)[self.own]
        self.marks = rng.integers(0, 4, m).astype(np.uint8) * (rng.random(m) < 0.4)
        self.marks = self.marks.astype(np.uint8)
        self.box, self.targets = data.box[self.own], np.ascontiguousarray(data.targets[self.own])

    def compiled(self, *, building=True):
        m = len(self.own)
        self.w_after = self.w.copy()
        self.rebuilt = np.zeros(len(self.w) if building else 0)
        self.bias = np.array([self.b, self.data.rho])
        self.dual, self.sums = self.v.copy(), np.zeros(dual_loops.N_SUMS)
        self.step, self.scores, self.priority = np.full((3, m), np.nan)
        dual_loops.sweep(
            self.data.functions, *self.data.arrays(self.dtype), np.uint64(self.first), np.uint64(self.every),
            self.seed, self.data.scale2, self.w_after, self.rebuilt, self.bias, self.targets, self.marks,
            self.dual, self.step, self.priority, self.sums,
        )  # fmt: skip
        row_ops.scores(
            *self.data.arrays(self.dtype), np.uint64(self.first), np.uint64(self.every), self.reference,
            self.scores,
        )  # fmt: skip
        return self

    def plain(self):
        """The same sums, scores, steps and priorities, row after row."""
        data, dense = self.data, self.data.matrix.toarray()
        scale2 = np.ones(dense.shape[1]) if data.scale2 is None else data.scale2
        lengths = np.diff(data.matrix.indptr)
        elements = int(data.matrix.indptr[self.own[-1] + 1] - data.matrix.indptr[self.first]) // self.every
        order, window = order_of_steps(len(self.own), elements, self.seed)
        w, b, v = self.w.copy(), self.b, self.v.copy()
        step, priority = np.zeros(len(v)), np.full(len(v), -1.0)
        sums = np.zeros(dual_loops.N_SUMS)
        for i in order:
            if self.marks[i] & dual_loops.HELD:
                continue
            x, (t, low, high, damping) = dense[self.own[i]], self.box[i]
            r = t - x @ w - b
            d = r - damping * v[i]
            loss = plain_losses(data.loss, t, t - r, data.cost[self.own[i]], data.eps)
            sums[dual_loops.GAP] += loss - (r * v[i] - data.eps * abs(v[i]) - 0.5 * damping * v[i] ** 2)
            curvature = x @ (x * scale2) + data.rho + damping
            new = best_multiplier(v[i], d, curvature, low, high, data.eps)
            if data.eps > 0.0 and new * v[i] < 0.0:
                new = 0.0
            change = new - v[i]
            step[i] = change
            w += change * x * scale2
            b += data.rho * change
            sums[dual_loops.LINEAR] += (
                t * change - data.eps * (abs(new) - abs(v[i])) - damping * v[i] * change
            )
            sums[dual_loops.QUADRATIC] += damping * change**2
            sums[dual_loops.MOVED] += change
            sums[dual_loops.ROWS] += 1
            sums[dual_loops.ELEMENTS] += lengths[self.own[i]]
            before = losses.violation(data.functions, v[i], r, *self.targets[i])
            now = losses.violation(data.functions, new, r - (curvature - damping) * change, *self.targets[i])
            size = max(before, now) if before > 0.0 else now
            priority[i] = losses.priority(data.functions, new, size, *self.targets[i])
        scores = dense[self.own] @ self.reference
        rebuilt = (dense[self.own] * scale2).T @ (self.v * (self.marks & dual_loops.HELD_AT_START == 0))
        return step, scores, priority, sums, rebuilt, w, b, window


def check_sweep(sweep):
    step, scores, priority, sums, rebuilt, w, b, _ = sweep.plain()
    got = sweep.compiled()
    close = {"rtol": 1e-8, "atol": 1e-10}
    np.testing.assert_allclose(got.step, step, **close)
    np.testing.assert_allclose(got.scores, scores, **close)
    np.testing.assert_allclose(got.priority, priority, **close)
    np.testing.assert_allclose(got.sums, sums, **close)
    np.testing.assert_allclose(got.rebuilt, rebuilt, **close)
    np.testing.assert_allclose(got.w_after, w, **close)
    assert got.bias[0] == pytest.approx(b, abs=1e-10)
    assert got.dual.tolist() == sweep.v.tolist()
    assert (np.abs(got.step) > 0.0).sum() > len(got.step) // 10


class TestSweep:
    @pytest.mark.parametrize("rho", [0.0, 0.5])
    @pytest.mark.parametrize("loss", LOSSES)
    def test_against_plain_python(self, loss, rho):
        check_sweep(Sweep(dual_data(loss, rho=rho), b=0.2))

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
        again.w_after[:], again.bias = again.w, np.zeros(2)
        dual_loops.sweep(
            again.data.functions, *again.data.arrays(), np.uint64(0), np.uint64(1), again.seed, None,
            again.w_after, again.rebuilt, again.bias, again.targets, again.marks, again.dual, again.step,
            again.priority, again.sums,
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
                assert data.dual(v + theta * steps) == pytest.approx(parabola, rel=1e-9, abs=1e-9)
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

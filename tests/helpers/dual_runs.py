"""Calls of the compiled dual steps, and the same steps in plain Python."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import numpy as np
from helpers import losses
from helpers.dual_data import bias_of, mean_weights
from helpers.losses import QUADRATIC, best_multiplier, plain_conjugates, plain_losses

from ooc_svm.ops import rows as row_ops
from ooc_svm.ops.hashing import GOLDEN
from ooc_svm.solvers.streamed_smo import dual_loops, order_loops
from ooc_svm.solvers.streamed_smo.team import Team, on_lines
from ooc_svm.solvers.streamed_smo.team_loops import part_rows


def order_of_steps(m, n_elements, seed):
    """The order in which a sweep takes its rows."""
    order = order_loops.packets(np.arange(m), seed)
    window = order_loops.window_of(m, n_elements)
    for start in range(0, m, window):
        order_loops.shuffle(order[start : start + window], np.uint64((int(seed) + start) % 2**64))
    return order, window


class Sweep:
    """One sweep of rows ``first, first + every, ...``: by the compiled function, and by plain Python."""

    def __init__(
        self, data, *, first=0, every=1, visits=1, dtype=np.float64, seed=3, b=0.0, mean=None, total=0.0,
        unit=1.0,
    ):  # fmt: skip
        self.data, self.first, self.every, self.dtype, self.b = data, first, every, dtype, b
        self.visits, self.mean, self.total, self.unit = visits, mean, total, unit
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
        self.bias = bias_of(self.data, self.mean, self.w, self.total, self.b)
        self.dual, self.sums = self.v.copy(), np.zeros(dual_loops.N_SUMS)
        self.step, self.scores, self.priority = np.full((3, m), np.nan)
        dual_loops.sweep(
            self.data.functions, *self.data.arrays(self.dtype), np.uint64(self.first), np.uint64(self.every),
            self.visits, self.seed, self.data.scale2, mean_weights(self.data, self.mean), self.w_after,
            self.rebuilt, self.bias, self.unit, self.targets, self.marks, self.dual, self.step, self.priority,
            self.sums,
        )  # fmt: skip
        row_ops.scores(
            *self.data.arrays(self.dtype), np.uint64(self.first), np.uint64(self.every), self.reference,
            self.scores,
        )  # fmt: skip
        return self

    def plain(self):
        """The same sums, scores, steps and priorities, row after row; rows less the mean are dense here."""
        data, dense = self.data, self.data.matrix.toarray()
        scale2 = np.ones(dense.shape[1]) if data.scale2 is None else data.scale2
        lengths = np.diff(data.matrix.indptr)
        elements = int(data.matrix.indptr[self.own[-1] + 1] - data.matrix.indptr[self.first]) // self.every
        mean = np.zeros(dense.shape[1]) if self.mean is None else self.mean
        # Weights that the rows less the mean see: each of them takes the mean away once for its multiplier.
        w, b, v, total = self.w - self.total * mean * scale2, self.b, self.v.copy(), self.total
        priority, sums = np.full(len(v), -1.0), np.zeros(dual_loops.N_SUMS)
        held = self.marks & dual_loops.HELD != 0
        for visit in range(self.visits):
            seed = np.uint64((int(self.seed) + visit * int(GOLDEN)) % 2**64)
            order, window = order_of_steps(len(self.own), elements, seed)
            for i in order[~held[order]]:
                x, (t, low, high, damping) = dense[self.own[i]] - mean, self.box[i]
                r = t - x @ w - b
                d, row, cost = r - damping * v[i], self.targets[i], data.cost[self.own[i] : self.own[i] + 1]
                loss = plain_losses(data.loss, t, t - r, cost[0], data.eps)
                if visit == 0:
                    conjugate = plain_conjugates(data.loss, v[i : i + 1], t, cost, data.eps)[0]
                    sums[dual_loops.GAP] += loss + conjugate - r * v[i]
                curvature = x @ (x * scale2) + data.rho + damping
                if data.loss in QUADRATIC:
                    new = best_multiplier(v[i], d, curvature, low, high, data.eps)
                else:
                    new = losses.dual_step(data.functions, v[i], r, *row, curvature)
                # The whole step stays on one side of 0.
                if data.eps > 0.0 and new * self.v[i] < 0.0:
                    new = 0.0
                change = new - v[i]
                w += change * x * scale2
                b += data.rho * change
                total += change
                sums[dual_loops.MOVED] += change
                sums[dual_loops.MOMENT] += change * (dense[self.own[i]] @ (mean * scale2))
                sums[dual_loops.CHANGES] += change != 0.0
                sums[dual_loops.DISTANCE] += abs(change)
                costs = [losses.magnitude(data.functions, u, *row) for u in (v[i], new)]
                sums[dual_loops.SIZE] += abs(t * change) + sum(costs) if change != 0.0 else 0.0
                sums[dual_loops.ROWS] += 1
                sums[dual_loops.ELEMENTS] += lengths[self.own[i]]
                before = losses.violation(data.functions, v[i], r, *row)
                now = losses.violation(data.functions, new, r - (curvature - damping) * change, *row)
                size = max(before, now) if before > 0.0 else now
                priority[i] = losses.priority(data.functions, new, size / self.unit, *row)
                v[i] = new
        ends = zip(self.v, v, self.targets, strict=True)
        parabolas = [losses.parabola(data.functions, was, new, *row) for was, new, row in ends]
        sums[[dual_loops.LINEAR, dual_loops.QUADRATIC]] = np.sum(parabolas, axis=0)
        free = [losses.is_free(data.functions, *row) for row in zip(v, *self.targets.T, strict=True)]
        step, sums[dual_loops.FREE] = v - self.v, (np.array(free) & ~held).sum()
        scores = dense[self.own] @ self.reference
        rebuilt = (dense[self.own] * scale2).T @ (self.v * (self.marks & dual_loops.HELD_AT_START == 0))
        w += total * mean * scale2
        return step, scores, priority, sums, rebuilt, w, bias_of(data, self.mean, w, total, b), window


def check_sweep(sweep):
    step, scores, priority, sums, rebuilt, w, bias, _ = sweep.plain()
    got = sweep.compiled()
    close = {"rtol": 1e-8, "atol": 1e-10}
    np.testing.assert_allclose(got.step, step, **close)
    np.testing.assert_allclose(got.scores, scores, **close)
    # Of a logistic row it is a root of the gap, which may be next to nothing.
    power = 1 if sweep.data.loss in QUADRATIC else 16
    np.testing.assert_allclose(got.priority**power, np.asarray(priority) ** power, **close)
    # A row that is at rest but for rounding may change once more on a second visit.
    of_changes = [dual_loops.CHANGES, dual_loops.SIZE]
    rest = np.setdiff1d(np.arange(dual_loops.N_SUMS), of_changes)
    np.testing.assert_allclose(got.sums[rest], sums[rest], **close)
    np.testing.assert_allclose(got.sums[of_changes], sums[of_changes], 1e-8 if sweep.visits == 1 else 0.02)
    np.testing.assert_allclose(got.rebuilt, rebuilt, **close)
    np.testing.assert_allclose(got.w_after, w, **close)
    np.testing.assert_allclose(got.bias, bias, **close)
    assert got.dual.tolist() == sweep.v.tolist()
    assert (np.abs(got.step) > 0.0).sum() > len(got.step) // 10


class Solving:
    """A call of `solve` from given multipliers."""

    def __init__(
        self,
        data,
        v=None,
        *,
        seed=1,
        dtype=np.float64,
        wanted=0.0,
        most_elements=10**8,
        mean=None,
        stopped=False,
        n_parts=1,
        n_helpers=0,
        follow=0.0,
    ):
        self.data = data
        self.v = np.zeros(len(data.t)) if v is None else v
        self.dual, self.far = self.v.copy(), np.full(len(self.v), np.nan)
        self.w = data.weights(self.v)
        total = self.v.sum()
        self.bias = bias_of(data, mean, self.w, total, data.rho * total)
        moments = None if mean is None else data.matrix @ mean_weights(data, mean)
        self.sums = np.zeros(dual_loops.N_SUMS)
        self.n_helped = 0
        with self._parts(data.arrays(dtype), n_parts, n_helpers) as (matrix, parts):
            dual_loops.solve(
                data.functions, *matrix, parts, np.arange(len(self.dual), dtype=np.uint64), data.squares,
                moments, data.scale2, self.w, self.bias, follow, data.targets, self.dual, self.far,
                np.uint64(seed), wanted, most_elements, np.array([stopped], np.uint8), self.sums,
            )  # fmt: skip

    @contextmanager
    def _parts(self, matrix, n_parts, n_helpers):
        """The rows, and their parts if they have any, while others help."""
        if n_parts == 1:
            yield matrix, None
            return
        matrix = [None if array is None else array.copy() for array in matrix]
        cuts = np.empty((len(self.dual), n_parts + 1), np.uint32)
        part_rows(*matrix, 0, cuts)
        w = on_lines(len(self.w), np.float64)
        w[:] = self.w
        self.w, team, over = w, Team(n_parts), threading.Event()

        def help_on():
            while not over.is_set():
                self.n_helped += team.help()
                time.sleep(0)

        helpers = [threading.Thread(target=help_on) for _ in range(n_helpers)]
        parts = team.begin(*matrix, cuts, self.data.scale2, w)
        for helper in helpers:
            helper.start()
        try:
            yield matrix, parts
        finally:
            team.end()
            over.set()
            for helper in helpers:
                helper.join()

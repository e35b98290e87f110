"""Newton's directions of proximal steps, beside dense solutions; what a step keeps from one to the next."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.proximal_data import KINDS, Rows

from ooc_svm.ops.rows import add_product
from ooc_svm.solvers.streamed_smo import dense_system, newton_loops, proximal_loops

NOTHING = np.zeros(1, np.uint8)


def dense(rows: Rows, slopes, gradient):
    """The direction of all weights and of the bias', in units of the data."""
    scales = np.append(rows.scales, 1.0)
    system = np.eye(rows.d + 1) + rows.whole.T @ (slopes[:, None] * rows.whole)
    return -scales * np.linalg.solve(system, gradient / scales)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("way", ["system", "products", "dense"])
def test_a_direction_solves_the_system(kind, way, monkeypatch):
    rows = Rows("hinge", **kind)
    rng = np.random.default_rng(5)
    slopes = np.where(rng.random(rows.n) < 0.5, rng.uniform(0.5, 2.0, rows.n), 0.0)
    gradient, direction = rng.standard_normal(rows.d + 1), np.empty(rows.d)
    root, expected = np.sqrt(rows.rho), dense(rows, slopes, gradient)
    own = rows.scale2, rows.mean_row, root
    if way == "system":
        products = np.zeros((rows.d + 1, rows.d + 1))
        for i, slope in enumerate(slopes):
            add_product(*rows.csr[1:], rows.csr[0][i], rows.csr[0][i + 1], slope, products)
        before = products.copy()
        args = gradient[:-1], gradient[-1], direction
        bias = newton_loops.by_system(products, *own, *args)
        assert np.array_equal(products, before)
        left = 1e-9
    elif way == "dense":
        monkeypatch.setattr(dense_system, "ROWS", 7)
        free = np.flatnonzero(slopes)
        args = slopes[free], gradient[:-1], gradient[-1], NOTHING, direction
        bias = dense_system.dense_direction(rows.csr, rows.places[free], *own, *args)
        left = 1e-9
    else:
        free = np.flatnonzero(slopes)
        diagonal = 1.0 + slopes @ rows.whole**2
        args = gradient[:-1], gradient[-1], diagonal[:-1], diagonal[-1], 300, NOTHING, direction
        bias, count = newton_loops.by_products(*rows.csr, rows.places, *own, len(free), free, slopes, *args)
        assert 1 <= count <= rows.d + 1
        # It ends where a part of the right hand side is left.
        left = 5.0 * newton_loops.LEFT_OF_SIDE * np.abs(expected).max()
    assert np.append(direction, bias) == pytest.approx(expected, abs=left)


@pytest.mark.parametrize("d", range(12))
def test_systems_of_all_sizes_are_solved(d):
    rng = np.random.default_rng(d)
    factor, gradient, direction = rng.standard_normal((20, d + 1)), rng.standard_normal(d + 1), np.empty(d)
    products = np.triu(factor.T @ factor)
    expected = np.linalg.solve(np.eye(d + 1) + factor.T @ factor, -gradient)
    bias = newton_loops.by_system(products, None, None, 1.0, gradient[:-1], gradient[-1], direction)
    assert np.append(direction, bias) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("n", [1, 3, 4, 5, 8, 13, 30])
def test_four_rows_at_a_time_give_the_bits_of_one(n):
    rng = np.random.default_rng(n)
    factor = rng.standard_normal((2 * n, n)) * (rng.random((2 * n, n)) < 0.5)
    system, x = np.column_stack([factor.T @ factor + np.eye(n), rng.standard_normal(n)]), np.empty(n)
    own = system.copy()
    assert newton_loops._solve_symmetric(system, x)
    for k in range(n):
        own[k, k:] /= np.sqrt(own[k, k])
        for i in range(k + 1, n):
            own[i, i:] -= own[k, i] * own[k, i:]
    expected = own[:, n].copy()
    for k in range(n - 1, -1, -1):
        for j in range(k + 1, n):
            expected[k] -= own[k, j] * expected[j]
        expected[k] /= own[k, k]
    assert x.tobytes() == expected.tobytes()


def test_a_system_that_is_not_definite_has_no_direction():
    products, direction = np.diag([-3.0, 1.0, 1.0]), np.ones(2)
    args = None, None, 1.0, np.ones(2), 0.0, direction
    assert newton_loops.by_system(products, *args) == 0.0
    assert not direction.any()


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("loss", ["hinge", "squared-hinge", "logistic", "epsilon-insensitive"])
def test_what_is_kept_from_step_to_step_is_what_all_rows_give(loss, kind):
    rows, rng = Rows(loss, **kind), np.random.default_rng(6)
    n, d = rows.n, rows.d
    rows.sweeps(1)

    def new():
        return rows.dual.copy(), np.zeros(n), np.zeros(d), np.zeros((d + 1, d + 1)), np.zeros(0)

    def follow(residual, moving, kept):
        return proximal_loops.follow(
            rows.of_loss, *rows.csr, rows.places, rows.scale2, rows.mean_row, rows.targets, rows.dual, 0.3,
            residual.copy(), np.zeros(n), 0.0, len(moving), moving, *kept,
        )  # fmt: skip

    residual, product = rows.residual(rows.dual), rng.standard_normal(n)
    product[n // 2 :] = 0.0
    kept, everyone, moving = new(), np.arange(n), np.empty(n, np.int64)
    sums = np.array(follow(residual, everyone, kept)[:2])
    count, others, total = proximal_loops._find_moving(
        rows.of_loss, rows.targets, rows.dual, 0.3, residual, product, kept[0], moving
    )
    assert 0 < count <= n // 2
    later = residual - 0.6 * product
    sums += follow(later, moving[:count].copy(), kept)[:2]
    again = new()
    assert sums == pytest.approx(np.array(follow(later, everyone, again)[:2]))
    for own, whole in zip(kept, again, strict=True):
        assert own == pytest.approx(whole)
    end = new()
    follow(residual - product, everyone, end)
    changes = -product * (end[0] - rows.dual)
    assert total == pytest.approx(changes.sum())
    assert others == pytest.approx(total - changes[moving[:count]].sum())

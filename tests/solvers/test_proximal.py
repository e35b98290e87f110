"""Proximal steps of the resident rows, against the conditions of their optimum and a general optimiser."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.proximal_data import KINDS, MU, Rows
from scipy import optimize

from ooc_svm.solvers.streamed_smo import dual_loops, proximal

LOSSES = ["hinge", "squared-hinge", "lp", "logistic", "epsilon-insensitive", "squared-epsilon-insensitive"]


WAYS = ["system", "products", "dense", "rows"]


def with_constants(monkeypatch, **constants) -> None:
    for name, value in constants.items():
        monkeypatch.setattr(proximal, name, value)


def take_way(monkeypatch, way: str) -> None:
    """Let directions be found by a system, by products, or by a dense one, maybe of rows, after a product."""
    with_constants(monkeypatch, MOST_DIRECT=256 if way == "system" else 0)
    each = np.inf if way == "products" else 1.0
    with_constants(monkeypatch, system_cost=lambda n_columns: (1.0, each, each, 0.0))
    with_constants(monkeypatch, ROW_SYSTEM_COST=(1.0, 1.0, 1.0, 0.0))
    monkeypatch.setattr(Rows, "in_rows", way == "rows")


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    """How directions are found."""
    take_way(monkeypatch, request.param)


@pytest.fixture(params=WAYS)
def exact(request, monkeypatch):
    """Likewise, and Newton's method goes on until rounding ends it."""
    take_way(monkeypatch, request.param)
    with_constants(monkeypatch, LEFT=1e-12, MOST_STEPS=100)


@pytest.mark.parametrize(
    ("loss", "kind"),
    [("hinge", kind) for kind in KINDS] + [(loss, KINDS[-1]) for loss in LOSSES[1:]],
    ids=str,
)
def test_each_multiplier_is_the_step_of_its_own_row(loss, kind, exact):
    rows = Rows(loss, **kind)
    rows.sweeps(1)
    before, D = rows.dual.copy(), rows.value(rows.dual)
    sums, longer = rows.step()
    change = rows.dual - before
    assert rows.value(rows.dual) > D
    assert not change[:3].any()

    def off(theta: float) -> float:
        """How far the multipliers are from the steps, had the way been gone to its end."""
        end = before + change / theta
        return float(np.abs((end - steps(rows, before, rows.residual(end))) / rows.c.mean()).max())

    # Where D is no parabola its lower bound decides how far: not to the end.
    ends_early = loss in ("lp", "logistic")
    theta = optimize.minimize_scalar(off, bounds=(0.3, 1.0), method="bounded").x if ends_early else 1.0
    assert off(theta) < 1e-3
    assert rows.w == pytest.approx((rows.whole[:, :-1] * rows.scales).T @ rows.dual + center(rows))
    assert rows.bias[dual_loops.TOTAL] == pytest.approx(rows.dual.sum())
    assert sums[dual_loops.CHANGES] == (change != 0.0).sum()
    assert sums[dual_loops.MOVED] == pytest.approx(change.sum())
    assert sums[dual_loops.DISTANCE] == pytest.approx(np.abs(change).sum())
    assert longer == pytest.approx((np.abs(change) * np.sqrt(rows.squares)).sum())


def center(rows: Rows):
    """What the mean row takes from w, which is the sum of the rows themselves."""
    return 0.0 if rows.mean_row is None else rows.mean_row * rows.dual.sum()


def steps(rows: Rows, v, r):
    """The multipliers that are best for the residuals r that they leave, from v: by golden sections."""
    ends = np.full((2, rows.n), [[-60.0], [60.0]])
    for end in ends:
        dual_loops.put_inside(rows.of_loss, end, rows.targets)
    low, high = ends
    curvature = np.divide(MU, rows.c, out=np.zeros(rows.n), where=rows.c > 0.0)

    def gained(new):
        gain = np.empty(rows.n)
        dual_loops.gains(rows.of_loss, v, new - v, rows.targets, gain)
        return gain + (r - rows.t) * (new - v) - 0.5 * curvature * (new - v) ** 2

    share = 0.5 * (np.sqrt(5.0) - 1.0)
    for _ in range(70):
        left, right = high - share * (high - low), low + share * (high - low)
        is_left = gained(left) > gained(right)
        low, high = np.where(is_left, low, left), np.where(is_left, right, high)
    return 0.5 * (low + high)


@pytest.mark.parametrize("loss", LOSSES)
def test_all_ways_find_the_same(loss, monkeypatch):
    found = []
    for way in WAYS:
        take_way(monkeypatch, way)
        with_constants(monkeypatch, LEFT=1e-12, MOST_STEPS=100)
        rows = Rows(loss, rho=1.0, scaled=True)
        rows.sweeps(2)
        rows.step()
        found.append(rows.dual)
    for other in found[1:]:
        assert other == pytest.approx(found[0], rel=1e-6, abs=1e-6)


def test_what_is_stopped_changes_nothing(way):
    rows = Rows("hinge", rho=1.0)
    rows.sweeps(1)
    before = [each.copy() for each in (rows.dual, rows.w, rows.bias)]
    rows.step(stop=1)
    assert all(np.array_equal(*pair) for pair in zip(before, (rows.dual, rows.w, rows.bias), strict=True))


def test_columns_far_from_0_take_no_more_products(monkeypatch):
    """With a mean row, the diagonal that products are preconditioned with is that of centred columns."""
    with_constants(monkeypatch, MOST_DIRECT=0)
    elements = []
    for far in ((1e-3, 1e-3), (0.3, 30.0)):
        rows = Rows("hinge", n=600, d=60, density=1.0, mean=True, rho=0.3, far=far)
        elements.append(rows.step()[0][dual_loops.ELEMENTS])
    assert elements[1] <= 1.25 * elements[0]


def test_work_has_an_end(way):
    """The step goes as far as it has come."""
    rows = Rows("hinge", n=2000, C=100.0)
    rows.sweeps(1)
    D, size = rows.value(rows.dual), len(rows.csr[1]) + rows.n
    sums, _ = rows.step(most=2 * size)
    assert sums[dual_loops.ROWS] + sums[dual_loops.ELEMENTS] < 8 * size
    assert rows.value(rows.dual) >= D


@pytest.mark.parametrize("C", [1e-300, 1e100, 1e300])
@pytest.mark.parametrize("loss", LOSSES)
def test_numbers_that_are_huge_or_tiny(loss, C, way):
    rows = Rows(loss, C=C, rho=1.0)
    rows.sweeps(1)
    before = rows.dual.copy()
    rows.step()
    ends = np.full((2, rows.n), [[-np.inf], [np.inf]])
    for end in ends:
        dual_loops.put_inside(rows.of_loss, end, rows.targets)
    assert np.isfinite(rows.dual).all() or not np.isfinite(before).all()
    assert ((ends[0] <= rows.dual) & (rows.dual <= ends[1])).all()


@pytest.mark.parametrize("loss", LOSSES)
def test_the_optimum_is_reached_in_few_steps(loss):
    """Where thousands of sweeps do not: classes that overlap, and a large C."""
    rows = Rows(loss, n=3000, C=300.0)
    for _ in range(60):
        rows.step()
        rows.sweeps(1)
    swept = Rows(loss, n=3000, C=300.0)
    swept.sweeps(100)
    assert rows.value(rows.dual) > swept.value(swept.dual)
    after = rows.value(rows.dual)
    rows.step()
    assert rows.value(rows.dual) - after < 1e-6 * abs(after)

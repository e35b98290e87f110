"""The master problem against a generic solver, and by its own certificate."""

from __future__ import annotations

import time

import daqp
import numpy as np
import pytest

from ooc_svm.solvers.cutting_plane.master import solve_master


def random_master(seed, n_cuts, n_groups, dimension):
    rng = np.random.default_rng(seed)
    planes = rng.normal(size=(n_cuts, dimension))
    group = np.concatenate([np.arange(n_groups), rng.integers(0, n_groups, n_cuts - n_groups)])
    return planes @ planes.T, rng.normal(1.0, 1.0, n_cuts), group.astype(np.int64)


def by_daqp(G, offsets, group, n_groups, C):
    """min 1/2 x'Gx - offsets'x, 0 <= x <= C, group sums <= C (a tiny ridge makes it strictly convex)."""
    m = len(offsets)
    sums = (group[None, :] == np.arange(n_groups)[:, None]).astype(np.float64)
    upper = np.concatenate([np.full(m, C), np.full(n_groups, C)])
    lower = np.concatenate([np.zeros(m), np.full(n_groups, -1e30)])
    H = np.ascontiguousarray(G + 1e-7 * np.eye(m))
    x, _, flag, _ = daqp.solve(
        H, -offsets, np.ascontiguousarray(sums), upper, lower, np.zeros(m + n_groups, np.int32)
    )
    assert flag >= 1
    return x


def dual_value(G, offsets, beta):
    return offsets @ beta - 0.5 * beta @ G @ beta


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    ("n_cuts", "n_groups", "dimension"), [(1, 1, 3), (12, 1, 30), (30, 4, 60), (40, 8, 10)]
)
def test_equals_a_generic_solver(seed, n_cuts, n_groups, dimension):
    G, offsets, group = random_master(seed, n_cuts, n_groups, dimension)
    solution = solve_master(G, offsets, group, n_groups, 0.7, tolerance=1e-10)
    reference = by_daqp(G, offsets, group, n_groups, 0.7)
    assert solution.gap <= 1e-10
    assert dual_value(G, offsets, solution.beta) == pytest.approx(dual_value(G, offsets, reference), abs=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_multipliers_are_feasible_and_the_gap_is_true(seed):
    G, offsets, group = random_master(seed, 25, 3, 8)
    exact = dual_value(G, offsets, solve_master(G, offsets, group, 3, 2.0, tolerance=1e-12).beta)
    for tolerance in (1.0, 1e-2, 1e-5):
        solution = solve_master(G, offsets, group, 3, 2.0, tolerance=tolerance)
        assert (solution.beta >= 0).all()
        assert (np.bincount(group, weights=solution.beta) <= 2.0 + 1e-12).all()
        assert exact - dual_value(G, offsets, solution.beta) <= solution.gap + 1e-10
        assert solution.gap <= tolerance


def test_warm_start_from_the_solution_takes_no_steps():
    G, offsets, group = random_master(3, 30, 4, 50)
    first = solve_master(G, offsets, group, 4, 1.0, tolerance=1e-9)
    again = solve_master(G, offsets, group, 4, 1.0, start=first.beta, tolerance=1e-8)
    assert first.steps > 0
    assert again.steps == 0


def test_a_limit_on_the_steps_is_kept():
    G, offsets, group = random_master(4, 40, 2, 10)
    solution = solve_master(G, offsets, group, 2, 1.0, tolerance=1e-14, max_steps=5)
    assert solution.steps == 5
    assert solution.gap > 1e-14


def test_repeated_cuts_make_no_trouble():
    G = np.ones((6, 6))
    solution = solve_master(G, np.ones(6), np.zeros(6, dtype=np.int64), 1, 10.0, tolerance=1e-12)
    assert solution.beta.sum() == pytest.approx(1.0)


def hard_master(seed, C, n_cuts=60, n_groups=3, dimension=12):
    """Columns of sizes from 1 to 1e-3, and a C that is large for them: pairwise steps hardly move."""
    rng = np.random.default_rng(seed)
    planes = rng.normal(size=(n_cuts, dimension)) * 10.0 ** -np.linspace(0, 3, dimension)
    loss = planes @ (rng.normal(size=dimension) / np.arange(1, dimension + 1))
    offsets = loss + 0.05 * rng.random(n_cuts) * np.abs(loss)
    return planes @ planes.T, offsets, np.arange(n_cuts) % n_groups, n_groups, C


@pytest.mark.parametrize("seed", range(6))
def test_a_large_c_takes_few_steps(seed):
    G, offsets, group, n_groups, C = hard_master(seed, 1e3)
    solution = solve_master(G, offsets, group, n_groups, C, tolerance=1e-6)
    assert solution.gap <= 1e-6
    assert solution.steps <= 40_000
    assert (solution.beta >= 0.0).all()
    assert (np.bincount(group, weights=solution.beta) <= C * (1 + 1e-12)).all()


def test_a_tolerance_out_of_reach_ends():
    G, offsets, group, n_groups, C = hard_master(0, 1e7)
    solution = solve_master(G, offsets, group, n_groups, C, tolerance=0.0)
    assert solution.steps <= 100_000
    assert solution.gap <= 1e-7 * C


def test_a_deadline_ends_it():
    G, offsets, group, n_groups, C = hard_master(1, 1e3)
    began = time.monotonic()
    solution = solve_master(G, offsets, group, n_groups, C, tolerance=-1.0, deadline=began)
    assert time.monotonic() - began < 0.5
    assert not solution.in_time
    assert solve_master(G, offsets, group, n_groups, C, tolerance=1e-6, deadline=began + 60.0).in_time

"""How firmly proximal steps hold multipliers where Newton's method does not come to its end."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.proximal_data import Rows
from helpers.train_data import bits

from ooc_svm import train
from ooc_svm.passes.crew import Alone
from ooc_svm.solvers.streamed_smo import dual_loops, proximal


@pytest.fixture
def rows():
    """Rows that have been swept, most of them far from their limits."""
    found = Rows("hinge", rho=1.0, C=100.0)
    found.sweeps(2)
    return found


def steps_of(rows: Rows, first: float = 0.0, **kind) -> proximal.ProximalSteps:
    size, flag, sums = len(rows.csr[1]) + rows.n, np.zeros(1, np.uint8), np.zeros(dual_loops.N_SUMS)
    return proximal.ProximalSteps(
        rows.solve, size, flag, sums, Alone(), first=first, unit=1.0, **{"by_products": False, **kind}
    )


def firmness(rows: Rows, monkeypatch, found: list[bool], **kind) -> tuple[list[float], float]:
    """How firm one step after another is, and the first of the next solve."""
    steps, taken, answers = steps_of(rows, **kind), [], iter(found)

    def step(solve, mu, *rest):
        taken.append(mu)
        return 0.0, 1.0, next(answers)

    monkeypatch.setattr(proximal, "proximal_step", step)
    for _ in found:
        steps.go(0.0, 10**9)
    return taken, steps.first


def test_each_step_is_less_firm_as_long_as_they_come_to_their_end(rows, monkeypatch):
    taken, first = firmness(rows, monkeypatch, [True] * 3)
    assert taken == pytest.approx([0.3, 0.09, 0.027])
    assert first == 0.3


def test_what_did_not_come_to_its_end_is_followed_by_firmer_steps(rows, monkeypatch):
    dual, c = np.abs(rows.dual), rows.targets[:, 1]
    wanted = 0.3 * (c @ dual) / (dual @ dual)
    assert wanted > 0.3
    taken, first = firmness(rows, monkeypatch, [True, False, *[True] * 9])
    assert taken[2] == first == pytest.approx(wanted)
    # It is never again as loose as where that was.
    assert min(taken[2:]) == pytest.approx(0.3)
    assert taken[3] == pytest.approx(max(0.3 * taken[2], 0.3))


def test_multipliers_at_their_limits_are_held_firmer_step_by_step(rows, monkeypatch):
    rows.dual[:] = rows.targets[:, 1] * np.sign(rows.t)
    taken, _ = firmness(rows, monkeypatch, [False] * 4, by_products=True)
    assert taken == pytest.approx([1.0, 1.0 / 0.6, 1.0 / 0.36, 1.0 / 0.216])


def test_a_solve_begins_where_the_one_before_found_steps(rows, monkeypatch):
    taken, first = firmness(rows, monkeypatch, [True, True], first=50.0)
    assert (taken[0], first) == (50.0, 50.0)


def test_multipliers_of_0_are_no_measure(rows, monkeypatch):
    rows.dual[:] = 0.0
    taken, _ = firmness(rows, monkeypatch, [False, True])
    assert taken == pytest.approx([0.3, 1.0])


def test_newton_says_whether_it_came_to_its_end(monkeypatch):
    rows = Rows("hinge", rho=1.0, C=100.0)
    rows.sweeps(1)
    rows.step()
    assert rows.is_found
    rows = Rows("hinge", rho=1.0, C=100.0)
    rows.sweeps(1)
    monkeypatch.setattr(proximal, "MOST_STEPS", 1)
    rows.step()
    assert not rows.is_found


def separable(n: int = 800, d: int = 300):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    return X, np.sign(X @ rng.standard_normal(d) + 5.0 * rng.standard_normal(n))


@pytest.mark.parametrize(
    ("loss", "C", "most"), [("hinge", 1e2, 1200), ("hinge", 1e4, 1800), ("squared-hinge", 1e2, 1000)]
)
def test_large_costs_take_few_visits_of_separable_rows(loss, C, most):
    """Without firmer steps and dense systems it was seven to ten times as many as now."""
    report = train(*separable(), loss=loss, C=C).report
    assert report["converged"]
    assert report["models"][0]["row_visits"] <= most


def test_a_run_that_was_interrupted_holds_as_firmly(tmp_path):
    options = {"C": 1e6, "checkpoint": tmp_path / "c"}
    X, y = separable()
    whole = train(X, y, C=1e6)
    assert whole.report["models"][0]["passes"] > 2
    train(X, y, **options, max_passes=1)
    for reads in range(2, whole.report["models"][0]["passes"] + 1):
        model = train(X, y, **options, max_passes=reads, resume=True)
    assert bits(model) == bits(whole)

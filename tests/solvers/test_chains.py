"""Chains of models that differ in C, where all rows are resident: each begins where the one before ended."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.train_data import bits
from scipy import sparse

from ooc_svm import train
from ooc_svm.solvers.streamed_smo import dual_loops, path
from ooc_svm.solvers.streamed_smo.rounding import SmoRounding
from ooc_svm.solvers.streamed_smo.solver import StreamedSmo

COSTS = [8.0, 0.01, 0.03, 2.0, 0.1, 0.3, 1.0, 30.0]


@pytest.fixture(scope="module")
def overlapping():
    """Rows whose classes overlap: matrix, classes, values, weights of which some are 0."""
    rng = np.random.default_rng(5)
    matrix = sparse.random(3000, 40, 0.3, "csr", rng=rng, data_rvs=rng.standard_normal)
    score = matrix @ rng.normal(size=40) + 1.5 * rng.normal(size=3000) + 0.5
    return matrix, np.where(score > 0.0, 1.0, -1.0), score, rng.choice([0.0, 0.5, 1.0, 3.0], 3000)


@pytest.fixture
def begun(monkeypatch):
    """Of each solve: the model, the one before in the chain, D at its own point, the other and the start."""
    found, solve = [], StreamedSmo._solve_working_set
    solve_after = StreamedSmo.solve_after

    def after(solver, before):
        own = solver.state.dual_at(solver.model)
        others = (
            -np.inf if before is None else before.state.dual_at(solver.model, solver.model.C / before.model.C)
        )

        def solving(again, last=False):
            if last and again.n_nonzeros > 10_000:  # not of a first run on tiny data
                found.append((again, before, own, others, again.state.dual_at(again.model)))
            solve(again, last)

        monkeypatch.setattr(StreamedSmo, "_solve_working_set", solving)
        solve_after(solver, before)

    monkeypatch.setattr(StreamedSmo, "solve_after", after)
    return found


@pytest.mark.parametrize("bias", ["none", "penalized", "free"])
@pytest.mark.parametrize(
    "options",
    [{}, {"loss": "squared-hinge"}, {"loss": "logistic"}, {"problem": "svr", "epsilon": 0.2}],
    ids=["hinge", "squared-hinge", "logistic", "svr"],
)
def test_a_model_begins_at_the_better_of_two_points(overlapping, begun, options, bias):
    matrix, classes, values, weights = overlapping
    y = values if "problem" in options else classes
    model = train(matrix, y, sample_weight=weights, C=COSTS, bias=bias, tol=1e-4, threads=1, **options)
    assert model.report["converged"]
    first = begun[: len(COSTS)]
    assert sorted(each[0].model.C for each in first) == sorted(COSTS)
    for solver, before, own, others, start in first:
        assert start == pytest.approx(max(own, others), rel=1e-9)
        if before is not None:
            assert before.model.C < solver.model.C
    assert any(others > own for _, _, own, others, _ in first)


@pytest.mark.parametrize(("loss", "part"), [("hinge", 0.7), ("squared-hinge", 0.4), ("logistic", 0.6)])
def test_less_is_looked_at_for_the_same_optima(overlapping, monkeypatch, loss, part):
    monkeypatch.setattr(path, "CHAINS", 1)
    matrix, y, _, _ = overlapping
    costs, options = [2.0**k for k in range(-6, 6)], {"bias": "none", "loss": loss, "threads": 1}
    together = train(matrix, y, C=costs, **options).report["models"]
    alone = [train(matrix, y, C=C, **options).report["models"][0] for C in costs]
    assert sum(m["row_visits"] for m in together) <= part * sum(m["row_visits"] for m in alone)
    assert max(m["passes"] for m in together) <= max(m["passes"] for m in alone)
    for own, other in zip(alone, together, strict=True):
        assert own["dual"] <= other["primal"]
        assert other["dual"] <= own["primal"]


def test_same_bits_with_any_number_of_threads(overlapping):
    matrix, y, _, weights = overlapping
    one, *others = (train(matrix, y, sample_weight=weights, C=COSTS, threads=n) for n in (1, 2, 3, 8))
    assert one.report["converged"]
    for other in others:
        assert bits(other) == bits(one)


@pytest.mark.parametrize(
    ("n_paths", "lengths"), [(1, [2, 2, 2, 2]), (2, [4, 4]), (3, [4, 4]), (4, [8]), (50, [8])]
)
def test_a_run_has_several_chains(n_paths, lengths):
    class Model:
        def __init__(self, C, *, done=False):
            self.model = self.state = self
            self.C, self.done, self.name = C, done, str(C)

        def is_done(self):
            return self.done

        def solve_after(self, before):
            order.append((before and before.C, self.C))

    members = [Model(float(C)) for C in range(8, 0, -1)]
    together = path.Path(members, n_paths)
    order: list[tuple[float | None, float]] = []
    for member in members:
        together.solve_chain(member)
    order.sort(key=lambda each: each[1])
    begins = np.cumsum([0, *lengths[:-1]]) + 1
    assert order == [(None if C in begins else C - 1.0, C) for C in range(1, 9)]
    # One that has what is wanted is neither solved nor followed.
    order.clear()
    together.members[0].done = True
    for member in together.members[1:]:
        together.solve_chain(member)
    order.sort(key=lambda each: each[1])
    assert order[0] == (None, 2.0)
    assert len(order) == 7


def test_what_rounding_may_have_added_does_not_double_with_each_link():
    moves = np.zeros(dual_loops.N_SUMS)
    moves[dual_loops.CHANGES] = 1e6
    rounding = SmoRounding()
    rounding.moved(moves, 1.0)
    alone = rounding.dual(1.0, 0.0, (1000, 10))
    for _ in range(50):
        rounding.rescale(1.0)
    assert 10.0 * alone < rounding.dual(1.0, 0.0, (1000, 10)) < 100.0 * alone


@pytest.mark.parametrize("n_features", [40, 5000])
def test_warm_starts_end_at_the_optimum(overlapping, tmp_path, begun, n_features):
    matrix, y, _, _ = overlapping
    wide = sparse.csr_matrix((matrix.data, matrix.indices, matrix.indptr), (matrix.shape[0], n_features))
    train(wide, y, C=[0.01, 0.02], checkpoint=tmp_path / "state", bias="free")
    begun.clear()
    options = {"C": [1.0, 2.0, 4.0, 8.0, 16.0], "bias": "free", "tol": 1e-4}
    warm, cold = (train(wide, y, **options, **start) for start in ({"warm_start": tmp_path / "state"}, {}))
    # With many columns there are no chains.
    assert any(before is not None for _, before, *_ in begun) == (n_features == 40)
    for one, other in zip(warm.report["models"], cold.report["models"], strict=True):
        assert one["converged"]
        assert one["dual"] <= other["primal"]
        assert other["dual"] <= one["primal"]


def test_no_chains_where_not_each_model_may_have_all_rows(overlapping, monkeypatch, begun):
    matrix, y, _, _ = overlapping
    monkeypatch.setattr("ooc_svm.solvers.streamed_smo.company.Company.holds_all", lambda *_: False)
    assert train(matrix, y, C=COSTS).report["converged"]
    assert all(before is None for _, before, *_ in begun)

"""Models that differ in C alone: one goes on from where another is, and what that saves."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import ooc_svm.solvers.streamed_smo.solver
from ooc_svm import train
from ooc_svm.solvers.streamed_smo.path import Path
from ooc_svm.solvers.streamed_smo.solver import StreamedSmo

pytestmark = pytest.mark.usefixtures("few_held")

PATH = [2.0**k for k in range(-6, 8)]


@pytest.fixture(autouse=True)
def little_is_worthwhile(monkeypatch):
    """Solves have the limits of larger data."""
    monkeypatch.setattr(ooc_svm.solvers.streamed_smo.solver, "WORTHWHILE", 1000)


@pytest.fixture(scope="module")
def overlapping():
    """Rows whose classes overlap, so that most of P is losses: matrix, classes, values, weights."""
    rng = np.random.default_rng(5)
    matrix = sparse.random(3000, 40, 0.3, "csr", rng=rng, data_rvs=rng.standard_normal)
    score = matrix @ rng.normal(size=40) + 1.5 * rng.normal(size=3000) + 0.5
    return matrix, np.where(score > 0.0, 1.0, -1.0), score, rng.choice([0.5, 1.0, 3.0], 3000)


@pytest.fixture
def origins(monkeypatch):
    """D of each model that goes on from another one, as the formula has it and as it is found there."""
    found, expected = [], {}
    choose, follow = Path.choose, StreamedSmo._follow_path

    def chosen(path):
        choose(path)
        for member in path.members:
            if (origin := path.origin(member)) is not None:
                ratio = member.model.C / origin.model.C
                linear, square = origin.state.feasible
                expected[member.model.name] = ratio * linear - 0.5 * ratio**2 * square

    def followed(solver):
        before = solver.state.certificate.upper
        yield from follow(solver)
        if solver.path is not None and solver.path.origin(solver) is not None:
            certificate = solver.state.certificate
            found.append((expected[solver.model.name], certificate, certificate.dual))
            assert certificate.upper <= before * (1 + 1e-12)

    monkeypatch.setattr(Path, "choose", chosen)
    monkeypatch.setattr(StreamedSmo, "_follow_path", followed)
    return found


@pytest.fixture
def many_columns(monkeypatch):
    """Rows are solved as if they had many: by steps of one multiplier at a time, which take long."""
    monkeypatch.setattr("ooc_svm.solvers.streamed_smo.plan.most_columns", lambda *shape: 0)
    monkeypatch.setattr("ooc_svm.solvers.streamed_smo.proximal.MOST_DIRECT", 0)


@pytest.mark.parametrize("bias", ["none", "penalized", "free"])
@pytest.mark.parametrize(
    "options",
    [
        {"C": [0.1, 0.8, 4.0, 9.0]},
        {"C": [0.3, 2.0, 8.0], "loss": "squared-hinge"},
        {"C": [8.0, 0.3, 2.0], "problem": "svr", "epsilon": 0.2},
    ],
    ids=["hinge", "squared-hinge", "svr"],
)
def test_the_bound_is_that_of_the_multipliers_that_are_taken(
    overlapping, many_columns, origins, options, bias
):
    matrix, classes, values, weights = overlapping
    y = values if "problem" in options else classes
    model = train(matrix, y, sample_weight=weights, bias=bias, resident=0.1, tol=1e-4, **options)
    assert model.report["converged"]
    assert origins
    for expected, certificate, dual in origins:
        # A free bias: how much of the multipliers' sum resident rows take up is found again.
        assert dual == pytest.approx(expected, rel=1e-9)
        assert dual - certificate.dual_rounding <= certificate.upper


def test_half_of_the_steps_are_saved_and_no_read_is_added(overlapping, many_columns):
    matrix, y, _, _ = overlapping
    options = {"resident": 0.1, "bias": "none"}
    together = train(matrix, y, C=PATH, **options).report["models"]
    alone = [train(matrix, y, C=C, **options).report["models"][0] for C in PATH]
    assert sum(m["row_visits"] for m in together) <= 0.5 * sum(m["row_visits"] for m in alone)
    assert max(m["passes"] for m in together) <= max(m["passes"] for m in alone)
    for own, other in zip(alone, together, strict=True):
        # Each has the optimum of its own C between its values.
        assert own["dual"] <= other["primal"]
        assert other["dual"] <= own["primal"]


def test_models_of_other_classes_are_no_origin(overlapping, origins):
    matrix, _, values, _ = overlapping
    model = train(matrix, np.digitize(values, [-1.0, 1.0]), C=0.1, resident=0.1)
    assert model.report["converged"]
    assert not origins

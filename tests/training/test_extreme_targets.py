"""Targets that are all equal, and grades whose sums pass the range of float64."""

from __future__ import annotations

import numpy as np
import pytest

import ooc_svm
from ooc_svm import InputError
from ooc_svm.evaluation.evaluate import evaluate

N_ROWS = 50


@pytest.fixture(scope="module")
def matrix() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(200, 6))


def train_quietly(*data, **options):
    """Train without warnings of hints; they are in the report."""
    return ooc_svm.train(*data, progress=lambda _: None, **options)


@pytest.mark.parametrize("value", [0.1, -1e9 / 3, 1e-300, 1e150 / 7, 0.0])
@pytest.mark.parametrize("engine", [{"threads": 1}, {"threads": 2}])
def test_equal_targets_deviate_by_nothing(matrix, value, engine):
    targets = np.full(N_ROWS, value)
    model = train_quietly(matrix[:N_ROWS], targets, problem="svr", bias="none", max_passes=20, **engine)
    [quality] = model.report["quality"]
    assert quality["r2"] == evaluate(model, matrix[:N_ROWS], "r2", labels=targets)["r2"]
    assert quality["r2"] in (0.0, 1.0)
    assert "unit-of-values" not in {hint["code"] for hint in model.report["hints"]}


def test_equal_targets_among_rows_held_out(matrix):
    targets = np.full(200, 0.1)
    options = {"problem": "svr", "bias": "none", "epsilon": 0.01}
    model = train_quietly(matrix, targets, validation=0.3, **options)
    for row in model.report["history"]:
        assert row["validation"][0]["r2"] == 0.0
    assert model.report["quality"][0]["r2"] == 0.0


@pytest.mark.parametrize("solver", ["streamed-smo", "ocas", "cutting-plane", "kernel-cutting-plane"])
def test_rows_that_weigh_nothing(matrix, solver, monkeypatch):
    """All data of that kind are refused, but the rest of the rows may be so where some are held out."""
    kernel = {"kernel": "rbf"} if solver.startswith("kernel") else {}
    options = {"solver": solver, "bias": "free", "sample_weight": np.zeros(N_ROWS), **kernel}
    rows, targets = matrix[:N_ROWS], np.arange(float(N_ROWS))
    with pytest.raises(InputError, match="all rows have a weight of 0, so that there is nothing to train on"):
        train_quietly(rows, targets, problem="svr", **options)
    monkeypatch.setattr("ooc_svm.training.data._require_weight", lambda source: None)
    model = train_quietly(rows, targets, problem="svr", **options)
    assert (model.report["converged"], model.report["models"][0]["primal"]) == (True, 0.0)
    for problem, labels in (("nu-svr", targets), ("nu-svc", targets % 2)):
        with pytest.raises(InputError, match="all rows have a weight of 0, and nu is a share of the weights"):
            train_quietly(rows, labels, problem=problem, **options)


@pytest.mark.parametrize("size", [1e-150, 1e-20, 1e19, 1e100])
@pytest.mark.parametrize("kernel", ["rbf", "poly"])
def test_a_kernel_of_rows_of_any_size(matrix, size, kernel):
    labels = np.where(matrix[:, 0] > matrix[:, 1], 1, -1)
    own = train_quietly(size * matrix, labels, kernel=kernel)
    like = train_quietly(matrix, labels, kernel=kernel)
    assert own.report["converged"]
    assert own.report["models"][0]["primal"] == pytest.approx(like.report["models"][0]["primal"], rel=2e-3)
    assert own.score(size * matrix, labels) == pytest.approx(like.score(matrix, labels), abs=0.02)


def test_where_all_targets_are_equal_it_is_said(matrix):
    [hint] = train_quietly(matrix[:N_ROWS], np.full(N_ROWS, 0.1), problem="svr").report["hints"]
    assert hint["code"] == "useless-model"
    assert "all rows have the same value, so that there is nothing to learn" in hint["message"]


def test_grades_whose_sums_overflow_are_refused():
    rng = np.random.default_rng(0)
    matrix, qid = rng.normal(size=(200, 6)), np.repeat(np.arange(20), 10)
    grades = np.tile(np.arange(10.0) * 1.5e307, 20)
    with pytest.raises(InputError, match="pass the range of float64; scale the grades"):
        ooc_svm.tune(matrix, grades, qid=qid, problem="ranking", C=[0.1, 1], folds=3)


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"problem": "nu-svc", "nu": 0.3}, "choose a larger nu, another scale, or features that say more"),
        ({"problem": "nu-svr", "nu": 0.3}, "choose a larger nu, another C or scale, or features that"),
        ({"problem": "nu-svr", "nu": 1.0}, "choose another C or scale, or features that say more"),
        ({"problem": "svc"}, "choose another C, bias or scale, or features that say more"),
    ],
)
def test_what_may_help_is_what_the_problem_takes(matrix, options, advice):
    noise = np.random.default_rng(7).normal(size=200)
    targets = np.sign(noise) if options["problem"].endswith("svc") else noise
    hints = train_quietly(0.01 * matrix, targets, **options).report["hints"]
    assert advice in {hint["code"]: hint["message"] for hint in hints}["useless-model"]


FOUR = np.array([[1.0], [2.0], [-1.0], [-3.0]])


def ends_or_is_refused(rows, labels, **options):
    """Whether a run ends with finite values, or says that the data have none."""
    try:
        model = train_quietly(rows, labels, **options, max_passes=15)
    except InputError as error:
        return "non-finite objective" in str(error)
    return all(np.isfinite(each["gap"]) for each in model.report["models"])


@pytest.mark.parametrize("size", [1e78, 1e120, 1e150, 1e-80, 1e-150])
def test_nu_of_rows_of_any_size(size):
    assert ends_or_is_refused(size * FOUR, [1, 1, -1, -1], problem="nu-svc", solver="streamed-smo")


@pytest.mark.parametrize(
    ("weight", "size"),
    [(1e-100, 1.0), (1e-170, 1.0), (1e-305, 1.0), (1e150, 1.0), (1e200, 1e60), (1e308, 1e-150)],
)
def test_nu_of_rows_of_any_weight(weight, size):
    options = {"problem": "nu-svc", "solver": "streamed-smo", "sample_weight": np.full(4, weight)}
    assert ends_or_is_refused(size * FOUR, [1, 1, -1, -1], **options)


@pytest.mark.parametrize("solver", ["ocas", "cutting-plane"])
@pytest.mark.parametrize("problem", ["svc", "svr"])
@pytest.mark.parametrize("C", [1e170, 1e300])
def test_cuts_of_any_cost(matrix, solver, problem, C):
    options = {"solver": solver, "problem": problem, "C": C, "bias": "free"}
    assert ends_or_is_refused(matrix[:N_ROWS], np.sign(matrix[:N_ROWS, 0]), **options)

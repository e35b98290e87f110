"""The augmented Lagrangian: optima against other solvers, certificates, bits, resumed runs, refusals."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.linalg import lsqr
from typer.testing import CliRunner

import ooc_svm
from ooc_svm import UsageError, train
from ooc_svm.cli.app import app
from ooc_svm.losses.lp import lp_hinge
from ooc_svm.solvers.alm import directions, trial_loops
from ooc_svm.solvers.alm import plan as alm_plan
from ooc_svm.solvers.alm.state import AlmState

RNG = np.random.default_rng(21)
X = sparse.csr_array(RNG.standard_normal((700, 20)) * (RNG.random((700, 20)) < 0.4))
RULE = X @ RNG.standard_normal(20) + 0.8 + RNG.logistic(size=700)
Y = np.where(RULE > 0.0, 1.0, -1.0)
THREE = np.digitize(RULE, [-1.0, 1.5]).astype(np.float64)
WEIGHTS = RNG.integers(0, 4, 700) * 0.5
SOLVERS = ("alm", "inexact-alm")


def value(model, p, C, weights, bias):
    w, b = model.weights[0], model.bias[0]
    penalty = w @ w + (b * b if bias == "penalized" else 0.0)
    return 0.5 * penalty + (C * weights * np.maximum(0.0, 1.0 - Y * (X @ w + b)) ** p).sum()


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("bias", ["none", "penalized", "free"])
@pytest.mark.parametrize(("p", "C"), [(1.0, 1.0), (1.2, 0.1), (1.5, 10.0), (2.0, 1.0)])
def test_it_certifies_the_optimum_of_streamed_smo(p, C, bias, solver):
    tol = 1e-4 if solver == "alm" else 1e-2
    options = {"loss": "lp", "p": p, "C": C, "bias": bias, "sample_weight": WEIGHTS, "scale": "std"}
    model = train(X, Y, solver=solver, tol=tol, max_passes=200, **options)
    found = model.report["models"][0]
    best = train(X, Y, solver="streamed-smo", tol=1e-6, **options).report["models"][0]
    assert found["converged"]
    assert found["relative_gap"] <= tol
    assert found["dual"] <= best["primal"] * (1 + 1e-12)
    assert best["dual"] <= found["primal"] * (1 + 1e-12)
    w, b = model.weights[0] / model.scale, model.bias[0]
    penalty = w @ w + (b * b if bias == "penalized" else 0.0)
    losses = C * WEIGHTS * np.maximum(0.0, 1.0 - Y * (X @ model.weights[0] + b)) ** p
    assert found["primal"] == pytest.approx(0.5 * penalty + losses.sum(), rel=1e-9)


@pytest.mark.parametrize("p", [1.0, 1.5])
@pytest.mark.parametrize("bias", ["none", "free"])
def test_products_by_reads_give_the_same_optimum(monkeypatch, p, bias):
    monkeypatch.setattr(alm_plan, "MOST_PARAMETERS", 0)
    model = train(X, Y, solver="alm", loss="lp", p=p, bias=bias, tol=1e-3)
    found = model.report["models"][0]
    best = train(X, Y, loss="lp", p=p, bias=bias, tol=1e-6).report["models"][0]
    assert model.report["gram"] is False
    assert found["converged"]
    assert best["dual"] <= found["primal"]
    assert found["dual"] <= best["primal"]
    assert found["primal"] == pytest.approx(value(model, p, 1.0, 1.0, bias), rel=1e-9)


@pytest.mark.parametrize("by_products", [False, True])
@pytest.mark.parametrize("C", [0.01, 1.0])
def test_few_long_rows(monkeypatch, C, by_products):
    """Of which a Gram matrix takes no time; without one, steps without a better P or D are no end."""
    if by_products:
        monkeypatch.setattr(alm_plan, "MOST_PARAMETERS", 0)
    rng = np.random.default_rng(0)
    data, labels = rng.normal(size=(40, 800)).astype(np.float32), np.where(rng.random(40) < 0.5, 1.0, -1.0)
    report = train(data, labels, solver="alm", C=C).report
    assert report["gram"] is not by_products
    assert report["converged"]
    assert by_products or report["passes"] < 60


@pytest.mark.parametrize("renews", [False, True])
@pytest.mark.parametrize("p", [1.0, 1.5, 2.0])
def test_the_curvature_is_that_of_the_newest_point(p, renews):
    """Found for a product, from the scores before the step: the multipliers' changes with the score."""
    rng = np.random.default_rng(3)
    loss, n, before, ratio = lp_hinge(p), 200, 0.4, 1.1
    targets, costs = rng.choice([-1.0, 1.0], n), rng.uniform(0.5, 2.0, n) * (rng.random(n) < 0.9)
    scores, start = 2.0 * rng.normal(size=n), np.zeros(n)
    trial_loops.update(loss, 2.0 * rng.normal(size=n), targets, costs, before, start)
    found, reference, far = np.empty(n), start.copy(), 1e-6
    trial_loops.slopes(loss, scores, start, targets, costs, before if renews else 0.0, ratio, found)
    if renews:
        trial_loops.update(loss, scores, targets, costs, before, reference)
    below, above = reference.copy(), reference.copy()
    trial_loops.update(loss, scores - far, targets, costs, ratio, below)
    trial_loops.update(loss, scores + far, targets, costs, ratio, above)
    assert 0 < np.count_nonzero(found) < n
    np.testing.assert_allclose(found, (below - above) / (2.0 * far), rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("by_products", [False, True])
@pytest.mark.parametrize("solver", SOLVERS)
def test_threads_company_and_a_pause_change_no_bit(tmp_path, monkeypatch, solver, by_products):
    if by_products:
        monkeypatch.setattr(alm_plan, "MOST_PARAMETERS", 0)
    ooc_svm.convert_matrix(X, Y, tmp_path / "s.zarr", dtype="float64")
    options = {"solver": solver, "loss": "lp", "p": 1.3, "bias": "free", "tol": 5e-3}
    whole = train(tmp_path / "s.zarr", C=[0.5, 4.0], threads=1, **options)
    for threads in (2, 3):
        same = train(tmp_path / "s.zarr", C=[0.5, 4.0], threads=threads, **options)
        assert same.weights.tobytes() == whole.weights.tobytes()
    alone = train(tmp_path / "s.zarr", C=4.0, **options)
    assert alone.weights[0].tobytes() == whole.weights[1].tobytes()
    for stop in (1, 4):
        place = {"checkpoint": tmp_path / f"checkpoint{stop}", "C": [0.5, 4.0]}
        part = train(tmp_path / "s.zarr", max_passes=stop, **place, **options)
        assert not part.report["converged"]
        resumed = train(tmp_path / "s.zarr", resume=True, **place, **options)
        assert resumed.weights.tobytes() == whole.weights.tobytes()


def test_several_classes_and_folds(tmp_path):
    ooc_svm.convert_matrix(X, THREE, tmp_path / "s.zarr")
    model = train(tmp_path / "s.zarr", solver="alm", bias="free", tol=1e-3)
    assert [row["converged"] for row in model.report["models"]] == [True] * 3
    tuned = ooc_svm.tune(tmp_path / "s.zarr", C=[0.1, 1.0], folds=3, solver="alm", loss="squared-hinge")
    assert tuned.report["converged"]


@pytest.mark.parametrize("loss", ["logistic"])
def test_other_losses_are_refused(loss):
    with pytest.raises(UsageError, match="is for the solver"):
        train(X, Y, solver="alm", loss=loss)


def command(*arguments):
    """Exit code and the lines on standard error of a command line."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert "Traceback" not in done.stderr
    return done.exit_code, done.stderr.splitlines()


@pytest.mark.parametrize("solver", SOLVERS)
def test_an_overflow_ends_the_command_without_a_model(tmp_path, solver):
    ooc_svm.convert_matrix(1e160 * X, Y, tmp_path / "s.zarr", dtype="float64")
    options = ["--solver", solver, "--loss", "squared-hinge", "--C", 1e150]
    code, lines = command("train", tmp_path / "s.zarr", "-o", tmp_path / "m", *options)
    assert code == 3
    assert lines[-1].startswith("ooc-svm: error: non-finite objective in pass 1: ")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--loss", "lp", "--p", "2.5"], "from 1 to 2"),
        (["--loss", "lp", "--p", "0.9"], "from 1 to 2"),
        (["--loss", "hinge", "--p", "1.5"], "lp"),
        (["--loss", "logistic"], "is for the solver"),
    ],
)
def test_a_wrong_power_or_loss_is_refused(tmp_path, options, sentence):
    ooc_svm.convert_matrix(X, Y, tmp_path / "s.zarr")
    code, lines = command("train", tmp_path / "s.zarr", "-o", tmp_path / "m", "--solver", "alm", *options)
    assert code == 2
    assert sentence in lines[-1]
    assert not (tmp_path / "m").exists()


def test_a_penalty_at_its_limit_is_said(tmp_path):
    ooc_svm.convert_matrix(X, Y, tmp_path / "s.zarr")
    options = ["--solver", "inexact-alm", "--bias", "free", "--C", 1e6, "--max-passes", 3]
    _, lines = command("train", tmp_path / "s.zarr", "-o", tmp_path / "m", *options)
    [said] = [line for line in lines if "its upper limit of 100000" in line]
    assert "--solver streamed-smo" in said
    report = train(X, Y, solver="alm", bias="free", C=[1.0, 1e6], max_passes=2).report
    assert [hint["code"] for hint in report["hints"]] == ["penalty-limit"]
    assert report["models"][0]["mu"] < 1.0
    assert report["models"][1]["mu"] == pytest.approx(1e5)


def test_values_too_large_for_double_precision_are_said(tmp_path):
    ooc_svm.convert_matrix(1e30 * X, Y, tmp_path / "s.zarr", dtype="float64")
    options = ["--solver", "alm", "--loss", "lp", "--p", 1.5, "--max-passes", 4]
    code, lines = command("train", tmp_path / "s.zarr", "-o", tmp_path / "m", *options)
    assert code == 0
    [said] = [line for line in lines if "rounding" in line]
    assert "no more passes certify 0.001" in said
    assert "--scale maxabs" in said
    code, lines = command("train", tmp_path / "s.zarr", "-o", tmp_path / "n", "--scale", "maxabs", *options)
    assert not any("rounding" in line for line in lines)


def test_it_is_said_where_there_is_no_gram_matrix(tmp_path, monkeypatch):
    monkeypatch.setattr(alm_plan, "MOST_PARAMETERS", 0)
    ooc_svm.convert_matrix(X, Y, tmp_path / "s.zarr")
    planned = CliRunner().invoke(app, ["plan", str(tmp_path / "s.zarr"), "--solver", "alm"]).stdout
    assert "no Gram matrix" in planned
    options = ["--solver", "alm", "--max-passes", 3]
    _, lines = command("train", tmp_path / "s.zarr", "-o", tmp_path / "m", *options)
    [said] = [line for line in lines if "wide for a Gram matrix" in line]
    assert "--solver inexact-alm takes fewer reads" in said


def test_the_report_has_what_the_paper_stops_by():
    report = train(X, Y, solver="alm", bias="free", tol=1e-5).report
    [found] = report["models"]
    values = [row["primal"] for row in report["history"]]
    falls = [(before - after) / after for before, after in itertools.pairwise(values)]
    expected = [number for number, fall in enumerate(falls, 2) if 0.0 < fall < 1e-4]
    assert found["paper_passes"] == expected[0]
    assert 0.0 <= found["gradient"] <= 0.01 * found["primal"]
    assert train(X, Y, solver="alm", max_passes=1).report["models"][0]["paper_passes"] == 0


def test_the_search_for_a_direction_has_the_iterates_of_lsqr():
    """Of the least squares problem of the curvature, with the same preconditioner."""
    rng = np.random.default_rng(5)
    A, w = rng.normal(size=(90, 8)) + 2.0 * np.eye(8)[3], rng.normal(size=8)
    slopes, v = rng.uniform(0.1, 1.0, 90), rng.normal(size=90)
    state = AlmState.fresh(8, 0, 4, 1.0, diagonal=True)
    state.w, state.plane = w, A.T @ v
    state.curvature = np.stack([slopes @ A**2, slopes @ A / np.sqrt(slopes.sum())])
    precondition = directions.Preconditioner.of(state, 8, 0.0)
    root = np.linalg.cholesky(np.array([precondition(row) for row in np.eye(8)]))
    system = np.vstack([np.sqrt(slopes)[:, None] * A, np.eye(8)])
    goal = np.concatenate([v / np.sqrt(slopes), -w])
    directions.begin_search(state, 8, 0.0)
    for products in range(1, 9):
        directions.go_on(state, A.T @ (slopes * (A @ state.search.along)), 8, 0.0)
        expected = root @ lsqr(system @ root, goal, atol=0.0, btol=0.0, conlim=0.0, iter_lim=products)[0]
        np.testing.assert_allclose(state.search.found, expected, rtol=1e-7, atol=1e-10)
    exact = np.linalg.solve(system.T @ system, system.T @ goal)
    np.testing.assert_allclose(state.search.found, exact, rtol=1e-7)


@pytest.mark.parametrize("bias", ["none", "penalized", "free"])
def test_a_gradient_of_zero_is_no_search_for_a_direction(monkeypatch, bias):
    """The classes are those of an exclusive or: nothing is better than weights of 0."""
    monkeypatch.setattr(alm_plan, "MOST_PARAMETERS", 0)
    rows = np.tile([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]], (5, 1))
    labels = np.tile([1.0, 1.0, -1.0, -1.0], 5)
    found = train(rows, labels, solver="alm", loss="hinge", bias=bias).report["models"][0]
    assert found["converged"]
    assert found["primal"] == pytest.approx(20.0)


def test_many_models_take_the_reads_of_the_slowest(tmp_path):
    """All classes and values of C in the same reads, with the bits that each has alone."""
    ooc_svm.convert_matrix(X, THREE, tmp_path / "s.zarr", dtype="float64")
    options = {"solver": "inexact-alm", "loss": "lp", "p": 1.5, "bias": "free", "tol": 1e-2}
    model = train(tmp_path / "s.zarr", C=[0.1, 1.0], **options)
    passes = [found["passes"] for found in model.report["models"]]
    assert model.report["passes"] == max(passes)
    alone = train(tmp_path / "s.zarr", C=1.0, positive=1.0, **options)
    number = [(found["label"], found["C"]) for found in model.report["models"]].index(("1", 1.0))
    assert alone.weights[0].tobytes() == model.weights[number].tobytes()
    assert alone.report["passes"] == passes[number]
    assert alone.report["bytes_read"] <= model.report["bytes_read"]


def test_numbers_that_overflow_end_with_one_sentence():
    with pytest.raises(ooc_svm.InputError, match="non-finite objective in pass"), np.errstate(all="ignore"):
        train(1e160 * X, Y, solver="alm", loss="squared-hinge", C=1e150)


def test_the_plan_says_which_way(tmp_path, monkeypatch):
    ooc_svm.convert_matrix(X, Y, tmp_path / "s.zarr")
    assert "Gram matrix" in "\n".join(ooc_svm.plan(tmp_path / "s.zarr", solver="alm").lines())
    monkeypatch.setattr(alm_plan, "MOST_PARAMETERS", 0)
    assert "conjugate gradients" in "\n".join(ooc_svm.plan(tmp_path / "s.zarr", solver="alm").lines())

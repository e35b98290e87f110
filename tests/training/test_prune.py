"""Small weights set to 0 in the end: what is left, and its certificate."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from helpers.pairs_data import all_pairs, pair_loss
from helpers.streamed_data import make_rows, options_of, value_of
from helpers.train_data import answers, bits, make_store, problem_rows, store_rows
from typer.testing import CliRunner

import ooc_svm
from ooc_svm.cli.app import app
from ooc_svm.errors import Interrupted, UsageError
from ooc_svm.system import signals

SHARE = 0.2
ROWS = [
    options_of("hinge", bias="none"),
    options_of("hinge", bias="free", C=[0.1, 2.0]),
    options_of("hinge", bias="penalized", scale="maxabs"),
    options_of("squared-hinge", bias="free"),
    options_of("logistic", bias="free"),
    options_of("epsilon-insensitive", bias="free"),
    options_of("squared-epsilon-insensitive", bias="penalized"),
    options_of("hinge", bias="penalized", scale="std", solver="ocas"),
    options_of("hinge", bias="free", solver="ocas"),
    options_of("epsilon-insensitive", bias="free", solver="ocas"),
    options_of("hinge", bias="none", solver="cutting-plane", tol=0.1),
    options_of("hinge", bias="free", solver="cutting-plane", tol=0.1),
]
NU = [
    {"problem": problem, "nu": nu, "solver": solver}
    for problem, nu in (("nu-svc", 0.4), ("nu-svr", 0.6))
    for solver in ("ocas", "streamed-smo")
]


def small(weights, scale):
    """Which weights are to be 0."""
    sizes = np.abs(weights if scale is None else weights / scale)
    return sizes < SHARE * sizes.max()


def assert_pruned(model, whole, n_reads):
    """The small weights are 0, the others as they were, and the report has the gap before."""
    assert model.report["prune"] == SHARE
    assert whole.report["prune"] is None
    assert model.report["passes"] == whole.report["passes"] + n_reads
    assert model.report["history"] == [
        row | {"seconds": mine["seconds"]}
        for row, mine in zip(whole.report["history"], model.report["history"], strict=True)
    ]
    for k, (row, before) in enumerate(zip(model.report["models"], whole.report["models"], strict=True)):
        gone = small(whole.weights[k], whole.functions.scale)
        assert 0 < gone.sum() < len(gone)
        np.testing.assert_array_equal(model.weights[k], np.where(gone, 0.0, whole.weights[k]))
        assert row["n_nonzero_weights"] == np.count_nonzero(model.weights[k])
        names = ("primal", "gap", "relative_gap", "converged")
        assert row["unpruned"] == {name: before[name] for name in names} | {
            "n_nonzero_weights": np.count_nonzero(whole.weights[k])
        }
        assert row["dual"] == before["dual"]
        assert row["primal"] > before["primal"]
        assert row["gap"] == pytest.approx(row["primal"] - row["dual"] + row["rounding"], rel=1e-9)
        within = row["relative_gap"] <= model.report["tol"]
        assert (row["converged"], row["stop_reason"]) == (within, "certified" if within else "pruning")
        assert row["rounding"] <= 4 * before["rounding"]


@pytest.mark.parametrize("options", ROWS, ids=lambda o: "-".join(map(str, o.values())))
def test_losses_of_rows(options):
    matrix, labels, values = make_rows()
    t = values if options["problem"] == "svr" else labels
    whole = ooc_svm.train(matrix, t, **options)
    model = ooc_svm.train(matrix, t, prune=SHARE, **options)
    assert_pruned(model, whole, 1)
    loss = {"loss": options["loss"], "bias": options["bias"]}
    for k, row in enumerate(model.report["models"]):
        w = model.weights[k] if model.functions.scale is None else model.weights[k] / model.functions.scale
        scaled = matrix if model.functions.scale is None else matrix.multiply(model.functions.scale).tocsr()
        own = value_of(scaled, t, w, model.bias[k], C=row["C"], **loss)
        assert row["primal"] == pytest.approx(own, rel=1e-12, abs=row["rounding"])
        scores = scaled @ w + model.bias[k]
        if loss["loss"] in ("hinge", "squared-hinge"):
            # The best bias may put a row on its margin, to the last bit or not.
            inside, near = (np.count_nonzero(t * scores < 1.0 + edge) for edge in (-1e-12, 1e-12))
            assert inside <= row["n_support"] <= near
            assert near - inside <= 1
        if options["bias"] == "free" and options.get("solver") != "cutting-plane":
            # The bias is the best one for the weights that are left.
            for b in model.bias[k] + np.array([-0.05, 0.05]):
                assert value_of(scaled, t, w, b, C=row["C"], **loss) >= own * (1 - 1e-5)
    if model.report["quality"]:
        [metric] = [name for name in model.report["quality"][0] if name in ("accuracy", "r2")]
        for row in model.report["quality"]:
            found = ooc_svm.evaluate(model, matrix, metric, labels=t, C=row["C"])
            assert row[metric] == pytest.approx(found[metric], rel=1e-9)
    else:
        assert options.get("solver") == "cutting-plane"


@pytest.mark.parametrize("options", NU, ids=lambda o: f"{o['problem']}-{o['solver']}")
def test_nu(options):
    matrix, labels, values = make_rows()
    values = values - 2.0
    t = values if options["problem"] == "nu-svr" else labels
    whole = ooc_svm.train(matrix, t, **options)
    model = ooc_svm.train(matrix, t, prune=SHARE, **options)
    assert_pruned(model, whole, 1)
    [row] = model.report["models"]
    w, scores = model.weights[0], matrix @ model.weights[0] + model.bias[0]
    if options["problem"] == "nu-svc":
        loss = np.maximum(0.0, row["rho"] - t * scores).mean() - options["nu"] * row["rho"]
    else:
        loss = np.maximum(0.0, np.abs(t - scores) - row["epsilon"]).sum()
        loss += options["nu"] * len(t) * row["epsilon"]
    assert row["primal"] == pytest.approx(0.5 * w @ w + loss, rel=1e-10)


@pytest.mark.parametrize("solver", ["ocas", "cutting-plane"])
@pytest.mark.parametrize("problem", ["ordinal", "roc-area", "ranking"])
def test_pairs(problem, solver):
    matrix, labels = problem_rows(problem, 240, 30, noise=0.5)
    qid = np.repeat(np.arange(24), 10) if problem == "ranking" else None
    options = {"qid": qid, "problem": problem, "solver": solver, "C": 20.0, "tol": 0.05}
    whole = ooc_svm.train(matrix, labels, **options)
    model = ooc_svm.train(matrix, labels, prune=SHARE, **options)
    assert_pruned(model, whole, 1)
    [row], w = model.report["models"], model.weights[0]
    pairs = all_pairs(labels, qid)
    loss = pair_loss(matrix @ w, pairs, np.ones(len(pairs[0])))
    assert row["primal"] == pytest.approx(0.5 * w @ w + 20.0 * loss, rel=1e-12)


def test_nothing_of_it_shows_where_it_is_not_asked_for():
    matrix, labels = store_rows()
    model = ooc_svm.train(matrix, labels)
    assert "unpruned" not in model.report["models"][0]
    assert model.weights.all()


def test_within_the_gap_that_is_asked_for():
    matrix, labels = store_rows(400, 60, density=0.1)
    model = ooc_svm.train(matrix, labels, prune=1e-6, tol=0.01)
    [row] = model.report["models"]
    assert row["converged"]
    assert row["stop_reason"] == "certified"
    model = ooc_svm.train(matrix, labels, prune=0.1, tol=1e-7, max_passes=1)
    assert model.report["stop_reason"] == "max-passes"


def test_classes_and_engines_have_the_same_bits(tmp_path):
    X, labels = problem_rows("three classes", 300, 40, noise=0.3)
    store = make_store(tmp_path / "s", X, labels)
    options = {"C": [0.5, 4.0], "prune": SHARE, "bias": "free"}
    one = ooc_svm.train(store, threads=1, **options)
    assert one.report["passes"] == one.report["history"][-1]["pass"] + 1
    for others in ({"threads": 3}, {"engine": "dask", "threads": 1}):
        other = ooc_svm.train(store, **options, **others)
        assert bits(other) == bits(one)
        assert answers(other.report) == answers(one.report)
    ooc_svm.save_model(one, tmp_path / "m")
    assert ooc_svm.load_model(tmp_path / "m").weights.tobytes() == one.weights.tobytes()


def test_a_run_that_has_ended_is_pruned_by_one_read(tmp_path):
    X, labels = problem_rows("two classes", 300, 40, noise=0.3)
    store = make_store(tmp_path / "s", X, labels)
    for solver in ("streamed-smo", "ocas"):
        options = {"checkpoint": tmp_path / solver, "solver": solver}
        whole = ooc_svm.train(store, **options)
        model = ooc_svm.train(store, prune=SHARE, resume=True, **options)
        assert model.report["passes"] == whole.report["passes"] + 1
        assert bits(model) == bits(ooc_svm.train(store, solver=solver, prune=SHARE))
        again = ooc_svm.train(store, resume=True, **options)  # Nothing pruned was saved
        assert bits(again) == bits(whole)


def test_rows_held_out_are_measured_by_what_is_left(tmp_path):
    matrix, labels, _ = make_rows()
    store = make_store(tmp_path / "s", matrix, labels)
    whole = ooc_svm.train(store, validation=0.3)
    model = ooc_svm.train(store, validation=0.3, prune=0.5)
    assert model.report["history"][-1]["validation"] == whole.report["history"][-1]["validation"]
    assert model.report["validation"] != whole.report["validation"]
    other = ooc_svm.train(matrix, labels, validation=str(store), prune=0.5)
    found = ooc_svm.evaluate(other, store, "accuracy")["accuracy"]
    assert other.report["validation"]["accuracy"] == found


def test_tune_compares_what_is_left(tmp_path):
    matrix, labels, _ = make_rows()
    store = make_store(tmp_path / "s", matrix, labels)
    model = ooc_svm.tune(store, C=[0.1, 1.0], folds=3, prune=0.3)
    for row in [*model.report["models"], *model.report["tuning"]["models"]]:
        assert row["n_nonzero_weights"] < row["unpruned"]["n_nonzero_weights"]
    whole = ooc_svm.tune(store, C=[0.1, 1.0], folds=3)
    means = [[each["mean"] for each in m.report["tuning"]["values"]] for m in (model, whole)]
    assert means[0] != means[1]


def test_a_signal_before_the_read_ends_the_run(tmp_path, monkeypatch):
    X, labels = problem_rows("two classes", 300, 40, noise=0.3)
    store = make_store(tmp_path / "s", X, labels)
    told = []

    def progress(event):
        if event.kind == "note" and "pruning" in event.message:
            told.append(event)
            monkeypatch.setattr(signals, "stop_requested", lambda: 15)

    with pytest.raises(Interrupted) as stopped:
        ooc_svm.train(store, prune=SHARE, progress=progress)
    assert told
    assert stopped.value.model.weights.all()


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, float("nan")])
def test_impossible_shares(share):
    with pytest.raises(UsageError, match=r"prune must be a share of the largest weight, above 0 and below 1"):
        ooc_svm.train(np.eye(2), [0, 1], prune=share)


def run(*arguments):
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_command(tmp_path):
    X, labels = problem_rows("three classes", 300, 40, noise=0.3)
    store = make_store(tmp_path / "s", X, labels)
    out = ["-o", tmp_path / "m", "--report", tmp_path / "r.json", "--quiet"]
    printed = run("train", store, "--prune", "0.3", "--scale", "maxabs", *out)
    report = json.loads((tmp_path / "r.json").read_text())
    left = sum(row["n_nonzero_weights"] for row in report["models"])
    assert re.search(
        rf"{left} of 1[012]\d weights are left, the others below 3e-1 of the largest; with", printed
    )
    assert "and one for the scale of the columns and one for the pruned models" in printed
    assert "no, because of pruning: relative gap" in printed
    assert "gap before" in printed
    assert f"{left} other than 0 in 3 models" in run("info", tmp_path / "m")
    assert "and one for what pruning leaves" in run("plan", store, "--prune", "0.3")

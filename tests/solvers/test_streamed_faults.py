"""Training with streamed SMO: killed and stopped runs, difficult data, options that do not go together."""

from __future__ import annotations

import math
import os
import signal

import numpy as np
import pytest
from helpers.killed_runs import large_effort, run_all
from helpers.losses import LOSSES, is_regression
from helpers.streamed_data import (
    EPS,
    FEW,
    KINDS,
    VALUES,
    assert_certified,
    make_rows,
    make_stores,
    make_weights,
    options_of,
    reference,
    value_of,
)
from helpers.train_data import answers, bits, make_anndata, make_store, store_rows
from scipy import sparse

from ooc_svm import train
from ooc_svm.errors import InputError, Interrupted, MemoryBudgetError, UsageError
from ooc_svm.options import TrainOptions
from ooc_svm.solvers.streamed_smo import effort
from ooc_svm.store import open_store
from ooc_svm.system import signals

pytestmark = pytest.mark.usefixtures("few_held")

BIASES = ["none", "penalized", "free"]


@pytest.fixture(scope="module")
def rows():
    return make_rows()


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    return make_stores(tmp_path_factory.mktemp("stores"))


def targets(rows, loss):
    return rows[2] if is_regression(loss) else rows[1]


@pytest.mark.fault
class TestStopped:
    @pytest.mark.parametrize(
        ("options", "blocks"), [*((options, "few") for options in KINDS), (KINDS[0], "many")]
    )
    def test_killed_after_each_pass_in_turn(
        self, fork_server, stores, tmp_path, options, blocks, monkeypatch
    ):
        store, large = stores[options["problem"], blocks], blocks == "many"
        if large:
            monkeypatch.setattr(effort, "EFFORTS", {0: large_effort()})
        whole = train(store, **options)
        numbers = [row["pass"] for row in whole.report["history"]]
        assert len(numbers) >= 3
        runs = []
        for number in numbers:
            run = {"data": str(store), "large": large}
            saved = options | {"checkpoint": str(tmp_path / str(number))}
            runs.append(run | {"options": saved | {"threads": 1}, "kill_pass": number})
            runs.append(run | {"options": saved | {"resume": True, "threads": 3, "memory": "1GB"}})
        ends = run_all(fork_server, runs, tmp_path)
        for end in ends[1::2]:
            assert end.answer["bits"] == bits(whole).hex()
            assert answers(end.answer["report"]) == answers(whole.report)

    def test_stopped_by_a_limit_and_gone_on(self, stores, tmp_path):
        store, options = stores["svc", "few"], {"bias": "free", "tol": 1e-5}
        saved = options | {"checkpoint": tmp_path / "c"}
        whole = train(store, **options)
        for number in range(1, whole.report["passes"] + 1):
            part = train(store, max_passes=number, resume=number > 1, threads=1 + number % 2, **saved)
            assert part.report["passes"] == number
        assert bits(part) == bits(whole)
        assert answers(part.report)[1:] == answers(whole.report)[1:]

    def test_sigterm_between_reads(self, stores, tmp_path):
        store, options = stores["svc", "few"], {"bias": "free", "tol": 1e-6, "C": (0.1, 1.0)}
        whole = train(store, **options)
        fired = []

        def progress(event):
            if event.kind == "pass" and event.passes == 2:
                fired.append(event.passes)
                os.kill(os.getpid(), signal.SIGTERM)

        with (
            signals.handle_signals(),
            pytest.raises(Interrupted, match=r"after 2 passes; go on with") as caught,
        ):
            train(store, checkpoint=tmp_path / "c", progress=progress, **options)
        assert fired == [2]
        assert caught.value.exit_code == 143
        best = caught.value.model
        assert not best.report["converged"]
        for row, end in zip(best.report["models"], whole.report["models"], strict=True):
            assert row["dual"] <= end["primal"]
            assert end["dual"] <= row["primal"]
        resumed = train(store, checkpoint=tmp_path / "c", resume=True, **options)
        assert bits(resumed) == bits(whole)


class TestLimits:
    @pytest.mark.parametrize("loss", LOSSES)
    @pytest.mark.parametrize("bias", ["none", "free"])
    @pytest.mark.parametrize("limit", [{"max_passes": 1}, {"max_passes": 3}, {"time_limit": 1e-9}])
    def test_the_best_model_so_far_with_its_gap(self, rows, loss, bias, limit):
        t = targets(rows, loss)
        model = train(rows[0], t, **limit, **options_of(loss, bias=bias, tol=1e-9, C=3.0))
        report, row = model.report, model.report["models"][0]
        assert report["passes"] == limit.get("max_passes", 1)
        assert report["stop_reason"] == ("max-passes" if "max_passes" in limit else "time-limit")
        assert not report["converged"]
        assert not row["converged"]
        problem = {"loss": loss, "bias": bias, "C": 3.0}
        own = value_of(rows[0], t, model.weights[0], model.bias[0], **problem)
        best = value_of(rows[0], t, *reference(rows[0], t, **problem), **problem)
        assert row["primal"] == pytest.approx(own, rel=1e-9)
        assert row["dual"] <= best * (1 + 1e-10)
        assert best <= row["primal"] * (1 + 1e-6)
        gap = row["primal"] - row["dual"] + row["rounding"]
        assert gap / (row["primal"] + row["rounding"]) <= row["relative_gap"] <= gap / row["primal"]
        assert row["rounding"] <= 1e-10 * row["primal"]
        assert row["relative_gap"] > 1e-9

    @pytest.mark.parametrize("loss", LOSSES)
    @pytest.mark.parametrize("bias", BIASES)
    def test_history_only_improves(self, rows, loss, bias):
        report = train(rows[0], targets(rows, loss), **options_of(loss, bias=bias, tol=1e-8)).report
        names = "primal", "dual", "relative_gap"
        primal, dual, gap = (np.array([row[name] for row in report["history"]]) for name in names)
        rounding = report["models"][0]["rounding"]
        assert rounding <= 1e-10 * primal[-1]
        assert (np.diff(primal) <= 0).all()
        # The ends of what rounding leaves open never go back, the values by no more than rounding.
        assert (np.diff(dual) >= -rounding).all()
        assert (np.diff(gap) <= 0).all()
        assert (dual <= primal * (1 + 1e-14)).all()


@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("loss", LOSSES)
class TestDifficultData:
    def test_columns_of_zeros_and_rows_without_features(self, rows, loss, bias):
        dense = rows[0].toarray()
        dense[:, [0, 13, 29]] = 0.0
        dense[::3] = 0.0
        matrix, t = sparse.csr_array(dense), targets(rows, loss)
        model = train(matrix, t, **options_of(loss, bias=bias))
        assert_certified(model, matrix, t, tol=1e-3, loss=loss, bias=bias)
        assert (model.weights[0, [0, 13, 29]] == 0.0).all()

    def test_nothing_but_rows_without_features(self, loss, bias):
        t = np.array([1.0, 1.0, 1.0, -1.0])
        problem = {"loss": loss, "bias": bias, "C": 2.0}
        for shape in ((4, 3), (4, 0)):
            nothing, zero = np.zeros(shape), np.zeros(shape[1])
            model = train(nothing, t, **options_of(**problem, tol=1e-6))
            assert model.report["converged"]
            assert (model.weights == 0.0).all()
            own = value_of(nothing, t, zero, model.bias[0], **problem)
            points = [0.0] if bias == "none" else np.linspace(-2, 2, 1001)
            assert own <= min(value_of(nothing, t, zero, b, **problem) for b in points) * (1 + 2e-6)
            assert model.report["models"][0]["primal"] == pytest.approx(own, rel=1e-12)

    def test_duplicated_rows_count_as_weights(self, rows, loss, bias):
        matrix, t = rows[0][:250], targets(rows, loss)[:250]
        many = np.tile(np.arange(250), 6)
        model = train(matrix[many], t[many], **options_of(loss, bias=bias, C=0.5))
        assert_certified(model, matrix, t, tol=1e-3, loss=loss, bias=bias, C=0.5, omega=np.full(250, 6.0))

    def test_a_tiny_c_puts_all_rows_at_the_bound(self, rows, loss, bias):
        t, problem = targets(rows, loss), {"loss": loss, "bias": bias, "C": 1e-8}
        model = train(rows[0], t, **options_of(**problem, max_passes=60))
        row = model.report["models"][0]
        assert row["converged"]
        own = value_of(rows[0], t, model.weights[0], model.bias[0], **problem)
        assert row["primal"] == pytest.approx(own, rel=1e-9)
        # w can do next to nothing.
        zero = value_of(rows[0], t, np.zeros(30), model.bias[0], **problem)
        assert row["primal"] == pytest.approx(zero, rel=1e-2)
        grid = np.linspace(-10, 10, 2001) if bias == "free" else [0.0]
        best = min(value_of(rows[0], t, np.zeros(30), b, **problem) for b in grid)
        assert row["dual"] <= best <= row["primal"] * 1.01

    def test_a_huge_c(self, rows, loss, bias):
        t, problem = targets(rows, loss), {"loss": loss, "bias": bias, "C": 1e8}
        model = train(rows[0], t, **options_of(**problem, max_passes=4))
        row = model.report["models"][0]
        own = value_of(rows[0], t, model.weights[0], model.bias[0], **problem)
        assert row["primal"] == pytest.approx(own, rel=1e-9)
        assert row["primal"] <= value_of(rows[0], t, np.zeros(30), 0.0, **problem)
        # The optimum of a smaller C is a point like any other.
        point = reference(rows[0], t, loss=loss, bias=bias, C=1.0)
        assert 0.0 <= row["dual"] <= value_of(rows[0], t, *point, **problem)


@pytest.mark.parametrize("bias", BIASES)
def test_one_class(rows, bias):
    with pytest.raises(InputError, match=r"at least two classes, found \{1\}"):
        train(rows[0], np.ones(1300), bias=bias)


def test_memory_for_less_than_a_block(tmp_path):
    matrix, labels = store_rows(1000, 4000, density=0.5)
    cut = {"chunk_elements": 10**6, "block_rows": 1000, "block_chunks": 9, "batches": (1000,)}
    path = make_store(tmp_path / "s", matrix, labels, **cut)
    largest = max(span.nbytes for span in open_store(path).blocks)
    assert largest > 20 * 10**6
    with pytest.raises(MemoryBudgetError) as caught:
        train(path, memory=largest // 2, threads=1)
    message = str(caught.value)
    assert caught.value.exit_code == 6
    assert "training needs" in message
    for name in ("blocks being read", "weights", "lanes", "resident rows", "row vectors"):
        assert name in message
    assert "allow more (memory)" in message


COMBINATIONS = [
    ({"loss": "epsilon-insensitive"}, "problem 'svc' takes the loss hinge or squared-hinge"),
    ({"loss": "squared-epsilon-insensitive"}, "problem 'svc' takes the loss"),
    ({"problem": "svr", "loss": "hinge"}, "problem 'svr' takes the loss epsilon-insensitive or squared-eps"),
    ({"problem": "svr", "loss": "squared-hinge"}, "problem 'svr' takes the loss"),
    ({"problem": "svr", "positive": 1}, "positive is for the problems 'svc', 'nu-svc' and 'roc-area'"),
    (
        {"problem": "svr", "class_weight": "balanced"},
        "class_weight is for the problems 'svc' and 'nu-svc', not 'svr'",
    ),
    (
        {"problem": "svr", "class_weight": {1: 2.0}},
        "class_weight is for the problems 'svc' and 'nu-svc', not 'svr'",
    ),
    ({"epsilon": 0.1}, "epsilon is for the losses 'epsilon-insensitive' and 'squared-epsilon-insensitive'"),
    ({"problem": "svr", "epsilon": -0.1}, "not negative, not -0.1"),
    ({"problem": "svr", "epsilon": math.nan}, "epsilon .* nan"),
    ({"problem": "svr", "epsilon": math.inf}, "epsilon .* inf"),
    ({"solver": "streamed-smo", "cut_groups": 2}, "cut_groups is for the solvers"),
    ({"solver": "ocas", "resident": 0.1}, "resident is for the solver 'streamed-smo'"),
    ({"solver": "cutting-plane", "resident": 0.1}, "resident is for the solver 'streamed-smo'"),
    ({"cut_groups": 2, "resident": 0.1}, "resident is for the solver 'streamed-smo'"),
    *(
        (chosen | {"loss": "squared-hinge"}, "loss 'squared-hinge' is for the solvers 'streamed-smo', ")
        for chosen in ({"solver": "ocas"}, {"solver": "cutting-plane"}, {"cut_groups": 2})
    ),
]


@pytest.mark.parametrize(("options", "message"), COMBINATIONS)
def test_options_that_do_not_go_together(rows, options, message):
    with pytest.raises(UsageError, match=message):
        train(*rows[:2], **options)


def test_what_options_stand_for():
    assert TrainOptions().resolved_solver == "streamed-smo"
    assert TrainOptions(cut_groups=1).resolved_solver == "ocas"
    assert TrainOptions(problem="svr").resolved_loss == "epsilon-insensitive"
    assert TrainOptions(problem="svr").resolved_epsilon == 0.1
    assert TrainOptions(problem="svr", epsilon=0.0).resolved_epsilon == 0.0
    assert TrainOptions().resolved_epsilon == 0.0


class TestRegression:
    def test_values_that_are_missing(self, rows, tmp_path):
        values = rows[2].copy()
        values[123] = np.nan
        foreign = make_anndata(tmp_path / "a", rows[0], age=values)
        with pytest.raises(InputError, match=r"no label in obs/age, the first is row 123;"):
            train(foreign, label="age", problem="svr")
        with pytest.raises(InputError, match="labels are missing"):
            train(rows[0], values, problem="svr")

    @pytest.mark.parametrize("bias", ["none", "free"])
    def test_more_than_1000_different_values(self, stores, rows, bias):
        store = open_store(stores["svr", "few"])
        assert store.labels.counts is None
        assert len(np.unique(rows[2])) > 1000
        model = train(store, **options_of(VALUES[0], bias=bias))
        assert (model.positive, model.negative, model.classes) == ([], None, ())
        assert model.report["models"][0]["label"] is None
        problem = {"loss": VALUES[0], "bias": bias, "omega": make_weights()}
        assert_certified(model, rows[0], rows[2], tol=1e-3, **problem)

    @pytest.mark.parametrize("loss", VALUES)
    def test_whole_numbers_are_values(self, rows, tmp_path, loss):
        values = np.round(2.0 * rows[2])
        path = make_store(tmp_path / "s", rows[0], values, **FEW)
        assert open_store(path).labels.counts
        model = train(path, **options_of(loss, bias="penalized"))
        assert model.weights.shape == (1, 30)
        assert_certified(model, rows[0], values, tol=1e-3, loss=loss, bias="penalized")

    @pytest.mark.parametrize("constant", [0.0, 7.5])
    @pytest.mark.parametrize("loss", VALUES)
    @pytest.mark.parametrize("bias", BIASES)
    def test_a_constant(self, rows, loss, constant, bias):
        values = np.full(1300, constant)
        model = train(rows[0], values, **options_of(loss, bias=bias))
        row = model.report["models"][0]
        assert row["converged"]
        own = value_of(rows[0], values, model.weights[0], model.bias[0], loss=loss, bias=bias)
        assert own == pytest.approx(row["primal"], rel=1e-9, abs=1e-12)
        if constant == 0.0:
            assert row["primal"] == row["dual"] == 0.0
        elif bias == "free":
            # A bias alone has no loss.
            assert row["primal"] == pytest.approx(0.0, abs=1e-9)
            assert abs(model.bias[0] - constant) <= EPS + 1e-9
        else:
            assert_certified(model, rows[0], values, tol=1e-3, loss=loss, bias=bias)

    @pytest.mark.parametrize("bias", BIASES)
    @pytest.mark.parametrize("loss", VALUES)
    def test_no_tube(self, rows, loss, bias):
        model = train(rows[0], rows[2], **(options_of(loss, bias=bias) | {"epsilon": 0.0}))
        assert_certified(model, rows[0], rows[2], tol=1e-3, loss=loss, bias=bias, eps=0.0)

    @pytest.mark.parametrize("bias", BIASES)
    def test_a_tube_wider_than_all_values(self, rows, bias):
        values = rows[2] - rows[2].mean()
        wide = 1.01 * np.abs(values).max()
        report = train(rows[0], values, problem="svr", epsilon=wide, bias=bias).report
        assert report["converged"]
        assert report["models"][0]["primal"] == report["models"][0]["dual"] == 0.0

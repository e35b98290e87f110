"""Training of ordinal regression, ROC area and ranking as a whole."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from helpers.pairs_data import all_pairs, group_numbers, optimum, pair_loss, pair_weights, ranked_rows
from helpers.train_data import answers, bits, make_anndata, make_store
from sklearn.metrics import roc_auc_score
from typer.testing import CliRunner

import ooc_svm
from ooc_svm.cli.app import app
from ooc_svm.errors import DamageError, InputError, Interrupted, UsageError
from ooc_svm.training import engines

PROBLEMS = ["roc-area", "ordinal", "ranking"]


def rows_of(problem, seed=0):
    matrix, labels = ranked_rows(n_ranks=2 if problem == "roc-area" else 4, seed=seed)
    return matrix, labels, group_numbers(len(labels), seed=seed)


@pytest.fixture(scope="module", params=PROBLEMS)
def case(request, tmp_path_factory):
    """Problem, rows and a store of them in a dozen blocks, which cut through groups."""
    matrix, labels, qid = rows_of(request.param)
    path = make_store(tmp_path_factory.mktemp("pairs") / "s", matrix, labels, qids=qid)
    return request.param, matrix, labels, qid if request.param == "ranking" else None, path


@pytest.mark.parametrize("solver", ["ocas", "cutting-plane"])
def test_the_certificate_holds_for_all_pairs(case, solver):
    problem, matrix, labels, qid, path = case
    model = ooc_svm.train(path, problem=problem, solver=solver, C=[0.3, 30.0], tol=1e-4)
    pairs = all_pairs(labels, qid)
    omega = np.ones(len(pairs[0]))
    assert model.report["converged"]
    assert (model.problem, model.loss, model.bias.tolist()) == (problem, "hinge", [0.0, 0.0])
    for k, row in enumerate(model.report["models"]):

        def primal(w, C=row["C"]):
            return 0.5 * w @ w + C * pair_loss(matrix @ w, pairs, omega)

        best = primal(optimum(matrix, pairs, omega, row["C"]))
        assert primal(model.weights[k]) == pytest.approx(row["primal"], rel=1e-10)
        assert row["dual"] <= best * (1 + 1e-7)
        assert best * (1 - 1e-7) <= row["primal"] <= best + row["gap"] + 1e-7 * best


def test_both_models_share_their_reads(case):
    problem, _, _, _, path = case
    together = ooc_svm.train(path, problem=problem, C=[0.3, 30.0]).report
    assert together["passes"] == max(row["passes"] for row in together["models"])


def test_the_same_bits_in_and_out_of_core_and_on_any_number_of_threads(case, monkeypatch):
    problem, _, _, _, path = case
    expected = ooc_svm.train(path, problem=problem, cut_groups=2, threads=1)
    for threads in (2, 3):
        found = ooc_svm.train(path, problem=problem, cut_groups=2, threads=threads)
        assert bits(found) == bits(expected)
        assert answers(found.report) == answers(expected.report)
    divide = engines.divide

    def on_disk(*arguments, **options):
        budget = divide(*arguments, **options)
        return replace(budget, row_vector_bytes=0, sorting_bytes=1)

    monkeypatch.setattr(engines, "divide", on_disk)
    found = ooc_svm.train(path, problem=problem, cut_groups=2)
    assert bits(found) == bits(expected)
    assert answers(found.report) == answers(expected.report)


def test_a_matrix_gives_what_its_store_gives(case):
    problem, matrix, labels, qid, path = case
    expected = ooc_svm.train(path, problem=problem).report["models"][0]
    found = ooc_svm.train(matrix, labels, qid=qid, problem=problem).report["models"][0]
    assert found["primal"] == pytest.approx(expected["primal"], rel=1e-3)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_weights(problem):
    matrix, labels, qid = rows_of(problem, seed=3)
    weights = np.random.default_rng(3).integers(0, 3, len(labels)) * 0.5
    groups = qid if problem == "ranking" else None
    weights = weights[qid] if problem == "ranking" else weights
    model = ooc_svm.train(
        matrix, labels, sample_weight=weights, qid=groups, problem=problem, C=10.0, tol=1e-5
    )
    pairs = all_pairs(labels, groups)
    omega = pair_weights(pairs, weights, groups)
    w, row = model.weights[0], model.report["models"][0]
    assert 0.5 * w @ w + 10.0 * pair_loss(matrix @ w, pairs, omega) == pytest.approx(row["primal"], rel=1e-10)
    best = optimum(matrix, pairs, omega, 10.0)
    value = 0.5 * best @ best + 10.0 * pair_loss(matrix @ best, pairs, omega)
    assert row["primal"] == pytest.approx(value, rel=2e-5)


def test_labels_of_any_size_and_number_are_ranks():
    matrix, _ = ranked_rows(n_rows=1200, seed=4)
    labels = np.random.default_rng(4).normal(size=1200) * 1e3 + matrix @ np.ones(matrix.shape[1])
    labels[:7] = labels[7:14]
    values, ranks = np.unique(labels, return_inverse=True)
    assert len(values) > 1000
    by_value = ooc_svm.train(matrix, labels, problem="ordinal", C=10.0)
    by_rank = ooc_svm.train(matrix, ranks, problem="ordinal", C=10.0)
    assert bits(by_value) == bits(by_rank)


def test_more_labels_than_are_counted(tmp_path, monkeypatch):
    matrix, _ = ranked_rows(n_rows=1200, seed=4)
    labels = np.random.default_rng(4).permutation(1200) // 1.0 - 77.5
    path = make_store(tmp_path / "s", matrix, labels, qids=group_numbers(1200))
    assert ooc_svm.open_store(path).labels.counts is None
    expected = {
        problem: ooc_svm.train(path, problem=problem, max_passes=4) for problem in ("ordinal", "ranking")
    }
    monkeypatch.setattr("ooc_svm.training.opened.open_store", lambda path, **options: counted(path))
    for problem, model in expected.items():
        assert bits(ooc_svm.train(path, problem=problem, max_passes=4)) == bits(model)


def counted(path):
    """A store that knows all its labels."""
    store = ooc_svm.open_store(path)
    values, rows = np.unique(store.read_labels(0, store.n_rows), return_counts=True)
    counts = dict(zip(values.tolist(), rows.tolist(), strict=True))
    store.labels = replace(store.labels, counts=counts)
    return store


def test_the_higher_rank_by_name_and_number(tmp_path):
    matrix, ranks = ranked_rows(n_ranks=4, seed=5)
    expected = ooc_svm.train(matrix, ranks >= 2, problem="roc-area")
    assert bits(ooc_svm.train(matrix, ranks, problem="roc-area", positive=[2, 3])) == bits(expected)
    assert bits(ooc_svm.train(matrix, ranks, problem="roc-area", positive=[2, 3, 2])) == bits(expected)
    names = np.array(["a", "b", "c", "d"])[ranks.astype(int)]
    path = make_anndata(tmp_path / "s", matrix, label=names)
    named = ooc_svm.train(path, problem="roc-area", positive=["c", "d"])
    assert named.report["models"][0]["primal"] == pytest.approx(
        expected.report["models"][0]["primal"], rel=1e-3
    )
    assert roc_auc_score(ranks >= 2, matrix @ expected.weights[0]) > 0.8


class TestResume:
    @pytest.mark.parametrize("solver", ["ocas", "cutting-plane"])
    def test_has_the_bits_of_a_run_that_was_never_stopped(self, case, tmp_path, solver):
        problem, _, _, _, path = case
        options = {"problem": problem, "solver": solver, "C": 20.0, "cut_groups": 2}
        expected = ooc_svm.train(path, **options)
        for passes in range(1, expected.report["passes"], 3):
            folder = tmp_path / str(passes)
            ooc_svm.train(path, **options, checkpoint=folder, max_passes=passes)
            resumed = ooc_svm.train(path, **options, checkpoint=folder, resume=True)
            assert bits(resumed) == bits(expected)
            assert answers(resumed.report) == answers(expected.report)

    def test_saves_scores_alone(self, case, tmp_path):
        problem, _, labels, _, path = case
        ooc_svm.train(path, problem=problem, cut_groups=4, checkpoint=tmp_path, max_passes=3)
        sizes = [file.stat().st_size for file in tmp_path.glob("*.vectors")]
        assert sizes
        assert set(sizes) <= {0, 16 * len(labels)}


class TestRefused:
    def refused(self, error, match, matrix, labels, **options):
        with pytest.raises(error, match=match):
            ooc_svm.train(matrix, labels, **options)

    @pytest.mark.parametrize("problem", PROBLEMS)
    def test_one_rank(self, problem):
        matrix, labels, qid = rows_of(problem)
        match = rf"problem='{problem}' needs rows of at least two ranks, found \{{1\}}"
        self.refused(InputError, match, matrix, np.ones(len(labels)), problem=problem, qid=qid)

    def test_no_pairs_in_any_group(self):
        matrix, labels, _ = rows_of("ranking")
        match = "no two rows that can be compared have different labels"
        self.refused(InputError, match, matrix, labels, problem="ranking", qid=np.arange(len(labels)))
        weights = np.where(labels == 1, 1.0, 0.0)
        self.refused(InputError, match, matrix, labels, problem="ordinal", sample_weight=weights)

    def test_groups_of_one_row_among_others_cost_nothing(self):
        matrix, labels, qid = rows_of("ranking")
        alone = np.append(qid, [1000, 1001])
        rows = np.append(np.arange(len(labels)), [0, 1])
        model = ooc_svm.train(matrix[rows], labels[rows], qid=alone, problem="ranking")
        expected = ooc_svm.train(matrix, labels, qid=qid, problem="ranking")
        assert model.report["models"][0]["primal"] == pytest.approx(
            expected.report["models"][0]["primal"], rel=1e-3
        )

    def test_no_groups(self, tmp_path):
        matrix, labels, _ = rows_of("ranking")
        match = r"problem='ranking' compares rows of equal qid, and the data have none; write qid:N"
        self.refused(InputError, match, matrix, labels, problem="ranking")

    def test_groups_in_several_places(self, tmp_path):
        matrix, labels, qid = rows_of("ranking")
        qid = np.append(qid[:-1], qid[0])
        match = rf"rows of the group qid:{qid[0]} are in several places.*sort the rows by qid"
        self.refused(InputError, match, matrix, labels, problem="ranking", qid=qid)
        path = make_store(tmp_path / "s", matrix, labels, qids=qid)
        self.refused(InputError, match, path, None, problem="ranking")
        with pytest.raises(InputError, match=rf"^fold 2 of 2: rows of the group qid:{qid[0]} are in several"):
            ooc_svm.tune(path, problem="ordinal", folds=2)

    def test_weights_that_differ_in_a_group(self):
        matrix, labels, qid = rows_of("ranking")
        place = int(np.flatnonzero(qid[1:] == qid[:-1])[3]) + 1
        weights = np.ones(len(labels))
        weights[place:] = np.where(qid[place:] == qid[place], 2.5, 1.0)
        match = rf"row {place} has the weight 2.5, the row before it in its group has 1.0"
        self.refused(InputError, match, matrix, labels, problem="ranking", qid=qid, sample_weight=weights)

    def test_ranks_of_roc_area(self):
        matrix, labels = ranked_rows(n_ranks=3)
        problem = {"problem": "roc-area"}
        self.refused(InputError, "compares two ranks, and there are 3 labels", matrix, labels, **problem)
        self.refused(InputError, "no row has the label 7", matrix, labels, positive=7, **problem)
        self.refused(InputError, "all labels are named", matrix, labels, positive=[0, 1, 2], **problem)

    @pytest.mark.parametrize("problem", ["ordinal", "ranking"])
    def test_names_have_no_order(self, tmp_path, problem):
        matrix, labels, qid = rows_of(problem)
        names = np.array(["low", "mid", "high", "top"])[labels.astype(int)]
        path = make_anndata(tmp_path / "s", matrix, label=names, qid=qid)
        self.refused(InputError, "needs labels in an order, and these are names", path, None, problem=problem)

    @pytest.mark.parametrize("problem", ["ordinal", "roc-area"])
    def test_labels_that_are_no_numbers(self, tmp_path, problem):
        matrix, labels, _ = rows_of(problem)
        labels[5] = np.nan
        self.refused(InputError, "1 of 120 labels are missing", matrix, labels, problem=problem)
        path = make_anndata(tmp_path / "s", matrix, label=labels)
        self.refused((InputError, DamageError), "row 5", path, None, problem=problem)

    @pytest.mark.parametrize(
        ("options", "match"),
        [
            ({"bias": "free"}, "problem 'ordinal' has no bias, it would cancel in every pair"),
            ({"bias": "penalized"}, "problem 'ordinal' has no bias"),
            (
                {"class_weight": "balanced"},
                "class_weight is for the problems 'svc' and 'nu-svc', not 'ordinal'",
            ),
            (
                {"positive": (1,)},
                "positive is for the problems 'svc', 'nu-svc' and 'roc-area', not 'ordinal'",
            ),
            ({"solver": "streamed-smo"}, "'ordinal' is for the solvers 'ocas' and 'cutting-plane'"),
            ({"loss": "squared-hinge"}, "problem 'ordinal' takes the loss hinge"),
            ({"epsilon": 0.1}, "epsilon is for the losses 'epsilon-insensitive' and"),
            ({"resident": 0.1}, "resident is for the solver 'streamed-smo'"),
        ],
    )
    def test_options(self, options, match):
        matrix, labels = ranked_rows()
        self.refused(UsageError, match, matrix, labels, problem="ordinal", **options)

    def test_export_to_liblinear(self, tmp_path):
        matrix, labels = ranked_rows()
        model = ooc_svm.train(matrix, labels, problem="ordinal", max_passes=2)
        with pytest.raises(UsageError, match="has no models of problem 'ordinal'; export to svmlight"):
            ooc_svm.export_model(model, tmp_path / "m", to="liblinear")
        ooc_svm.export_model(model, tmp_path / "m", to="svmlight")


def test_the_plan_counts_sorting_and_coefficients():
    matrix, labels = ranked_rows()
    plan = ooc_svm.plan(matrix, labels, problem="ordinal", cut_groups=8)
    items = {item.name: item for item in plan.items}
    assert items["sorting"].nbytes >= 120 * 100
    assert items["row vectors"].nbytes == 120 * (4 + 16 + 4 * 8)


def test_the_best_model_is_left_by_a_signal(case, monkeypatch):
    problem, _, _, _, path = case
    monkeypatch.setattr("ooc_svm.system.signals.stop_requested", iter([None, None, 15, 15]).__next__)
    with pytest.raises(Interrupted) as stopped:
        ooc_svm.train(path, problem=problem, C=100.0)
    assert stopped.value.model.report["stop_reason"] == "signal"


def test_the_commands(case, tmp_path):
    problem, matrix, labels, _, path = case

    def run(*arguments):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert result.exit_code == 0, result.stderr
        return result.stdout

    model = tmp_path / "model"
    assert "certified      yes" in run("train", path, "-o", model, "--problem", problem, "--C", "10")
    assert "sorting" in run("plan", path, "--problem", problem)
    assert problem in run("info", model)
    scores = np.loadtxt(run("predict", model, path).splitlines())
    np.testing.assert_allclose(scores, matrix @ ooc_svm.load_model(model).weights[0], rtol=1e-10, atol=1e-13)
    found = json.loads(run("evaluate", model, path, "--json", "-"))
    assert 0.0 < found["swapped-pairs"] < 0.3
    if problem == "roc-area":
        assert found["auc"] == pytest.approx(roc_auc_score(labels, scores))

"""Each hint where it applies, and where it does not."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.train_data import make_store
from scipy import sparse
from typer.testing import CliRunner

from ooc_svm import HintWarning, OocSVC, tune
from ooc_svm.cli.app import app
from ooc_svm.solvers.certificate import Certificate
from ooc_svm.training.division import in_batches
from ooc_svm.training.hints import of_rounding
from ooc_svm.training.train import train

N_ROWS, N_FEATURES = 1200, 8


@pytest.fixture(scope="module")
def matrix():
    return np.random.default_rng(0).normal(size=(N_ROWS, N_FEATURES))


@pytest.fixture(scope="module")
def scores(matrix):
    return matrix @ np.arange(1.0, N_FEATURES + 1) / 5.0


def hints(*data, **options) -> dict[str, str]:
    report = train(*data, **options).report
    return {hint["code"]: hint["message"] for hint in report["hints"]}


def signs(scores, share):
    """Labels of which such a share is positive."""
    return np.where(scores > np.quantile(scores, 1 - share), 1.0, -1.0)


class TestImbalance:
    def test_it_is_told_from_nine_to_one_on(self, matrix, scores):
        found = hints(matrix, signs(scores, 0.1))["imbalance"]
        assert "1080 rows and the smallest 120" in found
        assert "class_weight='balanced'" in found
        assert "problem='roc-area'" in found
        assert "imbalance" in hints(matrix, signs(scores, 0.92))

    def test_it_is_not_told_of_less(self, matrix, scores):
        assert "imbalance" not in hints(matrix, signs(scores, 0.12))

    def test_nor_where_it_was_seen_to(self, matrix, scores):
        labels = signs(scores, 0.05)
        assert "imbalance" not in hints(matrix, labels, class_weight="balanced")
        assert "imbalance" not in hints(matrix, labels, problem="roc-area")

    def test_of_several_classes_it_is_their_sizes_that_count(self, matrix, scores):
        even, uneven = np.digitize(scores, np.quantile(scores, [0.3, 0.6])), (scores > 0) * 1.0
        uneven[:20] = 2.0
        assert "imbalance" not in hints(matrix, even)
        found = hints(matrix, uneven)["imbalance"]
        assert "the smallest 20" in found
        assert "roc-area" not in found

    @pytest.mark.parametrize("batches", [1, 3])
    @pytest.mark.parametrize("costs", [[1.0], [0.1, 1.0, 10.0]])
    def test_so_with_several_costs_and_classes_apart(self, matrix, costs, batches, monkeypatch):
        monkeypatch.setattr(
            "ooc_svm.training.execute.batches", lambda prepared: in_batches(prepared, batches * len(costs))
        )
        options = {"C": costs, "max_passes": 1, "progress": lambda _: None}
        few_of_last = np.repeat([0.0, 1.0, 2.0], [590, 590, 20])
        found = hints(matrix, few_of_last, **options)["imbalance"]
        assert "590 rows and the smallest 20" in found
        assert "roc-area" not in found
        few_of_first = np.repeat([0.0, 1.0, 2.0], [100, 550, 550])
        assert "imbalance" not in hints(matrix, few_of_first, **options)


class TestUnitOfValues:
    def test_values_far_from_the_unit_of_c(self, matrix, scores):
        found = hints(matrix, 1e5 * scores, problem="svr")["unit-of-values"]
        assert "C=300000.0" in found
        assert "C = 1" in found

    def test_values_that_epsilon_swallows(self, matrix, scores):
        assert "epsilon=" in hints(matrix, 0.01 * scores, problem="svr")["unit-of-values"]

    @pytest.mark.parametrize(
        ("factor", "options"),
        [
            (1.0, {}),
            (1e5, {"C": 3e5}),
            (1e5, {"loss": "squared-epsilon-insensitive"}),
            (0.01, {"epsilon": 0.001}),
        ],
    )
    def test_values_of_that_unit(self, matrix, scores, factor, options):
        assert "unit-of-values" not in hints(matrix, factor * scores, problem="svr", **options)


class TestColumns:
    def test_columns_of_different_sizes(self, matrix, scores):
        sizes, notes = np.repeat([1.0, 200.0], N_FEATURES // 2), []
        for data, options, expected in (
            (matrix * sizes, {}, True),
            (matrix * sizes, {"scale": "maxabs"}, False),
            (matrix, {}, False),
        ):
            notes.clear()
            model = train(
                data,
                signs(scores, 0.5),
                C=0.01,
                max_passes=2,
                progress=lambda event: notes.append(event.message),
                **options,
            )
            told = [hint for hint in model.report["hints"] if hint["code"] == "column-sizes"]
            assert bool(told) == expected
            assert any("columns differ in size" in note for note in notes) == expected

    def test_features_on_one_side_without_a_bias(self, matrix, scores):
        positive, labels = np.abs(matrix) + 3.0, signs(-np.abs(matrix).sum(axis=1), 0.4)
        assert "bias='penalized'" in hints(positive, labels, bias="none")["no-bias"]
        for data, options in (
            (positive, {"bias": "penalized"}),
            (positive, {"bias": "free"}),
            (matrix, {"bias": "none"}),
            (sparse.csr_array(sparse.hstack([positive, sparse.csr_array((N_ROWS, 100))])), {"bias": "none"}),
        ):
            assert "no-bias" not in hints(data, labels, **options)
        # A model that is good misses none.
        assert "no-bias" not in hints(np.abs(matrix), signs(np.abs(matrix) @ np.sign(scores[:8]), 0.5))


class TestSortedLabels:
    @pytest.mark.usefixtures("few_held")
    def test_labels_in_runs(self, matrix, scores, tmp_path):
        labels = signs(scores, 0.5)
        order = np.argsort(labels, kind="stable")
        rows = sparse.csr_matrix(matrix)
        ordered = make_store(tmp_path / "ordered", rows[order], labels[order])
        mixed = make_store(tmp_path / "mixed", rows, labels)
        assert "in 2 runs" in hints(ordered, resident=0.2)["sorted-labels"]
        assert "sorted-labels" not in hints(mixed, resident=0.2)
        assert "sorted-labels" not in hints(ordered, resident=1.0)
        assert "sorted-labels" not in hints(ordered, solver="ocas")


class TestUselessModel:
    def test_a_certified_model_that_predicts_nothing(self, matrix):
        noise = np.random.default_rng(1)
        assert "balanced-accuracy" in hints(matrix, noise.choice([-1.0, 1.0], N_ROWS))["useless-model"]
        assert "r2" in hints(matrix, noise.normal(size=N_ROWS), problem="svr")["useless-model"]
        assert "auc" in hints(matrix, noise.choice([-1, 1], N_ROWS), problem="roc-area")["useless-model"]
        several = hints(matrix, noise.choice([0, 1, 2, 3, 4], N_ROWS))["useless-model"]
        assert "balanced-accuracy" in several

    def test_one_that_predicts(self, matrix, scores):
        assert "useless-model" not in hints(matrix, signs(scores, 0.5))
        assert "useless-model" not in hints(matrix, scores, problem="svr")

    def test_one_that_is_not_certified(self, matrix):
        labels = np.random.default_rng(1).choice([-1.0, 1.0], N_ROWS)
        assert "useless-model" not in hints(matrix, labels, solver="ocas", max_passes=1)


def test_the_command_tells_them(matrix, scores, tmp_path):
    store = make_store(tmp_path / "s.zarr", sparse.csr_matrix(matrix), signs(scores, 0.05))
    words = ["train", str(store), "-o", str(tmp_path / "m")]
    found = CliRunner().invoke(app, [*words, "--quiet"])
    (line,) = found.stderr.splitlines()
    assert line.startswith("ooc-svm: hint: the largest class has 1140 rows")
    assert "--class-weight balanced" in line
    assert "--problem roc-area" in line
    found = CliRunner().invoke(app, [*words, "--quiet", "--class-weight", "balanced"])
    assert found.stderr == ""


def test_each_is_told_once(matrix, scores, tmp_path):
    sizes = np.repeat([1.0, 200.0], N_FEATURES // 2)
    store = make_store(tmp_path / "s.zarr", sparse.csr_matrix(matrix * sizes), signs(scores, 0.05))
    words = ["train", str(store), "-o", str(tmp_path / "m"), "--C", "0.01", "--max-passes", "2"]
    shown = CliRunner().invoke(app, words).stderr
    silent = CliRunner().invoke(app, [*words, "--quiet"]).stderr
    for output in (shown, silent):
        for said in ("columns differ in size", "class has 1140 rows"):
            assert output.count(said) == 1


class TestWarnings:
    def test_the_library_warns_in_the_name_of_its_caller(self, matrix, scores):
        labels = signs(scores, 0.05)
        for run in (train, tune):
            with pytest.warns(HintWarning, match="the largest class has 1140 rows") as found:
                run(matrix, labels, C=0.01)
            assert {each.filename for each in found} == {__file__}

    def test_who_asked_for_progress_is_told_there(self, matrix, scores, recwarn):
        told = []
        train(matrix, signs(scores, 0.05), progress=told.append)
        assert [event.kind for event in told].count("hint") == 1
        assert not recwarn.list

    def test_the_estimators_warn(self, matrix, scores):
        with pytest.warns(HintWarning, match="the largest class has 1140 rows"):
            OocSVC(C=0.01).fit(matrix, signs(scores, 0.05))


@pytest.mark.parametrize(
    ("labels", "positive", "called"),
    [
        (["01", "1", "-1", "egg"], ["-1", "egg"], "01"),
        ([-1, 0, 1, 2], [1], "-1"),
        (["-1", "spam", "egg"], ["spam"], "-1"),
        ([0, 1, 2], [1], None),
        ([-1, 1], [1], None),
    ],
)
def test_the_label_that_stands_for_others_as_well(labels, positive, called):
    X = np.random.default_rng(0).standard_normal((60, 5))
    found = hints(X, np.resize(labels, 60), positive=positive, progress=lambda _: None)
    assert ("label-of-others" in found) == (called is not None)
    if called is not None:
        assert found["label-of-others"].startswith(f"{called} in predictions stands for all labels that are")


@pytest.mark.parametrize(
    ("reason", "rounding", "codes"),
    [
        ("no-progress", 0.0, ["no-progress"]),
        ("no-progress", 0.5, ["rounding"]),
        ("max-passes", 0.0, []),
        ("max-passes", 0.5, ["rounding"]),
        ("certified", 0.5, []),
    ],
)
def test_a_gap_that_is_not_certified_after_all(reason, rounding, codes):
    own = Certificate(primal=2.0, primal_rounding=rounding, dual=1.5, stop_reason=reason)
    found = list(of_rounding([own], 1e-3))
    assert [hint.code for hint in found] == codes
    if codes == ["no-progress"]:
        assert (
            "P and D no longer moved at a relative gap of 0.25: the values are too large" in found[0].message
        )


@pytest.mark.parametrize("bias", ["none", "free"])
def test_a_class_with_one_row_is_trained_and_said_to_have_one(bias):
    X = np.random.default_rng(0).standard_normal((60, 5))
    labels = np.repeat([1, 2], 30)
    labels[7] = 3
    with pytest.warns(HintWarning, match="only one row has the label 3: nothing tells"):
        model = train(X, labels, bias=bias)
    assert model.report["converged"]
    assert [row["rows"] for row in model.report["models"]] == [29, 30, 1]
    for sign in (1, -1):
        of_two = train(X[:31], sign * (labels[:31] == 3), progress=lambda _: None)
        [hint] = [hint["message"] for hint in of_two.report["hints"] if hint["code"] == "single-row"]
        assert hint.startswith(f"only one row has the label {sign}: ")
    named = train(X[:31], np.where(labels[:31] == 3, "a", "b"), progress=lambda _: None)
    assert "only one row has the label a: " in str(named.report["hints"])

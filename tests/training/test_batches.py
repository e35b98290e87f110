"""Models that do not fit the memory together are trained in batches, and are the same models."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.train_data import answers, bits, make_store, problem_rows
from scipy.special import expit

from ooc_svm import evaluate, plan, train, tune
from ooc_svm.errors import InputError, Interrupted, MemoryBudgetError
from ooc_svm.problems.base import ModelSpec
from ooc_svm.solvers.stopping import reason_of_all
from ooc_svm.training import division
from ooc_svm.training.batches import batches_of

COSTS = (0.1, 1.0, 10.0)
COSTS_OF_CUTS = (0.01, 0.1, 1.0)  # With larger ones cutting planes take hundreds of reads


def specs(costs, n_classes, folds=()):
    """Models as a run has them: of all rows for each C, then those of each fold."""
    return [ModelSpec(C, None, fold=fold) for fold in (None, *folds) for C in costs for _ in range(n_classes)]


@pytest.fixture(scope="module")
def rows():
    """Rows of three classes."""
    return problem_rows("three classes", 300, 60, noise=1.0)


@pytest.fixture(scope="module")
def store(rows, tmp_path_factory):
    """Three blocks: models are divided, whatever the blocks are."""
    few = {"chunk_elements": 2000, "chunk_rows": 100, "block_rows": 100}
    return make_store(tmp_path_factory.mktemp("store") / "s", *rows, **few)


@pytest.fixture
def in_batches(monkeypatch):
    """Let runs have at least so many batches."""

    def divide(total):
        monkeypatch.setattr(
            "ooc_svm.training.execute.batches", lambda prepared: division.in_batches(prepared, total)
        )

    return divide


class TestDivision:
    @pytest.mark.parametrize("n_classes", [1, 3, 7])
    @pytest.mark.parametrize("total", range(1, 22))
    def test_every_model_is_in_one_batch(self, n_classes, total):
        models = specs(COSTS, n_classes, folds=(0, 1))
        parts = batches_of(COSTS, n_classes, min(total, len(COSTS) * n_classes), 2, divides_folds=False)
        met = [id(spec) for part in parts for spec in part.of(models)]
        assert sorted(met) == sorted(map(id, models))
        assert len(parts) >= min(total, len(COSTS) * n_classes)
        assert max(part.n_models for part in parts) == parts[0].n_models
        assert sum(part.n_models for part in parts) == parts[0].n_final == len(COSTS) * n_classes

    @pytest.mark.parametrize("n_classes", [1, 3])
    @pytest.mark.parametrize("total", range(1, 13))
    def test_every_model_is_in_one_batch_where_folds_are_divided(self, n_classes, total):
        models = specs(COSTS, n_classes, folds=(0, 1, 2))
        parts = batches_of(COSTS, n_classes, total, 3, divides_folds=True)
        met = [spec for part in parts for spec in part.of(models)]
        assert sorted(map(id, met)) == sorted(map(id, models))
        assert total <= len(parts) <= 12
        assert max(part.n_trained for part in parts) == parts[0].n_trained
        assert sum(part.n_models for part in parts) == parts[0].n_final == len(COSTS) * n_classes
        assert not any(part.splits_classes for part in parts)
        assert any(part.fold_parts != (0, part.n_fold_parts) for part in parts) == (total > len(COSTS))
        for part in parts:
            own = part.of(models)
            assert len(own) == part.n_trained
            assert sum(spec.fold is None for spec in own) == part.n_models
            assert sorted({spec.fold for spec in own} - {None}) == list(part.folds)
        # A run that goes on is divided as it was.
        assert batches_of(COSTS, n_classes, len(parts), 3, divides_folds=True) == parts

    @pytest.mark.parametrize("total", [1, 2, 3])
    def test_classes_stay_together_while_there_are_as_many_values(self, total):
        assert not any(part.splits_classes for part in batches_of(COSTS, 7, total, 0, divides_folds=False))

    def test_then_the_classes_of_each_value_are_divided(self):
        assert all(part.splits_classes for part in batches_of(COSTS, 7, 4, 0, divides_folds=False))

    @pytest.fixture
    def divided(self, monkeypatch):
        """The batches of runs; all models fit at a time, and have room in as many batches as a test says."""

        def budget(prepared):
            n_batches = prepared.batch.total if prepared.batch is not None else 1
            return SimpleNamespace(plan=SimpleNamespace(crowded=False, cramped=n_batches < self.roomy))

        found = []

        def divide(prepared):
            found.extend(division.batches(prepared))
            return found

        monkeypatch.setattr(division, "_budget", budget)
        monkeypatch.setattr("ooc_svm.training.execute.batches", divide)
        return found

    @pytest.mark.parametrize(("roomy", "total"), [(1, 1), (2, 2), (3, 3), (4, 1)])
    def test_values_of_c_have_room_but_classes_stay_together(self, store, divided, roomy, total):
        self.roomy = roomy
        train(store, C=COSTS, tol=0.1, max_passes=1)
        assert len(divided) == total

    @pytest.mark.parametrize(("roomy", "total"), [(3, 3), (4, 6), (12, 12), (13, 1)])
    def test_folds_have_room_too(self, store, divided, roomy, total):
        self.roomy = roomy
        tune(store, C=COSTS, folds=3, tol=0.1, max_passes=1)
        assert len(divided) == total


@pytest.mark.parametrize("total", [2, 3, 6, 9])
def test_models_of_batches_are_those_of_a_run_without(rows, in_batches, total):
    options = {"C": COSTS_OF_CUTS, "solver": "ocas", "bias": "none", "tol": 0.01}
    together = train(*rows, progress=lambda _: None, **options)
    in_batches(total)
    apart = train(*rows, progress=lambda _: None, **options)
    assert apart.C == together.C
    assert apart.positive == together.positive
    assert apart.selected == together.selected
    # Cutting planes have the same bits alone and in company.
    np.testing.assert_array_equal(apart.weights, together.weights)
    assert apart.report["batches"] == {2: [6, 3], 3: [3, 3, 3], 6: [2, 1] * 3, 9: [1] * 9}[total]
    for one, other in zip(apart.report["models"], together.report["models"], strict=True):
        assert {name: one[name] for name in ("label", "C", "primal", "dual", "passes")} == {
            name: other[name] for name in ("label", "C", "primal", "dual", "passes")
        }


@pytest.mark.parametrize("scale", ["none", "maxabs"])
def test_the_report_is_of_all_batches(store, in_batches, scale):
    events = []
    in_batches(3)
    model = train(store, C=COSTS, scale=scale, progress=events.append)
    report = model.report
    each = [max(row["passes"] for row in report["models"][first : first + 3]) for first in (0, 3, 6)]
    assert [row["pass"] for row in report["history"]] == list(range(1, sum(each) + 1))
    assert [row["batch"] for row in report["history"]] == list(np.repeat([1, 2, 3], each))
    assert report["passes"] == sum(each) + (scale != "none")
    assert report["converged"]
    assert report["stop_reason"] == "certified"
    assert [row["C"] for row in report["quality"]] == list(COSTS)
    seconds = [row["seconds"] for row in report["history"]]
    assert seconds == sorted(seconds)
    told = [event.message for event in events if event.kind == "note" and "batch" in event.message]
    assert [text.split(",")[0] for text in told] == ["batch 1 of 3", "batch 2 of 3", "batch 3 of 3"]


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        (["certified", "certified"], "certified"),
        (["certified", "time-limit"], "time-limit"),
        (["certified, max-passes", "certified", "time-limit"], "time-limit"),
        (["no-progress", "max-passes"], "max-passes"),
        (["certified", "pruning"], "pruning"),
    ],
)
def test_one_reason_is_told_of_all_batches(reasons, expected):
    assert reason_of_all(reasons) == expected


def test_batches_that_a_limit_stops_say_so_in_one_word(store, in_batches):
    in_batches(3)
    options = {"C": (1e-4, 1.0, 10.0), "solver": "ocas", "tol": 0.01, "progress": lambda _: None}
    report = train(store, max_passes=4, **options).report
    assert {row["stop_reason"] for row in report["models"]} == {"certified", "max-passes"}
    assert (report["stop_reason"], report["converged"]) == ("max-passes", False)


def test_a_batch_with_some_of_the_classes_has_no_quality(store, in_batches):
    in_batches(2)
    model = train(store, progress=lambda _: None)
    assert model.report["quality"] == []
    assert all(row["quality"] is None for row in model.report["models"])
    assert evaluate(model, store)["accuracy"] > 0.8


def test_temperatures_are_of_classes_whose_scores_are_there(store, in_batches):
    in_batches(2)
    costs = train(store, calibrate="sigmoid", C=[0.1, 1.0])
    assert [own["C"] for own in costs.report["calibration"]["classes"]] == [0.1, 1.0]
    assert costs.calibration.temperatures.shape == (6,)
    in_batches(3)
    classes = train(store, calibrate="sigmoid")
    assert classes.calibration.temperatures is None
    assert "classes" not in classes.report["calibration"]
    maps = zip(classes.calibration.maps, classes.decision_function(store).T, strict=True)
    each = np.column_stack([expit(own.log_odds(scores)) for own, scores in maps])
    np.testing.assert_allclose(classes.predict_proba(store), each / each.sum(axis=1, keepdims=True))


def test_values_of_all_batches_are_compared(store, in_batches):
    options = {"C": COSTS, "folds": 3, "progress": lambda _: None}
    together = tune(store, **options)
    in_batches(3)
    apart = tune(store, **options)
    found, wanted = apart.report["tuning"], together.report["tuning"]
    assert [row["C"] for row in found["values"]] == list(COSTS)
    assert len(found["models"]) == len(wanted["models"]) == 27
    assert apart.C[apart.selected] == found["C"] == max(found["values"], key=lambda row: row["mean"])["C"]
    for one, other in zip(found["values"], wanted["values"], strict=True):
        np.testing.assert_allclose(one["mean"], other["mean"], atol=0.02)


@pytest.mark.parametrize(
    ("total", "sizes", "rule"),
    [
        (3, [12] * 3, "best"),
        (6, [6] * 6, "one-standard-error"),
        (9, [6, 3, 3] * 3, "best"),
        (99, [3] * 12, "one-standard-error"),
    ],
)
def test_folds_of_all_batches_are_compared(store, in_batches, total, sizes, rule):
    # Cutting planes have the same bits alone and in company.
    options = {"C": COSTS_OF_CUTS, "folds": 3, "solver": "ocas", "bias": "none", "rule": rule, "tol": 0.05}
    together = tune(store, **options, progress=lambda _: None)
    in_batches(total)
    events = []
    apart = tune(store, **options, progress=events.append)
    assert bits(apart) == bits(together)
    assert apart.selected == together.selected
    found, wanted = apart.report["tuning"], together.report["tuning"]
    assert {**found, "models": None} == {**wanted, "models": None}
    by_place = {"key": lambda row: (row["fold"], row["C"], row["label"])}
    assert sorted(found["models"], **by_place) == sorted(wanted["models"], **by_place)
    assert apart.report["models"] == together.report["models"]
    assert apart.report["quality"] == together.report["quality"]
    assert {hint["code"] for hint in apart.report["hints"]} == {h["code"] for h in together.report["hints"]}
    assert apart.report["batches"] == sizes
    assert apart.report["converged"] == together.report["converged"]
    told = [event.message for event in events if event.kind == "note" and event.message.startswith("batch")]
    assert len(told) == len(sizes)
    assert f"{sizes[-1]} of 36 models" in told[-1]
    [said] = [event.message for event in events if " 3 value(s) of C: " in event.message]
    assert said.endswith("27 models without a fold and 9 of all rows")


def test_a_comparison_stopped_in_a_batch_of_folds_goes_on_with_the_same_bits(
    store, in_batches, tmp_path, monkeypatch
):
    monkeypatch.setattr("ooc_svm.training.run.CHECKPOINT_SHARE", math.inf)
    options = {"C": COSTS[:2], "folds": 3, "resident": 0.1, "tol": 1e-4}
    in_batches(8)
    whole = tune(store, progress=lambda _: None, **options)
    batch = []

    def progress(event):
        batch.extend([1] if event.message.startswith("batch") else [])
        if len(batch) == 3 and event.kind == "pass" and event.passes == 2:
            raise Stop

    with pytest.raises(Stop):
        tune(store, progress=progress, checkpoint=tmp_path, **options)
    in_batches(1)
    again = tune(store, progress=lambda _: None, checkpoint=tmp_path, resume=True, **options)
    assert again.report["batches"] == [3] * 8
    assert again.report["tuning"] == whole.report["tuning"]
    assert bits(again) == bits(whole)


def test_what_does_not_converge_in_a_batch_of_folds_is_told(store, in_batches):
    in_batches(4)
    report = tune(store, C=1.0, folds=3, max_passes=1, progress=lambda _: None).report
    assert not report["converged"]
    assert report["stop_reason"] == "max-passes"
    [row] = report["tuning"]["values"]
    assert not row["converged"]
    assert len(row["values"]) == 3


def test_the_best_value_on_rows_held_out_is_selected_from_all_batches(store, in_batches):
    options = {"C": COSTS_OF_CUTS, "validation": 0.2, "solver": "ocas", "tol": 0.01}
    options["progress"] = lambda _: None
    together = train(store, **options)
    in_batches(3)
    apart = train(store, **options)
    assert apart.selected == together.selected
    assert apart.report["validation"] == together.report["validation"]


class Stop(Exception):
    """Ends a run from its progress callback."""


def test_a_run_stopped_in_its_second_batch_goes_on_with_the_same_bits(
    store, in_batches, tmp_path, monkeypatch
):
    monkeypatch.setattr("ooc_svm.training.run.CHECKPOINT_SHARE", math.inf)
    options = {"C": COSTS, "resident": 0.1, "tol": 1e-5}
    in_batches(3)
    whole = train(store, progress=lambda _: None, **options)
    batch = []

    def progress(event):
        batch.extend([1] if event.message.startswith("batch") else [])
        if len(batch) == 2 and event.kind == "pass" and event.passes == 2:
            raise Stop

    with pytest.raises(Stop):
        train(store, progress=progress, checkpoint=tmp_path, **options)
    # As many as it was begun with, whatever would fit by now.
    in_batches(1)
    again = train(store, progress=lambda _: None, checkpoint=tmp_path, resume=True, **options)
    assert again.report["batches"] == [3, 3, 3]
    assert answers(again.report) == answers(whole.report)
    assert bits(again) == bits(whole)
    with pytest.raises(InputError, match="it has those of a run in batches"):
        train(store, warm_start=tmp_path, **options)


def test_an_interrupted_run_has_no_model_of_some_of_the_models(store, in_batches, monkeypatch):
    in_batches(3)
    calls = []

    def stop_requested():
        calls.append(1)
        return 2 if len(calls) > 3 else None

    monkeypatch.setattr("ooc_svm.system.signals.stop_requested", stop_requested)
    passes = []
    with pytest.raises(Interrupted) as caught:
        train(store, C=COSTS, progress=lambda event: passes.append(1) if event.kind == "pass" else None)
    assert caught.value.model is None
    counted = "1 pass" if len(passes) == 1 else f"{len(passes)} passes"
    assert str(caught.value).startswith(f"interrupted after {counted}; ")


@pytest.mark.parametrize("wanted", [1, 2, 5])
def test_passes_of_all_batches_are_counted(store, in_batches, monkeypatch, wanted):
    in_batches(3)
    passes = []
    monkeypatch.setattr("ooc_svm.system.signals.stop_requested", lambda: 2 if len(passes) >= wanted else None)
    with pytest.raises(Interrupted) as caught:
        train(store, C=COSTS, progress=lambda event: passes.append(1) if event.kind == "pass" else None)
    counted = "1 pass" if wanted == 1 else f"{wanted} passes"
    assert len(passes) == wanted
    assert str(caught.value).startswith(f"interrupted after {counted}; ")


@pytest.fixture(scope="module")
def wide():
    """Few rows of very many features and ten classes, so that weights are what takes the memory."""
    rng = np.random.default_rng(0)
    X, _ = problem_rows("two classes", 40, 60, noise=1.0)
    X.resize(40, 400_000)
    return X, rng.permutation(40) % 10 + 0.0


class TestMemory:
    def test_there_are_as_few_batches_as_fit(self, wide):
        most = plan(*wide, memory="4GB")
        assert most.n_batches == 1
        least = plan(*wide, memory="460MB")
        assert 1 < least.n_batches <= 10
        assert least.total <= least.budget < most.total
        assert least.n_models == most.n_models == 10
        assert f"10 model(s) in {least.n_batches} batches, one after another" in least.lines()[0]
        model = train(*wide, memory="460MB", progress=lambda _: None)
        assert len(model.report["batches"]) == least.n_batches

    def test_what_does_not_fit_says_how_many_models_would(self, wide):
        with pytest.raises(MemoryBudgetError, match=r"of the 10 models of this run about \d fit") as caught:
            plan(*wide, memory="330MB")
        needed = caught.value.needed
        assert plan(*wide, memory=needed).fits
        assert needed < 450 * 10**6

    def test_folds_are_divided_where_those_of_one_value_do_not_fit(self, wide):
        X, y = wide
        y, sizes = np.where(y > 4, 1.0, -1.0), {"folds": 4, "C": [0.1, 1.0]}
        found = plan(X, y, **sizes, memory="4GB")
        assert found.fits
        assert found.n_batches == 1
        tight = plan(X, y, **sizes, memory="400MB")
        assert 2 < tight.n_batches <= 10
        assert tight.fits
        assert tight.n_models == 10
        model = tune(X, y, **sizes, memory="400MB", progress=lambda _: None)
        assert len(model.report["batches"]) == tight.n_batches
        with pytest.raises(MemoryBudgetError):
            plan(X, y, **sizes, memory="400MB", calibrate="sigmoid")

    def test_models_that_are_compared_by_their_scores_are_not_divided(self, wide):
        with pytest.raises(MemoryBudgetError) as caught:
            plan(*wide, memory="450MB", validation=0.2)
        assert "of the 10 models" not in str(caught.value)

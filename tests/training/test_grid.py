"""Numbers of problem, loss and kernel are compared in the reads of values of C."""

from __future__ import annotations

import pytest
from helpers.train_data import bits, make_store, problem_rows

from ooc_svm import plan, train, tune
from ooc_svm.errors import UsageError
from ooc_svm.training.comparison import Compared, chosen

SVR = {"problem": "svr", "loss": "squared-epsilon-insensitive", "bias": "none", "C": [0.1, 1.0]}
EPSILON = {"epsilon": [0.01, 0.5, 3.0]}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Rows with values."""
    return make_store(tmp_path_factory.mktemp("store") / "s", *problem_rows("svr", 240, 20, noise=0.5))


@pytest.fixture(scope="module")
def tuned(store):
    """The comparison of three tubes and two values of C, with what was told of it."""
    events = []
    return tune(store, folds=3, grid=EPSILON, progress=events.append, **SVR), events


def settings(row):
    return {name: row[name] for name in ("C", "epsilon")}


def test_of_points_with_the_least_c_near_the_best_the_best_is_chosen():
    folds = {
        (1.0, 0.3): [0.80, 0.86],
        (0.1, 0.5): [0.81, 0.83],
        (0.1, 0.2): [0.82, 0.84],
        (0.01, 0.2): [0.5] * 2,
    }
    compared = [Compared({"C": C, "gamma": gamma}, own, True) for (C, gamma), own in folds.items()]
    for order in (compared, compared[::-1]):
        assert chosen(order, "auc", "best").settings == {"C": 1.0, "gamma": 0.3}
        assert chosen(order, "auc", "one-standard-error").settings == {"C": 0.1, "gamma": 0.2}


class TestComparison:
    def test_all_combinations_are_compared(self, tuned):
        report = tuned[0].report["tuning"]
        wanted = [{"C": C, "epsilon": epsilon} for epsilon in EPSILON["epsilon"] for C in SVR["C"]]
        assert [settings(row) for row in report["values"]] == wanted
        assert len(report["models"]) == 3 * len(wanted)
        assert sorted({(row["epsilon"], row["C"], row["fold"]) for row in report["models"]}) == sorted(
            (each["epsilon"], each["C"], fold) for each in wanted for fold in (1, 2, 3)
        )

    def test_the_best_is_chosen_and_is_what_the_model_has(self, tuned):
        model, report = tuned[0], tuned[0].report["tuning"]
        best = max(report["values"], key=lambda row: row["mean"])
        assert report["chosen"] == settings(best)
        assert model.options["epsilon"] == best["epsilon"]
        assert list(model.C) == SVR["C"]
        assert model.C[model.selected] == report["C"] == best["C"]

    def test_the_models_are_those_of_their_numbers(self, store, tuned):
        epsilon = tuned[0].options["epsilon"]
        alone = train(store, epsilon=epsilon, progress=lambda _: None, **SVR)
        for own, other in zip(tuned[0].report["models"], alone.report["models"], strict=True):
            assert own["dual"] <= other["primal"]
            assert other["dual"] <= own["primal"]
            assert own["converged"]

    def test_they_share_the_reads(self, tuned):
        model, events = tuned
        everything = [*model.report["models"], *model.report["tuning"]["models"]]
        assert model.report["passes"] == max(row["passes"] for row in everything)
        said = [event.message for event in events if event.kind == "note"]
        wanted = "2 value(s) of C at 3 points of the grid: 18 models without a fold and 6 of all rows share"
        assert any(wanted in text for text in said)

    def test_two_numbers_at_once(self, store):
        grid = {"nu": [0.3, 0.6]}
        model = tune(store, problem="nu-svr", C=1.0, folds=2, grid=grid, progress=lambda _: None)
        assert [row["nu"] for row in model.report["tuning"]["values"]] == [0.3, 0.6]
        assert model.options["nu"] == model.report["tuning"]["chosen"]["nu"]

    def test_on_another_store(self, store):
        options = {"progress": lambda _: None, **SVR}
        model = tune(store, validation=store, grid=EPSILON, **options)
        assert model.options["epsilon"] == 0.01
        found = [row["mean"] for row in model.report["tuning"]["values"]]
        assert found[0] == max(found[::2])

    def test_a_resumed_comparison_has_the_same_bits(self, store, tmp_path, tuned):
        options = {"folds": 3, "grid": EPSILON, "checkpoint": tmp_path, "progress": lambda _: None, **SVR}
        first = tune(store, max_passes=1, **options)
        assert not first.report["converged"]
        again = tune(store, resume=True, **options)
        assert bits(again) == bits(tuned[0])
        assert again.report["tuning"] == tuned[0].report["tuning"]

    def test_a_plan_counts_all_models(self, store):
        assert plan(store, folds=3, grid=EPSILON, **SVR).n_models == 2 * 3 * 4


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({"C": [1.0]}, "C takes several values itself"),
        ({"gap": [1.0]}, "grid has 'gap'; it takes epsilon, "),
        ({"nu": [0.5]}, "grid nu=0.5: nu is for the problems 'nu-svc' and 'nu-svr', not 'svr'"),
        ({"epsilon": [0.5, 0.5]}, "grid has epsilon = 0.5 twice"),
        ({"epsilon": [-1.0]}, "grid epsilon=-1: epsilon must be finite and not negative, not -1"),
        ({"epsilon": []}, "grid must be a mapping of names of options to numbers"),
        ({"epsilon": "small"}, "grid must be a mapping"),
        ([0.1], "grid must be a mapping"),
    ],
)
def test_what_cannot_be_is_refused(store, grid, message):
    with pytest.raises(UsageError, match="^" + message):
        tune(store, problem="svr", grid=grid)


def test_a_number_is_either_given_or_in_the_grid(store):
    with pytest.raises(UsageError, match="grid has values for epsilon; leave epsilon out"):
        tune(store, problem="svr", epsilon=0.2, grid=EPSILON)

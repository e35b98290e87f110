"""The quality on another store: of the store that is named now, whatever the run was measured on before."""

from __future__ import annotations

import math

import pytest
from helpers.train_data import make_store, problem_rows
from scipy import sparse

import ooc_svm.training.functions
import ooc_svm.training.validation_store
from ooc_svm import InputError, MemoryBudgetError, evaluate, train, tune
from ooc_svm.training import division
from ooc_svm.training.memory_plan import LEAST_VALIDATION_BYTES, SLACK, VALIDATION_PART

N_ROWS, COSTS = 120, [1.0, 1e-5]


@pytest.fixture(scope="module")
def rows():
    return problem_rows("two classes", N_ROWS, 12, noise=0.5)


@pytest.fixture(scope="module")
def stores(rows, tmp_path_factory):
    """What is trained on, and two others; on the last one the labels are the other way round."""
    X, labels = rows
    folder = tmp_path_factory.mktemp("stores")
    return [
        make_store(folder / name, X, own)
        for name, own in (("a.zarr", labels), ("b.zarr", labels), ("c.zarr", -labels))
    ]


def accuracy(model, store, C):
    return evaluate(model, store, "accuracy", C=C)["accuracy"]


class TestResumed:
    def test_a_finished_run_is_measured_on_the_store_that_is_named_now(self, stores, tmp_path):
        data, one, other = stores
        first = train(data, C=COSTS, checkpoint=tmp_path, validation=one)
        again = train(data, C=COSTS, checkpoint=tmp_path, validation=other, resume=True)
        assert first.report["validation"] == {
            "store": str(one),
            "C": first.C[first.selected],
            "accuracy": accuracy(first, one, first.C[first.selected]),
        }
        measured = {C: accuracy(again, other, C) for C in COSTS}
        best = max(measured, key=lambda C: (measured[C], -C))
        assert again.report["validation"] == {"store": str(other), "C": best, "accuracy": measured[best]}
        assert again.C[again.selected] == best
        assert not any("validation" in row for row in again.report["history"])

    def test_a_run_that_is_measured_no_more_says_nothing_of_it(self, stores, tmp_path):
        data, one, _ = stores
        first = train(data, C=COSTS, checkpoint=tmp_path, validation=one)
        assert first.report["passes"] > 0
        again = train(data, C=COSTS, checkpoint=tmp_path, resume=True)
        assert "validation" not in again.report
        assert again.selected == len(COSTS) - 1
        tuned = tune(data, C=COSTS, checkpoint=tmp_path, resume=True, validation=one)
        assert "validation" not in tuned.report

    def test_a_finished_run_that_was_not_measured_is(self, stores, tmp_path):
        data, one, _ = stores
        train(data, C=COSTS, checkpoint=tmp_path)
        again = train(data, C=COSTS, checkpoint=tmp_path, resume=True, validation=one)
        found = again.report["validation"]
        assert found["store"] == str(one)
        assert found["accuracy"] == accuracy(again, one, found["C"])

    def test_the_same_store_is_measured_no_second_time(self, stores, tmp_path):
        data, one, _ = stores
        first = train(data, C=COSTS, checkpoint=tmp_path, validation=one)
        again = train(data, C=COSTS, checkpoint=tmp_path, validation=one, resume=True)
        assert [row["validation"] for row in again.report["history"]] == [
            row["validation"] for row in first.report["history"]
        ]

    def test_batches_that_were_measured_go_on_without(self, stores, tmp_path, monkeypatch):
        data, one, _ = stores
        monkeypatch.setattr(
            "ooc_svm.training.execute.batches", lambda prepared: division.in_batches(prepared, 2)
        )
        monkeypatch.setattr("ooc_svm.training.run.CHECKPOINT_SHARE", math.inf)

        class Stop(Exception):
            pass

        begun = []

        def progress(event):
            begun.extend([1] if event.message.startswith("batch") else [])
            if len(begun) == 2 and event.kind == "pass":
                raise Stop

        with pytest.raises(Stop):
            train(data, C=COSTS, checkpoint=tmp_path, validation=one, progress=progress)
        again = train(data, C=COSTS, checkpoint=tmp_path, resume=True, progress=lambda _: None)
        assert "validation" not in again.report
        assert len(again.report["batches"]) == 2
        measured = train(
            data, C=COSTS, checkpoint=tmp_path, resume=True, validation=one, progress=lambda _: None
        )
        best = max(COSTS, key=lambda C: (accuracy(measured, one, C), -C))
        assert measured.report["validation"]["C"] == measured.C[measured.selected] == best


class TestMemory:
    def test_the_support_vectors_count_as_what_is_there_already(self, stores, monkeypatch):
        data, one, _ = stores
        given = []
        original = ooc_svm.training.validation_store.measure_data

        def spy(model, *arguments, **options):
            functions = model.functions
            given.append((options["memory"], functions.vectors.nbytes + 2 * functions.coefficients.nbytes))
            return original(model, *arguments, **options)

        monkeypatch.setattr(ooc_svm.training.validation_store, "measure_data", spy)
        train(data, kernel="rbf", gamma=0.1, validation=one)
        (least, none), *others = given
        assert others[-1][1] > 100 * none
        assert all(memory - own == least - none for memory, own in others)

    def test_a_measure_that_does_not_fit_is_left_out_with_a_note(self, stores, monkeypatch):
        data, one, _ = stores
        original, calls, notes = ooc_svm.training.validation_store.measure_data, [], []

        def refuse(*arguments, **options):
            calls.append(1)
            if len(calls) > 1:
                raise MemoryBudgetError("too large", 1)
            return original(*arguments, **options)

        monkeypatch.setattr(ooc_svm.training.validation_store, "measure_data", refuse)
        model = train(data, validation=one, progress=lambda event: notes.append(event.message))
        assert model.report["converged"]
        assert "validation" not in model.report
        assert notes.count(f"the quality on {one} is left out: too large") == 1

    def test_support_vectors_get_no_memory_that_the_solver_has(self, stores, monkeypatch):
        """While the run goes on it is what is planned for nothing, and for measuring."""
        data, one, _ = stores
        rooms, notes = [], []
        original = ooc_svm.training.functions._require_room

        def spy(run, names, rows, room=None):
            rooms.append((room, run.budget))
            return original(run, names, rows, room)

        monkeypatch.setattr(ooc_svm.training.functions, "_require_room", spy)
        options = {"kernel": "rbf", "gamma": 0.1, "validation": one, "memory": "600MB"}
        train(data, **options)
        measuring = max(600 * 10**6 // VALIDATION_PART, LEAST_VALIDATION_BYTES)
        *between, (last, _) = rooms
        assert last is None
        assert len(between) > 1
        for room, budget in between:
            planned = budget.needed + budget.cache_bytes + budget.ahead_bytes - measuring
            assert planned + room <= (1 - SLACK) * budget.total

        monkeypatch.setattr("ooc_svm.training.memory_plan.Budget.left", 0)
        monkeypatch.setattr("ooc_svm.training.validation.validation_bytes", lambda _: 100)
        model = train(data, progress=lambda event: notes.append(event.message), **options)
        assert model.report["converged"]
        assert "validation" not in model.report
        assert sum("is left out: the model has" in note for note in notes) == 1

    def test_before_the_first_pass_it_is_an_error(self, stores, monkeypatch):
        data, one, _ = stores

        def refuse(*arguments, **options):
            raise MemoryBudgetError("too large", 1)

        monkeypatch.setattr(ooc_svm.training.validation_store, "measure_data", refuse)
        with pytest.raises(MemoryBudgetError, match="too large"):
            train(data, validation=one)


class TestOtherRows:
    def test_rows_of_a_class_that_was_never_seen_are_left_out(self, rows, stores, tmp_path):
        X, labels = rows
        foreign = labels.copy()
        foreign[::5] = 7.0
        other = make_store(tmp_path / "other.zarr", X, foreign)
        known = foreign != 7.0
        for function in (train, tune):
            with pytest.raises(InputError, match="leave such rows out"):
                function(stores[0], validation=other)
        model = train(stores[0], validation=other, unlabelled="skip")
        expected = evaluate(model, X[known], "accuracy", labels=labels[known])["accuracy"]
        assert model.report["validation"]["accuracy"] == expected
        tuned = tune(stores[0], validation=other, unlabelled="skip")
        assert tuned.report["tuning"]["values"][0]["values"] == [expected]

    @pytest.mark.parametrize(("function", "part"), [(train, "validation"), (tune, "tuning")])
    def test_rows_that_are_left_out_are_told(self, function, part, rows, stores, tmp_path):
        X, labels = rows
        foreign = labels.copy()
        foreign[:10] = 7.0
        other, notes = make_store(tmp_path / "other.zarr", X, foreign), []
        options = {"unlabelled": "skip", "progress": lambda event: notes.append(event.message)}
        model = function(stores[0], validation=other, **options)
        assert model.report[part]["left_out"] == {"unlabelled": 0, "unknown": 10}
        told = f"10 rows of {other} are left out of its measures: 0 have no label, 10 have one that the data"
        assert [told in note for note in notes].count(True) == 1
        whole = function(stores[0], validation=stores[1], **options)
        assert "left_out" not in whole.report[part]

    def test_batches_tell_it_once(self, rows, stores, tmp_path, monkeypatch):
        X, labels = rows
        foreign = labels.copy()
        foreign[:10] = 7.0
        other, notes = make_store(tmp_path / "other.zarr", X, foreign), []
        monkeypatch.setattr(
            "ooc_svm.training.execute.batches", lambda prepared: division.in_batches(prepared, 2)
        )
        options = {"unlabelled": "skip", "progress": lambda event: notes.append(event.message)}
        model = train(stores[0], C=COSTS, validation=other, **options)
        assert len(model.report["batches"]) == 2
        assert model.report["validation"]["left_out"] == {"unlabelled": 0, "unknown": 10}
        assert sum("are left out of its measures" in note for note in notes) == 1

    @pytest.mark.parametrize("function", [train, tune])
    def test_values_that_are_ignored_are_told(self, function, stores, tmp_path):
        lines = ["+1 1:1 99:5\n", "-1 2:1 98:1 99:5\n"]
        (tmp_path / "other.svm").write_text("".join(lines))
        ooc_svm.convert(tmp_path / "other.svm", tmp_path / "other.zarr", dtype="float64")
        notes = []
        function(
            stores[0],
            validation=tmp_path / "other.zarr",
            progress=lambda event: notes.append(event.message),
        )
        told = f"3 values of {tmp_path / 'other.zarr'} are of features that the data lack; they are ignored"
        assert notes.count(told) == 1


def test_the_matrix_is_named_where_names_do_not_fit(rows):
    X, labels = rows
    with pytest.raises(InputError, match="the matrix has 12 features"):
        train(sparse.csr_array(X), labels, feature_names=["a", "b"])

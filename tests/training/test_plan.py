"""The plan of a training tells what the training then does."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.train_data import make_store, store_rows

from ooc_svm import plan, train
from ooc_svm.errors import DamageError, InputError, MemoryBudgetError, UsageError
from ooc_svm.solvers.streamed_smo.sweep import SweepPass
from ooc_svm.store import open_store
from ooc_svm.training import engines, pace
from ooc_svm.training import plan as plan_module
from ooc_svm.training.preparation import Preparation

WORKLOAD = Preparation.workload.func


def with_threads(threads):
    return property(lambda self: replace(WORKLOAD(self), threads=threads))


@pytest.fixture(scope="module")
def rows():
    return store_rows()


@pytest.fixture(scope="module")
def store(tmp_path_factory, rows):
    return make_store(tmp_path_factory.mktemp("rows") / "s", *rows)


@pytest.mark.parametrize("solver", ["ocas", "cutting-plane", "streamed-smo", "smo"])
def test_the_numbers_are_those_of_the_store_and_of_the_run(store, rows, solver, monkeypatch):
    options = {"solver": solver, "C": (0.1, 1.0), "bias": "penalized", "memory": "1GB", "threads": 2}
    planned = plan(store, **options)
    opened = open_store(store)
    assert (planned.n_rows, planned.n_features, planned.n_nonzeros) == (300, 40, rows[0].nnz)
    assert (planned.n_models, planned.threads, planned.budget) == (2, 2, 10**9)
    assert planned.fits
    assert planned.total == sum(item.nbytes for item in planned.items) <= planned.budget
    cache = planned.items[-1]
    assert (cache.name, cache.nbytes) == ("block cache", sum(span.nbytes for span in opened.blocks))
    assert planned.seconds_per_pass > 0.0
    assert planned.expected_passes > 1
    divide = engines.divide
    monkeypatch.setattr(engines, "divide", lambda *a, **k: replace(divide(*a, **k), cache_bytes=0))
    report = train(store, max_passes=2, **options).report
    assert report["bytes_read"] == 2 * planned.pass_bytes
    parameters = planned.parameters
    if solver == "streamed-smo":
        assert report["resident"] == parameters["resident_elements"] / (300 + rows[0].nnz)
    elif solver == "smo":
        assert report["rounds"] == parameters["rounds"]
        assert parameters["resident_elements"] == 300 + rows[0].nnz
    else:
        assert (report["cut_groups"], report["max_cuts"]) == (parameters["groups"], parameters["max_cuts"])
    assert len(report["models"]) == planned.n_models


def test_as_text_and_json(store):
    planned = plan(store, memory="1GB", threads=1)
    record = json.loads(json.dumps(planned.to_json()))
    assert record["total"] == sum(item["bytes"] for item in record["items"])
    assert record["fits"] is True
    assert set(record) >= {"n_rows", "pass_bytes", "seconds_per_pass", "expected_passes", "budget", "threads"}
    lines = planned.lines()
    assert lines[0].startswith("300 rows, 40 features")
    assert len(lines) == len(planned.items) + 5
    assert "of 1 GB allowed" in lines[-4]
    assert lines[-3].split() == ["reserve", "50", "MB", "5", "%", "of", "that,", "not", "planned"]


def test_the_time_is_a_range_where_the_solver_works_as_much_as_the_rows_need(store):
    planned = plan(store, threads=1)
    least, most = planned.expected_seconds
    assert least == planned.expected_passes * planned.seconds_per_pass
    assert 5.0 < most / least < 40.0
    assert planned.lines()[-1].endswith("the harder the rows are to fit, the longer")
    assert json.loads(json.dumps(planned.to_json()))["expected_seconds"] == [least, most]
    planned = plan(store, threads=1, solver="ocas")
    assert planned.expected_seconds[0] == planned.expected_seconds[1]
    assert "longer" not in planned.lines()[-1]


def test_one_thread_solves_a_model(rows, monkeypatch):
    """What is computed besides the passes is not shared by more threads than there are models."""
    monkeypatch.setattr(pace, "_thread_seconds", lambda engine, samples: (0.0, 1.0))
    labels = np.arange(300) % 4
    spread = {}
    for n_models, options in ((1, {"positive": 1}), (4, {})):
        for threads in (1, 2, 8):
            monkeypatch.setattr("ooc_svm.training.prepare.Preparation.workload", with_threads(threads))
            least, most = plan(rows[0], labels, **options).expected_seconds
            spread[n_models, threads] = most - least
    one, four = (spread[n, 1] for n in (1, 4))
    assert spread == pytest.approx(
        {(1, 1): one, (1, 2): one, (1, 8): one, (4, 1): four, (4, 2): four / 2, (4, 8): four / 4}
    )


def test_of_a_matrix(rows):
    planned = plan(*rows)
    assert (planned.pass_bytes, planned.threads) == (0, 1)
    assert all(item.name != "block cache" for item in planned.items)
    assert plan(np.zeros((4, 0)), [1, 1, -1, -1]).n_features == 0


def test_a_first_meeting_with_rows_is_not_what_a_pass_takes(store, monkeypatch):
    """All rows move then, and none has been copied before."""
    visit, met, clock = SweepPass.visit, set(), [0.0]

    def slow_at_first(self, block, rows, partial):
        clock[0] += 1.0 if (rows.start, rows.stop) in met else 1e6
        met.add((rows.start, rows.stop))
        visit(self, block, rows, partial)

    monkeypatch.setattr(SweepPass, "visit", slow_at_first)
    monkeypatch.setattr(pace, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    assert 1.0 < plan(store, threads=1).seconds_per_pass < 1e6
    assert len(met) > 1


def test_many_classes_make_as_many_models(rows):
    labels = np.arange(300) % 5
    planned = plan(rows[0], labels, C=(1, 2))
    assert planned.n_models == 10
    assert plan(rows[0], labels, positive=3).n_models == 1


def test_nothing_is_written(store):
    before = sorted((path, path.stat().st_mtime_ns) for path in store.parent.rglob("*"))
    plan(store, checkpoint=store.parent / "c")
    assert sorted((path, path.stat().st_mtime_ns) for path in store.parent.rglob("*")) == before


def test_what_training_refuses_is_refused(store, rows, tmp_path):
    with pytest.raises(MemoryBudgetError, match=r"training needs .* allowed are 100 MB"):
        plan(store, memory="100MB")
    with pytest.raises(UsageError, match="C must be positive"):
        plan(store, C=0)
    with pytest.raises(UsageError, match="there is no parameter 'gama'"):
        plan(store, gama=1)
    with pytest.raises(UsageError, match="a matrix needs labels"):
        plan(rows[0])
    with pytest.raises(InputError, match="no row has the label 3"):
        plan(store, positive=3)
    with pytest.raises(InputError, match="does not exist"):
        plan(tmp_path / "absent")
    damaged = make_store(tmp_path / "s", *rows)
    (damaged / "X/data/c/1").unlink()
    with pytest.raises(DamageError, match="X/data/c/1 is missing"):
        plan(damaged)


def test_a_plan_is_for_one_machine(store):
    with pytest.raises(UsageError, match="one machine"):
        plan(store, engine="dask")


@pytest.mark.parametrize("landmarks", [50, 1500])
def test_the_sum_with_landmarks_is_within_what_is_allowed(store, landmarks, monkeypatch):
    def all_used(*arguments, **options):
        """As for data of which only a part fits the cache."""
        budget = divide(*arguments, **options)
        return replace(budget, cache_bytes=budget.total - budget.needed)

    divide = plan_module.divide
    monkeypatch.setattr(plan_module, "divide", all_used)
    found = plan(store, kernel="rbf", gamma=0.1, landmarks=landmarks, memory="1GB", threads=2)
    assert found.total == sum(item.nbytes for item in found.items)
    assert found.fits


def test_of_a_matrix_with_weights_and_names(rows):
    """Whatever `train` and `tune` take for the rows and columns of a matrix."""
    matrix, labels = rows[:2]
    names = [f"f{column}" for column in range(40)]
    alone = plan(matrix, labels)
    planned = plan(matrix, labels, sample_weight=np.ones(300), feature_names=names)
    assert planned.total > alone.total  # weights of rows, and names, take memory
    with pytest.raises(InputError, match="3 names"):
        plan(matrix, labels, feature_names=names[:3])
    with pytest.raises(InputError, match=r"row 2 has the negative weight -1\.0 in sample_weight"):
        plan(matrix, labels, sample_weight=np.where(np.arange(300) == 2, -1.0, 1.0))

"""How runs end: by a time limit of their own, and by a signal whatever is in memory."""

from __future__ import annotations

import signal
import time

import pytest
from helpers.train_data import make_store, problem_rows

from ooc_svm import Interrupted, MemoryBudgetError, train
from ooc_svm.system import signals
from ooc_svm.training import division, progress
from ooc_svm.training.checkpoint import saved_batches


@pytest.fixture(scope="module")
def rows():
    return problem_rows("two classes", 120, 12, noise=0.5)


@pytest.fixture(scope="module")
def store(rows, tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("store") / "s.zarr", *rows)


@pytest.fixture
def earlier_job(monkeypatch):
    """Let each resumed part of a run have taken an hour before."""
    resume = progress.Recorder.resume

    def after_an_hour(self, history, seconds, **options):
        resume(self, history, seconds + 3600.0, **options)

    monkeypatch.setattr(progress.Recorder, "resume", after_an_hour)


class TestTimeLimit:
    @pytest.mark.usefixtures("earlier_job")
    def test_earlier_jobs_are_none_of_it_in_batches(self, store, tmp_path, monkeypatch):
        monkeypatch.setattr(
            "ooc_svm.training.execute.batches", lambda prepared: division.in_batches(prepared, 2)
        )
        options = {"C": [0.1, 1.0], "solver": "ocas", "checkpoint": tmp_path, "progress": lambda _: None}
        train(store, max_passes=2, tol=1e-6, **options)
        again = train(store, tol=1e-6, resume=True, time_limit=600.0, **options)
        assert again.report["seconds"] > 3600.0
        assert again.report["converged"]

    @pytest.mark.usefixtures("earlier_job")
    def test_nor_of_landmarks(self, rows, tmp_path):
        X, labels = rows
        options = {"kernel": "rbf", "gamma": 0.1, "landmarks": 20, "polish": True, "bias": "penalized"}
        options |= {"checkpoint": tmp_path, "progress": lambda _: None}
        train(X, labels, max_passes=3, **options)
        again = train(X, labels, resume=True, time_limit=600.0, **options)
        assert again.report["seconds"] > 3600.0
        assert "time-limit" not in again.report["stop_reason"]

    def test_all_batches_have_one(self, store, monkeypatch):
        found = []
        monkeypatch.setattr(
            "ooc_svm.training.execute.batches", lambda prepared: division.in_batches(prepared, 2)
        )
        original = division.Preparation.context

        def spy(self, size, scale, stopping, *rest):
            found.append(stopping.deadline)
            return original(self, size, scale, stopping, *rest)

        monkeypatch.setattr(division.Preparation, "context", spy)
        began = time.monotonic()
        train(store, C=[0.1, 1.0], time_limit=600.0, progress=lambda _: None)
        deadlines = {each for each in found if each is not None}
        assert len(deadlines) == 1
        assert began + 600.0 <= deadlines.pop() <= time.monotonic() + 600.0


@pytest.mark.parametrize("kernel", [{"solver": "ocas"}, {"kernel": "rbf", "gamma": 0.1}])
def test_a_signal_ends_a_run_whose_model_cannot_be_made(store, kernel, monkeypatch):
    def refuse(*arguments, **options):
        raise MemoryBudgetError("too large", 1)

    monkeypatch.setattr("ooc_svm.training.run.make_model", refuse)
    asked = []

    def stop_requested():
        asked.append(1)
        return signal.SIGTERM if len(asked) > 2 else None

    monkeypatch.setattr(signals, "stop_requested", stop_requested)
    with pytest.raises(Interrupted) as caught:
        train(store, tol=1e-9, **kernel)
    assert caught.value.exit_code == 128 + signal.SIGTERM
    assert caught.value.model is None


def test_other_folders_are_no_batches(store, tmp_path):
    for name in ("batch-1-of-x", "batch-1-of-0", "batch-one-of-7"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "checkpoint-0.state").write_bytes(b"")
    assert saved_batches(tmp_path) is None
    assert train(store, checkpoint=tmp_path, resume=True).report["converged"]
    (tmp_path / "batch-1-of-4").mkdir()
    (tmp_path / "batch-1-of-4" / "checkpoint-1.state").write_bytes(b"")
    assert saved_batches(tmp_path) == 4

"""Bounds of a resumed run are found again: a checkpoint that claims too much is refused, or not believed."""

from __future__ import annotations

import math
import shutil

import numpy as np
import pytest
from helpers.forged_states import forge
from helpers.train_data import answers, bits, make_store, store_rows

from ooc_svm import train
from ooc_svm.errors import DamageError

RUNS = {
    "cutting-plane": {"solver": "cutting-plane", "cut_groups": 2},
    "ocas": {"solver": "ocas", "cut_groups": 2},
    "ocas of one group": {"solver": "ocas"},
    "roc-area": {"problem": "roc-area", "solver": "ocas", "C": 30.0},
    "roc-area by cutting-plane": {"problem": "roc-area", "solver": "cutting-plane", "C": 30.0},
}
BY_NU = {
    "nu-svc": {"problem": "nu-svc", "solver": "streamed-smo", "nu": 0.6, "scale": "std"},
    "nu-svr": {"problem": "nu-svr", "solver": "streamed-smo", "nu": 0.4, "C": 0.2},
}
PASSES, PASSES_BY_NU, TOL = 5, 2, 1e-4


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("store") / "s", *store_rows())


@pytest.fixture(autouse=True)
def _every_pass(monkeypatch):
    monkeypatch.setattr("ooc_svm.training.run.CHECKPOINT_SHARE", math.inf)


@pytest.fixture(scope="module", params=RUNS)
def run(request, store, tmp_path_factory):
    """Options, the checkpoint of a run that was stopped, and the run that was not."""
    return stopped(RUNS[request.param], store, tmp_path_factory.mktemp("run") / "c")


@pytest.fixture(scope="module", params=BY_NU)
def run_by_nu(request, store, tmp_path_factory):
    """The same, of a nu problem by streamed SMO."""
    return stopped(BY_NU[request.param], store, tmp_path_factory.mktemp("run") / "c", PASSES_BY_NU)


def stopped(options, store, folder, passes=PASSES):
    train(store, max_passes=passes, tol=TOL, checkpoint=folder, **options)
    return options, folder, train(store, tol=TOL, **options)


def forged(folder, to, **changes):
    """A copy of a checkpoint with other arrays, and right checksums."""
    copy = shutil.copytree(folder, to / "c")
    forge(copy, **changes)
    return copy


def primal(arrays):
    return float(arrays["0/certificate/primal"])


def test_a_state_that_is_whole_goes_on_to_the_same_bits(store, run, tmp_path):
    options, folder, whole = run
    resumed = train(store, tol=TOL, resume=True, checkpoint=forged(folder, tmp_path), **options)
    assert bits(resumed) == bits(whole)
    assert answers(resumed.report) == answers(whole.report)
    assert resumed.report["passes"] == whole.report["passes"]
    again = train(store, tol=TOL, resume=True, checkpoint=tmp_path / "c", **options)
    assert answers(again.report) == answers(whole.report)


def test_a_bound_that_its_cuts_do_not_have_is_not_believed(store, run, tmp_path):
    options, folder, whole = run
    assert whole.report["passes"] > PASSES
    copy = forged(folder, tmp_path, certificate__dual=lambda arrays: primal(arrays) * (1 - 1e-9))
    resumed = train(store, tol=TOL, resume=True, checkpoint=copy, **options)
    assert bits(resumed) == bits(whole)
    assert resumed.report["models"] == whole.report["models"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"certificate__primal": lambda arrays: primal(arrays) * (1 - 1e-9)}, "it says that P is"),
        ({"bundle__offsets": lambda arrays: 1.5 * arrays["0/bundle/offsets"]}, "by its cuts the loss is"),
        (
            {"bundle__beta": lambda arrays: 1e4 * arrays["0/bundle/beta"]},
            "multipliers of its cuts are above C",
        ),
        ({"best": lambda arrays: 1.01 * arrays["0/best"]}, "scores in it|it says that P is"),
        ({"certificate__dual_rounding": lambda arrays: -1.0}, ""),
        ({"certificate__primal_rounding": lambda arrays: math.nan}, ""),
        (
            {
                "certificate__primal": lambda arrays: 1e-3 * primal(arrays),
                "certificate__primal_rounding": lambda arrays: math.inf,
            },
            "",
        ),
        ({"certificate__passes": lambda _: 0, "certificate__history": lambda _: []}, ""),
    ],
)
def test_what_cannot_be_true_is_refused(store, run, tmp_path, changes, message):
    options, folder, _ = run
    copy = forged(folder, tmp_path, **changes)
    with pytest.raises(DamageError, match=rf"checkpoint in .*c does not fit the data.*({message})") as error:
        train(store, tol=TOL, resume=True, checkpoint=copy, **options)
    assert str(copy) in str(error.value)
    assert error.value.exit_code == 4


def test_a_cut_that_is_raised_a_little_is_found_when_it_matters(store, run, tmp_path):
    """Less than the gap there is: it is below the loss at first, and above it near the optimum."""
    options, folder, _ = run

    def raised(arrays):
        offsets, beta = arrays["0/bundle/offsets"].copy(), arrays["0/bundle/beta"]
        gap = primal(arrays) - float(arrays["0/certificate/dual"])
        offsets[np.argmax(beta)] += 0.9 * gap / max(beta.max(), 1e-300)
        return offsets

    copy = forged(folder, tmp_path, bundle__offsets=raised)
    with pytest.raises(DamageError, match="by its cuts the loss is"):
        train(store, tol=1e-9, resume=True, checkpoint=copy, max_passes=400, **options)


def test_a_run_that_says_it_is_done_is_not_believed(store, tmp_path):
    options = {"solver": "ocas", "tol": 1e-3}
    train(store, checkpoint=tmp_path / "done", **options)
    copy = forged(tmp_path / "done", tmp_path, certificate__dual=lambda arrays: primal(arrays) * (1 - 1e-9))
    events = []
    resumed = train(store, resume=True, checkpoint=copy, progress=events.append, **(options | {"tol": 1e-7}))
    assert resumed.report["converged"]
    [row], [fine] = resumed.report["models"], train(store, solver="ocas", tol=1e-9).report["models"]
    assert row["dual"] <= fine["primal"] * (1 + 1e-9)
    assert row["primal"] - row["dual"] <= 1e-7 * row["primal"]


@pytest.mark.parametrize("solver", ["ocas", "streamed-smo", "smo"])
def test_a_run_without_a_bound_is_not_done(store, tmp_path, solver):
    options = {"solver": solver, "bias": "free", "tol": 1e-5}
    whole = train(store, **options)
    train(store, checkpoint=tmp_path, max_passes=2, **options)
    forge(tmp_path, certificate__dual=lambda _: -math.inf)
    resumed = train(store, checkpoint=tmp_path, resume=True, **options)
    [row], [expected] = resumed.report["models"], whole.report["models"]
    assert row["converged"]
    assert row["gap"] <= 1e-5 * row["primal"]
    assert row["dual"] <= expected["primal"]


@pytest.mark.parametrize("solver", ["ocas", "streamed-smo", "smo"])
def test_a_run_that_is_done_without_a_pass_is_refused(store, tmp_path, solver):
    train(store, checkpoint=tmp_path, solver=solver, max_passes=1)
    done = {"passes": lambda _: 0, "history": lambda _: [], "dual": lambda arrays: 0.999 * primal(arrays)}
    forge(tmp_path, **{f"certificate__{name}": change for name, change in done.items()})
    with pytest.raises(DamageError, match="does not fit the data"):
        train(store, checkpoint=tmp_path, solver=solver, resume=True)


class TestByNu:
    def test_a_state_that_is_whole_goes_on_to_the_same_bits(self, store, run_by_nu, tmp_path):
        options, folder, whole = run_by_nu
        resumed = train(store, tol=TOL, resume=True, checkpoint=forged(folder, tmp_path), **options)
        assert bits(resumed) == bits(whole)
        assert answers(resumed.report) == answers(whole.report)

    def test_a_bound_that_its_multipliers_do_not_have_is_not_believed(self, store, run_by_nu, tmp_path):
        options, folder, whole = run_by_nu
        assert whole.report["passes"] > PASSES_BY_NU

        def higher(arrays):
            return primal(arrays) - 1e-9 * abs(primal(arrays))

        copy = forged(folder, tmp_path, certificate__dual=higher)
        resumed = train(store, tol=TOL, resume=True, checkpoint=copy, **options)
        [row], [fine] = resumed.report["models"], train(store, **options | {"tol": 1e-7}).report["models"]
        assert row["converged"]
        assert resumed.report["passes"] > PASSES_BY_NU
        assert row["dual"] <= fine["primal"] + fine["rounding"]

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            (
                {"certificate__primal": lambda arrays: primal(arrays) - 1e-3 * abs(primal(arrays))},
                "that P is",
            ),
            ({"best": lambda arrays: 1.01 * arrays["0/best"]}, "scores in it"),
            ({"first__residents__dual": lambda arrays: 2.0 * arrays["0/first/residents/dual"]}, "outside"),
            (
                {"residents__values": lambda arrays: 2.0 * arrays["0/residents/values"]},
                "resident rows are other",
            ),
            ({"second__number": lambda arrays: arrays["0/first/number"]}, "other row vectors"),
            ({"first__place": lambda arrays: 1e300}, "other row vectors"),
            ({"first__tol": lambda arrays: math.nan}, "does not fit the data"),
            ({"ahead": lambda arrays: [math.nan, 1.0]}, "does not fit the data"),
            ({"scores": lambda arrays: -1.0}, "does not fit the data"),
        ],
    )
    def test_what_cannot_be_true_is_refused(self, store, run_by_nu, tmp_path, changes, message):
        options, folder, _ = run_by_nu
        copy = forged(folder, tmp_path, **changes)
        with pytest.raises(DamageError, match=message) as error:
            train(store, tol=TOL, resume=True, checkpoint=copy, **options)
        assert str(copy) in str(error.value)

"""Resumed runs of solvers that keep cuts, and of SMO: bits of a run that was not stopped, bounds checked."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from types import SimpleNamespace

import google_crc32c
import numpy as np
import pytest
from helpers.forged_states import forge
from helpers.train_data import answers, bits, make_store, store_rows

from ooc_svm import train
from ooc_svm.errors import DamageError
from ooc_svm.solvers import stopping
from ooc_svm.solvers.cutting_plane import bundle
from ooc_svm.system.arrayfile import read_arrays, write_arrays
from ooc_svm.training.checkpoint import CHECKPOINT_FILE

MATRIX, LABELS = store_rows()
RNG = np.random.default_rng(0)
X = RNG.normal(size=(160, 4)).round(2)
RULE = X @ RNG.normal(size=4)
VALUES = 20.0 + RULE + RNG.normal(size=160)
CLASSES = np.where(RULE + 0.5 * (VALUES - 20.0 - RULE) > 0.3, 1.0, -1.0)

SVR = {"problem": "svr", "bias": "free", "C": 0.3, "epsilon": 0.2}
NU_SVR = {"problem": "nu-svr", "nu": 0.4, "C": 0.3}
OCAS = {"solver": "ocas", "tol": 1e-6}
JOACHIMS = {"solver": "cutting-plane", "tol": 1e-6}
ALM = {"solver": "alm", "tol": 1e-4}
KERNEL_SMO = {"solver": "smo", "kernel": "rbf", "gamma": 0.1, "bias": "free", "tol": 1e-6}
LIMITED = {
    "nu-svc by ocas": (X, CLASSES, {"problem": "nu-svc", "nu": 0.6, **OCAS}, 16),
    "nu-svc by cutting-plane": (X, CLASSES, {"problem": "nu-svc", "nu": 0.6, **JOACHIMS}, 18),
    "nu-svr by ocas": (X, VALUES, {**OCAS, **NU_SVR}, 16),
    "svc by ocas": (MATRIX, LABELS, {**OCAS, "bias": "free", "cut_groups": 2}, 20),
    "alm": (MATRIX, LABELS, {"bias": "none", **ALM}, 12),
    "alm, free bias": (MATRIX, LABELS, {"bias": "free", **ALM}, 12),
}
FALLING = {
    "svr": (X, VALUES, {**OCAS, **SVR}, 18),
    "nu-svr": (X, VALUES, {**OCAS, **NU_SVR}, 23),
    "svc": (MATRIX, LABELS, {**OCAS, "bias": "free", "cut_groups": 8}, 19),
    "alm": (MATRIX, LABELS, {"bias": "free", **ALM}, 23),
}
# A column whose products hide those of the others, so that solutions of the master problem may lower D, and
# reads after which they do.
LONG = X * np.array([1e8, 1.0, 1.0, 1.0])
HIDDEN = {
    "roc-area by ocas": (CLASSES, {"problem": "roc-area", "C": 100.0, **OCAS}, 20),
    "svc by inexact-alm": (CLASSES, {"bias": "none", "solver": "inexact-alm", "tol": 1e-6}, 30),
    "svc by alm": (CLASSES, {"bias": "none", "C": 10.0, "solver": "alm", "tol": 1e-6}, 30),
}


@pytest.fixture(autouse=True)
def _every_pass(monkeypatch):
    monkeypatch.setattr("ooc_svm.training.run.CHECKPOINT_SHARE", math.inf)


@pytest.fixture(scope="module")
def alm_run(tmp_path_factory):
    """The checkpoint of a run that was stopped, and the run that was not."""
    folder = tmp_path_factory.mktemp("alm") / "c"
    train(MATRIX, LABELS, checkpoint=folder, max_passes=6, **ALM)
    return folder, train(MATRIX, LABELS, **ALM)


def copied(folder, to):
    to.mkdir()
    for path in folder.iterdir():
        if path.is_file():
            (to / path.name).write_bytes(path.read_bytes())
    return to


def number(arrays, name):
    return float(arrays[f"0/certificate/{name}"])


def out_of_time(monkeypatch, call):
    """The deadline comes inside the master problem of this number."""
    clock, calls = SimpleNamespace(monotonic=time.monotonic), []
    for name in ("solve_master", "solve_free_master"):
        own = getattr(bundle, name)

        def solve(*arguments, own=own, **rest):
            calls.append(own)
            if len(calls) < call:
                return own(*arguments, **rest)
            clock.monotonic = lambda: math.inf
            found = own(*arguments, **rest)
            return replace(found, beta=found.beta * 0.5, in_time=False)

        monkeypatch.setattr(bundle, name, solve)
    monkeypatch.setattr(stopping, "time", clock)


@pytest.mark.parametrize("name", LIMITED)
def test_a_time_limit_inside_a_master_problem_changes_no_bit(tmp_path, monkeypatch, name):
    """Cuts that were dropped for those of the last read had small multipliers where a bias is free."""
    data, labels, options, call = LIMITED[name]
    whole = train(data, labels, **options)
    assert whole.report["passes"] > call
    with monkeypatch.context() as patch:
        out_of_time(patch, call)
        limited = train(data, labels, checkpoint=tmp_path, time_limit=1e6, **options)
    assert limited.report["stop_reason"] == "time-limit"
    # The limit counts the time before, so this run has none left.
    late = train(data, labels, checkpoint=tmp_path, resume=True, time_limit=1e-9, **options)
    assert late.report["stop_reason"] == "time-limit"
    resumed = train(data, labels, checkpoint=tmp_path, resume=True, **options)
    assert bits(resumed) == bits(whole)
    assert resumed.report["models"] == whole.report["models"]
    assert resumed.report["passes"] == whole.report["passes"]


@pytest.mark.parametrize("name", ["nu-svc by ocas", "svc by ocas"])
def test_a_bound_of_cuts_that_are_gone_is_not_believed(tmp_path, monkeypatch, name):
    data, labels, options, call = LIMITED[name]
    whole = train(data, labels, max_passes=call, **options)
    with monkeypatch.context() as patch:
        out_of_time(patch, call)
        train(data, labels, checkpoint=tmp_path, time_limit=1e6, **options)
    forge(tmp_path, certificate__dual=lambda arrays: number(arrays, "primal") - 1e-12)
    late = train(data, labels, checkpoint=tmp_path, resume=True, time_limit=1e-9, **options)
    [row], [expected] = late.report["models"], whole.report["models"]
    assert row["dual"] <= expected["dual"] + 0.1 * expected["gap"]
    assert not row["converged"]


@pytest.mark.parametrize("name", FALLING)
def test_a_resume_without_a_read_changes_nothing(tmp_path, name):
    """The newest solution of the master problem has a bound that is below the one before."""
    data, labels, options, passes = FALLING[name]
    stopped = train(data, labels, checkpoint=tmp_path, max_passes=passes, **options)
    again = train(data, labels, checkpoint=tmp_path, max_passes=passes, resume=True, **options)
    assert bits(again) == bits(stopped)
    assert answers(again.report) == answers(stopped.report)


@pytest.mark.parametrize("name", HIDDEN)
def test_a_bound_that_rounded_products_hide_is_not_lost(tmp_path, name):
    labels, options, reads = HIDDEN[name]
    whole = train(LONG, labels, max_passes=40, **options)
    stopped = train(LONG, labels, checkpoint=tmp_path, max_passes=reads, **options)
    resumed = train(LONG, labels, checkpoint=tmp_path, resume=True, max_passes=40, **options)
    assert bits(resumed) == bits(whole)
    assert resumed.report["models"] == whole.report["models"]
    [row], [before] = resumed.report["models"], stopped.report["models"]
    # What never falls is D less its rounding: a D that is better known may be a little smaller.
    assert row["dual"] >= before["dual"] - before["rounding"] > 0.0


def test_a_bound_that_the_planes_of_alm_do_not_have_is_not_believed(alm_run, tmp_path):
    folder, whole = alm_run
    place = copied(folder, tmp_path / "c")
    forge(place, certificate__dual=lambda arrays: number(arrays, "primal") * (1.0 - 1e-9))
    resumed = train(MATRIX, LABELS, checkpoint=place, resume=True, **ALM)
    assert bits(resumed) == bits(whole)
    assert resumed.report["models"] == whole.report["models"]


def higher_planes(arrays):
    return 1.5 * arrays["0/bundle/offsets"]


def lower_primal(arrays):
    return number(arrays, "primal") - 1.9 * wide_rounding(arrays)


def wide_rounding(arrays):
    """As wide as the gap."""
    return number(arrays, "primal") - number(arrays, "dual")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bundle__offsets": higher_planes}, "by its planes"),
        (
            {"certificate__primal_rounding": wide_rounding, "certificate__primal": lower_primal},
            "it says that P is",
        ),
        (
            {"certificate__primal": lambda arrays: number(arrays, "primal") * (1 - 1e-10)},
            "it says that P is",
        ),
        ({"sizes": lambda arrays: 0.9 * arrays["0/sizes"]}, "rows are larger"),
        ({"best": lambda arrays: 1.01 * arrays["0/best"]}, "P and D"),
        ({"bundle__beta": lambda arrays: 1e4 * arrays["0/bundle/beta"]}, "P and D"),
    ],
)
def test_what_cannot_be_true_of_alm_is_refused(alm_run, tmp_path, changes, message):
    place = copied(alm_run[0], tmp_path / "c")
    forge(place, **changes)
    with pytest.raises(DamageError, match=f"does not fit the data: {message}"):
        train(MATRIX, LABELS, checkpoint=place, resume=True, **ALM)


def test_smo_leaves_the_scores_that_were_saved(tmp_path):
    """They are summed in the order of the rows in memory, and probabilities are fitted to them."""
    options = {**KERNEL_SMO, "calibrate": "isotonic", "max_passes": 5}
    store = make_store(tmp_path / "s", MATRIX, LABELS)
    whole = train(store, checkpoint=tmp_path / "c", **options)
    resumed = train(store, checkpoint=tmp_path / "c", resume=True, **options)
    for one, other in zip(resumed.calibration.maps, whole.calibration.maps, strict=True):
        assert one.scores.tobytes() == other.scores.tobytes()
        assert one.probabilities.tobytes() == other.probabilities.tobytes()


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_smo_refuses_scores_that_its_best_point_does_not_have(tmp_path, kernel):
    options = {"solver": "smo", "bias": "free", "tol": 1e-6, "kernel": kernel, "max_passes": 3}
    train(MATRIX, LABELS, checkpoint=tmp_path, **options)
    for path in tmp_path.glob("checkpoint-*.state"):
        content, arrays = read_arrays(path, CHECKPOINT_FILE)
        saved = path.with_suffix(".vectors")
        vectors = np.fromfile(saved).reshape(-1, len(LABELS))
        [place] = [k for k, name in enumerate(content["vectors"]["names"]) if name.endswith("best")]
        vectors[place, 7] += 1e-6
        vectors.tofile(saved)
        content["vectors"]["crc32c"] = google_crc32c.extend(0, vectors.tobytes())
        with path.open("wb") as file:
            write_arrays(file, CHECKPOINT_FILE, content, arrays)
    with pytest.raises(DamageError, match="scores in it are not those of its best point"):
        train(MATRIX, LABELS, checkpoint=tmp_path, resume=True, **options)


@pytest.mark.parametrize("solver", ["ocas", "cutting-plane"])
@pytest.mark.parametrize("problem", ["nu-svc", "nu-svr"])
def test_a_limit_in_the_first_read_leaves_a_bound(problem, solver):
    """By nu no D is known without a solution."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(80, 3))
    values = X @ [1.0, -1.0, 0.5] + 0.2 * rng.normal(size=80)
    labels = np.sign(values) if problem == "nu-svc" else values
    model = train(X, labels, problem=problem, solver=solver, nu=0.3, time_limit=1e-9)
    [row] = model.report["models"]
    assert row["stop_reason"] == "time-limit"
    whole = train(X, labels, problem=problem, solver=solver, nu=0.3, tol=1e-6).report["models"][0]
    assert row["dual"] <= whole["primal"]
    assert whole["dual"] <= row["primal"]

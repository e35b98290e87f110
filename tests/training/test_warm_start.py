"""Streamed SMO that begins where another run ended: the same optimum, in fewer reads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.losses import LOSSES
from helpers.streamed_data import (
    FEW,
    KINDS,
    assert_certified,
    make_rows,
    make_stores,
    make_weights,
    options_of,
    problem_of,
)
from helpers.train_data import answers, bits, make_store
from scipy import sparse

from ooc_svm import train
from ooc_svm.errors import DamageError, InputError, UsageError
from ooc_svm.model.file import save_model
from ooc_svm.solvers.streamed_smo import effort
from ooc_svm.solvers.streamed_smo.effort import Effort
from ooc_svm.solvers.streamed_smo.state import SmoState

pytestmark = pytest.mark.usefixtures("few_held")


@pytest.fixture(scope="module")
def rows():
    return make_rows()


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    return make_stores(tmp_path_factory.mktemp("stores"))


def certified(rows, model, tol, loss, C=1.0, bias="penalized"):
    """Whether the certificate encloses the optimum of an independent solver."""
    matrix, labels, values = rows
    t = labels if problem_of(loss) == "svc" else values
    assert_certified(model, matrix, t, tol=tol, loss=loss, C=C, omega=make_weights(), bias=bias)


@pytest.mark.parametrize("bias", ["none", "penalized", "free"])
@pytest.mark.parametrize("loss", LOSSES)
class TestState:
    def test_another_c_takes_fewer_reads_to_the_same_optimum(self, stores, rows, tmp_path, loss, bias):
        store = stores[problem_of(loss), "few"]
        own = options_of(loss, bias=bias, resident=0.3)
        train(store, C=1.0, tol=1e-4, checkpoint=tmp_path / "state", **own)
        reads = {"cold": 0, "warm": 0}
        for C in (0.3, 1.0, 3.0):
            cold = train(store, C=C, tol=1e-4, **own)
            warm = train(store, C=C, tol=1e-4, warm_start=tmp_path / "state", **own)
            certified(rows, warm, 1e-4, loss, C, bias)
            assert warm.report["passes"] <= cold.report["passes"]
            reads["cold"] += cold.report["passes"]
            reads["warm"] += warm.report["passes"]
        assert reads["warm"] < reads["cold"]

    def test_a_model_is_the_first_point(self, stores, rows, tmp_path, loss, bias):
        store = stores[problem_of(loss), "few"]
        own = options_of(loss, bias=bias, resident=0.3)
        exact = train(store, tol=1e-5, **own)
        save_model(exact, tmp_path / "model")
        warm = train(store, tol=1e-3, max_passes=1, warm_start=tmp_path / "model", **own)
        best = exact.report["models"][0]["primal"]
        assert warm.report["models"][0]["primal"] == pytest.approx(best, rel=1e-5)
        warm = train(store, tol=1e-4, warm_start=tmp_path / "model", **own)
        certified(rows, warm, 1e-4, loss, bias=bias)


@pytest.mark.parametrize("share", [0.1, 1.0])
@pytest.mark.parametrize("bias", ["none", "penalized", "free"])
@pytest.mark.parametrize("loss", ["hinge", "squared-hinge", "logistic"])
def test_a_far_larger_c_takes_hardly_more_reads_than_from_nothing(
    stores, tmp_path, monkeypatch, loss, bias, share
):
    found = []
    is_far = SmoState.is_far

    def spy(self, model, ratio):
        found.append(is_far(self, model, ratio))
        return found[-1]

    monkeypatch.setattr(SmoState, "is_far", spy)
    own = options_of(loss, bias=bias, resident=share)
    train(stores["svc", "few"], C=1e-3, checkpoint=tmp_path / "state", **own)
    cold = train(stores["svc", "few"], C=1e3, **own)
    warm = train(stores["svc", "few"], C=1e3, warm_start=tmp_path / "state", **own)
    assert found == [True]
    assert warm.report["converged"]
    [one], [other] = (model.report["models"] for model in (warm, cold))
    for lower, upper in ((one, other), (other, one)):
        assert lower["dual"] - lower["rounding"] <= upper["primal"]
    assert warm.report["passes"] <= cold.report["passes"] + 2


def test_each_model_begins_with_the_nearest_of_its_class(rows, tmp_path):
    matrix = rows[0]
    store = make_store(tmp_path / "s", matrix, (matrix.sum(axis=1) * 3 % 3).round(), **FEW)
    own = {"bias": "free", "resident": 0.2, "tol": 1e-6}
    train(store, C=(0.1, 10.0), checkpoint=tmp_path / "state", **own)
    cold = train(store, C=(8.0, 0.05, 0.2), **own)
    warm = train(store, C=(8.0, 0.05, 0.2), warm_start=tmp_path / "state", **own)
    assert len(warm.report["models"]) == 3 * len(warm.classes) > 6
    for one, other in zip(warm.report["models"], cold.report["models"], strict=True):
        assert one["converged"]
        assert one["passes"] <= other["passes"]
        assert (one["label"], one["C"]) == (other["label"], other["C"])
    assert 2 * sum(row["passes"] for row in warm.report["models"]) <= sum(
        row["passes"] for row in cold.report["models"]
    )


def test_a_smaller_resident_set(stores, rows, tmp_path):
    store = stores["svc", "few"]
    train(store, C=4.0, resident=0.5, checkpoint=tmp_path / "state")
    warm = train(store, C=2.0, resident=0.05, tol=1e-4, warm_start=tmp_path / "state")
    certified(rows, warm, 1e-4, "hinge", 2.0)
    assert warm.report["resident"] == pytest.approx(0.05, rel=0.01)


@pytest.mark.parametrize("shares", [(0.05, 0.3), (0.3, 0.05), (0.05, 0.6), (0.6, 0.3)])
@pytest.mark.parametrize("name", ["few", "many"])
def test_rounds_that_are_cut_in_another_way(stores, rows, tmp_path, monkeypatch, name, shares):
    """Steps that wait for the theta of their round are not taken by that of another one."""
    # With a share of .02 the smallest tolerance takes hundreds of reads.
    rest = 0.1, 0.03, 0.03, 0.1, 60.0, 0.67
    efforts = {0.05: Effort(8, 8, 1.0, 2, 1, *rest, many=2.0), 0.3: Effort(8, 8, 1.0, 1, 1, *rest, many=2.0)}
    efforts[0.6] = Effort(5, 5, 1.0, 1, 1, *rest, many=2.0)
    before, after = shares
    store = stores["svc", name]
    monkeypatch.setattr(effort, "EFFORTS", {0: efforts[before]})
    train(store, C=1.0, resident=before, max_passes=2, tol=1e-9, checkpoint=tmp_path / "state")
    monkeypatch.setattr(effort, "EFFORTS", {0: efforts[after]})
    for tol, C in ((1e-1, 1.0), (1e-5, 1.0), (1e-5, 2.0)):
        warm = train(store, C=C, resident=after, tol=tol, warm_start=tmp_path / "state")
        [found] = warm.report["models"]
        assert found["converged"]
        assert found["dual"] <= found["primal"]
        certified(rows, warm, tol, "hinge", C)


def test_a_checkpoint_of_another_cut_is_not_gone_on_from(stores, tmp_path, monkeypatch):
    store, options = stores["svc", "few"], {"tol": 1e-9, "checkpoint": tmp_path / "state"}
    train(store, max_passes=2, **options)
    small = effort.EFFORTS[0]
    monkeypatch.setattr(effort, "EFFORTS", {0: replace(small, lanes=2)})
    with pytest.raises(DamageError, match="does not fit the data"):
        train(store, max_passes=3, resume=True, **options)


@pytest.mark.parametrize("options", KINDS)
def test_threads_and_resumption_change_no_bits(stores, tmp_path, options):
    store = stores[options["problem"], "few"]
    train(store, **options, checkpoint=tmp_path / "state")
    other = options | {"C": [1.5, 3.0], "tol": 1e-7, "warm_start": tmp_path / "state"}
    whole = train(store, **other, threads=1)
    assert bits(train(store, **other, threads=3)) == bits(whole)
    train(store, **other | {"max_passes": 2}, checkpoint=tmp_path / "own")
    gone_on = train(store, **other, checkpoint=tmp_path / "own", resume=True)
    assert answers(gone_on.report) == answers(whole.report)


def test_classes_are_found_by_their_names(rows, tmp_path):
    """Of names, the numbers are others where a class is gone that came before them in the order."""
    matrix, labels, _ = rows
    names = np.array(["b", "c", "d"])[(np.arange(len(labels)) % 3 + (labels > 0)) % 3]
    # A row of zeros costs C in each model, whatever the weights are.
    more = sparse.vstack([matrix, sparse.csr_array((1, matrix.shape[1]))])
    own = {"bias": "none", "tol": 1e-6}
    before = train(more, np.append(names, "a"), **own)
    save_model(before, tmp_path / "model")
    after = train(matrix, names, warm_start=tmp_path / "model", max_passes=1, **own)
    expected = {row["label"]: row["primal"] - 1.0 for row in before.report["models"]}
    assert [row["label"] for row in after.report["models"]] == ["b", "c", "d"]
    for row in after.report["models"]:
        assert row["primal"] == pytest.approx(expected[row["label"]], rel=1e-5)


class TestRefused:
    @pytest.fixture
    def state(self, stores, tmp_path):
        train(stores["svc", "few"], checkpoint=tmp_path / "state", tol=0.1)
        return tmp_path / "state"

    def test_nothing_there(self, stores, tmp_path):
        with pytest.raises(InputError, match="does not exist"):
            train(stores["svc", "few"], warm_start=tmp_path / "absent")
        with pytest.raises(InputError, match="holds no checkpoint"):
            train(stores["svc", "few"], warm_start=tmp_path)

    @pytest.mark.parametrize(
        "changed", [{"bias": "free"}, {"loss": "squared-hinge"}, {"scale": "std"}, {"lanes": 2}]
    )
    def test_other_options(self, stores, state, changed):
        with pytest.raises(DamageError, match="other options apart from C"):
            train(stores["svc", "few"], warm_start=state, **changed)

    def test_other_data(self, stores, state):
        with pytest.raises(DamageError, match="on other data"):
            train(stores["svc", "many"], warm_start=state)

    def test_another_solver(self, stores, state):
        with pytest.raises(UsageError, match="warm_start is for the solver 'streamed-smo'"):
            train(stores["svc", "few"], warm_start=state, solver="ocas")

    def test_a_damaged_state(self, stores, state):
        for path in state.iterdir():
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 1
            path.write_bytes(content)
        with pytest.raises(DamageError):
            train(stores["svc", "few"], warm_start=state)

    def test_models_of_something_else(self, stores, rows, tmp_path):
        save_model(train(stores["svr", "few"], problem="svr", tol=0.1), tmp_path / "values")
        with pytest.raises(UsageError, match="another problem"):
            train(stores["svc", "few"], warm_start=tmp_path / "values")
        save_model(train(rows[0][:, :9], rows[1], tol=0.1), tmp_path / "narrow")
        with pytest.raises(InputError, match="a model of 9 features, the data has 30"):
            train(stores["svc", "few"], warm_start=tmp_path / "narrow")

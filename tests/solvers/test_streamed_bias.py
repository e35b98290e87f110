"""A free bias far from 0 and small shares: few reads, and the same bits however a run is divided."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.losses import LOSSES, is_regression
from helpers.smo_runs import Run
from helpers.streamed_data import options_of
from helpers.train_data import answers, bits, make_store
from scipy import sparse

from ooc_svm import train
from ooc_svm.solvers.streamed_smo import plan, solver
from ooc_svm.solvers.streamed_smo.resident_rows import ResidentRows
from ooc_svm.solvers.streamed_smo.state import SmoState
from ooc_svm.training.checkpoint import _flatten, _unflatten, _upgrade

pytestmark = pytest.mark.usefixtures("few_held")

VALUES = [loss for loss in LOSSES if is_regression(loss)]
READS = 6


def rule(n_rows, n_features, seed=1):
    """Rows, and scores by a noisy rule."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_rows, n_features))
    return x, x @ rng.normal(size=n_features) + 0.3 * rng.normal(size=n_rows)


def reads(x, t, **options):
    """Reads to a certified gap."""
    row = train(x, t, max_passes=100, **options).report["models"][0]
    assert row["converged"]
    return row["passes"]


def most_reads(x, t, loss):
    """As many as the same problem takes where nothing is far."""
    found = reads(x, t, resident=0.1, **options_of(loss, bias="free"))
    # Of the same data without a bias; where all rows are free, b changes each of them
    assert found <= max(READS, reads(x, t, resident=0.1, **options_of(loss, bias="none")) + 3)
    return max(READS, found)


@pytest.mark.parametrize("size", [(200, 5), (5000, 20)], ids=str)
@pytest.mark.parametrize("loss", VALUES)
def test_far_targets_take_few_reads(loss, size):
    x, s = rule(*size)
    options, most = options_of(loss, bias="free"), most_reads(x, s - s.mean(), loss)
    for t in (s + 1e6, s - 1e9):
        assert reads(x, t, resident=0.1, **options) <= most


@pytest.mark.parametrize("size", [(200, 5), (5000, 20)], ids=str)
@pytest.mark.parametrize("loss", LOSSES)
def test_rows_far_from_the_origin_take_few_reads(loss, size):
    near, far = [], []
    # The feature of the bias is another one, so steps come in another order: one or two reads of a run.
    for seed in range(1, 5):
        x, s = rule(*size, seed)
        t = s - s.mean() if is_regression(loss) else np.where(s > 0.0, 1.0, -1.0)
        near.append(most_reads(x - x.mean(axis=0), t, loss))
        far.append(reads(x + 100.0, t, resident=0.1, **options_of(loss, bias="free")))
    assert sum(far) <= 1.1 * sum(near)


@pytest.mark.parametrize("loss", LOSSES)
def test_two_rows_of_very_different_weight(loss):
    t = np.array([1.0, -1.0])
    options = {"sample_weight": np.array([0.001, 0.5]), "resident": 0.1}
    found = reads(np.array([[0.3, 1.0], [-0.7, 0.2]]), t, **options, **options_of(loss, bias="free"))
    # The slopes of squared losses have no bound: b is where they are alike, 500 times as far from one row.
    assert found <= (8 if loss.startswith("squared") else READS)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_share_of_less_than_a_row_holds_some(loss):
    x, s = rule(200, 5)
    t = s if is_regression(loss) else np.where(s > 0.0, 1.0, -1.0)
    model = train(x, t, resident=1e-4, **options_of(loss, bias="free"))
    assert model.report["converged"]
    assert model.report["resident"] == pytest.approx(8 / 200, abs=1e-3)


@pytest.mark.parametrize("share", [0.5, 0.76])
@pytest.mark.parametrize("bias", ["none", "free"])
def test_little_resident_and_a_large_cost(bias, share, monkeypatch):
    """One-hot attributes with many rows inside the margin; more are resident than 2 % of so few."""
    monkeypatch.setattr(plan, "FEW_ELEMENTS", 1 << 16)
    rng = np.random.default_rng(0)
    columns = np.floor(rng.random((5000, 14)) ** 2 * 8) + 8 * np.arange(14)
    indptr = np.arange(5001) * 14
    matrix = sparse.csr_array((np.ones(70_000), columns.ravel().astype(int), indptr), shape=(5000, 112))
    s = matrix @ rng.normal(size=112)
    t = np.where(s - np.quantile(s, share) + 1.2 * rng.normal(size=5000) > 0.0, 1.0, -1.0)
    assert reads(matrix, t, C=100.0, bias=bias, resident=0.02) <= 30


CUTS = {
    "few": {"chunk_elements": 4000, "chunk_rows": 500, "block_rows": 500},
    "many": {"chunk_elements": 400, "chunk_rows": 40, "block_rows": 40},
}


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("blocks", CUTS)
@pytest.mark.parametrize("loss", ["squared-hinge", "epsilon-insensitive"])
class TestSameBits:
    """With a free bias, a center and a mean row."""

    @pytest.fixture
    def run(self, tmp_path, loss, blocks, lanes, monkeypatch):
        x, s = rule(1000, 6)
        t = s + 70.0 if is_regression(loss) else np.where(s > 0.0, 1.0, -1.0)
        store = make_store(tmp_path / "s", sparse.csr_array(x + 9.0), t, **CUTS[blocks])
        options = options_of(loss, bias="free", tol=1e-7, lanes=lanes, resident=0.1)
        means = []

        def trained(**more):
            return train(store, **options | more)

        place_rows = solver.place_rows

        def watched(*arguments):
            found = yield from place_rows(*arguments)
            means.append(len(found[1]))
            return found

        monkeypatch.setattr(solver, "place_rows", watched)
        trained.means = means
        return trained

    def test_on_threads_and_after_a_stop(self, run, tmp_path):
        whole = run(threads=1)
        assert run.means[-1] == 6
        assert whole.report["passes"] > 2
        assert bits(run(threads=2)) == bits(whole)
        for number in range(1, whole.report["passes"] + 1):
            saved = {"checkpoint": tmp_path / "c", "max_passes": number, "resume": number > 1}
            part = run(threads=1 + number % 2, **saved)
            assert part.report["passes"] == number
        assert bits(part) == bits(whole)
        assert answers(part.report)[1:] == answers(whole.report)[1:]


@pytest.mark.parametrize("bias", ["none", "penalized", "free"])
def test_a_state_of_a_release_without_centers_goes_on(bias):
    """What it did not have is given to it: no center, no mean, and roundings that are not known yet."""
    run = Run("epsilon-insensitive", bias=bias)
    for _ in run.moments():
        pass
    arrays, texts = {}, {}
    _flatten("0", run.state, arrays, texts)
    new = {name for name in arrays if "rounding" in name}
    new |= {f"0/{name}" for name in ("free", "center", "unit", "mean")}
    assert new <= arrays.keys()
    for name in new:
        del arrays[name]
    held = run.state.multipliers.working_set
    n_features = run.model.space.n_features
    empty = ResidentRows(held.rows.capacity, np.empty(0), False)
    restored = SmoState.fresh(n_features, len(run.rounds), empty)
    _upgrade("0", restored, arrays)
    assert new <= arrays.keys()
    _unflatten("0", restored, arrays, texts)
    assert restored.is_sound(n_features, len(run.rounds))
    assert (restored.center, restored.unit, len(restored.mean)) == (0.0, 1.0, 0)
    assert restored.rounding.scores > 0.0
    assert restored.certificate.passes == run.state.certificate.passes
    assert restored.best.tobytes() == run.state.best.tobytes()

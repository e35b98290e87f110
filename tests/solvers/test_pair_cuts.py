"""Cuts over pairs of rows that are taken in the read that finds the scores of their points."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.pairs_data import (
    KINDS,
    Setup,
    all_pairs,
    assert_primal_of_all_pairs,
    data_of,
    pair_weights,
    ranked_rows,
)
from helpers.problems_data import cut_rows
from scipy import sparse

import ooc_svm
from ooc_svm.data.blocks import tiles
from ooc_svm.data.matrix import MatrixSource
from ooc_svm.engine.local import LocalEngine
from ooc_svm.ops import rows as row_ops
from ooc_svm.solvers.cutting_plane.pair_cuts import Forecast
from ooc_svm.solvers.stopping import CERTIFIED

THETAS = np.array([0.0, 0.3, 1.0, 1.7])


@pytest.fixture(autouse=True)
def closed_vectors():
    """Row vectors that a test made are closed at its end."""
    yield
    while Setup.opened:
        Setup.opened.pop().close()


class Read:
    """One read from a best point ``moved`` towards w, with the cuts it brought and the losses of groups."""

    def __init__(self, kind, *, groups=1, n_bins=16, forecast=None, blocks=6, size=1.0):
        matrix, labels, qid, weights = data_of(kind)
        sizes = {"groups": groups, "trials": 3, "n_bins": 0 if qid is not None else n_bins, "blocks": blocks}
        self.setup = Setup(matrix, labels, qid=qid, weights=weights, **sizes)
        self.matrix, self.groups, self.weights = matrix, groups, weights
        self.pairs = all_pairs(labels, qid)
        omega = pair_weights(self.pairs, weights, qid)
        self.share = omega / omega.sum()
        rng = np.random.default_rng(3)
        start, end, self.w = size * rng.normal(size=(3, matrix.shape[1]))
        best, previous = self.setup.oracle.vectors
        self.setup.vectors[best].write(0, matrix @ start)
        self.setup.vectors[previous].write(0, matrix @ end)
        self.moved = start + 0.4 * (end - start)
        if forecast is None:
            forecast = self.forecast(start, end)
        reading = self.setup.oracle.read(self.w, 0.4, THETAS, forecast, None, None)
        cuts, _, self.forecast_found = self.setup.answer(reading)
        self.late, self.cuts = cuts[0], cuts[1:]

    def forecast(self, start, end):
        size = self.setup.oracle.forecast_size
        mean = np.average(self.matrix.toarray(), axis=0, weights=self.weights)
        spread = np.std(self.matrix @ self.w)
        return Forecast(spread, mean @ start, mean @ end, mean).numbers[:size]

    def point(self, theta):
        return self.moved + theta * (self.w - self.moved)

    def losses(self, v):
        scores = self.matrix @ v
        each = self.share * np.maximum(0.0, 1.0 - (scores[self.pairs[0]] - scores[self.pairs[1]]))
        return np.bincount(self.pairs[0] % self.groups, weights=each, minlength=self.groups)

    def check_bounds(self):
        """No cut is above the losses anywhere."""
        rng = np.random.default_rng(5)
        assert len(self.cuts) == len(THETAS)
        for v in [
            *map(self.point, THETAS),
            *rng.normal(size=(20, len(self.w))),
            *(100.0 * np.eye(3, len(self.w))),
        ]:
            for cut in self.cuts:
                assert (self.losses(v) >= cut.offsets - cut.planes @ v - 1e-9 * (1 + np.abs(v).sum())).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("n_bins", [2, 3, 64])
@pytest.mark.parametrize("size", [0.1, 1.0, 30.0])
def test_no_cut_is_above_the_loss(kind, groups, n_bins, size):
    read = Read(kind, groups=groups, n_bins=n_bins, size=size)
    read.check_bounds()
    np.testing.assert_allclose(
        read.late.offsets - read.late.planes @ read.moved, read.losses(read.moved), atol=1e-12
    )


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "groups" not in kind])
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 1e300, -1e300])
def test_a_wrong_forecast_spoils_no_cut(kind, number):
    size = Setup(*data_of(kind)[:2], trials=3, n_bins=4).oracle.forecast_size
    with np.errstate(all="ignore"):
        spread = np.concatenate([[number], np.zeros(size - 1)])
        for read in (Read(kind, n_bins=4, forecast=f) for f in (np.full(size, number), spread)):
            read.check_bounds()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "groups" not in kind])
@pytest.mark.parametrize("groups", [1, 3])
def test_fine_bins_make_tight_cuts(kind, groups):
    looseness = []
    for n_bins in (8, 32, 128, 512):
        read = Read(kind, groups=groups, n_bins=n_bins, size=3.0)
        values = [cut.offsets - cut.planes @ read.point(t) for t, cut in zip(THETAS, read.cuts, strict=True)]
        losses = [read.losses(read.point(theta)) for theta in THETAS]
        looseness.append(float(np.max(np.array(losses) - np.array(values))))
    assert looseness == sorted(looseness, reverse=True)
    assert looseness[-1] < 0.01 * float(np.max(losses))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "groups" in kind])
@pytest.mark.parametrize("groups", [1, 3])
def test_queries_inside_a_block_are_counted_exactly(kind, groups):
    read = Read(kind, groups=groups, blocks=1)
    for theta, cut in zip(THETAS, read.cuts, strict=True):
        point = read.point(theta)
        np.testing.assert_allclose(cut.offsets - cut.planes @ point, read.losses(point), atol=1e-12)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "groups" in kind])
def test_long_queries_are_left_to_the_late_cut(monkeypatch, kind):
    monkeypatch.setattr("ooc_svm.solvers.cutting_plane.pair_cuts.LONGEST_QUERY", 3)
    read = Read(kind)
    read.check_bounds()
    point = read.point(1.0)
    whole = read.losses(point).sum()
    assert 0.0 < float((read.cuts[2].offsets - read.cuts[2].planes @ point).sum()) < 0.9 * whole
    matrix, labels, qid, weights = data_of(kind)
    setup = Setup(matrix, labels, qid=qid, weights=weights, trials=3)
    assert setup.solve(tol=1e-4).state.certificate.stop_reason == CERTIFIED


@pytest.mark.parametrize("elements", [1, 7, 40, 10**6])
def test_tiles_keep_queries_whole(elements):
    matrix, _, qid, _ = data_of("groups")
    heads = np.concatenate([[1], qid[1:] != qid[:-1]]).astype(np.uint8)
    heads[0] = 0
    block = MatrixSource(matrix, np.zeros(len(qid))).read_block(0)
    plain, whole = (
        list(tiles(block.indptr, elements)),
        list(tiles(block.indptr, elements, query_starts=heads)),
    )
    for found in (plain, whole):
        assert [first for first, _ in found] == [0, *(last for _, last in found[:-1])]
        assert found[-1][1] == len(qid)
    assert all(heads[first] for first, _ in whole[1:])
    for first, last in whole:
        inside = np.flatnonzero(heads[first + 1 : last])
        assert not len(inside) or block.indptr[first + 1 + inside[-1]] - block.indptr[first] <= elements


@pytest.mark.parametrize("kind", ["ranks", "weighted"])
def test_the_forecast_is_of_the_rows(kind):
    read = Read(kind, n_bins=64)
    found = Forecast.of(read.forecast_found)
    mean = np.average(read.matrix.toarray(), axis=0, weights=read.weights)
    np.testing.assert_allclose(found.mean_row, mean, atol=1e-12)
    assert found.at_best == pytest.approx(mean @ read.moved)
    assert found.at_end == pytest.approx(mean @ read.w)
    scores = read.matrix @ read.point(THETAS[0])
    kept = scores if read.weights is None else scores[read.weights > 0.0]
    assert 0.7 * np.std(kept) < found.spread < 1.3 * np.std(kept)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("groups", "trials", "n_bins"), [(1, 1, 16), (1, 3, 64), (4, 3, 8)])
@pytest.mark.parametrize("C", [0.1, 10.0, 1000.0])
@pytest.mark.parametrize("tol", [1e-5, 1e-4])
def test_the_primal_value_is_that_of_all_pairs(kind, groups, trials, n_bins, C, tol):
    matrix, labels, qid, weights = data_of(kind, seed=4)
    sizes = {"groups": groups, "trials": trials, "precision": 0.01 * tol}
    setup = Setup(
        matrix, labels, C, qid=qid, weights=weights, n_bins=0 if qid is not None else n_bins, **sizes
    )
    run = setup.solve(tol=tol)
    assert_primal_of_all_pairs(setup, run, (matrix, labels, qid, weights), C)


@pytest.mark.parametrize("kind", ["two ranks", "groups"])
def test_trial_points_save_reads(kind):
    qid = np.arange(6000) // 25 if kind == "groups" else None
    reads = np.zeros(2)
    # How many reads one data set takes follows from the last bits, and these from the processor.
    for seed in range(6):
        matrix, labels = ranked_rows(6000, 20, 2 if kind == "two ranks" else 4, seed=seed)
        for with_trials, sizes in enumerate(({}, {"trials": 3, "n_bins": 0 if qid is not None else 256})):
            run = Setup(matrix, labels, 3000.0, qid=qid, **sizes).solve(tol=1e-3)
            reads[with_trials] += run.state.certificate.passes
    assert reads[1] <= 0.9 * reads[0]


@pytest.mark.parametrize("problem", ["roc-area", "ordinal", "ranking"])
def test_scaled_columns_and_several_values_of_c_share_reads(problem):
    matrix, labels = ranked_rows(400, 12, 2 if problem == "roc-area" else 4, seed=8)
    qid = np.arange(400) // 20 if problem == "ranking" else None
    matrix = sparse.csr_matrix(matrix @ sparse.diags(np.logspace(-2, 2, 12)))
    options = {"problem": problem, "qid": qid, "scale": "std", "tol": 1e-4}
    together = ooc_svm.train(matrix, labels, C=(1.0, 50.0), **options)
    assert together.report["cut_points"] > 1
    assert together.report["passes"] == 1 + max(m["passes"] for m in together.report["models"])
    for C, found in zip((1.0, 50.0), together.report["models"], strict=True):
        alone = ooc_svm.train(matrix, labels, C=C, **options).report["models"][0]
        assert found["converged"]
        assert alone["primal"] - alone["gap"] <= found["primal"] <= alone["primal"] + found["gap"]


@pytest.mark.parametrize("kind", ["weighted", "weighted groups"])
def test_threads_change_no_bits(kind):
    matrix, labels, qid, weights = data_of(kind)
    found = []
    for threads in (1, 3):
        sizes = {"groups": 2, "trials": 3, "n_bins": 0 if qid is not None else 8, "precision": 1e-5}
        setup = Setup(matrix, labels, 10.0, qid=qid, weights=weights, **sizes)
        source = MatrixSource(matrix, labels, spans=cut_rows(matrix, 8))
        with LocalEngine(source, setup.vectors, threads=threads) as setup.engine:
            found.append(setup.solve(max_passes=6).state.w.tobytes())
    assert found[0] == found[1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, None])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_are_added_to_their_slots(dtype, weighted):
    matrix, _ = ranked_rows(50, 7, seed=1)
    rng = np.random.default_rng(1)
    values = None if dtype is None else matrix.data.astype(dtype)
    rows = sparse.csr_matrix(
        (np.ones(matrix.nnz) if values is None else values, matrix.indices, matrix.indptr)
    )
    numbers = rng.integers(0, 6, (2, 40)).astype(np.int32)
    weights = rng.integers(0, 3, (2, 40)) / 4 if weighted else None
    out = np.zeros((6, 7))
    block = (
        row_ops.unsigned(matrix.indptr.astype(np.int64)),
        row_ops.unsigned(matrix.indices.astype(np.int32)),
        values,
    )
    row_ops.add_to_cells(*block, 5, 45, numbers, weights, out)
    expected = np.zeros((6, 7))
    for place, row in np.ndindex(numbers.shape):
        weight = 1.0 if weights is None else weights[place, row]
        expected[numbers[place, row]] += weight * rows[[5 + row]].toarray()[0]
    np.testing.assert_allclose(out, expected, atol=1e-12)

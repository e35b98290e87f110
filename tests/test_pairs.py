"""Problems over pairs of rows, against all pairs listed one by one."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
from pairs_data import all_pairs, group_numbers, optimum, pair_loss, pair_weights, ranked_rows
from problems_data import cut_rows
from scipy.optimize import minimize_scalar

from ooc_svm import activepairs
from ooc_svm.activepairs import count_active_pairs, sum_of_pairs, whole_groups
from ooc_svm.engine.memory import MemoryEngine
from ooc_svm.passes import PairPass, PairRows
from ooc_svm.problems.linear import LinearSpace
from ooc_svm.problems.pairs import PairProblem, Pairs
from ooc_svm.problems.segment import descend
from ooc_svm.rowvectors import MemoryVector, RowVectors
from ooc_svm.solvers.cutting_plane import CuttingPlane, CuttingPlaneState
from ooc_svm.solvers.ocas import Ocas, OcasState
from ooc_svm.source import MatrixSource
from ooc_svm.stopping import CERTIFIED, Stopping

PLENTY = 1 << 40


@pytest.fixture(autouse=True)
def closed_vectors():
    """Row vectors that a test made are closed at its end."""
    yield
    while Setup.opened:
        Setup.opened.pop().close()


class Setup:
    """A problem over pairs, its row vectors and an engine."""

    opened: ClassVar[list[RowVectors]] = []

    def __init__(
        self, matrix, labels, C=1.0, *, qid=None, weights=None, groups=1, points=1, scale=None, memory=PLENTY
    ):
        n_rows = len(labels)
        self.vectors = vectors = RowVectors(n_rows, memory)
        self.opened.append(vectors)
        values = np.unique(labels)
        vectors.create("ranks", np.int32).write(0, np.searchsorted(values, labels).astype(np.int32))
        if weights is not None:
            vectors.create("weight", np.float64).write(0, weights)
        if qid is not None:
            heads = np.concatenate([[1], qid[1:] != qid[:-1]])
            vectors.create("heads", np.uint8).write(0, heads.astype(np.uint8))
        self.rows = PairRows(
            "ranks", len(values), None if weights is None else "weight", None if qid is None else "heads"
        )
        self.total = sum_of_pairs(self.rows, vectors, PLENTY)
        space = LinearSpace(matrix.shape[1], scale)
        self.problem = PairProblem(Pairs(self.rows, self.total), C, space, groups)
        for name in self.problem.row_vectors:
            vectors.create(name, np.float64)
        for name in self.problem.all_coefficients(points):
            vectors.create(name, np.int32 if weights is None else np.float64)
        self.engine = MemoryEngine(MatrixSource(matrix, labels, spans=cut_rows(matrix, 6)), vectors)

    def answer(self, generator):
        try:
            request = next(generator)
            while True:
                request = generator.send(self.engine.stream([request])[0])
        except StopIteration as stop:
            return stop.value

    def solve(self, solver="ocas", *, tol=1e-6, points=1, max_passes=2000):
        stopping, dimension = Stopping(tol, max_passes), self.problem.space.dimension
        if solver == "ocas":
            run = Ocas(self.problem, stopping, OcasState.fresh(dimension, 600), points)
        else:
            run = CuttingPlane(self.problem, stopping, CuttingPlaneState.fresh(dimension, 600))
        self.engine.run([run])
        return run


def data_of(kind, seed=0):
    """Rows, labels, groups and weights: of one group or of several, weighted or not."""
    matrix, labels = ranked_rows(n_ranks=2 if kind == "two ranks" else 4, seed=seed)
    rng = np.random.default_rng(seed)
    qid = group_numbers(len(labels), seed=seed) if "groups" in kind else None
    weights = None
    if "weighted" in kind:
        weights = rng.integers(0, 3, len(labels)) * 0.75
        if qid is not None:
            weights = weights[qid]
    return matrix, labels, qid, weights


KINDS = ["two ranks", "ranks", "weighted", "groups", "weighted groups"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cut_groups", [1, 3])
@pytest.mark.parametrize("on_disk", [False, True])
def test_active_pairs_are_those_of_the_list(monkeypatch, kind, cut_groups, on_disk):
    monkeypatch.setattr(activepairs, "SLICE_ROWS", 5)
    matrix, labels, qid, weights = data_of(kind)
    setup = Setup(
        matrix, labels, qid=qid, weights=weights, groups=cut_groups, memory=0 if on_disk else PLENTY
    )
    pairs = all_pairs(labels, qid)
    omega = pair_weights(pairs, weights, qid)
    assert setup.total == pytest.approx(omega.sum())
    rng = np.random.default_rng(1)
    start, end = np.round(rng.normal(size=(2, len(labels))), 1)
    best, previous = setup.problem.row_vectors
    setup.vectors[best].write(0, start)
    setup.vectors[previous].write(0, end)
    names = setup.problem.coefficients(0)
    request = PairPass(setup.rows, best, previous, 0.5, names)
    found = count_active_pairs(request, setup.vectors, 1 if on_disk else PLENTY)
    scores = start + 0.5 * (end - start)
    i, j = pairs
    active = scores[i] - scores[j] < 1.0
    slack = 1.0 - (scores[i] - scores[j])
    move = (end - start)[i] - (end - start)[j]
    assert found.active == pytest.approx(omega[active].sum())
    assert found.loss == pytest.approx((omega * slack)[active].sum())
    assert found.slope == pytest.approx(-(omega * move)[active].sum(), abs=1e-9)
    assert found.n_rows == len(np.union1d(i[active & (omega > 0)], j[active & (omega > 0)]))
    for group, name in enumerate(names):
        own = active & (i % cut_groups == group)
        expected = np.bincount(i[own], omega[own], len(labels)) - np.bincount(j[own], omega[own], len(labels))
        np.testing.assert_allclose(setup.vectors[name].read(0, len(labels)), expected, atol=1e-9)
        assert found.offsets[group] == pytest.approx(omega[own].sum())


@pytest.mark.parametrize("kind", ["weighted", "weighted groups"])
def test_the_bits_of_a_count_do_not_follow_from_the_memory(kind):
    matrix, labels, qid, weights = data_of(kind)
    found = []
    for memory, sorting in ((PLENTY, PLENTY), (0, 1)):
        setup = Setup(matrix, labels, qid=qid, weights=weights, groups=2, memory=memory)
        best, previous = setup.problem.row_vectors
        setup.vectors[best].write(0, np.random.default_rng(2).normal(size=len(labels)))
        names = setup.problem.coefficients(0)
        sums = count_active_pairs(PairPass(setup.rows, best, previous, 0.3, names), setup.vectors, sorting)
        vectors = [setup.vectors[name].read(0, len(labels)).tobytes() for name in names]
        found.append((sums.loss, sums.slope, sums.active, sums.offsets.tobytes(), vectors))
    assert found[0] == found[1]


@pytest.mark.parametrize("rows", [1, 4, 7, 1000])
@pytest.mark.parametrize("slice_rows", [1, 6, 1000])
def test_slices_are_of_whole_groups(monkeypatch, rows, slice_rows):
    monkeypatch.setattr(
        activepairs,
        "row_slices",
        lambda n, size=0: ((a, min(a + slice_rows, n)) for a in range(0, n, slice_rows)),
    )
    qid = group_numbers(60)
    heads = np.flatnonzero(np.concatenate([[True], qid[1:] != qid[:-1]]))
    slices = list(whole_groups(MemoryVector.wrap(np.isin(np.arange(60), heads).astype(np.uint8)), rows))
    assert np.concatenate([starts[:-1] for starts in slices]).tolist() == heads.tolist()
    assert [int(starts[0]) for starts in slices[1:]] == [int(starts[-1]) for starts in slices[:-1]]
    assert slices[-1][-1] == 60
    assert all(len(starts) == 2 or starts[-1] - starts[0] <= rows for starts in slices)


@pytest.mark.parametrize("kind", KINDS)
def test_a_cut_is_a_lower_bound_and_tight_where_it_was_taken(kind):
    matrix, labels, qid, weights = data_of(kind)
    groups = 3
    setup = Setup(matrix, labels, qid=qid, weights=weights, groups=groups, points=2)
    pairs = all_pairs(labels, qid)
    omega = pair_weights(pairs, weights, qid)
    share = omega / omega.sum()

    def losses(w):
        scores = matrix @ w
        each = share * np.maximum(0.0, 1.0 - (scores[pairs[0]] - scores[pairs[1]]))
        return np.bincount(pairs[0] % groups, weights=each, minlength=groups)

    rng = np.random.default_rng(3)
    start, end, w = rng.normal(size=(3, matrix.shape[1]))
    best, previous = setup.problem.row_vectors
    setup.vectors[best].write(0, matrix @ start)
    setup.vectors[previous].write(0, matrix @ end)
    cuts, _ = setup.answer(setup.problem.read(w, 0.4, np.array([0.0, 0.3])))
    moved = start + 0.4 * (end - start)
    np.testing.assert_allclose(setup.vectors[best].read(0, len(labels)), matrix @ moved, atol=1e-12)
    np.testing.assert_allclose(setup.vectors[previous].read(0, len(labels)), matrix @ w, atol=1e-12)
    for theta, cut in zip((0.0, 0.3), cuts, strict=True):
        point = moved + theta * (end - moved)
        np.testing.assert_allclose(cut.offsets - cut.planes @ point, losses(point), atol=1e-12)
        for _ in range(20):
            v = rng.normal(size=matrix.shape[1]) * rng.choice([0.1, 1.0, 10.0])
            assert (losses(v) >= cut.offsets - cut.planes @ v - 1e-9).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("solver", "groups", "points"), [("cutting-plane", 1, 1), ("ocas", 1, 2), ("ocas", 4, 2)]
)
@pytest.mark.parametrize("C", [0.1, 10.0])
def test_the_primal_value_is_that_of_all_pairs(kind, solver, groups, points, C):
    matrix, labels, qid, weights = data_of(kind, seed=4)
    setup = Setup(matrix, labels, C, qid=qid, weights=weights, groups=groups, points=points)
    run = setup.solve(solver, points=points, tol=1e-5)
    certificate, w = run.state.certificate, run.solution()[0]
    pairs = all_pairs(labels, qid)
    omega = pair_weights(pairs, weights, qid)

    def primal(v):
        return 0.5 * v @ v + C * pair_loss(matrix @ v, pairs, omega)

    assert certificate.stop_reason == CERTIFIED
    assert primal(w) == pytest.approx(certificate.primal, rel=1e-10)
    best = primal(optimum(matrix, pairs, omega, C))
    assert certificate.dual <= best * (1 + 1e-7)
    assert best * (1 - 1e-7) <= certificate.primal <= best + certificate.gap + 1e-7 * best
    assert setup.engine.counters.passes == certificate.passes


def test_scaled_columns():
    matrix, labels, _, _ = data_of("ranks", seed=5)
    scale = np.random.default_rng(5).random(matrix.shape[1]) + 0.2
    run = Setup(matrix, labels, 2.0, scale=scale, points=2).solve(points=2)
    scaled = matrix @ np.diag(scale)
    pairs = all_pairs(labels)
    omega = np.ones(len(pairs[0]))
    v = optimum(scaled, pairs, omega, 2.0)
    best = 0.5 * v @ v + 2.0 * pair_loss(scaled @ v, pairs, omega)
    assert run.state.certificate.primal == pytest.approx(best, rel=2e-6)
    np.testing.assert_allclose(matrix @ run.solution()[0], scaled @ run.state.best, atol=1e-12)


def test_line_search_and_second_point_save_reads():
    matrix, labels = ranked_rows(1500, 40, 2, seed=6)
    reads = []
    for solver, points in (("cutting-plane", 1), ("ocas", 1), ("ocas", 2)):
        setup = Setup(matrix, labels, 300.0, points=points)
        reads.append(setup.solve(solver, tol=1e-3, points=points).state.certificate.passes)
    assert reads == sorted(reads, reverse=True)
    assert len(set(reads)) == 3


def drive(generator):
    """The value of a generator that is answered with what it yields."""
    try:
        found = next(generator)
        while True:
            found = generator.send(found)
    except StopIteration as stop:
        return stop.value


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("C", [1e-3, 1.0, 1e4])
def test_the_search_finds_the_minimum(seed, C):
    rng = np.random.default_rng(seed)
    kinks, slopes = rng.normal(size=60) * rng.choice([0.01, 1.0, 100.0]), rng.normal(size=60)
    looks = [0]

    def look(t):
        looks[0] += 1
        active = slopes * (t - kinks) > 0
        yield ((slopes * (t - kinks))[active].sum(), slopes[active].sum())
        return (slopes * (t - kinks))[active].sum(), slopes[active].sum()

    slope, curvature = -rng.random() * 3, rng.random() + 0.01

    def phi(t):
        return slope * t + 0.5 * curvature * t * t + C * np.maximum(slopes * (t - kinks), 0.0).sum()

    t, at = drive(descend(look, drive(look(0.0)), slope, curvature, C, 1e-9))
    assert slope * t + 0.5 * curvature * t * t + C * at == pytest.approx(phi(t), rel=1e-12)
    found = minimize_scalar(phi, bounds=(0.0, 4.0 / curvature), method="bounded", options={"xatol": 1e-13})
    assert phi(t) <= min(found.fun, phi(0.0)) + 1e-8 * abs(phi(0.0))
    assert looks[0] <= 50

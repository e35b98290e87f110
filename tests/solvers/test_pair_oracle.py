"""Problems over pairs of rows, against all pairs listed one by one."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.pairs_data import (
    KINDS,
    PLENTY,
    Setup,
    all_pairs,
    assert_primal_of_all_pairs,
    data_of,
    group_numbers,
    optimum,
    pair_loss,
    pair_weights,
    ranked_rows,
)
from scipy.optimize import minimize_scalar

from ooc_svm.pairs import active as active_module
from ooc_svm.pairs.active import count_active_pairs, whole_queries
from ooc_svm.pairs.request import PairPass
from ooc_svm.rowvectors.vector import MemoryVector
from ooc_svm.solvers.cutting_plane.pair_oracle import CLOSE
from ooc_svm.solvers.cutting_plane.ray import descend


@pytest.fixture(autouse=True)
def closed_vectors():
    """Row vectors that a test made are closed at its end."""
    yield
    while Setup.opened:
        Setup.opened.pop().close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cut_groups", [1, 3])
@pytest.mark.parametrize("on_disk", [False, True])
def test_active_pairs_are_those_of_the_list(monkeypatch, kind, cut_groups, on_disk):
    monkeypatch.setattr(active_module, "SLICE_ROWS", 5)
    matrix, labels, qid, weights = data_of(kind)
    setup = Setup(
        matrix, labels, qid=qid, weights=weights, groups=cut_groups, memory=0 if on_disk else PLENTY
    )
    pairs = all_pairs(labels, qid)
    omega = pair_weights(pairs, weights, qid)
    assert setup.total == pytest.approx(omega.sum())
    rng = np.random.default_rng(1)
    start, end = np.round(rng.normal(size=(2, len(labels))), 1)
    best, previous = setup.oracle.vectors
    setup.vectors[best].write(0, start)
    setup.vectors[previous].write(0, end)
    names = setup.oracle.coefficients
    request = PairPass(setup.rows, best, previous, 0.5, names)
    found = count_active_pairs(request, setup.vectors, 1 if on_disk else PLENTY)
    scores = start + 0.5 * (end - start)
    i, j = pairs
    active = scores[i] - scores[j] < 1.0
    slack = 1.0 - (scores[i] - scores[j])
    move = (end - start)[i] - (end - start)[j]
    assert found.offsets.sum() == pytest.approx(omega[active].sum())
    assert found.loss == pytest.approx((omega * slack)[active].sum())
    assert found.slope == pytest.approx(-(omega * move)[active].sum(), abs=1e-9)
    assert found.n_rows == len(np.union1d(i[active & (omega > 0)], j[active & (omega > 0)]))
    for group, name in enumerate(names):
        own = active & (i % cut_groups == group)
        expected = np.bincount(i[own], omega[own], len(labels)) - np.bincount(j[own], omega[own], len(labels))
        np.testing.assert_allclose(setup.vectors[name].read(0, len(labels)), expected, atol=1e-9)
        assert found.offsets[group] == pytest.approx(omega[own].sum())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("groups", [1, 2])
def test_the_bits_of_a_count_follow_neither_from_the_memory_nor_from_threads(monkeypatch, kind, groups):
    monkeypatch.setattr(active_module, "_THREAD_ROWS", 1)
    monkeypatch.setattr(active_module, "_SUMMED_ROWS", 16)
    matrix, labels, qid, weights = data_of(kind)
    found = []
    for memory, sorting, threads in ((PLENTY, PLENTY, 1), (PLENTY, PLENTY, 3), (PLENTY, 1, 2), (0, 1, 1)):
        setup = Setup(matrix, labels, qid=qid, weights=weights, groups=groups, memory=memory)
        best, previous = setup.oracle.vectors
        setup.vectors[best].write(0, np.random.default_rng(2).normal(size=len(labels)))
        names = setup.oracle.coefficients
        request = PairPass(setup.rows, best, previous, 0.3, names)
        sums = count_active_pairs(request, setup.vectors, sorting, threads)
        vectors = [setup.vectors[name].read(0, len(labels)).tobytes() for name in names]
        found.append((sums.loss, sums.slope, sums.n_rows, sums.offsets.tobytes(), vectors))
    assert all(other == found[0] for other in found)


@pytest.mark.parametrize("rows", [1, 4, 7, 1000])
@pytest.mark.parametrize("slice_rows", [1, 6, 1000])
def test_slices_are_of_whole_queries(monkeypatch, rows, slice_rows):
    monkeypatch.setattr(active_module, "SLICE_ROWS", rows)
    monkeypatch.setattr(
        active_module,
        "row_slices",
        lambda n, size=0: ((a, min(a + slice_rows, n)) for a in range(0, n, slice_rows)),
    )
    qid = group_numbers(60)
    heads = np.flatnonzero(np.concatenate([[True], qid[1:] != qid[:-1]]))
    slices = list(whole_queries(MemoryVector.wrap(np.isin(np.arange(60), heads).astype(np.uint8))))
    assert np.concatenate([starts[:-1] for starts in slices]).tolist() == heads.tolist()
    assert [int(starts[0]) for starts in slices[1:]] == [int(starts[-1]) for starts in slices[:-1]]
    assert slices[-1][-1] == 60
    assert all(len(starts) == 2 or starts[-1] - starts[0] <= rows for starts in slices)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", [0.4, 0.5 * CLOSE])
def test_a_cut_is_a_lower_bound_and_tight_where_it_was_taken(kind, step):
    matrix, labels, qid, weights = data_of(kind)
    groups = 3
    setup = Setup(matrix, labels, qid=qid, weights=weights, groups=groups)
    pairs = all_pairs(labels, qid)
    omega = pair_weights(pairs, weights, qid)
    share = omega / omega.sum()

    def losses(w):
        scores = matrix @ w
        each = share * np.maximum(0.0, 1.0 - (scores[pairs[0]] - scores[pairs[1]]))
        return np.bincount(pairs[0] % groups, weights=each, minlength=groups)

    rng = np.random.default_rng(3)
    start, end, w = rng.normal(size=(3, matrix.shape[1]))
    best, previous = setup.oracle.vectors
    setup.vectors[best].write(0, matrix @ start)
    setup.vectors[previous].write(0, matrix @ end)
    nothing = np.empty(0)
    (cut,), known, _ = setup.answer(setup.oracle.read(w, step, nothing, nothing, None, None))
    moved = start + step * (end - start)
    np.testing.assert_allclose(setup.vectors[best].read(0, len(labels)), matrix @ moved, atol=1e-12)
    np.testing.assert_allclose(setup.vectors[previous].read(0, len(labels)), matrix @ w, atol=1e-12)
    point = moved if step >= CLOSE else moved + CLOSE * (end - moved)
    np.testing.assert_allclose(cut.offsets - cut.planes @ point, losses(point), atol=1e-12)
    for _ in range(20):
        v = rng.normal(size=matrix.shape[1]) * rng.choice([0.1, 1.0, 10.0])
        assert (losses(v) >= cut.offsets - cut.planes @ v - 1e-9).all()
    if step < CLOSE:
        assert known is None
        return
    h = 1e-7 * (w - moved)
    assert known[0] == pytest.approx(losses(moved).sum())
    assert known[1] == pytest.approx((losses(moved + h) - losses(moved - h)).sum() / 2e-7, rel=1e-4)


@pytest.mark.parametrize("groups", [1, 3])
def test_the_scores_of_the_best_point_do_not_matter_for_a_cut_at_the_last_one(groups):
    """A run that goes on has them, where one that was never stopped has zeros."""
    matrix, labels, qid, weights = data_of("ranks")
    rng, found = np.random.default_rng(7), []
    w = rng.normal(size=matrix.shape[1])
    for size in (0.0, 1.0, 1e6):
        setup = Setup(matrix, labels, qid=qid, weights=weights, groups=groups)
        best, previous = setup.oracle.vectors
        setup.vectors[best].write(0, size * rng.normal(size=len(labels)))
        # Many pairs differ by exactly 1.
        setup.vectors[previous].write(0, np.arange(len(labels)) % 4.0)
        loss, n_rows, (cut,), *_ = setup.answer(setup.oracle.cut(w))
        found.append((loss, n_rows, cut.planes.tobytes(), cut.offsets.tobytes()))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("solver", "groups"), [("cutting-plane", 1), ("ocas", 1), ("ocas", 4)])
@pytest.mark.parametrize("C", [0.1, 10.0])
def test_the_primal_value_is_that_of_all_pairs(kind, solver, groups, C):
    matrix, labels, qid, weights = data_of(kind, seed=4)
    setup = Setup(matrix, labels, C, qid=qid, weights=weights, groups=groups)
    run = setup.solve(solver, tol=1e-5)
    assert_primal_of_all_pairs(setup, run, (matrix, labels, qid, weights), C)


def test_scaled_columns():
    matrix, labels, _, _ = data_of("ranks", seed=5)
    scale = np.random.default_rng(5).random(matrix.shape[1]) + 0.2
    run = Setup(matrix, labels, 2.0, scale=scale).solve()
    scaled = matrix @ np.diag(scale)
    pairs = all_pairs(labels)
    omega = np.ones(len(pairs[0]))
    v = optimum(scaled, pairs, omega, 2.0)
    best = 0.5 * v @ v + 2.0 * pair_loss(scaled @ v, pairs, omega)
    assert run.state.certificate.primal == pytest.approx(best, rel=2e-6)
    np.testing.assert_allclose(matrix @ run.solution()[0], scaled @ run.state.best, atol=1e-12)


def test_pairs_are_counted_once_an_iteration(monkeypatch):
    matrix, labels, qid, weights = data_of("ranks")
    requests = []

    def count(request, *rest):
        requests.append(request)
        return count_active_pairs(request, *rest)

    monkeypatch.setattr(active_module, "count_active_pairs", count)
    run = Setup(matrix, labels, qid=qid, weights=weights).solve("cutting-plane", tol=1e-3)
    assert run.state.certificate.passes > 3
    assert len(requests) == run.state.certificate.passes + 1


def test_a_line_search_saves_reads():
    matrix, labels = ranked_rows(1500, 40, 2, seed=6)
    plain, searched = (Setup(matrix, labels, 300.0).solve(s, tol=1e-3) for s in ("cutting-plane", "ocas"))
    assert searched.state.certificate.passes <= 0.6 * plain.state.certificate.passes


def drive(generator):
    """The value of a generator that is answered with what it yields."""
    try:
        found = next(generator)
        while True:
            found = generator.send(found)
    except StopIteration as stop:
        return stop.value


def test_the_search_ends_where_it_is_flat_up_to_rounding():
    slope, curvature, C = -0.009535675423952927, 0.06723798210347767, 10.0
    start, flat = (0.14670958663538936, -0.006107695813718459), -0.00046273744019562936
    looks = []

    def look(t):
        looks.append(t)
        yield
        return 0.14597429594228675 + flat * (t - 0.21064061387375693), flat

    t, _ = drive(descend(look, start, slope, curvature, C, 1e-12))
    assert t == pytest.approx(0.21064061387375693)
    assert len(looks) < 10


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

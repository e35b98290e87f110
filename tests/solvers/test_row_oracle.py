"""Cuts of hinge losses: they are lower bounds, the line search is exact."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.problems_data import MatrixSource, cut_rows, hinge_oracle, noisy_rows, objective, row_vectors
from scipy import sparse
from scipy.optimize import minimize_scalar

from ooc_svm.engine.serial import SerialEngine
from ooc_svm.losses.epsilon_insensitive import EpsilonInsensitive
from ooc_svm.losses.hinge import Hinge
from ooc_svm.passes.base import RowSlice
from ooc_svm.solvers.cutting_plane import ray as ray_module
from ooc_svm.solvers.cutting_plane import row_loops, row_oracle, row_rules

NO_POINT = np.empty(0)  # Of an oracle without free parameters


def engine_for(matrix, labels, oracle, weights=None):
    source = MatrixSource(matrix, labels, weights, spans=cut_rows(matrix, 7))
    return SerialEngine(source, row_vectors(labels, oracle, weights))


def answer(engine, generator):
    """Drive a generator of passes to its value."""
    try:
        request = next(generator)
        while True:
            request = generator.send(engine.stream([request])[0])
    except StopIteration as stop:
        return stop.value


def group_losses(matrix, labels, w, groups, weights):
    losses = weights * np.maximum(0.0, 1.0 - labels * (matrix @ w))
    return np.bincount(np.arange(len(labels)) % groups, weights=losses, minlength=groups)


@pytest.mark.parametrize("ones", [False, True])
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_cut_is_a_lower_bound_and_tight_where_it_was_taken(ones, groups, weighted):
    matrix, labels = noisy_rows(ones=ones)
    rng = np.random.default_rng(1)
    weights = rng.random(len(labels)) if weighted else None
    oracle = hinge_oracle(matrix.shape[1], groups=groups, weighted=weighted, class_weight=(0.5, 2.0))
    engine = engine_for(matrix, labels, oracle, weights)
    omega = np.where(labels > 0, 2.0, 0.5) * (1.0 if weights is None else weights)
    w = rng.normal(size=matrix.shape[1])
    loss, n_support, (cuts,), *_ = answer(engine, oracle.cut(w))
    assert loss == pytest.approx(group_losses(matrix, labels, w, groups, omega).sum())
    assert n_support == (labels * (matrix @ w) < 1.0).sum()
    np.testing.assert_allclose(cuts.offsets - cuts.planes @ w, group_losses(matrix, labels, w, groups, omega))
    for _ in range(20):
        v = rng.normal(size=matrix.shape[1]) * rng.choice([0.1, 1.0, 10.0])
        bound = cuts.offsets - cuts.planes @ v
        assert (group_losses(matrix, labels, v, groups, omega) >= bound - 1e-9).all()


def test_a_cut_with_scale_and_bias():
    matrix, labels = noisy_rows()
    rng = np.random.default_rng(2)
    scale = rng.random(matrix.shape[1]) + 0.1
    oracle = hinge_oracle(matrix.shape[1], scale=scale, penalized_bias=True)
    engine = engine_for(matrix, labels, oracle)
    seen = np.hstack([matrix.toarray() * scale, np.ones((len(labels), 1))])
    w = rng.normal(size=seen.shape[1])
    loss, _, (cuts,), *_ = answer(engine, oracle.cut(w))
    violated = labels * (seen @ w) < 1.0
    np.testing.assert_allclose(cuts.planes[0], seen[violated].T @ labels[violated])
    assert loss == pytest.approx(np.maximum(0, 1 - labels * (seen @ w)).sum())


@pytest.mark.parametrize("thetas", [[0.0], [1.0], [0.3, 0.0, 0.8], [0.5, 0.5], [0.0] * 13])
@pytest.mark.parametrize("weighted", [False, True])
def test_trial_cuts_are_those_of_the_points_on_the_ray(thetas, weighted):
    matrix, labels = noisy_rows(ones=weighted)
    rng = np.random.default_rng(3)
    weights = rng.integers(0, 3, len(labels)) / 2 if weighted else None
    oracle = hinge_oracle(matrix.shape[1], groups=2, weighted=weighted, penalized_bias=weighted)
    engine = engine_for(matrix, labels, oracle, weights)
    seen = np.hstack([matrix.toarray(), np.ones((len(labels), int(weighted)))])
    best, old, w = rng.normal(size=(3, seen.shape[1])) * 0.3
    engine.vectors["model/best"].write(0, seen @ best)
    engine.vectors["model/previous"].write(0, seen @ old)
    cuts, *_ = answer(engine, oracle.read(w, 0.4, np.array(thetas), np.empty(0), None, NO_POINT))
    moved = best + 0.4 * (old - best)
    np.testing.assert_allclose(engine.vectors["model/best"].read(0, len(labels)), seen @ moved, atol=1e-12)
    np.testing.assert_allclose(engine.vectors["model/previous"].read(0, len(labels)), seen @ w, atol=1e-12)
    for theta, cut in zip(sorted(thetas), cuts, strict=True):
        point = moved + theta * (w - moved)
        _, _, (there,), *_ = answer(engine, oracle.cut(point))
        np.testing.assert_allclose(cut.planes, there.planes, atol=1e-10)
        np.testing.assert_allclose(cut.offsets, there.offsets)


def test_a_row_is_summed_up_once_for_all_places():
    rule = row_rules.TrialCuts(hinge_oracle(1).losses, 1, 0.0, np.array([0.1, 0.5, 0.9]))
    # A loss everywhere, up to a place, nowhere, behind a place.
    scores = np.array([-1.0, 3.0, 3.0, -1.0])
    best = np.array([-1.0, 0.0, 3.0, 3.0])
    codes = np.ones(4, np.uint16)
    names = rule.losses.best, rule.losses.previous, rule.losses.targets.codes
    rows = RowSlice(0, 4, dict(zip(names, (best, best.copy(), codes), strict=True)))
    cells = rule(rows, scores, np.empty((0, 4)), np.zeros(rule.sums_shape))
    assert cells.weights is not None
    assert cells.weights.tolist() == [[1, 1, 0, 1]]
    assert cells.numbers.tolist() == [[2, 0, 0, 4]]
    assert cells.numbers.dtype == np.int32
    assert rule.n_cells == 5


def test_a_heavy_row_leaves_the_cuts_alone_that_it_is_not_in():
    # Its weight is so large that taking it away again would take the others' sum along.
    matrix, labels = np.ones((2, 1)), np.array([1.0, 1.0])
    oracle = hinge_oracle(1, weighted=True)
    engine = engine_for(sparse.csr_array(matrix), labels, oracle, np.array([1e17, 1.0]))
    engine.vectors["model/best"].write(0, np.array([2.0, 0.0]))
    engine.vectors["model/previous"].write(0, np.array([2.0, 0.0]))
    # At 0 only the light row has a loss, at 1 both.
    first, last = answer(
        engine, oracle.read(np.zeros(1), 0.0, np.array([0.0, 1.0]), np.empty(0), None, NO_POINT)
    )[0]
    assert first.planes.tolist() == [[1.0]]
    assert last.planes.tolist() == [[1e17 + 1.0]]


@pytest.mark.parametrize("scale", [1.0, 1000.0])
@pytest.mark.parametrize("loss", [Hinge(), EpsilonInsensitive(0.25)], ids=["hinge", "tube"])
def test_rows_on_breakpoints_are_in_the_cuts_that_their_cells_make(loss, scale):
    """Where the bias takes back what the score gains, rounding lets the loss of a row come and go."""
    rng = np.random.default_rng(5)
    thetas = np.array([0.075, 0.3, 0.31, 0.32, 0.55, 0.6, 1.0])
    targets, weights = np.ones(50), np.ones(50)
    n_pieces, torn = row_loops.count_pieces(loss), 0
    for _ in range(200):
        b_0, b_1 = scale * rng.normal(size=2) * [1.0, 0.1]
        b_change = b_1 + b_0 - b_0
        start = 1.0 - row_loops.kink_of(loss) - b_0 + np.arange(-25, 25) * np.spacing(scale)
        end = start - b_change + rng.integers(-3, 4, 50) * np.spacing(scale)
        free = np.array([[b_0, 0.0], [b_1 + b_0, 0.0]])
        own, sums = np.empty((n_pieces * 7, 50)), np.zeros((3, 7, 1))
        row_loops.trial_cuts(
            *(loss, end, start.copy(), end.copy(), 0.0, thetas, free, targets, weights, 0, own, sums),
            *(np.zeros(3), np.zeros((3, 16))),
        )
        # The same by cells, each with one end of the loss.
        cells, coefficients = row_loops.ends_of_losses(own, 7)
        k = np.arange(7)[:, None, None]
        inside = np.where(cells < 7, k <= cells, k > cells - 7) & (coefficients != 0.0)
        made = np.where(inside, coefficients, 0.0)
        np.testing.assert_array_equal(made, own.reshape(n_pieces, 7, 50).swapaxes(0, 1))
        np.testing.assert_allclose(sums[1, :, 0], made.sum(axis=(1, 2)))
        # And as the numbers say themselves, where these change once.
        residuals = 1.0 - (start + thetas[:, None] * (end - start)) - (b_0 + thetas * b_change)[:, None]
        for p, sign in enumerate([1.0, -1.0][:n_pieces]):
            plain = sign * residuals > row_loops.kink_of(loss)
            once = np.count_nonzero(plain[1:] != plain[:-1], axis=0) <= 1
            np.testing.assert_array_equal((made[:, p] != 0.0)[:, once], plain[:, once])
            torn += np.count_nonzero(~once)
    assert torn > 50


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("max_events", [None, 3])
@pytest.mark.parametrize("C", [1e-3, 0.1, 30.0])
def test_the_line_search_is_exact(monkeypatch, seed, max_events, C):
    if max_events is not None:
        monkeypatch.setattr(ray_module, "MAX_EVENTS", max_events)
        monkeypatch.setattr(row_rules, "BINS", 8)
    matrix, labels = noisy_rows(seed=seed, ones=seed % 2 == 0)
    oracle = hinge_oracle(matrix.shape[1], C)
    engine = engine_for(matrix, labels, oracle)
    rng = np.random.default_rng(seed)
    best, w = rng.normal(size=(2, matrix.shape[1])) * rng.choice([0.01, 0.3, 3.0], size=(2, 1))
    engine.vectors["model/best"].write(0, matrix @ best)
    _, loss, _ = answer(engine, oracle.read(w, 0.0, np.array([0.5]), np.empty(0), None, NO_POINT))
    ray = w - best
    t, at, _ = answer(engine, oracle.line_search(loss, float(best @ ray), float(ray @ ray)))

    def value(u):
        return objective(matrix, labels, best + u * ray, C)

    assert t >= 0.0
    assert 0.5 * np.sum((best + t * ray) ** 2) + C * at == pytest.approx(value(t), rel=1e-10)
    found = minimize_scalar(
        value, bounds=(0.0, max(2.0 * t, 1.0)), method="bounded", options={"xatol": 1e-12}
    )
    assert value(t) <= min(found.fun, value(0.0)) + 1e-9 * value(0.0)


def test_equal_rows_are_listed_once_a_block(monkeypatch):
    """Memory for the breakpoints does not grow with rows that no bin tells from each other."""
    rng = np.random.default_rng(2)
    values = np.array([0.3, 0.7])[rng.integers(0, 2, 300)]
    matrix, labels = sparse.csr_array(values[:, None]), np.where(rng.random(300) < 0.3, -1.0, 1.0)
    oracle = hinge_oracle(1, 1.0)
    listed, ends = [], []

    def minimise(*arguments):
        *others, collect = arguments

        def counted(*place):
            events = yield from collect(*place)
            listed.append(len(events))
            return events

        found = yield from ray_module.minimise(*others, counted)
        return found

    monkeypatch.setattr(row_oracle, "minimise", minimise)
    for max_events in (1 << 18, 3):
        monkeypatch.setattr(ray_module, "MAX_EVENTS", max_events)
        engine = engine_for(matrix, labels, oracle)
        best, w = np.zeros(1), np.ones(1)
        _, loss, _ = answer(engine, oracle.read(w, 0.0, np.array([0.5]), np.empty(0), None, NO_POINT))
        ends.append(answer(engine, oracle.line_search(loss, float(best @ w), 1.0))[:2])
    assert ends[1] == pytest.approx(ends[0])
    assert listed[0] > 50
    assert listed[1] <= 7  # as many as blocks


def test_a_line_search_without_a_direction_stays_where_it_is():
    matrix, labels = noisy_rows()
    oracle = hinge_oracle(matrix.shape[1])
    engine = engine_for(matrix, labels, oracle)
    _, loss, _ = answer(
        engine, oracle.read(np.zeros(matrix.shape[1]), 0.0, np.ones(1), np.empty(0), None, NO_POINT)
    )
    assert answer(engine, oracle.line_search(loss, 0.0, 0.0)) == (0.0, float(len(labels)), None)

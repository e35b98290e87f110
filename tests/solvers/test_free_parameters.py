"""Free bias, margin and tube by cutting planes: against scikit-learn and the elimination of the paper."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.problems_data import MatrixSource, cut_rows, nu_svc_loss
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import LinearConstraint, minimize
from sklearn.svm import SVC, SVR, NuSVC, NuSVR

from ooc_svm import InputError, UsageError, train
from ooc_svm.engine.serial import SerialEngine
from ooc_svm.losses.epsilon_insensitive import EpsilonInsensitive
from ooc_svm.losses.hinge import Hinge
from ooc_svm.problems.targets import ClassTargets, ValueTargets
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.solvers.cutting_plane import plan, quantile
from ooc_svm.solvers.cutting_plane.free_master import solve_free_master
from ooc_svm.solvers.cutting_plane.quantile import weighted_quantiles
from ooc_svm.solvers.cutting_plane.row_rules import RowLosses

SOLVERS = ("ocas", "cutting-plane")
ALL = (*SOLVERS, "streamed-smo")
N = 160


def rows(seed=0, n_features=4):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, n_features)).round(2)
    rule, noise = X @ rng.normal(size=n_features), rng.normal(size=N)
    return X, np.where(rule + 0.5 * noise > 0.3, 1.0, -1.0), 20.0 + rule + noise


X, CLASSES, VALUES = rows()
CASES = {
    "svc": (CLASSES, {"problem": "svc", "bias": "free", "C": 0.3}),
    "svr": (VALUES, {"problem": "svr", "bias": "free", "C": 0.3, "epsilon": 0.2}),
    "nu-svc": (CLASSES, {"problem": "nu-svc", "nu": 0.6}),
    "nu-svr": (VALUES, {"problem": "nu-svr", "nu": 0.4, "C": 0.3}),
}


def peer(name, y, weights=None):
    """The optimum by scikit-learn: weights and bias in units of the problem, and P there."""
    C = 0.3
    kinds = {
        "svc": lambda: SVC(kernel="linear", C=C, tol=1e-9),
        "svr": lambda: SVR(kernel="linear", C=C, epsilon=0.2, tol=1e-9),
        "nu-svc": lambda: NuSVC(kernel="linear", nu=0.6, tol=1e-9),
        "nu-svr": lambda: NuSVR(kernel="linear", nu=0.4, C=C, tol=1e-9),
    }
    model = kinds[name]().fit(X, y, sample_weight=weights)
    w, b = model.coef_[0], float(model.intercept_[0])
    if name == "nu-svc":
        # Its multipliers are divided by rho: at the optimum they add up to nu here.
        share = 0.6 / np.abs(model.dual_coef_).sum()
        w, b = w * share, b * share
    return w, b, plain_value(name, y, w, b)


def plain_value(name, y, w, b, weights=None):
    """P at w and b, minimised over rho or epsilon, from its definition."""
    omega = np.ones(len(y)) if weights is None else weights
    s, C, total = X @ w + b, 0.3, (np.ones(len(y)) if weights is None else weights).sum()
    if name == "svc":
        loss = C * (omega * np.maximum(0, 1 - y * s)).sum()
    elif name == "svr":
        loss = C * (omega * np.maximum(0, np.abs(y - s) - 0.2)).sum()
    elif name == "nu-svc":
        loss = nu_svc_loss(y * s, 0.6, omega)
    else:
        r = np.abs(y - s)
        loss = min(C * (0.4 * total * e + (omega * np.maximum(0, r - e)).sum()) for e in [0, *r])
    return 0.5 * w @ w + loss


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", CASES)
def test_the_optimum_is_that_of_scikit_learn(name, solver):
    y, options = CASES[name]
    model = train(X, y, solver=solver, tol=1e-7, **options)
    found = model.report["models"][0]
    w, b, optimum = peer(name, y)
    assert found["converged"]
    slack = 1e-7 * abs(optimum)
    assert found["dual"] <= optimum + slack
    assert found["primal"] >= found["dual"]
    assert found["primal"] == pytest.approx(optimum, rel=1e-6)
    own = plain_value(name, y, model.weights[0], model.bias[0])
    assert found["primal"] == pytest.approx(own, rel=1e-9, abs=1e-12)
    # |w - w*|^2 <= 2 gap.
    distance = np.linalg.norm(model.weights[0] - w)
    assert distance**2 <= 2 * (found["gap"] + 1e-6 * abs(optimum))
    assert model.bias[0] == pytest.approx(b, abs=0.02 * max(1.0, abs(b)))


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", ["svc", "svr"])
def test_streamed_smo_certifies_the_same(name, solver):
    y, options = CASES[name]
    for bias in ("none", "penalized", "free"):
        both = [
            train(X, y, solver=each, tol=1e-5, **options | {"bias": bias}).report["models"][0]
            for each in (solver, "streamed-smo")
        ]
        least = min(each["primal"] for each in both)
        assert max(each["dual"] for each in both) <= least * (1 + 1e-12)


@pytest.mark.parametrize(("problem", "seed"), [("svr", 28), ("svr", 43), ("nu-svr", 2), ("nu-svr", 20)])
def test_a_bound_is_one_where_many_rows_lie_on_breakpoints(problem, seed):
    """Of rows that repeat a few, far from 0: rounding must not part a cut from its offset."""
    rng = np.random.default_rng(seed)
    rng.choice([0, 1000.0])
    points, numbers = 1000.0 + rng.normal(size=3), rng.integers(0, 3, 2200)
    values = (100 * rng.normal(size=3).round(1))[numbers]
    options = {"bias": "free", "epsilon": 0.1} if problem == "svr" else {"nu": 0.3}
    model = train(
        points[numbers][:, None], values, problem=problem, solver="ocas", tol=1e-6, max_passes=60, **options
    )
    found = model.report["models"][0]
    assert found["dual"] - found["rounding"] <= found["primal"]


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(("name", "groups"), [("nu-svc", 1), ("nu-svr", 2), ("svc", 8)])
def test_the_fewest_cuts_are_as_many_as_the_first_read_brings(monkeypatch, name, groups, solver):
    monkeypatch.setattr(plan, "CUTS_PART", 0.0)
    y, options = CASES[name]
    model = train(X, y, solver=solver, cut_groups=groups, max_passes=4, **options)
    assert model.report["passes"] == 4


def elimination(y, C, tol):
    """Figure 1 of the paper on rows in memory: cuts at w alone, b eliminated; P and D at the end."""
    H, G = [], []
    w, best = np.zeros(X.shape[1]), np.inf
    for _ in range(400):
        eta = 1 - y * (X @ w)
        upper, lower = (np.flatnonzero(y == side) for side in (1, -1))
        upper, lower = upper[np.argsort(-eta[upper])], lower[np.argsort(-eta[lower])]
        m = min(len(upper), len(lower))
        t = int((eta[upper[:m]] + eta[lower[:m]] >= 0).sum())
        h = np.zeros(N)
        h[upper[:t]] = h[lower[:t]] = 1
        best = min(best, 0.5 * w @ w + C * h @ eta)
        H.append(h)
        G.append((h * y) @ X)
        A, d = np.array(G), np.array([each.sum() for each in H])
        start = np.full(len(d), C / len(d))
        found = minimize(
            lambda beta, A=A, d=d: 0.5 * np.sum((beta @ A) ** 2) - d @ beta,
            start,
            jac=lambda beta, A=A, d=d: A @ (beta @ A) - d,
            bounds=[(0, C)] * len(d),
            constraints=LinearConstraint(np.ones(len(d)), 0, C),
            method="SLSQP",
            options={"ftol": 1e-13, "maxiter": 300},
        )
        w, bound = found.x @ A, -found.fun
        if best - bound <= tol * best:
            break
    return best, bound


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_elimination_of_the_paper_certifies_the_same(solver):
    best, bound = elimination(CLASSES, 0.3, 1e-3)
    assert best - bound <= 1e-3 * best
    found = train(X, CLASSES, solver=solver, tol=1e-5, **CASES["svc"][1]).report["models"][0]
    assert found["dual"] <= best
    assert bound <= found["primal"] * (1 + 1e-7)


@pytest.mark.parametrize("solver", ALL)
@pytest.mark.parametrize("name", CASES)
def test_weights_count_like_rows_repeated(name, solver):
    y, options = CASES[name]
    times = np.random.default_rng(1).integers(0, 4, N)
    repeated = np.repeat(np.arange(N), times)
    one = train(X, y, sample_weight=times.astype(float), solver=solver, tol=1e-6, **options)
    two = train(X[repeated], y[repeated], solver=solver, tol=1e-6, **options)
    first, second = (each.report["models"][0] for each in (one, two))
    assert first["primal"] == pytest.approx(second["primal"], rel=1e-5)
    own = plain_value(name, y, one.weights[0], one.bias[0], times)
    assert first["primal"] == pytest.approx(own, rel=1e-9)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("name", CASES)
def test_groups_and_scale_change_the_way_only(name, groups, solver):
    y, options = CASES[name]
    plain = train(X, y, solver=solver, tol=1e-5, **options).report["models"][0]
    found = train(X, y, solver=solver, tol=1e-5, cut_groups=groups, **options).report["models"][0]
    assert found["dual"] <= plain["primal"]
    assert plain["dual"] <= found["primal"]
    scaled = train(X, y, solver=solver, scale="maxabs", tol=1e-5, **options)
    largest = np.abs(X).max(axis=0)
    other = train(X / largest, y, solver=solver, tol=1e-5, **options)
    values = [each.report["models"][0]["primal"] for each in (scaled, other)]
    assert values[0] == pytest.approx(values[1], rel=2e-5)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", ["nu-svc", "nu-svr"])
@pytest.mark.parametrize("nu", [0.5, 0.6, 0.7])
def test_the_nu_property(name, nu, solver):
    y, options = CASES[name]
    found = train(X, y, solver=solver, tol=1e-6, **options | {"nu": nu}).report["models"][0]
    assert (found["nu"], found["converged"], found["absolute"]) == (nu, True, False)
    assert found["margin_errors"] <= nu + 1e-12
    assert found["support_vectors"] >= nu - 1e-12
    assert found["epsilon" if name == "nu-svr" else "rho"] > 0


def test_nu_svc_is_svc_at_some_c():
    found = train(X, CLASSES, problem="nu-svc", nu=0.5, tol=1e-8)
    rho = found.report["models"][0]["rho"]
    other = train(X, CLASSES, problem="svc", solver="ocas", bias="free", C=1 / (N * rho), tol=1e-8)
    np.testing.assert_allclose(found.weights[0] / rho, other.weights[0], atol=2e-3)
    assert found.bias[0] / rho == pytest.approx(other.bias[0], abs=2e-3)


class TestInput:
    @pytest.mark.parametrize("solver", ALL)
    def test_the_largest_nu_is_named(self, solver):
        y = np.where(np.arange(N) < 40, 1.0, -1.0)
        with pytest.raises(InputError, match=r"^nu is 0\.6, .* at most 0\.5, ") as caught:
            train(X, y, problem="nu-svc", nu=0.6, solver=solver)
        assert caught.value.exit_code == 3
        at_most = train(X, y, problem="nu-svc", nu=0.5, tol=1e-3, solver=solver).report["models"][0]
        assert at_most["support_vectors"] >= 0.5

    @pytest.mark.parametrize("nu", [0.0, -0.1, 1.1, np.nan])
    def test_an_impossible_nu(self, nu):
        with pytest.raises(UsageError, match=r"^nu must be above 0 and at most 1"):
            train(X, CLASSES, problem="nu-svc", nu=nu)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"problem": "nu-svc", "C": 2.0}, "problem 'nu-svc' has nu in place of C; leave that out"),
            (
                {"problem": "nu-svr", "epsilon": 0.2},
                "problem 'nu-svr' has nu in place of epsilon; leave that out",
            ),
            ({"problem": "nu-svc", "bias": "none"}, "problem 'nu-svc' has a free bias, not 'none'"),
            ({"problem": "svc", "nu": 0.2}, "nu is for the problems 'nu-svc' and 'nu-svr', not 'svc'"),
        ],
    )
    def test_options_that_do_not_go_together(self, options, message):
        with pytest.raises(UsageError, match=f"^{message}$"):
            train(X, CLASSES, **options)

    @pytest.mark.parametrize("solver", ALL)
    @pytest.mark.parametrize("name", ["svr", "nu-svr"])
    def test_constant_targets(self, name, solver):
        found = train(X, np.full(N, 7.0), solver=solver, **CASES[name][1])
        assert found.bias[0] == pytest.approx(7.0)
        assert found.report["models"][0]["primal"] == pytest.approx(0.0, abs=1e-9)
        assert found.report["converged"]

    @pytest.mark.parametrize("solver", ALL)
    @pytest.mark.parametrize("name", ["svr", "nu-svr"])
    def test_one_row(self, name, solver):
        found = train(X[:1], np.array([3.0]), solver=solver, **CASES[name][1])
        assert found.bias[0] == pytest.approx(3.0, abs=0.3)

    @pytest.mark.parametrize("solver", ALL)
    @pytest.mark.parametrize("name", ["svr", "nu-svr"])
    def test_an_offset_of_the_targets_is_the_bias(self, name, solver):
        y, options = CASES[name]
        near, far = (train(X, y + by, solver=solver, tol=1e-4, **options) for by in (0.0, 1e8))
        first, second = (each.report["models"][0] for each in (near, far))
        assert second["converged"]
        assert second["primal"] == pytest.approx(first["primal"], rel=3e-4)
        assert far.bias[0] - 1e8 == pytest.approx(near.bias[0], abs=0.1)

    @pytest.mark.parametrize("solver", SOLVERS)
    @pytest.mark.parametrize("name", ["svr", "nu-svr"])
    def test_targets_beyond_all_bounds(self, name, solver):
        with pytest.raises(InputError, match="non-finite objective"):
            train(X, np.where(CLASSES > 0, 1e307, -1e307), solver=solver, **CASES[name][1])

    @pytest.mark.parametrize("solver", ALL)
    @pytest.mark.parametrize("name", CASES)
    def test_rows_without_features(self, name, solver):
        y, options = CASES[name]
        found = train(np.zeros((N, 2)), y, solver=solver, **options).report["models"][0]
        assert found["converged"]
        if name == "nu-svc":
            assert found["absolute"]

    @pytest.mark.parametrize("solver", ALL)
    def test_hulls_that_meet_end_by_the_absolute_gap(self, solver):
        found = train(X, CLASSES, problem="nu-svc", nu=0.05, solver=solver).report["models"][0]
        assert found["converged"]
        assert found["absolute"]
        assert found["primal"] == pytest.approx(0.0, abs=1e-6)


class Selecting:
    """Selection on an engine with several blocks."""

    def __init__(self, targets, weights, loss, scores):
        self.vectors = RowVectors(len(targets), 1 << 24)
        if isinstance(loss, Hinge):
            kind = ClassTargets(np.array([-1.0, 1.0]), np.ones(2), row_weight="weight")
            self.vectors.create("codes", np.uint16).write(0, (targets > 0).astype(np.uint16))
        else:
            kind = ValueTargets(row_weight="weight")
            self.vectors.create("target", np.float64).write(0, targets)
        self.vectors.create("weight", np.float64).write(0, weights)
        self.losses = RowLosses(kind, loss)
        for name in (self.losses.best, self.losses.previous):
            self.vectors.create(name, np.float64).write(0, scores)

    def quantiles(self, matrix, wanted, n_blocks=5):
        spans = cut_rows(matrix, n_blocks)
        engine = SerialEngine(MatrixSource(matrix, None, None, spans=spans), self.vectors)
        steps = weighted_quantiles(self.losses, 0.5, wanted, matrix.shape[0])
        request, self.passes = next(steps), 1
        try:
            while True:
                request = steps.send(engine.stream([request])[0])
                self.passes += 1
        except StopIteration as end:
            return end.value


def plain_quantile(breakpoints, weights, level):
    kept = weights > 0
    order = np.argsort(breakpoints[kept])
    values, through = breakpoints[kept][order], np.cumsum(weights[kept][order])
    k = min(np.searchsorted(through, level), len(values) - 1)
    later = values[values > values[k]]
    total = weights[kept][breakpoints[kept] <= values[k]].sum()
    return values[k], later.min() if len(later) and total == level else values[k]


@pytest.mark.parametrize("few", [1, 5, 1000])
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 3, 40]), st.floats(0, 1))
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_selection_is_that_of_a_sort(monkeypatch, few, seed, distinct, share):
    monkeypatch.setattr(quantile, "FEW", few)
    monkeypatch.setattr(quantile, "SAMPLED", few + 1)
    rng = np.random.default_rng(seed)
    n = 50
    scores = rng.integers(0, distinct, n) * 10.0 ** rng.integers(-300, 300) * rng.choice([-1.0, 1.0])
    t, weights = np.zeros(n), rng.integers(0, 3, n).astype(float)
    level = float(round(share * 2 * weights.sum()))
    if not weights.any():
        weights[0] = 1.0
    for eps in (0.0, 1.5):
        found = Selecting(t, weights, EpsilonInsensitive(eps), scores)
        matrix = sparse.csr_array(np.ones((n, 1)))
        points = np.concatenate([t - scores - eps, t - scores + eps])
        both = np.concatenate([weights, weights])
        wanted = [(0.0, level), (1.0, level / 2), (-1.0, level / 2)]
        assert found.quantiles(matrix, wanted) == [
            plain_quantile(points, both, level),
            plain_quantile(points[:n], weights, level / 2),
            plain_quantile(points[n:], weights, level / 2),
        ]


@pytest.mark.parametrize("side", [0.0, 1.0, -1.0])
@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.999, 1.0])
@pytest.mark.parametrize("kind", ["normal", "ascending", "tied", "heavy"])
def test_selection_takes_few_passes(monkeypatch, kind, share, side):
    monkeypatch.setattr(quantile, "FEW", 4000)
    monkeypatch.setattr(quantile, "SAMPLED", 2000)
    rng = np.random.default_rng(5)
    n = 30_000
    scores, weights = rng.normal(size=n), np.ones(n)
    if kind == "ascending":
        scores.sort()
    elif kind == "tied":
        scores = scores.round()
    elif kind == "heavy":
        weights = np.floor(rng.pareto(0.5, n)) + 1.0
    found = Selecting(np.zeros(n), weights, EpsilonInsensitive(0.25), scores)
    matrix = sparse.csr_array((n, 1))
    points = {
        1.0: -scores - 0.25,
        -1.0: -scores + 0.25,
        0.0: np.concatenate([-scores - 0.25, -scores + 0.25]),
    }
    own = np.concatenate([weights, weights])[: len(points[side])]
    level = float(round(share * own.sum()))
    expected = plain_quantile(points[side], own, level)
    assert {found.quantiles(matrix, [(side, level)], each)[0] for each in (1, 7)} == {expected}
    few = {"normal": 2, "ascending": 2, "tied": 3, "heavy": 16}[kind]
    assert found.passes <= (few if 0.0 < share < 1.0 else few + 4)


class TestMaster:
    @pytest.mark.parametrize("seed", range(6))
    @pytest.mark.parametrize("equal", [False, True])
    @pytest.mark.parametrize("n_free", [1, 2])
    def test_it_is_the_optimum(self, seed, equal, n_free):
        rng = np.random.default_rng(seed)
        m, groups, C = 12, 2, 0.7
        A, d = rng.normal(size=(m, 5)), rng.normal(size=m) + 1.0
        group = np.arange(m) % groups
        E = rng.normal(size=(n_free, m))
        # The first ones of each group span 0.
        E[:, 2 : 2 + 4 * n_free] = np.kron(np.array([[1.0, 1.0, -1.0, -1.0]]), np.eye(n_free))[
            :, : 4 * n_free
        ]
        found = solve_free_master(A @ A.T, d, E, group, groups, C, np.zeros(n_free), 1e-9, equal=equal)
        sums = np.bincount(group, weights=found.beta)
        assert (found.beta >= 0).all()
        assert (sums <= C * (1 + 1e-12)).all()
        if equal:
            np.testing.assert_allclose(sums, C)
        np.testing.assert_allclose(E @ found.beta, 0, atol=1e-8)
        value = d @ found.beta - 0.5 * np.sum((found.beta @ A) ** 2)
        # No more than the primal value at the same point.
        heights = d - A @ (found.beta @ A) - found.free @ E
        slack = [max(heights[group == g].max(), -np.inf if equal else 0.0) for g in range(groups)]
        assert value == pytest.approx(0.5 * np.sum((found.beta @ A) ** 2) + C * sum(slack), abs=1e-7)

    @pytest.mark.parametrize("equal", [False, True])
    def test_a_part_without_a_cut_of_some_group(self, equal):
        rng = np.random.default_rng(4)
        m, groups, C = 200, 4, 0.7
        A, d = rng.normal(size=(m, 5)), rng.normal(size=m) + 1.0
        group, E = np.arange(m) % groups, rng.normal(size=(1, m))
        problem = A @ A.T, d, E, group, groups, C, np.zeros(1), 1e-9
        whole = solve_free_master(*problem, equal=equal)
        active = (whole.beta > 1e-9) & (group != 2)
        assert active.any()
        found = solve_free_master(*problem, active=active, equal=equal)
        values = [d @ each.beta - 0.5 * np.sum((each.beta @ A) ** 2) for each in (whole, found)]
        assert values[1] == pytest.approx(values[0], abs=1e-7)
        sums = np.bincount(group, weights=found.beta)
        assert (sums <= C * (1 + 1e-12)).all()
        if equal:
            np.testing.assert_allclose(sums, C)

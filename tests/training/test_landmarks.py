"""Models of landmarks: their certificates, recomputed; bits, resuming, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

import ooc_svm
from ooc_svm import DamageError, InputError, MemoryBudgetError, OocSVC, UsageError
from ooc_svm.data.blocks import RowBlock
from ooc_svm.ops.kernels import Gaussian
from ooc_svm.training.landmark_draw import drawn_numbers
from ooc_svm.training.pivots import Pivots

GAMMA, EPS, K = 0.03, 0.1, 100
RBF = {"kernel": "rbf", "gamma": GAMMA}
RNG = np.random.default_rng(11)
X = RNG.standard_normal((1500, 8)).astype(np.float32)
VALUES = X[:, 0] * X[:, 1] + X[:, 2] + 0.3 * RNG.standard_normal(1500)
CASES = {
    "penalized": ({"bias": "penalized"}, np.sign(VALUES)),
    "free": ({"bias": "free", "loss": "squared-hinge", "scale": "std"}, np.sign(VALUES)),
    "values": ({"problem": "svr", "bias": "free", "epsilon": EPS}, VALUES),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """The rows in several blocks."""
    path = tmp_path_factory.mktemp("landmarks") / "data.zarr"
    ooc_svm.convert_matrix(X, np.sign(VALUES), path)
    return path


def values_of(rows, others, scale):
    """Kernel values, in float64."""
    a, b = (each.astype(np.float64) * scale for each in (rows, others))
    squares = (a**2).sum(1)[:, None] + (b**2).sum(1)[None, :] - 2.0 * a @ b.T
    return np.exp(-GAMMA * squares)


def primal_of(model, labels, options):
    """P by its formula, from the model's support vectors."""
    functions, bias = model.functions, float(model.bias[0])
    vectors, v = functions.vectors, functions.coefficients[0]
    dense = np.zeros((vectors.n_rows, X.shape[1]))
    dense[np.repeat(np.arange(vectors.n_rows), np.diff(vectors.indptr)), vectors.indices] = vectors.values
    scale = 1.0 if functions.scale is None else functions.scale
    scores = values_of(X, dense, scale) @ v + bias
    if options.get("problem") == "svr":
        losses = np.maximum(np.abs(labels - scores) - EPS, 0.0)
    else:
        losses = np.maximum(1.0 - labels * scores, 0.0) ** (2 if "loss" in options else 1)
    penalty = bias * bias if options["bias"] == "penalized" else 0.0
    return 0.5 * (v @ values_of(dense, dense, scale) @ v + penalty) + losses.sum()


@pytest.mark.parametrize("name", CASES)
def test_the_certificate_is_that_of_the_kernel(name):
    options, labels = CASES[name]
    best = ooc_svm.train(X, labels, **RBF, **options, tol=1e-4).report["models"][0]
    model = ooc_svm.train(X, labels, **RBF, **options, landmarks=K)
    found, linear = model.report["models"][0], model.report["landmarks"]
    assert model.functions.vectors.n_rows == K == linear["landmarks"]
    assert found["stop_reason"] == "landmarks"
    assert not found["converged"]
    assert found["primal"] == pytest.approx(primal_of(model, labels, options), rel=1e-9)
    # Features are float32: their P is nearly that of the kernel, and their D is no bound of it.
    assert found["primal"] == pytest.approx(linear["models"][0]["primal"], rel=1e-4)
    assert found["dual"] <= best["primal"]
    assert best["dual"] <= found["primal"] <= 1.02 * best["primal"]
    assert 0.0 <= found["relative_gap"] <= 0.04
    assert model.report["passes"] > linear["passes"]


@pytest.mark.parametrize("name", CASES)
def test_polishing_certifies_the_gap(name):
    options, labels = CASES[name]
    alone = ooc_svm.train(X, labels, **RBF, **options).report["models"][0]
    model = ooc_svm.train(X, labels, **RBF, **options, landmarks=K, polish=True)
    found = model.report["models"][0]
    assert found["converged"]
    assert found["primal"] == pytest.approx(primal_of(model, labels, options), rel=1e-6)
    assert found["dual"] <= alone["primal"]
    assert alone["dual"] <= found["primal"]
    assert found["passes"] <= alone["passes"]


def same(model, other):
    ours, theirs = model.functions.to_arrays(), other.functions.to_arrays()
    return all(np.array_equal(ours[name], theirs[name]) for name in ours) and all(
        a[key] == b[key]
        for a, b in zip(model.report["models"], other.report["models"], strict=True)
        for key in ("primal", "dual")
    )


def test_the_same_bits_on_any_number_of_threads(store):
    options = {**RBF, "landmarks": K, "C": (0.5, 2.0)}
    one, two = (ooc_svm.train(store, threads=n, **options) for n in (1, 2))
    assert same(one, two)
    assert not same(one, ooc_svm.train(store, threads=1, seed=1, **options))


def test_a_resumed_run_is_one_that_was_never_stopped(store, tmp_path):
    options = {**RBF, "landmarks": K, "polish": True, "tol": 1e-5}
    whole = ooc_svm.train(store, **options)
    reads = whole.report["landmarks"]["passes"]
    assert whole.report["models"][0]["passes"] > reads > 1
    for limit in (1, reads):  # In the linear part; and after it
        folder = tmp_path / str(limit)
        cut = ooc_svm.train(store, **options, checkpoint=folder, max_passes=limit)
        assert "max-passes" in cut.report["stop_reason"]
        assert same(ooc_svm.train(store, **options, checkpoint=folder, resume=True), whole)


def test_a_model_of_landmarks_can_be_polished_later(store, tmp_path):
    options = {**RBF, "landmarks": K, "checkpoint": tmp_path / "state"}
    first = ooc_svm.train(store, **options)
    again = ooc_svm.train(store, **options, resume=True)
    assert same(first, again)
    polished = ooc_svm.train(store, **options, polish=True, resume=True)
    assert polished.report["converged"]
    assert polished.report["models"][0]["dual"] >= first.report["models"][0]["dual"]


@pytest.mark.parametrize("option", [{"validation": 0.3}, {"calibrate": "sigmoid"}])
def test_rows_that_are_held_out_have_scores_after_polishing(store, tmp_path, option):
    """Not those of the rows with a multiplier alone, which is all that a model of landmarks needs."""
    options = {**RBF, "landmarks": K, "tol": 1e-5, **option}
    ooc_svm.train(store, **options, checkpoint=tmp_path)
    later = ooc_svm.train(store, **options, polish=True, checkpoint=tmp_path, resume=True)
    once = ooc_svm.train(store, **options, polish=True)
    name = "validation" if "validation" in option else "calibration"

    def numbers(found):
        if isinstance(found, dict):
            return [x for key in sorted(found) if key != "models" for x in numbers(found[key])]
        if isinstance(found, list):
            return [x for each in found for x in numbers(each)]
        return [found] if isinstance(found, float) else []

    assert numbers(later.report[name])
    assert numbers(later.report[name]) == pytest.approx(numbers(once.report[name]), rel=0.02, abs=5e-3)


@pytest.mark.parametrize("other", [{"gamma": 0.05}, {"seed": 3}])
def test_a_checkpoint_of_another_run_is_refused(store, tmp_path, other):
    options = {**RBF, "landmarks": K, "checkpoint": tmp_path}
    ooc_svm.train(store, **options)
    with pytest.raises(DamageError, match="was saved by a run"):
        ooc_svm.train(store, **{**options, **other}, resume=True)


def test_where_nothing_is_lost_any_rows_will_do():
    model = ooc_svm.train(X, np.zeros(len(X)), problem="svr", epsilon=EPS, **RBF, landmarks=K)
    assert model.report["landmarks"]["landmarks"] == K
    assert model.report["models"][0]["primal"] == 0.0


def test_the_decomposition_is_let_go_when_all_are_chosen():
    pivots = drawn_pivots(X[:300], 64, 32)
    pivots.landmarks()
    assert pivots._F.size
    pivots.draw(32, np.random.default_rng(5))
    pivots.landmarks()
    assert not pivots._F.size


def test_rows_are_drawn_by_the_seed():
    numbers = drawn_numbers(1000, 50, np.random.default_rng(3))
    assert (np.diff(numbers) > 0).all()
    assert np.array_equal(numbers, drawn_numbers(1000, 50, np.random.default_rng(3)))
    assert not np.array_equal(numbers, drawn_numbers(1000, 50, np.random.default_rng(4)))
    assert np.array_equal(drawn_numbers(20, 50, np.random.default_rng(0)), np.arange(20))


def block_of(rows):
    """Dense rows as a block."""
    n, d = rows.shape
    indices = np.tile(np.arange(d, dtype=np.int32), n)
    return RowBlock(0, d * np.arange(n + 1, dtype=np.int64), indices, rows.astype(np.float32).reshape(-1))


def untold(rows, chosen):
    """Trace of the kernel matrix less what the chosen rows tell of it, by dense matrices."""
    K = values_of(rows, rows, 1.0)
    return np.trace(K - K[:, chosen] @ np.linalg.pinv(K[np.ix_(chosen, chosen)], rcond=1e-9) @ K[chosen])


def drawn_pivots(rows, count, most):
    """Rows chosen by their kernel values alone."""
    pivots = Pivots(Gaussian(GAMMA), block_of(rows), rows.shape[1], None, count)
    pivots.draw(most, np.random.default_rng(5))
    return pivots


def test_landmarks_tell_more_of_the_others_than_any_rows_would():
    # Most rows are alike, and those that are not are few.
    rows = np.concatenate([0.1 * X[:360], 3.0 * X[360:400]])
    found = drawn_pivots(rows, 60, 60).chosen
    assert len(found) == 60
    assert (np.diff(found) > 0).all()
    drawn = [drawn_numbers(400, 60, np.random.default_rng(seed)) for seed in range(5)]
    assert untold(rows, found) < 0.5 * min(untold(rows, numbers) for numbers in drawn)


def test_where_some_rows_tell_all_the_rest_are_any():
    found = drawn_pivots(np.tile(X[:10], (20, 1)), 150, 150).chosen
    assert len(np.unique(found)) == 150
    assert len(np.unique(found % 10)) == 10


def test_no_more_rows_than_there_are_become_landmarks():
    pivots = drawn_pivots(X[:20], 30, 1)
    assert pivots.missing == 0
    assert np.array_equal(pivots.chosen, np.arange(20))


def test_the_rows_that_most_is_gained_from_are_chosen():
    rows = X[:300]
    pivots = drawn_pivots(rows, 64, 32)  # Then two at a time
    K, first = values_of(rows, rows, 1.0), pivots.chosen
    assert (len(first), pivots.missing) == (32, 32)
    # A function of all rows: what some of them tell least of it is known by dense matrices.
    whole = K @ np.random.default_rng(6).standard_normal((300, 2))

    def residuals(chosen):
        told = K[:, chosen] @ np.linalg.pinv(K[np.ix_(chosen, chosen)], rcond=1e-12)
        return (whole - told @ whole[chosen]).T, np.diag(K - told @ K[chosen])

    chosen = first
    while len(chosen) < 64:
        rest, left = residuals(chosen)
        far = np.where((left > 1e-3) & ~np.isin(np.arange(300), chosen), left, np.inf)
        gains = (rest**2).sum(0) / far
        if not gains.any():
            break
        chosen = np.union1d(chosen, np.argsort(-gains, kind="stable")[:2])
    pivots.take_best(whole.T)
    assert np.array_equal(pivots.chosen, chosen)


def test_nothing_is_gained_from_rows_that_are_told_already():
    pivots = drawn_pivots(np.tile(X[:10], (20, 1)), 150, 20)
    pivots.take_best(np.ones((1, 200)))
    assert pivots.missing == 130
    pivots.draw(130, np.random.default_rng(5))
    assert pivots.missing == 0


def test_rows_that_are_alike_need_fewer_features():
    matrix, labels = np.tile(X[:40], (5, 1)), np.tile(np.sign(VALUES[:40]), 5)
    model = ooc_svm.train(matrix, labels, **RBF, landmarks=200)
    assert model.report["landmarks"]["features"] <= 40
    assert model.report["models"][0]["relative_gap"] < 1e-2


def test_several_classes_and_estimators():
    names = np.array(["a", "b", "c"])[np.digitize(VALUES, [-1.0, 1.0])]
    with pytest.warns(ConvergenceWarning, match=r"\(landmarks\), tol=0.001 was asked for"):
        fitted = OocSVC(kernel="rbf", gamma=GAMMA, C=10.0, landmarks=K).fit(X, names)
    assert fitted.score(X, names) > 0.8
    assert len(fitted.model_.report["landmarks"]["models"]) == 3


def test_few_landmarks_have_a_bound_above_nothing():
    found = ooc_svm.train(X, np.sign(VALUES), **RBF, landmarks=1).report["models"][0]
    assert 0.0 < found["dual"] < found["primal"]


def test_folds_and_limits():
    options = {**RBF, "landmarks": K, "calibrate": "sigmoid"}
    model = ooc_svm.train(X, np.sign(VALUES), **options, max_passes=1)
    assert model.report["stop_reason"].split(", ") == ["max-passes", "landmarks"]
    assert sum(model.report["calibration"]["folds"]) == len(X)
    assert model.predict_proba(X).shape == (len(X), 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": "sigmoid", "gamma": 1.0}, "the kernel is not positive semi-definite on the landmarks"),
        ({"kernel": "poly", "gamma": 1e3, "degree": 300}, "kernel values of the landmarks overflow"),
    ],
)
def test_what_is_no_kernel_on_the_landmarks(options, message):
    with pytest.raises(InputError, match=message):
        ooc_svm.train(X, np.sign(VALUES), **options, landmarks=50)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"landmarks": 10}, "landmarks is for the solver 'block-smo'"),
        ({**RBF, "polish": True}, "polish needs landmarks"),
        ({**RBF, "landmarks": 10, "solver": "smo"}, "landmarks is for the solver 'block-smo'"),
        ({**RBF, "landmarks": 10, "engine": "dask"}, "landmarks is for one machine"),
    ],
)
def test_what_does_not_go_together(store, options, message):
    with pytest.raises(UsageError, match=message):
        ooc_svm.train(store, **options)


def test_memory_is_known_before_anything_is_read(store):
    with pytest.raises(MemoryBudgetError, match="allowed are 200 MB"):
        ooc_svm.train(store, **RBF, landmarks=1500, memory="200MB", threads=2)
    with pytest.raises(UsageError, match="models of landmarks are not compared"):
        ooc_svm.tune(store, **RBF, landmarks=10, C=(1.0, 2.0))
    few, many = (ooc_svm.plan(store, **RBF, landmarks=count) for count in (10, 1500))
    assert few.total < many.total
    assert few.expected_passes < ooc_svm.plan(store, **RBF, landmarks=10, polish=True).expected_passes


@pytest.mark.parametrize("kernel", ["sigmoid", "poly"])
def test_rows_whose_features_are_all_0(kernel):
    """No row tells of another: weights of 0 are as good as any."""
    y = np.array([1.0, -1.0, 1.0, -1.0, 1.0])
    model = ooc_svm.train(sparse.csr_matrix((5, 3)), y, kernel=kernel, landmarks=2)
    exact = ooc_svm.train(sparse.csr_matrix((5, 3)), y, kernel=kernel)
    assert model.report["stop_reason"] == "certified"
    assert model.report["models"][0]["primal"] == pytest.approx(exact.report["models"][0]["primal"], rel=1e-6)


@pytest.mark.parametrize("options", [{"kernel": "sigmoid"}, {"kernel": "poly", "degree": 1}])
def test_kernel_values_below_0_of_a_row_with_itself(options):
    with pytest.raises(InputError, match="positive semi-definite"):
        ooc_svm.train(0.1 * X[:20], np.sign(VALUES[:20]), gamma=0.5, coef0=-1.0, landmarks=4, **options)

"""Block SMO against scikit-learn and a generic optimiser; its certificate, its bits, its reads."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.kernel_data import Rows, plain_values
from helpers.losses import is_regression, plain_losses
from helpers.stopped_runs import signal_at
from helpers.train_data import make_store, store_rows
from scipy.optimize import minimize
from sklearn.svm import SVC, SVR

import ooc_svm
from ooc_svm import DamageError, InputError, MemoryBudgetError, OocSVC, OocSVR, UsageError
from ooc_svm.errors import Interrupted
from ooc_svm.ops import gram
from ooc_svm.ops.kernels import Gaussian, Polynomial, Sigmoid
from ooc_svm.solvers.base import DataSize, Room
from ooc_svm.solvers.block_smo import bound
from ooc_svm.solvers.block_smo.plan import LEAST_SUPPORT
from ooc_svm.solvers.block_smo.plan import SOLVER as BLOCK_SMO
from ooc_svm.solvers.block_smo.support import gather_support
from ooc_svm.system.arrayfile import read_arrays, write_arrays
from ooc_svm.training.checkpoint import CHECKPOINT_FILE
from ooc_svm.training.run import Run

EPS = 0.1
KERNELS = {
    "rbf": ({"gamma": 0.2}, Gaussian(0.2)),
    "poly": ({"gamma": 0.1, "degree": 2, "coef0": 1.0}, Polynomial(0.1, 1.0, 2)),
    "sigmoid": ({"gamma": 0.005, "coef0": 0.0}, Sigmoid(0.005, 0.0)),
}
LOSSES = ("hinge", "squared-hinge", "epsilon-insensitive", "squared-epsilon-insensitive")


def make_data(loss, n_rows=220):
    matrix, labels = store_rows(n_rows, 12, density=0.6)
    rng = np.random.default_rng(5)
    values = np.sin(matrix @ rng.normal(size=12)) + 0.1 * rng.normal(size=n_rows)
    return matrix, values if is_regression(loss) else labels


def options_of(loss, kernel, **options):
    own = {"problem": "svr", "epsilon": EPS} if is_regression(loss) else {"problem": "svc"}
    return {**own, "loss": loss, "kernel": kernel, **KERNELS[kernel][0], **options}


def gram_of(matrix, kernel):
    rows = Rows(matrix, "float32")
    return plain_values(KERNELS[kernel][1], rows, rows)


def generic_optimum(K, t, loss, cost, bias):
    """The optimum of D by L-BFGS with bounds: v = a - b for values, v = y a for classes."""
    squared = loss.startswith("squared")
    K = K + (1.0 if bias == "penalized" else 0.0)
    damping = 0.5 / cost if squared else np.zeros_like(cost)
    high = np.where(squared, np.inf, cost)
    n = len(t)

    def split(x):
        return x[:n] - x[n:] if is_regression(loss) else t * x

    def objective(x):
        v = split(x)
        r = t - K @ v - damping * v
        value = t @ v - 0.5 * v @ K @ v - 0.5 * (damping * v) @ v
        if is_regression(loss):
            return EPS * x.sum() - value, np.concatenate([EPS - r, EPS + r])
        return -value, -t * r

    size = 2 * n if is_regression(loss) else n
    bounds = [(0.0, None if np.isinf(c) else c) for c in np.resize(high, size)]
    limits = {"maxiter": 20000, "maxfun": 40000, "ftol": 1e-14, "gtol": 1e-9}
    found = minimize(objective, np.zeros(size), jac=True, bounds=bounds, method="L-BFGS-B", options=limits)
    return -found.fun


def primal_of(model, matrix, t, loss, cost, bias):
    """P of a model, from its support vectors by the formula in float64."""
    functions = model.functions
    own = Rows(
        type(matrix)(
            (functions.vectors.values, functions.vectors.indices, functions.vectors.indptr),
            (functions.vectors.n_rows, matrix.shape[1]),
        ),
        "float32",
    )
    v, b = functions.coefficients[0], functions.bias[0]
    scores = plain_values(functions.function, Rows(matrix, "float32"), own) @ v + b
    norm = v @ plain_values(functions.function, own, own) @ v + (b * b if bias == "penalized" else 0.0)
    return 0.5 * norm + plain_losses(loss, t, scores, cost, EPS if is_regression(loss) else 0.0).sum()


@pytest.mark.parametrize("bias", ["penalized", "none"])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_optimum_is_that_of_a_generic_optimiser(loss, bias):
    matrix, t = make_data(loss)
    weights = np.random.default_rng(1).integers(1, 4, len(t)) * 0.5
    model = ooc_svm.train(
        matrix, t, sample_weight=weights, **options_of(loss, "rbf", bias=bias, C=2.0, tol=1e-5)
    )
    row, cost = model.report["models"][0], 2.0 * weights
    optimum = generic_optimum(gram_of(matrix, "rbf"), t, loss, cost, bias)
    assert model.report["converged"]
    assert row["dual"] <= optimum * (1.0 + 1e-7)
    assert optimum * (1.0 - 1e-7) <= row["primal"] <= optimum * (1.0 + 2e-5)
    assert primal_of(model, matrix, t, loss, cost, bias) == pytest.approx(row["primal"], rel=1e-9)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("loss", ["hinge", "epsilon-insensitive"])
def test_the_optimum_is_that_of_libsvm_with_a_free_bias(loss, kernel):
    matrix, t = make_data(loss)
    model = ooc_svm.train(matrix, t, **options_of(loss, kernel, bias="free", C=1.5, tol=1e-6))
    numbers = KERNELS[kernel][0]
    peer = SVR(epsilon=EPS) if is_regression(loss) else SVC()
    peer = peer.set_params(kernel=kernel, C=1.5, tol=1e-9, **numbers).fit(matrix.toarray(), t)
    rows = matrix.toarray()
    scores = peer.predict(rows) if is_regression(loss) else peer.decision_function(rows)
    v = peer.dual_coef_[0]
    own = plain_losses(loss, t, scores, 1.5, EPS if is_regression(loss) else 0.0).sum()
    optimum = 0.5 * v @ gram_of(matrix, kernel)[np.ix_(peer.support_, peer.support_)] @ v + own
    row = model.report["models"][0]
    assert row["dual"] <= optimum * (1.0 + 1e-7)
    assert row["primal"] == pytest.approx(optimum, rel=1e-5)
    assert primal_of(model, matrix, t, loss, 1.5, "free") == pytest.approx(row["primal"], rel=1e-9)
    tolerance = 20.0 * np.sqrt(2.0 * row["gap"]) + 1e-4
    assert np.abs(model.decision_function(matrix) - scores).max() < tolerance


def test_several_classes_and_values_of_C_and_class_weights():  # noqa: N802
    matrix, labels = make_data("hinge")
    labels = labels + 2.0 * (np.arange(len(labels)) % 3 == 0)
    options = options_of("hinge", "rbf", C=[0.5, 4.0], class_weight=dict.fromkeys(set(labels), 2.0))
    model = ooc_svm.train(matrix, labels, **options)
    alone = ooc_svm.train(matrix, labels, **{**options, "C": 4.0})
    assert model.n_models == 2 * alone.n_models == 2 * len(set(labels))
    for k in range(alone.n_models):
        assert model.report["models"][alone.n_models + k]["primal"] == alone.report["models"][k]["primal"]
    assert model.score(matrix, labels) > 0.9


def store_of(folder, *, ones):
    matrix, labels = make_data("hinge", 900)
    if ones:
        matrix.data[:] = 1.0
    cut = {"chunk_elements": 500, "chunk_rows": 100, "block_chunks": 2, "block_rows": 100}
    return make_store(folder / "rows.zarr", matrix, labels, **cut)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return store_of(tmp_path_factory.mktemp("kernels"), ones=False)


@pytest.fixture(scope="module", params=["values", "ones"])
def any_store(request, tmp_path_factory):
    return store_of(tmp_path_factory.mktemp(request.param), ones=request.param == "ones")


RUN = options_of("hinge", "rbf", bias="free", tol=1e-4, C=3.0)


def train(store, **options):
    return ooc_svm.train(store, **{**RUN, **options})


def small_sets(monkeypatch, rows=64):
    """So that many reads are taken, and rows are set aside in some of them."""
    monkeypatch.setattr("ooc_svm.solvers.block_smo.plan.SIZES", (rows,))
    monkeypatch.setattr("ooc_svm.solvers.block_smo.solver.LEAST_ASIDE", 1e-3)


def bits_of(model):
    functions = model.functions
    vectors = [array for array in functions.vectors.arrays if array is not None]
    arrays = [*vectors, functions.coefficients, functions.bias]
    return [array.tobytes() for array in arrays] + [str(model.report["history"][-1]["primal"])]


def test_threads_change_no_bit(any_store, monkeypatch):
    small_sets(monkeypatch)
    one, three = train(any_store, threads=1), train(any_store, threads=3)
    assert bits_of(one) == bits_of(three)
    assert one.report["converged"]


def test_a_cluster_gives_the_same_bits(any_store, monkeypatch):
    small_sets(monkeypatch)
    assert bits_of(train(any_store, engine="dask", threads=2)) == bits_of(train(any_store))


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(any_store, tmp_path, monkeypatch):
    small_sets(monkeypatch)
    whole = train(any_store)
    passes = whole.report["passes"]
    assert passes > 5
    for most in (1, 3, 4, passes - 1):
        folder = tmp_path / str(most)
        part = train(any_store, checkpoint=folder, max_passes=most)
        assert part.report["stop_reason"] == "max-passes"
        assert part.report["passes"] == most
        assert bits_of(train(any_store, checkpoint=folder, resume=True)) == bits_of(whole)


def test_a_signal_before_a_read_leaves_a_state_that_goes_on(store, tmp_path, monkeypatch):
    """A checkpoint is written when the solver has asked for a read, which the state knows nothing of yet."""
    small_sets(monkeypatch)
    most = {"max_passes": 14}  # so few reads after the last signal as show that the state is the same
    whole = train(store, **most)
    for wanted in range(2, 12):
        folder = tmp_path / str(wanted)
        with signal_at(wanted), pytest.raises(Interrupted):
            train(store, checkpoint=folder, **most)
        assert bits_of(train(store, checkpoint=folder, resume=True, **most)) == bits_of(whole)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("0/certificate/primal", lambda P: P * 0.9),
        ("0/certificate/dual", lambda D: D + 50.0),
        ("0/best_bias", lambda b: b + 5.0),
        ("0/backlog/change", lambda change: 1.1 * change),
        ("0/backlog/values", lambda values: 1.1 * values),
        ("0/working/before", lambda before: before + 0.01),
        ("0/working/indices", lambda ids: ids[::-1]),
        ("h", lambda h: h + 0.01),
        ("best h", lambda h: h - 0.01),
        ("error", lambda error: 1e-3 * error),
        ("best error", lambda error: 1e-3 * error),
        ("best v", lambda v: np.where(v > 0.0, 10.0, v)),
    ],
)
def test_a_state_that_no_run_wrote_is_refused(store, tmp_path, monkeypatch, name, change):
    small_sets(monkeypatch)
    # A read in which rows are set aside.
    train(store, checkpoint=tmp_path, max_passes=3)
    for path in tmp_path.glob("*.state"):
        content, arrays = read_arrays(path, CHECKPOINT_FILE)
        if "/" in name:
            arrays[name] = change(arrays[name])
        with path.open("wb") as file:
            write_arrays(file, CHECKPOINT_FILE, content, arrays)
    restore = Run.restore

    def forge(run):
        restore(run)
        if "/" not in name:
            vector = run.engine.vectors[f"model0 {name}"]
            vector.write(0, change(vector.read(0, run.engine.vectors.n_rows)))

    monkeypatch.setattr(Run, "restore", forge)
    with pytest.raises(DamageError, match="does not fit the data"):
        train(store, checkpoint=tmp_path, resume=True)


def test_every_value_is_above_every_bound(store, monkeypatch):
    small_sets(monkeypatch)
    history = train(store).report["history"]
    assert max(row["dual"] for row in history) <= min(row["primal"] for row in history)


@pytest.mark.parametrize("kernel", KERNELS)
def test_each_score_is_off_by_no_more_than_its_error(store, tmp_path, monkeypatch, kernel):
    small_sets(monkeypatch)
    options = options_of("hinge", kernel)
    train(store, checkpoint=tmp_path, max_passes=6, **options)
    restore, found = Run.restore, {}

    def keep(run):
        restore(run)
        for name in ("v", "h", "error", "aside"):
            vector = run.engine.vectors[f"model0 {name}"]
            found[name] = np.array(vector.read(0, run.engine.vectors.n_rows))

    monkeypatch.setattr(Run, "restore", keep)
    train(store, checkpoint=tmp_path, resume=True, max_passes=7, **options)
    # Those that are set aside have not followed yet.
    here = found["aside"] == 0.0
    off = np.abs(found["h"] - gram_of(make_data("hinge", 900)[0], kernel) @ found["v"])[here]
    errors = found["error"][here]
    assert off.max() > 0.0
    assert (off <= errors).all()
    if kernel == "rbf":
        matrix, _ = make_data("hinge", 900)
        sizes = bound.RowSizes(float(matrix.multiply(matrix).sum(axis=1).max()), 12)
        size, additions = float(np.abs(found["v"]).sum()), len(found["v"]) // gram.BLOCK + 1
        same = bound.largest_update_error(KERNELS[kernel][1], sizes, "float32", size, additions)
        assert np.median(errors) < 0.3 * same


def test_few_reads_are_taken(store):
    """A working set of all rows: the candidates, their steps, and one read in float64."""
    assert train(store).report["passes"] <= 8


def test_float64_scores_certify_what_float32_cannot(store):
    (row,) = train(store, tol=1e-7).report["models"]
    assert row["exact_scores"] >= 1.0
    assert row["relative_gap"] <= 1e-7


def test_exact_scores_do_not_depend_on_how_many_support_vectors_are_taken_at_a_time(store, monkeypatch):
    whole = train(store, C=0.1)
    assert whole.report["models"][0]["n_support"] > 2 * gram.BLOCK
    monkeypatch.setattr("ooc_svm.solvers.block_smo.support.PANEL_BLOCKS", 1)
    assert bits_of(train(store, C=0.1)) == bits_of(whole)


def test_rows_with_all_columns_may_be_far_from_0():
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(300, 6)) + 1000.0).astype(np.float32)
    t = np.sin(rows @ np.ones(6))
    model = ooc_svm.train(rows, t, problem="svr", kernel="rbf", gamma=0.3, epsilon=EPS, bias="free", tol=1e-6)
    peer = SVR(gamma=0.3, epsilon=EPS, tol=1e-9).fit(rows.astype(np.float64) - 1000.0, t)
    assert np.abs(model.predict(rows) - peer.predict(rows.astype(np.float64) - 1000.0)).max() < 1e-3
    (row,) = model.report["models"]
    assert row["relative_gap"] <= 1e-6
    assert row["dual"] <= row["primal"]


@pytest.mark.parametrize("longest", [1 << 14, 4])
@pytest.mark.parametrize("kernel", KERNELS)
def test_rows_of_ones_need_no_exact_scores(monkeypatch, kernel, longest):
    """Values are looked up, or computed where the table would be too long."""
    monkeypatch.setattr("ooc_svm.ops.gram.LONGEST_TABLE", longest)
    matrix, labels = make_data("hinge")
    matrix.data[:] = 1.0
    model = ooc_svm.train(matrix, labels, **options_of("hinge", kernel, bias="free", C=1.5, tol=1e-7))
    (row,) = model.report["models"]
    assert row["converged"]
    if longest > 4:
        assert row["exact_scores"] == 0.0
    own = KERNELS[kernel][0]
    peer = SVC(kernel=kernel, C=1.5, tol=1e-9, **own).fit(matrix, labels)
    v = peer.dual_coef_.toarray()[0] if hasattr(peer.dual_coef_, "toarray") else peer.dual_coef_[0]
    K = gram_of(matrix, kernel)[np.ix_(peer.support_, peer.support_)]
    optimum = np.abs(v).sum() - 0.5 * v @ K @ v
    assert row["dual"] == pytest.approx(optimum, rel=1e-6)
    np.testing.assert_allclose(model.decision_function(matrix), peer.decision_function(matrix), atol=2e-3)


def test_rounding_that_hides_the_gap_for_long_does_not_end_a_run(store, monkeypatch):
    small_sets(monkeypatch)
    monkeypatch.setattr("ooc_svm.solvers.block_smo.solver.HIDDEN_READS", 2)
    # P and D are found in every fourth read at the latest.
    monkeypatch.setattr("ooc_svm.solvers.certificate.STALL_PASSES", 16)
    exact = bound.kernel_error
    much = {"float32": 1e-2, "float64": 0.0}
    monkeypatch.setattr(bound, "kernel_error", lambda *of: exact(*of) + much[of[2]])
    monkeypatch.setattr("ooc_svm.solvers.block_smo.bound.LARGEST_ERROR", 1.0)
    model = train(store)
    (row,) = model.report["models"]
    assert model.report["stop_reason"] == "certified"
    assert row["exact_scores"] > 1.0


def test_a_model_file_and_a_single_row(store, tmp_path):
    matrix, _ = make_data("hinge", 900)
    model = train(store)
    ooc_svm.save_model(model, tmp_path / "m")
    again = ooc_svm.load_model(tmp_path / "m")
    assert bits_of(again) == bits_of(model)
    scores = again.decision_function(matrix)
    assert np.array_equal(scores, model.decision_function(matrix))
    row = matrix[[3]]
    assert again.score_one(row) == scores[3]
    assert again.kernel == "rbf"
    assert again.report["gamma"] == 0.2
    with pytest.raises(AttributeError, match="has no weights"):
        _ = again.weights
    with pytest.raises(UsageError, match="kernel rbf"):
        ooc_svm.export_model(again, tmp_path / "x", "liblinear")


@pytest.mark.parametrize("rule", ["scale", "auto"])
def test_gamma_has_the_meaning_of_scikit_learn(rule):
    matrix, labels = make_data("hinge")
    model = ooc_svm.train(matrix, labels, kernel="rbf", gamma=rule)
    peer = SVC(gamma=rule).fit(matrix.toarray().astype(np.float64), labels)
    assert model.report["gamma"] == pytest.approx(peer._gamma, rel=1e-6)
    assert model.options["gamma"] == rule


def test_scaled_columns_are_those_of_scaled_data():
    matrix, labels = make_data("hinge")
    factors = 1.0 / abs(matrix).max(axis=0).toarray().ravel()
    model = ooc_svm.train(matrix, labels, **options_of("hinge", "rbf", scale="maxabs", tol=1e-6))
    scaled = ooc_svm.train(matrix.multiply(factors).tocsr(), labels, **options_of("hinge", "rbf", tol=1e-6))
    ours, theirs = (each.report["models"][0]["primal"] for each in (model, scaled))
    assert ours == pytest.approx(theirs, rel=2e-6)
    found = model.decision_function(matrix)
    np.testing.assert_allclose(found, scaled.decision_function(matrix.multiply(factors).tocsr()), atol=1e-2)


def test_estimators_have_kernels():
    matrix, labels = make_data("hinge")
    svc = OocSVC(kernel="rbf", gamma="scale", C=10.0, bias="free").fit(matrix, labels)
    peer = SVC(C=10.0).fit(matrix.toarray(), labels)
    assert (svc.predict(matrix) == peer.predict(matrix.toarray())).mean() > 0.99
    assert not hasattr(svc, "coef_")
    matrix, values = make_data("epsilon-insensitive")
    svr = OocSVR(kernel="rbf", gamma=0.2, C=10.0, bias="free", epsilon=0.05).fit(matrix, values)
    peer = SVR(gamma=0.2, C=10.0, epsilon=0.05).fit(matrix.toarray(), values)
    assert svr.score(matrix, values) == pytest.approx(peer.score(matrix.toarray(), values), abs=0.01)


def test_duplicate_rows_and_rows_without_features():
    matrix, labels = make_data("hinge", 60)
    dense = np.vstack([matrix.toarray()] * 4 + [np.zeros((8, 12))])
    t = np.concatenate([np.tile(labels, 4), np.resize([1.0, -1.0], 8)])
    model = ooc_svm.train(dense, t, kernel="rbf", gamma=0.2, bias="free")
    assert model.report["converged"]


def test_a_kernel_that_is_not_positive_semi_definite_is_named():
    matrix, labels = make_data("hinge")
    with pytest.raises(InputError, match="not positive semi-definite on these rows"):
        ooc_svm.train(matrix, labels, kernel="sigmoid", gamma=1.0, coef0=-2.0, bias="free", C=100.0)


def test_a_bound_that_an_indefinite_kernel_breaks_is_no_error_of_ours():
    """No two multipliers see a negative curvature, and D grows beyond P of none."""
    rows = np.random.default_rng(0).normal(size=(300, 5))
    t = np.where(rows[:, 0] + rows[:, 1] * rows[:, 2] > 0.0, 1.0, -1.0)
    with pytest.raises(InputError, match=r"\(D = .* is above P = .*\), so no bound holds"):
        ooc_svm.train(rows, t, kernel="sigmoid", gamma=0.1, coef0=1.0, bias="none", C=100.0)


def test_values_beyond_float64_are_an_error():
    matrix, labels = make_data("hinge")
    with pytest.raises(InputError, match="non-finite objective"):
        ooc_svm.train(matrix, labels, kernel="poly", gamma=1e200, degree=50)


def test_memory_that_is_too_little_is_refused(store):
    with pytest.raises(MemoryError, match="working sets"):
        train(store, memory="60MB")


def test_the_sum_that_a_refusal_names_is_enough(store):
    with pytest.raises(MemoryError, match="training needs") as refused:
        train(store, memory="60MB")
    assert train(store, memory=refused.value.needed).report["converged"]


def test_memory_for_support_vectors_is_no_more_than_is_left():
    """Sets that fit without it do."""
    size, options = DataSize(60_000, 3_600_000, 120, 1, 4), ooc_svm.TrainOptions(kernel="rbf")
    seen = set()
    for nbytes in range(10**6, 10**8, 10**5):
        room = Room(nbytes, 1, 10**5, 2, 6)
        plan = BLOCK_SMO.plan(size, options, room)
        support = next(item.nbytes for item in plan.items if item.name == "support vectors")
        others = sum(item.nbytes for item in plan.items) - support
        assert 0 < support <= max(nbytes - others, LEAST_SUPPORT if others >= nbytes else 0)
        seen.add((plan.parameters.rows, others < nbytes))
    assert {rows for rows, fits in seen if fits} >= {128, 256, 512}


def test_support_vectors_on_the_way_that_do_not_fit_are_refused_with_what_is_missing():
    message = "233 support vectors take 0.014 MB of memory, and there are 0.0066 MB for them; allow 1 MB more"
    with pytest.raises(MemoryBudgetError, match=message):
        next(gather_support(("v",), 233, 14_000, 6_600))


def test_a_run_that_the_user_ended_is_not_said_to_be_hopeless(monkeypatch):
    """Values may be computed with less rounding later."""
    monkeypatch.setattr("ooc_svm.training.hints.ROUNDING", 0.0)
    matrix, labels = make_data("hinge")
    for kernel, told in (("rbf", False), ("linear", True)):
        report = ooc_svm.train(matrix, labels, kernel=kernel, max_passes=1, progress=lambda _: None).report
        assert not report["converged"]
        assert ("rounding" in [hint["code"] for hint in report["hints"]]) == told


def test_support_vectors_that_do_not_fit_are_refused_with_the_sum(store, monkeypatch):
    monkeypatch.setattr("ooc_svm.training.functions.program_bytes", lambda *_, **__: 10**15)
    with pytest.raises(MemoryError, match=r"the model has \d+ support vectors, which take \d+ MB"):
        train(store)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma": 0.1}, "gamma is for the kernels 'poly', 'rbf' and 'sigmoid', not 'linear'"),
        ({"kernel": "rbf", "degree": 2}, "degree is for the kernel 'poly', not 'rbf'"),
        ({"kernel": "rbf", "gamma": 0.0}, "gamma must be a positive number, 'scale' or 'auto', not 0.0"),
        ({"kernel": "poly", "degree": 0}, "degree must be an integer from 1 to 1000, not 0"),
        ({"kernel": "rbf", "solver": "ocas"}, "kernel 'rbf' is for the solvers 'block-smo', 'smo' and"),
        ({"kernel": "rbf", "loss": "logistic"}, "no solver takes all of the options"),
    ],
)
def test_options_that_do_not_go_together(options, message):
    with pytest.raises(UsageError, match=message):
        ooc_svm.TrainOptions(**options)


@pytest.mark.parametrize("other", [{"C": 2.0}, {"gamma": 0.3}, {"kernel": "sigmoid"}])
def test_a_checkpoint_of_other_options_is_refused(store, tmp_path, monkeypatch, other):
    small_sets(monkeypatch)
    train(store, checkpoint=tmp_path, max_passes=2)
    with pytest.raises(DamageError):
        train(store, **other, checkpoint=tmp_path, resume=True)


def test_a_plan_counts_the_steps_inside_of_a_set():
    matrix, labels = make_data("hinge")
    planned = ooc_svm.plan(matrix, labels, threads=1, solver="block-smo", **options_of("hinge", "rbf"))
    least, most = planned.expected_seconds
    assert planned.expected_passes * planned.seconds_per_pass == least
    assert 1.2 * least < most < 3.0 * least

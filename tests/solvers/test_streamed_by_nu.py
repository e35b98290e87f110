"""The nu problems by streamed SMO: two models that close in on nu, against the cutting planes."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.train_data import make_store
from scipy import sparse
from sklearn.svm import NuSVC, NuSVR

from ooc_svm import save_model, train, tune

N = 1200
RNG = np.random.default_rng(5)
X = RNG.normal(size=(N, 6)).round(2)
RULE = X @ RNG.normal(size=6)
CLASSES = np.where(RULE + 2.0 * RNG.normal(size=N) > 1.0, 1.0, -1.0)
VALUES = 20.0 + RULE + RNG.standard_t(3, size=N)
THREE = (RULE + RNG.normal(size=N) > 0.5) + (X[:, 0] > 0.3) * 1.0
RUNS = {
    "nu-svc": (CLASSES, {"problem": "nu-svc", "nu": 0.55}),
    "three": (THREE, {"problem": "nu-svc", "nu": 0.28}),
    "nu-svr": (VALUES, {"problem": "nu-svr", "nu": 0.3, "C": (0.01, 1.0)}),
    "narrow": (VALUES, {"problem": "nu-svr", "nu": 0.9, "C": 0.1}),
    "wide": (VALUES, {"problem": "nu-svr", "nu": 0.05, "C": 0.1}),
}


@pytest.mark.parametrize("scale", ["none", "std"])
@pytest.mark.parametrize("name", RUNS)
def test_it_certifies_what_ocas_does_in_fewer_reads(name, scale):
    y, options = RUNS[name]
    at = X * [1.0, 10.0, 1.0, 0.1, 1.0, 1.0] if scale != "none" else X
    ours = train(at, y, solver="streamed-smo", scale=scale, resident=0.1, **options)
    exact = train(at, y, solver="ocas", tol=1e-6, scale=scale, **options)
    for found, other in zip(ours.report["models"], exact.report["models"], strict=True):
        assert found["converged"]
        assert found["dual"] <= other["primal"] + 1e-12 * abs(other["primal"])
        assert other["dual"] <= found["primal"] + 1e-12 * abs(other["primal"])
        assert found.keys() - other.keys() == {"row_visits"}
        assert not other.keys() - found.keys()
    reads = train(at, y, solver="ocas", scale=scale, **options).report["passes"]
    assert ours.report["passes"] < reads


def some_rows(seed, sizes):
    """A small problem: nu from nearly nothing to the largest, values with ties, features of 0 and 1."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.choice(sizes)), int(rng.choice([1, 2, 4, 20]))
    rows = rng.normal(size=(n, d)).round(2) if seed % 3 else (rng.random((n, d)) < 0.3) * 1.0
    values = rows @ rng.normal(size=d) + rng.choice([0.1, 0.5, 3.0]) * rng.normal(size=n)
    if seed % 2:
        y = np.where(values > np.quantile(values, rng.choice([0.5, 0.8])), 1.0, -1.0)
        largest = 2.0 * min((y > 0).mean(), (y < 0).mean())
        return rows, y, {"problem": "nu-svc", "nu": largest * float(rng.choice([0.02, 0.1, 0.5, 0.9, 1.0]))}
    y = 20.0 + (values if seed % 4 else values.round(1))
    C = float(rng.choice([0.01, 1.0, 10.0]))
    return rows, y, {"problem": "nu-svr", "nu": float(rng.choice([0.01, 0.1, 0.5, 0.9, 1.0])), "C": C}


def value_of_peer(rows, y, options):
    """P at the optimum by scikit-learn; None where the hulls of the classes meet, which it does not tell."""
    n, nu = len(y), options["nu"]
    if options["problem"] == "nu-svr":
        C = options["C"]
        peer = NuSVR(kernel="linear", nu=nu, C=C, tol=1e-9).fit(rows, y)
        residuals = np.abs(y - peer.predict(rows))
        loss = min(C * (nu * n * k + np.maximum(0.0, residuals - k).sum()) for k in [0.0, *residuals])
        return 0.5 * float((peer.coef_**2).sum()) + loss
    peer = NuSVC(kernel="linear", nu=nu * (1.0 - 1e-12), tol=1e-9).fit(rows, y)
    # Its multipliers are divided by rho: here they add up to nu.
    share = nu / np.abs(peer.dual_coef_).sum()
    margins = share * y * peer.decision_function(rows)
    loss = min(np.maximum(0.0, rho - margins).mean() - nu * rho for rho in [0.0, *margins])
    return 0.5 * share**2 * float((peer.coef_**2).sum()) + loss


@pytest.mark.parametrize("seed", range(40))
def test_few_rows_and_a_tight_gap(seed):
    rows, y, options = some_rows(seed, [20, 60, 160])
    run = {"tol": 1e-6, "max_passes": 80} | options
    [ours] = train(rows, y, solver="streamed-smo", **run).report["models"]
    [exact] = train(rows, y, solver="ocas", **run).report["models"]
    assert ours["converged"]
    assert ours["dual"] <= exact["primal"] + exact["rounding"]
    assert exact["dual"] <= ours["primal"] + ours["rounding"]
    if ours["absolute"]:
        return
    theirs = value_of_peer(rows, y, options)
    size = abs(ours["primal"])
    assert ours["dual"] <= theirs + 1e-9 * size
    assert ours["primal"] <= theirs + 2e-6 * size


@pytest.mark.parametrize("max_passes", [2, 3, 4, 5, 12])
def test_no_objective_is_below_the_optimum_where_weights_grow_along_a_ray(max_passes):
    # A model on the way has weights that are taken 3e5 times: what is off in its losses is so, too.
    rows = np.array(
        [-0.0006136811904708297, 0.0010230606191603557, -0.0005826954295439219, 0.00016834725286243163]
    )[:, None]
    y, optimum = np.array([1.0, -1.0, -1.0, 1.0]), -9.742361784672706e-09
    options = {"problem": "nu-svc", "nu": 0.9, "max_passes": max_passes}
    [ours] = train(rows, y, solver="streamed-smo", **options).report["models"]
    assert ours["dual"] <= optimum + ours["rounding"]
    assert ours["primal"] >= optimum - ours["rounding"]
    assert ours["converged"] == (max_passes > 4)


def test_a_sum_of_multipliers_that_is_all_rounding_is_no_damage(tmp_path):
    # No plane tells one of the classes from the others: its C goes to the largest there is, on the way to 0.
    rows = [[-0.6276730055806463, -0.2778495202188738], [0.9933386387300657, -0.14996765584481073]]
    rows += [[-1.192663531881868, 0.7188558208061104], [-0.427448316919079, 0.5555291137355455]]
    rows, y = (
        np.array([*rows, [-0.5425511305252003, 0.30564855059468526]]),
        np.array([0.0, 0.0, 2.0, 2.0, 1.0]),
    )
    options = {
        "problem": "nu-svc",
        "nu": 0.36,
        "solver": "streamed-smo",
        "scale": "maxabs",
        "lanes": 2,
        "seed": 0,
    }
    whole = train(rows, y, max_passes=12, **options)
    train(rows, y, max_passes=10, checkpoint=tmp_path, **options)
    resumed = train(rows, y, max_passes=12, checkpoint=tmp_path, resume=True, **options)
    assert resumed.report["models"] == whole.report["models"]


@pytest.mark.usefixtures("few_held")
@pytest.mark.parametrize("seed", [22, 31, 3, 10])
def test_few_rows_of_a_model_are_resident(seed):
    rows, y, options = some_rows(seed, [1000, 3000])
    [ours] = train(rows, y, solver="streamed-smo", resident=0.2, max_passes=40, **options).report["models"]
    [exact] = train(rows, y, solver="ocas", **options).report["models"]
    assert ours["converged"]
    assert ours["dual"] <= exact["primal"] + exact["rounding"]
    assert exact["dual"] <= ours["primal"] + ours["rounding"]


@pytest.mark.parametrize("name", ["three", "nu-svr"])
def test_the_bits_are_the_same_for_any_number_of_threads(tmp_path, name):
    y, options = RUNS[name]
    store = make_store(tmp_path / "rows.zarr", sparse.csr_array(X), y)
    one, more = (
        train(store, solver="streamed-smo", resident=0.1, threads=threads, lanes=2, **options)
        for threads in (1, 3)
    )
    np.testing.assert_array_equal(one.weights, more.weights)
    np.testing.assert_array_equal(one.bias, more.bias)
    assert one.report["passes"] == more.report["passes"]


def test_values_of_c_are_compared():
    found = tune(X, VALUES, problem="nu-svr", nu=0.3, C=(0.01, 1.0), solver="streamed-smo", folds=3)
    assert found.report["converged"]


def test_it_is_taken_where_no_other_solver_is():
    y, options = RUNS["nu-svc"]
    assert train(X, y, **options).report["solver"] == "ocas"
    assert train(X, y, resident=0.1, **options).report["solver"] == "streamed-smo"


@pytest.mark.parametrize("name", ["nu-svc", "nu-svr"])
class TestWarmStart:
    def test_from_the_state_of_another_nu(self, tmp_path, name):
        y, options = RUNS[name]
        other = {"nu": 0.98 * options["nu"]} | ({"C": (0.02, 2.0)} if "C" in options else {})
        reads = []
        # The reads of one run are within one or two of those of another order of the steps.
        for seed in range(3):
            run = options | {"solver": "streamed-smo", "resident": 0.1, "tol": 1e-5, "seed": seed}
            train(X, y, checkpoint=tmp_path / f"state-{seed}", **run)
            starts = {}, {"warm_start": tmp_path / f"state-{seed}"}
            cold, warm = (train(X, y, **run | other, **start) for start in starts)
            assert warm.report["converged"]
            reads.append((warm.report["passes"], cold.report["passes"]))
            for found, exact in zip(warm.report["models"], cold.report["models"], strict=True):
                assert found["dual"] <= exact["primal"]
                assert exact["dual"] <= found["primal"]
        of_warm, of_cold = zip(*reads, strict=True)
        assert sum(of_warm) < sum(of_cold)

    def test_from_a_model(self, tmp_path, name):
        y, options = RUNS[name]
        run = options | {"solver": "streamed-smo", "resident": 0.1, "tol": 1e-4}
        cold = train(X, y, **run)
        save_model(cold, tmp_path / "model")
        warm = train(X, y, warm_start=tmp_path / "model", **run)
        assert warm.report["converged"]
        assert warm.report["passes"] < cold.report["passes"]
        for found, exact in zip(warm.report["models"], cold.report["models"], strict=True):
            assert found["dual"] <= exact["primal"]
            assert exact["dual"] <= found["primal"]

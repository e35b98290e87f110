"""Defects that an audit of the bounds found once, each on the data that showed it.

Whatever is trained here is judged: P and D against values of 80 bits and an independent optimum
(`audit.judge`). Where a problem is easy, the number of reads is limited as well.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest
from audit.data import make_rows
from audit.judge import judge
from audit.objective import Rows
from scipy import sparse
from sklearn.datasets import load_svmlight_file

import ooc_svm
from ooc_svm.solvers.certificate import Certificate
from ooc_svm.solvers.streamed_smo.working_set import WorkingSet

REGRESSION = ("epsilon-insensitive", "squared-epsilon-insensitive")
CLASSES = ("hinge", "squared-hinge")
OFFSETS = (0.0, 1e4, 1e6, 1e8, 1e10)
MOST_READS = 6  # At 10 % resident
MOST_READS_LITTLE = 30  # At 2 % resident and C of 100 or more
MOST_READS_MANY = 18  # Likewise of 97,000 rows of covtype


def train(matrix, labels, weights=None, *, most=None, **options):
    """Train, judge the model and return the report of its only one."""
    options.setdefault("max_passes", 100 if most is None else 2 * most)
    matrix = sparse.csr_array(matrix)
    model = ooc_svm.train(matrix, labels, sample_weight=weights, **options)
    found = judge(model, Rows(matrix, np.asarray(labels), weights), options)
    assert not found, "\n".join(map(str, found))
    [row] = model.report["models"]
    if most is not None:
        assert row["converged"], f"{row['stop_reason']}: P {row['primal']}, D {row['dual']}"
        assert row["passes"] <= most
    return row


def linear_rows(n_rows=200, n_features=5, seed=0, noise=0.3):
    """Normal features, a rule and noise."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_rows, n_features))
    return x, x @ rng.normal(size=n_features), noise * rng.normal(size=n_rows)


def real_data(name, **options):
    """A data set of the folder that OOC_SVM_DATA names."""
    path = Path(os.environ.get("OOC_SVM_DATA", "")) / name
    if "OOC_SVM_DATA" not in os.environ or not path.exists():
        pytest.skip(f"OOC_SVM_DATA names no folder with {name}")
    matrix, labels = load_svmlight_file(str(path), **options)
    return sparse.csr_array(matrix), labels


# Targets far from 0.


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("loss", REGRESSION)
@pytest.mark.parametrize("offset", OFFSETS)
def test_targets_far_from_zero_leave_no_residue_in_the_bound(offset, loss, seed):
    x, s, noise = linear_rows(seed=seed)
    row = train(x, s + noise + offset, problem="svr", loss=loss, bias="free")
    assert row["converged"]


@pytest.mark.parametrize("offset", [1e3, 1e6])
@pytest.mark.parametrize("loss", REGRESSION)
@pytest.mark.parametrize("bias", ["none", "penalized"])
def test_targets_far_from_zero_without_a_free_bias(bias, loss, offset):
    x, s, noise = linear_rows()
    train(x, s + noise + offset, problem="svr", loss=loss, bias=bias, max_passes=20)


# Rounding that is allowed for.


def test_many_steps_on_resident_rows_allow_for_little_rounding(monkeypatch):
    """What they add to D follows from where multipliers began and ended, not from each step."""
    monkeypatch.setattr(WorkingSet, "_steps", lambda *of_solve: None)
    rows = make_rows(
        "svc", n=478, d=14, seed=880659097, values="normal", noise=2.0, labels="several", ranks=3
    )
    labels = np.where(rows.labels == 0, 1.0, -1.0)
    row = train(rows.matrix, labels, loss="squared-hinge", bias="penalized", solver="streamed-smo", C=100.0,
                seed=1, max_passes=4)  # fmt: skip
    assert row["row_visits"] > 1000
    assert row["rounding"] <= 1e-9 * row["primal"]


# C |s| eps as large as the optimum.


def test_a_row_on_the_edge_of_its_tube_may_have_a_loss():
    """Whether it has one, rounding decides; the weight of the row multiplies it."""
    rows = make_rows("svr", n=5, d=2, seed=118089085, values="normal", density=0.3, duplicates=0.3,
                     weights="far")  # fmt: skip
    train(rows.matrix, rows.labels, rows.weights, problem="svr", epsilon=0.5)


def large_ranks(seed):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(5, 60)), int(rng.integers(1, 6))
    x = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(4, 7)
    rule = x @ rng.normal(size=d) / abs(x).max() * 3 + (seed % 2) * 0.3 * rng.normal(size=n)
    return x, np.clip(np.round(rule), -2, 2)


@pytest.mark.parametrize(
    ("seed", "solver"), [(5, "ocas"), (9, "cutting-plane"), (12, "cutting-plane"), (20, "cutting-plane")]
)
def test_losses_that_are_all_rounding_are_allowed_for(seed, solver):
    x, ranks = large_ranks(seed)
    train(x, ranks, problem="ordinal", solver=solver, C=1e7, max_passes=150, time_limit=5)


@pytest.mark.parametrize("loss", CLASSES)
@pytest.mark.parametrize("bias", ["none", "penalized", "free"])
def test_large_rows_and_a_large_cost(bias, loss):
    x, s, _ = linear_rows(100, 3)
    labels = np.where(s > 0, 1.0, -1.0)
    train(x * 1e7, labels, loss=loss, bias=bias, C=1e7, max_passes=60, solver="streamed-smo")


# Warm starts from a very different C.


@pytest.mark.parametrize("loss", [*CLASSES, *REGRESSION])
@pytest.mark.parametrize("C", [1.0, 1e-4])
@pytest.mark.parametrize("ratio", [1e-8, 1e-6, 1e6, 1e8])
def test_a_warm_start_scales_no_rounding(tmp_path, ratio, C, loss):
    x, s, noise = linear_rows()
    values = s + noise
    problem, labels = ("svc", np.where(values > 0, 1.0, -1.0)) if loss in CLASSES else ("svr", values)
    options = {"problem": problem, "loss": loss, "max_passes": 15}
    train(x, labels, C=C, checkpoint=tmp_path / "states", **options)
    row = train(x, labels, C=C * ratio, warm_start=tmp_path / "states", **options)
    if ratio < 1:
        assert row["converged"]


@pytest.mark.parametrize("loss", [*CLASSES, *REGRESSION])
@pytest.mark.parametrize("ratio", [1e-8, 1e8])
def test_a_warm_start_with_a_free_bias(tmp_path, ratio, loss):
    x, s, noise = linear_rows()
    values = s + noise
    problem, labels = ("svc", np.where(values > 0, 1.0, -1.0)) if loss in CLASSES else ("svr", values + 1e4)
    options = {"problem": problem, "loss": loss, "max_passes": 15, "bias": "free"}
    train(x, labels, C=1.0, checkpoint=tmp_path / "states", **options)
    train(x, labels, C=ratio, warm_start=tmp_path / "states", **options)


# A free bias that creeps.


def centred_reads(x, labels, **options):
    """Reads of the same problem without a bias, where nothing is far from 0; at least `MOST_READS`."""
    rows = [x - x.mean(axis=0), labels if options["problem"] == "svc" else labels - labels.mean()]
    report = ooc_svm.train(*rows, max_passes=100, **options | {"bias": "none"}).report
    return max(MOST_READS, report["models"][0]["passes"] + 1)


@pytest.mark.parametrize("loss", REGRESSION)
@pytest.mark.parametrize("size", [(200, 5), (1000, 10), (3000, 20)], ids=str)
@pytest.mark.parametrize("resident", [0.1, None])
@pytest.mark.parametrize("kind", ["offset", "price", "times 1000"])
def test_a_free_bias_far_from_zero_takes_few_reads(kind, resident, size, loss):
    x, s, noise = linear_rows(*size, seed=1)
    values = {
        "offset": s + noise + 1e6,
        "price": 1e4 * (s + noise) + 2e4,
        "times 1000": 1000 * (22.5 + s + noise),
    }[kind]
    options = {"problem": "svr", "loss": loss, "bias": "free", "resident": resident}
    train(x, values, most=centred_reads(x, values, **options), **options)


@pytest.mark.parametrize("loss", [*CLASSES, *REGRESSION])
@pytest.mark.parametrize("size", [(200, 5), (1000, 10)], ids=str)
@pytest.mark.parametrize("resident", [0.1, None])
def test_features_far_from_zero_with_a_free_bias_take_few_reads(resident, size, loss):
    x, s, noise = linear_rows(*size, seed=1)
    problem, labels = ("svc", np.where(s + noise > 0, 1.0, -1.0)) if loss in CLASSES else ("svr", s + noise)
    options = {"problem": problem, "loss": loss, "bias": "free", "resident": resident}
    train(x + 100, labels, most=centred_reads(x, labels, **options), **options)


def test_few_rows_far_from_zero_and_a_large_cost_take_few_reads():
    """A read of 23 rows costs more than hundreds of thousands of steps of theirs."""
    rows = make_rows("svc", n=23, d=1, seed=342286717, values="normal", offset=1e6)
    train(rows.matrix, rows.labels, bias="free", loss="hinge", C=240.0, most=MOST_READS)


def test_rows_far_from_zero_that_are_all_alike_take_few_reads():
    rows = make_rows("svr", n=2, d=11, seed=974700457, values="ones", offset=1e6)
    train(rows.matrix, rows.labels, problem="svr", loss=REGRESSION[1], bias="free", C=100.0, most=MOST_READS)


def test_a_bias_far_from_all_rows_takes_few_reads():
    """All rows are at a bound; one of those out of reach is free at the optimum."""
    rows = make_rows("svc", n=81, d=20, seed=48301371, values="normal", noise=2.0, weights="uniform")
    train(rows.matrix, rows.labels, rows.weights, bias="free", C=5.5e-6, tol=1e-8, most=MOST_READS)


@pytest.mark.usefixtures("few_held")
@pytest.mark.parametrize("seed", range(6))
def test_few_rows_that_weigh_anything_need_not_be_resident(seed, monkeypatch):
    """What the multipliers sum up to is more than those of the resident rows can take up."""
    monkeypatch.setattr("ooc_svm.solvers.streamed_smo.plan.USEFUL_ROWS", 4)
    x = np.random.default_rng(seed).normal(size=(40, 1))
    labels, weights = np.ones(40), np.full(40, 1e-9)
    labels[0], weights[:2] = -1.0, 0.25
    train(x, labels, weights, bias="free", C=0.017, tol=1e-4, resident=0.3, most=MOST_READS)


@pytest.mark.parametrize("lanes", [1, 4])
def test_a_bias_that_few_rows_answer_to_takes_few_reads(lanes):
    """Rho follows from some rows, and one row answers: its sum with the others falls by 1 % in a read."""
    rows = make_rows("svr", n=4, d=330, seed=289335421, values="uniform", density=0.7, duplicates=0.3,
                     noise=0.05, weights="zeros", target_size=1e4)  # fmt: skip
    train(rows.matrix, rows.labels, rows.weights, problem="svr", bias="free", C=2.1, lanes=lanes,
          most=MOST_READS)  # fmt: skip


@pytest.mark.realdata
@pytest.mark.parametrize("loss", REGRESSION)
@pytest.mark.parametrize("factor", [1.0, 1000.0])
def test_prices_of_houses_take_few_reads(factor, loss):
    x, values = real_data("regression/housing_scale.bz2")
    options = {"problem": "svr", "loss": loss, "bias": "free", "resident": 0.1}
    most = centred_reads(x.toarray(), factor * values, **options)
    train(x, factor * values, most=most, **options)


def test_the_best_point_leaves_weights_that_are_0_but_for_rounding():
    """Where it has hardly any rounding, it may take on many times as much."""
    rows = make_rows(
        "svc", n=585, d=2, seed=438124039, values="normal", density=0.1, duplicates=0.95, labels="imbalance"
    )
    train(rows.matrix, rows.labels, bias="free", C=0.01, tol=1e-8, class_weight="balanced", resident=0.1,
          seed=2, most=10)  # fmt: skip


TWO_ROWS = [
    # seed, C, resident
    (2, 100.0, 1.0), (3, 1.0, 0.5), (4, 1e4, 0.1), (5, 1e4, 0.1), (6, 0.01, 0.1), (7, 0.01, 0.1),
    (8, 100.0, 1.0), (13, 1e4, 0.5), (18, 100.0, 0.1), (29, 1.0, 1.0), (31, 1e4, 0.1),
    (63, 0.01, 1.0), (121, 0.01, 1.0),
]  # fmt: skip


@pytest.mark.parametrize(("seed", "C", "resident"), TWO_ROWS)
def test_two_rows_of_very_different_weight(seed, C, resident):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(2, int(rng.integers(1, 5))))
    problem, loss = ("svc", "svr")[seed % 2], (CLASSES, REGRESSION)[seed % 2][seed // 2 % 2]
    labels = np.array([1.0, -1.0]) if problem == "svc" else rng.normal(size=2) * 10 ** rng.uniform(0, 2)
    options = {"problem": problem, "loss": loss, "bias": "free", "C": C, "resident": resident}
    train(x, labels, np.array([0.001, 0.5]), most=MOST_READS_LITTLE, **options)


# Small shares.


@pytest.mark.parametrize("bias", ["none", "free"])
@pytest.mark.parametrize("problem", ["svc", "svr"])
@pytest.mark.parametrize("C", [1.0, 100.0])
@pytest.mark.parametrize("resident", [0.02, 0.001])
def test_a_share_that_holds_a_row_or_none(resident, C, problem, bias):
    for seed in range(3):
        x, s, noise = linear_rows(50, 5, seed)
        labels = s + noise if problem == "svr" else np.where(s + noise > 0, 1.0, -1.0)
        options = {"problem": problem, "bias": bias, "C": C, "resident": resident}
        train(x, labels, most=MOST_READS_LITTLE, **options)


def attributes(n_rows=4781, seed=0):
    """One-hot attributes, as the "adult" sets have them, and a rule with much noise."""
    rng = np.random.default_rng(seed)
    sizes = [9, 8, 16, 7, 14, 6, 5, 2, 5, 5, 5, 5, 20, 16]
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    # Few values of an attribute are frequent.
    columns = np.column_stack(
        [
            start + np.minimum(rng.geometric(0.35, n_rows) - 1, size - 1)
            for start, size in zip(starts, sizes, strict=True)
        ]
    )
    indptr = np.arange(n_rows + 1) * len(sizes)
    matrix = sparse.csr_array((np.ones(columns.size), columns.ravel(), indptr), shape=(n_rows, sum(sizes)))
    rule = matrix @ rng.normal(size=sum(sizes))
    rule = rule - np.quantile(rule, 0.76) + 1.2 * rng.normal(size=n_rows)
    return matrix, np.where(rule > 0, 1.0, -1.0)


@pytest.mark.parametrize("C", [100.0, 1000.0])
@pytest.mark.parametrize("bias", ["none", "free"])
def test_little_resident_and_a_large_cost(bias, C):
    matrix, labels = attributes()
    train(matrix, labels, C=C, bias=bias, resident=0.02, most=MOST_READS_LITTLE)


@pytest.mark.realdata
@pytest.mark.parametrize("C", [100.0, 1000.0])
@pytest.mark.parametrize("name", ["adult/a4a", "adult/a9a"])
def test_little_resident_and_a_large_cost_on_real_data(name, C):
    matrix, labels = real_data(f"{name}.bz2")
    train(matrix, labels, C=C, resident=0.02, most=MOST_READS_LITTLE)


@pytest.fixture(scope="module")
def covtype():
    """A sixth of the rows of covtype: enough for many reads where a fiftieth of them is resident."""
    matrix, labels = real_data("covtype/covtype.multiclass.bz2")
    return matrix[::6], labels[::6]


@pytest.mark.realdata
@pytest.mark.parametrize("C", [100.0, 1000.0])
def test_little_resident_and_a_large_cost_on_many_real_rows(covtype, C):
    train(*covtype, C=C, resident=0.02, positive=1.0, scale="maxabs", most=MOST_READS_MANY)


# An optimum of 0, and what the report holds.


@pytest.mark.parametrize("loss", REGRESSION)
@pytest.mark.parametrize("epsilon", [0.0, 0.1])
@pytest.mark.parametrize("value", [3.0, 0.1, 1e4, 1e6, 1e8, 1e10])
def test_constant_targets_end_at_once(value, epsilon, loss):
    x, _, _ = linear_rows()
    options = {"problem": "svr", "loss": loss, "epsilon": epsilon, "bias": "free", "resident": 0.1}
    row = train(x, np.full(len(x), value), most=2, **options)
    assert row["primal"] >= 0.0


@pytest.mark.parametrize("solver", ["ocas", "cutting-plane", "streamed-smo"])
@pytest.mark.parametrize("bias", ["none", "penalized"])
def test_support_counts_no_row_without_weight(bias, solver):
    x, s, noise = linear_rows()
    weights = (np.arange(len(x)) % 3 > 0) * 1.0
    labels = np.where(s + noise > 0, 1.0, -1.0)
    row = train(x, labels, weights, solver=solver, bias=bias, tol=1e-3)
    assert 0 < row["n_support"] < 150


@pytest.mark.parametrize("problem", ["svc", "svr", "ordinal", "roc-area"])
@pytest.mark.parametrize("solver", ["ocas", "cutting-plane", "streamed-smo"])
def test_the_report_holds_plain_numbers(solver, problem):
    if (problem == "svr") != (solver == "streamed-smo"):
        pytest.skip("not for this solver")
    x, s, noise = linear_rows(60, 5)
    labels = s + noise if problem == "svr" else np.clip(np.round(s + noise), -1, 1)
    if problem in ("svc", "roc-area"):
        labels = np.where(s + noise > 0, 1.0, -1.0)
    model = ooc_svm.train(x, labels, problem=problem, solver=solver, C=0.5)
    assert model.report["history"]
    for line in model.report["history"]:
        assert {type(value) for value in line.values()} <= {int, float}
    for row in model.report["models"]:
        values = [*row.values(), *(row["quality"] or {}).values()]
        assert {type(value) for value in values} <= {int, float, str, bool, dict, type(None)}
    assert json.loads(json.dumps(model.report)) == model.report


# Time.


def grouped(problem, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(72, 5))
    rule = x @ rng.normal(size=5) + 0.3 * rng.normal(size=72)
    return x, np.clip(np.round(rule), -2, 2) if problem == "ordinal" else np.where(rule > 0, 1.0, -1.0)


GROUPED = [("svc", 1), ("svc", 5), ("ordinal", 4), ("roc-area", 5)]


@pytest.mark.parametrize(("problem", "seed"), GROUPED)
def test_a_master_problem_of_a_large_cost_and_groups_is_solved_fast(problem, seed):
    x, labels = grouped(problem, seed)
    options = {"problem": problem, "solver": "ocas", "cut_groups": 7}
    ooc_svm.train(x, labels, C=1.0, max_passes=2, **options)  # Compiles
    began = time.process_time()
    row = train(x, labels, C=1.5e7, max_passes=12, **options)
    assert time.process_time() - began < 0.1 * row["passes"]


@pytest.mark.parametrize(("problem", "seed"), GROUPED)
def test_a_time_limit_holds_in_the_master_problem_too(problem, seed):
    x, labels = grouped(problem, seed)
    options = {"problem": problem, "solver": "ocas", "cut_groups": 7}
    ooc_svm.train(x, labels, C=1.0, max_passes=2, **options)  # Compiles
    took = []
    for _ in range(3):  # The machine may be busy
        began = time.monotonic()
        train(x, labels, C=1.5e7, max_passes=10_000, time_limit=1.0, **options)
        took.append(time.monotonic() - began)
    assert min(took) < 1.3


# Values at the limit of 64 bits.


@pytest.mark.parametrize("bias", ["none", "penalized", "free"])
@pytest.mark.parametrize("loss", CLASSES)
def test_a_gap_that_rounding_does_not_allow_ends_without_a_certificate(loss, bias):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(15, 30))
    row = train(x, np.where(x[:, 0] > 0, 1.0, -1.0), loss=loss, bias=bias, tol=1e-15, max_passes=300)
    assert row["stop_reason"] == "no-progress"
    assert not row["absolute"]
    assert row["relative_gap"] < 1e-10


def test_a_bound_of_rows_that_are_all_at_a_bound_is_the_same_after_a_resume(tmp_path):
    x, labels = np.ones((4, 1)), np.array([1.0, -1.0, -1.0, 1.0])
    weights = np.array([0.25 + 1e-9, 0.25 + 1e-9, 1e-9, 1e-9])
    options = {"sample_weight": weights, "solver": "streamed-smo", "bias": "free", "seed": 1}
    whole = ooc_svm.train(x, labels, **options)
    ooc_svm.train(x, labels, checkpoint=tmp_path, max_passes=1, **options)
    resumed = ooc_svm.train(x, labels, checkpoint=tmp_path, resume=True, **options)
    assert resumed.report["models"] == whole.report["models"]


@pytest.mark.parametrize("lanes", [1, 2, 4])
@pytest.mark.parametrize("seed", range(8))
def test_multipliers_that_sum_up_to_a_residue_are_feasible(seed, lanes):
    """All rows are at a bound and none can take up what the sum has lost in rounding."""
    rng = np.random.default_rng(seed)
    n = 2 * int(rng.integers(4, 15))
    labels = rng.permutation(np.repeat([-1.0, 1.0], n // 2))
    options = {"bias": "free", "lanes": lanes, "solver": "streamed-smo"}
    train(0.01 * rng.normal(size=(n, 2)), labels, most=MOST_READS, C=rng.uniform(0.1, 2.0), **options)


@pytest.mark.parametrize(
    ("data", "options"),
    [
        (
            {"n": 11, "d": 1, "seed": 989339881, "values": "normal", "weights": "far", "labels": "random"},
            {"loss": "squared-epsilon-insensitive", "C": [0.00037, 0.00074, 0.0036]},
        ),
        (
            {
                "n": 6,
                "d": 25,
                "seed": 593409381,
                "density": 0.7,
                "size": 0.001,
                "noise": 2.0,
                "weights": "zeros",
            },
            {"loss": "epsilon-insensitive", "C": [0.00049, 0.91, 51.0], "tol": 1e-6},
        ),
    ],
)
def test_no_model_of_a_path_goes_on_from_one_place_for_ever(data, options):
    options = {"problem": "svr", "bias": "free", "solver": "streamed-smo", "max_passes": 30, **options}
    rows = make_rows("svr", **data)
    model = ooc_svm.train(rows.matrix, rows.labels, sample_weight=rows.weights, **options)
    assert model.report["converged"]
    found = judge(model, rows, options)
    assert not found, "\n".join(map(str, found))


def test_values_that_are_all_within_the_tube_end_at_once_after_a_resume_too(tmp_path):
    x, y = np.array([[0.3], [-1.0]]), np.array([-0.6, -0.4])
    options = {"problem": "svr", "loss": "squared-epsilon-insensitive", "kernel": "rbf", "gamma": 0.1}
    options |= {"bias": "free", "solver": "block-smo"}
    whole = ooc_svm.train(x, y, **options)
    assert whole.report["passes"] == 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Certificate, "absolute", False)
        ooc_svm.train(x, y, checkpoint=tmp_path, max_passes=1, **options)
    resumed = ooc_svm.train(x, y, checkpoint=tmp_path, resume=True, **options)
    assert resumed.report["models"] == whole.report["models"]


def test_rounding_of_distances_far_from_zero_is_no_indefinite_kernel():
    rng = np.random.default_rng(0)
    x, y = 1e6 + 1e-6 * rng.standard_normal((6, 6)), np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    options = {"problem": "svr", "kernel": "rbf", "gamma": 0.01, "bias": "free", "solver": "block-smo"}
    report = ooc_svm.train(sparse.csr_matrix(x), y, max_passes=40, **options).report
    assert report["stop_reason"] in ("certified", "no-progress", "max-passes")

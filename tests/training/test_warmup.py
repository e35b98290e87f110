"""What a process keeps from one training to the next: compiled functions, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
from helpers.train_data import answers, bits, make_store, store_rows
from scipy.sparse import csr_array, random_array

from ooc_svm import plan, train
from ooc_svm.options import TrainOptions
from ooc_svm.solvers.base import LONG_ROW, MANY_COLUMNS, FunctionKinds
from ooc_svm.solvers.smo import smo_loops
from ooc_svm.solvers.streamed_smo import dual_loops, proximal, proximal_loops, team_loops
from ooc_svm.solvers.streamed_smo.proximal import MOST_COLUMNS
from ooc_svm.training import warmup

VALUES = ["epsilon-insensitive", "squared-epsilon-insensitive"]
OCAS = TrainOptions(solver="ocas")
# What functions are compiled for, each in a way of its own.
OTHERS = [
    TrainOptions(solver="cutting-plane"),
    TrainOptions(),
    replace(OCAS, bias="none"),
    replace(OCAS, scale="std"),
    TrainOptions(loss="squared-hinge"),
    TrainOptions(problem="svr"),
    TrainOptions(problem="ordinal"),
    TrainOptions(problem="roc-area"),
    TrainOptions(problem="ranking"),
    *(TrainOptions(kernel=kernel) for kernel in ("poly", "rbf", "sigmoid")),
]
KINDS = [
    {},
    {"loss": "squared-hinge", "bias": "free"},
    {"solver": "ocas", "cut_groups": 2, "scale": "std"},
    {"solver": "cutting-plane"},
    {"problem": "svr", "epsilon": 0.2, "bias": "penalized"},
    {"problem": "svr", "epsilon": 0.01},
    {"problem": "roc-area"},
    {"problem": "ordinal", "C": 3.0},
    {"problem": "ranking"},
]


@pytest.fixture
def runs(monkeypatch):
    """The runs that warm up, where no process has done any."""
    found, kept = [], set()
    monkeypatch.setattr(warmup, "_done", set())
    monkeypatch.setattr(warmup, "was_compiled", kept.__contains__)
    monkeypatch.setattr(warmup, "keep_compiled", kept.add)
    monkeypatch.setattr(warmup, "_tiny_run", lambda *arguments: found.append(arguments))
    return found


SHORT, LONG = FunctionKinds(), FunctionKinds(long_rows=True)


def warm_up(options, value_type="float64", weighted=False, kinds=SHORT):
    warmup.warm_up(options, value_type, weighted, lambda message: None, kinds=kinds)


def test_once_a_process_for_each_combination(runs):
    combinations = [
        (OCAS, "float64", False, SHORT),
        (OCAS, "float32", False, SHORT),
        (OCAS, "ones", False, SHORT),
        (OCAS, "float64", True, SHORT),
        (OCAS, "float64", True, LONG),
        (OCAS, "float64", True, FunctionKinds(many_columns=True)),
        (OCAS, "float64", True, FunctionKinds(long_rows=True, many_columns=True, many_models=True)),
        *((options, "float64", False, SHORT) for options in OTHERS),
    ]
    for _ in range(3):
        for combination in combinations:
            warm_up(*combination)
    assert runs == [
        (*rest, *each) for *rest, kinds in combinations for each in warmup._variants(rest[0], kinds)
    ]


def test_what_compiles_nothing_new_is_not_run_again(runs):
    warm_up(OCAS)
    for same in ({"C": (3.0, 4.0)}, {"tol": 0.5}, {"seed": 7}, {"cut_groups": 3}, {"threads": 2}):
        warm_up(replace(OCAS, **same))
    # What is resolved is the same, whether it was named or not.
    warm_up(replace(OCAS, loss="hinge"))
    assert len(runs) == 1


def test_the_next_process_goes_without_it(runs, monkeypatch):
    warm_up(OCAS)
    monkeypatch.setattr(warmup, "_done", set())
    warm_up(OCAS)
    warm_up(OCAS, "ones")
    assert runs == [(OCAS, "float64", False, SHORT, False), (OCAS, "ones", False, SHORT, False)]
    monkeypatch.setattr(warmup, "_done", set())
    plan(*store_rows(60, 10), solver="ocas")  # measures, and loads first
    assert len(runs) == 3


def test_one_that_failed_is_run_again(runs, monkeypatch):
    def failing(*arguments):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(warmup, "_tiny_run", failing)
        with pytest.raises(MemoryError):
            warm_up(OCAS)
    timers = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    assert all(timer.finished.is_set() for timer in timers)
    warm_up(OCAS)
    assert len(runs) == 1


def test_planning_and_training_share_it(runs):
    rows = store_rows(60, 10)
    plan(*rows, solver="ocas")
    train(*rows, solver="ocas", max_passes=1)
    train(*rows, solver="ocas", max_passes=1, C=[1.0, 2.0])
    assert len(runs) == 1


def _trained(rows, options):
    matrix, labels = rows
    qid = np.arange(len(labels)) // 10 if options.get("problem") == "ranking" else None
    return train(matrix, labels, qid=qid, tol=1e-2, **options)


def test_one_training_leaves_nothing_behind_for_the_next(few_held):
    """Each kind alone has the same bits as after all the others, in whatever order."""
    rows = store_rows(200, 20)
    environment, threads, folder = dict(os.environ), threading.active_count(), os.getcwd()
    alone = [_trained(rows, options) for options in KINDS]
    again = [_trained(rows, options) for options in reversed(KINDS)][::-1]
    for first, second in zip(alone, again, strict=True):
        assert bits(first) == bits(second)
        assert answers(first.report) == answers(second.report)
        assert first.report["peak_memory_bytes"] > 0
    assert len({bits(model) for model in alone}) == len(KINDS)
    assert (dict(os.environ), threading.active_count(), os.getcwd()) == (environment, threads, folder)


def test_long_rows_are_made_up_where_the_data_have_them(runs):
    few, many, n_rows = MOST_COLUMNS, MOST_COLUMNS + 2, 3 * LONG_ROW
    for length, n_features, expected in (
        (LONG_ROW - 1, many, [SHORT]),
        (LONG_ROW, few, []),  # as before
        (LONG_ROW, many, [LONG]),
    ):
        X = csr_array(np.ones((n_rows, length)))
        X.resize(n_rows, n_features)
        train(X, np.arange(n_rows) % 2, max_passes=1)
        assert [each[3] for each in runs] == expected
        runs.clear()


def test_rows_for_a_factor_are_made_up_where_the_data_have_them(runs):
    for n_features in (250, 300):
        train(np.ones((60, n_features)), np.arange(60) % 2, max_passes=1)
    assert [each[3] for each in runs] == [SHORT, FunctionKinds(by_factor=True)]


def test_many_columns_and_models_are_made_up_where_there_are_as_many(runs):
    X, options = csr_array(np.ones((60, 1))), {"bias": "none", "max_passes": 1}
    for n_features in (MANY_COLUMNS, MANY_COLUMNS + 1):
        X.resize(60, n_features)
        for n_models in (5, 6):
            train(X, np.arange(60) % 2, C=1.0 + np.arange(n_models), **options)
            kinds = FunctionKinds(many_columns=n_features > MANY_COLUMNS, many_models=n_models > 5)
            assert [each[3] for each in runs] == [*dict.fromkeys([kinds._replace(many_models=False), kinds])]
            runs.clear()


@pytest.mark.parametrize(
    ("solver", "wide"), [("streamed-smo", False), ("streamed-smo", True), ("ocas", False)]
)
@pytest.mark.parametrize("bias", ["none", "penalized", "free"])
def test_a_first_read_compiles_nothing(solver, wide, bias, tmp_path):
    """Of many columns and models: what solvers call is compiled before the first block.

    Of functions that other tests have compiled it is loaded by then: made-up rows have called it.

    ``wide``: whether rows are dense, and fewer than their columns.
    """
    options = {"resident": 0.2} if solver == "streamed-smo" else {"tol": 0.1}
    rng = np.random.default_rng(0)
    X = random_array((300, MANY_COLUMNS + 1), density=2e-4, format="csr", rng=rng)
    if wide:
        X, options = csr_array(rng.standard_normal((300, 700)).astype(np.float32)), {}
    store = make_store(tmp_path / "store", X, np.arange(300) % 2.0)
    script = f"""
import ooc_svm
from numba.core.dispatcher import Dispatcher
from ooc_svm.training import together, warmup

asked, warm_up, compile = [], together.warm_up, Dispatcher.compile
warmup.was_compiled = lambda _: False

def hear(function, signature):
    if tuple(getattr(signature, "args", signature)) not in function.overloads:
        asked.append(function.py_func.__module__)
    return compile(function, signature)

def warmed_up(*arguments, **options):
    warm_up(*arguments, **options)
    Dispatcher.compile = hear

together.warm_up = warmed_up
C = [0.1, 1.0, 2.0, 3.0, 4.0, 5.0]
ooc_svm.train({str(store)!r}, C=C, solver={solver!r}, bias={bias!r}, progress=lambda _: None, **{options})
Dispatcher.compile = compile
print("compiled:", *sorted(set(asked)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # What decodes blocks is small, and is called before there are any.
    assert done.stdout.splitlines()[-1] in ("compiled:", "compiled: ooc_svm.store.validate_loops")


def test_long_rows_are_solved_in_parts(monkeypatch):
    helped = []
    help_out = team_loops.help_out
    monkeypatch.setattr(team_loops, "help_out", lambda *arguments: helped.append(help_out(*arguments)))
    for long_rows in (False, True):
        monkeypatch.setattr(warmup, "_done", set())
        kinds = FunctionKinds(long_rows=long_rows)
        warmup.warm_up(TrainOptions(), "ones", False, print, kinds=kinds, load=True)
        assert bool(helped) == long_rows


@pytest.mark.parametrize("bias", ["none", "penalized", "free"])
@pytest.mark.parametrize("loss", ["hinge", "squared-hinge", "lp", "logistic", *VALUES])
def test_all_of_a_proximal_step_is_called(loss, bias, monkeypatch):
    called = set()

    def watched(module, name):
        function = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *arguments: called.add(name) or function(*arguments))

    loops = ["follow", "scores_along", "slope_along", "gain_along", "go"]
    for name in loops:
        watched(proximal_loops, name)
    watched(proximal, "newton_direction")
    watched(dual_loops, "row_gaps")
    monkeypatch.setattr(warmup, "_done", set())
    problem = "svr" if loss in VALUES else "svc"
    warmup.warm_up(TrainOptions(problem=problem, loss=loss, bias=bias), "float32", False, print, load=True)
    assert called == {*loops, "newton_direction", "row_gaps"}


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("bias", ["none", "penalized", "free"])
def test_passes_between_two_reads_are_called(kernel, bias, monkeypatch):
    called, loop = [], smo_loops.pass_until_consistent
    monkeypatch.setattr(smo_loops, "pass_until_consistent", lambda *own: called.append(own) or loop(*own))
    monkeypatch.setattr(warmup, "_done", set())
    warmup.warm_up(TrainOptions(solver="smo", kernel=kernel, bias=bias), "float64", False, print, load=True)
    assert called

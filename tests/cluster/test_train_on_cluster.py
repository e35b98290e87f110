"""Training on a cluster: every linear solver and problem has the bits of one machine, whatever is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from helpers.cluster_data import Chosen, Some
from helpers.killed_runs import large_effort
from helpers.train_data import answers, bits, make_anndata, make_store, store_rows

from ooc_svm import train
from ooc_svm.catalog import PROBLEMS
from ooc_svm.cluster.connection import connect
from ooc_svm.cluster.processes import local_workers
from ooc_svm.errors import DamageError, InputError, MemoryBudgetError, StorageError, UsageError
from ooc_svm.solvers.streamed_smo import effort
from ooc_svm.training import on_cluster, progress

pytestmark = pytest.mark.usefixtures("few_held")

training = sys.modules[train.__module__]

TRAINING = "ooc_svm.training.on_cluster"

# Fewer blocks than rounds: rounds of every k-th row; more: rounds of whole blocks.
FEW = {"chunk_elements": 4000, "chunk_rows": 650, "block_rows": 650}
MANY = {"chunk_elements": 50, "chunk_rows": 25, "block_chunks": 2, "block_rows": 25}

SMO = [
    {"solver": "streamed-smo", "problem": problem, "loss": loss, "bias": bias, "resident": 0.1}
    for problem in ("svc", "svr")
    for loss in PROBLEMS[problem].losses
    for bias in ("none", "penalized", "free")
]
CUTS = [
    {"solver": "ocas"},
    {"solver": "ocas", "bias": "penalized", "cut_groups": 2, "C": (0.1, 1.0), "scale": "std"},
    {"solver": "cutting-plane", "bias": "penalized", "cut_groups": 4, "tol": 1e-2},
    {"solver": "streamed-smo", "C": (0.1, 1.0), "scale": "maxabs", "class_weight": "balanced"},
]
PAIRS = [
    {"solver": solver, "problem": problem, "cut_groups": 2}
    for solver in ("ocas", "cutting-plane")
    for problem in ("ordinal", "roc-area", "ranking")
]


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Stores by problem and number of blocks, with weights."""
    folder = tmp_path_factory.mktemp("stores")
    matrix, labels = store_rows(1300, 30, density=0.15)
    rng = np.random.default_rng(8)
    values = 2.0 + matrix @ rng.normal(size=30) + 0.3 * rng.normal(size=1300)
    qid = np.arange(1300) // 90
    weights = rng.integers(0, 3, 1300) * 0.7
    targets = {
        "svc": labels,
        "roc-area": labels,
        "nu-svc": labels,
        "svr": values,
        "nu-svr": values,
        "ordinal": values,
        "ranking": np.round(values),
    }
    return {
        (problem, name): make_store(
            folder / f"{problem}-{name}",
            matrix,
            t,
            weights=np.ones(16)[qid] if problem == "ranking" else weights,
            qids=qid if problem == "ranking" else None,
            **cut,
        )
        for problem, t in targets.items()
        for name, cut in (("few", FEW), ("many", MANY))
    }


@pytest.fixture
def on(cluster, monkeypatch):
    """Has training take so many workers of the tests' cluster."""

    def use(members):
        @contextmanager
        def connected(*arguments, **options):
            yield Some(cluster, members) if isinstance(members, int) else members

        monkeypatch.setattr("ooc_svm.cluster.connection.connect", connected)

    return use


def same(model, expected):
    """Whether two models have the same bits, and their runs the same values and reads."""
    assert bits(model) == bits(expected)
    assert answers(model.report) == answers(expected.report)
    assert model.report["passes"] == expected.report["passes"]
    return True


FREE = [
    {"problem": "svc", "bias": "free", "solver": "ocas", "cut_groups": 2},
    {"problem": "svr", "bias": "free", "solver": "ocas"},
    {"problem": "nu-svc", "nu": 0.6, "solver": "cutting-plane", "C": 1.0},
    {"problem": "nu-svr", "nu": 0.3, "solver": "ocas"},
]
BY_NU = [
    {"problem": "nu-svc", "nu": 0.6, "solver": "streamed-smo", "C": 1.0, "scale": "std", "resident": 0.1},
    {"problem": "nu-svr", "nu": 0.3, "solver": "streamed-smo", "C": (0.1, 1.0), "resident": 0.1},
]
ALM = [
    {"solver": solver, "loss": "lp", "p": 1.3, "bias": "free", "C": (0.5, 2.0)}
    for solver in ("alm", "inexact-alm")
]
CASES = [(options, "many") for options in SMO + CUTS + FREE + BY_NU + PAIRS + ALM]
CASES += [(options, "few") for options in SMO[::5] + CUTS[::3] + FREE[::3] + BY_NU + PAIRS[::2]]


@pytest.mark.parametrize(
    ("options", "blocks"), CASES, ids=["-".join(map(str, (*o.values(), blocks))) for o, blocks in CASES]
)
def test_a_training_has_the_bits_of_one_machine(on, stores, monkeypatch, options, blocks):
    monkeypatch.setattr(effort, "EFFORTS", {0: large_effort()})  # rounds of four lanes
    store = stores[options.get("problem", "svc"), blocks]
    options = {"C": 0.5, "max_passes": 3, **options}
    expected = train(store, threads=2, **options)
    on(2 if blocks == "many" else 3)
    assert same(train(store, engine="dask", **options), expected)


def test_the_reads_are_those_of_one_machine(on, stores, monkeypatch):
    """Certified after as many reads, each block fetched once in each of them, and with the same bits."""
    monkeypatch.setattr(effort, "EFFORTS", {0: large_effort()})  # rounds of four lanes
    store = stores["svc", "many"]
    expected = train(store, threads=2, resident=0.05, C=0.5)
    assert expected.report["converged"]
    for n_workers in (1, 2, 4):
        on(n_workers)
        model = train(store, engine="dask", resident=0.05, C=0.5)
        assert same(model, expected)
        assert model.report["bytes_read"] == expected.report["bytes_read"]


def test_a_cluster_of_its_own(stores, scratch_folder):
    """What ``--engine dask`` alone does: processes of this machine; nothing is left of them at the end."""
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    before, store, seen = children.read_text().split(), stores["svc", "many"], []
    options = {"resident": 0.1, "C": 0.5, "threads": 2}
    model = train(store, engine="dask", progress=lambda event: seen.append(event.kind), **options)
    assert same(model, train(store, **options))
    assert seen.count("pass") == model.report["passes"]
    assert Counter(seen)["block"] > 0
    assert children.read_text().split() == before
    assert not list(scratch_folder.glob("ooc-svm-rows-*"))


def resumed(store, folder, **options):
    return train(store, checkpoint=folder, resume=True, **options)


@pytest.mark.parametrize(
    "options",
    [{"solver": "ocas", "C": 0.5}, {"solver": "streamed-smo", "C": 0.5}, *BY_NU, {**ALM[1], "tol": 0.05}],
)
def test_a_checkpoint_goes_from_one_engine_to_the_other(on, stores, monkeypatch, tmp_path, options):
    monkeypatch.setattr(effort, "EFFORTS", {0: large_effort()})  # rounds of four lanes
    # A few reads after the two of the first run are enough: most of the time is taken by their rounds.
    store = stores[options.get("problem", "svc"), "many"]
    options = {"threads": 2, "max_passes": 4, **options}
    on(2)
    expected = train(store, **options)
    assert expected.report["passes"] > 2
    first = {**options, "max_passes": 2}
    train(store, checkpoint=tmp_path / "a", engine="dask", **first)
    assert bits(resumed(store, tmp_path / "a", **options)) == bits(expected)
    train(store, checkpoint=tmp_path / "b", **first)
    assert bits(resumed(store, tmp_path / "b", engine="dask", **options)) == bits(expected)
    left = [entry.name for entry in (tmp_path / "a").iterdir()]
    assert left
    assert all(name.startswith("checkpoint-") for name in left)


@pytest.mark.fault
@pytest.mark.parametrize(
    "options",
    [
        {"solver": "ocas", "tol": 0.5},
        {"solver": "streamed-smo", "tol": 0.05, "resident": 0.1},
        {"solver": "streamed-smo", "tol": 0.3, "resident": 0.1, "problem": "nu-svr", "nu": 0.3},
    ],
)
def test_a_worker_killed_in_each_pass_in_turn(on, stores, monkeypatch, options):
    """The run ends certified on the workers that are left."""
    monkeypatch.setattr(progress, "BLOCK_INTERVAL", 0.0)
    monkeypatch.setattr(effort, "EFFORTS", {0: large_effort()})  # rounds of four lanes
    store = stores[options.get("problem", "svc"), "many"]
    expected = train(store, threads=2, C=0.5, **options)
    assert expected.report["converged"]
    n_kills = expected.report["passes"]
    assert n_kills in (3, 4, 5)
    with (
        connect(None, workers=1, memory=None) as cluster,
        local_workers(n_kills, 1, TRAINING) as workers,
    ):
        workers.join(cluster.client.address)
        victims, notes = {}, []

        def kill(event):
            if event.kind == "note":
                notes.append(event.message)
            # In the pass of this number, once something of it is done.
            if event.kind == "block" and event.passes not in victims:
                process = workers.processes[len(victims)]
                victims[event.passes] = process
                process.kill()
                process.wait()

        wait_for_workers(cluster, n_kills + 1)
        on(Chosen(cluster, [worker.pid for worker in cluster.workers()]))
        model = train(store, engine="dask", progress=kill, C=0.5, **options)
        assert same(model, expected)
        assert sorted(victims) == list(range(n_kills))
        assert [process.poll() for process in workers.processes] == [-signal.SIGKILL] * n_kills
        assert sum(int(note.split()[0]) for note in notes if " lost: " in note) == n_kills


def wait_for_workers(cluster, count):
    deadline = time.monotonic() + 60
    while len(cluster.workers()) < count:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.fault
def test_the_death_of_the_scheduler_leaves_a_checkpoint(stores, tmp_path, monkeypatch):
    monkeypatch.setattr(effort, "EFFORTS", {0: large_effort()})  # rounds of four lanes
    store, options = stores["svc", "many"], {"C": 0.5, "resident": 0.1, "tol": 1e-4}
    expected = train(store, threads=2, **options)
    assert expected.report["passes"] > 3
    command = [
        sys.executable,
        "-m",
        "distributed.cli.dask_scheduler",
        "--host",
        "127.0.0.1",
        "--no-dashboard",
    ]
    command += ["--port", "0", "--scheduler-file", str(tmp_path / "scheduler.json")]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=tmp_path, **quiet) as scheduler:
        try:
            address = scheduler_address(tmp_path / "scheduler.json")

            def kill(event):
                if event.kind == "pass" and event.passes == 2:
                    scheduler.kill()

            # A checkpoint after every pass.
            monkeypatch.setattr("ooc_svm.training.run.CHECKPOINT_SHARE", np.inf)
            remote = {"scheduler": address, "insecure_cluster": True, "checkpoint": tmp_path / "states"}
            with local_workers(2, 1, TRAINING) as workers:
                workers.join(address)
                with pytest.raises(StorageError, match=r"scheduler|no worker"):
                    train(store, engine="dask", progress=kill, **remote, **options)
            assert scheduler.wait() == -signal.SIGKILL
        finally:
            scheduler.kill()
    passes = []
    model = resumed(
        store,
        tmp_path / "states",
        threads=2,
        progress=lambda event: passes.append(event.passes) if event.kind == "pass" else None,
        **options,
    )
    assert passes[0] == 3
    assert bits(model) == bits(expected)


def scheduler_address(path):
    deadline = time.monotonic() + 30
    while True:
        try:
            return json.loads(Path(path).read_text())["address"]
        except (OSError, ValueError):
            assert time.monotonic() < deadline
            time.sleep(0.05)


class TestRefused:
    def test_a_scheduler_without_the_engine(self, stores):
        with pytest.raises(UsageError, match="scheduler needs engine='dask'"):
            train(stores["svc", "many"], scheduler="tls://127.0.0.1:1")

    def test_a_matrix(self):
        matrix, labels = store_rows(100)
        with pytest.raises(UsageError, match="convert the matrix"):
            train(matrix, labels, engine="dask")

    def test_too_little_memory_on_a_worker(self, on, stores, cluster, monkeypatch):
        from dataclasses import replace

        class Small(Some):
            def workers(self):
                return [replace(worker, memory=10**8) for worker in super().workers()]

        on(Small(cluster, 2))
        with pytest.raises(MemoryBudgetError, match=r"the worker tcp://.* training needs"):
            train(stores["svc", "many"], engine="dask")

    def test_another_store_on_the_workers(self, on, stores, monkeypatch):
        on(2)
        opened = on_cluster.StoreOnWorker
        monkeypatch.setattr(
            on_cluster, "StoreOnWorker", lambda path, id, *rest: opened(path, "another", *rest)
        )
        with pytest.raises(DamageError, match="another store on a worker"):
            train(stores["svc", "many"], engine="dask")

    def test_what_is_wrong_with_the_data(self, on, tmp_path):
        """Said as on one machine, though a worker finds it."""
        matrix, labels = store_rows(200)
        weights = np.where(np.arange(200) == 150, -1.0, 1.0)
        store = make_anndata(tmp_path / "s", matrix, label=labels, weight=weights)
        on(2)
        with pytest.raises(InputError, match=r"row 150 has the negative weight -1\.0"):
            train(store, engine="dask")

"""Lost workers: killed in every kind of pass, stopped, joining; and what is left of the files they shared."""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from helpers.cluster_data import Chosen, cluster_engine, resources
from helpers.dual_data import dual_data, dual_model, dual_vectors, held_rows, read_all
from helpers.engine_data import requests_of
from helpers.problems_data import MatrixSource, cut_rows

from ooc_svm.cluster import link
from ooc_svm.cluster.connection import connect
from ooc_svm.cluster.processes import local_workers
from ooc_svm.engine.serial import SerialEngine
from ooc_svm.errors import MemoryBudgetError, StorageError
from ooc_svm.passes.base import rows_of
from ooc_svm.passes.columns import ColumnPass
from ooc_svm.passes.rowwise import RowPass
from ooc_svm.solvers.best_scores import LossCount
from ooc_svm.solvers.streamed_smo.dual import MoveBest
from ooc_svm.solvers.streamed_smo.rounds import cut_rounds

pytestmark = pytest.mark.fault

LONG = 30.0
"""Seconds after which what should have happened long ago counts as failed."""

N_ROWS = 1200


class Deadly(MatrixSource):
    """Kills the process that reads its block ``fatal``, once: a file named ``order`` says that it may."""

    def __init__(self, order, fatal, *arguments):
        super().__init__(*arguments)
        self._order, self._fatal = Path(order), fatal

    def read_block(self, index, buffers=None):
        if index == self._fatal:
            try:
                self._order.rename(self._order.with_name(f"killed {os.getpid()}"))
            except FileNotFoundError:
                return super().read_block(index, buffers)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().read_block(index, buffers)


@pytest.fixture(scope="module")
def scheduler():
    """A cluster whose one worker no test uses: workers are started and lost next to it."""
    with connect(None, workers=1, memory=None) as cluster:
        yield cluster


@contextmanager
def started(cluster, n_workers):
    """Processes of new workers, once they have joined."""
    with local_workers(n_workers, 1, "ooc_svm.training.on_cluster") as workers:
        workers.join(cluster.client.address)
        pids = pids_of(workers.processes)
        wait_for(lambda: len(Chosen(cluster, pids).workers()) == n_workers)
        yield workers.processes


def wait_for(condition):
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def pids_of(processes):
    return [process.pid for process in processes]


class Run:
    """Passes of all kinds, and their bits on the reference engine."""

    def __init__(self, n_blocks=60):
        data = dual_data("hinge", n_rows=N_ROWS, rho=1.0)
        self.spans = cut_rows(data.matrix, n_blocks)
        self.arguments = (data.matrix, data.t, None, self.spans)
        self.source = MatrixSource(*self.arguments)
        self.model = dual_model(data)
        self.vectors = dual_vectors(data, [self.model])
        self.reads = cut_rounds(self.spans, 4, 4)
        self.rounds = [each.rows for each in self.reads]
        self.expected = self.on(SerialEngine(self.source, dual_vectors(data, [self.model])))

    def steps(self):
        """A read in rounds, then row vectors alone, then a read for the columns."""
        held = held_rows(N_ROWS)
        for each in self.reads:
            yield requests_of(self.model, each, held=held, room=400)
        yield (RowPass(MoveBest(self.model, 0.3), rows_of(self.rounds)),)
        yield (RowPass(LossCount(self.model, 0.1), rows_of(self.rounds)),)
        yield (ColumnPass(self.source.n_features),)

    def on(self, engine, before=lambda number: None):
        """Bits of all answers and of the row vectors in the end."""
        found = []
        for number, requests in enumerate(self.steps()):
            before(number)
            answer = engine.stream(requests)[0]
            found.append(np.concatenate([np.ravel(part) for part in numbers(answer)]).tobytes())
        return found + [read_all(engine.vectors, name).tobytes() for name in self.model.row_vectors]

    @property
    def n_steps(self):
        return len(self.rounds) + 3


def numbers(answer):
    """The arrays of an answer."""
    if isinstance(answer, np.ndarray):
        return [answer]
    if hasattr(answer, "candidates"):
        return [answer.w, answer.rebuilt, answer.sums, *(rows.dual for rows in answer.candidates)]
    return [answer.largest, answer.total, answer.squares]


@pytest.fixture(scope="module")
def run():
    return Run()


def test_a_worker_may_be_killed_before_any_pass(scheduler, run):
    """Four workers, one killed before the first round, the row pass that writes, and the read at the end."""
    with started(scheduler, 4) as processes:
        workers, notes = Chosen(scheduler, pids_of(processes)), []
        with cluster_engine(
            workers, run.source, partial(MatrixSource, *run.arguments), run.vectors, rounds=run.rounds
        ) as engine:
            engine.on_note = notes.append
            doomed = dict(zip((1, run.n_steps - 3, run.n_steps - 1), processes, strict=False))

            def kill(number):
                if number in doomed:
                    doomed[number].kill()
                    doomed[number].wait()

            assert run.on(engine, kill) == run.expected
        assert [process.poll() for process in processes] == [-signal.SIGKILL] * 3 + [None]
        assert [note.startswith("1 worker lost") for note in notes] == [True] * 3


@pytest.mark.parametrize("n_workers", [2, 3])
def test_a_worker_may_be_killed_in_the_middle_of_a_round(scheduler, run, tmp_path, n_workers):
    order = tmp_path / "order"
    fatal = run.rounds[1].segments[2][-1].block
    with started(scheduler, n_workers) as processes:
        workers = Chosen(scheduler, pids_of(processes))
        opened = partial(Deadly, order, fatal, *run.arguments)
        with cluster_engine(workers, run.source, opened, run.vectors, rounds=run.rounds) as engine:
            assert run.on(engine, lambda number: order.touch() if number == 1 else None) == run.expected
        dead = [process for process in processes if process.poll() is not None]
        assert [process.returncode for process in dead] == [-signal.SIGKILL]
        assert (tmp_path / f"killed {dead[0].pid}").exists()


def test_a_worker_that_comes_is_given_a_part(scheduler, run):
    with started(scheduler, 1) as first, started(scheduler, 1) as second:
        workers, notes = Chosen(scheduler, pids_of(first)), []
        opened = partial(MatrixSource, *run.arguments)
        with cluster_engine(workers, run.source, opened, run.vectors, rounds=run.rounds) as engine:
            engine.on_note = notes.append

            def join(number):
                if number == 2:
                    workers.pids += pids_of(second)

            # It is noticed where a read begins: here with the one for the columns.
            assert run.on(engine, join) == run.expected
            assert len(notes) == 1
            assert notes[0].startswith("1 worker joined")
            first[0].kill()
            assert engine.stream([ColumnPass(run.source.n_features)])
            assert len(notes) == 2


def test_a_worker_that_comes_without_the_memory_is_left_out(scheduler, run):
    with started(scheduler, 2) as processes:
        first, second = pids_of(processes)
        workers, notes = Chosen(scheduler, [first]), []
        opened = partial(MatrixSource, *run.arguments)

        def resources_of(member, partitions):
            if member.pid == second:
                raise MemoryBudgetError(f"the worker {member.address}: training needs more")
            return resources(member, partitions)

        with cluster_engine(
            workers, run.source, opened, run.vectors, rounds=run.rounds, resources_of=resources_of
        ) as engine:
            engine.on_note = notes.append

            def join(number):
                if number == 2:
                    workers.pids = [first, second]

            assert run.on(engine, join) == run.expected
            assert engine.stream([ColumnPass(run.source.n_features)])
            assert len(notes) == 1
            assert notes[0].startswith("a worker that joined is left out: the worker tcp://")
        # A worker that is there from the start has to fit.
        with (
            cluster_engine(
                workers, run.source, opened, run.vectors, rounds=run.rounds, resources_of=resources_of
            ) as engine,
            pytest.raises(MemoryBudgetError, match="training needs more"),
        ):
            run.on(engine)


def test_a_stopped_worker_is_given_up_and_may_go_on_later(scheduler, run):
    with started(scheduler, 2) as processes:
        workers, notes = Chosen(scheduler, pids_of(processes)), []
        opened = partial(MatrixSource, *run.arguments)
        with cluster_engine(
            workers, run.source, opened, run.vectors, rounds=run.rounds, patience=1.0
        ) as engine:
            engine.on_note = notes.append

            def stop(number):
                if number == 1:
                    os.kill(processes[1].pid, signal.SIGSTOP)
                if number == 3:
                    assert state_of(processes[1].pid) == "T"
                    assert len(notes) == 1
                    os.kill(processes[1].pid, signal.SIGCONT)

            assert run.on(engine, stop) == run.expected
            assert len(notes) == 1


def state_of(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_with_no_worker_left_the_run_ends(scheduler, run):
    with started(scheduler, 2) as processes:
        workers = Chosen(scheduler, pids_of(processes))
        opened = partial(MatrixSource, *run.arguments)
        with cluster_engine(workers, run.source, opened, run.vectors, rounds=run.rounds) as engine:

            def kill(number):
                if number == 2:
                    for process in processes:
                        process.kill()

            with pytest.raises(StorageError, match="no worker of the cluster is left"):
                run.on(engine, kill)
        assert [process.wait() for process in processes] == [-signal.SIGKILL] * 2


def test_the_only_worker_may_come_back(scheduler, run):
    """One that was silent for too long is asked once more before the run ends."""
    with started(scheduler, 1) as processes:
        workers, notes = Chosen(scheduler, pids_of(processes)), []
        opened = partial(MatrixSource, *run.arguments)
        with cluster_engine(
            workers, run.source, opened, run.vectors, rounds=run.rounds, patience=1.0
        ) as engine:

            def wake(message):
                notes.append(message)
                assert state_of(processes[0].pid) == "T"
                os.kill(processes[0].pid, signal.SIGCONT)

            def stop(number):
                if number == 2:
                    os.kill(processes[0].pid, signal.SIGSTOP)

            engine.on_note = wake
            assert run.on(engine, stop) == run.expected
            assert len(notes) == 1


def test_a_worker_that_is_stopped_from_the_start_is_not_waited_for(scheduler, run, monkeypatch):
    monkeypatch.setattr(link, "CONNECT_SECONDS", 1.0)
    opened = partial(MatrixSource, *run.arguments)
    with started(scheduler, 1) as processes:
        workers = Chosen(scheduler, pids_of(processes))
        with cluster_engine(workers, run.source, opened, run.vectors, rounds=run.rounds) as engine:
            with pytest.raises(StorageError, match="no worker of the cluster is left"):
                run.on(engine, lambda number: os.kill(processes[0].pid, signal.SIGSTOP))
            assert state_of(processes[0].pid) == "T"

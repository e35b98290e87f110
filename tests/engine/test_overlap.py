"""Requests with work that goes on meanwhile, and passes that are visited at the same time."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import pytest
from helpers.dual_data import read_all
from helpers.engine_data import (
    ENGINES,
    LOCAL_ENGINES,
    LONG,
    bits,
    no_work,
    requests_of,
    sweep_setup,
    swept,
)

from ooc_svm.engine.local import LocalEngine
from ooc_svm.engine.serial import SerialEngine
from ooc_svm.passes.base import LONG_VISIT, WHOLE, Overlap, Position, RowSet, StridedRange
from ooc_svm.passes.columns import ColumnPass
from ooc_svm.passes.rowwise import RowPass
from ooc_svm.passes.together import together
from ooc_svm.solvers.best_scores import LossCount


class Failure(Exception):
    pass


def fail(*arguments):
    raise Failure


@dataclass(frozen=True)
class Total:
    """A request that is answered from a whole row vector."""

    name: str

    def serve(self, vectors, memory_bytes, threads):
        return float(read_all(vectors, self.name).sum())


@dataclass(frozen=True)
class Watched:
    """A pass that counts its rows, and calls a function in each visit."""

    rows: RowSet
    on_visit: Callable
    reads: tuple = ()
    writes: ClassVar[tuple] = ()
    position: ClassVar[Position] = WHOLE
    prefetch: ClassVar[tuple] = ()
    needs_data: bool = True

    def empty(self):
        return np.zeros(1, dtype=int)

    def visit(self, block, rows, partial):
        self.on_visit(block, rows)
        partial += len(range(rows.start, rows.stop, rows.step))

    def merge(self, left, right):
        return left + right


def watched(rows, visit, name=None):
    """A pass over some rows, which reads a row vector if one is named."""
    return Watched(rows, visit, () if name is None else (name,))


def ranges_of(rows):
    return [part for segment in rows.segments for part in segment]


class TestPassesOverOneBlock:
    @pytest.mark.parametrize("name", LOCAL_ENGINES)
    def test_each_visits_every_range_once(self, build, name):
        source, _, vectors, rounds = sweep_setup(23)
        engine = build(name, source, vectors, rounds)
        for each in rounds:
            seen = [[], [], []]

            def note(block, rows, own):
                own.append((rows.start, rows.stop, block.start <= rows.start < rows.stop <= block.stop))

            answers = engine.stream([watched(each.rows, partial(note, own=own)) for own in seen])
            ranges = ranges_of(each.rows)
            assert [int(n_rows[0]) for n_rows in answers] == [sum(part.n_rows for part in ranges)] * 3
            for own in seen:
                assert sorted(own) == sorted((part.start, part.stop, True) for part in ranges)

    @pytest.mark.parametrize("first", [0, 1])
    def test_a_free_thread_visits_at_the_same_time(self, first):
        source, _, vectors, rounds = sweep_setup(23)
        lane = RowSet((rounds[0].rows.segments[0][:1],))
        done = threading.Event()

        def wait_for_it(block, rows):
            assert done.wait(LONG)

        visits = [wait_for_it, lambda block, rows: done.set()]
        passes = [watched(lane, visit) for visit in (visits if first == 0 else visits[::-1])]
        with LocalEngine(source, vectors, threads=2) as engine:
            engine.stream(passes)
        assert done.is_set()

    def test_no_rows_are_kept(self):
        """Row vectors on disk are read into memory for a visit, and no longer."""
        source, models, vectors, rounds = sweep_setup(60, memory_bytes=0)
        name = models[0].dual
        seen, alive = [], []

        def note(block, rows):
            alive.append(sum(vector() is not None for vector in seen))
            seen.append(weakref.ref(rows.vectors[name]))

        with LocalEngine(source, vectors, threads=1) as engine:
            engine.stream([watched(rounds[0].rows, note, name), watched(rounds[0].rows, lambda *rows: None)])
        vectors.close()
        assert len(alive) == rounds[0].rows.n_ranges > 10
        assert max(alive) == 0

    @pytest.mark.parametrize("threads", [1, 2])
    @pytest.mark.parametrize("number", [0, 1])
    def test_a_failure_in_any_of_them_ends_the_stream(self, threads, number):
        source, _, vectors, rounds = sweep_setup(23)
        visits = [lambda block, rows: None, lambda block, rows: None]
        passes = [watched(rounds[0].rows, visit) for visit in visits]
        visits[number] = fail
        failing = [watched(rounds[0].rows, visit) for visit in visits]
        with LocalEngine(source, vectors, threads=threads) as engine:
            with pytest.raises(Failure):
                engine.stream(failing)
            assert [n_rows[0] > 0 for n_rows in engine.stream(passes)] == [True, True]

    @pytest.mark.parametrize("n_rows", [LONG_VISIT - 1, LONG_VISIT])
    def test_a_free_thread_takes_many_rows_of_row_vectors(self, n_rows):
        """Of fewer, one thread is as fast, and visits one pass after another."""
        source, _, vectors, _ = sweep_setup(1, n_rows=n_rows)
        lane, threads = RowSet(((StridedRange(0, 0, n_rows),),)), set()
        meet = threading.Barrier(2)

        def visit(block, rows):
            threads.add(threading.get_ident())
            if n_rows == LONG_VISIT:
                meet.wait(LONG)

        passes = [replace(watched(lane, visit), needs_data=False) for _ in range(2)]
        with LocalEngine(source, vectors, threads=2) as engine:
            answers = engine.stream(passes)
        assert [int(counted[0]) for counted in answers] == [n_rows] * 2
        assert len(threads) == (2 if n_rows == LONG_VISIT else 1)


class TestWork:
    @pytest.mark.parametrize("name", ENGINES)
    def test_is_done_once_when_the_answer_comes(self, build, name):
        source, models, vectors, rounds = sweep_setup(23, n_models=2)
        engine, done = build(name, source, vectors, rounds), []
        for number, each in enumerate(rounds):
            engine.serve(
                [Overlap(requests_of(m, each), partial(done.append, k)) for k, m in enumerate(models)]
            )
            assert sorted(done) == [0] * (number + 1) + [1] * (number + 1)

    def test_goes_on_during_the_visits(self):
        source, models, vectors, rounds = sweep_setup(23)
        visited = threading.Event()

        def wait_for_a_visit():
            assert visited.wait(LONG)

        with LocalEngine(source, vectors, threads=2) as engine:
            engine.on_block = lambda done, of: visited.set()
            engine.serve([Overlap(requests_of(models[0], rounds[0]), wait_for_a_visit)])
        assert visited.is_set()

    def test_of_many_models_does_not_keep_reading_from_beginning(self):
        """A thread begins to visit, whatever work there is: it fetches blocks while the others work."""
        source, models, vectors, rounds = sweep_setup(23, n_models=16)
        own = {part.block for part in ranges_of(rounds[0].rows)} - set(rounds[0].prefetch)
        reading, done, read = threading.Event(), [], source.read_block

        def read_block(index, buffers=None):
            if index in own:
                reading.set()
            return read(index, buffers)

        def work():
            done.append(reading.is_set() or (len(done) > 2 and reading.wait(LONG)))

        source.read_block = read_block
        with LocalEngine(source, vectors, threads=2) as engine:
            engine.serve([Overlap(requests_of(model, rounds[0]), work) for model in models])
        assert len(done) == 16
        assert all(done[3:])

    @pytest.mark.parametrize("name", ENGINES)
    def test_ends_the_stream_where_it_fails(self, build, name):
        source, models, vectors, rounds = sweep_setup(23)
        engine = build(name, source, vectors, rounds)
        with pytest.raises(Failure):
            engine.serve([Overlap(requests_of(models[0], rounds[0]), fail)])
        # Of the failed round some lanes may have been swept: begin again.
        source, models, fresh, _ = sweep_setup(23)
        for vector in fresh.names():
            engine.vectors[vector].write(0, read_all(fresh, vector))
        reference = SerialEngine(source, sweep_setup(23)[2])
        assert swept(engine, models, rounds) == swept(reference, models, rounds)
        fresh.close()

    @pytest.mark.parametrize("name", ENGINES)
    @pytest.mark.parametrize("with_vectors", [False, True])
    def test_that_fails_without_passes_over_data_is_reported(self, build, name, with_vectors):
        source, models, vectors, rounds = sweep_setup(23)
        engine = build(name, source, vectors, rounds)
        requests = (Total(models[0].dual),) if with_vectors else ()
        with pytest.raises(Failure):
            engine.serve([Overlap(requests, fail)])
        assert engine.serve([Overlap((), no_work)]) == [[]]

    @pytest.mark.parametrize("threads", [1, 3])
    def test_is_done_although_a_read_fails(self, threads):
        """The solver's own work is never cut off in the middle."""
        source, models, vectors, rounds = sweep_setup(23)
        done = []
        source.read_block = fail
        with LocalEngine(source, vectors, threads=threads) as engine:
            with pytest.raises(Failure):
                engine.serve([Overlap(requests_of(models[0], rounds[0]), lambda: done.append(1))])
            assert done == [1]
        left = [t.name for t in threading.enumerate() if t.name.startswith(("read", "compute"))]
        assert left == []

    def test_that_can_be_stopped_is_when_a_read_fails(self):
        source, models, vectors, rounds = sweep_setup(23)
        stopped, ended = threading.Event(), []
        source.read_block = fail
        joined = [
            Overlap(
                requests_of(models[0], rounds[0]), lambda: ended.append(stopped.wait(60)), stop=stopped.set
            )
        ]
        with LocalEngine(source, vectors, threads=3) as engine, pytest.raises(Failure):
            engine.serve(joined)
        assert ended == [True]

    @pytest.mark.parametrize("name", ENGINES)
    def test_is_not_stopped_when_all_goes_well(self, build, name):
        source, models, vectors, rounds = sweep_setup(23)
        stops = []
        engine = build(name, source, vectors, rounds)
        engine.serve([Overlap(requests_of(models[0], rounds[0]), no_work, stop=lambda: stops.append(1))])
        assert stops == []

    @pytest.mark.parametrize("name", ["memory", "local-1-0", "cluster-1"])
    def test_of_several_begins_with_the_longest(self, build, name):
        source, models, vectors, rounds = sweep_setup(23, n_models=4)
        begun, expected = [], [2.0, 5.0, 0.0, 5.0]
        engine = build(name, source, vectors, rounds)
        answers = engine.serve(
            [
                Overlap(
                    (RowPass(LossCount(model, 0.1 * k), rounds[0].rows),),
                    partial(begun.append, k),
                    expected=expected[k],
                )
                for k, model in enumerate(models)
            ]
        )
        assert begun == [1, 3, 0, 2]
        own = [
            engine.stream([RowPass(LossCount(model, 0.1 * k), rounds[0].rows)])[0]
            for k, model in enumerate(models)
        ]
        assert [answer[0][0] for answer in answers] == [count[0] for count in own]


@dataclass
class GoesOn:
    """A solver that waits some times, and calls a function each time it goes on."""

    times: int
    on_answer: Callable
    apart: bool = True

    def steps(self):
        for number in range(self.times):
            yield Overlap((), apart=self.apart)
            self.on_answer(number)


class TestSolversThatAreApart:
    @pytest.mark.parametrize("name", ENGINES)
    def test_go_on_as_often_as_they_wait(self, build, name):
        source, _, vectors, rounds = sweep_setup(23)
        counts = [[] for _ in range(7)]
        engine = build(name, source, vectors, rounds)
        engine.run([GoesOn(k, own.append) for k, own in enumerate(counts)])
        assert counts == [list(range(k)) for k in range(7)]

    def test_go_on_at_the_same_time(self):
        source, _, vectors, _ = sweep_setup(23)
        meet = threading.Barrier(2)
        with LocalEngine(source, vectors, threads=2) as engine:
            engine.run([GoesOn(3, lambda _: meet.wait(LONG)) for _ in range(2)])
        assert not meet.broken

    def test_warn_of_no_more_than_the_run(self):
        source, _, vectors, _ = sweep_setup(23)
        seen = []

        def note(_):
            seen.append(np.geterr()["over"])

        with LocalEngine(source, vectors, threads=2) as engine:
            for over in ("ignore", "raise"):
                with np.errstate(over=over):
                    engine.run([GoesOn(1, note) for _ in range(2)])
                    engine.serve([Overlap((), partial(note, 0)) for _ in range(2)])
        assert seen == ["ignore"] * 4 + ["raise"] * 4

    @pytest.mark.parametrize("apart", [[False, False, False], [True, False, True]])
    def test_others_go_on_one_after_another(self, apart):
        """They may touch what others touch, too: in their order, in the thread of the run."""
        source, _, vectors, _ = sweep_setup(23)
        seen = []

        def note(_, number):
            seen.append((number, threading.current_thread()))

        solvers = [GoesOn(2, partial(note, number=k), own) for k, own in enumerate(apart)]
        with LocalEngine(source, vectors, threads=3) as engine:
            engine.run(solvers)
        assert seen == [(k, threading.current_thread()) for k in (0, 1, 2, 0, 1, 2)]

    @pytest.mark.parametrize("threads", [1, 2, 3])
    def test_are_not_begun_where_one_fails(self, threads):
        source, _, vectors, _ = sweep_setup(23)
        begun = []

        def go_on(_, number):
            begun.append(number)
            time.sleep(0.001)
            if number == 1:
                raise Failure

        solvers = [GoesOn(1, partial(go_on, number=k)) for k in range(500)]
        with LocalEngine(source, vectors, threads=threads) as engine:
            with pytest.raises(Failure):
                engine.run(solvers)
            assert 1 in begun
            assert len(begun) < 500
            seen = []
            engine.run([GoesOn(1, seen.append)])
            assert seen == [0]


class TestHelp:
    @pytest.fixture(autouse=True)
    def processors(self, monkeypatch):
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))

    def test_is_of_no_more_threads_than_processors(self, monkeypatch):
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
        source, _, vectors, _ = sweep_setup(23)
        inside, most, enough = [], [], threading.Event()

        def help_out():
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.002)
            inside.pop()
            if len(most) > 20:
                enough.set()
            return True

        def work():
            assert enough.wait(LONG)

        with LocalEngine(source, vectors, threads=4) as engine:
            engine.serve([Overlap((), work, help=help_out)])
        assert max(most) == 1

    @pytest.mark.parametrize("threads", [2, 3])
    @pytest.mark.parametrize("reading", [False, True])
    def test_comes_from_threads_that_have_nothing_else_to_do(self, threads, reading):
        source, models, vectors, rounds = sweep_setup(23)
        at_work, helped, threads_of = threading.Event(), threading.Event(), {}

        def help_out():  # A thread may help before the work is taken, and then take it itself
            if at_work.is_set():
                threads_of.setdefault("help", threading.get_ident())
                helped.set()
            return True

        def work():
            threads_of["work"] = threading.get_ident()
            at_work.set()
            assert helped.wait(LONG)

        requests = requests_of(models[0], rounds[0]) if reading else ()
        with LocalEngine(source, vectors, threads=threads) as engine:
            engine.serve([Overlap(requests, work, help=help_out)])
        assert threads_of["help"] != threads_of["work"]

    @pytest.mark.parametrize("name", ENGINES)
    def test_changes_no_answer(self, build, name):
        source, models, vectors, rounds = sweep_setup(23)
        engine, done = build(name, source, vectors, rounds), []
        request = requests_of(models[0], rounds[0])
        [answer] = engine.serve([Overlap(request, lambda: done.append(1), help=lambda: True)])
        reference = SerialEngine(*sweep_setup(23)[::2])
        assert bits(answer[0]) == bits(reference.stream([request[0]])[0])
        assert done == [1]

    def test_leaves_a_thread_to_what_waits_for_one(self):
        """A visit that may go on beside another one is not kept waiting by a long work and its helper."""
        source, _, vectors, rounds = sweep_setup(23)
        lane = RowSet((rounds[0].rows.segments[0][:1],))
        helped, visited = threading.Event(), threading.Event()

        def first_visit(block, rows):
            assert helped.wait(LONG)
            assert visited.wait(LONG)

        def help_out():
            helped.set()
            return True

        def work():  # Not ended by the visit alone, which may come before any help
            assert helped.wait(LONG)
            assert visited.wait(LONG)

        passes = (watched(lane, first_visit), watched(lane, lambda block, rows: visited.set()))
        with LocalEngine(source, vectors, threads=3) as engine:
            engine.serve([Overlap(passes, work, help=help_out)])
        assert visited.is_set()

    def test_of_several_works_is_for_one_that_can_be_helped(self):
        source, _, vectors, _ = sweep_setup(23)
        helped = threading.Event()

        def help_out():
            helped.set()
            return True

        def work():
            assert helped.wait(LONG)

        with LocalEngine(source, vectors, threads=3) as engine:
            engine.serve([Overlap((), work, help=lambda: False), Overlap((), work, help=help_out)])
        assert helped.is_set()

    def test_ends_with_the_work(self):
        source, _, vectors, _ = sweep_setup(23)
        inside, calls = threading.Event(), []

        def help_out():
            calls.append(1)
            inside.set()
            return True

        with LocalEngine(source, vectors, threads=3) as engine:
            engine.serve([Overlap((), lambda: inside.wait(LONG), help=help_out)])
            engine.serve([Overlap((), no_work)] * 3)
            n_calls = len(calls)
            engine.serve([Overlap((), no_work)] * 3)
        assert len(calls) == n_calls > 0

    def test_is_given_by_a_generator_that_drives_others(self):
        def steps(answer):
            yield Overlap((), no_work, help=lambda: answer)

        joined = next(together([steps(False), steps(True)]))
        assert joined.help()
        assert not next(together([steps(False)])).help()


class TestAnswers:
    @pytest.mark.parametrize("name", ENGINES)
    def test_come_in_the_order_of_the_requests_when_the_work_is_done(self, build, name):
        """Whether they read the data, row vectors or whole row vectors."""
        source, models, vectors, rounds = sweep_setup(23)
        model, done = models[0], []
        engine = build(name, source, vectors, rounds)
        sweep, scores = requests_of(model, rounds[0])
        losses, total = RowPass(LossCount(model, 0.0), rounds[0].rows), Total("target")

        def work():
            done.append(True)

        found = engine.serve([Overlap((total, sweep, losses, scores), work), losses, total])
        assert done == [True]
        (sum_of, swept_rows, n_losses, nothing), alone, sum_alone = found
        assert sum_of == sum_alone == read_all(vectors, "target").sum()
        assert bits(swept_rows) == bits(SerialEngine(*sweep_setup(23)[::2]).stream([sweep])[0])
        assert n_losses.tolist() == alone.tolist()
        assert nothing.shape == (0,)

    @pytest.mark.parametrize("name", ENGINES)
    @pytest.mark.parametrize("n_blocks", [2, 60])
    def test_have_the_bits_that_they_have_alone(self, build, name, n_blocks):
        source, models, vectors, rounds = sweep_setup(n_blocks)
        engine = build(name, source, vectors, rounds)
        other = sweep_setup(n_blocks)
        alone = SerialEngine(other[0], other[2])
        for each in rounds:
            requests = requests_of(models[0], each)
            together = engine.serve([Overlap(requests, no_work)])[0]
            apart = [alone.stream([request])[0] for request in requests]
            assert bits(together[0]) == bits(apart[0])
            assert together[1].tobytes() == apart[1].tobytes()
        for vector in models[0].row_vectors:
            assert read_all(engine.vectors, vector).tobytes() == read_all(other[2], vector).tobytes()

    @pytest.mark.parametrize("name", ENGINES)
    def test_of_whole_row_vectors_are_served_with_work_alone(self, build, name):
        source, _, vectors, rounds = sweep_setup(23)
        engine, done = build(name, source, vectors, rounds), []
        request = Total("weight")
        assert engine.serve([Overlap((request, request), lambda: done.append(1))]) == [
            [read_all(vectors, "weight").sum()] * 2
        ]
        assert done == [1]
        assert source.reads.sum() == 0

    @pytest.mark.parametrize("name", ENGINES)
    def test_of_different_rows_do_not_mix(self, build, name):
        """Passes over all rows and over those of a round have a stream each; the work is done once."""
        source, models, vectors, rounds = sweep_setup(23)
        engine, done = build(name, source, vectors, rounds), []
        sweep, scores = requests_of(models[0], rounds[0])
        columns = ColumnPass(source.n_features)
        answers = engine.serve([Overlap((sweep, columns, scores), lambda: done.append(1))])[0]
        reference = SerialEngine(*sweep_setup(23)[::2])
        assert bits(answers[0]) == bits(reference.stream([sweep])[0])
        expected = reference.stream([columns])[0]
        assert answers[1].total.tobytes() == expected.total.tobytes()
        np.testing.assert_array_equal(answers[1].largest, expected.largest)
        assert done == [1]


class TestPrefetch:
    @pytest.mark.parametrize("threads", [1, 2, 3])
    def test_of_work_without_requests_reads_its_blocks_once(self, threads):
        source, models, vectors, rounds = sweep_setup(60)
        first = tuple(segment[0].block for segment in rounds[0].rows.segments)
        with LocalEngine(source, vectors, threads=threads) as engine:
            for _ in range(3):
                engine.serve([Overlap((), no_work, first), Overlap((), no_work, first)])
            engine.serve([Overlap(requests_of(models[0], rounds[0]), no_work)])
        own = {part.block for part in ranges_of(rounds[0].rows)}
        # The round reads ahead what the next one begins with.
        ahead = set(rounds[0].prefetch[:threads])
        assert set(np.flatnonzero(source.reads).tolist()) == own | ahead
        assert source.reads.max() == 1

    def test_has_read_them_before_the_work_ends(self):
        source, _, vectors, rounds = sweep_setup(60)
        wanted, read = {segment[0].block for segment in rounds[0].rows.segments[:2]}, source.read_block
        came = threading.Event()

        def read_block(index, buffers=None):
            block = read(index, buffers)
            if set(np.flatnonzero(source.reads).tolist()) == wanted:
                came.set()
            return block

        def work():
            assert came.wait(LONG)

        source.read_block = read_block
        with LocalEngine(source, vectors, threads=2) as engine:
            engine.serve([Overlap((), work, tuple(sorted(wanted)))])
        assert came.is_set()

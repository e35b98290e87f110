"""One contract for every engine: the answers of the reference engine, bit for bit."""

from __future__ import annotations

import threading
import weakref
from contextlib import ExitStack
from functools import partial

import numpy as np
import pytest
from helpers.cluster_data import Some, cluster_engine, with_memory
from helpers.dual_data import (
    dual_data,
    dual_problem,
    dual_vectors,
    held_rows,
    read_all,
    sweep_pass,
)
from helpers.problems_data import MatrixSource, cut_rows, hinge_oracle, noisy_rows, row_vectors

from ooc_svm.engine.merge import MergeTree, cut_segments
from ooc_svm.engine.block_cache import pinned_blocks
from ooc_svm.engine.local import BLOCKS_A_THREAD, LocalEngine
from ooc_svm.engine.serial import SerialEngine
from ooc_svm.passes.base import Extent, rows_of
from ooc_svm.passes.columns import ColumnPass
from ooc_svm.solvers.cutting_plane.joachims import CuttingPlane, CuttingPlaneState
from ooc_svm.solvers.cutting_plane.ocas import Ocas, OcasState
from ooc_svm.solvers.stopping import Stopping
from ooc_svm.solvers.streamed_smo.dual import names
from ooc_svm.solvers.streamed_smo.sweep import Interlude, NormPass, cut_rounds, opening


class CountingSource(MatrixSource):
    """Counts how often each block is read."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.open = partial(MatrixSource, *arguments, **options)
        self.reads = np.zeros(len(self.blocks), dtype=int)
        self.buffers_made = 0
        self._lock = threading.Lock()

    def read_block(self, index, buffers=None):
        with self._lock:
            self.reads[index] += 1
        return super().read_block(index, buffers)

    def block_stored_bytes(self, index):
        return 10

    def new_buffers(self):
        self.buffers_made += 1


def setup(n_blocks=23, groups=2, memory_bytes=1 << 30):
    matrix, labels = noisy_rows(600, 50)
    source = CountingSource(matrix, labels, spans=cut_rows(matrix, n_blocks))
    problem = hinge_oracle(matrix.shape[1], groups=groups)
    return source, problem, row_vectors(labels, problem, memory_bytes=memory_bytes)


def engines():
    """Name and maker of every engine."""
    yield "memory", lambda source, vectors: SerialEngine(source, vectors)
    for threads in (1, 2, 3):
        for cache in (0, 60, 10**6):
            yield (
                f"local-{threads}-{cache}",
                lambda source, vectors, t=threads, c=cache: LocalEngine(
                    source, vectors, threads=t, cache_bytes=c
                ),
            )


LOCAL_ENGINES = dict(engines())
ENGINES = [*LOCAL_ENGINES, "cluster-1", "cluster-2", "cluster-3"]


@pytest.fixture
def build(request):
    """Makes an engine by name, and closes it with its row vectors at the end."""
    with ExitStack() as stack:

        def make(name, source, vectors, rounds=()):
            stack.callback(vectors.close)
            if name.startswith("cluster"):
                workers = Some(request.getfixturevalue("cluster"), int(name[-1]))
                allot = with_memory(vectors.memory_bytes)
                engine = cluster_engine(
                    workers, source, source.open, vectors, rounds=rounds, resources_of=allot
                )
                return stack.enter_context(engine)
            engine = LOCAL_ENGINES[name](source, vectors)
            if isinstance(engine, LocalEngine):
                stack.enter_context(engine)
            return engine

        yield make


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("name", ENGINES)
def test_a_pass_has_the_bits_of_the_reference(build, name, in_memory):
    source, problem, vectors = setup(memory_bytes=1 << 30 if in_memory else 0)
    assert vectors["codes"].in_memory == in_memory
    reference_source, _, reference_vectors = setup()
    reference = SerialEngine(reference_source, reference_vectors)
    engine = build(name, source, vectors)
    w = np.random.default_rng(0).normal(size=source.n_features)
    for step in (0.0, 0.3, 0.7):
        request = next(problem.read(w * (1 + step), step, np.array([0.2, 0.6]), np.empty(0), None))
        got, expected = engine.stream([request])[0], reference.stream([request])[0]
        assert got.vectors.tobytes() == expected.vectors.tobytes()
        assert got.sums[0].tobytes() == expected.sums[0].tobytes()
        for vector in problem.row_vectors:
            ours, theirs = engine.vectors[vector], reference_vectors[vector]
            assert ours.read(0, 600).tobytes() == theirs.read(0, 600).tobytes()


@pytest.mark.parametrize("solver", ["ocas", "cutting-plane"])
@pytest.mark.parametrize("name", ENGINES)
def test_whole_runs_have_the_same_bits(build, name, solver):
    points = []
    for each in (name, "memory"):
        source, problem, vectors = setup()
        points.append(run_solver(build(each, source, vectors), problem, solver).state.best.tobytes())
    assert points[0] == points[1]


def run_solver(engine, problem, solver):
    stopping = Stopping(1e-6, max_passes=300)
    if solver == "ocas":
        run = Ocas(problem, stopping, OcasState.fresh(problem, 500))
    else:
        run = CuttingPlane(problem, stopping, CuttingPlaneState.fresh(problem.space.dimension, 500))
    engine.run([run])
    return run


def test_every_block_is_read_once_a_pass_and_pinned_ones_once_in_all():
    source, problem, vectors = setup()
    pinned = pinned_blocks([span.nbytes for span in source.blocks], 60)
    assert 0 < len(pinned) < len(source.blocks)
    with LocalEngine(source, vectors, threads=3, cache_bytes=60) as engine:
        for _ in range(4):
            engine.stream([next(problem.cut(np.zeros(source.n_features)))])
        expected = [1 if index in pinned else 4 for index in range(len(source.blocks))]
        assert source.reads.tolist() == expected
        assert engine.counters.blocks_read == sum(expected)
        assert engine.counters.bytes_read == 10 * sum(expected)
        assert engine.counters.passes == 4


def test_many_solvers_share_their_reads():
    source, _, _ = setup()
    _, labels = noisy_rows(600, 50)
    problems = [hinge_oracle(50, C) for C in (0.01, 0.1, 1.0)]
    alone = []
    for problem in problems:
        engine = SerialEngine(source, row_vectors(labels, problem))
        alone.append(run_solver(engine, problem, "cutting-plane").state)
    source.reads[:] = 0
    engine = SerialEngine(source, row_vectors(labels, problems[0]))
    runs = [CuttingPlane(p, Stopping(1e-6, 300), CuttingPlaneState.fresh(50, 500)) for p in problems]
    engine.run(runs)
    most = max(state.certificate.passes for state in alone)
    assert engine.counters.passes == most
    assert source.reads.tolist() == [most] * len(source.blocks)
    for run, state in zip(runs, alone, strict=True):
        assert run.state.certificate.passes == state.certificate.passes
        np.testing.assert_allclose(run.state.best, state.best, rtol=1e-6, atol=1e-9)


def test_a_failing_block_ends_the_pass_and_the_engine_still_works():
    source, problem, vectors = setup()
    request = next(problem.cut(np.zeros(source.n_features)))
    broken = [True]

    class Failure(Exception):
        pass

    read = source.read_block

    def read_block(index, buffers=None):
        if index == 11 and broken[0]:
            raise Failure
        return read(index, buffers)

    source.read_block = read_block
    with LocalEngine(source, vectors, threads=2) as engine:
        with pytest.raises(Failure):
            engine.stream([request])
        broken[0] = False
        got = engine.stream([request])[0]
    expected = SerialEngine(source, vectors).stream([request])[0]
    assert got.vectors.tobytes() == expected.vectors.tobytes()


@pytest.mark.parametrize("name", ENGINES)
def test_column_statistics_equal_those_of_numpy(build, name):
    source, _, vectors = setup()
    dense = noisy_rows(600, 50)[0].toarray()
    sums = build(name, source, vectors).stream([ColumnPass(50)])[0]
    np.testing.assert_array_equal(sums.largest, np.abs(dense).max(axis=0))
    np.testing.assert_allclose(sums.total, dense.sum(axis=0), atol=1e-10)
    np.testing.assert_allclose(sums.squares, (dense**2).sum(axis=0))


@pytest.mark.parametrize("n_segments", [1, 2, 8])
def test_the_tree_does_not_depend_on_the_order_of_arrival(n_segments):
    rng = np.random.default_rng(0)
    parts = rng.normal(size=n_segments) * 10.0 ** rng.integers(-8, 8, n_segments)
    totals = set()
    for _ in range(20):
        tree = MergeTree(n_segments, lambda left, right: left + right)
        for segment in rng.permutation(n_segments):
            tree.add(int(segment), parts[segment])
        totals.add(tree.total)
    assert len(totals) == 1


@pytest.mark.parametrize("n_blocks", [1, 2, 3, 7, 64, 1000])
def test_segments_cover_the_blocks_in_order(n_blocks):
    matrix, _ = noisy_rows(2000, 5)
    blocks = cut_rows(matrix, n_blocks)
    segments = cut_segments(blocks, 1)
    assert [piece.block for segment in segments for piece in segment] == list(range(len(blocks)))
    assert len(segments) & (len(segments) - 1) == 0
    assert len(cut_segments(blocks, 10**9)) <= 4


LONG = 20.0
"""Seconds after which what should have happened long ago counts as failed."""


def sweep_setup(n_blocks, *, loss="hinge", n_models=1, memory_bytes=1 << 30, n_rows=1200):
    """A source, problems, row vectors and rounds."""
    data = dual_data(loss, n_rows=n_rows, rho=1.0)
    source = CountingSource(data.matrix, data.t, spans=cut_rows(data.matrix, n_blocks))
    problems = [dual_problem(data, f"model-{k}") for k in range(n_models)]
    vectors = dual_vectors(data, problems, memory_bytes=memory_bytes)
    return source, problems, vectors, cut_rounds(source.blocks, 4, 4)


def bits(answer):
    """All that a round comes back with, as bytes."""
    parts = [answer.w, answer.rebuilt, answer.sums]
    for rows in answer.best:
        parts += [rows.ids, rows.indptr, rows.indices, rows.values, rows.box, rows.dual, rows.step, rows.keys]
    return b"".join(part.tobytes() for part in parts)


def swept(engine, problems, rounds, meanwhile=None):
    """Two reads of sweeps, each model with a seed of its own; the bits of all answers and row vectors."""
    held, found = held_rows(engine.source.n_rows), []
    for read in range(2):
        for extent in rounds:
            requests = [
                sweep_pass(p, extent, held=held, room=400, seed=10 * k + read, theta=0.4, meanwhile=meanwhile)
                for k, p in enumerate(problems)
            ]
            found += [bits(answer) for answer in engine.stream(requests)]
    return found + [read_all(engine.vectors, name).tobytes() for p in problems for name in names(p)]


def arrival(source, block):
    """An event that tells that a block is being read, and what waits for it."""
    came, read = threading.Event(), source.read_block

    def read_block(index, buffers=None):
        if index == block:
            came.set()
        return read(index, buffers)

    def wait_for_it():
        assert came.wait(LONG)

    source.read_block = read_block
    return came, wait_for_it


class TestSweeps:
    @pytest.mark.parametrize("in_memory", [True, False])
    @pytest.mark.parametrize("n_blocks", [2, 60])
    @pytest.mark.parametrize("name", ENGINES)
    def test_have_the_bits_of_the_reference(self, build, name, n_blocks, in_memory):
        source, problems, vectors, rounds = sweep_setup(n_blocks, memory_bytes=1 << 30 if in_memory else 0)
        assert vectors[names(problems[0])[0]].in_memory == in_memory
        assert (max(piece.step for r in rounds for s in r.segments for piece in s) > 1) == (n_blocks == 2)
        reference_source, _, reference_vectors, _ = sweep_setup(n_blocks)
        reference = SerialEngine(reference_source, reference_vectors)
        engine = build(name, source, vectors, rounds)
        assert swept(engine, problems, rounds) == swept(reference, problems, rounds)

    @pytest.mark.parametrize("n_blocks", [2, 60])
    @pytest.mark.parametrize("name", ["memory", "local-1-0", "local-3-0", "local-2-60", "cluster-2"])
    def test_of_two_models_share_their_reads_and_not_their_bits(self, build, name, n_blocks):
        source, problems, vectors, rounds = sweep_setup(n_blocks, n_models=2)
        engine = build(name, source, vectors, rounds)
        both = swept(engine, problems, rounds)
        shared = source.reads.copy()
        source, problems, vectors, _ = sweep_setup(n_blocks, n_models=2)
        one = swept(build("memory", source, vectors), problems[:1], rounds)
        assert (source.reads >= 2).all()
        if name == "memory":
            assert shared.tolist() == source.reads.tolist()
        else:
            assert engine.counters.blocks_read < 2 * source.reads.sum()
        n_answers = 2 * len(rounds)
        assert both[0 : 2 * n_answers : 2] == one[:n_answers]
        assert both[2 * n_answers : 2 * n_answers + 4] == one[n_answers:]
        assert both[1 : 2 * n_answers : 2] != one[:n_answers]

    @pytest.mark.parametrize(("n_blocks", "threads"), [(2, 1), (8, 1), (60, 1), (60, 2), (60, 3)])
    def test_read_each_block_once(self, n_blocks, threads):
        """Also where nothing takes the blocks read ahead until the solver's own work is done."""
        source, problems, vectors, rounds = sweep_setup(n_blocks)
        with LocalEngine(source, vectors, threads=threads) as engine:
            swept(engine, problems, rounds, meanwhile=threading.Event().is_set)
            engine.stream([problems[0].count_losses(names(problems[0])[3], 0.0)])
            assert engine.counters.passes == 2
            engine.stream([sweep_pass(problems[0], rounds[0])])
        most = np.full(len(source.blocks), 2)
        for segment in rounds[0].segments:
            most[[piece.block for piece in segment]] = 3
        most[list(rounds[0].ahead)[:threads]] = 3
        assert (source.reads >= 2).all()
        assert (source.reads <= most).all()
        assert source.buffers_made <= (BLOCKS_A_THREAD + 1) * threads

    def test_blocks_of_the_next_round_are_read_before_this_one_ends(self):
        source, problems, vectors, rounds = sweep_setup(60)
        ahead = rounds[0].ahead[0]
        assert ahead not in {piece.block for segment in rounds[0].segments for piece in segment}
        came, wait_for_it = arrival(source, ahead)
        with LocalEngine(source, vectors, threads=1) as engine:
            engine.stream([sweep_pass(problems[0], rounds[0], meanwhile=wait_for_it)])
        assert came.is_set()

    @pytest.mark.parametrize("name", ENGINES)
    def test_an_interlude_does_the_work_and_visits_nothing(self, build, name):
        source, problems, vectors, rounds = sweep_setup(60)
        engine, done = build(name, source, vectors, rounds), []
        ahead = tuple(segment[0].block for segment in rounds[0].segments)
        for k in range(2):
            between = Interlude(partial(done.append, k), Extent(((),), ahead))
            assert engine.stream([between, between]) == [None, None]
        assert done == [0, 0, 1, 1]
        assert engine.counters.passes == 0
        swept(engine, problems, rounds)
        assert engine.counters.passes == 2
        assert engine.counters.blocks_read <= 2 * len(source.blocks)

    @pytest.mark.parametrize("threads", [1, 2, 5])
    def test_with_one_lane_three_blocks_are_alive(self, threads):
        """However many threads there are; and what was read ahead is not read again."""
        source, problems, vectors, _ = sweep_setup(60)
        rounds = cut_rounds(source.blocks, 4, 1)
        first = opening(rounds)
        assert first == tuple(piece.block for piece in rounds[0].segments[0][:2])
        came, wait_for_it = arrival(source, first[:threads][-1])
        with LocalEngine(source, vectors, threads=threads) as engine:
            engine.read_ahead(first)
            wait_for_it()
            for read in range(2):
                if read > 0:
                    came.clear()
                engine.stream([Interlude(wait_for_it, Extent(((),), first))])
                for extent in rounds:
                    engine.stream([sweep_pass(problems[0], extent, seed=read)])
        assert (source.reads == 2).all()
        assert source.buffers_made <= BLOCKS_A_THREAD + 1

    @pytest.mark.parametrize("name", ENGINES)
    def test_progress_counts_the_pieces_of_a_whole_read(self, build, name):
        source, problems, vectors, rounds = sweep_setup(23)
        engine, seen = build(name, source, vectors, rounds), []
        engine.on_block = lambda done, of: seen.append((done, of))
        for extent in rounds:
            engine.stream([sweep_pass(problems[0], extent)])
            assert engine.counters.passes == extent.ends
            assert seen[-1] == (extent.before + extent.n_pieces, extent.of)
        assert seen == sorted(set(seen))
        if not name.startswith("cluster"):
            assert seen == [(k + 1, rounds[0].of) for k in range(rounds[0].of)]

    @pytest.mark.parametrize("name", ENGINES)
    def test_a_read_in_rounds_is_one_pass_of_a_run(self, build, name):
        source, problems, vectors, rounds = sweep_setup(23, n_models=2)
        engine, calls = build(name, source, vectors, rounds), []

        class Sweeper:
            def __init__(self, problem, reads):
                self.problem, self.reads = problem, reads

            def steps(self):
                for _ in range(self.reads):
                    for extent in rounds:
                        answer = yield sweep_pass(self.problem, extent)
                        assert len(answer.w) == 40
                    yield self.problem.count_losses(names(self.problem)[3], 0.0, rows_of(rounds))

        sweepers = [Sweeper(problems[0], 2), Sweeper(problems[1], 3)]
        engine.run(sweepers, between=lambda: calls.append(engine.counters.passes))
        assert calls == [0, 1, 2]
        assert engine.counters.passes == 3


def scoring(extent, beside, visit=lambda: None):
    """A pass that counts its rows, with calls made beside each piece and in each visit."""

    class Watched(NormPass):
        def visit(self, block, rows, partial):
            visit()
            NormPass.visit(self, block, rows, partial)

    Watched.beside = staticmethod(beside)
    return Watched(None, extent)


class TestBeside:
    @pytest.mark.parametrize("name", LOCAL_ENGINES)
    def test_is_done_once_for_each_piece_when_the_answer_comes(self, build, name):
        source, _, vectors, rounds = sweep_setup(23)
        engine, seen = build(name, source, vectors, rounds), []

        def note(block, rows):
            seen.append((rows.start, rows.stop, block.start <= rows.start < rows.stop <= block.stop))

        for extent in rounds:
            pieces = [piece for segment in extent.segments for piece in segment]
            _, n_rows = engine.stream([scoring(extent, note)])[0]
            assert n_rows == sum(piece.n_rows for piece in pieces)
            assert sorted(seen) == sorted((piece.start, piece.stop, True) for piece in pieces)
            seen.clear()

    def test_a_free_thread_does_it_during_the_visit(self):
        source, _, vectors, rounds = sweep_setup(23)
        lane = Extent((rounds[0].segments[0][:1],))
        done = threading.Event()

        def wait_for_it():
            assert done.wait(LONG)

        with LocalEngine(source, vectors, threads=2) as engine:
            engine.stream([scoring(lane, lambda block, rows: done.set(), wait_for_it)])
        assert done.is_set()

    def test_no_rows_are_kept(self):
        """Row vectors on disk are read into memory for a visit, and no longer."""
        source, problems, vectors, rounds = sweep_setup(60, memory_bytes=0)
        name = names(problems[0])[0]
        seen, alive = [], []

        class Reading(NormPass):
            reads = (name,)

            def visit(self, block, rows, partial):
                alive.append(sum(vector() is not None for vector in seen))
                seen.append(weakref.ref(rows.vectors[name]))

        Reading.beside = staticmethod(lambda block, rows: None)
        with LocalEngine(source, vectors, threads=1) as engine:
            engine.stream([Reading(None, rounds[0])])
        vectors.close()
        assert len(alive) == rounds[0].n_pieces > 10
        assert max(alive) == 0

    @pytest.mark.parametrize("threads", [1, 2])
    def test_a_failure_there_ends_the_stream(self, threads):
        source, _, vectors, rounds = sweep_setup(23)

        class Failure(Exception):
            pass

        def fail(block, rows):
            raise Failure

        with LocalEngine(source, vectors, threads=threads) as engine:
            with pytest.raises(Failure):
                engine.stream([scoring(rounds[0], fail)])
            assert engine.stream([scoring(rounds[0], lambda block, rows: None)])[0][1] > 0


class TestMeanwhile:
    @pytest.mark.parametrize("name", ENGINES)
    def test_is_done_once_when_the_answer_comes(self, build, name):
        source, problems, vectors, rounds = sweep_setup(23, n_models=2)
        engine, done = build(name, source, vectors, rounds), []
        for number, extent in enumerate(rounds):
            requests = [
                sweep_pass(p, extent, meanwhile=lambda k=k: done.append(k)) for k, p in enumerate(problems)
            ]
            engine.stream(requests)
            assert sorted(done) == [0] * (number + 1) + [1] * (number + 1)

    def test_goes_on_beside_the_visits(self):
        source, problems, vectors, rounds = sweep_setup(23)
        visited = threading.Event()

        def wait_for_a_visit():
            assert visited.wait(LONG)

        with LocalEngine(source, vectors, threads=2) as engine:
            engine.on_block = lambda done, of: visited.set()
            engine.stream([sweep_pass(problems[0], rounds[0], meanwhile=wait_for_a_visit)])
        assert visited.is_set()

    @pytest.mark.parametrize("name", ENGINES)
    def test_ends_the_stream_where_it_fails(self, build, name):
        source, problems, vectors, rounds = sweep_setup(23)

        class Failure(Exception):
            pass

        def fail():
            raise Failure

        engine = build(name, source, vectors, rounds)
        with pytest.raises(Failure):
            engine.stream([sweep_pass(problems[0], rounds[0], meanwhile=fail)])
        # Of the failed round some lanes may have been swept: begin anew.
        source, problems, fresh, _ = sweep_setup(23)
        for vector in fresh.names():
            engine.vectors[vector].write(0, read_all(fresh, vector))
        reference = SerialEngine(source, sweep_setup(23)[2])
        assert swept(engine, problems, rounds) == swept(reference, problems, rounds)
        fresh.close()

    @pytest.mark.parametrize("threads", [1, 3])
    def test_a_read_that_fails_ends_the_stream_once_it_is_done(self, threads):
        """The solver's own work is never cut off in the middle."""
        source, problems, vectors, rounds = sweep_setup(23)

        class Failure(Exception):
            pass

        def read_block(index, buffers=None):
            raise Failure

        done = []
        source.read_block = read_block
        with LocalEngine(source, vectors, threads=threads) as engine:
            with pytest.raises(Failure):
                engine.stream([sweep_pass(problems[0], rounds[0], meanwhile=lambda: done.append(1))])
            assert done == [1]
        left = [t.name for t in threading.enumerate() if t.name.startswith(("read", "compute"))]
        assert left == []

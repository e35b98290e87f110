"""Reads in rounds: the bits of the reference engine, each block read once, and what is read ahead."""

from __future__ import annotations

import threading
from functools import partial

import numpy as np
import pytest
from helpers.engine_data import (
    ENGINES,
    arrival,
    requests_of,
    sweep_setup,
    swept,
)

from ooc_svm.engine.local import BLOCKS_A_THREAD, LocalEngine
from ooc_svm.engine.serial import SerialEngine
from ooc_svm.passes.base import Overlap, rows_of
from ooc_svm.passes.rowwise import RowPass
from ooc_svm.solvers.best_scores import LossCount
from ooc_svm.solvers.streamed_smo.rounds import cut_rounds, opening


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("n_blocks", [2, 60])
@pytest.mark.parametrize("name", ENGINES)
def test_sweeps_have_the_bits_of_the_reference(build, name, n_blocks, in_memory):
    source, models, vectors, rounds = sweep_setup(n_blocks, memory_bytes=1 << 30 if in_memory else 0)
    assert vectors[models[0].dual].in_memory == in_memory
    steps = [part.step for each in rounds for segment in each.rows.segments for part in segment]
    assert (max(steps) > 1) == (n_blocks == 2)
    reference_source, _, reference_vectors, _ = sweep_setup(n_blocks)
    reference = SerialEngine(reference_source, reference_vectors)
    engine = build(name, source, vectors, rounds)
    assert swept(engine, models, rounds) == swept(reference, models, rounds)


@pytest.mark.parametrize("n_blocks", [2, 60])
@pytest.mark.parametrize("name", ["memory", "local-1-0", "local-3-0", "local-2-60", "cluster-2"])
def test_sweeps_of_two_models_share_their_reads_and_not_their_bits(build, name, n_blocks):
    source, models, vectors, rounds = sweep_setup(n_blocks, n_models=2)
    engine = build(name, source, vectors, rounds)
    both = swept(engine, models, rounds)
    shared = source.reads.copy()
    source, models, vectors, _ = sweep_setup(n_blocks, n_models=2)
    one = swept(build("memory", source, vectors), models[:1], rounds)
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
def test_each_block_is_read_once(n_blocks, threads):
    """Also where no thread acquires the blocks read ahead until the solver's own work is done."""
    source, models, vectors, rounds = sweep_setup(n_blocks)
    with LocalEngine(source, vectors, threads=threads) as engine:
        swept(engine, models, rounds, work=threading.Event().is_set)
        engine.stream([RowPass(LossCount(models[0], 0.0))])
        assert engine.counters.passes == 2
        engine.stream(requests_of(models[0], rounds[0]))
    most = np.full(len(source.blocks), 2)
    for segment in rounds[0].rows.segments:
        most[[part.block for part in segment]] = 3
    most[list(rounds[0].prefetch)[:threads]] = 3
    assert (source.reads >= 2).all()
    assert (source.reads <= most).all()
    assert source.buffers_made <= (BLOCKS_A_THREAD + 1) * threads


def test_blocks_of_the_next_round_are_read_before_this_one_ends():
    source, models, vectors, rounds = sweep_setup(60)
    ahead = rounds[0].prefetch[0]
    assert ahead not in {part.block for segment in rounds[0].rows.segments for part in segment}
    came, wait_for_it = arrival(source, ahead)
    with LocalEngine(source, vectors, threads=1) as engine:
        engine.serve([Overlap(requests_of(models[0], rounds[0]), wait_for_it)])
    assert came.is_set()


@pytest.mark.parametrize("name", ENGINES)
def test_work_without_requests_visits_nothing(build, name):
    source, models, vectors, rounds = sweep_setup(60)
    engine, done = build(name, source, vectors, rounds), []
    ahead = tuple(segment[0].block for segment in rounds[0].rows.segments)
    for k in range(2):
        between = Overlap((), partial(done.append, k), ahead)
        assert engine.serve([between, between]) == [[], []]
    assert done == [0, 0, 1, 1]
    assert engine.counters.passes == 0
    swept(engine, models, rounds)
    assert engine.counters.passes == 2
    assert engine.counters.blocks_read <= 2 * len(source.blocks)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_with_one_lane_three_blocks_are_alive(threads):
    """However many threads there are; and what was read ahead is not read again."""
    source, models, vectors, _ = sweep_setup(60)
    rounds = cut_rounds(source.blocks, 4, 1)
    first = opening(rounds)
    assert first == tuple(part.block for part in rounds[0].rows.segments[0][:2])
    came, wait_for_it = arrival(source, first[:threads][-1])
    with LocalEngine(source, vectors, threads=threads) as engine:
        engine.prefetch(first)
        wait_for_it()
        for read in range(2):
            if read > 0:
                came.clear()
            engine.serve([Overlap((), wait_for_it, first)])
            for each in rounds:
                engine.stream(requests_of(models[0], each, seed=read))
    assert (source.reads == 2).all()
    assert source.buffers_made <= BLOCKS_A_THREAD + 1


@pytest.mark.parametrize("name", ENGINES)
def test_progress_counts_the_ranges_of_a_whole_read(build, name):
    source, models, vectors, rounds = sweep_setup(23)
    engine, seen = build(name, source, vectors, rounds), []
    engine.on_block = lambda done, of: seen.append((done, of))
    for each in rounds:
        engine.stream(requests_of(models[0], each))
        assert engine.counters.passes == each.position.ends
        assert seen[-1] == (each.position.before + each.rows.n_ranges, each.position.total)
    assert seen == sorted(set(seen))
    if not name.startswith("cluster"):
        total = rounds[0].position.total
        assert seen == [(k + 1, total) for k in range(total)]


@pytest.mark.parametrize("name", ENGINES)
def test_a_read_in_rounds_is_one_pass_of_a_run(build, name):
    source, models, vectors, rounds = sweep_setup(23, n_models=2)
    engine, calls = build(name, source, vectors, rounds), []

    class Sweeper:
        def __init__(self, model, reads):
            self.model, self.reads = model, reads

        def steps(self):
            for _ in range(self.reads):
                for each in rounds:
                    sweep, scores = requests_of(self.model, each)
                    answers = yield Overlap((sweep, scores), lambda: None)
                    assert len(answers[0].w) == 40
                yield RowPass(LossCount(self.model, 0.0), rows_of([each.rows for each in rounds]))

    sweepers = [Sweeper(models[0], 2), Sweeper(models[1], 3)]
    engine.run(sweepers, between=lambda: calls.append(engine.counters.passes))
    assert calls == [0, 1, 2]
    assert engine.counters.passes == 3

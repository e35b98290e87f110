"""One contract for every engine: the answers of the reference engine, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.engine_data import ENGINES, CountingSource
from helpers.problems_data import cut_rows, hinge_oracle, noisy_rows, row_vectors

from ooc_svm.engine.block_cache import pinned_blocks
from ooc_svm.engine.local import LocalEngine
from ooc_svm.engine.merge import MergeTree, cut_segments
from ooc_svm.engine.serial import SerialEngine
from ooc_svm.passes.columns import ColumnPass
from ooc_svm.solvers.cutting_plane.joachims import CuttingPlane, CuttingPlaneState
from ooc_svm.solvers.cutting_plane.ocas import Ocas, OcasState
from ooc_svm.solvers.stopping import Stopping


def setup(n_blocks=23, groups=2, memory_bytes=1 << 30):
    matrix, labels = noisy_rows(600, 50)
    source = CountingSource(matrix, labels, spans=cut_rows(matrix, n_blocks))
    oracle = hinge_oracle(matrix.shape[1], groups=groups)
    return source, oracle, row_vectors(labels, oracle, memory_bytes=memory_bytes)


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("name", ENGINES)
def test_a_pass_has_the_bits_of_the_reference(build, name, in_memory):
    source, oracle, vectors = setup(memory_bytes=1 << 30 if in_memory else 0)
    assert vectors["codes"].in_memory == in_memory
    reference_source, _, reference_vectors = setup()
    reference = SerialEngine(reference_source, reference_vectors)
    engine = build(name, source, vectors)
    w = np.random.default_rng(0).normal(size=source.n_features)
    for step in (0.0, 0.3, 0.7):
        request = next(oracle.read(w * (1 + step), step, np.array([0.2, 0.6]), np.empty(0), None, w))
        got, expected = engine.stream([request])[0], reference.stream([request])[0]
        assert got.vectors.tobytes() == expected.vectors.tobytes()
        assert got.sums[0].tobytes() == expected.sums[0].tobytes()
        for vector in oracle.vectors:
            ours, theirs = engine.vectors[vector], reference_vectors[vector]
            assert ours.read(0, 600).tobytes() == theirs.read(0, 600).tobytes()


@pytest.mark.parametrize("solver", ["ocas", "cutting-plane"])
@pytest.mark.parametrize("name", ENGINES)
def test_whole_runs_have_the_same_bits(build, name, solver):
    points = []
    for each in (name, "memory"):
        source, oracle, vectors = setup()
        points.append(run_solver(build(each, source, vectors), oracle, solver).state.best.tobytes())
    assert points[0] == points[1]


def run_solver(engine, oracle, solver):
    stopping = Stopping(1e-6, max_passes=300)
    if solver == "ocas":
        run = Ocas(oracle, stopping, OcasState.fresh(oracle, 500))
    else:
        run = CuttingPlane(oracle, stopping, CuttingPlaneState.fresh(oracle.space.dimension, 500))
    engine.run([run])
    return run


def test_every_block_is_read_once_a_pass_and_pinned_ones_once_in_all():
    source, oracle, vectors = setup()
    pinned = pinned_blocks([span.nbytes for span in source.blocks], 60)
    assert 0 < len(pinned) < len(source.blocks)
    with LocalEngine(source, vectors, threads=3, cache_bytes=60) as engine:
        for _ in range(4):
            engine.stream([next(oracle.cut(np.zeros(source.n_features)))])
        expected = [1 if index in pinned else 4 for index in range(len(source.blocks))]
        assert source.reads.tolist() == expected
        assert engine.counters.blocks_read == sum(expected)
        assert engine.counters.bytes_read == 10 * sum(expected)
        assert engine.counters.passes == 4


def test_many_solvers_share_their_reads():
    source, _, _ = setup()
    _, labels = noisy_rows(600, 50)
    oracles = [hinge_oracle(50, C) for C in (0.01, 0.1, 1.0)]
    alone = []
    for oracle in oracles:
        engine = SerialEngine(source, row_vectors(labels, oracle))
        alone.append(run_solver(engine, oracle, "cutting-plane").state)
    source.reads[:] = 0
    engine = SerialEngine(source, row_vectors(labels, oracles[0]))
    runs = [CuttingPlane(o, Stopping(1e-6, 300), CuttingPlaneState.fresh(50, 500)) for o in oracles]
    engine.run(runs)
    most = max(state.certificate.passes for state in alone)
    assert engine.counters.passes == most
    assert source.reads.tolist() == [most] * len(source.blocks)
    for run, state in zip(runs, alone, strict=True):
        assert run.state.certificate.passes == state.certificate.passes
        np.testing.assert_allclose(run.state.best, state.best, rtol=1e-6, atol=1e-9)


def test_a_failing_block_ends_the_pass_and_the_engine_still_works():
    source, oracle, vectors = setup()
    request = next(oracle.cut(np.zeros(source.n_features)))
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
    assert [rows.block for segment in segments for rows in segment] == list(range(len(blocks)))
    assert len(segments) & (len(segments) - 1) == 0
    assert len(cut_segments(blocks, 10**9)) <= 4

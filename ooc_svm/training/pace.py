"""How long a read of the data takes a solver, from a few blocks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ooc_svm.data.source import Source
from ooc_svm.engine.serial import SerialEngine
from ooc_svm.passes.base import StridedRange
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.solvers.base import Sample
from ooc_svm.solvers.stopping import Stopping
from ooc_svm.training.memory_plan import Budget, Workload
from ooc_svm.training.preparation import Preparation

SAMPLED_BLOCKS = 3  # Blocks that are read and worked on to measure the speed


def seconds_per_pass(prepared: Preparation, work: Workload, budget: Budget) -> tuple[float, float]:
    """Seconds for a read of all blocks, from a few of them: the least and the most."""
    source = prepared.data.source
    scale = None if prepared.options.scale == "none" else np.ones(source.n_features)
    context = prepared.context(work.size, scale, Stopping(prepared.options.tol))
    with RowVectors(source.n_rows, budget.row_vector_bytes) as vectors:
        engine = SerialEngine(source, vectors)
        engine.sorting_bytes = budget.sorting_bytes
        models = prepared.models(prepared.fill(engine))
        samples = [solver.sample() for solver in prepared.solvers(models, budget.plan, context, engine)]
        for sample in samples:
            engine.stream(sample.counts)
        counting = engine.counters.visiting_seconds * samples[0].n_counts
        reading, visiting = _thread_seconds(engine, samples)
        shared = counting + (reading + visiting) / work.threads
        # One thread solves a model.
        each = visiting / min(work.threads, len(samples))
        least, most = (shared + sweeps * each for sweeps in samples[0].sweeps)
        return least, most


def _thread_seconds(engine: SerialEngine, samples: Sequence[Sample]) -> tuple[float, float]:
    """Seconds of one thread to read all blocks, and to visit all rows once."""
    source, passes = engine.source, [request for sample in samples for request in sample.passes]
    partials = [request.empty() for request in passes]
    rows = passes[0].rows
    if rows is None:
        parts = _spread(source)
    else:
        parts = [part for segment in rows.segments for part in segment][:SAMPLED_BLOCKS]
    reading = visiting = 0.0
    blocks: dict[int, Any] = {}
    for part in parts:
        began = time.perf_counter()
        block = blocks.get(part.block) or source.read_block(part.block)
        read = time.perf_counter()
        if any(samples[0].sweeps):
            # At the first meeting every row moves.
            engine.visit(passes, block, part, partials)
        visited = time.perf_counter()
        engine.visit(passes, block, part, partials)
        reading, visiting = reading + read - began, visiting + time.perf_counter() - visited
        blocks = {part.block: block}
    n_read = len({part.block for part in parts})
    whole = visiting * source.n_rows / max(sum(part.n_rows for part in parts), 1)
    return reading * len(source.blocks) / max(n_read, 1), whole


def _spread(source: Source) -> list[StridedRange]:
    """A few blocks from all over the data."""
    spans, last = source.blocks, len(source.blocks) - 1
    sample = sorted({i * last // max(SAMPLED_BLOCKS - 1, 1) for i in range(SAMPLED_BLOCKS)})
    return [StridedRange(index, spans[index].start, spans[index].stop) for index in sample]

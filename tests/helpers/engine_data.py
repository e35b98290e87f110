"""Every engine by name, sources that count their reads, and rounds of two models for tests of engines."""

from __future__ import annotations

import threading
from functools import partial

import numpy as np
from helpers.dual_data import dual_data, dual_model, dual_vectors, held_rows, read_all, score_pass, sweep_pass
from helpers.problems_data import MatrixSource, cut_rows

from ooc_svm.engine.local import LocalEngine
from ooc_svm.engine.serial import SerialEngine
from ooc_svm.passes.base import Overlap
from ooc_svm.solvers.streamed_smo.rounds import cut_rounds

LONG = 20.0
"""Seconds after which what should have happened long ago counts as failed."""


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


def engines():
    """Name and maker of every engine of one machine."""
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


def sweep_setup(n_blocks, *, loss="hinge", n_models=1, memory_bytes=1 << 30, n_rows=1200):
    """A source, models, row vectors and rounds."""
    data = dual_data(loss, n_rows=n_rows, rho=1.0)
    source = CountingSource(data.matrix, data.t, spans=cut_rows(data.matrix, n_blocks))
    models = [dual_model(data, f"model-{k}") for k in range(n_models)]
    vectors = dual_vectors(data, models, memory_bytes=memory_bytes)
    return source, models, vectors, cut_rounds(source.blocks, 4, 4)


def requests_of(model, each, **options):
    """The dual steps of a round, and the scores of its rows."""
    where = each.rows, each.position, each.prefetch
    return sweep_pass(model, *where, **options), score_pass(model, *where)


def no_work():
    """What a solver does that has nothing to do."""


def bits(answer):
    """All that the dual steps of a round come back with, as bytes."""
    parts = [answer.w, answer.rebuilt, answer.sums]
    for rows in answer.candidates:
        copies = rows.copies
        parts += [copies.ids, copies.indptr, copies.indices, copies.values]
        parts += [rows.ids, rows.places, rows.targets, rows.dual, rows.step, rows.priority]
    return b"".join(part.tobytes() for part in parts)


def swept(engine, models, rounds, work=no_work):
    """Two reads of sweeps, each model with a seed of its own; the bits of all answers and row vectors."""
    held, found = held_rows(engine.source.n_rows), []
    for read in range(2):
        for each in rounds:
            options = [
                {"held": held, "room": 400, "seed": 10 * k + read, "theta": 0.4} for k in range(len(models))
            ]
            overlaps = [
                Overlap(requests_of(model, each, **own), work)
                for model, own in zip(models, options, strict=True)
            ]
            found += [bits(answers[0]) for answers in engine.serve(overlaps)]
    return found + [
        read_all(engine.vectors, name).tobytes() for model in models for name in model.row_vectors
    ]


def arrival(source, block):
    """An event that is set once a block is being read, and a function that waits for it."""
    came, read = threading.Event(), source.read_block

    def read_block(index, buffers=None):
        if index == block:
            came.set()
        return read(index, buffers)

    def wait_for_it():
        assert came.wait(LONG)

    source.read_block = read_block
    return came, wait_for_it

"""A store with more than 2^31 nonzeros, nearly all of them constant: they compress to next to nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ooc_svm.data.blocks import LabelledRows, RowBlock
from ooc_svm.ops.rows import add_rows_by_group, scores_of_models, unsigned
from ooc_svm.store import StoreWriter, open_store
from ooc_svm.system.memory import peak_memory

LIMIT = 2**31
N_FEATURES = 2**16
PIECE_ROWS = 64
# Full rows up to 4 Mi elements before the limit, then random ones across it.
N_PIECES = LIMIT // (PIECE_ROWS * N_FEATURES) - 1
N_RANDOM = 300
N_FULL = N_PIECES * PIECE_ROWS


def random_rows():
    """Ids of the rows that reach across the limit."""
    rng = np.random.default_rng(0)
    return [np.flatnonzero(rng.random(N_FEATURES) < 0.3).astype(np.int32) for _ in range(N_RANDOM)]


def as_rows(rows):
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return RowBlock(0, indptr, np.concatenate(rows), None)


def write(path):
    full = as_rows([np.arange(N_FEATURES, dtype=np.int32)] * PIECE_ROWS)
    with StoreWriter(path, threads=2) as writer:
        for number in range(N_PIECES):
            writer.append(LabelledRows(full, np.full(PIECE_ROWS, float(number % 2))))
        writer.append(LabelledRows(as_rows(random_rows()), np.arange(N_RANDOM) + 2.0))
        writer.commit()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("large") / "s"
    search = os.pathsep.join([str(Path(__file__).parent.parent), *sys.path])
    done = subprocess.run(
        [sys.executable, __file__, str(path)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": search},
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 300 * 10**6
    return open_store(path)


def blocks_behind(store, element):
    """The blocks that hold this element or later ones, each with the number of its first element."""
    first = 0
    for span in store.blocks:
        if first + span.n_nonzeros > element:
            yield span, first
        first += span.n_nonzeros
    assert first == store.n_nonzeros


def test_counts_and_pointers_do_not_wrap(store):
    rows = random_rows()
    starts = np.cumsum([N_FULL * N_FEATURES, *map(len, rows)])
    assert starts[0] < LIMIT < starts[-1]
    assert store.n_nonzeros == starts[-1]
    assert store.n_rows == store.blocks[-1].stop == N_FULL + N_RANDOM
    assert store.value_type == "ones"
    ends = [(span.stop, first + span.n_nonzeros) for span, first in blocks_behind(store, LIMIT)]
    assert [starts[stop - N_FULL] for stop, _ in ends] == [end for _, end in ends]
    assert store.read_labels(N_FULL - 1, N_FULL + 2).tolist() == [(N_PIECES - 1) % 2, 2.0, 3.0]
    assert store.labels.counts[0.0] + store.labels.counts[1.0] == N_FULL


def test_scores_and_sums_of_the_last_blocks_are_exact(store):
    rng = np.random.default_rng(1)
    weights = rng.integers(-1000, 1000, (N_FEATURES, 1)).astype(np.float64)
    rows = random_rows()
    buffers, seen = store.new_buffers(), 0
    for span, _ in blocks_behind(store, LIMIT - PIECE_ROWS * N_FEATURES - 1):
        block = store.read_block(span.index, buffers)
        arrays = (unsigned(block.indptr), unsigned(block.indices), None, 0, block.n_rows)
        found = np.empty((block.n_rows, 1))
        scores_of_models(*arrays, weights, np.zeros(1), found)
        ids = [
            np.arange(N_FEATURES) if i < N_FULL else rows[i - N_FULL] for i in range(span.start, span.stop)
        ]
        assert found[:, 0].tolist() == [weights[row, 0].sum() for row in ids]
        factors = rng.integers(-5, 6, (block.n_rows, 1)).astype(np.float64)
        total = np.zeros((N_FEATURES, 1, 1))
        add_rows_by_group(*arrays, factors, span.start, 1, total)
        expected = np.zeros(N_FEATURES)
        for factor, row in zip(factors[:, 0], ids, strict=True):
            expected[row] += factor
        np.testing.assert_array_equal(total[:, 0, 0], expected)
        seen += sum(i >= N_FULL for i in range(span.start, span.stop))
    assert seen == N_RANDOM


if __name__ == "__main__":
    write(Path(sys.argv[1]))
    sys.stdout.write(str(peak_memory()))

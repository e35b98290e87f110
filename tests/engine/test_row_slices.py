"""Parts of the rows of a visit, and which requests are answered once for all."""

from __future__ import annotations

import numpy as np
import pytest

from ooc_svm.data.blocks import RowBlock
from ooc_svm.passes.base import UNCOUNTED, WHOLE, Position, RowSet, RowSlice, StridedRange
from ooc_svm.passes.columns import MagnitudeSums, NormedMagnitudes


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize(("first", "last"), [(0, 5), (1, 3), (4, 5), (2, 2)])
def test_a_part_has_the_rows_of_its_vectors(step, first, last):
    rows = range(10, 10 + 4 * step + 1, step)
    whole = RowSlice(rows.start, rows.stop, {"number": np.array(rows)}, step)
    part = whole.part(first, last)
    assert list(range(part.start, part.stop, part.step)) == list(rows[first:last])
    assert part.vectors["number"].tolist() == list(rows[first:last])


@pytest.mark.parametrize("step", [1, 3])
def test_rows_of_a_slice_have_places_in_their_block(step):
    block = RowBlock(10, np.zeros(11, np.int64), np.empty(0, np.int32), None)
    rows = range(12, 19, step)
    numbers = RowSlice(rows.start, rows.stop, {}, step)
    assert (numbers.places_in(block) + block.start).tolist() == list(rows)
    first, distance = numbers.piece_of(block)
    assert (first, distance) == (2, step)
    assert first.dtype == distance.dtype == np.uint64


def test_rows_of_a_set_are_counted_by_their_steps():
    rows = RowSet(((StridedRange(0, 0, 10, 3), StridedRange(1, 10, 12)), ()))
    assert (rows.n_ranges, rows.n_rows) == (2, 6)


def test_no_read_ends_with_an_uncounted_pass():
    assert Position(2, 3, 5).ends
    assert not Position(2, 3, 5).uncounted.ends
    assert WHOLE.ends
    assert not UNCOUNTED.ends
    assert UNCOUNTED.begins


def test_magnitudes_by_other_scales_are_requests_of_their_own():
    ones, others = np.ones(3), np.full(3, 1e6)
    assert MagnitudeSums(3).kind == MagnitudeSums(3).kind
    assert NormedMagnitudes(3, scale2=ones).kind == NormedMagnitudes(3, scale2=ones).kind
    assert NormedMagnitudes(3, scale2=ones).kind != NormedMagnitudes(3, scale2=others).kind
    assert NormedMagnitudes(3, scale2=ones).kind != MagnitudeSums(3).kind

"""The order of columns by their sizes, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from ooc_svm.ops.rows import count_columns, order_by_size


@pytest.mark.parametrize("n_elements", [0, 1, 50, 5000])
def test_they_are_counted_as_they_come(n_elements):
    rng = np.random.default_rng(n_elements)
    indices = rng.integers(0, 40, n_elements) ** 2 % 97
    counts, found = np.zeros(97, np.int32), np.full(97, -1, np.int32)
    n_found = count_columns(indices.astype(np.uint32), counts, found)
    np.testing.assert_array_equal(counts, np.bincount(indices, minlength=97))
    assert found[:n_found].tolist() == list(dict.fromkeys(indices.tolist()))
    assert (found[n_found:] == -1).all()


def test_larger_ones_come_first_and_others_keep_their_order():
    rng = np.random.default_rng(3)
    sizes = (2.0 ** rng.uniform(0, 31, 2000)).astype(np.int32)
    sizes[:4] = [1, 2, np.iinfo(np.int32).max, 3]
    columns = rng.permutation(2000)[:1500].astype(np.int32)
    out = np.empty_like(columns)
    order_by_size(sizes, columns, out)
    bits = np.floor(np.log2(sizes[columns])).astype(int)
    np.testing.assert_array_equal(out, columns[np.argsort(-bits, kind="stable")])


def test_no_column_at_all():
    out = np.empty(0, np.int32)
    order_by_size(np.ones(3, np.int32), out, out)
    assert len(out) == 0

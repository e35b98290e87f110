"""The random order against splitmix64 in Python integers, and its independence of memory and blocks."""

from __future__ import annotations

import os
import stat
from unittest import mock

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.reorder_data import blocks_of, make_rows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ooc_svm.conversion.convert import convert, convert_matrix
from ooc_svm.conversion.external_sort import RowSorter, with_keys
from ooc_svm.conversion.reorder import shuffle_rows
from ooc_svm.data.blocks import LabelledRows, RowBlock
from ooc_svm.errors import StorageError
from ooc_svm.ops.hashing import row_keys
from ooc_svm.store import open_store
from ooc_svm.text.writer import format_rows

MASK = 2**64 - 1


def splitmix64(state, count):
    """The generator as its author published it."""
    numbers = []
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        numbers.append(z ^ (z >> 31))
    return numbers


def reference_keys(seed, n_rows):
    origin = splitmix64((seed - 0x9E3779B97F4A7C15) & MASK, 1)[0]
    return splitmix64(origin, n_rows)


def reference_order(seed, n_rows):
    return np.argsort(np.array(reference_keys(seed, n_rows), np.uint64))


def divisions():
    """A mock that counts how often buckets are divided again."""
    return mock.patch.object(RowSorter, "_divide", autospec=True, side_effect=RowSorter._divide)


def run(folder, seed, memory, arrays, cuts, expected_bytes=None, weights=False):
    """The rows shuffled and put together, and how many files there were before the first was given back."""
    folder.mkdir(exist_ok=True)
    n_files = 0

    def taken():
        nonlocal n_files
        for block in blocks_of(*arrays, cuts):
            yield block, block.labels * 2 if weights else None
        n_files = len(list(folder.iterdir()))

    out = {"labels": [], "qids": [], "lengths": [], "indices": [], "values": [], "weights": []}
    row = 0
    for block, weight in shuffle_rows(taken(), seed, folder, memory, expected_bytes):
        assert block.rows.start == row
        row = block.rows.stop
        assert block.rows.indptr[0] == 0
        out["labels"].append(block.labels)
        out["qids"].append(block.qids)
        out["lengths"].append(np.diff(block.rows.indptr))
        out["indices"].append(block.rows.indices)
        values = block.rows.values
        out["values"].append(np.ones(len(block.rows.indices), np.float32) if values is None else values)
        out["weights"].append(block.labels * 0 - 1 if weight is None else weight)
    assert list(folder.iterdir()) == []
    return {name: np.concatenate(parts) for name, parts in out.items()}, n_files


def expected_result(arrays, order, weights=False):
    indptr, indices, values = arrays
    places = np.concatenate([np.arange(indptr[row], indptr[row + 1]) for row in order] or [[]]).astype(int)
    return {
        "labels": order.astype(float),
        "qids": order * 3,
        "lengths": np.diff(indptr)[order],
        "indices": indices[places],
        "values": np.ones(len(places), np.float32) if values is None else values[places],
        "weights": order * 2.0 if weights else np.full(len(order), -1.0),
    }


def assert_same(result, expected):
    assert result.keys() == expected.keys()
    for name, column in expected.items():
        np.testing.assert_array_equal(result[name], column, err_msg=name)


def test_reference_generator_is_the_published_one():
    assert splitmix64(1234567, 3) == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
def test_keys(seed):
    keys = np.empty(100, np.uint64)
    row_keys(np.uint64(seed), np.uint64(0), keys)
    assert keys.tolist() == reference_keys(seed, 100)
    later = np.empty(40, np.uint64)
    row_keys(np.uint64(seed), np.uint64(60), later)
    np.testing.assert_array_equal(later, keys[60:])


@pytest.mark.parametrize("ones", [False, True])
@pytest.mark.parametrize(
    ("memory", "expected_bytes", "spills", "divides"),
    [
        (10**9, 50_000, False, False),
        (10**9, None, False, False),
        (60_000, 200_000, True, False),
        (20_000, None, True, False),
        (10_000, 0, True, True),
        (1, 0, True, True),  # down to single rows
    ],
)
def test_order_follows_from_the_seed_alone(tmp_path, ones, memory, expected_bytes, spills, divides):
    arrays = make_rows(0, 1000, ones)
    cuts = [0, 1, 400, 401, 750, 1000]
    with divisions() as divided:
        result, n_files = run(tmp_path / "s", 7, memory, arrays, cuts, expected_bytes, weights=True)
    assert_same(result, expected_result(arrays, reference_order(7, 1000), weights=True))
    assert (n_files > 0) == spills
    assert divided.called == divides


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**64 - 1),
    n_rows=st.integers(1, 60),
    memory=st.integers(1, 10_000),
    expected_bytes=st.none() | st.integers(0, 10**6),
    cuts=st.lists(st.integers(1, 59), max_size=4),
    ones=st.booleans(),
)
def test_any_memory_and_any_blocks(tmp_path, seed, n_rows, memory, expected_bytes, cuts, ones):
    arrays = make_rows(1, n_rows, ones)
    cuts = [0, *sorted({cut for cut in cuts if cut < n_rows}), n_rows]
    result, _ = run(tmp_path / "s", seed, memory, arrays, cuts, expected_bytes)
    assert_same(result, expected_result(arrays, reference_order(seed, n_rows)))


def test_blocks_with_values_and_all_ones_mix(tmp_path):
    indptr, indices, values = make_rows(2, 300)
    values[: indptr[100]] = 1
    values[indptr[200] :] = 1

    def taken():
        for block in blocks_of(indptr, indices, values, [0, 100, 150, 200, 300]):
            rows = block.rows
            if (rows.values == 1).all():
                rows = RowBlock(rows.start, rows.indptr, rows.indices, None)
            yield LabelledRows(rows, block.labels), None
        assert list(tmp_path.iterdir())

    expected = expected_result((indptr, indices, values), reference_order(1, 300))
    found = [
        np.ones(len(block.rows.indices)) if block.rows.values is None else block.rows.values
        for block, _ in shuffle_rows(taken(), 1, tmp_path, 5000)
    ]
    np.testing.assert_array_equal(np.concatenate(found), expected["values"])


def test_files_are_private(tmp_path):
    rows = ((block, None) for block in blocks_of(*make_rows(3, 300), [0, 300]))
    next(shuffle_rows(rows, 1, tmp_path, 1000))
    modes = {stat.S_IMODE(os.stat(path).st_mode) for path in tmp_path.iterdir()}
    assert modes == {0o600}


@pytest.mark.fault
@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "sizes"])
def test_damaged_file(tmp_path, damage):
    sorter = RowSorter(tmp_path, "rows", 1000)
    sorter.fill(
        with_keys(block, None, block.labels.astype(np.uint64) << np.uint64(55))
        for block in blocks_of(*make_rows(4, 300), [0, 150, 300])
    )
    victim = sorted(tmp_path.iterdir())[3]
    content = bytearray(victim.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 16
    if damage == "sizes":
        content[16] ^= 2  # has values: 1
    if damage == "truncate":
        content = content[:-1]
    victim.write_bytes(content)
    if damage == "remove":
        victim.unlink()
    with pytest.raises(StorageError, match=victim.name):
        list(sorter.drain())


# Through conversion


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Rows of text, one after another by label."""
    indptr, indices, values = make_rows(5, 30_000)
    path = tmp_path_factory.mktemp("text") / "a.svm"
    labels = np.repeat([1.0, 2.0], 15_000)
    path.write_bytes(format_rows(LabelledRows(RowBlock(0, indptr, indices, values), labels)))
    return path


def test_shuffled_store_does_not_depend_on_the_machine(tmp_path, text, monkeypatch):
    import ooc_svm.conversion.reorder

    reports = [convert(text, tmp_path / "a.zarr", shuffle=9, threads=1)]
    reports.append(convert(text, tmp_path / "b.zarr", shuffle=9, threads=3, memory="400MB"))

    def tiny(rows, seed, folder, memory, expected_bytes):
        return shuffle_rows(rows, seed, folder, 200_000, expected_bytes // 64)

    monkeypatch.setattr(ooc_svm.conversion.reorder, "shuffle_rows", tiny)
    with divisions() as divided:
        reports.append(convert(text, tmp_path / "c.zarr", shuffle=9, threads=2))
    assert divided.called
    assert len({report.id for report in reports}) == 1
    other = convert(text, tmp_path / "d.zarr", shuffle=10)
    assert other.id != reports[0].id
    plain = convert(text, tmp_path / "e.zarr")
    assert any("shuffle=0" in warning for warning in plain.warnings)
    assert reports[0].warnings == other.warnings == []
    assert {path.suffix for path in tmp_path.iterdir()} == {".zarr"}


def test_shuffled_rows_are_the_rows_in_the_order_of_their_keys(tmp_path):
    rng = np.random.default_rng(6)
    matrix = sp.random(500, 40, 0.1, format="csr", random_state=rng, dtype=np.float32)
    convert_matrix(matrix, np.arange(500) % 9, tmp_path / "a.zarr", shuffle=3, weight=np.arange(500))
    order = reference_order(3, 500)
    store = open_store(tmp_path / "a.zarr")
    block = store.read_block(0)
    found = sp.csr_matrix((block.values, block.indices, block.indptr), matrix.shape)
    assert (found != matrix[order]).nnz == 0
    np.testing.assert_array_equal(store.read_labels(0, 500), order % 9)
    np.testing.assert_array_equal(store.read_weights(0, 500), order)

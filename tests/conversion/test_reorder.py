"""Rows put together by qid, against a list of all groups; and conversions that do so."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.reorder_data import blocks_of, make_rows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ooc_svm.conversion import external_sort
from ooc_svm.conversion.convert import convert, convert_matrix
from ooc_svm.conversion.reorder import group_rows
from ooc_svm.data.blocks import LabelledRows
from ooc_svm.errors import InputError, UsageError
from ooc_svm.store import open_store
from ooc_svm.training.train import train


def order_of(qids):
    """Rows of each group, groups in the order of their first rows."""
    firsts = {}
    for row, qid in enumerate(qids.tolist()):
        firsts.setdefault(qid, row)
    return np.array(sorted(range(len(qids)), key=lambda row: (firsts[int(qids[row])], row)), int)


def grouped(folder, arrays, qids, cuts, memory, expected_bytes=None):
    """Numbers of the rows (their labels), qids, weights and elements, in the order of their groups."""
    n_files = 0

    def taken():
        nonlocal n_files
        for block in blocks_of(*arrays, cuts):
            own = qids[block.rows.start : block.rows.stop]
            yield LabelledRows(block.rows, block.labels, own), block.labels * 2
        n_files = len(list(folder.iterdir()))

    rows, elements = [], []
    for block, weights in group_rows(taken(), folder, memory, expected_bytes):
        assert block.rows.start == len(rows)
        assert weights.tolist() == (block.labels * 2).tolist()
        rows += zip(block.labels.astype(int).tolist(), block.qids.tolist(), strict=True)
        elements += np.split(block.rows.indices, block.rows.indptr[1:-1])
    assert list(folder.iterdir()) == []
    return rows, elements, n_files


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    qids=st.lists(st.sampled_from([0, 1, 2, 3, 2**40, 2**63 - 1]), min_size=1, max_size=60),
    memory=st.integers(1, 20_000),
    expected_bytes=st.none() | st.integers(0, 10**6),
    cuts=st.lists(st.integers(1, 59), max_size=4),
)
def test_groups_in_the_order_of_their_first_rows(tmp_path, qids, memory, expected_bytes, cuts):
    qids = np.array(qids, np.int64)
    indptr, indices, values = make_rows(1, len(qids))
    cuts = [0, *sorted({cut for cut in cuts if cut < len(qids)}), len(qids)]
    rows, elements, _ = grouped(tmp_path, (indptr, indices, values), qids, cuts, memory, expected_bytes)
    order = order_of(qids)
    assert rows == [(row, int(qids[row])) for row in order]
    for found, row in zip(elements, order, strict=True):
        assert found.tolist() == indices[indptr[row] : indptr[row + 1]].tolist()


@pytest.mark.parametrize("n_groups", [1, 3, 700, 5000])
def test_memory_is_bounded_even_where_a_group_is_larger(tmp_path, monkeypatch, n_groups):
    memory, held = 60_000, []
    monkeypatch.setattr(
        external_sort,
        "join",
        lambda blocks, *sizes, join=external_sort.join: held.append(join(blocks, *sizes)) or held[-1],
    )
    qids = np.random.default_rng(2).integers(0, n_groups, 5000)
    rows, _, n_files = grouped(tmp_path, make_rows(3, 5000), qids, [*range(0, 5001, 100)], memory)
    assert [row for row, _ in rows] == order_of(qids).tolist()
    assert n_files > 0
    assert all(rows.nbytes <= memory // 6 for rows in held)


def ranked_text(path):
    rng = np.random.default_rng(4)
    lines = [f"{rng.integers(0, 3)} qid:{rng.integers(1, 50)} {row % 7 + 1}:{row + 1}" for row in range(4000)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_grouped_store_can_be_ranked_and_depends_on_no_machine(tmp_path, monkeypatch):
    text = ranked_text(tmp_path / "a.svm")
    report = convert(text, tmp_path / "a.zarr", group=True, threads=1)
    monkeypatch.setattr(
        "ooc_svm.conversion.reorder.group_rows", lambda rows, folder, *_: group_rows(rows, folder, 50_000)
    )
    assert convert(text, tmp_path / "b.zarr", group=True, threads=3).id == report.id
    convert(text, tmp_path / "plain.zarr")
    with pytest.raises(InputError, match=r"several places.*convert with group=True"):
        train(tmp_path / "plain.zarr", problem="ranking", max_passes=2)
    store, plain = open_store(tmp_path / "a.zarr"), open_store(tmp_path / "plain.zarr")
    order = order_of(plain.read_qids(0, 4000))
    np.testing.assert_array_equal(store.read_qids(0, 4000), plain.read_qids(0, 4000)[order])
    np.testing.assert_array_equal(store.read_labels(0, 4000), plain.read_labels(0, 4000)[order])
    assert train(tmp_path / "a.zarr", problem="ranking", max_passes=2).report["models"][0]["passes"] == 2


def test_a_matrix_is_grouped(tmp_path):
    rng = np.random.default_rng(5)
    matrix = sp.random(300, 20, 0.3, format="csr", random_state=rng, dtype=np.float32)
    qids = rng.integers(0, 9, 300)
    columns = {"qid": qids, "weight": np.arange(300)}
    convert_matrix(matrix, np.arange(300) % 4, tmp_path / "a.zarr", group=True, **columns)
    store, order = open_store(tmp_path / "a.zarr"), order_of(qids)
    block = store.read_block(0)
    found = sp.csr_matrix((block.values, block.indices, block.indptr), matrix.shape)
    assert (found != matrix[order]).nnz == 0
    np.testing.assert_array_equal(store.read_weights(0, 300), order)


def test_rows_without_groups_are_refused(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1\n2 1:2\n")
    with pytest.raises(InputError, match="group=True puts rows of equal qid together, and these have none"):
        convert(tmp_path / "a.svm", tmp_path / "a.zarr", group=True)
    with pytest.raises(InputError, match="these have none"):
        convert_matrix(np.eye(3), [1, 2, 3], tmp_path / "a.zarr", group=True)
    assert [path.name for path in tmp_path.iterdir()] == ["a.svm"]


def test_one_order_at_a_time(tmp_path):
    text = ranked_text(tmp_path / "a.svm")
    with pytest.raises(UsageError, match="shuffle and group are two orders"):
        convert(text, tmp_path / "a.zarr", group=True, shuffle=0)
    with pytest.raises(UsageError, match="group needs all rows in one process"):
        convert(text, tmp_path / "a.zarr", group=True, engine="dask")

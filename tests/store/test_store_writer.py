"""`StoreWriter` by its public name: a store that is written from matrices, part by part."""

from __future__ import annotations

import doctest
import inspect

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers.store_data import labelled, random_rows

import ooc_svm
from ooc_svm import InputError, StoreWriter, UsageError
from ooc_svm.data.blocks import LabelledRows, RowBlock
from ooc_svm.store import writer as module

RNG = np.random.default_rng(11)
DENSE = np.where(RNG.random((60, 5)) < 0.4, RNG.standard_normal((60, 5)), 0.0)
LABELS, QID = np.sign(DENSE.sum(axis=1)), np.repeat(np.arange(12), 5)
WEIGHT = np.linspace(0.0, 2.0, 60)
PARTS = [slice(0, 7), slice(7, 7), slice(7, 40), slice(40, 60)]


def assert_same_rows(path, other):
    """The same rows, columns and facts as those of another store."""
    (info, expected) = map(ooc_svm.store_info, (path, other))
    for name in ("n_rows", "n_features", "n_nonzeros", "value_type", "label_runs", "qid_groups"):
        assert info.get(name) == expected.get(name), name
    store, whole = map(ooc_svm.open_store, (path, other))
    assert (store.has_qid, store.has_weight) == (whole.has_qid, whole.has_weight)
    block, known = store.read_block(0), whole.read_block(0)
    np.testing.assert_array_equal(block.indptr, known.indptr)
    np.testing.assert_array_equal(block.indices, known.indices)
    np.testing.assert_array_equal(block.values, known.values)
    for name in ("labels", "qids", "weights"):
        if name == "labels" or getattr(whole, f"has_{name[:-1]}"):
            own, given = (getattr(each, f"read_{name}")(0, 60) for each in (store, whole))
            np.testing.assert_array_equal(own, given)


def explicit_zeros(part):
    """The same matrix with every entry stored."""
    matrix = sp.csr_array(np.ones_like(part))
    matrix.data = part.ravel()
    return matrix


@pytest.mark.parametrize("form", [np.asarray, sp.csc_array, sp.coo_array, np.ndarray.tolist, explicit_zeros])
def test_parts_of_a_matrix_make_the_store_of_the_whole(form, tmp_path):
    ooc_svm.convert_matrix(DENSE, LABELS, tmp_path / "whole", qid=QID, weight=WEIGHT)
    with StoreWriter(tmp_path / "parts") as writer:
        for part in PARTS if form is not np.ndarray.tolist else [PARTS[0], PARTS[2], PARTS[3]]:
            writer.append(form(DENSE[part]), LABELS[part], qid=QID[part], weight=WEIGHT[part].tolist())
        assert writer.commit().n_rows == writer.n_rows == 60
    assert_same_rows(tmp_path / "parts", tmp_path / "whole")


def test_labels_are_0_and_columns_those_of_the_widest_matrix(tmp_path):
    wide = np.zeros((2, 9))
    wide[0, 3] = 1e-50  # 0 in float32
    with StoreWriter(tmp_path / "a") as writer:
        writer.append(DENSE)
        writer.append(wide)
        written = writer.commit()
    assert (written.n_features, written.n_nonzeros) == (9, np.count_nonzero(DENSE))
    store = ooc_svm.open_store(tmp_path / "a")
    np.testing.assert_array_equal(store.read_labels(0, 62), np.zeros(62))
    with StoreWriter(tmp_path / "b", n_features=12) as writer:
        writer.append(wide)
        assert writer.commit().n_features == 12


def test_rows_as_the_package_has_them(tmp_path):
    with StoreWriter(tmp_path / "a") as writer:
        writer.append(DENSE, LABELS, weight=WEIGHT)
        writer.append(labelled(sp.csr_matrix(DENSE), LABELS), weight=WEIGHT)
        writer.commit()
    store = ooc_svm.open_store(tmp_path / "a")
    np.testing.assert_array_equal(store.read_labels(0, 60), store.read_labels(60, 120))
    np.testing.assert_array_equal(store.read_weights(0, 60), store.read_weights(60, 120))


def test_rows_as_the_package_has_them_are_checked(tmp_path):
    rows, good = labelled(*random_rows(1)), labelled(sp.csr_matrix(DENSE), LABELS).rows
    narrow = RowBlock(0, good.indptr.astype(np.int32), good.indices, good.values)
    with StoreWriter(tmp_path / "a") as writer:
        for bad in (None, 3, rows.rows):
            with pytest.raises((InputError, UsageError), match=r"^matrix"):
                writer.append(bad)
        with pytest.raises(UsageError, match=r"^matrix has rows.indptr .* 1-d array of int64 is needed"):
            writer.append(LabelledRows(narrow, LABELS))
        with pytest.raises(UsageError, match=r"^matrix has labels .* 1-d array of float64 is needed"):
            writer.append(LabelledRows(good, LABELS.astype(int)))
        with pytest.raises(UsageError, match=r"^matrix must be a matrix of rows, or LabelledRows"):
            writer.append(LabelledRows(DENSE, LABELS))
        for weight in ([1.0] * 60, WEIGHT.astype(np.float32), WEIGHT[:, None], 1.0):
            with pytest.raises(UsageError, match=r"^weight is .* 1-d array of float64 is needed"):
                writer.append(LabelledRows(good, LABELS), weight=weight)
        for name in ("labels", "qid"):
            with pytest.raises(UsageError, match=f"labels and qids of their own; leave {name} out$"):
                writer.append(rows, **{name: LABELS})


REFUSED = [
    (DENSE, LABELS[:-1], {}, "60 rows but labels of shape"),
    (DENSE, np.where(LABELS > 0, np.nan, 0.0), {}, "leave such rows out$"),
    (DENSE, np.where(LABELS > 0, "a", "b"), {}, "^labels are text; .* named_labels=True .* label_names$"),
    (DENSE, np.eye(5)[QID % 5], {}, "^labels are an indicator matrix; .* label_sets=True .* label_names$"),
    (DENSE * 1e300, LABELS, {}, "beyond the range of float32; write .* with dtype='float64'$"),
    (DENSE, LABELS, {"qid": QID}, "from row 10 on, qids or weights begin or end"),
    (np.ones((1, 6)), [1.0], {}, "^matrix has 6 columns, and .* has 5; give no more$"),
]


@pytest.mark.parametrize(("matrix", "labels", "columns", "message"), REFUSED)
def test_a_matrix_that_is_refused_leaves_no_trace(matrix, labels, columns, message, tmp_path):
    with StoreWriter(tmp_path / "a", n_features=5) as writer:
        writer.append(DENSE[:10], LABELS[:10])
        with pytest.raises(InputError, match=message):
            writer.append(matrix, labels, **columns)
        writer.append(DENSE[10:], LABELS[10:])
        writer.commit()
    ooc_svm.convert_matrix(DENSE, LABELS, tmp_path / "whole")
    assert_same_rows(tmp_path / "a", tmp_path / "whole")


class TestNames:
    frame = pd.DataFrame(DENSE, columns=list("abcde"))

    def names(self, path, *parts, **options):
        with StoreWriter(path, overwrite=True, **options) as writer:
            for part in parts:
                writer.append(part)
            writer.commit()
        names = ooc_svm.open_store(path).feature_names
        return None if names is None else list(names)

    def test_those_of_frames_are_kept(self, tmp_path):
        path, own = tmp_path / "a", list("abcde")
        assert self.names(path, self.frame, self.frame[:3]) == own
        assert self.names(path, self.frame, DENSE) == own
        assert self.names(path, DENSE) is None
        assert self.names(path, self.frame, n_features=7) is None
        assert self.names(path, DENSE, self.frame, feature_names=list("vwxyz")) == list("vwxyz")

    def test_other_columns_are_refused(self, tmp_path):
        for other in (self.frame[list("edcba")], self.frame[["a"]], self.frame.rename(columns={"a": "f"})):
            for options in ({}, {"feature_names": list("vwxyz")}):
                with pytest.raises(InputError, match=r"have other names, or another order, than those of"):
                    self.names(tmp_path / "a", self.frame, other, **options)
        with pytest.raises(InputError, match=r"give the names to the writer \(feature_names\)$"):
            self.names(tmp_path / "a", DENSE, self.frame)
        with pytest.raises(InputError, match=r"has 6 columns, and .* has 5; give no more"):
            self.names(tmp_path / "a", self.frame, np.ones((1, 6)))

    @pytest.mark.parametrize("names", [list("abc"), None])
    def test_rows_with_a_column_beyond_the_names_are_refused(self, names, tmp_path):
        rows = RowBlock(0, np.array([0, 1, 2], np.int64), np.array([0, 5], np.int32), None)
        with StoreWriter(tmp_path / "a", feature_names=names) as writer:
            if names is None:
                writer.append(self.frame)
            n_rows, n_columns = writer.n_rows, 3 if names else 5
            message = rf"^row {n_rows + 1} cannot be written .* outside .*\(n_features is {n_columns}, "
            with pytest.raises(InputError, match=message):
                writer.append(LabelledRows(rows, np.array([0.0, 1.0])))
            assert writer.n_rows == n_rows


def test_the_example_of_the_documentation(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    [example] = [each for each in doctest.DocTestFinder().find(StoreWriter, module=module) if each.examples]
    assert len(example.examples) >= 5
    assert doctest.DocTestRunner().run(example).failed == 0
    info = ooc_svm.train("parts.zarr").report["models"]
    assert len(info) == 1
    for option in ("feature_names", "named_labels", "label_sets"):
        assert f"``{option}`` : " in StoreWriter.__doc__


def test_the_signature_shows_defaults():
    parameters = inspect.signature(StoreWriter).parameters
    assert parameters["provenance"].default == {}
    assert parameters["dtype"].default == "float32"
    assert parameters["path"].default is inspect.Parameter.empty

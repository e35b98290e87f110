"""Names of features: in stores of ours, in those of AnnData, and in files."""

from __future__ import annotations

import json
import shutil
import warnings

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from helpers import anndata_data
from helpers.store_data import random_rows, write_store
from hypothesis import given
from hypothesis import strategies as st

from ooc_svm import convert, convert_matrix
from ooc_svm.errors import DamageError, InputError, MemoryBudgetError, UsageError, spell_parameters
from ooc_svm.store import feature_names, open_store, verify_store
from ooc_svm.store.codecs import most_text_bytes
from ooc_svm.store.feature_names import given_names, read_names_file

NAMES = [f"gene é{j}" for j in range(20)]


@pytest.fixture
def rows():
    return random_rows(3)


def test_a_store_keeps_names_and_anndata_reads_them(rows, tmp_path):
    write_store(tmp_path / "named.zarr", *rows, feature_names=NAMES)
    write_store(tmp_path / "plain.zarr", *rows)
    store = open_store(tmp_path / "named.zarr")
    assert list(store.feature_names) == NAMES
    assert store.feature_names is store.feature_names
    verify_store(tmp_path / "named.zarr")
    with warnings.catch_warnings(action="ignore"):  # AnnData on numbers of rows
        assert list(anndata.read_zarr(tmp_path / "named.zarr").var_names) == NAMES
    plain = open_store(tmp_path / "plain.zarr")
    assert plain.feature_names is None
    assert plain.id != store.id
    assert (plain.format_version, store.format_version) == (2, 2)


def test_the_names_are_read_when_they_are_asked_for(rows, tmp_path, monkeypatch):
    write_store(tmp_path / "s.zarr", *rows, feature_names=NAMES)
    calls = []
    whole = feature_names.EncodedChunks.read_strings
    monkeypatch.setattr(
        feature_names.EncodedChunks, "read_strings", lambda *args: calls.append(args[1:]) or whole(*args)
    )
    store = open_store(tmp_path / "s.zarr")
    store.read_block(0)
    assert not calls
    assert list(store.feature_names) == NAMES
    assert calls == [(start, start + 5) for start in range(0, 20, 5)]  # chunk after chunk


def test_damaged_names_are_found(rows, tmp_path):
    path = tmp_path / "s.zarr"
    write_store(path, *rows, feature_names=NAMES)
    chunk = path / "var/_index/c/2"
    content = bytearray(chunk.read_bytes())
    content[20] ^= 1
    chunk.write_bytes(content)
    store = open_store(path)  # as for other chunks, the end of the file is what it was
    with pytest.raises(DamageError, match="var/_index/c/2"):
        _ = store.feature_names
    with pytest.raises(DamageError, match="var/_index/c/2"):
        verify_store(path)


def test_names_of_another_number_are_refused(rows, tmp_path):
    with pytest.raises(InputError, match="feature_names has 3 names, and the store has 20 features"):
        write_store(tmp_path / "s.zarr", *rows, feature_names=["a", "b", "c"])
    assert not any(tmp_path.iterdir())


def test_very_long_names_are_refused(rows, tmp_path):
    names = [f"{j}" + "x" * 70_000 for j in range(20)]
    with pytest.raises(InputError, match="take more than 328 kB in one chunk, which could not be read again"):
        write_store(tmp_path / "s.zarr", *rows, feature_names=names)
    assert not any(tmp_path.iterdir())


def test_what_is_written_is_read(rows, tmp_path):
    names = [f"{j}" + "x" * 60_000 for j in range(20)]
    write_store(tmp_path / "s.zarr", *rows, feature_names=names)
    assert list(open_store(tmp_path / "s.zarr").feature_names) == names
    verify_store(tmp_path / "s.zarr")


def test_the_limit_of_text_follows_from_the_number_of_strings():
    assert most_text_bytes(1) == 4 + 4 + 2**16
    assert most_text_bytes(2**16) == 2**27  # rows of a chunk that this program writes
    assert most_text_bytes(10**6) == 4 + 260 * 10**6
    assert most_text_bytes(2**40) == 2**28


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_the_names_of_anndata_stores_are_read(tmp_path, zarr_format):
    matrix = sp.random(anndata_data.N_ROWS, 20, 0.3, "csr", random_state=1, dtype=np.float32)
    path = tmp_path / "a.zarr"
    anndata_data.write(path, matrix, zarr_format, features=pd.Index(NAMES, name="symbol"))
    assert list(open_store(path).feature_names) == NAMES
    verify_store(path)
    # A name that stands twice is no reason not to read rows.
    shutil.rmtree(path)
    anndata_data.write(path, matrix, zarr_format, features=["twice", "twice", *NAMES[2:]])
    assert list(open_store(path).feature_names) == ["twice", "twice", *NAMES[2:]]


def test_an_index_of_numbers_or_none_at_all_is_no_name(tmp_path, rows):
    matrix = sp.random(anndata_data.N_ROWS, 20, 0.3, "csr", random_state=1, dtype=np.float32)
    path = tmp_path / "a.zarr"
    anndata_data.write(path, matrix)
    shutil.rmtree(path / "var")
    assert open_store(path).feature_names is None
    anndata_data.write(tmp_path / "b.zarr", matrix)
    place = next(iter((tmp_path / "b.zarr").rglob("var/zarr.json")))
    record = json.loads(place.read_text())
    record["attributes"]["_index"] = "../obs/qid"
    place.write_text(json.dumps(record))
    assert open_store(tmp_path / "b.zarr").feature_names is None


def test_a_conversion_names_the_columns(tmp_path, rows):
    text, names = tmp_path / "rows.svm", tmp_path / "names.txt"
    text.write_text("1 1:1 3:2\n-1 2:1\n")
    names.write_text("a\nb\nc\nd\n")
    convert(text, tmp_path / "s.zarr", feature_names=names)
    store = open_store(tmp_path / "s.zarr")
    assert (list(store.feature_names), store.n_features) == (["a", "b", "c", "d"], 4)
    names.write_text("a\nb\n")
    with pytest.raises(
        InputError, match=r"rows\.svm:1:7: index '3' is too large: feature_names has 2 names; give one name"
    ):
        convert(text, tmp_path / "t.zarr", feature_names=names)
    with pytest.raises(InputError, match="has 2 names, and features=5 has 5 features"):
        convert(text, tmp_path / "t.zarr", feature_names=names, features=5)
    matrix, labels = rows
    convert_matrix(matrix, labels, tmp_path / "m.zarr", feature_names=NAMES)
    assert list(open_store(tmp_path / "m.zarr").feature_names) == NAMES
    with pytest.raises(InputError, match="feature_names has 2 names, and the matrix has 20 columns; give"):
        convert_matrix(matrix, labels, tmp_path / "n.zarr", feature_names=["a", "b"])
    for wrong in (3, {"a": 1}, b"\xff\0"):
        with pytest.raises(UsageError, match="feature_names must be"):
            convert_matrix(matrix, labels, tmp_path / "n.zarr", feature_names=wrong)


@given(
    names=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=4), max_size=9),
    ends=st.booleans(),
)
def test_a_file_has_a_name_on_each_line(names, ends, tmp_path_factory):
    path = tmp_path_factory.mktemp("names") / "names.txt"
    content = "\n".join(names) + ("\n" if ends and names else "")
    path.write_bytes(content.encode())
    content = content.removeprefix("\ufeff")
    lines = content.removesuffix("\n").split("\n") if content else []
    if not lines:
        expected = "names.txt: is empty"
    elif any(not line.strip() for line in lines):
        expected = f"names.txt:{next(j for j, line in enumerate(lines, 1) if not line.strip())}: has no name"
    elif len(set(lines)) < len(lines):
        second = next(j for j, line in enumerate(lines) if line in lines[:j])
        expected = f"names.txt:{second + 1}: the name"
    else:
        assert list(read_names_file(path)) == lines
        return
    with pytest.raises(InputError) as caught:
        read_names_file(path)
    assert expected in str(caught.value)


def test_lines_of_other_systems_and_marks_are_no_part_of_a_name(tmp_path):
    (tmp_path / "names").write_bytes(b"\xef\xbb\xbfa b\r\nc\r\n")
    assert list(read_names_file(tmp_path / "names")) == ["a b", "c"]


def test_files_that_are_none_of_names_are_refused(tmp_path, monkeypatch):
    (tmp_path / "binary").write_bytes(b"\xff\xfea\0")
    for name, words in (
        ("missing", "no such file of names"),
        ("", "is a folder"),
        ("binary", "no text in UTF-8"),
    ):
        with pytest.raises(InputError, match=words):
            given_names(tmp_path / name)
    (tmp_path / "large").write_bytes(b"a\n" * 100)
    monkeypatch.setattr(feature_names, "available_memory", lambda: 700)
    with pytest.raises(MemoryBudgetError, match="use a machine with more memory"):
        given_names(tmp_path / "large")


def test_given_names_differ():
    with pytest.raises(
        InputError, match="'b' stands twice in feature_names, for the features 1 and 3, from 0"
    ):
        given_names(["a", "b", "c", "b"])
    spell_parameters({})
    try:
        with pytest.raises(InputError, match="--feature-names"):
            given_names(["b", "b"])
    finally:
        spell_parameters(None)

"""Labels that are names: ``spam 1:1``, from the text to predictions, and what cannot be a name."""

from __future__ import annotations

import io
import itertools
import random

import anndata
import numpy as np
import pytest

import ooc_svm
from ooc_svm.conversion.convert import convert
from ooc_svm.errors import DamageError, InputError, UsageError
from ooc_svm.store import open_store, store_info, verify_store
from ooc_svm.text.reader import TextRows

NAMES = ["spam", "ham", "eggs", "été", "1"]


def write(path, n_rows=200, names=NAMES, seed=0):
    """Rows each of which has the column of its class; the names in row order."""
    drawn = random.Random(seed)
    found = [drawn.choice(names) for _ in range(n_rows)]
    lines = [f"{name} {names.index(name) + 1}:1 {len(names) + drawn.randint(1, 9)}:0.25\n" for name in found]
    path.write_text("".join(lines), encoding="utf-8")
    return found


def names_in(store):
    labels = store.read_labels(0, store.n_rows).astype(int)
    return [store.label_names[label] for label in labels]


@pytest.mark.parametrize("options", [{"threads": 1}, {"threads": 3}, {"dtype": "float64"}])
def test_labels_are_places_among_the_sorted_names(tmp_path, options):
    found = write(tmp_path / "a.svm")
    report = convert(tmp_path / "a.svm", tmp_path / "a.zarr", labels="text", **options)
    store = open_store(tmp_path / "a.zarr")
    assert store.label_names == report.label_names == tuple(sorted(set(found)))
    assert names_in(store) == found
    counts = {name: found.count(name) for name in sorted(set(found))}
    assert store_info(store)["labels"] == counts
    assert list(report.labels.counts.values()) == list(counts.values())
    assert store.label_runs == 1 + sum(a != b for a, b in itertools.pairwise(found))
    verify_store(store)


@pytest.mark.filterwarnings("ignore:Transforming to str index")
def test_anndata_reads_the_names(tmp_path):
    found = write(tmp_path / "a.svm")
    convert(tmp_path / "a.svm", tmp_path / "a.zarr", labels="text")
    column = anndata.read_zarr(tmp_path / "a.zarr").obs["label"]
    assert column.dtype == "category"
    assert column.tolist() == found


@pytest.mark.parametrize("chunk_bytes", [1, 17, 64, 1000])
@pytest.mark.parametrize("threads", [1, 3])
def test_any_chunks_of_text(tmp_path, chunk_bytes, threads):
    found = write(tmp_path / "a.svm")
    rows = TextRows(tmp_path / "a.svm", labels="text", chunk_bytes=chunk_bytes, threads=threads)
    for _ in range(2):  # an iteration begins with no names
        labels = np.concatenate([block.labels for block in rows]).astype(int)
        assert [rows.label_names[label] for label in labels] == found
        assert list(rows.label_names) == list(dict.fromkeys(found))


def test_rows_in_another_order(tmp_path):
    found = write(tmp_path / "a.svm")
    convert(tmp_path / "a.svm", tmp_path / "a.zarr", labels="text", shuffle=1)
    assert sorted(names_in(open_store(tmp_path / "a.zarr"))) == sorted(found)
    assert names_in(open_store(tmp_path / "a.zarr")) != found


def test_from_text_to_predictions(tmp_path):
    found = write(tmp_path / "a.svm")
    model = ooc_svm.train(tmp_path / "a.svm", labels="text", C=10.0, class_weight={"spam": 2.0})
    assert model.label_names == tuple(sorted(NAMES))
    assert ooc_svm.predict(model, tmp_path / "a.svm").tolist() == found
    assert ooc_svm.evaluate(model, tmp_path / "a.svm", metrics=["accuracy"]) == {"accuracy": 1.0}
    lines = io.BytesIO()
    ooc_svm.predict(model, tmp_path / "a.svm", output=lines)
    assert lines.getvalue().decode().splitlines() == found
    convert(tmp_path / "a.svm", tmp_path / "a.zarr", labels="text")
    same = ooc_svm.train(tmp_path / "a.zarr", C=10.0, class_weight={"spam": 2.0})
    assert same.weights.tobytes() == model.weights.tobytes()
    (tmp_path / "other.svm").write_text("spam 1:1\nsausage 2:1\n")
    with pytest.raises(InputError, match="labels that the model was not trained on: 'sausage'"):
        ooc_svm.evaluate(model, tmp_path / "other.svm")


def test_two_names_and_the_positive_one(tmp_path):
    write(tmp_path / "a.svm", names=["spam", "ham"])
    model = ooc_svm.train(tmp_path / "a.svm", labels="text", positive="ham")
    assert ooc_svm.evaluate(model, tmp_path / "a.svm", metrics=["accuracy"]) == {"accuracy": 1.0}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (b"1:1 2:1\n", r"a\.svm:1:1: label '1:1' has a colon: begin rows with the name of a class"),
        (b"a 1:1\n" + b"x" * 256 + b" 1:1\n", r"a\.svm:2:1: label 'x+'\.\.\. is longer than 255 bytes"),
        (b"a\0b 1:1\n", r"a\.svm:1:1: a NUL byte"),
        (b"a\x01 1:1\n", "is no name of printable characters"),
        (b"a\xff 1:1\n", "is no name of printable characters in UTF-8; rename it"),
        (b"a\xe2\x80\xa8b 1:1\n", "is no name of printable characters in UTF-8"),
        (b"".join(b"n%d 1:1\n" % i for i in range(1001)), "the labels are more than 1000 different names"),
        (b"spam bacon 1:1\n", r"a\.svm:1:6: 'bacon' is not a feature"),
    ],
)
def test_what_is_no_name(tmp_path, lines, message):
    (tmp_path / "a.svm").write_bytes(lines)
    with pytest.raises(InputError, match=message):
        convert(tmp_path / "a.svm", tmp_path / "a.zarr", labels="text")
    assert [path.name for path in tmp_path.iterdir()] == ["a.svm"]


def test_a_thousand_names(tmp_path):
    (tmp_path / "a.svm").write_text("".join(f"n{i % 1000} 1:1\n" for i in range(5000)))
    convert(tmp_path / "a.svm", tmp_path / "a.zarr", labels="text")
    assert len(open_store(tmp_path / "a.zarr").label_names) == 1000


def test_names_of_the_labels_of_a_matrix(tmp_path):
    names = write(tmp_path / "a.svm")
    convert(tmp_path / "a.svm", tmp_path / "a.zarr", labels="text")
    text = open_store(tmp_path / "a.zarr")
    rows = [text.read_block(k) for k in range(len(text.blocks))]
    matrix = np.zeros((text.n_rows, text.n_features))
    for block in rows:
        for i in range(block.n_rows):
            own = slice(block.indptr[i], block.indptr[i + 1])
            matrix[block.start + i, block.indices[own]] = block.values[own]
    ooc_svm.convert_matrix(matrix, np.array(names), tmp_path / "b.zarr")
    store = open_store(tmp_path / "b.zarr")
    assert store.label_names == text.label_names == tuple(sorted(NAMES))
    assert store.labels.counts == text.labels.counts
    verify_store(store.path)
    from_store, in_memory = ooc_svm.train(store), ooc_svm.train(matrix, names)
    assert from_store.label_names == in_memory.label_names
    assert np.array_equal(from_store.coef_, in_memory.coef_)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([f"n{i}" for i in range(1001)], "the matrix: the labels are more than 1000 different names"),
        (["a", "b\n"], "the matrix: the label .* is no name of printable characters"),
    ],
)
def test_names_of_a_matrix_that_a_store_does_not_take(tmp_path, names, message):
    with pytest.raises(InputError, match=message):
        ooc_svm.convert_matrix(np.ones((len(names), 1)), names, tmp_path / "a.zarr")
    assert not list(tmp_path.iterdir())


def test_names_where_numbers_are_expected_name_the_option(tmp_path):
    write(tmp_path / "a.svm", names=["spam", "ham"])
    with pytest.raises(InputError, match=r"read them as names \(labels='text'\)"):
        convert(tmp_path / "a.svm", tmp_path / "a.zarr")


def test_options_that_make_no_sense(tmp_path):
    write(tmp_path / "a.svm")
    convert(tmp_path / "a.svm", tmp_path / "a.zarr", labels="text")
    with pytest.raises(UsageError, match="labels must be one of 'numbers', 'text', 'sets', not 'names'"):
        convert(tmp_path / "a.svm", tmp_path / "b.zarr", labels="names")
    with pytest.raises(UsageError, match="labels is for text, and this data is none"):
        ooc_svm.train(tmp_path / "a.zarr", labels="text")
    with pytest.raises(UsageError, match="labels must be one of 'numbers', 'text', 'sets'"):
        ooc_svm.train(tmp_path / "a.svm", labels=[1.0, 2.0])


def test_damaged_names_are_noticed(tmp_path):
    write(tmp_path / "a.svm")
    convert(tmp_path / "a.svm", tmp_path / "a.zarr", labels="text")
    chunk = tmp_path / "a.zarr" / "obs" / "label" / "categories" / "c" / "0"
    content = bytearray(chunk.read_bytes())
    content[20] ^= 1
    chunk.write_bytes(content)
    with pytest.raises(DamageError, match="categories"):
        open_store(tmp_path / "a.zarr")

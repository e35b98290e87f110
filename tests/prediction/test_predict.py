"""Prediction: the scores of SciPy from any form of the data, whole files, bounded memory."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.scored_data import Data, Floats, linear_model, one_vs_rest, random_data, regressor
from scipy import sparse

from ooc_svm.conversion.convert import convert
from ooc_svm.data.blocks import RowBlock, tiles
from ooc_svm.data.matrix import MatrixSource, MatrixSpan
from ooc_svm.errors import DamageError, InputError, MemoryBudgetError, StorageError, UsageError
from ooc_svm.evaluation.evaluate import evaluate
from ooc_svm.model.decision import Decision, select_C
from ooc_svm.model.file import save_model
from ooc_svm.model.model import Model
from ooc_svm.prediction import scores as scores_module
from ooc_svm.prediction.predict import Predicted, predict
from ooc_svm.prediction.rows import Ignored
from ooc_svm.prediction.scores import decision_scores
from ooc_svm.store import open_store
from ooc_svm.system.memory import parse_size
from ooc_svm.training.train import train

N_FEATURES = 40


@pytest.fixture
def data() -> Data:
    return random_data(500, N_FEATURES)


@pytest.fixture
def model() -> Model:
    return linear_model(np.random.default_rng(1).normal(size=N_FEATURES), 0.25)


def all_scores(model: Model, data: Any, **options: Any) -> Floats:
    blocks = list(decision_scores(model, data, **options))
    starts = np.cumsum([0] + [len(block.scores) for block in blocks])
    assert [block.start for block in blocks] == starts[:-1].tolist()
    return np.concatenate([block.scores for block in blocks])


def forms(data: Data, folder: Path) -> dict[str, Any]:
    """The same rows in every form."""
    text = data.text(folder / "rows.svm")
    for suffix, module in ((".gz", gzip), (".bz2", bz2), (".xz", lzma)):
        (folder / f"rows.svm{suffix}").write_bytes(module.compress(text.read_bytes()))
    lines = text.read_bytes().splitlines(keepends=True)
    (folder / "first.svm").write_bytes(b"".join(lines[:123]))
    (folder / "second.svm").write_bytes(b"".join(lines[123:]))
    store = data.store(folder / "rows.zarr")
    return {
        "text": text,
        "gzip": folder / "rows.svm.gz",
        "bzip2": str(folder / "rows.svm.bz2"),
        "xz": folder / "rows.svm.xz",
        "two files": [folder / "first.svm", folder / "second.svm"],
        "store": store,
        "open store": open_store(store),
        "csr matrix": sparse.csr_matrix(data.matrix),
        "coo array": data.matrix.tocoo(),
        "dense": data.matrix.toarray(),
    }


def test_scores_are_the_same_bits_from_every_form_on_any_number_of_threads(
    data: Data, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = data.scores(model)
    reference = all_scores(model, data.matrix, threads=1)
    np.testing.assert_allclose(reference, expected, rtol=1e-12, atol=1e-12)
    monkeypatch.setattr(scores_module, "TILE_ELEMENTS", 50)
    for name, form in forms(data, tmp_path).items():
        for threads in (1, 3):
            assert all_scores(model, form, threads=threads).tobytes() == reference.tobytes(), name


def test_scores_of_several_classes_and_the_labels_come_along(data: Data, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    model = one_vs_rest(rng.normal(size=(3, N_FEATURES)), rng.normal(size=3), (1.0, 2.0, 5.0))
    for form in (data.text(tmp_path / "rows.svm"), data.store(tmp_path / "rows.zarr")):
        with decision_scores(model, form) as stream:
            blocks = list(stream)
        np.testing.assert_allclose(
            np.concatenate([block.scores for block in blocks]), data.scores(model), rtol=1e-12, atol=1e-12
        )
        labels = [block.labels for block in blocks if block.labels is not None]
        np.testing.assert_array_equal(np.concatenate(labels), data.labels)


def test_matrices_have_labels_where_they_are_given(data: Data, model: Model) -> None:
    assert all(block.labels is None for block in decision_scores(model, data.matrix))
    (block,) = decision_scores(model, data.matrix, labels=data.labels)
    np.testing.assert_array_equal(block.labels, data.labels)


def test_a_matrix_of_many_blocks(data: Data, model: Model) -> None:
    n_rows = data.matrix.shape[0]
    spans = [MatrixSpan(start, min(start + 37, n_rows), 0, 0) for start in range(0, n_rows, 37)]
    source = MatrixSource(data.matrix, data.labels, spans=spans)
    np.testing.assert_allclose(all_scores(model, source), data.scores(model), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("form", ["text", "store", "matrix"])
def test_columns_that_the_model_does_not_have_are_left_out_and_counted(form: str, tmp_path: Path) -> None:
    data = random_data(300, N_FEATURES, seed=5)
    model = linear_model(np.random.default_rng(2).normal(size=25))
    unknown = data.matrix[:, 25:]
    expected = Ignored(rows=int((np.diff(unknown.indptr) > 0).sum()), entries=unknown.nnz)
    assert expected.rows not in (0, 300)
    before = data.matrix.copy()
    given: Any = data.matrix
    if form != "matrix":
        given = data.text(tmp_path / "rows.svm") if form == "text" else data.store(tmp_path / "rows.zarr")
    options: Any = {"missing_features": "zero"} if form == "matrix" else {}
    told = f"{expected.rows} rows of 300 have features that the model does not have; {expected.entries:,} val"
    if options:
        told = "has 15 columns that are no features"
    with pytest.warns(match=told) as warned:
        written = predict(model, given, output=io.BytesIO(), **options)
    assert [each.filename for each in warned] == [__file__]
    labels = {"labels": data.labels} if options else {}
    with pytest.warns(match=told) as warned:
        evaluate(model, given, **labels, **options)
    assert [each.filename for each in warned] == [__file__]
    for from_model in (model.predict, model.decision_function):
        with pytest.warns(match=told) as warned:
            from_model(given, **options)
        assert [each.filename for each in warned] == [__file__]
    with pytest.warns(match=told) if options else nullcontext():
        stream = decision_scores(model, given, **options)
    scores = np.concatenate([block.scores for block in stream])
    np.testing.assert_allclose(scores, data.scores(model), rtol=1e-12, atol=1e-12)
    assert stream.ignored == expected
    assert (before != data.matrix).nnz == 0  # the caller's matrix is left as it was
    assert written == Predicted(300, expected, extra=15 if form == "matrix" else 0)


def test_columns_without_values_too_and_a_model_without_any(tmp_path: Path) -> None:
    path = tmp_path / "ones.svm"
    path.write_text("1 1:1 3:1 2147483647:1\n-1 2:1\n1\n")
    stream = decision_scores(linear_model([1.0, 2.0, 4.0]), path)
    assert [block.scores[:, 0].tolist() for block in stream] == [[5.0, 2.0, 0.0]]
    assert stream.ignored == Ignored(1, 1)
    assert all_scores(linear_model(np.empty((1, 0)), 0.5), path).tolist() == [[0.5]] * 3


def test_data_with_fewer_columns_than_the_model(tmp_path: Path) -> None:
    data = random_data(100, 10)
    model = linear_model(np.random.default_rng(2).normal(size=1000))
    for form in (data.text(tmp_path / "rows.svm"), data.store(tmp_path / "rows.zarr")):
        np.testing.assert_allclose(all_scores(model, form), data.scores(model), rtol=1e-12, atol=1e-12)


def test_text_is_read_with_the_index_base_of_the_model(tmp_path: Path) -> None:
    path = tmp_path / "rows.svm"
    path.write_text("1 0:1 2:1\n")
    weights = [1.0, 2.0, 4.0]
    assert all_scores(linear_model(weights, index_base=0), path).tolist() == [[5.0]]
    with pytest.raises(InputError, match=r"rows\.svm:1:3: index 0"):
        all_scores(linear_model(weights), path)
    assert all_scores(linear_model(weights), path, index_base=0).tolist() == [[5.0]]


def test_a_model_of_a_matrix_reads_usual_text(tmp_path: Path) -> None:
    data = random_data(200, N_FEATURES)
    model = train(data.matrix.astype(np.float32), data.labels)
    text = data.text(tmp_path / "rows.svm")
    convert(text, tmp_path / "rows.zarr")
    expected = all_scores(model, tmp_path / "rows.zarr")
    assert np.array_equal(all_scores(model, text), expected)
    assert model.index_base == 1
    shifted = tmp_path / "shifted.svm"
    lines = [line.split(" ") for line in text.read_text().splitlines()]
    pairs = [[each.split(":") for each in line[1:]] for line in lines]
    shifted.write_text(
        "".join(
            f"{line[0]} {' '.join(f'{int(j) - 1}:{value}' for j, value in own)}\n"
            for line, own in zip(lines, pairs, strict=True)
        )
    )
    assert np.array_equal(all_scores(model, shifted, index_base=0), expected)
    with pytest.raises(InputError, match=r"if 0 is the first column here, use index_base=0"):
        all_scores(model, shifted)
    with pytest.raises(UsageError, match="index_base is for text, and this data is none; leave it out"):
        all_scores(model, data.matrix, index_base=1)


def test_values_of_text_are_rounded_as_the_training_data_were(tmp_path: Path) -> None:
    path = tmp_path / "rows.svm"
    path.write_text("1 1:0.1\n")
    assert all_scores(linear_model([1.0]), path)[0, 0] == float(np.float32(0.1))
    assert all_scores(linear_model([1.0], report={"value_type": "float64"}), path)[0, 0] == 0.1


def test_standard_input(data: Data, model: Model, tmp_path: Path) -> None:
    kept = os.dup(0)
    try:
        with open(data.text(tmp_path / "rows.svm"), "rb") as file:
            os.dup2(file.fileno(), 0)
        scores = all_scores(model, "-")
    finally:
        os.dup2(kept, 0)
        os.close(kept)
    np.testing.assert_allclose(scores, data.scores(model), rtol=1e-12, atol=1e-12)


# Labels


def test_labels_of_two_classes_a_score_of_zero_is_negative() -> None:
    matrix = sparse.csr_array(np.array([[1.0], [0.0], [-1.0], [1e-300]]))
    model = linear_model([2.0], positive=[7.0], negative=3.0, classes=(3.0, 7.0))
    assert predict(model, matrix).tolist() == [7.0, 3.0, 3.0, 7.0]


def test_labels_of_several_classes_the_first_of_equals() -> None:
    matrix = sparse.csr_array(np.array([[1.0, 0], [0, 1], [0, 0], [1, 1]]))
    weights = [[0.0, 1], [1, 0], [0, 1]]
    model = one_vs_rest(weights, 0.0, (1.0, 2.0, 5.0))
    assert predict(model, matrix).tolist() == [2.0, 1.0, 1.0, 1.0]
    # Whatever order the functions are kept in.
    turned = linear_model(
        weights[::-1], positive=[5.0, 2.0, 1.0], negative=None, classes=(1.0, 2.0, 5.0), C=(1.0,) * 3
    )
    assert predict(turned, matrix).tolist() == [2.0, 1.0, 1.0, 1.0]


def test_names_of_classes(tmp_path: Path) -> None:
    matrix = sparse.csr_array(np.array([[1.0], [-1.0]]))
    model = linear_model(
        [1.0], positive=[1.0], negative=0.0, classes=(0.0, 1.0), label_names=("B cell", "Zürich")
    )
    assert predict(model, matrix).tolist() == ["Zürich", "B cell"]
    path = tmp_path / "out.txt"
    predict(model, matrix, output=path, scores=True)
    assert path.read_text(encoding="utf-8") == "label\tscore\nZürich\t1\nB cell\t-1\n"


def test_a_name_with_a_tab_cannot_be_in_a_table() -> None:
    facts = {"positive": [1.0], "negative": 0.0, "classes": (0.0, 1.0), "label_names": ("a\tb", "c")}
    model, file = linear_model([1.0], **facts), io.BytesIO()
    with pytest.raises(InputError, match="or a tab in its name"):
        predict(model, np.ones((1, 1)), output=file, scores=True)
    predict(model, -np.ones((1, 1)), output=file)
    assert file.getvalue() == b"a\tb\n"


def test_a_table_without_rows_has_its_header(tmp_path: Path) -> None:
    path = tmp_path / "out.tsv"
    predict(linear_model([1.0]), sparse.csr_array((0, 1)), output=path, scores=True)
    assert path.read_text() == "label\tscore\n"


def test_a_name_with_a_line_break_cannot_be_a_line() -> None:
    facts = {"positive": [1.0], "negative": 0.0, "classes": (0.0, 1.0), "label_names": ("a\nb", "c")}
    model = linear_model([1.0], **facts)
    with pytest.raises(InputError, match="line break"):
        predict(model, np.ones((1, 1)), output=io.BytesIO())
    assert predict(model, -np.ones((1, 1))).tolist() == ["a\nb"]


def test_values_where_the_model_gives_values() -> None:
    model = regressor([0.1])
    file = io.BytesIO()
    assert predict(model, np.array([[1.0], [3.0]])).tolist() == [0.1, 0.1 * 3]
    predict(model, np.array([[1.0], [3.0]]), output=file)
    assert file.getvalue() == f"0.1\n{0.1 * 3!r}\n".encode()
    predict(model, np.array([[1.0]]), output=file, scores=True)
    assert file.getvalue().endswith(b"\nvalue\tscore\n0.1\t0.1\n")


@pytest.mark.parametrize(
    ("label", "text"), [(1.0, "1"), (-1.0, "-1"), (0.5, "0.5"), (-2.25, "-2.25"), (1e15, "1000000000000000")]
)
def test_labels_are_written_as_text_has_them(label: float, text: str) -> None:
    model = linear_model([1.0], positive=[label], negative=0.0, classes=(0.0, label))
    file = io.BytesIO()
    predict(model, np.array([[1.0], [-1.0]]), output=file)
    assert file.getvalue() == f"{text}\n0\n".encode()


def test_written_scores_are_the_same_floats_again(data: Data, model: Model, tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    extreme = linear_model(model.weights * 1e-200, 0.0)
    for each in (model, extreme):
        assert predict(each, data.matrix, output=path, scores=True) == Predicted(500, Ignored())
        head, *fields = [line.split("\t") for line in path.read_text().splitlines()]
        assert head == ["label", "score"]
        scores = all_scores(each, data.matrix)[:, 0]
        assert [float(score) for _, score in fields] == scores.tolist()
        assert [label for label, _ in fields] == ["1" if score > 0 else "-1" for score in scores]


def test_written_scores_of_several_classes(data: Data, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    model = one_vs_rest(rng.normal(size=(4, N_FEATURES)), rng.normal(size=4), (1.0, 2.0, 5.0, 9.0))
    path = tmp_path / "out.txt"
    predict(model, data.matrix, output=path, scores=True)
    head = path.read_text().splitlines()[0]
    assert head.split("\t") == ["label", "score of 1", "score of 2", "score of 5", "score of 9"]
    table = np.loadtxt(path, delimiter="\t", skiprows=1)
    np.testing.assert_array_equal(table[:, 1:], all_scores(model, data.matrix))
    np.testing.assert_array_equal(table[:, 0], np.array([1.0, 2, 5, 9])[table[:, 1:].argmax(axis=1)])
    np.testing.assert_array_equal(table[:, 0], predict(model, data.matrix))


# Several values of C


def test_a_value_of_C_chooses_the_functions() -> None:  # noqa: N802
    matrix = np.array([[1.0]])
    binary = linear_model([[1.0], [-1.0]], positive=[1.0, 1.0], C=(0.1, 10.0))
    assert predict(binary, matrix).tolist() == [-1.0]  # the last one
    assert predict(binary, matrix, C=0.1).tolist() == [1.0]
    assert select_C(binary, None) is binary
    several = linear_model(
        [[1.0], [2], [3], [3], [2], [1]],
        positive=[1.0, 2, 3] * 2,
        negative=None,
        classes=(1.0, 2.0, 3.0),
        C=(0.1,) * 3 + (10.0,) * 3,
    )
    assert all_scores(several, matrix, C=0.1).tolist() == [[1, 2, 3]]
    assert all_scores(several, matrix).tolist() == [[3, 2, 1]]
    with pytest.raises(UsageError, match=r"C = 1\.0; it has 0\.1, 10\.0$"):
        predict(several, matrix, C=1.0)
    with pytest.raises(UsageError, match="no values of C"):
        predict(linear_model([1.0]), matrix, C=1.0)


def test_groups_come_with_the_scores(tmp_path: Path) -> None:
    data = random_data(300, 20)
    qids = np.arange(300) // 7
    grouped = Data(data.matrix, data.labels, qids)
    model = linear_model(np.ones(20))
    for form, options in (
        (grouped.text(tmp_path / "rows.svm"), {}),
        (grouped.store(tmp_path / "rows.zarr"), {}),
        (data.matrix, {"qid": qids}),
    ):
        with decision_scores(model, form, **options) as blocks:
            assert np.concatenate([block.qids for block in blocks]).tolist() == qids.tolist()
    with decision_scores(model, data.matrix) as blocks:
        assert all(block.qids is None for block in blocks)


# What is refused


@pytest.mark.parametrize(
    ("given", "options", "reason"),
    [
        (3, {}, "data must be the path of .*, not 3"),
        ([], {}, r"data must be the path of .*, not \[\]"),
        (np.ones(3), {}, r"data must be the path of .*, not array\(\[1\., 1\., 1\.\]\)"),
        (np.ones((1, 1)), {"label": "kind"}, "label is 'kind', but a column"),
        ("rows.svm", {"label": "kind"}, "label is 'kind', but a column"),
        ("rows.svm", {"labels": [1.0]}, "labels can be given with a matrix"),
        ("rows.zarr", {"labels": [1.0]}, "labels can be given with a matrix"),
        ("rows.svm", {"qid": [1]}, "qid can be given with a matrix"),
        (["rows.svm", "rows.zarr"], {}, "is a store; give one store"),
        ("rows.svm", {"threads": 0}, "threads must be an integer from 1"),
        ("rows.svm", {"memory": "much"}, "memory must be a size"),
        ("rows.svm", {"index_base": 2}, "index_base must be 0 or 1, not 2"),
    ],
)
def test_usage_errors(
    given: Any, options: dict[str, Any], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = random_data(5, 3)
    data.text(Path("rows.svm"))
    data.store(Path("rows.zarr"))
    with pytest.raises(UsageError, match=reason):
        decision_scores(linear_model([1.0]), given, **options)


@pytest.mark.parametrize("name", ["missing.svm", "missing.zarr", "folder", "empty.svm"])
def test_data_that_are_not_there_are_refused_at_once(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.svm").touch()
    with pytest.raises(InputError, match=name):
        decision_scores(linear_model([1.0]), tmp_path / name)


def test_bad_text_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    path, output = tmp_path / "rows.svm", tmp_path / "out.txt"
    path.write_text("1 1:1\n" * 1000 + "1 1:x\n")
    with pytest.raises(InputError, match=r"rows\.svm:1001:3: "):
        predict(linear_model([1.0]), path, output=output)
    assert os.listdir(tmp_path) == ["rows.svm"]
    output.write_text("old")
    with pytest.raises(InputError):
        predict(linear_model([1.0]), path, output=output)
    assert output.read_text() == "old"


def test_a_row_without_a_label_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "rows.svm"
    path.write_text("1:1 2:1\n")
    with pytest.raises(InputError, match=r"rows\.svm:1:1: .*label"):
        predict(linear_model([1.0]), path)


def test_scores_beyond_float64_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "rows.svm"
    path.write_text("1 1:1\n1 1:3e38 2:3e38\n")
    with pytest.raises(InputError, match=r"row 1 .*beyond the range of float64"):
        predict(linear_model([1e300, 1e300]), path)
    with pytest.raises(InputError, match=r"row 1 "):
        predict(linear_model([1e300, -1e300]), path)  # inf - inf


@pytest.mark.fault
def test_a_damaged_chunk_is_an_error_and_leaves_nothing(data: Data, model: Model, tmp_path: Path) -> None:
    store, output = data.store(tmp_path / "rows.zarr"), tmp_path / "out.txt"
    chunk = sorted((store / "X" / "data" / "c").iterdir())[-1]
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 4
    chunk.write_bytes(content)
    with pytest.raises(DamageError, match=r"rows\.zarr"):
        predict(model, store, output=output)
    assert not output.exists()


def test_what_rows_are_read_from_is_not_written_to(data: Data, model: Model, tmp_path: Path) -> None:
    text, store = data.text(tmp_path / "rows.svm"), data.store(tmp_path / "rows.zarr")
    link, saved = tmp_path / "link.svm", tmp_path / "model.ooc"
    os.link(text, link)
    save_model(model, saved)
    before = text.read_bytes(), saved.read_bytes()
    for given, output in (
        (text, text),
        (text, link),
        ([link, text], text),
        (store, store / "out.txt"),
        (store, saved),
    ):
        with pytest.raises(UsageError, match="choose another name"):
            predict(model, given, output=output)
    assert (text.read_bytes(), saved.read_bytes()) == before
    assert not (store / "out.txt").exists()


def test_an_output_that_cannot_be_written(data: Data, model: Model, tmp_path: Path) -> None:
    for output in (tmp_path / "missing" / "out.txt", tmp_path):
        with pytest.raises(StorageError, match=str(tmp_path)):
            predict(model, data.matrix, output=output)


def test_scores_need_an_output(data: Data, model: Model) -> None:
    with pytest.raises(UsageError, match="decision_scores"):
        predict(model, data.matrix, scores=True)  # type: ignore[call-overload]


# Threads and memory


def _threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("score")}


def test_threads_end_when_the_stream_is_closed(data: Data, model: Model, tmp_path: Path) -> None:
    store = data.store(tmp_path / "rows.zarr")
    for form in (store, data.text(tmp_path / "rows.svm"), data.matrix):
        with decision_scores(model, form, threads=2) as stream:
            next(stream)
            assert _threads()
        assert not _threads()
        with pytest.raises(StopIteration):
            next(stream)


def test_blocks_alive_are_bounded(
    data: Data, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However slow the one who takes the scores is: no more blocks are read than there are buffers."""
    store = open_store(data.store(tmp_path / "rows.zarr", chunk_elements=128))
    assert len(store.blocks) > 10
    made: list[object] = []
    new_buffers: Callable[[], Any] = store.new_buffers
    monkeypatch.setattr(store, "new_buffers", lambda: made.append(1) or new_buffers())
    read: list[int] = []
    read_block = store.read_block

    def counting(index: int, buffers: Any = None) -> RowBlock:
        read.append(index)
        return read_block(index, buffers)

    monkeypatch.setattr(store, "read_block", counting)
    stream = decision_scores(model, store, threads=2)
    for block in stream:
        taken = next(i for i, span in enumerate(store.blocks) if span.stop > block.start)
        assert len(read) <= taken + 3
    assert sorted(read) == list(range(len(store.blocks)))
    assert len(made) == 3


def test_too_little_memory_is_an_error_with_the_sum(data: Data, model: Model, tmp_path: Path) -> None:
    with pytest.raises(
        MemoryBudgetError, match=r"allowed are 100 MB: Python and libraries 290 MB \+ weights"
    ):
        decision_scores(model, data.store(tmp_path / "rows.zarr"), memory="100MB")


def test_a_line_too_long_for_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "rows.svm"
    path.write_bytes(b"1 1:1\n1 1:1" + b" " * 3_000_000 + b"\n")
    model = linear_model([1.0])
    assert predict(model, path, memory="600MB").tolist() == [1.0, 1.0]
    with pytest.raises(MemoryBudgetError, match=r"rows\.svm:2: .*allow more \(memory\)"):
        predict(model, path, memory="320MB")


def test_tiles_cover_all_rows() -> None:
    indptr = np.array([0, 0, 3, 3, 20, 21, 22, 22, 22])
    assert list(tiles(indptr, 5, 100)) == [(0, 3), (3, 4), (4, 8)]
    assert list(tiles(indptr, 5, 2)) == [(0, 2), (2, 3), (3, 4), (4, 6), (6, 8)]
    assert list(tiles(indptr[:1], 5, 2)) == []


def test_many_classes_are_scored_in_small_tiles(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores_module, "TILE_SCORES", 64)
    classes = tuple(float(k) for k in range(30))
    model = one_vs_rest(np.random.default_rng(0).normal(size=(30, N_FEATURES)), 0.0, classes)
    blocks = list(decision_scores(model, data.matrix))
    assert {len(block.scores) for block in blocks} == {2}
    np.testing.assert_allclose(
        np.concatenate([block.scores for block in blocks]), data.scores(model), rtol=1e-12, atol=1e-12
    )


def test_one_function_needs_no_copy_of_the_weights() -> None:
    model = linear_model(np.ones((3, 50)), positive=[1.0] * 3, C=(1.0, 2.0, 3.0))
    assert np.shares_memory(Decision.of(model).scorer.weights, model.weights)


_CHILD = """
import sys
import numpy as np
from ooc_svm.evaluation.evaluate import evaluate
from ooc_svm.system.memory import peak_memory
from ooc_svm.model.linear import LinearFunctions
from ooc_svm.model.model import Model
from ooc_svm.prediction.predict import predict

what, data, output = sys.argv[1:]
model = Model(
    problem="svc", loss="hinge", solver="ocas", functions=LinearFunctions(np.ones((1, 1)), np.zeros(1)),
    positive=[1.0], negative=-1.0, classes=(-1.0, 1.0),
)
if what == "predict":
    predict(model, data, output=output, threads=2, memory="330MB")
else:
    found = evaluate(model, data, threads=2, memory="330MB")
    assert found["auc"] == 0.5 and found["accuracy"] == 0.5, found
print(peak_memory())
"""


@pytest.mark.parametrize("what", ["predict", "evaluate"])
def test_peak_memory_does_not_follow_the_number_of_rows(what: str, tmp_path: Path) -> None:
    """The scores of the larger file alone take 64 MB."""
    peaks = []
    for n_rows in (200_000, 8_000_000):
        path = tmp_path / "rows.svm"
        path.write_bytes(b"1\n-1\n" * (n_rows // 2))
        arguments = [sys.executable, "-c", _CHILD, what, str(path), str(tmp_path / "out.txt")]
        peaks.append(int(subprocess.run(arguments, check=True, capture_output=True, text=True).stdout))
    assert peaks[1] < 330e6
    assert peaks[1] - peaks[0] < 40e6


@pytest.mark.fault
def test_a_kill_in_the_middle_leaves_the_old_file(tmp_path: Path) -> None:
    output, path = tmp_path / "out.txt", tmp_path / "rows.svm"
    output.write_text("old")
    path.write_bytes(b"1 1:1\n" * 400_000)
    script = textwrap.dedent(
        f"""
        import os, signal, sys
        import numpy as np
        from ooc_svm.prediction import predict as module, tables
        from ooc_svm.model.linear import LinearFunctions
        from ooc_svm.model.model import Model
        model = Model(problem="svc", loss="hinge", solver="ocas",
                      functions=LinearFunctions(np.ones((1, 1)), np.zeros(1)),
                      positive=[1.0], negative=-1.0, classes=(-1.0, 1.0))
        format_lines, blocks = tables.Lines._of, []
        def killing(self, scores):
            blocks.append(1)
            if len(blocks) == 4:
                os.kill(os.getpid(), signal.SIGKILL)
            return format_lines(self, scores)
        tables.Lines._of = killing
        module.predict(model, {str(path)!r}, output={str(output)!r}, scores=True)
        """
    )
    killed = subprocess.run([sys.executable, "-c", script], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert output.read_text() == "old"
    assert len(os.listdir(tmp_path)) == 3  # what the killed one left
    predict(linear_model([1.0]), path, output=output)
    assert output.read_bytes() == b"1\n" * 400_000
    assert sorted(os.listdir(tmp_path)) == ["out.txt", "rows.svm"]


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("n_features", [3, 123_457])
def test_the_memory_that_a_refusal_names_is_enough(threads: int, n_features: int, tmp_path: Path) -> None:
    text = tmp_path / "rows.svm"
    text.write_text("1 1:1 3:1\n" * 5)
    model = linear_model(np.ones(n_features))
    options = {"threads": threads, "output": io.BytesIO()}
    with pytest.raises(MemoryBudgetError) as refused:
        predict(model, text, memory="1MB", **options)
    named = str(refused.value).split(" needs ")[1].split(" of memory")[0]
    predict(model, text, memory=named, **options)
    with pytest.raises(MemoryBudgetError):
        predict(model, text, memory=int(0.985 * parse_size(named)), **options)

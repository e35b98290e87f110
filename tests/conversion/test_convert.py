"""Conversion against scikit-learn's reader, its report, its warnings, and its independence of the machine."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from ooc_svm.conversion.convert import convert, convert_matrix
from ooc_svm.conversion.plan import divide_memory
from ooc_svm.errors import InputError, MemoryBudgetError, UsageError
from ooc_svm.store import open_store, verify_store
from ooc_svm.system.memory import INTERPRETER_BYTES, parse_size
from ooc_svm.text.compression import window_bytes

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


def make_data(seed=0, n_rows=300, n_features=60, density=0.1, dtype=np.float32):
    rng = np.random.default_rng(seed)
    matrix = sp.random(n_rows, n_features, density, format="csr", random_state=rng, dtype=dtype)
    matrix.sort_indices()
    return matrix, rng.choice([-1.0, 1.0], n_rows)


def write_text(path, matrix, labels, qids=None, zero_based=False):
    buffer = io.BytesIO()
    dump_svmlight_file(matrix, labels, buffer, query_id=qids, zero_based=zero_based)
    path.write_bytes(buffer.getvalue())
    return path


def read_store(path):
    """Matrix and labels of a whole store."""
    store = open_store(path)
    parts = []
    for span in store.blocks:
        block = store.read_block(span.index)
        values = np.ones(len(block.indices), np.float32) if block.values is None else block.values
        parts.append(sp.csr_matrix((values, block.indices, block.indptr), (block.n_rows, store.n_features)))
    return sp.vstack(parts, format="csr"), store.read_labels(0, store.n_rows)


def assert_holds(path, matrix, labels):
    stored, stored_labels = read_store(path)
    assert stored.shape == matrix.shape
    assert (stored != matrix).nnz == 0
    np.testing.assert_array_equal(stored_labels, labels)


def files_of(store):
    """Name and content of everything in a store but the time it was made."""
    contents = {}
    for path in sorted(store.rglob("*")):
        if path.is_file() and "uns" not in path.parts and path.name != "zarr.json":
            contents[str(path.relative_to(store))] = path.read_bytes()
    return contents


# Text


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("threads", [1, 3])
def test_store_holds_what_sklearn_reads(tmp_path, dtype, threads):
    matrix, labels = make_data(dtype=np.float64)
    text = write_text(tmp_path / "a.svm", matrix, labels)
    report = convert(text, tmp_path / "a.zarr", dtype=dtype, threads=threads)
    expected, expected_labels = load_svmlight_file(str(text), dtype=np.float64, n_features=report.features)
    assert_holds(tmp_path / "a.zarr", expected.astype(dtype), expected_labels)
    verify_store(tmp_path / "a.zarr")
    assert (report.rows, report.nonzeros, report.value_type) == (300, matrix.nnz, dtype)
    assert report.features == matrix.indices.max() + 1
    assert report.labels.counts == {-1.0: int((labels < 0).sum()), 1.0: int((labels > 0).sum())}
    assert report.label_runs == 1 + int((labels[1:] != labels[:-1]).sum())
    assert report.bytes_in == text.stat().st_size
    assert report.bytes_out == open_store(tmp_path / "a.zarr").n_bytes
    assert report.seconds > 0
    assert report.warnings == []


def test_many_files_compressed_or_not_are_one_data_set(tmp_path):
    matrix, labels = make_data(1)
    first = write_text(tmp_path / "a.svm", matrix[:100], labels[:100], zero_based=True)
    second = write_text(tmp_path / "b.svm", matrix[100:], labels[100:], zero_based=True)
    packed = tmp_path / "b.svm.gz"
    packed.write_bytes(gzip.compress(second.read_bytes()))
    report = convert([first, packed], tmp_path / "a.zarr", index_base=0, features=60)
    assert_holds(tmp_path / "a.zarr", matrix, labels)
    assert report.bytes_in == first.stat().st_size + packed.stat().st_size
    store = open_store(tmp_path / "a.zarr")
    assert store.index_base == 0
    sources = store.provenance["sources"]
    assert [source["name"] for source in sources] == [str(first), str(packed)]
    assert [source["compression"] for source in sources] == [None, "gzip"]
    assert [source["size"] for source in sources] == [first.stat().st_size, packed.stat().st_size]
    assert store.provenance["options"] == {
        "index_base": 0,
        "features": 60,
        "dtype": "float32",
        "labels": "numbers",
        "shuffle": None,
        "group": False,
    }
    assert store.provenance["counts"]["rows"] == 300


def test_standard_input(tmp_path):
    matrix, labels = make_data(2)
    text = write_text(tmp_path / "a.svm", matrix, labels)
    code = "import ooc_svm, sys; ooc_svm.convert('-', sys.argv[1], features=60, shuffle=5)"
    command = [sys.executable, "-c", code, str(tmp_path / "piped.zarr")]
    subprocess.run(command, input=text.read_bytes(), check=True)
    convert(text, tmp_path / "file.zarr", features=60, shuffle=5)
    assert files_of(tmp_path / "piped.zarr") == files_of(tmp_path / "file.zarr")
    assert open_store(tmp_path / "piped.zarr").provenance["sources"][0]["name"] == "standard input"


def test_groups_and_all_ones(tmp_path):
    (tmp_path / "a.svm").write_text("2 qid:7 1:1 3:1\n1 qid:7 2:1\n3 qid:9\n")
    report = convert(tmp_path / "a.svm", tmp_path / "a.zarr")
    store = open_store(tmp_path / "a.zarr")
    assert report.value_type == "ones"
    assert store.has_qid
    np.testing.assert_array_equal(store.read_qids(0, 3), [7, 7, 9])


def test_explicit_zeros_are_dropped_and_count_for_the_columns(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1 7:0\n-1 2:2 3:0.0\n")
    report = convert(tmp_path / "a.svm", tmp_path / "a.zarr")
    assert (report.features, report.nonzeros, report.explicit_zeros) == (7, 2, 2)
    assert open_store(tmp_path / "a.zarr").n_features == 7
    assert any("2 explicit zeros" in warning for warning in report.warnings)


def test_more_columns_than_the_text_names(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1\n-1 2:2\n")
    assert convert(tmp_path / "a.svm", tmp_path / "a.zarr", features=10).features == 10
    assert open_store(tmp_path / "a.zarr").n_features == 10


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ("1 1:1\n# no row\n-1 2:2 6:3\n", "b.svm:3:8: index '6' is too large: the largest is 5"),
        ("1 1:1\n-1 6:0\n", "b.svm:2:4: index '6' is too large: the largest is 5"),
    ],
)
def test_fewer_columns_than_the_text_names(tmp_path, second, message):
    (tmp_path / "a.svm").write_text("1 1:1\n-1 2:2\n")
    (tmp_path / "b.svm").write_text(second)
    with pytest.raises(InputError) as caught:
        convert([tmp_path / "a.svm", tmp_path / "b.svm"], tmp_path / "a.zarr", features=5)
    assert message in str(caught.value)
    assert "(features=5); give more, or leave it out" in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.svm", "b.svm"]


def test_rows_with_columns_beyond_are_bad_lines(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1\n-1 6:1\n1 7:0\n-1 0:1\n-1 5:2\n")
    report = convert(
        tmp_path / "a.svm", tmp_path / "a.zarr", features=6, index_base=0, bad_lines="skip", max_bad_lines=2
    )
    assert (report.rows, report.features, report.bad_lines) == (3, 6, 2)
    notes = (tmp_path / "a.zarr.rejected").read_text().splitlines()
    assert notes[1::2] == ["-1 6:1", "1 7:0"]
    assert "a.svm:2:4: index '6' is too large: the largest is 5 (features=6)" in notes[0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"threads": 0}, "threads must be an integer from 1 to 4096, not 0"),
        ({"shuffle": -1}, "shuffle must be an integer from 0 to 2^64 - 1, not -1"),
        ({"shuffle": 2**64}, "from 0 to 2^64 - 1"),
        ({"dtype": "float16"}, "dtype must be 'float32' or 'float64', not 'float16'"),
        ({"index_base": 2}, "0 or 1"),
        ({"features": -1}, "features must be an integer from 1 to 2^31 - 1, not -1"),
        ({"max_bad_lines": 3}, "bad_lines='skip'"),
        ({"memory": "much"}, "memory must be a size"),
    ],
)
def test_options_that_make_no_sense(tmp_path, options, words):
    (tmp_path / "a.svm").write_text("1 1:1\n")
    with pytest.raises(UsageError) as caught:
        convert(tmp_path / "a.svm", tmp_path / "a.zarr", **options)
    assert words in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["a.svm"]


def test_bad_text_leaves_nothing(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1\n1 2:x\n")
    with pytest.raises(InputError, match=r"a\.svm:2:3: "):
        convert(tmp_path / "a.svm", tmp_path / "a.zarr")
    (tmp_path / "a.svm").write_text("# nothing\n\n")
    with pytest.raises(InputError, match="no rows"):
        convert(tmp_path / "a.svm", tmp_path / "a.zarr", bad_lines="skip", shuffle=1)
    assert [path.name for path in tmp_path.iterdir()] == ["a.svm"]


# Bad lines


def test_bad_lines_go_to_their_file(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1\nbad\n\n-1 2:1 1:1\n# words\n-1 1:2\n")
    report = convert(tmp_path / "a.svm", tmp_path / "a.zarr", bad_lines="skip")
    assert (report.rows, report.bad_lines, report.blank_lines, report.comment_lines) == (2, 2, 1, 1)
    assert report.lines == 6
    assert report.rejected == tmp_path / "a.zarr.rejected"
    lines = report.rejected.read_text().splitlines()
    assert lines[1::2] == ["bad", "-1 2:1 1:1"]
    assert f"{tmp_path}/a.svm:2:1" in lines[0]
    assert any("2 bad lines" in warning and str(report.rejected) in warning for warning in report.warnings)
    assert {path.name for path in tmp_path.iterdir()} == {"a.svm", "a.zarr", "a.zarr.rejected"}
    # A run without bad lines leaves no such file, nor that of the store it replaces.
    (tmp_path / "a.svm").write_text("1 1:1\n-1 1:2\n")
    report = convert(tmp_path / "a.svm", tmp_path / "a.zarr", bad_lines="skip", overwrite=True)
    assert report.rejected is None
    assert {path.name for path in tmp_path.iterdir()} == {"a.svm", "a.zarr"}


@pytest.mark.parametrize("text", ["1 1:1\n-1 1:2\n", "1 1:1\nbad\n-1 1:2\n"])
def test_a_file_of_something_else_in_the_place_of_bad_lines_stays(tmp_path, text):
    (tmp_path / "a.svm").write_text(text)
    place = tmp_path / "a.zarr.rejected"
    place.write_text("# of mine: 12 notes\n")
    with pytest.raises(UsageError, match=r"a.zarr.rejected is a file of something else, .*move it away"):
        convert(tmp_path / "a.svm", tmp_path / "a.zarr", bad_lines="skip", overwrite=True)
    assert place.read_text() == "# of mine: 12 notes\n"
    assert {path.name for path in tmp_path.iterdir()} == {"a.svm", "a.zarr.rejected"}


def test_too_many_bad_lines(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1\nbad\nworse\n")
    with pytest.raises(InputError, match="more than 1 bad lines"):
        convert(tmp_path / "a.svm", tmp_path / "a.zarr", bad_lines="skip", max_bad_lines=1)
    assert [path.name for path in tmp_path.iterdir()] == ["a.svm"]


def test_file_of_bad_lines_must_not_be_an_input(tmp_path):
    text = tmp_path / "a.zarr.rejected"
    text.write_text("1 1:1\n")
    with pytest.raises(UsageError, match="is an input"):
        convert(text, tmp_path / "a.zarr", bad_lines="skip")
    assert text.read_text() == "1 1:1\n"


def test_place_of_the_bad_lines_is_taken(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1\n")
    (tmp_path / "a.zarr.rejected").mkdir()
    with pytest.raises(UsageError, match="no regular file"):
        convert(tmp_path / "a.svm", tmp_path / "a.zarr", bad_lines="skip")
    assert {path.name for path in tmp_path.iterdir()} == {"a.svm", "a.zarr.rejected"}


# Warnings


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.ones(50), "all rows have the label 1;"),
        (np.repeat([0.0, 1.0], 1000), "in 2 runs where random order has about 1000"),
        (np.tile(np.repeat([0.0, 1.0, 2.0], 30), 30), "in 90 runs"),
        (np.tile([0.0, 1.0], 1000), None),
        (np.random.default_rng(0).choice([0.0, 1.0], 2000, p=[0.99, 0.01]), None),
        (np.repeat([0.0, 1.0], 100), None),  # too few rows to judge
        (np.arange(3000) / 7, None),
    ],
)
def test_warnings_about_labels(tmp_path, labels, words):
    report = convert_matrix(sp.eye_array(len(labels), 5, format="csr"), labels, tmp_path / "a.zarr")
    if words is None:
        assert report.warnings == []
    else:
        assert len(report.warnings) == 1
        assert words in report.warnings[0]


# What must not matter


def test_threads_and_memory_do_not_change_a_byte(tmp_path):
    rng = np.random.default_rng(3)
    matrix, labels = make_data(3, n_rows=20_000, density=0.3)
    matrix.data = rng.integers(1, 5, matrix.nnz).astype(np.float32)
    text = write_text(tmp_path / "a.svm", matrix, labels)
    assert text.stat().st_size > 2 * divide_memory(335 * 10**6, 1, 4, reorder=False).chunk_bytes
    reports, contents = [], []
    for number, options in enumerate(
        ({"threads": 1}, {"threads": 3}, {"threads": 2, "memory": "335MB"}, {"threads": 8, "memory": "700MB"})
    ):
        target = tmp_path / f"{number}.zarr"
        reports.append(convert(text, target, **options))
        contents.append(files_of(target))
    assert len({report.id for report in reports}) == 1
    assert all(content == contents[0] for content in contents)
    headers = [open_store(tmp_path / f"{number}.zarr").provenance for number in range(4)]
    for header in headers:
        header.pop("created")
    assert all(json.dumps(header) == json.dumps(headers[0]) for header in headers)


@pytest.mark.parametrize("shuffle", [None, 4])
def test_progress_reaches_its_total(tmp_path, shuffle):
    matrix, labels = make_data(4)
    first = write_text(tmp_path / "a.svm", matrix, labels)
    second = write_text(tmp_path / "b.svm", matrix, labels)
    size = first.stat().st_size + second.stat().st_size
    calls = []
    convert(
        [first, second], tmp_path / "a.zarr", shuffle=shuffle, progress=lambda *facts: calls.append(facts)
    )
    assert [total for _, total, _ in calls] == [size] * len(calls)
    done = [done for done, _, _ in calls]
    assert done == sorted(done)
    assert done[-1] == size
    assert calls[-1][2] == 600


# Memory


def test_plan_fits_and_grows_with_the_memory():
    last = 0
    for megabytes in range(300, 3000, 30):
        for value_bytes in (4, 8):
            try:
                plan = divide_memory(megabytes * 10**6, 4, value_bytes, reorder=value_bytes == 8)
            except MemoryBudgetError:
                assert megabytes < 480
                continue
            assert 1 <= plan.threads <= 4
            assert plan.chunk_bytes <= plan.max_line_bytes
            assert (plan.reorder_bytes > 32 << 20) == (value_bytes == 8)
            assert plan.reorder_bytes < megabytes * 10**6 - INTERPRETER_BYTES
            if value_bytes == 4:
                assert plan.threads >= last
                last = plan.threads
    assert last == 4


def test_memory_that_is_too_small_is_refused_with_the_sum(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1\n")
    with pytest.raises(MemoryBudgetError, match=r"at least 334 MB of memory \(program 290 MB, .* 250 MB are"):
        convert(tmp_path / "a.svm", tmp_path / "a.zarr", memory="250MB")
    assert [path.name for path in tmp_path.iterdir()] == ["a.svm"]


def test_line_too_long_for_the_memory(tmp_path):
    features = " ".join(f"{k}:1" for k in range(1, 400_001))
    (tmp_path / "a.svm").write_text(f"1 1:1\n-1 {features}\n")
    with pytest.raises(MemoryBudgetError, match=r"a\.svm:2: the line is longer .* more memory"):
        convert(tmp_path / "a.svm", tmp_path / "a.zarr", memory="360MB")
    assert [path.name for path in tmp_path.iterdir()] == ["a.svm"]
    assert convert(tmp_path / "a.svm", tmp_path / "a.zarr", memory="900MB").nonzeros == 400_001


def write_compressed(folder, mebibytes):
    """The same text as xz and as zstd, each with a window of this size."""
    text = b"1 1:1\n-1 2:1\n"
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": mebibytes << 20}]
    (folder / "a.svm.xz").write_bytes(lzma.compress(text, filters=filters))
    frame = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 19 + mebibytes.bit_length()})
    (folder / "a.svm.zst").write_bytes(frame.compress(text) + frame.flush())
    return folder / "a.svm.xz", folder / "a.svm.zst"


@pytest.mark.parametrize("mebibytes", [1, 8, 64])
def test_windows_of_compressed_text(tmp_path, mebibytes):
    xz, zst = write_compressed(tmp_path, mebibytes)
    assert mebibytes << 20 <= window_bytes(xz) <= (mebibytes + 2) << 20
    assert window_bytes(zst) == mebibytes << 20
    for path in (xz, zst):
        assert convert(path, tmp_path / "s", overwrite=True).rows == 2
    for rows in (20, 100, 20_000):
        zst.write_bytes(zstd.compress(b"1 1:1\n" * rows))  # one segment: as large as the text
        assert window_bytes(zst) == 6 * rows


def test_no_window_where_there_is_none_to_be_read(tmp_path):
    xz, zst = write_compressed(tmp_path, 1)
    for path in (xz, zst):
        path.write_bytes(path.read_bytes()[:10])
    plain = tmp_path / "a.svm"
    plain.write_text("1 1:1\n")
    damaged = tmp_path / "b.xz"
    damaged.write_bytes(b"\xfd7zXZ\x00" + bytes(100))
    assert [window_bytes(path) for path in (zst, plain, damaged, tmp_path, tmp_path / "none", "-")] == [0] * 6


def test_a_window_that_does_not_fit_is_refused_with_the_sum(tmp_path):
    for path in write_compressed(tmp_path, 64):
        with pytest.raises(MemoryBudgetError, match=r"decompressing 6[78]\.\d MB.* 400 MB are allowed"):
            convert([path, path], tmp_path / "s", memory="400MB")
    assert not (tmp_path / "s").exists()
    assert convert(path, tmp_path / "s", memory="420MB").rows == 2


# Matrices


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_array, sp.coo_array, lambda matrix: matrix.toarray()])
def test_matrix(tmp_path, form):
    matrix, labels = make_data(5, dtype=np.float64)
    qids, weights = np.arange(300) // 7, np.linspace(0, 2, 300)
    report = convert_matrix(
        form(matrix), labels, tmp_path / "a.zarr", qid=qids, weight=weights, dtype="float64"
    )
    assert_holds(tmp_path / "a.zarr", matrix, labels)
    store = open_store(tmp_path / "a.zarr")
    np.testing.assert_array_equal(store.read_qids(0, 300), qids)
    np.testing.assert_array_equal(store.read_weights(0, 300), weights)
    assert (report.rows, report.features, report.nonzeros) == (300, 60, matrix.nnz)
    verify_store(tmp_path / "a.zarr")


def test_matrix_makes_the_store_that_its_text_makes(tmp_path):
    matrix, labels = make_data(6)
    text = write_text(tmp_path / "a.svm", matrix, labels)
    from_text = convert(text, tmp_path / "a.zarr", features=60)
    assert convert_matrix(matrix, labels, tmp_path / "b.zarr").id == from_text.id


def test_matrix_with_zeros_and_duplicates(tmp_path):
    content = (np.array([1.0, 0.0, 2.0, 3.0]), np.array([0, 2, 1, 1]), np.array([0, 2, 4]))
    report = convert_matrix(sp.csr_matrix(content, shape=(2, 4)), [1, 2], tmp_path / "a.zarr")
    assert_holds(tmp_path / "a.zarr", sp.csr_matrix([[1.0, 0, 0, 0], [0, 5.0, 0, 0]]), [1, 2])
    assert (report.explicit_zeros, report.nonzeros, report.features) == (1, 2, 4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"features": 3}, "4 columns, but features is 3"),
        ({"qid": [1]}, "qid of shape (1,)"),
        ({"qid": [0.5, 1]}, "qid has the type float64, as 0.5; integers"),
        (
            {"qid": np.array([0, 2**63], np.uint64)},
            "row 1 has 9223372036854775808 in qid; integers from 0 to 2^63 - 1",
        ),
        ({"qid": [-1, 0]}, "-1"),
        ({"weight": ["a", "b"]}, "weight are not numbers: 'a'"),
        ({"weight": [1.0, np.nan]}, "nan"),
        ({"labels": [1.0]}, "labels of shape (1,)"),
        ({"labels": [1.0, np.inf]}, "not finite"),
    ],
)
def test_matrix_with_columns_that_do_not_fit(tmp_path, options, words):
    arguments = {"labels": [1.0, -1.0]} | options
    with pytest.raises(InputError) as caught:
        convert_matrix(sp.eye_array(2, 4), output=tmp_path / "a.zarr", **arguments)
    assert words in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_values_beyond_float32_in_a_matrix(tmp_path):
    with pytest.raises(
        InputError, match=r"has the value 1e\+39, beyond the range of float32; .*dtype='float64'"
    ):
        convert_matrix(sp.csr_matrix([[1e39]]), [1.0], tmp_path / "a.zarr")
    assert convert_matrix(sp.csr_matrix([[1e39]]), [1.0], tmp_path / "a.zarr", dtype="float64").nonzeros == 1
    assert list(Path(tmp_path).iterdir()) == [tmp_path / "a.zarr"]


@pytest.mark.parametrize("reorder", [False, True])
@pytest.mark.parametrize("value_bytes", [4, 8])
@pytest.mark.parametrize("window", [0, 8 << 20, (128 << 20) + 1])
def test_the_memory_that_a_refusal_names_is_enough(reorder: bool, value_bytes: int, window: int) -> None:
    for threads in (1, 3, 16):
        with pytest.raises(MemoryBudgetError) as refused:
            divide_memory(1, threads, value_bytes, reorder=reorder, window=window)
        named = parse_size(str(refused.value).split(" at least ")[1].split(" of memory")[0])
        divide_memory(named, threads, value_bytes, reorder=reorder, window=window)
        with pytest.raises(MemoryBudgetError):
            divide_memory(int(0.985 * named), threads, value_bytes, reorder=reorder, window=window)


def test_text_without_a_good_line_says_so(tmp_path):
    (tmp_path / "a.svm").write_text("bad\n# why\n1 1:1 1:2\n")
    with pytest.raises(
        InputError, match=r"a.svm: no rows: 2 bad lines, .*; leave bad_lines='skip' out to see"
    ):
        convert(tmp_path / "a.svm", tmp_path / "a.zarr", bad_lines="skip")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.svm"]

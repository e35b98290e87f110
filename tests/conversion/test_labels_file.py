"""Labels of a matrix of SciPy: read in bounded memory, counted in the plan, refused with a reason."""

from __future__ import annotations

import os
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

import ooc_svm
from ooc_svm.conversion import npz
from ooc_svm.conversion.options import ConvertOptions
from ooc_svm.conversion.plan import plan_conversion
from ooc_svm.errors import InputError, MemoryBudgetError
from ooc_svm.store import open_store

N_ROWS = 300


@pytest.fixture
def source(tmp_path):
    sp.save_npz(tmp_path / "x.npz", sp.csr_matrix(np.ones((N_ROWS, 2))))
    return tmp_path / "x.npz"


@pytest.mark.parametrize("at_once", [1, 7, 1 << 16])
@pytest.mark.parametrize("name", ["y.npy", "y.txt", "crlf.txt", "no_end.txt"])
def test_labels_are_read_piece_by_piece(tmp_path, source, name, at_once, monkeypatch):
    monkeypatch.setattr(npz, "_ROWS_AT_ONCE", at_once)
    labels = np.arange(N_ROWS) % 7 - 3.5
    path = tmp_path / name
    if name == "y.npy":
        np.save(path, labels)
    else:
        end = "\r\n" if name == "crlf.txt" else "\n"
        text = "".join(f"{label!r}{end}" for label in labels.tolist())
        path.write_bytes(text.removesuffix("\n" if name == "no_end.txt" else "-").encode())
    ooc_svm.convert(source, tmp_path / "a.zarr", labels_file=path)
    np.testing.assert_array_equal(open_store(tmp_path / "a.zarr").read_labels(0, N_ROWS), labels)


def test_a_file_that_is_not_there(tmp_path, source):
    with pytest.raises(InputError, match=r"y.txt: there is no such file of labels; check the path"):
        ooc_svm.convert(source, tmp_path / "a.zarr", labels_file=tmp_path / "y.txt")
    assert os.listdir(tmp_path) == ["x.npz"]


def test_names_and_columns_are_counted(tmp_path, source):
    np.save(tmp_path / "y.npy", np.arange(N_ROWS))
    given = {"labels_file": tmp_path / "y.npy"}
    with pytest.raises(InputError, match=r"^feature_names has 1 names, and .*x.npz has 2 columns; give one"):
        ooc_svm.convert(source, tmp_path / "a.zarr", feature_names=["a"], **given)
    with pytest.raises(InputError, match=r"x.npz has 2 columns, but features is 1: give as many or more"):
        ooc_svm.convert(source, tmp_path / "a.zarr", features=1, **given)


@pytest.mark.parametrize("name", ["y.npy", "y.txt"])
def test_memory_is_that_of_the_labels(tmp_path, name):
    n_rows = 400_000
    labels, path = np.arange(n_rows) % 2 * 2.0 - 1, tmp_path / name
    if name == "y.npy":
        np.save(path, labels)
    else:
        path.write_text("".join(f"{label:g}\n" for label in labels))
    tracemalloc.start()
    try:
        found = npz._read_labels(path, n_rows, "x.npz")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(found, labels)
    assert peak < 8 * n_rows + (3 << 20)


def test_the_plan_has_them(tmp_path, source, monkeypatch):
    options = ConvertOptions(tmp_path / "a.zarr", memory="400MB", threads=1)
    plan, without = plan_conversion(options, columns=30 * 10**6), plan_conversion(options)
    assert plan.chunk_bytes < without.chunk_bytes
    with pytest.raises(MemoryBudgetError, match="labels of all rows 240 MB"):
        plan_conversion(options, columns=240 * 10**6)
    seen = []
    monkeypatch.setattr(
        npz, "plan_conversion", lambda *args, **more: seen.append(more) or plan_conversion(*args, **more)
    )
    np.save(tmp_path / "y.npy", np.ones(N_ROWS))
    ooc_svm.convert(source, tmp_path / "a.zarr", labels_file=tmp_path / "y.npy")
    assert seen == [{"sorts": False, "columns": 8 * N_ROWS}]


def test_files_that_are_none_of_labels(tmp_path, source):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "long").write_bytes(b"1" + b" " * 10**5 + b"\n")
    (tmp_path / "more").write_text("1\n" * (N_ROWS + 2))
    (tmp_path / "fewer").write_text("1\n" * (N_ROWS - 1))
    (tmp_path / "nan").write_text("1\n" * 5 + "nan\n" + "1\n" * (N_ROWS - 6))
    (tmp_path / "empty").write_text("")
    for name, message in {
        "pipe": "pipe is a named pipe; give a file with a label for each row",
        ".": "is a folder; give a file with a label",
        "long": r"long:1: '1 +'... is no number",
        "more": "more has 302 labels for the 300 rows",
        "fewer": "fewer has 299 labels for the 300 rows",
        "nan": "nan has the label nan for row 5, from 0",
        "empty": "empty has 0 labels for the 300 rows",
    }.items():
        with pytest.raises(InputError, match=message):
            ooc_svm.convert(source, tmp_path / "a.zarr", labels_file=tmp_path / name)
        assert not (tmp_path / "a.zarr").exists()


@pytest.mark.parametrize(("sign", "at_once"), [(1, 7), (-1, 1 << 16)])
def test_integers_that_float64_does_not_tell_apart(tmp_path, source, sign, at_once, monkeypatch):
    monkeypatch.setattr(npz, "_ROWS_AT_ONCE", at_once)
    labels = np.arange(N_ROWS) % 2
    labels[40] = sign * (2**53 + 1)
    np.save(tmp_path / "y.npy", labels)
    (tmp_path / "y.txt").write_text("".join(f"{label}\n" for label in labels))
    with pytest.raises(InputError, match=rf"y.npy has an integer .* {labels[40]} in place 40, from 0"):
        ooc_svm.convert(source, tmp_path / "a.zarr", labels_file=tmp_path / "y.npy")
    with pytest.raises(InputError, match=rf"y.txt:41: {labels[40]} is 9,007,199,254,740,992 or more"):
        ooc_svm.convert(source, tmp_path / "a.zarr", labels_file=tmp_path / "y.txt")
    labels[40] = sign * (2**53 - 1)
    (tmp_path / "y.txt").write_text("".join(f"{label}\n" for label in labels[:-1]) + "1e300\n")
    ooc_svm.convert(source, tmp_path / "a.zarr", labels_file=tmp_path / "y.txt")
    assert open_store(tmp_path / "a.zarr").read_labels(40, 41).tolist() == [labels[40]]

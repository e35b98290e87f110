"""AnnData files become AnnData stores of CSR rows, whole, in bounded memory, or are refused with a reason."""

from __future__ import annotations

import sys
import tempfile
import tracemalloc
import warnings
from pathlib import Path

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import zarr
from helpers.store_data import assert_same, read_all, write_store
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ooc_svm
from ooc_svm.conversion import anndata_rows
from ooc_svm.conversion import plan as conversion_plan
from ooc_svm.conversion.anndata_rows import MatrixBlocks, matrix_layout
from ooc_svm.errors import DamageError, InputError, MemoryBudgetError, StorageError, UsageError
from ooc_svm.store import open_store
from ooc_svm.store.trees import Hdf5Tree

FORMS = {"csr": sp.csr_matrix, "csc": sp.csc_matrix, "dense": lambda matrix: matrix.toarray()}


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # AnnData and Zarr on their own plans
        yield


def make_cells(matrix, layers=None):
    n, d = matrix.shape
    rng = np.random.default_rng(5)
    obs = pd.DataFrame(
        {
            "cell_type": pd.Categorical(rng.choice(["T", "B, naïve", "NK"], n)),
            "depth": rng.random(n),
            "flag": rng.random(n) < 0.5,
            "batch": pd.Categorical(rng.choice([3, 4], n), ordered=True),
            "maybe": pd.array([None, *range(n - 1)], dtype="Int64"),
            "sure": pd.array([None, *([True] * (n - 1))], dtype="boolean"),
            "donor": [f"donor {i}" for i in range(n)],
        },
        index=[f"cell{i}é" for i in range(n)],
    )
    var = pd.DataFrame({"variable": rng.random(d) < 0.5}, index=[f"gene{i}" for i in range(d)])
    return anndata.AnnData(matrix, obs=obs, var=var, layers=layers)


def write(cells, path, zarr_format=3):
    if path.suffix == ".h5ad":
        cells.write_h5ad(path, compression="gzip")
        return path
    with anndata.settings.override(zarr_write_format=zarr_format):
        cells.write_zarr(path)
    return path


def random_matrix(n=60, d=23, seed=1):
    return sp.random(n, d, 0.3, format="csr", random_state=np.random.default_rng(seed))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("name", "zarr_format"), [("a.h5ad", 3), ("a.zarr", 3), ("a.zarr", 2)])
def test_what_anndata_reads_is_what_it_wrote(tmp_path, form, name, zarr_format):
    matrix = random_matrix()
    cells = make_cells(sp.csr_matrix(matrix.shape), {"counts": FORMS[form](matrix)})
    source = write(cells, tmp_path / name, zarr_format)
    report = ooc_svm.convert(source, tmp_path / "out.zarr", layer="counts", dtype="float64")
    found = anndata.read_zarr(tmp_path / "out.zarr")
    assert_same(sp.csr_matrix(found.X), matrix)
    assert found.X.indptr.dtype == np.int32
    pd.testing.assert_frame_equal(found.obs, cells.obs)
    pd.testing.assert_frame_equal(found.var, cells.var)
    assert (report.rows, report.features, report.nonzeros) == (*matrix.shape, matrix.nnz)
    assert report.columns == tuple(cells.obs.columns)
    assert report.warnings == []
    store = open_store(tmp_path / "out.zarr", label="cell_type")
    assert_same(read_all(store), matrix)
    names = np.array(store.label_names, object)
    assert list(names[store.read_labels(0, 60).astype(int)]) == list(cells.obs["cell_type"])
    assert store.remark is None  # every chunk has a checksum
    ooc_svm.verify_store(tmp_path / "out.zarr", label="cell_type")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=30),
    form=st.sampled_from(sorted(FORMS)),
    dtype=st.sampled_from(["float32", "float64", "int16", "uint8", "bool"]),
    elements=st.sampled_from([1, 3, 1000]),
    rows=st.sampled_from([1, 4, 1000]),
)
def test_round_trip(lengths, form, dtype, elements, rows):
    """Whatever the cut into blocks, rows and pieces of columns."""
    rng = np.random.default_rng(len(lengths))
    dense = np.zeros((len(lengths), 9))
    for row, length in enumerate(lengths):
        dense[row, rng.choice(9, length, replace=False)] = rng.integers(1, 100, length)
    matrix = sp.csr_matrix(dense.astype(dtype))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda descriptor: None)
        patch.setattr(anndata_rows, "_BLOCK_ROWS", rows)
        patch.setattr(MatrixBlocks, "check_step", lambda self, name, nbytes: None)
        patch.setattr(MatrixBlocks, "_check_row", lambda self, row, n_values: None)
        source = write(anndata.AnnData(FORMS[form](matrix)), Path(folder, "a.h5ad"))
        tree = Hdf5Tree(source)
        blocks = MatrixBlocks(tree, matrix_layout(tree, None), "float32", elements)
        Path(folder, "scratch").mkdir()
        parts, following = [], 0
        for block in blocks.blocks(Path(folder, "scratch"), 400):
            assert block.start == following
            following = block.stop
            content = (block.values, block.indices, block.indptr)
            parts.append(sp.csr_matrix(content, shape=(block.n_rows, 9)))
        assert following == len(lengths)
        assert_same(sp.vstack(parts, format="csr"), matrix.astype(np.float32))
        assert blocks.bytes_done == blocks.total_bytes  # everything is read once
        assert list(Path(folder, "scratch").iterdir()) == []
        tree.close()


@pytest.mark.parametrize("form", FORMS)
def test_memory_is_bounded(tmp_path, form, monkeypatch):
    """Far below the size of the matrix, for rows, columns and dense matrices alike."""
    matrix = sp.random(40_000, 50, 0.5, format="csr", random_state=np.random.default_rng(0))
    path = tmp_path / "a.h5ad"
    with h5py.File(path, "w") as file:
        content = FORMS[form](matrix)
        if form == "dense":
            file.create_dataset("X", data=content, chunks=(500, 50))
        else:
            group = file.create_group("X")
            group.attrs.update({"encoding-type": f"{form}_matrix", "shape": matrix.shape})
            for name in ("data", "indices"):
                group.create_dataset(name, data=getattr(content, name), chunks=(10_000,))
            group["indptr"] = content.indptr
    del content
    tree = Hdf5Tree(path)
    blocks = MatrixBlocks(tree, matrix_layout(tree, None), "float64", 1 << 14)
    total = 12 * matrix.nnz
    tracemalloc.start()
    try:
        count = sum(len(block.indices) for block in blocks.blocks(tmp_path, total // 8))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        tree.close()
    assert count == matrix.nnz
    assert peak < total / 3


def test_zeros_are_dropped_and_told(tmp_path):
    matrix = random_matrix()
    matrix.data[::3] = 0
    expected = matrix.copy()
    expected.eliminate_zeros()
    for form in ("csr", "csc"):
        source = write(make_cells(FORMS[form](matrix)), tmp_path / f"{form}.h5ad")
        report = ooc_svm.convert(source, tmp_path / f"{form}.zarr", dtype="float64")
        assert report.warnings == [f"{matrix.nnz - expected.nnz} explicit zeros were dropped"]
        assert_same(read_all(open_store(tmp_path / f"{form}.zarr", label="cell_type")), expected)


def test_unsorted_rows_are_sorted_and_double_entries_refused(tmp_path):
    matrix = sp.csr_matrix((np.arange(1.0, 5), [3, 1, 2, 0], [0, 3, 4]), shape=(2, 4))
    ooc_svm.convert(write(make_cells(matrix), tmp_path / "a.h5ad"), tmp_path / "a.zarr")
    assert_same(read_all(open_store(tmp_path / "a.zarr", label="cell_type")), matrix.sorted_indices())
    matrix.indices[:2] = 1
    for form in ("csr", "csc"):
        source = tmp_path / f"{form}.h5ad"
        write(make_cells(sp.csr_matrix((2, 4))), source)
        with h5py.File(source, "r+") as file:
            write_matrix(file, matrix, form)
        message = r"column 1 stands twice in row 0, from 0, of X of .*h5ad; call sum_duplicates\(\)"
        with pytest.raises(InputError, match=message):
            ooc_svm.convert(source, tmp_path / "b.zarr")


def write_matrix(file, matrix, form):
    """A matrix whose arrays need not be right."""
    del file["X"]
    group = file.create_group("X")
    group.attrs.update(
        {"encoding-type": f"{form}_matrix", "encoding-version": "0.1.0", "shape": matrix.shape}
    )
    if form == "csc":
        rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        order = np.argsort(matrix.indices, kind="stable")
        counts = np.bincount(matrix.indices, minlength=matrix.shape[1])
        matrix_arrays = (matrix.data[order], rows[order], np.concatenate([[0], np.cumsum(counts)]))
    else:
        matrix_arrays = (matrix.data, matrix.indices, matrix.indptr)
    for name, array in zip(("data", "indices", "indptr"), matrix_arrays, strict=True):
        group[name] = array


@pytest.mark.fault
class TestDamage:
    @pytest.fixture
    def source(self, tmp_path):
        return write(make_cells(random_matrix()), tmp_path / "a.h5ad")

    def refused(self, source, error, message, **options):
        output = source.parent / "out.zarr"
        with pytest.raises(error, match=message):
            ooc_svm.convert(source, output, **options)
        left = [path.name for path in source.parent.iterdir() if path.name.startswith("out.zarr")]
        assert left == []

    @pytest.mark.parametrize("form", FORMS)
    @pytest.mark.parametrize("value", [np.nan, -np.inf])
    def test_values_that_are_not_finite(self, tmp_path, form, value):
        matrix = random_matrix().astype(np.float32)
        matrix.data[7] = value
        row = int(np.searchsorted(matrix.indptr, 7, side="right")) - 1
        source = write(make_cells(FORMS[form](matrix)), tmp_path / "b.h5ad")
        message = (
            rf"row {row}, from 0, of X of .*b.h5ad has a value in column {matrix.indices[7]}, .*not finite"
        )
        self.refused(source, InputError, message)

    def test_values_beyond_float32(self, tmp_path):
        matrix = random_matrix()
        matrix.data[7] = 1e39
        source = write(make_cells(matrix), tmp_path / "b.h5ad")
        self.refused(source, InputError, r"not finite or beyond float32 \(dtype='float64'\)")
        ooc_svm.convert(source, tmp_path / "wide.zarr", dtype="float64")
        assert read_all(open_store(tmp_path / "wide.zarr", label="cell_type")).data[7] == 1e39

    @pytest.mark.parametrize("form", ["csr", "csc"])
    @pytest.mark.parametrize("wrong", [-1, 2**31, 2**40])
    def test_ids_out_of_range(self, source, form, wrong):
        with h5py.File(source, "r+") as file:
            write_matrix(file, random_matrix(), form)
            ids = file["X/indices"][:].astype(np.int64)
            ids[11] = wrong
            del file["X/indices"]
            file["X/indices"] = ids
        self.refused(source, DamageError, rf"X of .*a.h5ad has the id {wrong} outside 0 .. ")

    @pytest.mark.parametrize(
        "pointers",
        [lambda p: p[::-1].copy(), lambda p: p + 1, lambda p: p // 2, lambda p: p[:-1], lambda p: -p],
    )
    @pytest.mark.parametrize("form", ["csr", "csc"])
    def test_wrong_pointers(self, source, form, pointers):
        with h5py.File(source, "r+") as file:
            write_matrix(file, random_matrix(), form)
            found = file["X/indptr"][:]
            del file["X/indptr"]
            file["X/indptr"] = pointers(found)
        self.refused(source, DamageError, "the file is damaged")

    @pytest.mark.parametrize("keep", [20, 600, 0.5, 0.95])
    def test_a_file_that_was_cut(self, source, keep):
        content = source.read_bytes()
        source.write_bytes(content[: keep if keep > 1 else int(keep * len(content))])
        self.refused(source, DamageError, r"a.h5ad cannot be read \(")

    def test_flipped_bytes_in_a_chunk(self, source):
        with h5py.File(source, "r") as file:
            chunk = file["X/data"].id.get_chunk_info(0)
        content = bytearray(source.read_bytes())
        for place in range(chunk.byte_offset, chunk.byte_offset + chunk.size, 2):
            content[place] ^= 0xFF
        source.write_bytes(content)
        self.refused(source, DamageError, r"X/data cannot be read \(")

    def test_a_disk_that_fails(self, source, monkeypatch):
        def fail(self, *arguments):
            raise OSError(
                "Can't read data (file read failed: errno = 5, error message = 'Input/output error')"
            )

        monkeypatch.setattr(h5py.Dataset, "__getitem__", fail)
        self.refused(source, StorageError, r"cannot be read: Input/output error")

    def test_other_files_are_never_opened(self, source, tmp_path):
        with h5py.File(tmp_path / "secret.h5", "w") as other:
            other["data"] = np.ones(3)
        with h5py.File(source, "r+") as file:
            del file["obs/depth"]
            file["obs/depth"] = h5py.ExternalLink(tmp_path / "secret.h5", "data")
        self.refused(source, DamageError, "obs/depth is a link, which is not followed")
        with h5py.File(source, "r+") as file:
            del file["obs/depth"]
            external = [(str(tmp_path / "secret.h5"), 0, h5py.h5f.UNLIMITED)]
            file.create_dataset("obs/depth", (60,), "f8", external=external)
        self.refused(source, DamageError, "obs/depth lies in other files")

    def test_columns_of_another_length(self, source):
        with h5py.File(source, "r+") as file:
            del file["obs/depth"]
            file["obs/depth"] = np.ones(59)
        self.refused(source, DamageError, "obs/depth of .* has 59 entries for 60")

    def test_columns_of_other_kinds_are_left_out_and_told(self, source, tmp_path):
        with h5py.File(source, "r+") as file:
            file["obs/depth"].parent.move("depth", "kept")
            group = file.create_group("obs/depth")
            group.attrs["encoding-type"] = "of tomorrow"
        report = ooc_svm.convert(source, tmp_path / "out.zarr")
        assert report.warnings == ["columns of a kind that is not kept were left out: obs/depth"]
        assert "depth" not in anndata.read_zarr(tmp_path / "out.zarr").obs

    def test_what_is_no_anndata(self, tmp_path, source):
        with h5py.File(tmp_path / "b.h5ad", "w") as file:
            file["X"] = np.ones((3, 3))
        self.refused(tmp_path / "b.h5ad", DamageError, "is not written as AnnData 0.8 and later")
        (tmp_path / "c.h5ad").write_text("1 1:1\n")
        self.refused(tmp_path / "c.h5ad", DamageError, r"c.h5ad cannot be read \(")
        self.refused(source, InputError, "has no layer 'raw'; there are: none", layer="raw")
        self.refused(source, InputError, "has no layer '../X'", layer="../X")
        zarr.create_group(tmp_path / "g.zarr")
        self.refused(tmp_path / "g.zarr", DamageError, "is not written as AnnData")
        self.refused(tmp_path / "none.h5ad", InputError, "none.h5ad does not exist")

    def test_chunks_that_do_not_fit(self, source, monkeypatch):
        monkeypatch.setattr(conversion_plan, "_BYTES_PER_ELEMENT", 1 << 24)
        self.refused(source, MemoryBudgetError, "has chunks of .*allow more", memory="600MB")

    @pytest.mark.parametrize("name", ["X/indptr", "obs/depth", "obs/cell_type/codes"])
    def test_chunks_longer_than_their_array_that_do_not_fit(self, source, name, tmp_path):
        with h5py.File(source, "r+") as file:
            values, attributes = file[name][:], dict(file[name].attrs)
            del file[name]
            chunk = (150_000_000 // values.itemsize,)
            file.create_dataset(name, data=values, maxshape=(None,), chunks=chunk, compression="lzf")
            file[name].attrs.update(attributes)
        named = "X" if name == "X/indptr" else name
        self.refused(source, MemoryBudgetError, f"^{named} of .* has chunks of 150 MB", memory="600MB")
        ooc_svm.convert(source, tmp_path / "out.zarr", memory="3GB")


def test_without_the_package_for_hdf5(tmp_path, monkeypatch):
    source = write(make_cells(random_matrix()), tmp_path / "a.h5ad")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(
        InputError, match=r"h5py to read it is not installed; install it: pip install 'ooc-svm\["
    ):
        ooc_svm.convert(source, tmp_path / "out.zarr")


@pytest.mark.parametrize(
    "options",
    [{"shuffle": 1}, {"group": True}, {"features": 9}, {"index_base": 0}, {"bad_lines": "skip"}],
)
def test_options_of_text_are_refused_by_name(tmp_path, options):
    source = write(make_cells(random_matrix()), tmp_path / "a.h5ad")
    with pytest.raises(UsageError, match=rf"{next(iter(options))} is not for AnnData \(.*a.h5ad\)"):
        ooc_svm.convert(source, tmp_path / "out.zarr", **options)
    with pytest.raises(UsageError, match="one file at a time"):
        ooc_svm.convert([source, source], tmp_path / "out.zarr")
    with pytest.raises(UsageError, match="leave engine='dask' out"):
        ooc_svm.convert(source, tmp_path / "out.zarr", engine="dask")


def test_what_is_overwritten(tmp_path):
    matrix = random_matrix()
    source = write(make_cells(matrix), tmp_path / "a.zarr")
    ooc_svm.convert(source, tmp_path / "out.zarr")
    with pytest.raises(UsageError, match=r"out.zarr exists"):
        ooc_svm.convert(source, tmp_path / "out.zarr")
    ooc_svm.convert(source, tmp_path / "out.zarr", dtype="float64", overwrite=True)
    assert open_store(tmp_path / "out.zarr", label="cell_type").value_type == "float64"
    with pytest.raises(UsageError, match="was not written by this program"):
        ooc_svm.convert(source, source, overwrite=True)
    write_store(tmp_path / "own.zarr", matrix.astype(np.float32), np.ones(60))
    with pytest.raises(UsageError, match="there is nothing to convert"):
        ooc_svm.convert(tmp_path / "own.zarr", tmp_path / "b.zarr")
    (tmp_path / "text.svm").write_text("1 1:1\n")
    with pytest.raises(UsageError, match="layer is for AnnData"):
        ooc_svm.convert(tmp_path / "text.svm", tmp_path / "b.zarr", layer="counts")

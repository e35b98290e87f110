"""Files of SciPy and of Parquet become stores, or are refused with a reason."""

from __future__ import annotations

import sys
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import scipy.sparse as sp
from helpers.store_data import assert_same, random_rows, read_all

import ooc_svm
from ooc_svm.conversion import anndata_rows, parquet
from ooc_svm.conversion import plan as conversion_plan
from ooc_svm.errors import DamageError, InputError, MemoryBudgetError, UsageError
from ooc_svm.store import open_store


@pytest.fixture
def rows():
    return random_rows(5, n_rows=90, n_features=20)


@pytest.fixture
def output(tmp_path):
    return tmp_path / "out.zarr"


def refused(output, error, message, source, **options):
    with pytest.raises(error, match=message):
        ooc_svm.convert(source, output, **options)
    assert not [path.name for path in output.parent.iterdir() if path.name.startswith("out.zarr")]


class TestSciPy:
    @pytest.fixture
    def labels(self, tmp_path, rows):
        np.save(tmp_path / "y.npy", rows[1].astype(int))
        return tmp_path / "y.npy"

    @pytest.mark.parametrize("form", ["csr", "csc"])
    @pytest.mark.parametrize("compressed", [False, True])
    @pytest.mark.parametrize("per_block", [1, 1 << 20])
    def test_what_was_saved_is_what_is_read(
        self, tmp_path, rows, labels, output, form, compressed, per_block
    ):
        matrix, y = rows
        matrix.data[4] = 0
        sp.save_npz(tmp_path / "x.npz", matrix.asformat(form), compressed=compressed)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(conversion_plan, "_BYTES_PER_ELEMENT", (8 << 20) // per_block)
            patch.setattr(anndata_rows, "_BLOCK_ROWS", 7)
            patch.setattr(anndata_rows.MatrixBlocks, "check_step", lambda self, name, nbytes: None)
            patch.setattr(anndata_rows.MatrixBlocks, "_check_row", lambda self, row, n_values: None)
            report = ooc_svm.convert(tmp_path / "x.npz", output, labels_file=labels)
        assert report.explicit_zeros == 1
        store = open_store(output)
        matrix.eliminate_zeros()
        assert_same(read_all(store), matrix)
        np.testing.assert_array_equal(store.read_labels(0, 90), y)

    def test_it_is_the_store_of_the_matrix(self, tmp_path, rows, labels, output):
        sp.save_npz(tmp_path / "x.npz", rows[0])
        (tmp_path / "y.txt").write_text("".join(f"{label:g}\n" for label in rows[1]))
        ooc_svm.convert_matrix(*rows, tmp_path / "matrix.zarr", shuffle=3)
        ooc_svm.convert(tmp_path / "x.npz", output, labels_file=tmp_path / "y.txt", shuffle=3)
        assert open_store(output).id == open_store(tmp_path / "matrix.zarr").id

    def test_labels_that_do_not_fit(self, tmp_path, rows, labels, output):
        source = tmp_path / "x.npz"
        sp.save_npz(source, rows[0])
        refused(output, UsageError, r"has no labels: name a file that has them \(labels_file\)", source)
        np.save(labels, rows[1][:-1])
        refused(output, InputError, "y.npy has 89 labels for the 90 rows", source, labels_file=labels)
        np.save(labels, np.where(np.arange(90) == 7, np.nan, 1))
        refused(output, InputError, "the label nan for row 7", source, labels_file=labels)
        np.save(labels, np.array(["a"] * 90))
        refused(output, InputError, "no numbers in one dimension", source, labels_file=labels)
        labels.write_text("1\n\n")
        refused(output, InputError, r"y.npy:2: '' is no number", source, labels_file=labels)
        missing = "none.txt: there is no such file of labels"
        refused(output, InputError, missing, source, labels_file=tmp_path / "none.txt")
        (tmp_path / "a.svm").write_text("1 1:1\n")
        refused(
            output, UsageError, "labels_file is for a file of SciPy", tmp_path / "a.svm", labels_file=labels
        )
        refused(output, UsageError, "bad_lines is for text", source, labels_file=labels, bad_lines="skip")
        refused(output, UsageError, "give one file of SciPy", [source, source], labels_file=labels)

    @pytest.mark.parametrize("root", ["zarr.json", ".zgroup"])
    def test_a_zarr_store_in_an_archive(self, tmp_path, output, root):
        """No labels are asked for: they would not help."""
        source = tmp_path / "cells.zarr.zip"
        with zipfile.ZipFile(source, "w") as file:
            file.writestr(root, "{}")
        refused(output, InputError, "cells.zarr.zip is a Zarr store in an archive; unpack it", source)

    @pytest.mark.fault
    def test_damage(self, tmp_path, rows, labels, output):
        source = tmp_path / "x.npz"
        matrix = rows[0].copy()
        matrix.data[9] = np.inf
        sp.save_npz(source, matrix)
        refused(output, InputError, "the matrix of .*x.npz has a value in column", source, labels_file=labels)
        matrix = rows[0].copy()
        matrix.indices[9] = 20
        sp.save_npz(source, matrix)
        refused(output, DamageError, "has the id 20 outside 0 .. 19", source, labels_file=labels)
        sp.save_npz(source, rows[0].tocoo())
        refused(output, InputError, "form 'coo'; save it as CSR or CSC", source, labels_file=labels)
        sp.save_npz(source, rows[0], compressed=False)
        content = bytearray(source.read_bytes())
        source.write_bytes(content[: len(content) // 2])
        refused(output, DamageError, r"x.npz cannot be read \(", source, labels_file=labels)
        place = content.index(b"data.npy") + 300
        content[place] ^= 1
        source.write_bytes(content)
        refused(output, DamageError, r"x.npz .*cannot be read \(Bad CRC", source, labels_file=labels)
        with zipfile.ZipFile(source, "w") as file:
            file.writestr("x.txt", "no matrix")
        message = (
            "has no format.npy, so it holds no sparse matrix of SciPy; save one by scipy.sparse.save_npz"
        )
        refused(output, InputError, message, source, labels_file=labels)
        with zipfile.ZipFile(source, "w", zipfile.ZIP_LZMA) as file:
            np.save(file.open("format.npy", "w"), np.bytes_("csr"))
        content = bytearray(source.read_bytes())
        content[50:80] = bytes(30)
        source.write_bytes(content)
        refused(output, DamageError, r"format.npy\) cannot be read \(Corrupt", source, labels_file=labels)
        sp.save_npz(source, rows[0])
        with zipfile.ZipFile(source) as file:
            place = file.getinfo("format.npy").header_offset
        content = bytearray(source.read_bytes())
        content[place + 6] |= 1  # the flag of encrypted members, here and in the directory
        content[content.index(b"PK\x01\x02") + 8] |= 1
        source.write_bytes(content)
        refused(output, DamageError, "is encrypted", source, labels_file=labels)
        sp.save_npz(source, rows[0])
        labels.write_bytes(labels.read_bytes().replace(b"}", b"{"))
        refused(output, DamageError, r"y.npy cannot be read \(", source, labels_file=labels)

    @pytest.mark.fault
    @pytest.mark.parametrize("kind", ["S0", "U0"])
    @pytest.mark.parametrize("name", ["format", "indptr"])
    def test_types_of_no_length(self, tmp_path, rows, labels, output, kind, name):
        source = tmp_path / "x.npz"
        sp.save_npz(source, rows[0])
        with np.load(source) as found:
            arrays = dict(found)
        arrays[name] = np.empty(arrays[name].shape, kind)
        self.save_with_types(source, arrays, {name: kind})
        refused(output, InputError, rf"\({name}.npy\) has entries of type", source, labels_file=labels)

    def save_with_types(self, path, arrays, types):
        """As ``np.savez`` does, with types of no length, which NumPy writes with a length of 1."""
        with zipfile.ZipFile(path, "w") as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w") as file:
                    header = np.lib.format.header_data_from_array_1_0(array)
                    header["descr"] = types.get(name, header["descr"])
                    np.lib.format.write_array_header_1_0(file, header)
                    file.write(array.tobytes())

    @pytest.mark.parametrize("name", ["data", "indices", "indptr", "shape"])
    def test_arrays_of_two_dimensions(self, tmp_path, rows, labels, output, name):
        source = tmp_path / "x.npz"
        sp.save_npz(source, rows[0])
        with np.load(source) as found:
            arrays = dict(found)
        arrays[name] = arrays[name][:, None]
        np.savez(source, **arrays)
        message = rf"\({name}.npy\) has the shape \(\d+, 1\), not of one dimension; save the file again"
        refused(output, InputError, message, source, labels_file=labels)

    def test_a_row_that_does_not_fit_the_memory(self, tmp_path, rows, labels, output, monkeypatch):
        matrix = rows[0]
        assert matrix[0].nnz > 2
        sp.save_npz(tmp_path / "x.npz", matrix)
        monkeypatch.setattr(conversion_plan, "_BYTES_PER_ELEMENT", 8 << 20)
        monkeypatch.setattr(anndata_rows.MatrixBlocks, "check_step", lambda self, name, nbytes: None)
        message = (
            r"row \d+, from 0, of the matrix of .*x.npz has \d+ stored values, .*for 3 at once: allow more"
        )
        refused(output, MemoryBudgetError, message, tmp_path / "x.npz", labels_file=labels)

    def test_unsorted_rows_are_sorted_and_double_entries_refused(self, tmp_path, output):
        source, labels = tmp_path / "x.npz", tmp_path / "y.npy"
        np.save(labels, [1.0, -1.0])
        matrix = sp.csr_matrix((np.arange(1.0, 5), [3, 1, 2, 0], [0, 1, 4]), shape=(2, 4))
        sp.save_npz(source, matrix)
        ooc_svm.convert(source, tmp_path / "sorted.zarr", labels_file=labels)
        assert_same(read_all(open_store(tmp_path / "sorted.zarr")), matrix.sorted_indices())
        twice = sp.csr_matrix((np.arange(1.0, 5), [3, 2, 0, 2], [0, 1, 4]), shape=(2, 4))
        sp.save_npz(source, twice)
        message = "column 2 stands twice in row 1, from 0, of the matrix of .*x.npz; call sum_duplicates"
        refused(output, InputError, message, source, labels_file=labels)

    def test_nothing_is_unpickled(self, tmp_path, rows, labels, output):
        np.savez(tmp_path / "x.npz", format=np.array([object()]), allow_pickle=True)
        refused(
            output,
            InputError,
            "has entries of type object .*; save numbers or text",
            tmp_path / "x.npz",
            labels_file=labels,
        )


class TestParquet:
    @pytest.fixture
    def table(self, rows):
        matrix, y = rows
        lists = [matrix.indices[a:b] + 1 for a, b in zip(matrix.indptr, matrix.indptr[1:], strict=False)]
        values = [matrix.data[a:b] for a, b in zip(matrix.indptr, matrix.indptr[1:], strict=False)]
        return {"indices": lists, "values": values, "label": y}

    def save(self, path, table, **options):
        pa.parquet.write_table(pa.table(table), path, **options)
        return path

    @pytest.mark.parametrize("batch", [1, 4, 1000])
    def test_rows_of_all_row_groups(self, tmp_path, rows, table, output, batch, monkeypatch):
        monkeypatch.setattr(parquet, "_BATCH_ROWS", batch)
        extra = {"qid": np.arange(90) // 10, "weight": np.linspace(0, 2, 90)}
        half = {name: list(column)[:40] for name, column in (table | extra).items()}
        rest = {name: list(column)[40:] for name, column in (table | extra).items()}
        sources = [
            self.save(tmp_path / "a.parquet", half, row_group_size=7),
            self.save(tmp_path / "b.parquet", rest),
        ]
        seen = []
        report = ooc_svm.convert(sources, output, progress=lambda *done: seen.append(done))
        assert seen[-1] == (report.bytes_in, sum(path.stat().st_size for path in sources), 90)
        store = open_store(output)
        assert_same(read_all(store), rows[0])
        np.testing.assert_array_equal(store.read_labels(0, 90), rows[1])
        np.testing.assert_array_equal(store.read_qids(0, 90), extra["qid"])
        np.testing.assert_array_equal(store.read_weights(0, 90), extra["weight"])
        ooc_svm.convert_matrix(*rows, tmp_path / "matrix.zarr", qid=extra["qid"], weight=extra["weight"])
        assert store.id == open_store(tmp_path / "matrix.zarr").id

    @pytest.mark.parametrize(("per_block", "batch"), [(1, 1), (40, 3), (1 << 20, 90)])
    def test_rows_that_are_decoded_at_once_follow_from_their_length(
        self, tmp_path, rows, table, output, monkeypatch, per_block, batch
    ):
        table = {name: list(column) for name, column in table.items()}
        table["indices"], table["values"] = [np.arange(1, 7)] * 90, [np.ones(6)] * 90
        monkeypatch.setattr(conversion_plan, "_BYTES_PER_ELEMENT", (8 << 20) // per_block)
        taken, block = [], parquet.ParquetRows._block

        def counted(reader, path, first_row, batch):
            taken.append(batch.num_rows)
            return block(reader, path, first_row, batch)

        monkeypatch.setattr(parquet.ParquetRows, "_block", counted)
        ooc_svm.convert(self.save(tmp_path / "a.parquet", table), output)
        assert max(taken) == batch
        assert sum(taken) == 90

    def test_shuffled_unsorted_and_from_zero(self, tmp_path, rows, table, output):
        table["indices"] = [row[::-1] - 1 for row in table["indices"]]
        table["values"] = [row[::-1] for row in table["values"]]
        source = self.save(tmp_path / "a.parquet", table)
        ooc_svm.convert(source, output, index_base=0, shuffle=5)
        ooc_svm.convert_matrix(*rows, tmp_path / "matrix.zarr", index_base=0, shuffle=5)
        assert open_store(output).id == open_store(tmp_path / "matrix.zarr").id

    @pytest.mark.parametrize(
        ("column", "row", "entry", "message"),
        [
            ("indices", 5, [0, 3], r"row 5, from 0, has the index 0, and 1 to .*index_base=0"),
            ("indices", 5, [3, 2**40], "row 5, from 0, has the index 1099511627776"),
            ("indices", 5, [3, 3], "row 5, from 0, has an index twice"),
            ("indices", 5, [3], "row 5, from 0, has lists of indices and values that are not of one length"),
            ("indices", 5, [3, None], "empty places in the column 'indices'"),
            ("values", 5, [1.0, float("nan")], "row 5, from 0, has the value nan, which is not finite"),
            (
                "values",
                5,
                [1.0, 1e39],
                r"value 1e\+39, which is not finite, beyond float32: use dtype='float64'",
            ),
            ("values", 5, None, "empty places in the column 'values'"),
            ("label", 5, None, "empty places in the column 'label'; give each row a number"),
        ],
    )
    def test_rows_that_break_a_rule(self, tmp_path, table, output, column, row, entry, message):
        table = {
            name: [list(e) if name != "label" else e for e in entries] for name, entries in table.items()
        }
        table["indices"][5], table["values"][5] = [1, 2], [1.0, 2.0]
        table[column][row] = entry
        source = self.save(tmp_path / "a.parquet", table)
        refused(output, InputError, message, source)

    def test_labels_that_float64_does_not_tell_apart(self, tmp_path, table, output):
        source = self.save(tmp_path / "a.parquet", table | {"label": 2**53 - 80 + np.arange(90)})
        message = (
            "a.parquet: label has an integer of 9,007,199,254,740,992 or more, 9007199254740999 in place 87"
        )
        refused(output, InputError, message, source)

    def test_qids_beyond_those_of_stores(self, tmp_path, table, output):
        qids = np.zeros(90, np.uint64)
        source = self.save(tmp_path / "a.parquet", table | {"qid": qids + np.uint64(2**63 - 1)})
        ooc_svm.convert(source, tmp_path / "largest.zarr")
        assert set(open_store(tmp_path / "largest.zarr").read_qids(0, 90).tolist()) == {2**63 - 1}
        qids[7:] = 2**63 + 5
        source = self.save(tmp_path / "a.parquet", table | {"qid": qids})
        message = "a.parquet: row 7, from 0, has the qid 9223372036854775813, and 9223372036854775807 is"
        refused(output, InputError, message, source)

    def test_columns_that_are_not_there(self, tmp_path, table, output):
        source = self.save(tmp_path / "a.parquet", {"x": [1]})
        refused(output, InputError, "has no column 'indices'", source)
        source = self.save(tmp_path / "a.parquet", table | {"indices": np.arange(90)})
        refused(output, InputError, "column 'indices' of int64; lists of numbers", source)
        other = self.save(tmp_path / "b.parquet", table | {"weight": np.ones(90)})
        source = self.save(tmp_path / "a.parquet", table)
        refused(output, InputError, "some of the files", [source, other])

    @pytest.mark.fault
    def test_damage(self, tmp_path, table, output, monkeypatch):
        source = self.save(tmp_path / "a.parquet", table)
        content = source.read_bytes()
        source.write_bytes(content[:-20])
        refused(output, DamageError, r"a.parquet cannot be read \(", source)
        source.write_bytes(content[:8] + bytes(800) + content[808:])
        refused(output, DamageError, r"a.parquet cannot be read \(", source)
        source.write_bytes(content)
        checked = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
        source = self.save(tmp_path / "a.parquet", table, **checked)
        content = bytearray(source.read_bytes())
        content[content.index(table["values"][0].tobytes())] ^= 1
        source.write_bytes(content)
        refused(output, DamageError, "CRC checksum verification failed", source)
        source = self.save(tmp_path / "a.parquet", table)
        monkeypatch.setattr(parquet, "format_size", lambda size: f"{size} bytes")
        plan = parquet.plan_conversion

        class Small:
            def __init__(self, whole):
                self.whole = whole

            def __getattr__(self, name):
                return 0 if name == "chunk_bytes" else getattr(self.whole, name)

        monkeypatch.setattr(parquet, "plan_conversion", lambda options: Small(plan(options)))
        refused(output, MemoryBudgetError, "has row groups of", source)

    def test_without_the_package(self, tmp_path, table, output, monkeypatch):
        source = self.save(tmp_path / "a.parquet", table)
        monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
        refused(
            output, InputError, r"pyarrow to read Parquet is not installed; install it: pip install", source
        )

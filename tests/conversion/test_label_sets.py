"""Sets of labels in stores: ``convert(labels="sets")``, what stores keep of them, and who reads them."""

from __future__ import annotations

import json
from dataclasses import replace

import anndata
import numpy as np
import pytest

from ooc_svm.conversion import plan as plan_module
from ooc_svm.conversion import report as report_module
from ooc_svm.conversion.convert import convert
from ooc_svm.conversion.options import ConvertOptions
from ooc_svm.conversion.plan import plan_conversion
from ooc_svm.data.label_sets import labels_of
from ooc_svm.errors import DamageError, InputError, MemoryBudgetError, UsageError
from ooc_svm.store import layout, manifest, open_store, store_info, verify_store
from ooc_svm.store.label_summary import MOST_COUNTED

SETS = [["1", "3"], [], ["3"], ["10", "2"], ["3", "1"], ["cat"], []]


def write(path, sets=SETS):
    path.write_text("".join(f"{','.join(own)} {i % 5 + 1}:1 9:0.5\n" for i, own in enumerate(sets)))
    return path


def sets_in(store):
    labels = store.read_labels(0, store.n_rows).astype(int)
    return [set(labels_of(store.label_names[label])) for label in labels]


def test_a_store_of_sets(tmp_path):
    report = convert(write(tmp_path / "a.svm"), tmp_path / "a.zarr", labels="sets")
    store = open_store(tmp_path / "a.zarr")
    assert store.label_sets
    assert report.label_sets
    assert store.label_names == report.label_names == (",", "1,3", "2,10", "3", "cat")
    assert sets_in(store) == [set(own) for own in SETS]
    assert store.labels.counts == {0.0: 2, 1.0: 2, 2.0: 1, 3.0: 1, 4.0: 1}
    assert store.label_runs == len(SETS)
    facts = store_info(store)
    assert facts["labels"] == {"1": 2, "2": 1, "3": 3, "10": 1, "cat": 1}
    assert (facts["label_sets"], facts["format_version"]) == (5, 3)
    verify_store(store.path)
    assert not report.warnings


@pytest.mark.filterwarnings("ignore:Transforming to str index")
def test_anndata_reads_the_names_of_the_sets(tmp_path):
    convert(write(tmp_path / "a.svm"), tmp_path / "a.zarr", labels="sets")
    column = anndata.read_zarr(tmp_path / "a.zarr").obs["label"]
    assert column.tolist() == ["1,3", ",", "3", "2,10", "1,3", "cat", ","]


@pytest.mark.parametrize("options", [{"threads": 3}, {"shuffle": 1}, {"group": True}, {"dtype": "float64"}])
def test_all_conversions(tmp_path, options):
    rng = np.random.default_rng(0)
    sets = [[str(k) for k in np.flatnonzero(rng.random(30) < 0.2)] for _ in range(5000)]
    text = write(tmp_path / "a.svm", sets)
    if "group" in options:
        lines = text.read_text().splitlines()
        grouped = (line.replace(" ", f" qid:{i % 7} ", 1) for i, line in enumerate(lines))
        text.write_text("\n".join(grouped))
    convert(text, tmp_path / "a.zarr", labels="sets", **options)
    store = open_store(tmp_path / "a.zarr")
    assert len(store.label_names) > MOST_COUNTED
    found, expected = sets_in(store), [set(own) for own in sets]
    if "shuffle" in options or "group" in options:
        assert found != expected
        found, expected = sorted(map(sorted, found)), sorted(map(sorted, expected))
    assert found == expected
    verify_store(store.path)


def test_other_stores_keep_their_version_and_an_older_program_refuses_sets(tmp_path, monkeypatch):
    text = write(tmp_path / "a.svm")
    convert(text, tmp_path / "sets.zarr", labels="sets")
    text.write_text("a 1:1\nb 2:1\n")
    convert(text, tmp_path / "names.zarr", labels="text")
    monkeypatch.setattr(manifest, "FORMAT_VERSION", layout.PLAIN_VERSION)
    assert open_store(tmp_path / "names.zarr").format_version == 2
    with pytest.raises(DamageError, match="has format version 3, and this program reads up to 2"):
        open_store(tmp_path / "sets.zarr")


def test_without_the_mark_the_names_are_of_classes(tmp_path):
    """The mark alone says that names are of sets: classes may have commas in their names."""
    (tmp_path / "a.svm").write_text("1,3 1:1\nb 2:1\n")
    convert(tmp_path / "a.svm", tmp_path / "a.zarr", labels="text")
    store = open_store(tmp_path / "a.zarr")
    assert not store.label_sets
    assert store.label_names == ("1,3", "b")


def test_damaged_names_are_noticed(tmp_path):
    convert(write(tmp_path / "a.svm"), tmp_path / "a.zarr", labels="sets")
    chunk = tmp_path / "a.zarr" / "obs" / "label" / "categories" / "c" / "0"
    content = bytearray(chunk.read_bytes())
    content[20] ^= 1
    chunk.write_bytes(content)
    with pytest.raises(DamageError, match="categories"):
        open_store(tmp_path / "a.zarr")


def test_a_header_that_contradicts_itself(tmp_path):
    convert(write(tmp_path / "a.svm"), tmp_path / "a.zarr", labels="sets")
    root = json.loads((tmp_path / "a.zarr" / "zarr.json").read_text())
    assert root["attributes"]["ooc_svm"]["format_version"] == 3
    root["attributes"]["ooc_svm"]["format_version"] = 4
    (tmp_path / "a.zarr" / "zarr.json").write_text(json.dumps(root))
    with pytest.raises(DamageError, match="use a newer version"):
        open_store(tmp_path / "a.zarr")


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ([["1"], ["1", "2"]], "all rows have the label '1': nothing can be learned of it"),
        ([[], []], "no row has a label; there is nothing to be trained"),
    ],
)
def test_labels_that_say_nothing_are_told(tmp_path, sets, message):
    report = convert(write(tmp_path / "a.svm", sets), tmp_path / "a.zarr", labels="sets")
    assert any(message in warning for warning in report.warnings)
    assert list(report_module.find_warnings(report)) == report.warnings


def test_the_names_are_a_part_of_the_memory(tmp_path, monkeypatch):
    text = write(tmp_path / "a.svm")
    options = ConvertOptions(tmp_path / "a.zarr", labels="sets", memory="1GB", threads=2)
    plan, without = plan_conversion(options), plan_conversion(replace(options, labels="text"))
    assert plan.names_bytes > 2 * 10**8
    assert (without.names_bytes, plan.chunk_bytes) == (0, without.chunk_bytes)
    monkeypatch.setattr(plan_module, "_NAMES_SHARE", 1e-6)
    with pytest.raises(
        MemoryBudgetError, match=r"different sets of labels take .*, and .* of the memory are"
    ):
        convert(text, tmp_path / "a.zarr", labels="sets", memory="1GB")
    assert not (tmp_path / "a.zarr").exists()


def test_bad_lines_are_left_out(tmp_path):
    (tmp_path / "a.svm").write_text("1,3 1:1\n1,,3 2:1\n2 3:1\n 1:1\n1: 4:1\n")
    report = convert(tmp_path / "a.svm", tmp_path / "a.zarr", labels="sets", bad_lines="skip")
    assert report.bad_lines == 2
    assert sets_in(open_store(tmp_path / "a.zarr")) == [{"1", "3"}, {"2"}, set()]
    assert "1,,3 2:1" in report.rejected.read_text()


def test_numbers_with_commas_name_the_option(tmp_path):
    with pytest.raises(InputError, match="or give labels='sets' for sets of labels"):
        convert(write(tmp_path / "a.svm", [["1", "3"]]), tmp_path / "a.zarr")


def test_sets_are_for_text(tmp_path):
    from scipy import sparse

    sparse.save_npz(tmp_path / "a.npz", sparse.csr_matrix(np.eye(3)))
    with pytest.raises(UsageError, match="labels is for text"):
        convert(tmp_path / "a.npz", tmp_path / "a.zarr", labels="sets")

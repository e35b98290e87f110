"""Damage is reported by the name of the file: at opening, at reading or at verification."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import zarr
from helpers.store_data import random_rows, read_all, write_store

from ooc_svm.errors import DamageError
from ooc_svm.store import open_store, verify_store
from ooc_svm.store.storage import LocalStorage

pytestmark = pytest.mark.fault


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A store to copy and damage."""
    path = tmp_path_factory.mktemp("whole") / "s"
    matrix, labels = random_rows(1, n_rows=40)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        write_store(path, matrix, labels, np.arange(40) // 3, weights=np.ones(40))
    return path


@pytest.fixture
def store(whole, tmp_path):
    return Path(shutil.copytree(whole, tmp_path / "s"))


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0x10
    path.write_bytes(content)


CHUNKS = ["X/data/c/3", "X/indices/c/0", "X/indptr/c/2", "obs/label/c/1", "obs/qid/c/0", "var/_index/c/0"]
CHUNKS += ["uns/ooc_svm/tail_indices/c/0", "uns/ooc_svm/block_rows/c/0"]


@pytest.mark.parametrize("chunk", CHUNKS)
class TestChunks:
    def test_lost(self, store, chunk):
        (store / chunk).unlink()
        with pytest.raises(DamageError, match=f"{re.escape(chunk)} is missing"):
            open_store(store)
        with pytest.raises(DamageError, match=rf"1 of \d+ chunks .*{re.escape(chunk)} \(missing\)"):
            verify_store(store)

    def test_cut(self, store, chunk):
        os.truncate(store / chunk, (store / chunk).stat().st_size - 1)
        with pytest.raises(DamageError, match=f"{re.escape(chunk)} has .* bytes"):
            open_store(store)
        with pytest.raises(DamageError, match=rf"{re.escape(chunk)} \(\d+ bytes instead of \d+\)"):
            verify_store(store)

    def test_zeroed(self, store, chunk):
        (store / chunk).write_bytes(bytes((store / chunk).stat().st_size))
        with pytest.raises(DamageError, match=f"{re.escape(chunk)} is not the one written there"):
            open_store(store)
        with pytest.raises(DamageError, match=re.escape(chunk)):
            verify_store(store)

    def test_flipped_bit_anywhere_is_found_by_verify(self, store, chunk):
        content = (store / chunk).read_bytes()
        for position in np.linspace(0, len(content) - 1, 4).astype(int):
            flip(store / chunk, position)
            with pytest.raises(DamageError, match=re.escape(chunk)):
                verify_store(store)
            (store / chunk).write_bytes(content)
        verify_store(store)


@pytest.mark.parametrize("chunk", ["X/data/c/3", "X/indices/c/0", "X/indptr/c/2", "X/indices/c/5"])
def test_flipped_bit_stops_the_read_by_name(store, chunk):
    flip(store / chunk, 20)
    opened = open_store(store)
    with pytest.raises(DamageError, match=rf"block \d+ of .*{re.escape(chunk)} cannot be decoded"):
        read_all(opened)


def test_flipped_bit_in_the_labels_stops_their_read(store):
    flip(store / "obs/label/c/1", 20)
    with pytest.raises(DamageError, match="obs/label/c/1 cannot be decoded"):
        open_store(store).read_labels(0, 40)


@pytest.mark.parametrize("name", ["X/data", "X/indices", "X/indptr", "obs/label"])
def test_swapped(store, name):
    first, second = (store / name / "c" / number for number in "12")
    first_bytes, second_bytes = first.read_bytes(), second.read_bytes()
    assert first_bytes != second_bytes
    first.write_bytes(second_bytes)
    second.write_bytes(first_bytes)
    for check in (open_store, verify_store):
        with pytest.raises(DamageError, match=f"{name}/c/1"):
            check(store)


class FarStorage(LocalStorage):
    """A place where every read takes long."""

    is_local = False


@pytest.mark.parametrize("name", ["X/data", "X/indices", "X/indptr", "obs/label"])
def test_swapped_where_opening_reads_no_chunk(store, name, monkeypatch):
    test_swapped(store, name)
    monkeypatch.setattr("ooc_svm.store.open.open_storage", FarStorage)
    reads, read = [], FarStorage.read

    def reading(self, key, *args, **options):
        reads.append(key)
        return read(self, key, *args, **options)

    monkeypatch.setattr(FarStorage, "read", reading)
    opened = open_store(store)
    assert {key for key in reads if "/c/" in key and not key.startswith("uns/ooc_svm")} == set()
    with pytest.raises(DamageError, match=f"{name}/c/1 is not the one written there"):
        opened.read_labels(0, 40) if name == "obs/label" else read_all(opened)


@pytest.mark.parametrize("name", ["X/data", "X/indices", "X/indptr"])
def test_lost_after_opening(store, name):
    opened = open_store(store)
    (store / name / "c" / "2").unlink()
    with pytest.raises(DamageError, match=f"{name}/c/2 is missing"):
        read_all(opened)


def test_extra_chunk(store):
    shutil.copy(store / "X/data/c/0", store / "X/data/c/999")
    for check in (open_store, verify_store):
        with pytest.raises(DamageError, match=r"c/999 is no chunk of X/data"):
            check(store)


def test_many_damaged_chunks_are_counted(store):
    chunks = sorted((store / "X/data/c").iterdir()) + sorted((store / "X/indices/c").iterdir())
    assert len(chunks) > 22
    for chunk in chunks:
        flip(chunk, 8)
    with pytest.raises(DamageError) as caught:
        verify_store(store)
    assert f"{len(chunks)} of" in str(caught.value)
    assert f"and {len(chunks) - 20} more" in str(caught.value)
    assert str(caught.value).count("(checksum)") == 20


def test_symbolic_links_are_refused(store, tmp_path):
    chunk = store / "X/data/c/0"
    shutil.move(chunk, tmp_path / "elsewhere")
    chunk.symlink_to(tmp_path / "elsewhere")
    for check in (open_store, verify_store):
        with pytest.raises(DamageError, match=r"X/data/c/0 is .*(symbolic link|regular file)"):
            check(store)


def test_linked_folders_are_refused(store, tmp_path):
    shutil.move(store / "X/data", tmp_path / "elsewhere")
    (store / "X/data").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DamageError, match=r"X/data is a symbolic link"):
        open_store(store)


@pytest.mark.parametrize(
    "name", ["X", "X/data", "obs", "obs/label", "uns/ooc_svm", "uns/ooc_svm/tail_indices"]
)
def test_changed_metadata(store, name):
    path = store / name / "zarr.json"
    path.write_bytes(path.read_bytes().replace(b"a", b"b", 1))
    with pytest.raises(DamageError, match=f"{name}/zarr.json was changed"):
        open_store(store)
    path.unlink()
    with pytest.raises(DamageError, match=f"{name}/zarr.json is missing"):
        open_store(store)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"[" * 10**5, b"\xff\xfe"])
def test_root_that_is_no_json(store, content):
    (store / "zarr.json").write_bytes(content)
    with pytest.raises(DamageError, match=r"zarr\.json"):
        open_store(store)


def test_manifest_that_does_not_match(store):
    for name in ("header", "chunk_sizes", "chunk_checksums"):
        chunk = store / "uns/ooc_svm" / name / "c/0"
        content = chunk.read_bytes()
        flip(chunk, 20)
        with pytest.raises(DamageError, match=f"{name}/c/0 cannot be decoded"):
            open_store(store)
        chunk.write_bytes(content)
    root = json.loads((store / "zarr.json").read_text())
    del root["attributes"]["ooc_svm"]
    (store / "zarr.json").write_text(json.dumps(root))
    with pytest.raises(DamageError, match="its root does not name it"):
        open_store(store)


def test_newer_format(store):
    root = json.loads((store / "zarr.json").read_text())
    root["attributes"]["ooc_svm"]["format_version"] = 7
    (store / "zarr.json").write_text(json.dumps(root))
    with pytest.raises(DamageError, match="format version 7, and this program reads up to 3"):
        open_store(store)


def forge_header(store: Path, change) -> None:
    """Rewrite the header of the manifest as an attacker would who knows the format."""
    array = zarr.open_array(store, path="uns/ooc_svm/header", mode="r+")
    record = json.loads(array[:].tobytes())
    change(record)
    header = json.dumps(record, sort_keys=True).encode()
    shutil.rmtree(store / "uns/ooc_svm/header")
    array = zarr.create_array(
        store, name="uns/ooc_svm/header", shape=(len(header),), chunks=(len(header),), dtype="uint8"
    )
    array[:] = np.frombuffer(header, np.uint8)
    root = json.loads((store / "zarr.json").read_text())
    root["attributes"]["ooc_svm"]["manifest_sha256"] = hashlib.sha256(header).hexdigest()
    (store / "zarr.json").write_text(json.dumps(root))


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record.update(n_rows=41),
        lambda record: record.update(n_rows="40"),
        lambda record: record.update(value_type="float64"),
        lambda record: record.update(n_features=2**40),
        lambda record: record.update(block_rows=0),
        lambda record: record.pop("labels"),
        lambda record: record["arrays"][0].update(name="../../etc"),
        lambda record: record["arrays"][0].update(chunk=0),
        lambda record: record["arrays"].append(dict(record["arrays"][0])),
        lambda record: record["metadata"].update({"/etc/passwd": 0}),
        lambda record: record["tables"].update(sizes="0"),
    ],
)
def test_forged_manifest(store, change):
    forge_header(store, lambda record: None)
    open_store(store)
    forge_header(store, change)
    with pytest.raises(DamageError, match=r"manifest of .* malformed"):
        open_store(store)


def test_forged_summary_is_found_by_verify(store):
    forge_header(store, lambda record: record["labels"].update(mean=0.5))
    with pytest.raises(DamageError, match=r"labels of .* are not those of its manifest"):
        verify_store(store)


def rewritten(store: Path, name: str, change) -> None:
    """Change an array and make the manifest agree: damage that only the rules can find."""
    array = zarr.open_array(store, path=name, mode="r+")
    content = array[:]
    change(content)
    array[:] = content
    sizes = zarr.open_array(store, path="uns/ooc_svm/chunk_sizes", mode="r+")
    checksums = zarr.open_array(store, path="uns/ooc_svm/chunk_checksums", mode="r+")

    def update(record):
        new_sizes, new_checksums = [], []
        for listed in record["arrays"]:
            for index in range(-(-listed["length"] // listed["chunk"])):
                chunk = (store / listed["name"] / "c" / str(index)).read_bytes()
                new_sizes.append(len(chunk))
                new_checksums.append(int.from_bytes(chunk[-4:], "little"))
        sizes[:], checksums[:] = new_sizes, new_checksums
        record["tables"] = {
            "sizes": hashlib.sha256(np.array(new_sizes, "<i8").tobytes()).hexdigest(),
            "checksums": hashlib.sha256(np.array(new_checksums, "<u4").tobytes()).hexdigest(),
        }

    forge_header(store, update)


def put(position, value):
    def change(content):
        content[position] = value

    return change


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("X/indices", put(9, 20), r"outside 0 .. n_features - 1 \(chunk .*X/indices/c/1\)"),
        ("X/indices", put(9, -5), r"outside 0 .. n_features - 1 \(chunk .*X/indices/c/1\)"),
        ("X/data", put(30, np.nan), r"not finite \(chunk .*X/data/c/4\)"),
        ("X/data", put(30, -np.inf), r"not finite \(chunk .*X/data/c/4\)"),
        ("X/indptr", put(7, 10**6), r"row pointers decrease or leave the block \(chunk .*X/indptr/c/1\)"),
        ("X/indptr", put(7, 0), r"row pointers decrease or leave the block \(chunk .*X/indptr/c/1\)"),
        ("X/indptr", put(0, 1), r"row pointers decrease or leave the block \(chunk .*X/indptr/c/0\)"),
        ("X/indptr", put(40, 2), r"row pointers decrease or leave the block \(chunk .*X/indptr/c/7\)"),
    ],
)
def test_rows_that_break_the_rules_are_never_given_out(store, name, change, message):
    rewritten(store, name, change)
    opened = open_store(store)
    with pytest.raises(DamageError, match=message):
        read_all(opened)
    with pytest.raises(DamageError, match=message):
        verify_store(store)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("uns/ooc_svm/tail_values", put(0, 77.0), "tail of the block"),
        ("obs/label", put(5, 9.0), "labels of"),
        ("obs/qid", put(5, -9), "negative qids"),
        ("obs/weight", put(5, -9.0), "negative weights"),
        ("obs/_index", put(5, 9), r"obs/_index/c/1 does not hold"),
        ("var/_index", put(0, 0), r"var/_index/c/0 does not hold"),
    ],
)
def test_verify_finds_what_reading_cannot(store, name, change, message):
    rewritten(store, name, change)
    open_store(store)
    with pytest.raises(DamageError, match=message):
        verify_store(store)


@pytest.mark.parametrize("name", ["block_rows", "block_nonzeros", "tail_pointers"])
def test_block_tables_that_do_not_fit(store, name):
    rewritten(store, f"uns/ooc_svm/{name}", put(-1, 10**9))
    with pytest.raises(DamageError, match="block tables of"):
        open_store(store)


def test_label_that_is_no_number(store):
    rewritten(store, "obs/label", put(5, np.nan))
    with pytest.raises(DamageError, match=r"row 5 of .* has no finite label"):
        open_store(store).read_labels(0, 40)

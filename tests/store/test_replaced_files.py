"""What is read is what was opened: a file that takes a chunk's place is never served."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import anndata
import google_crc32c
import numpy as np
import pytest
import zarr
from helpers.store_data import assert_same, random_rows, read_all, write_store
from helpers.train_data import make_anndata

from ooc_svm.errors import DamageError
from ooc_svm.store import open_store, verify, verify_store
from ooc_svm.store.encoded_chunks import EncodedChunks
from ooc_svm.store.metadata import read_array
from ooc_svm.store.storage import LocalStorage

pytestmark = pytest.mark.fault

N_ROWS = 60
COLUMNS = {"label": "labels", "qid": "qids", "weight": "weights"}


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def write_ours(path: Path, seed: int, *, ones: bool = False, overwrite: bool = False) -> None:
    """Stores of all seeds have the same row pointers, and nothing else in common."""
    matrix, labels = random_rows(1, n_rows=N_ROWS, ones=ones)
    if not ones:
        matrix.data += seed
    qids, weights = np.arange(N_ROWS) // 3 + seed, np.ones(N_ROWS) + seed
    write_store(path, matrix, labels + seed, qids, weights=weights, overwrite=overwrite)


def read(store, name: str):
    """Read an array of a store in the way that a run does."""
    column = name.removeprefix("obs/")
    if column in COLUMNS:
        return getattr(store, f"read_{COLUMNS[column]}")(0, N_ROWS)
    return read_all(store)


class TestOurs:
    @pytest.mark.parametrize("name", ["X/data", "obs/label", "obs/qid", "obs/weight"])
    def test_a_store_with_other_values_takes_its_place(self, tmp_path, name):
        write_ours(tmp_path / "s", 0)
        store = open_store(tmp_path / "s")
        write_ours(tmp_path / "s", 1, overwrite=True)
        read(open_store(tmp_path / "s"), name)  # the new one is whole
        with pytest.raises(DamageError, match=rf"{name}/c/0 .*; run again if the store was replaced"):
            read(store, name)

    @pytest.mark.parametrize("name", ["X/indices", "X/indptr"])
    def test_other_rows_take_their_place(self, tmp_path, name):
        write_ours(tmp_path / "s", 0, ones=True)
        store = open_store(tmp_path / "s")
        matrix, labels = random_rows(2, n_rows=N_ROWS, ones=True)
        write_store(tmp_path / "other", matrix, labels)
        shutil.rmtree(tmp_path / "s" / name)
        shutil.copytree(tmp_path / "other" / name, tmp_path / "s" / name)
        with pytest.raises(DamageError, match=rf"{name}/c/0 .*; run again if the store was replaced"):
            read_all(store)

    def test_a_copy_takes_its_place(self, tmp_path):
        write_ours(tmp_path / "s", 0)
        store = open_store(tmp_path / "s")
        shutil.copytree(tmp_path / "s", tmp_path / "copy")
        shutil.rmtree(tmp_path / "s")
        (tmp_path / "copy").rename(tmp_path / "s")
        assert_same(read_all(store), read_all(open_store(tmp_path / "s")))
        assert store.id == open_store(tmp_path / "s").id

    def test_another_store_takes_the_place_of_one_that_is_verified(self, tmp_path, monkeypatch):
        write_ours(tmp_path / "s", 0)
        check, replaced = verify._sizes_are_right, []

        def check_and_replace(*arguments):
            found = check(*arguments)
            write_ours(tmp_path / "s", 1, overwrite=True)
            replaced.append(True)
            return found

        monkeypatch.setattr(verify, "_sizes_are_right", check_and_replace)
        with pytest.raises(
            DamageError, match=r"not the chunk that was written there.*if the store was replaced"
        ):
            verify_store(tmp_path / "s")
        assert replaced

    @pytest.mark.parametrize("name", ["X/data", "obs/_index", "var/_index"])
    def test_damage_of_what_no_run_reads_is_found_when_it_is_opened(self, tmp_path, name):
        write_ours(tmp_path / "s", 0, ones=True)
        assert open_store(tmp_path / "s").value_type == "ones"
        chunk = tmp_path / "s" / name / "c/0"
        content = bytearray(chunk.read_bytes())
        content[len(content) // 2] ^= 1
        chunk.write_bytes(content)
        with pytest.raises(DamageError, match=rf"{name}/c/0 cannot be decoded \(its checksum"):
            open_store(tmp_path / "s")


NAMES = ["X/data", "X/indices", "X/indptr", "obs/label", "obs/qid", "obs/weight"]


@pytest.fixture
def foreign(tmp_path):
    """An AnnData store whose arrays have several chunks and no codec: other values have the same size."""
    matrix, labels = random_rows(1, n_rows=N_ROWS)
    columns = {"label": labels, "qid": np.arange(N_ROWS) // 3, "weight": np.ones(N_ROWS)}
    with anndata.settings.override(zarr_write_format=3):
        path = make_anndata(tmp_path / "a", matrix, **columns)
    for name in NAMES:
        array = zarr.open_array(path, path=name, mode="r")
        content, attributes = array[:], dict(array.attrs)
        shutil.rmtree(path / name)
        new = zarr.create_array(
            path,
            name=name,
            shape=content.shape,
            dtype=content.dtype,
            chunks=(16,),
            compressors=None,
            attributes=attributes,
        )
        new[:] = content
    return path


def put_other_values(chunk: Path) -> None:
    """Change the last element of a chunk in place."""
    content = bytearray(chunk.read_bytes())
    content[-2] ^= 1
    with chunk.open("r+b") as file:
        file.write(content)


def restore_time(chunk: Path, status: os.stat_result) -> None:
    os.utime(chunk, ns=(status.st_atime_ns, status.st_mtime_ns))


class TestForeign:
    @pytest.mark.parametrize("name", NAMES)
    def test_values_are_written_in_place(self, foreign, name):
        store, chunk = open_store(foreign), foreign / name / "c/1"
        before = chunk.stat()
        put_other_values(chunk)
        assert (chunk.stat().st_size, chunk.stat().st_ino) == (before.st_size, before.st_ino)
        with pytest.raises(DamageError, match=rf"{name}/c/1 was changed or replaced .*time of change.*; run"):
            read(store, name)

    @pytest.mark.parametrize("name", NAMES)
    def test_a_file_takes_the_place_of_a_chunk(self, foreign, name):
        store, chunk = open_store(foreign), foreign / name / "c/1"
        before = chunk.stat()
        shutil.copy(chunk, foreign.parent / "new")
        put_other_values(foreign.parent / "new")
        restore_time(foreign.parent / "new", before)
        os.replace(foreign.parent / "new", chunk)
        assert (chunk.stat().st_size, chunk.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
        with pytest.raises(DamageError, match=rf"{name}/c/1 was changed or replaced .*inode"):
            read(store, name)

    @pytest.mark.parametrize("name", ["X/data", "obs/label", "obs/qid", "obs/weight"])
    def test_other_values_are_other_data(self, foreign, name):
        """Even where all that is known of the file without reading it was put back."""
        store, chunk = open_store(foreign), foreign / name / "c/1"
        before = chunk.stat()
        put_other_values(chunk)
        restore_time(chunk, before)
        other = open_store(foreign)
        assert other.shared_id != store.shared_id
        assert other.id != store.id

    def test_a_copy_is_another_one_and_what_was_moved_is_not(self, foreign):
        store = open_store(foreign)
        foreign.rename(foreign.parent / "moved")
        assert open_store(foreign.parent / "moved").id == store.id
        copy = open_store(shutil.copytree(foreign.parent / "moved", foreign))
        assert copy.id != store.id
        assert copy.shared_id == store.shared_id  # as another machine may see the files

    def test_a_file_that_changes_while_it_is_read(self, foreign):
        storage = LocalStorage(foreign)
        version = storage.list("X/data/c")["0"]

        def change_and_make(size):
            with (foreign / "X/data/c/0").open("r+b") as file:
                file.write(b"\1")
            os.utime(foreign / "X/data/c/0", ns=(0, 0))
            return np.empty(size, np.uint8)

        assert len(storage.read("X/data/c/0", version=version)) == version.size
        with pytest.raises(DamageError, match="X/data/c/0 was changed or replaced"):
            storage.read("X/data/c/0", buffer=change_and_make, version=version)

    def test_only_arrays_without_checksums_are_named(self, foreign):
        codecs = {"X/data": [zarr.codecs.GzipCodec()], "X/indices": [zarr.codecs.BloscCodec()]}
        codecs["X/indptr"] = [zarr.codecs.ZstdCodec(checksum=True)]
        codecs["obs/qid"] = [zarr.codecs.ZstdCodec(), zarr.codecs.Crc32cCodec()]
        for name, compressors in codecs.items():
            array = zarr.open_array(foreign, path=name, mode="r")
            content, attributes = array[:], dict(array.attrs)
            shutil.rmtree(foreign / name)
            shards = {"shards": (64,)} if name == "obs/qid" else {}
            zarr.create_array(
                foreign,
                name=name,
                data=content,
                chunks=(16,),
                compressors=compressors,
                attributes=attributes,
                **shards,
            )
        remark = verify_store(foreign).remark
        assert remark == open_store(foreign).remark
        assert remark.startswith("X/indices, obs/label, obs/weight of ")
        assert remark.endswith("have no checksums: there is nothing to check their bytes against")

    def test_nothing_is_said_of_ours(self, tmp_path):
        write_ours(tmp_path / "s", 0)
        assert open_store(tmp_path / "s").remark is None
        assert verify_store(tmp_path / "s").remark is None


class TestShards:
    """An inner chunk that the index of its shard does not have is missing, as a lost file is."""

    @pytest.fixture(params=["start", "end"])
    def sharded(self, request, foreign):
        for name in NAMES:
            array = zarr.open_array(foreign, path=name, mode="r")
            content, attributes = array[:], dict(array.attrs)
            shutil.rmtree(foreign / name)
            zarr.create_array(
                foreign,
                name=name,
                data=content,
                chunks=(8,),
                shards={"shape": (32,), "index_location": request.param},
                attributes=attributes,
                config={"write_empty_chunks": True},
            )
        return foreign, request.param

    def lose(self, shard: Path, place: str, inner: int, entry: bytes = b"\xff" * 16) -> None:
        """Make the index say that an inner chunk is not there; its checksum is right."""
        content, length = bytearray(shard.read_bytes()), 4 * 16
        first = 0 if place == "start" else len(content) - length - 4
        assert content[first + 16 * inner : first + 16 * (inner + 1)] != entry
        content[first + 16 * inner : first + 16 * (inner + 1)] = entry
        checksum = google_crc32c.value(bytes(content[first : first + length]))
        content[first + length : first + length + 4] = checksum.to_bytes(4, "little")
        shard.write_bytes(content)

    def test_whole_ones_are_read(self, sharded):
        path, _ = sharded
        matrix, labels = random_rows(1, n_rows=N_ROWS)
        store = open_store(path)
        assert_same(read_all(store), matrix)
        np.testing.assert_array_equal(store.read_labels(0, N_ROWS), labels)
        np.testing.assert_array_equal(store.read_labels(3, 17), labels[3:17])

    @pytest.mark.parametrize("name", NAMES)
    def test_lost(self, sharded, name):
        path, place = sharded
        self.lose(path / name / "c/1", place, 2)
        with pytest.raises(DamageError, match=rf"{name}/c/1 .*inner chunk 2.*"):
            read(open_store(path), name)
        with pytest.raises(DamageError, match=rf"{name}/c/1 .*inner chunk 2.*"):
            verify_store(path)

    def test_lost_where_a_part_of_a_shard_is_read(self, sharded):
        path, place = sharded
        self.lose(path / "obs/weight/c/1", place, 2)
        store = open_store(path)
        with pytest.raises(DamageError, match=r"obs/weight/c/1 .*inner chunk 2"):
            store.read_weights(50, 53)

    def test_one_beyond_the_end_of_the_array_is_not_missed(self, tmp_path):
        """Writers leave out what holds no elements."""
        content = np.arange(1, 42.0)  # two inner chunks of the four of the second shard
        zarr.create_array(tmp_path / "z", name="x", data=content, chunks=(8,), shards=(32,))
        storage = LocalStorage(tmp_path / "z")
        elements = EncodedChunks(storage, read_array(storage, "x"))
        out = np.empty(41)
        elements.read_into(0, 41, out)
        np.testing.assert_array_equal(out, content)


class TestWhileItIsOpened:
    """A folder that takes the place of another one between two looks at it."""

    def opened_meanwhile(self, path, monkeypatch, act, name):
        """Open a store; something happens once a folder of this name has been listed."""
        listed, done = LocalStorage.list, []

        def list_later(storage, folder):
            found = listed(storage, folder)
            if folder == name and not done:
                done.append(act())
            return found

        monkeypatch.setattr(LocalStorage, "list", list_later)
        try:
            return open_store(path)
        finally:
            assert done

    def replace(self, path, other):
        path.rename(path.with_name("gone"))
        other.rename(path)

    def test_one_of_ours_takes_the_place_of_a_foreign_one(self, tmp_path, monkeypatch):
        """Without its manifest it would be read as another writer's: without weights, in other blocks."""
        matrix, labels = random_rows(1, n_rows=N_ROWS)
        make_anndata(tmp_path / "s", matrix, label=labels)
        write_ours(tmp_path / "other", 0)
        with pytest.raises(DamageError, match=r"s was replaced while it was opened; run again"):
            self.opened_meanwhile(
                tmp_path / "s", monkeypatch, lambda: self.replace(tmp_path / "s", tmp_path / "other"), "uns"
            )

    def test_a_store_that_is_moved_and_put_back_is_the_same(self, tmp_path, monkeypatch):
        write_ours(tmp_path / "s", 0)

        def move():
            (tmp_path / "s").rename(tmp_path / "t")
            (tmp_path / "t").rename(tmp_path / "s")

        assert self.opened_meanwhile(tmp_path / "s", monkeypatch, move, "X/indptr/c").n_rows == N_ROWS

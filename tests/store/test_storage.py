"""What a store needs of the place it lies in. Every storage keeps this contract."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from ooc_svm.errors import DamageError, InputError, StorageError
from ooc_svm.store.storage import LocalStorage, MissingError, Storage, open_storage

CONTENT = bytes(range(200))


def sizes(listed: dict) -> dict[str, int | None]:
    """Sizes of the files in a listing."""
    return {name: None if version is None else version.size for name, version in listed.items()}


class StorageContract(ABC):
    """The tests of any storage; a subclass makes one."""

    @abstractmethod
    def make(self, place: Path, files: dict[str, bytes]) -> Storage:
        """A storage that holds these files."""

    @pytest.fixture
    def storage(self, tmp_path):
        return self.make(tmp_path, {"X/data/c/0": CONTENT, "X/data/c/1": b"", "X/data/zarr.json": b"{}"})

    def test_list(self, storage):
        assert sizes(storage.list("X/data/c")) == {"0": len(CONTENT), "1": 0}
        assert sizes(storage.list("X/data")) == {"c": None, "zarr.json": 2}
        assert storage.list("X/none") == storage.list("X/data/c/0") == storage.list("X/data/c/0/0") == {}

    def test_describe(self, storage):
        assert storage.describe("X/data/c/0") == len(CONTENT)
        assert storage.describe("X/data/c/1") == 0
        for key in ("X/data/c/2", "X/data/c/0/0", "Y", "X/\0"):
            assert storage.describe(key) is None
        with pytest.raises(DamageError, match="X/data/c is a folder, not a regular file"):
            storage.describe("X/data/c")

    @pytest.mark.parametrize(
        ("start", "stop"), [(0, None), (5, None), (-7, None), (-300, None), (300, None), (3, 90), (200, 200)]
    )
    def test_read(self, storage, start, stop):
        content = storage.read("X/data/c/0", start, stop)
        assert content.dtype == np.uint8
        assert content.tobytes() == CONTENT[start:stop]

    def test_read_into_the_callers_memory(self, storage):
        memory = np.zeros(300, np.uint8)
        content = storage.read("X/data/c/0", 10, 30, buffer=lambda size: memory[5 : 5 + size])
        assert np.shares_memory(content, memory)
        assert memory.tobytes() == bytes(5) + CONTENT[10:30] + bytes(275)

    def test_bytes_are_counted(self, storage):
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda start: storage.read("X/data/c/0", start, start + 7), range(100)))
        assert storage.bytes_read == 700
        storage.describe("X/data/c/0")
        storage.announce("X/data/c/0")
        assert storage.bytes_read == 700

    def test_what_is_missing_or_short(self, storage):
        with pytest.raises(MissingError, match="X/data/c/2 is missing"):
            storage.read("X/data/c/2")
        with pytest.raises(DamageError, match="X/data/c/0 is shorter than 201 bytes"):
            storage.read("X/data/c/0", 190, 201)

    def test_announcing_is_never_an_error(self, storage):
        storage.announce("X/data/c/0")
        storage.announce("X/data/c/1")
        storage.announce("X/data/c/2")

    def test_write(self, storage):
        for content in (b"first", b"", CONTENT * 1000):
            storage.write("zarr.json", content)
            assert storage.read("zarr.json").tobytes() == content
            assert storage.describe("zarr.json") == len(content)

    def test_messages_name_the_place(self, storage):
        with pytest.raises(DamageError) as caught:
            storage.read("X/none")
        assert f"{storage.location}/X/none" in str(caught.value)


class TestLocalStorage(StorageContract):
    def make(self, place, files):
        for key, content in files.items():
            (place / key).parent.mkdir(parents=True, exist_ok=True)
            (place / key).write_bytes(content)
        return open_storage(place)

    def test_links_are_refused(self, storage, tmp_path):
        (tmp_path / "X/data/c/2").symlink_to("0")
        (tmp_path / "Y").symlink_to("X")
        for use in (storage.describe, storage.read):
            with pytest.raises(DamageError, match="X/data/c/2 is a symbolic link"):
                use("X/data/c/2")
        for use in (storage.describe, storage.list):
            with pytest.raises(DamageError, match="Y is a symbolic link"):
                use("Y/data/c")
        with pytest.raises(DamageError, match="X/data/c/2 is not a regular file"):
            storage.list("X/data/c")

    def test_a_pipe_does_not_block(self, storage, tmp_path):
        os.mkfifo(tmp_path / "X/data/c/2")
        with pytest.raises(DamageError, match="is not a regular file"):
            storage.list("X/data/c")
        for use in (storage.describe, storage.read):
            with pytest.raises(DamageError, match="X/data/c/2 is a named pipe, not a regular file"):
                use("X/data/c/2")
        with pytest.raises(DamageError, match="X/data/c/2 is a named pipe"):
            storage.describe("X/data/c/2/0")
        storage.announce("X/data/c/2")

    def test_a_folder_is_no_file(self, storage):
        with pytest.raises(DamageError, match="X/data/c is a folder, not a regular file"):
            storage.read("X/data/c", 0, 4)

    def test_failures_are_storage_errors(self, storage):
        with pytest.raises(StorageError, match="name too long"):
            storage.describe("X" * 300)
        with pytest.raises(StorageError, match=r"none/zarr\.json"):
            storage.write("none/zarr.json", b"{}")

    @pytest.mark.fault
    def test_a_write_that_fails_leaves_the_old_file(self, storage, tmp_path, monkeypatch):
        storage.write("zarr.json", b"old")

        def failing(descriptor):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", failing)
        with pytest.raises(StorageError, match="No space left"):
            storage.write("zarr.json", b"new")
        assert storage.read("zarr.json").tobytes() == b"old"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["X", "zarr.json"]

    def test_reading_costs_few_system_calls(self, storage, monkeypatch):
        calls = []
        for name in ("open", "stat", "lstat", "fstat", "preadv", "close"):
            function = getattr(os, name)
            monkeypatch.setattr(
                os, name, lambda *args, name=name, call=function: (calls.append(name), call(*args))[1]
            )
        storage.read("X/data/c/0")
        assert calls == ["open", "fstat", "fstat", "preadv", "close"]
        calls.clear()
        storage.read("X/data/c/0", 0, 4)
        assert calls == ["open", "fstat", "preadv", "close"]


def test_places_that_are_no_folder(tmp_path):
    (tmp_path / "text").write_text("1 1:1\n")
    with pytest.raises(InputError, match="is a file"):
        open_storage(tmp_path / "text")
    with pytest.raises(InputError, match="does not exist"):
        open_storage(tmp_path / "none")
    assert isinstance(open_storage(tmp_path), LocalStorage)

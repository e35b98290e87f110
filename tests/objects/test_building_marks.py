"""Marks of runs that write stores to a bucket: one run at a time, and no whole store is removed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.object_places import Place, write_small

import ooc_svm
from ooc_svm.errors import StorageError
from ooc_svm.store import object_building, open_store, sweep_store
from ooc_svm.store.layout import BUILDING, METADATA
from ooc_svm.store.object_building import ObjectBuilding
from ooc_svm.store.unpublished import UnpublishedStore
from ooc_svm.system.objects import Bucket


def begin(place: Place, name: str = "rows.zarr", *, overwrite: bool = False) -> ObjectBuilding:
    return ObjectBuilding(place.address(name), lambda _: True, overwrite=overwrite)


def replace(place: Place, local: Path) -> None:
    ooc_svm.convert(local / "rows.svm", place / "rows.zarr", overwrite=True)


def folders(place: Place) -> list[str]:
    return sorted(Bucket(place.address()).list(place.address().key)[1])


def marks_written(place: Place, first: int = 0) -> int:
    """Requests that wrote the mark of the target, from one of them on."""
    key = place.address(f"rows.zarr/{BUILDING}").key
    return sum(each.method == "PUT" and each.key == key for each in place.proxy.requests[first:])


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def at_first_copy(monkeypatch):
    """Have something done before the first copy of a run that replaces a store; the calls of it."""
    calls: list[str] = []

    def patch(action: Callable[[], None]) -> list[str]:
        copy, lock = ObjectBuilding._copy, threading.Lock()

        def copy_after(self: ObjectBuilding, key: str) -> None:
            with lock:
                calls.append(key)
                if len(calls) == 1:
                    action()
            copy(self, key)

        monkeypatch.setattr(ObjectBuilding, "_copy", copy_after)
        return calls

    return patch


# A store that is being replaced


@pytest.mark.fault
def test_the_new_store_stays_where_replacing_the_old_one_fails(place: Place, local: Path):
    write_small(local / "rows.svm", place / "rows.zarr")
    place.proxy.fault = lambda request, _: (
        403 if request.method == "PUT" and "/rows.zarr/X/indices/c/" in request.key else None
    )
    with pytest.raises(StorageError, match=r"replacing .* failed .* no whole store in ") as raised:
        replace(place, local)
    place.proxy.fault = None
    assert place.proxy.fired > 0
    assert METADATA not in place.keys("rows.zarr")
    (folder,) = set(folders(place)) - {"rows.zarr"}
    sweep = f"ooc-svm convert --sweep {place / 'rows.zarr'}"
    assert f"whole in {place / folder}: copy its objects to {place / 'rows.zarr'} after {sweep}" in str(
        raised.value
    )
    assert ooc_svm.verify_store(place / folder).n_rows == 1500
    # What the message says to do:
    assert sweep_store(place / "rows.zarr") > 1
    assert folders(place) == [folder]
    for key in place.keys(folder):
        place.put(f"rows.zarr/{key}", place.read(f"{folder}/{key}"))
    assert ooc_svm.verify_store(place / "rows.zarr").n_rows == 1500
    assert sweep_store(place / "rows.zarr") > 1
    assert folders(place) == ["rows.zarr"]


@pytest.mark.fault
def test_the_new_store_stays_where_replacing_the_old_one_is_interrupted(
    place: Place, local: Path, at_first_copy
):
    def interrupt() -> None:
        raise KeyboardInterrupt

    write_small(local / "rows.svm", place / "rows.zarr")
    calls = at_first_copy(interrupt)
    with (
        pytest.warns(UserWarning, match=r"interrupted; .* is whole in .*: copy its"),
        pytest.raises(KeyboardInterrupt),
    ):
        replace(place, local)
    assert calls
    (folder,) = set(folders(place)) - {"rows.zarr"}
    assert ooc_svm.verify_store(place / folder).n_rows == 1500


def test_the_mark_of_a_store_that_is_replaced_is_renewed(
    place: Place, local: Path, monkeypatch, at_first_copy
):
    write_small(local / "rows.svm", place / "rows.zarr")
    before, first = open_store(place / "rows.zarr").id, len(place.proxy.requests)
    monkeypatch.setattr(object_building, "RENEWED_SECONDS", 0.1)

    def look() -> None:
        wait_for(lambda: marks_written(place, first) > 3)
        with pytest.raises(StorageError, match="another run is writing"):
            begin(place, overwrite=True)

    calls = at_first_copy(look)
    replace(place, local)
    assert len(calls) > 1
    assert open_store(place / "rows.zarr").id != before
    assert folders(place) == ["rows.zarr"]
    assert BUILDING not in place.keys("rows.zarr")


@pytest.mark.fault
@pytest.mark.parametrize("renewed", [0.05, 1000.0])
def test_a_store_is_not_completed_where_another_run_has_begun(
    place: Place, local: Path, monkeypatch, at_first_copy, renewed: float
):
    write_small(local / "rows.svm", place / "rows.zarr")
    monkeypatch.setattr(object_building, "RENEWED_SECONDS", renewed)

    def is_taken() -> bool:
        place.put(f"rows.zarr/{BUILDING}", b"another run")
        return renewed > 1 or "ooc-svm-mark" not in {thread.name for thread in threading.enumerate()}

    calls = at_first_copy(lambda: wait_for(is_taken))
    with pytest.raises(StorageError, match="is another run's now") as raised:
        replace(place, local)
    assert calls
    assert METADATA not in calls
    assert "--sweep" not in str(raised.value)
    assert METADATA not in place.keys("rows.zarr")
    assert place.read(f"rows.zarr/{BUILDING}") == b"another run"


# Stores where there was none


def test_of_two_first_runs_one_begins(place: Place, monkeypatch):
    both, begun, refused = threading.Barrier(2), [], []

    class Watched(Bucket):
        def list(self, folder):
            found = super().list(folder)
            both.wait(30)
            return found

    monkeypatch.setattr(object_building, "Bucket", Watched)

    def run() -> None:
        try:
            begun.append(begin(place))
        except StorageError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(begun), len(refused)) == (1, 1)
    assert "another run is writing" in refused[0]
    begun[0].close()
    assert place.keys() == []


def test_of_two_runs_that_find_an_old_mark_one_goes_on(place: Place, monkeypatch):
    monkeypatch.setattr(object_building, "ABANDONED_SECONDS", 0)
    place.put(f"rows.zarr/{BUILDING}", b"killed")
    place.put("rows.zarr/X/data/c/0", b"left")
    remove, others = object_building.remove_all, []

    def remove_late(*arguments, **options):
        monkeypatch.setattr(object_building, "remove_all", remove)
        others.append(begin(place))
        return remove(*arguments, **options)

    monkeypatch.setattr(object_building, "remove_all", remove_late)
    with pytest.raises(StorageError, match="is another run's now"):
        begin(place)
    assert place.keys() == [f"rows.zarr/{BUILDING}"]
    others[0].publish()
    assert place.keys() == []


@pytest.mark.fault
def test_a_run_that_slept_leaves_the_place_to_the_next_one(place: Place, monkeypatch):
    slept = begin(place)
    with monkeypatch.context() as patch:
        patch.setattr(object_building, "ABANDONED_SECONDS", 0)
        other = begin(place)
    place.put("rows.zarr/X/data/c/0", b"of the other run")
    place.put(f"rows.zarr/{METADATA}", b"of the one that slept")
    with pytest.raises(StorageError, match=f"its mark {BUILDING} was removed, or is another run's now"):
        slept.publish()
    slept.close()
    assert place.keys("rows.zarr") == ["X/data/c/0", BUILDING]
    place.put(f"rows.zarr/{METADATA}", b"of the other run")
    other.publish()
    other.close()
    assert place.keys("rows.zarr") == ["X/data/c/0", METADATA]


@pytest.mark.fault
def test_a_run_that_slept_writes_no_metadata_over_a_store(place: Place, local: Path, monkeypatch):
    """The other run has published meanwhile."""
    write_small(local / "rows.svm", place / "unused.zarr")
    slept = UnpublishedStore(place / "rows.zarr", overwrite=False, threads=1)
    with monkeypatch.context() as patch:
        patch.setattr(object_building, "ABANDONED_SECONDS", 0)
        ooc_svm.convert(local / "rows.svm", place / "rows.zarr")
    written = Bucket(place.address()).read(place.address(f"rows.zarr/{METADATA}").key)
    with pytest.raises(StorageError, match="is not this run's any more"), slept.writing():
        slept.publish()
    assert Bucket(place.address()).read(place.address(f"rows.zarr/{METADATA}").key) == written
    assert open_store(place / "rows.zarr").n_rows > 0


@pytest.mark.fault
def test_a_mark_that_was_removed_is_not_written_again(place: Place, monkeypatch):
    monkeypatch.setattr(object_building, "RENEWED_SECONDS", 0.05)
    building = begin(place)
    wait_for(lambda: marks_written(place) > 2)

    def has_seen_it() -> bool:
        Bucket(place.address()).remove([place.address(f"rows.zarr/{BUILDING}").key])
        return not building._renewing.is_alive()

    wait_for(has_seen_it)
    assert place.keys("rows.zarr") == []
    with pytest.raises(StorageError, match="was removed"):
        building.publish()
    building.close()


def test_a_mark_whose_answer_was_lost_is_that_of_the_run(place: Place, monkeypatch):
    create, lost = Bucket.create, []

    def create_twice(self: Bucket, key: str, content: bytes) -> bool:
        assert create(self, key, content)
        lost.append(key)
        return create(self, key, content)

    monkeypatch.setattr(Bucket, "create", create_twice)
    building = begin(place)
    assert lost
    building.publish()
    assert place.keys() == []


@pytest.mark.parametrize("old", [False, True])
def test_a_service_that_knows_no_conditions_has_one_run_at_a_time(place: Place, monkeypatch, old):
    """It puts a mark over that of another run."""

    def create(self: Bucket, key: str, content: bytes) -> bool:
        self.write(key, content, len(content))
        return True

    monkeypatch.setattr(Bucket, "create", create)
    first = begin(place)
    place.put("rows.zarr/X/data/c/0", b"of the first run")
    if not old:
        with pytest.raises(StorageError, match="another run is writing"):
            begin(place)
        first.publish()
        return
    with monkeypatch.context() as patch:
        patch.setattr(object_building, "ABANDONED_SECONDS", 0)
        second = begin(place)
    assert place.keys("rows.zarr") == [BUILDING]
    with pytest.raises(StorageError, match="is not this run's any more"):
        first.publish()
    second.publish()


@pytest.mark.fault
def test_a_service_that_knows_no_conditions_is_written_to(
    place: Place, local: Path, monkeypatch, brief_repeating
):
    import obstore

    put, modes = obstore.put, []

    def watched(store, key, content, **options):
        if key.endswith(BUILDING):
            modes.append(options.get("mode"))
            place.proxy.fault = lambda *_: 501 if modes[-1] == "create" else None
        return put(store, key, content, **options)

    monkeypatch.setattr(obstore, "put", watched)
    write_small(local / "rows.svm", place / "rows.zarr")
    assert modes == ["create", None]
    assert place.proxy.fired > 0
    assert ooc_svm.verify_store(place / "rows.zarr").n_rows == 1500

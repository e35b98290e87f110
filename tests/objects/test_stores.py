"""Stores, text, models and checkpoints under addresses: the same bits as from a local disk."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.object_places import Place, same_models, train, write_small

import ooc_svm
from ooc_svm.errors import DamageError, InputError, StorageError, UsageError
from ooc_svm.store import open_store, sweep_store
from ooc_svm.store.layout import BUILDING
from ooc_svm.store.object_storage import PACK, keys_of_store
from ooc_svm.system.files import check_writable
from ooc_svm.system.objects import Bucket


def test_a_store_has_the_bytes_of_a_local_one(place: Place, local: Path):
    write_small(local / "rows.svm", place / "rows.zarr")
    there = {key for key in place.keys("rows.zarr") if key != PACK}
    here = {str(path.relative_to(local / "rows.zarr")) for path in (local / "rows.zarr").rglob("*")}
    assert there == {key for key in here if (local / "rows.zarr" / key).is_file()}
    assert all(place.read(f"rows.zarr/{key}") == (local / "rows.zarr" / key).read_bytes() for key in there)
    assert open_store(place / "rows.zarr").id == open_store(local / "rows.zarr").id
    assert ooc_svm.verify_store(place / "rows.zarr").n_rows == 1500


def test_every_command_from_text_to_predictions(place: Place, local: Path, text: bytes, tmp_path: Path):
    half = text.index(b"\n", len(text) // 2) + 1
    place.put("logs/a b%20.svm", text[:half])
    place.put("logs/b.svm.gz", gzip.compress(text[half:]))
    place.put("logs/other.txt", b"not of the pattern")
    ooc_svm.convert(place / "logs/*.svm*", place / "t.zarr", features=60)
    ooc_svm.convert(local / "rows.svm", tmp_path / "t.zarr", features=60)
    assert open_store(place / "t.zarr").id == open_store(tmp_path / "t.zarr").id
    model, expected = (train(each / "t.zarr") for each in (place, tmp_path))
    same_models(model, expected)
    ooc_svm.save_model(model, place / "models/m")
    loaded = ooc_svm.load_model(place / "models/m")
    assert np.array_equal(loaded.weights, expected.weights)
    ooc_svm.predict(place / "models/m", place / "logs/a b%20.svm", output=place / "labels.txt")
    labels = ooc_svm.predict(expected, tmp_path / "t.zarr")
    assert place.read("labels.txt").split() == [b"%d" % label for label in labels[: text[:half].count(b"\n")]]
    assert ooc_svm.evaluate(place / "models/m", place / "t.zarr") == ooc_svm.evaluate(
        expected, local / "rows.svm"
    )
    with pytest.raises(InputError, match="no object matches"):
        ooc_svm.convert(place / "logs/*.xz", place / "u.zarr")


def test_a_run_goes_on_from_a_checkpoint_in_a_bucket(place: Place, local: Path):
    write_small(local / "rows.svm", place / "rows.zarr")
    options = {"tol": 1e-6, "resident": 0.1}
    expected = train(local / "rows.zarr", **options)
    train(place / "rows.zarr", checkpoint=place / "states", max_passes=2, **options)
    assert len(place.keys("states")) in (2, 4)
    resumed = train(place / "rows.zarr", checkpoint=place / "states", resume=True, **options)
    same_models(resumed, expected)
    assert expected.report["passes"] > 2


def test_two_workers_that_share_a_bucket_alone(place: Place, local: Path):
    write_small(local / "rows.svm", place / "rows.zarr")
    options = {"engine": "dask", "threads": 2, "resident": 0.2}
    same_models(train(place / "rows.zarr", **options), train(local / "rows.zarr", **options))


def test_an_existing_store_is_replaced_when_the_new_one_is_complete(place: Place, local: Path):
    write_small(local / "rows.svm", place / "rows.zarr")
    with pytest.raises(UsageError, match="exists; remove it"):
        ooc_svm.convert(local / "rows.svm", place / "rows.zarr")
    before = open_store(place / "rows.zarr")
    with pytest.raises(InputError):
        ooc_svm.convert(place / "rows.zarr/zarr.json", place / "rows.zarr", overwrite=True)
    assert open_store(place / "rows.zarr").id == before.id
    ooc_svm.convert(local / "rows.svm", place / "rows.zarr", overwrite=True)
    assert open_store(place / "rows.zarr").n_chunks < before.n_chunks
    assert ooc_svm.verify_store(place / "rows.zarr").n_rows == 1500
    assert not [key for key in place.keys("") if "building" in key]
    with pytest.raises(DamageError, match=r"is missing|not the one written|shorter|cannot be decoded"):
        [before.read_block(span.index) for span in before.blocks]
    place.put("mine/notes.txt", b"notes")
    with pytest.raises(UsageError, match="not written by this program"):
        ooc_svm.convert(local / "rows.svm", place / "mine", overwrite=True)


def test_a_bucket_that_lists_half_of_its_keys(place: Place, local: Path, tmp_path: Path):
    """What is listed is checked before it is trusted: the old store stays, and nothing is left behind."""
    write_small(local / "rows.svm", place / "rows.zarr")
    before, keys = open_store(place / "rows.zarr").id, place.keys("rows.zarr")
    assert keys_of_store(Bucket(place.address()), place.address("rows.zarr")) == set(keys)

    def half(request, number):
        return "half" if request.method == "GET" and "list-type" in request.query else None

    place.proxy.fault = half
    with pytest.raises(StorageError, match=r"listing .* objects were left out, .*; .* as it was; ") as raised:
        ooc_svm.convert(local / "rows.svm", place / "rows.zarr", overwrite=True)
    assert raised.value.exit_code == 5
    place.put(f"left.zarr/{BUILDING}", b"")
    for number in range(9):
        place.put(f"left.zarr/X/data/c/{number}", b"left")
    assert sweep_store(place / "left.zarr") == 10
    place.proxy.fault = None
    assert place.proxy.fired > 5
    assert place.keys() == [f"rows.zarr/{key}" for key in keys]
    assert open_store(place / "rows.zarr").id == before
    ooc_svm.verify_store(place / "rows.zarr")


def test_leftovers_open_as_no_store_and_are_swept(place: Place, local: Path, monkeypatch):
    from ooc_svm.store.sinks import ObjectSink

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ObjectSink, "seal", killed)
        patch.setattr("ooc_svm.store.object_building.remove_all", lambda *_: 0)
        with pytest.raises(KeyboardInterrupt):
            write_small(local / "rows.svm", place / "rows.zarr")
    assert BUILDING in place.keys("rows.zarr")
    with pytest.raises(InputError, match="is not a Zarr store"):
        open_store(place / "rows.zarr")
    with pytest.raises(StorageError, match=r"another run is writing .* convert --sweep s3://"):
        write_small(local / "rows.svm", place / "rows.zarr")
    place.put("rows.zarr.notes", b"not of the store")
    assert sweep_store(place / "rows.zarr") > 30
    assert place.keys() == ["rows.zarr.notes"]
    write_small(local / "rows.svm", place / "rows.zarr")
    assert sweep_store(place / "rows.zarr") == 0
    assert open_store(place / "rows.zarr").n_rows == 1500


def test_an_old_mark_is_that_of_a_killed_run(place: Place, local: Path, monkeypatch):
    monkeypatch.setattr("ooc_svm.store.object_building.ABANDONED_SECONDS", 0)
    place.put(f"rows.zarr/{BUILDING}", b"")
    place.put("rows.zarr/X/rest/c/9", b"left")
    write_small(local / "rows.svm", place / "rows.zarr")
    assert "X/rest/c/9" not in place.keys("rows.zarr")


def test_a_damaged_chunk_is_named(place: Place, local: Path):
    write_small(local / "rows.svm", place / "rows.zarr")
    content = bytearray(place.read("rows.zarr/X/indices/c/3"))
    content[20] ^= 1
    place.put("rows.zarr/X/indices/c/3", bytes(content))
    for call in (ooc_svm.verify_store, train):
        with pytest.raises(DamageError, match="X/indices/c/3"):
            call(place / "rows.zarr")


def test_a_store_of_anndata_is_trained_on_as_it_is(place: Place, local: Path, tmp_path: Path):
    for path in (local / "rows.zarr").rglob("*"):
        if path.is_file() and "ooc_svm" not in path.parts:
            content = path.read_bytes()
            if path.parent == local / "rows.zarr":
                content = content.replace(b'"ooc_svm"', b'"of_others"')
            place.put(f"a.zarr/{path.relative_to(local / 'rows.zarr')}", content)
    store = open_store(place / "a.zarr")
    assert store.format_version is None
    assert np.array_equal(train(store).weights, train(place / "a.zarr").weights)
    for _ in range(2):
        ooc_svm.convert(place / "a.zarr", place / "b.zarr", overwrite=True)
    assert not keys_of_store(Bucket(place.address()), place.address("b.zarr")) - set(place.keys("b.zarr"))
    place.put("a.zarr/X/data/c/0", place.read("a.zarr/X/data/c/0"))
    changed = place.read("a.zarr/X/data/c/1")
    place.put("a.zarr/X/data/c/0", changed)
    with pytest.raises(DamageError, match="X/data/c/0 failed: the object was replaced after it was opened"):
        store.read_block(0)


def test_without_the_package_a_sentence_says_which_one(tmp_path: Path):
    script = (
        "import sys; sys.modules['obstore'] = None\n"
        "from ooc_svm.cli import main\n"
        "sys.argv = ['ooc-svm', 'info', 's3://bucket/a.zarr']\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 3
    assert "pip install 'ooc-svm[cloud]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_cluster_of_others_shares_the_bucket_alone(place: Place, local: Path, monkeypatch):
    """Text, store, row vectors, scratch and model: nothing is seen of the client's disk."""
    from distributed import LocalCluster

    half = (local / "rows.svm").read_bytes()
    place.put("rows.svm", half)
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    ) as cluster:
        others = {"engine": "dask", "scheduler": cluster.scheduler_address, "insecure_cluster": True}
        with place.proxy.counted() as found:
            ooc_svm.convert(place / "rows.svm", place / "rows.zarr", features=60, memory="600MB", **others)
            model = train(place / "rows.zarr", resident=0.2, **others)
    ooc_svm.convert(local / "rows.svm", local / "again.zarr", features=60, overwrite=True)
    assert open_store(place / "rows.zarr").id == open_store(local / "again.zarr").id
    same_models(model, train(local / "again.zarr", resident=0.2))
    used = {request.key.split("/")[1].rpartition("-")[0] for request in found if request.method == "PUT"}
    assert {"ooc-svm-rows", "rows.zarr.scratch"} <= used
    assert {key.split("/")[0] for key in place.keys("")} == {"rows.svm", "rows.zarr"}


def test_google_cloud_storage_is_read_and_written(place: Place, local: Path, monkeypatch):
    """By its XML interface, which is that of S3 with other headers."""
    monkeypatch.setenv("GOOGLE_BASE_URL", place.proxy.url)
    monkeypatch.setenv("GOOGLE_BEARER_TOKEN", "a-key-that-must-not-be-seen")
    there = place.url.replace("s3://", "gs://")
    for _ in range(2):
        ooc_svm.convert(local / "rows.svm", f"{there}/rows.zarr", overwrite=True)
    ooc_svm.convert(local / "rows.svm", place / "rows.zarr", overwrite=True)
    assert ooc_svm.verify_store(f"{there}/rows.zarr").n_rows == 1500
    assert open_store(f"{there}/rows.zarr").id == open_store(place / "rows.zarr").id
    expected = train(local / "rows.zarr")
    ooc_svm.save_model(expected, f"{there}/m")
    same_models(ooc_svm.load_model(f"{there}/m"), expected)
    with pytest.raises(InputError, match="no object matches"):
        ooc_svm.convert(f"{there}/*.gz", f"{there}/none.zarr")


def test_a_web_server_is_read_and_never_written(place: Place, local: Path, tmp_path: Path):
    write_small(local / "rows.svm", place / "rows.zarr")
    place.put("rows.svm", (local / "rows.svm").read_bytes())
    address = place.address()
    web = f"{place.proxy.url}/{address.bucket}/{address.key}"
    expected = train(local / "rows.zarr")
    same_models(train(f"{web}/rows.zarr"), expected)
    assert ooc_svm.evaluate(expected, f"{web}/rows.svm") == ooc_svm.evaluate(expected, local / "rows.svm")
    for write in (
        lambda: check_writable(f"{web}/m"),
        lambda: ooc_svm.save_model(expected, f"{web}/m"),
        lambda: ooc_svm.convert(local / "rows.svm", f"{web}/new.zarr"),
    ):
        with pytest.raises(UsageError, match=r"/(m|new\.zarr) is on a server that is only read"):
            write()


def test_a_file_address_is_a_path(local: Path, tmp_path: Path):
    write_small(local / "rows.svm", tmp_path / "a b.zarr")
    assert open_store(f"file://{tmp_path}/a%20b.zarr").id == open_store(local / "rows.zarr").id
    with pytest.raises(UsageError, match="is on another machine"):
        open_store("file://host/a.zarr")


def test_nothing_that_is_written_has_credentials(place: Place, local: Path, tmp_path: Path):
    place.put("rows.svm", (local / "rows.svm").read_bytes())
    ooc_svm.convert(place / "rows.svm", place / "rows.zarr")
    ooc_svm.save_model(train(place / "rows.zarr", checkpoint=place / "states"), place / "m")
    for key in place.keys(""):
        content = place.read(key)
        assert b"a-key-that-must-not-be-seen" not in content
        assert b"an-id-that-is-no-secret" not in content

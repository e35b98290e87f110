"""The cache of chunks on a local disk: what is fetched, kept, checked and dropped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.object_places import Place, same_models, train, write_small

import ooc_svm
from ooc_svm.errors import DamageError, UsageError
from ooc_svm.store import open_store


@pytest.fixture
def stored(place: Place, local: Path) -> str:
    write_small(local / "rows.svm", place / "rows.zarr")
    return place / "rows.zarr"


def element_requests(found) -> int:
    return sum("/X/indices/c/" in each.key or "/X/data/c/" in each.key for each in found)


def chunks(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*/X.*") if path.is_file())


def test_what_is_kept_is_not_fetched_again_and_changes_nothing(
    place: Place, stored: str, local: Path, tmp_path: Path
):
    folder = tmp_path / "cache"
    expected = train(local / "rows.zarr")
    with place.proxy.counted() as first:
        same_models(train(stored, cache=folder, cache_size="10MB"), expected)
    with place.proxy.counted() as second:
        same_models(train(stored, cache=folder, cache_size="10MB"), expected)
    assert element_requests(first) == len(chunks(folder)) > 20
    assert element_requests(second) == 0
    damaged = chunks(folder)[3]
    content = bytearray(damaged.read_bytes())
    content[30] ^= 4
    damaged.write_bytes(content)
    with place.proxy.counted() as third:
        same_models(train(stored, cache=folder, cache_size="10MB"), expected)
    assert element_requests(third) == 1
    assert damaged.read_bytes() != content


def test_a_chunk_that_is_another_one_is_refused_with_a_cache_too(place: Place, stored: str, tmp_path: Path):
    place.put("rows.zarr/X/data/c/0", place.read("rows.zarr/X/data/c/1"))
    with pytest.raises(DamageError, match="X/data/c/0"):
        train(stored, cache=tmp_path)


def test_a_small_cache_keeps_the_same_part_for_every_run(place: Place, stored: str, tmp_path: Path):
    from ooc_svm.store import chunk_cache

    total = sum(int(sizes.sum()) for name, (_, sizes) in open_store(stored).parts.chunk_sizes.items())
    kept = []
    for _ in range(2):
        store = open_store(stored)
        store.parts.storage.cache = chunk_cache.ChunkCache(tmp_path, store.id, total, total // 2)
        for span in store.blocks:
            store.read_block(span.index)
        kept.append(chunks(tmp_path))
    assert kept[0] == kept[1]
    assert 0.2 * total < sum(path.stat().st_size for path in kept[0]) <= 0.5 * total


def test_other_stores_make_room_unless_they_are_in_use(place: Place, stored: str, tmp_path: Path):
    from ooc_svm.store.chunk_cache import ChunkCache

    content = np.arange(4000, dtype=np.uint8)
    import google_crc32c

    chunk = content.tobytes() + google_crc32c.value(content.tobytes()).to_bytes(4, "little")
    old = ChunkCache(tmp_path, "old" * 20, 4004, 10_000)
    old.write("X/data/c/0", memoryview(chunk))
    (tmp_path / "notes.txt").write_bytes(b"of the user")
    in_use = ChunkCache(tmp_path, "new" * 20, 10_000, 10_000)
    assert len(chunks(tmp_path)) == 1
    del old, in_use
    ChunkCache(tmp_path, "third" * 20, 10_000, 10_000)
    assert chunks(tmp_path) == []
    assert (tmp_path / "notes.txt").exists()


def test_a_cache_is_for_stores_in_a_bucket(local: Path, tmp_path: Path):
    with pytest.raises(UsageError, match="is on a local disk; leave cache out"):
        train(local / "rows.zarr", cache=tmp_path)
    with pytest.raises(UsageError, match="cache_size needs cache"):
        train(local / "rows.zarr", cache_size="1GB")
    with pytest.raises(UsageError, match="in an object store, and a path on a local disk is needed"):
        train(local / "rows.zarr", cache="s3://bucket/cache")


def test_predictions_and_evaluations_keep_chunks_too(
    place: Place, stored: str, local: Path, tmp_path: Path, monkeypatch
):
    ooc_svm.save_model(train(local / "rows.zarr"), tmp_path / "m")
    folder = tmp_path / "cache"
    expected = ooc_svm.predict(tmp_path / "m", local / "rows.zarr")
    with place.proxy.counted() as first:
        assert np.array_equal(ooc_svm.predict(tmp_path / "m", stored, cache=folder), expected)
    with place.proxy.counted() as second:
        report = ooc_svm.evaluate(tmp_path / "m", stored, cache=folder, cache_size="1GB")
    assert report == ooc_svm.evaluate(tmp_path / "m", local / "rows.zarr")
    assert element_requests(first) > 20
    assert element_requests(second) == 0
    with pytest.raises(UsageError, match="cache keeps chunks of a store"):
        ooc_svm.predict(tmp_path / "m", local / "rows.svm", cache=folder)
    with pytest.raises(UsageError, match="cache_size needs cache"):
        ooc_svm.evaluate(tmp_path / "m", stored, cache_size="1GB")

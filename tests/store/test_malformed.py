"""Malformed metadata: every store opens, or is refused by an error that names it; nothing else is raised."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import time
from contextlib import suppress
from copy import deepcopy

import google_crc32c
import numpy as np
import pytest
import zarr
from helpers.anndata_data import N_ROWS, rewrite, write
from helpers.store_data import random_rows, write_store
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ooc_svm.cli.info import describe_store
from ooc_svm.errors import DamageError, InputError, OocSvmError
from ooc_svm.store import open_store, store_info, verify_store

pytestmark = pytest.mark.fault

LABELS = {"ours": [None], "2": ["label", "cell_type"], "3": ["label", "name"], "shards": ["grade"]}

# Seconds and bytes that reading a tiny store may take, whatever its metadata say.
MOST_SECONDS, MOST_BYTES = 20, 2**28


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Small stores to copy: ours, and AnnData's of version 2 and 3, and with shards."""
    place = tmp_path_factory.mktemp("whole")
    matrix, _ = random_rows(1, n_rows=N_ROWS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        provenance = {"sources": [{"name": "a.svm", "size": 5}], "counts": {"rows": N_ROWS}, "created": "now"}
        columns = {"qids": np.arange(N_ROWS) // 3, "weights": np.ones(N_ROWS)}
        write_store(place / "ours", matrix, np.ones(N_ROWS), **columns, provenance=provenance)
    write(place / "2", matrix, zarr_format=2)
    write(place / "3", matrix, name=[f"name {row}" for row in range(N_ROWS)])
    write(place / "shards", matrix)
    for name in ("data", "indices"):
        rewrite(place / "shards", f"X/{name}", getattr(matrix, name), chunks=(16,), shards=(64,))
    return place


@pytest.fixture
def copied(whole, tmp_path):
    def copy(name):
        shutil.rmtree(tmp_path / name, ignore_errors=True)
        return shutil.copytree(whole / name, tmp_path / name)

    return copy


def use(path, label):
    """All that a user can do with a store."""
    for act in (lambda: verify_store(path, label=label), lambda: open_store(path, label=label)):
        store = named(path, act)
    if store is not None:
        named(path, lambda: json.dumps(store_info(store), allow_nan=False))
        named(path, lambda: describe_store(store))  # reads the names of features, which opening does not
        named(path, lambda: store.read_block(0))
        named(path, lambda: store.read_labels(0, store.n_rows))


def named(path, act):
    """What a function returns; None if it raises one of our errors, which must name the store."""
    with suppress(OocSvmError):
        try:
            return act()
        except OocSvmError as error:
            if str(path) not in str(error):
                raise AssertionError(f"{path} is not named in: {error}") from error
            raise


def edit(path, name, change):
    record = json.loads((path / name).read_text())
    change(record)
    (path / name).write_text(json.dumps(record))


def put(*keys):
    """A change of the value at the end of a path of keys."""
    *place, last, value = keys

    def change(record):
        for key in place:
            record = record[key]
        record[last] = value

    return change


def rename(*keys):
    """A change of the name at the end of a path of keys: one bit of its first letter."""
    *place, last = keys

    def change(record):
        for key in place:
            record = record[key]
        record[chr(ord(last[0]) ^ 1) + last[1:]] = record.pop(last)

    return change


@pytest.mark.parametrize(
    ("store", "name", "change"),
    [
        ("3", "X/data/zarr.json", put("codecs", 0, "configuration", "endian", [])),
        ("3", "X/data/zarr.json", put("codecs", 1, "configuration", "level", "0")),
        ("3", "X/data/zarr.json", rename("codecs", 1, "configuration", "level")),
        ("3", "X/data/zarr.json", rename("codecs", 1, "configuration")),
        ("3", "X/data/zarr.json", rename("chunk_key_encoding")),
        ("3", "X/data/zarr.json", rename("data_type")),
        ("3", "X/data/zarr.json", put("codecs", 1, "configuration", {"level": {}})),
        ("3", "X/data/zarr.json", put("codecs", {})),
        ("3", "X/data/zarr.json", put("codecs", [[]])),
        ("3", "X/data/zarr.json", put("codecs", 0, "name", [])),
        ("3", "X/data/zarr.json", put("zarr_format", "3")),
        ("3", "X/data/zarr.json", put("shape", [-5])),
        ("3", "X/data/zarr.json", put("shape", [float("nan")])),
        ("3", "X/data/zarr.json", put("shape", [10**300])),
        ("3", "X/data/zarr.json", put("chunk_grid", "configuration", "chunk_shape", [1.5])),
        ("3", "X/data/zarr.json", put("chunk_grid", "configuration", "chunk_shape", [10**300])),
        ("3", "X/zarr.json", put("attributes", "shape", [10**300, 20])),
        ("3", "X/zarr.json", put("zarr_format", None)),
        ("3", "X/zarr.json", rename("node_type")),
        ("3", "obs/zarr.json", put("attributes", "column-order", [["label"]])),
        ("shards", "X/data/zarr.json", put("codecs", 0, "configuration", "chunk_shape", [0])),
        ("shards", "X/data/zarr.json", put("codecs", 0, "configuration", "chunk_shape", [-16])),
        ("shards", "X/data/zarr.json", put("codecs", 0, "configuration", "chunk_shape", [15])),
        ("shards", "X/data/zarr.json", put("codecs", 0, "configuration", "index_location", [])),
        ("shards", "X/data/zarr.json", put("codecs", 0, "configuration", "index_codecs", None)),
        ("shards", "X/data/zarr.json", put("codecs", 0, "configuration", [])),
        ("2", "X/data/.zarray", put("compressor", "clevel", "5")),
        ("2", "X/data/.zarray", put("compressor", "id", [])),
        ("2", "X/data/.zarray", put("compressor", [])),
        ("2", "X/data/.zarray", rename("compressor", "clevel")),
        ("2", "X/data/.zarray", rename("compressor")),
        ("2", "X/data/.zarray", put("filters", [{"id": "delta", "dtype": "O"}])),
        ("2", "X/data/.zarray", put("filters", [{"id": "delta", "dtype": 5}])),
        ("2", "X/data/.zarray", put("filters", [{"id": "delta"}])),
        ("2", "X/data/.zarray", put("filters", [{"id": "delta", "dtype": "<f4", "astype": "<<i4"}])),
        ("2", "X/data/.zarray", put("filters", [{"id": "delta", "dtype": "<f4", "astype": "<float32"}])),
        ("2", "X/data/.zarray", put("filters", [{"id": "shuffle", "elementsize": 0}])),
        ("2", "X/data/.zarray", put("filters", [{"id": "vlen-utf8"}])),
        ("2", "X/data/.zarray", put("filters", [{"id": "gzip"}] * 1000)),
        ("2", "X/data/.zarray", put("filters", "gzip")),
        ("2", "X/data/.zarray", put("dtype", "i4," * 10**5)),
        ("2", "X/data/.zarray", put("dtype", "<f16")),
        ("2", "X/.zgroup", put("zarr_format", 2.5)),
        ("ours", "uns/ooc_svm/header/zarr.json", put("codecs", 1, "configuration", "typesize", 4.5)),
        ("ours", "uns/ooc_svm/header/zarr.json", put("codecs", 1, "configuration", "clevel", "5")),
        ("ours", "uns/ooc_svm/header/zarr.json", put("codecs", 0, "configuration", {"endian": []})),
        ("ours", "uns/ooc_svm/chunk_sizes/zarr.json", put("shape", [2**61])),
        ("ours", "zarr.json", put("attributes", "ooc_svm", [])),
        ("ours", "zarr.json", put("attributes", "ooc_svm", "format_version", {})),
        ("ours", "zarr.json", put("attributes", "ooc_svm", "manifest_sha256", 5)),
    ],
)
def test_malformed_metadata_are_damage(copied, store, name, change):
    path = copied(store)
    edit(path, name, change)
    array = name.rpartition("/")[0]
    for check in (open_store, verify_store):
        with pytest.raises(DamageError) as caught:
            check(path)
        assert str(path) in str(caught.value)
        assert array in str(caught.value)


@pytest.mark.parametrize(
    "text", ["[" * 10**5, '{"a":' * 10**5, '{"zarr_format": 3, "zarr_format": 3}', "\0", "9" * 9999]
)
@pytest.mark.parametrize("name", ["zarr.json", "X/zarr.json", "X/data/zarr.json", "obs/zarr.json"])
def test_metadata_that_are_no_json(copied, name, text):
    path = copied("3")
    (path / name).write_text(text)
    with pytest.raises(DamageError, match=f"{path / name} (is not JSON|holds no JSON object)"):
        open_store(path)


def test_metadata_that_are_too_large(copied):
    path = copied("3")
    with open(path / "X/data/zarr.json", "r+b") as file:
        file.truncate(2**40)
    with pytest.raises(DamageError, match=r"X/data/zarr\.json is larger than 16 MiB"):
        open_store(path)


@pytest.mark.parametrize("index", [b"\xff" * 16, b"\0" * 16, b"\xff" * 8 + b"\0" * 8, b"\0" * 15 + b"\x7f"])
def test_shards_with_a_wrong_index(copied, index):
    path = copied("shards")
    shard = path / "X/data/c/1"
    content = bytearray(shard.read_bytes())
    content[-68:-52] = index
    content[-4:] = google_crc32c.value(bytes(content[-68:-4])).to_bytes(4, "little")
    shard.write_bytes(content)
    store = open_store(path)
    with pytest.raises(DamageError, match=f"{path}/X/data/c/1"):
        store.read_block(0)


JSON = st.one_of(
    st.sampled_from([None, True, False, 0, 1, -1, 2, 3, 16, 64, 2**31, 2**62, 2**63, 2**64, 10**400]),
    st.sampled_from([0.5, 4.5, -1.0, 1e308, float("nan"), float("inf"), float("-inf")]),
    st.sampled_from(["", "5", "gzip", "blosc", "bytes", "vlen-utf8", "delta", "pickle", "<f4", "|O", "../x"]),
    st.sampled_from([[], {}, [[]], [-1], [0], [1, 2], ["label"], {"name": "gzip"}, {"id": "lzma"}]),
    st.text(max_size=5),
)


def places(node):
    """Every (container, key) of a tree."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield node, key
        yield from places(value)


@st.composite
def mutations(draw):
    """A change of a tree: values and names replaced, removed and repeated."""

    def change(record):
        found = list(places(record))
        if not found:
            return
        node, key = found[draw(st.integers(0, len(found) - 1))]
        action = draw(st.sampled_from(["put", "put", "remove", "rename", "wrap", "nest"]))
        if action == "put":
            node[key] = deepcopy(draw(JSON))
        elif action == "remove":
            del node[key]
        elif action == "rename" and isinstance(node, dict) and key:
            bit = draw(st.integers(0, 6))
            node[chr(ord(key[0]) ^ 1 << bit) + key[1:]] = node.pop(key)
        elif action == "wrap":
            node[key] = [deepcopy(node[key]) for _ in range(draw(st.integers(1, 3)))]
        else:
            for _ in range(50):
                node[key] = [node[key]]

    return draw(st.integers(1, 3)), change


def sign(path, record):
    """Write the header of a manifest as an attacker would who knows the format."""
    header = json.dumps(record).encode()
    shutil.rmtree(path / "uns/ooc_svm/header")
    zarr.create_array(
        path, name="uns/ooc_svm/header", shape=(len(header),), chunks=(len(header),), dtype="uint8"
    )[:] = np.frombuffer(header, np.uint8)
    edit(
        path, "zarr.json", put("attributes", "ooc_svm", "manifest_sha256", hashlib.sha256(header).hexdigest())
    )


def metadata_files(path):
    """The metadata files that are read of a store."""
    files = [path / name for name in ("zarr.json", ".zgroup", ".zattrs")]
    files = [found for found in files if found.exists()]
    files += [found for folder in ("X", "obs", "uns") for found in (path / folder).rglob("*")]
    return sorted(found for found in files if found.suffix == ".json" or found.name.startswith(".z"))


@pytest.mark.parametrize("name", ["sources", "counts", "created"])
@pytest.mark.parametrize("value", [None, 5, "text", [], {}, [[]], [{"size": 10**400}], {"rows": 10**400}])
def test_whatever_the_provenance_says(copied, name, value):
    path = copied("ours")
    record = json.loads(zarr.open_array(path, path="uns/ooc_svm/header", mode="r")[:].tobytes())
    record["provenance"][name] = value
    sign(path, record)
    describe_store(open_store(path))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_whatever_the_metadata_say(copied, data):
    name = data.draw(st.sampled_from(sorted(LABELS)))
    path = copied(name)
    files = [found.relative_to(path).as_posix() for found in metadata_files(path)]
    times, change = data.draw(mutations())
    where = data.draw(st.sampled_from([*files, "header"] if name == "ours" else files))
    if where == "header":
        record = json.loads(zarr.open_array(path, path="uns/ooc_svm/header", mode="r")[:].tobytes())
    else:
        record = json.loads((path / where).read_text())
    for _ in range(times):
        change(record)
    if where == "header":
        sign(path, record)
    else:
        (path / where).write_text(json.dumps(record))
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    for label in LABELS[name]:
        use(path, label)
    assert time.monotonic() - began < MOST_SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_BYTES // 2**10


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_any_flipped_bit_of_the_metadata(copied, data):
    name = data.draw(st.sampled_from(sorted(LABELS)))
    path = copied(name)
    files = metadata_files(path)
    found = data.draw(st.sampled_from(files))
    content = bytearray(found.read_bytes())
    position = data.draw(st.integers(0, 8 * len(content) - 1))
    content[position // 8] ^= 1 << position % 8
    found.write_bytes(content)
    for label in LABELS[name]:
        use(path, label)


def test_the_stores_are_whole_before(whole):
    for name, labels in LABELS.items():
        for label in labels:
            try:
                verify_store(whole / name, label=label)
            except InputError as error:
                pytest.fail(str(error))

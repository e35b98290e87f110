"""Small files that would decode to more than the metadata say, in every codec and in every array."""

from __future__ import annotations

import bz2
import json
import lzma
import shutil
import subprocess
import sys
import zlib

import google_crc32c
import numcodecs
import numpy as np
import pytest
from helpers.anndata_data import N_ROWS, write
from helpers.store_data import random_rows, write_store

pytestmark = pytest.mark.fault

BOMB = 2**29
CHUNK = 2**20  # elements of a chunk, by the metadata: so much that no bomb's file is larger than they allow
ROOM = 2**27  # bytes of memory in addition to what reading a good store takes

# Reads stores in a process that may take little more memory than it has, and says how each of them ended.
READER = """
import json, resource, sys
from ooc_svm.store import open_store

def read(path, label):
    store = open_store(path, label=label)
    for span in store.blocks:
        store.read_block(span.index)
    store.read_labels(0, store.n_rows)
    if store.has_weight:
        store.read_weights(0, store.n_rows)

good, room, *tried = json.load(sys.stdin)
read(*good)
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + room, size + room))
for path, label in tried:
    try:
        read(path, label)
        print(json.dumps(["read", ""]), flush=True)
    except BaseException as error:
        print(json.dumps([type(error).__name__, str(error)]), flush=True)
"""


def compressed(compressor, content=b"", n_bytes=BOMB):
    """So many zeros after some content, compressed piece by piece."""
    zeros = bytes(2**20)
    pieces = [compressor.compress(content)]
    pieces += [compressor.compress(zeros) for _ in range(n_bytes // len(zeros))]
    return b"".join([*pieces, compressor.flush()])


def streamed(codec, content=b"", n_bytes=BOMB):
    """A bomb of a codec that writes as it reads."""
    compressors = {
        "gzip": lambda: zlib.compressobj(9, wbits=31),
        "zlib": lambda: zlib.compressobj(9),
        "bz2": lambda: bz2.BZ2Compressor(9),
        "lzma": lambda: lzma.LZMACompressor(preset=0),
    }
    return compressed(compressors[codec](), content, n_bytes)


def framed(codec, n_bytes=BOMB):
    """A bomb of a codec that says the size of the content before it."""
    compress = {
        "zstd": numcodecs.zstd.compress,
        "lz4": numcodecs.lz4.compress,
        "blosc": lambda content: numcodecs.blosc.compress(content, b"lz4", 5, 1),
    }
    return compress[codec](np.zeros(n_bytes, np.uint8))


def lying(codec):
    """A frame that says it has the right size, and holds more."""
    frame = bytearray(framed(codec))
    place, width = (0, 4) if codec == "lz4" else (6 - (frame[4] >> 5 & 1), (1, 2, 4, 8)[frame[4] >> 6])
    frame[place : place + width] = (4 * CHUNK).to_bytes(width, "little")
    return bytes(frame)


CODECS_3 = ["gzip", "zstd", "blosc", *(f"numcodecs.{name}" for name in ("gzip", "zlib", "bz2", "lz4"))]
CODECS_3 += ["numcodecs.zstd", "numcodecs.blosc"]
CODECS_2 = ["gzip", "zlib", "bz2", "lzma", "zstd", "lz4", "blosc"]


@pytest.fixture(scope="module")
def bombs():
    """A bomb of every codec."""
    made = {codec: streamed(codec) for codec in ("gzip", "zlib", "bz2", "lzma")}
    made |= {codec: framed(codec) for codec in ("zstd", "lz4", "blosc")}
    made |= {f"lying {codec}": lying(codec) for codec in ("zstd", "lz4")}
    made["gzip in gzip"] = compressed(zlib.compressobj(9, wbits=31), made["gzip"], 0)
    made["text"] = streamed("gzip", (5).to_bytes(4, "little"))
    made["count"] = streamed("gzip", b"\xff" * 4, 0)
    return made


def plant(folder, codecs, content):
    """Put a single chunk into an array, and say in its metadata how it is encoded."""
    path = folder / "zarr.json"
    record = json.loads(path.read_text())
    chunk, first = CHUNK, {"name": "bytes", "configuration": {"endian": "little"}}
    if record["data_type"] == "string":
        chunk, first = CHUNK // 2**14, {"name": "vlen-utf8", "configuration": {}}
    record["chunk_grid"]["configuration"]["chunk_shape"] = [chunk]
    record["codecs"] = [first, *({"name": name, "configuration": {}} for name in codecs)]
    path.write_text(json.dumps(record))
    shutil.rmtree(folder / "c")
    (folder / "c").mkdir()
    (folder / "c" / "0").write_bytes(content)


def plant_2(folder, filters, codec, content):
    """Likewise in version 2."""
    path = folder / ".zarray"
    record = json.loads(path.read_text())
    record |= {"chunks": [CHUNK], "filters": filters, "compressor": {"id": codec}}
    path.write_text(json.dumps(record))
    (folder / "0").write_bytes(content)


def plant_shard(folder, codec, content):
    """A shard whose first chunk is a bomb."""
    plant(folder, [], b"")
    path = folder / "zarr.json"
    record = json.loads(path.read_text())
    bytes_codec = record["codecs"][0]
    shard = {
        "chunk_shape": [CHUNK],
        "codecs": [bytes_codec, {"name": codec, "configuration": {}}],
        "index_codecs": [bytes_codec, {"name": "crc32c"}],
        "index_location": "end",
    }
    record["codecs"] = [{"name": "sharding_indexed", "configuration": shard}]
    record["chunk_grid"]["configuration"]["chunk_shape"] = [2 * CHUNK]
    path.write_text(json.dumps(record))
    index = np.array([0, len(content), 2**64 - 1, 2**64 - 1], "<u8").tobytes()
    checksum = google_crc32c.value(index).to_bytes(4, "little")
    (folder / "c" / "0").write_bytes(content + index + checksum)


@pytest.fixture(scope="module")
def planted(tmp_path_factory, bombs):
    """Stores with a bomb each: path, labels, and the chunk that is to be named."""
    place = tmp_path_factory.mktemp("bombs")
    matrix, _ = random_rows(1, n_rows=N_ROWS)
    write(place / "good", matrix, name=[f"name {row}" for row in range(N_ROWS)])
    write(place / "good2", matrix, zarr_format=2)
    cases = []

    def add(chunk, plant, *arguments, like="good", label="label"):
        path = place / f"{len(cases)}"
        shutil.copytree(place / like, path)
        plant(path / chunk.rpartition("/c/" if like == "good" else "/")[0], *arguments)
        cases.append((path, label, chunk, str(arguments[:2])[:40]))

    for codec in CODECS_3:
        name = codec.removeprefix("numcodecs.")
        add("X/data/c/0", plant, [codec], bombs[name])
        add("X/indices/c/0", plant_shard, codec, bombs[name])
        if f"lying {name}" in bombs:
            add("X/data/c/0", plant, [codec], bombs[f"lying {name}"])
    for codec in CODECS_2:
        add("X/data/0", plant_2, None, codec, bombs[codec], like="good2")
    add("X/data/c/0", plant, ["gzip", "gzip"], bombs["gzip in gzip"])
    add("X/data/0", plant_2, [{"id": "gzip"}], "gzip", bombs["gzip in gzip"], like="good2")
    for name in ("X/indptr", "X/indices", "obs/label", "obs/qid", "obs/weight"):
        add(f"{name}/c/0", plant, ["gzip"], bombs["gzip"])
    for label in ("cell_type", "grade"):
        for part in ("codes", "categories"):
            add(f"obs/{label}/{part}/c/0", plant, ["gzip"], bombs["gzip"], label=label)
    for text in ("gzip", "text", "count"):
        add("obs/name/c/0", plant, ["gzip"], bombs[text], label="name")
        add("obs/cell_type/categories/c/0", plant, ["gzip"], bombs[text], label="cell_type")
    write_store(place / "ours", matrix, np.ones(N_ROWS))
    for name in ("header", "chunk_sizes", "chunk_checksums"):
        path = place / f"ours-{name}"
        shutil.copytree(place / "ours", path)
        plant(path / "uns/ooc_svm" / name, ["gzip"], bombs["gzip"])
        cases.append((path, None, f"uns/ooc_svm/{name}", "gzip"))
    return place / "good", cases


def test_no_chunk_takes_more_memory_than_the_metadata_say(planted):
    good, cases = planted
    text = json.dumps([[str(good), "name"], ROOM, *([str(path), label] for path, label, *_ in cases)])
    done = subprocess.run([sys.executable, "-c", READER], input=text, capture_output=True, text=True)
    ended = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(ended) == len(cases), done.stderr
    wrong = [
        (what, chunk, *found)
        for (path, _, chunk, what), found in zip(cases, ended, strict=True)
        if found[0] != "DamageError" or f"{path}/{chunk}" not in found[1]
    ]
    assert not wrong, "\n".join(map(str, wrong))

"""A store in an object store: few requests to open it, and chunks fetched before they are needed.

Chunks of the elements of rows are read once in a stream over the data, and are forgotten when they were.
Smaller chunks belong to several blocks: the last ones are kept.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import google_crc32c
import numpy as np

from ooc_svm.errors import DamageError
from ooc_svm.store.chunk_cache import ChunkCache
from ooc_svm.store.layout import CATEGORIES, MANIFEST, METADATA
from ooc_svm.store.metadata import LARGEST_METADATA
from ooc_svm.store.storage import READ_ADVICE, Bytes, FileVersion, MissingError, NewBytes, new_bytes
from ooc_svm.system.address import Address, AnyPath
from ooc_svm.system.objects import Bucket, MissingObject, ObjectVersion

REQUESTS_AT_ONCE = 16
"""Requests in the air for each open store."""

MOST_AHEAD = 32
"""Chunks that are announced and not read yet, at most, unless there is memory for another number of them."""

KEPT_BYTES = 16 << 20
"""Bytes of chunks that are kept since several blocks need them."""

PACK = f"{MANIFEST}/header/opening"
"""Key of an object with copies of all small files that opening a store reads. Programs that read Zarr see
nothing of it. It proves nothing: what is in it is checked against the manifest, as the files are."""

# Files of metadata: read whole when they are looked for.
_METADATA = (METADATA, ".zgroup", ".zattrs", ".zarray")
# Arrays whose chunks belong to one block each.
_ELEMENTS = ("X/indices/", "X/data/")


def is_packed(key: str) -> bool:
    """Whether a file is among those that opening a store reads."""
    if key.rpartition("/")[2] == METADATA:
        return key != METADATA
    of_manifest = key.startswith(f"{MANIFEST}/") and not key.startswith(f"{MANIFEST}/tail_")
    return of_manifest or key.startswith((f"{MANIFEST}/tail_pointers/", f"{CATEGORIES}/"))


def packed(files: Mapping[str, bytes]) -> bytes:
    """The content of `PACK`: a length, as JSON the sizes of the files, the files, and a checksum."""
    header = json.dumps({key: len(content) for key, content in files.items()}).encode()
    content = b"".join([len(header).to_bytes(8, "little"), header, *files.values()])
    checksum: int = google_crc32c.value(content)
    return content + checksum.to_bytes(4, "little")


def unpacked(content: bytes) -> dict[str, memoryview]:
    """The files of a `PACK`; none where it is damaged."""
    body, view = content[:-4], memoryview(content)
    if google_crc32c.value(body) != int.from_bytes(content[-4:], "little") or len(body) < 8:
        return {}
    place = 8 + int.from_bytes(body[:8], "little")
    try:
        sizes = json.loads(body[8:place])
    except ValueError:
        return {}
    if not isinstance(sizes, dict) or not all(type(size) is int and size >= 0 for size in sizes.values()):
        return {}
    files = {}
    for key, size in sizes.items():
        files[key] = view[place : place + size]
        place += size
    return files


def keys_of_store(bucket: Bucket, place: Address) -> set[str]:
    """The keys that a store must have, as its own metadata say: its arrays have all of their chunks.

    There are none where it lacks `PACK`, or that is damaged.
    """
    try:
        files = unpacked(bytes(bucket.read((place / PACK).key)))
    except MissingObject:
        return set()
    keys = {PACK, METADATA, *files} if files else set()
    for key, content in files.items():
        metadata = json.loads(bytes(content)) if key.endswith(f"/{METADATA}") else {}
        if metadata.get("node_type") == "array":
            chunk = metadata["chunk_grid"]["configuration"]["chunk_shape"]
            grid = [range(-(-size // each)) for size, each in zip(metadata["shape"], chunk, strict=True)]
            folder = key.removesuffix(METADATA)
            keys |= {"/".join([f"{folder}c", *map(str, index)]) for index in itertools.product(*grid)}
    return keys


class ObjectStorage:
    """Objects under an address as the files of a store; see `Storage`."""

    is_local = False

    def __init__(self, address: Address) -> None:
        self.path: AnyPath = address
        self.location = str(address)
        self.bytes_read = 0
        self._address, self._bucket = address, Bucket(address)
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="object")
        self._small: dict[str, memoryview | None] = {}
        self._versions: dict[str, ObjectVersion] = {}
        self._asked_for_pack = False
        self._most_ahead = MOST_AHEAD
        self.cache: ChunkCache | None = None
        # Keys in the order that they are fetched in, as far as that has not begun: of blocks that are being
        # read, and of those ahead
        self._next: dict[str, None] = {}
        self._wanted: dict[str, None] = {}
        self._coming: dict[str, Future[memoryview]] = {}
        self._kept: OrderedDict[str, Future[memoryview]] = OrderedDict()

    def confirm(self) -> None:
        """See `Storage.confirm`. What opening has read is forgotten."""
        root = self._small.get(METADATA)
        self._small.clear()
        if root is not None and self._read_small(METADATA) != root:
            raise DamageError(f"{self.location} was replaced while it was opened; run again")

    def list(self, folder: str) -> dict[str, FileVersion | None]:
        """See `Storage.list`."""
        objects, folders = self._bucket.list(self._key(folder))
        with self._lock:
            self._versions |= {f"{folder}/{name}": version for name, version in objects.items()}
        found: dict[str, FileVersion | None] = dict.fromkeys(folders)
        return found | {name: _file_version(version) for name, version in objects.items()}

    def describe(self, key: str) -> int | None:
        """See `Storage.describe`."""
        if key.rpartition("/")[2] in _METADATA:
            content = self._small_file(key)
            return None if content is None else len(content)
        version = self._bucket.version(self._key(key))
        return None if version is None else version.size

    def read(
        self,
        key: str,
        start: int = 0,
        stop: int | None = None,
        *,
        buffer: NewBytes = new_bytes,
        version: FileVersion | None = None,
    ) -> Bytes:
        """See `Storage.read`; bytes that are in memory already are not copied to a buffer."""
        cache = self._cache_of(key)
        if cache is not None and start == 0 and stop is not None:
            found = cache.read(key, stop, buffer)
            if found is not None:
                return found
        content = self._content(key, start, stop, version)
        if stop is None:
            buffer(len(content))  # which may refuse so many
        elif len(content) < stop - start:
            raise DamageError(f"{self.location}/{key} is shorter than {stop} bytes; {READ_ADVICE}")
        return np.frombuffer(content, np.uint8)

    def _content(self, key: str, start: int, stop: int | None, version: FileVersion | None) -> memoryview:
        small = self._small_file(key) if self._is_small(key) else None
        if small is not None:
            return _part(small, start, stop)
        try:
            if start == 0 and version is None:
                return _part(self._chunk(key), 0, stop)
            return self._range(key, start, stop, version)
        except MissingObject:
            raise MissingError(f"{self.location}/{key} is missing; {READ_ADVICE}") from None

    def _range(self, key: str, start: int, stop: int | None, version: FileVersion | None) -> memoryview:
        """Some bytes of an object, which must be the version that was listed."""
        known = None if version is None else self._versions.get(key)
        if start < 0:
            known = known or self._bucket.version(self._key(key))
            size = 0 if known is None else known.size
            start, stop = max(size + start, 0), size
        content = self._bucket.read(self._key(key), start, stop, None if known is None else known.tag)
        self._count(content)
        return content

    def announce(self, key: str) -> None:
        """See `Storage.announce`. What is announced once more is read now, and goes before the others."""
        cache = self._cache_of(key)
        if cache is not None and cache.announce(key):
            return
        with self._lock:
            if not key.startswith(_ELEMENTS):
                self._begin(key)
                return
            (self._next if key in self._wanted else self._wanted)[key] = None
            self._begin_wanted()

    def limit_ahead(self, n_files: int) -> None:
        """See `Storage.limit_ahead`."""
        self._most_ahead = n_files

    def forget(self, key: str) -> bool:
        """See `Storage.forget`: copies are in the cache."""
        cache = self._cache_of(key)
        return cache is not None and cache.forget(key)

    def read_originals(self) -> None:
        """See `Storage.read_originals`: copies are in `PACK`, which is not asked for."""
        self._asked_for_pack = True

    def _cache_of(self, key: str) -> ChunkCache | None:
        return self.cache if key.startswith(_ELEMENTS) else None

    def _begin_wanted(self) -> None:
        """Fetch what is announced of elements, as far as may be held; under the lock."""
        held = sum(key.startswith(_ELEMENTS) for key in self._coming)
        while (waiting := self._next or self._wanted) and held < self._most_ahead:
            self._begin(next(iter(waiting)))
            held += 1

    def _begin(self, key: str) -> Future[memoryview]:
        """Fetch a chunk, unless it is here or on its way; under the lock."""
        self._next.pop(key, None)
        self._wanted.pop(key, None)
        coming = self._coming.get(key) or self._kept.get(key)
        if coming is None:
            coming = self._coming[key] = self._pool.submit(self._fetch, key)
        return coming

    def _fetch(self, key: str) -> memoryview:
        content = self._bucket.read(self._key(key))
        self._count(content)
        if (cache := self._cache_of(key)) is not None:
            cache.write(key, content)
        return content

    def _chunk(self, key: str) -> memoryview:
        """All of a chunk's object."""
        with self._lock:
            coming = self._begin(key)
        try:
            return coming.result()
        finally:
            with self._lock:
                self._coming.pop(key, None)
                self._begin_wanted()
                if not key.startswith(_ELEMENTS) and coming.done() and coming.exception() is None:
                    self._keep(key, coming)

    def _keep(self, key: str, coming: Future[memoryview]) -> None:
        self._kept[key] = coming
        self._kept.move_to_end(key)
        total = sum(len(each.result()) for each in self._kept.values())
        while total > KEPT_BYTES:
            total -= len(self._kept.popitem(last=False)[1].result())

    # Small files, while a store is opened

    def _is_small(self, key: str) -> bool:
        return key in self._small or key.rpartition("/")[2] in _METADATA or is_packed(key)

    def _small_file(self, key: str) -> memoryview | None:
        """A small file from what was read of such, or from its object; None if there is none."""
        if key not in self._small and not self._asked_for_pack and is_packed(key):
            self._asked_for_pack = True
            content = self._read_small(PACK)
            self._small |= {} if content is None else unpacked(bytes(content))
        if key not in self._small:
            if key.rpartition("/")[2] not in _METADATA:
                return None
            self._small[key] = self._read_small(key, LARGEST_METADATA + 1)  # a byte more is refused later
        return self._small[key]

    def _read_small(self, key: str, stop: int | None = None) -> memoryview | None:
        try:
            content = self._bucket.read(self._key(key), 0, stop)
        except MissingObject:
            return None
        self._count(content)
        return content

    def _key(self, key: str) -> str:
        return f"{self._address.key}/{key}".strip("/")

    def _count(self, content: memoryview) -> None:
        with self._lock:
            self.bytes_read += len(content)


def _part(content: memoryview, start: int, stop: int | None) -> memoryview:
    return content[start:] if stop is None else content[start:stop]


def _file_version(version: ObjectVersion) -> FileVersion:
    """A version as files have it."""
    return FileVersion(version.size, version.number, version.mtime_ns)

"""Where the files of a store that is being written go: a folder, or an object store."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from ooc_svm.store.fsync import BackgroundCalls, BackgroundSync
from ooc_svm.store.layout import METADATA
from ooc_svm.store.object_storage import PACK, is_packed, packed
from ooc_svm.store.storage import LocalStorage
from ooc_svm.system.address import Address, AnyPath
from ooc_svm.system.objects import Bucket

UPLOADS_AT_ONCE = 8
"""Chunks on their way to an object store; as many may wait."""


class Sink(Protocol):
    """Takes the files of a store; a context manager. Any thread may use it.

    What went wrong with a file is raised by a later call, at the latest by `wait`.
    """

    def write(self, key: str, *parts: bytes | memoryview) -> None:
        """Make or replace a file."""

    def read(self, key: str) -> bytes:
        """A file that was written and waited for."""

    def wait(self) -> None:
        """Return when the content of all files is safe."""

    def settle(self) -> None:
        """Return when all files are safe, with their names."""

    def seal(self, content: bytes) -> None:
        """Write the metadata of the root, which mark a complete store, after everything else."""

    def __enter__(self) -> Sink: ...

    def __exit__(self, *error: object) -> None: ...


class FolderSink:
    """A folder, which is there; after a crash of the machine files may be incomplete if not ``durable``."""

    def __init__(self, folder: Path, *, durable: bool = True) -> None:
        self._folder, self._sync = folder, BackgroundSync(durable=durable)
        self.wait = self._sync.wait

    def write(self, key: str, *parts: bytes | memoryview) -> None:
        """See `Sink`."""
        self._sync.write(self._folder, key, *parts)

    def read(self, key: str) -> bytes:
        """See `Sink`."""
        return (self._folder / key).read_bytes()

    def settle(self) -> None:
        """See `Sink`."""
        self._sync.wait()
        self._sync.sync_folders(self._folder)

    def seal(self, content: bytes) -> None:
        """See `Sink`."""
        LocalStorage(self._folder).write(METADATA, content)

    def __enter__(self) -> FolderSink:
        return self

    def __exit__(self, *error: object) -> None:
        self._sync.__exit__(*error)


class ObjectSink:
    """Objects under an address; what opening the store will read goes into one of them as well."""

    def __init__(self, address: Address) -> None:
        self._address, self._bucket = address, Bucket(address)
        self._calls = BackgroundCalls(UPLOADS_AT_ONCE, UPLOADS_AT_ONCE, drop=True)
        self._packed: dict[str, bytes] = {}
        self.wait = self._calls.wait
        self.settle = self._calls.wait

    def write(self, key: str, *parts: bytes | memoryview) -> None:
        """See `Sink`."""
        content = b"".join(parts)
        if is_packed(key):
            self._packed[key] = content
        self._calls.put(self._put, key, content)

    def _put(self, key: str, content: bytes) -> None:
        self._bucket.write((self._address / key).key, content, len(content))

    def read(self, key: str) -> bytes:
        """See `Sink`."""
        return bytes(self._bucket.read((self._address / key).key))

    def seal(self, content: bytes) -> None:
        """See `Sink`."""
        self.write(PACK, packed(self._packed))
        self.wait()
        # By a thread that is waited for before what an interrupted run has left is removed.
        self._calls.put(self._put, METADATA, content)
        self.wait()

    def __enter__(self) -> ObjectSink:
        return self

    def __exit__(self, *error: object) -> None:
        self._calls.__exit__(*error)


def sink_of(place: AnyPath, *, durable: bool = True) -> Sink:
    """The sink for a folder or an address."""
    return ObjectSink(place) if isinstance(place, Address) else FolderSink(place, durable=durable)

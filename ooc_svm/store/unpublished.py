"""A store that is being written: its folder and files, published whole or removed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from ooc_svm.errors import UsageError
from ooc_svm.store.object_building import ObjectBuilding
from ooc_svm.store.open import is_ours
from ooc_svm.store.sinks import sink_of
from ooc_svm.store.storage import WRITE_ADVICE
from ooc_svm.store.zarr_files import StoreFiles
from ooc_svm.system.address import Address, AnyPath, located
from ooc_svm.system.files import storage_errors
from ooc_svm.system.folders import Building
from ooc_svm.system.signals import uninterrupted


def _building(place: AnyPath, overwrite: bool) -> Building | ObjectBuilding:
    if isinstance(place, Address):
        return ObjectBuilding(place, is_ours, overwrite=overwrite)
    return Building(place, is_ours, overwrite=overwrite)


class UnpublishedStore:
    """The folder of a store to be, `folder`, and the `files` in it; `path` is where it will be.

    Raises UsageError where the path exists and may not be replaced, and StorageError where another run is
    writing there, or the folder cannot be written.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, overwrite: bool, threads: int, durable: bool = True
    ) -> None:
        with ExitStack() as stack:
            self._building = _building(located(path), overwrite)
            stack.callback(self._building.close)
            self.path: AnyPath = self._building.target
            self.folder: AnyPath = self._building.folder
            self.files = stack.enter_context(StoreFiles(sink_of(self.folder, durable=durable), threads))
            self._resources = stack.pop_all()
        self._is_open = True

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Name the store in what goes wrong, and close: what was not written must never be committed."""
        if not self._is_open:
            raise UsageError(f"the writer of {self.path} is closed")
        try:
            with storage_errors("writing", self.path, WRITE_ADVICE):
                yield
        except BaseException:
            self.close()
            raise

    def publish(self) -> None:
        """Put the store, which is complete, in its place."""
        self._building.confirm()
        self.files.seal()
        self._building.publish()
        self._is_open = False

    def close(self) -> None:
        """Release everything; what was not published is removed."""
        with uninterrupted():
            self._is_open = False
            self._resources.close()

"""A store that is being written to an object store, which has no locks and cannot rename.

A mark lies among the objects as long as they are no store, and is written again as long as the run lives. A
mark that has become old, or whose owner says so, is of a run that was killed: what lies there is removed.
A store that is to be replaced stays until the new one is complete: that is built next to it, and copied
inside the service.
"""

from __future__ import annotations

import os
import secrets
import shlex
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from ooc_svm.errors import StorageError, UsageError, parameter
from ooc_svm.parameters import PATH, checks
from ooc_svm.store.layout import BUILDING, METADATA
from ooc_svm.store.object_storage import keys_of_store
from ooc_svm.system.address import Address, address_of
from ooc_svm.system.objects import Bucket

RENEWED_SECONDS = 30
"""Seconds after which a run writes its mark again."""

ABANDONED_SECONDS = 300
"""Age of a mark, by the clock of the service, at which its run counts as killed."""

_CONTENT = b"A store is being written here by ooc-svm; see its documentation, convert --sweep.\n"
_COPIES_AT_ONCE = 16
# Listings that may leave out some objects before removing them fails.
_MOST_LISTINGS = 40


class ObjectBuilding:
    """The objects in which a new version of ``target`` is built; see `ooc_svm.system.folders.Building`."""

    def __init__(self, target: Address, is_ours: Callable[[Address], bool], *, overwrite: bool) -> None:
        self.target = self.folder = target
        self._bucket, self._is_ours, self._overwrite = Bucket(target), is_ours, overwrite
        self._bucket.refuse_read_only(target.key)
        self._ended = threading.Event()
        self._published = False
        objects, folders = self._bucket.list(target.key)
        complete = self._bucket.version((target / METADATA).key) is not None
        if BUILDING in objects and not complete:
            self._refuse_running()
            self._bucket.check_writable((target / BUILDING).key)
            remove_all(self._bucket, target)
        elif objects or folders or complete:
            self._refuse_existing()
            self.folder = target.with_name(f"{target.name}.building-{secrets.token_hex(8)}")
        self._write_mark(self.folder)
        threading.Thread(target=self._renew, daemon=True, name="ooc-svm-mark").start()

    def _refuse_existing(self) -> None:
        if not self._overwrite:
            raise UsageError(
                f"{self.target} exists; remove it, choose another name, or replace it with "
                f"{parameter('overwrite', True)}"
            )
        if not self._is_ours(self.target):
            raise UsageError(
                f"{self.target} exists and was not written by this program, so it is not overwritten; "
                "remove it or choose another name"
            )

    def _refuse_running(self) -> None:
        target, age = self.target, mark_age(self._bucket, self.target)
        if age is not None and age < ABANDONED_SECONDS:
            sweep = f"ooc-svm convert --sweep {shlex.quote(str(target))}"
            raise StorageError(
                f"another run is writing {target}, or was killed {age:.0f} s ago; wait for it, choose "
                f"another name, or remove what it has left: {sweep}"
            )

    def _write_mark(self, folder: Address) -> None:
        self._bucket.write((folder / BUILDING).key, _CONTENT, len(_CONTENT))

    def _renew(self) -> None:
        while not self._ended.wait(RENEWED_SECONDS):
            try:
                self._write_mark(self.folder)
            except StorageError:  # the writer of chunks meets the same, and says so
                continue

    def publish(self) -> None:
        """Make the objects, which are all there, the store under the target."""
        if self.folder == self.target:
            self._end()
        else:
            self._replace()
        self._published = True

    def _replace(self) -> None:
        self._refuse_running()
        old, new = (complete_listing(self._bucket, place) for place in (self.target, self.folder))
        self._write_mark(self.target)
        self._bucket.remove([(self.target / METADATA).key])
        with ThreadPoolExecutor(_COPIES_AT_ONCE, thread_name_prefix="copy") as pool:
            list(pool.map(self._copy, new - {METADATA, BUILDING}))
        self._bucket.remove([(self.target / key).key for key in old - new])
        self._copy(METADATA)
        self._end()
        self._bucket.remove([(self.target / BUILDING).key])
        remove_all(self._bucket, self.folder)

    def _copy(self, key: str) -> None:
        self._bucket.copy((self.folder / key).key, (self.target / key).key)

    def _end(self) -> None:
        """Remove the mark of the run."""
        self._ended.set()
        self._bucket.remove([(self.folder / BUILDING).key])

    def close(self) -> None:
        """Remove everything unless it was published."""
        self._ended.set()
        if not self._published:
            self._published = True
            remove_all(self._bucket, self.folder)


def mark_age(bucket: Bucket, place: Address) -> float | None:
    """Seconds since a mark was written, by the clock of the service; None without a mark."""
    mark = bucket.version((place / BUILDING).key)
    if mark is None:
        return None
    probe = (place.with_name(f"{place.name}.clock-{secrets.token_hex(8)}")).key
    bucket.write(probe, b"", 0)
    now = bucket.version(probe)
    bucket.remove([probe])
    return None if now is None else (now.mtime_ns - mark.mtime_ns) / 1e9


def complete_listing(bucket: Bucket, place: Address) -> set[str]:
    """Keys of the objects of a store, from its address on; StorageError where the service leaves some out."""
    found = {key[len(place.key) + 1 :] for key in bucket.walk(place.key)}
    expected = keys_of_store(bucket, place)
    if missing := sorted(expected - found):
        raise StorageError(
            f"listing {place} failed: {len(missing)} of its {len(expected)} objects were left out, the first "
            f"is {missing[0]}; the store that was there is as it was; see that these credentials may list "
            "the bucket, then run again"
        )
    return found


def remove_all(bucket: Bucket, place: Address) -> int:
    """Remove all objects under an address, the mark last; return their number.

    The service lists them again until it names none: it may leave some out.
    """
    mark, removed = (place / BUILDING).key, 0
    for _ in range(_MOST_LISTINGS):
        listed = bucket.walk(place.key)
        if not listed:
            return removed
        keys = [key for key in listed if key != mark] or [mark]
        bucket.remove(keys)
        removed += len(keys)
    raise StorageError(
        f"removing {place} failed: the service lists objects that were removed; remove the rest later: "
        f"ooc-svm convert --sweep {place}"
    )


@checks(path=PATH)
def sweep_store(path: str | os.PathLike[str]) -> int:
    """Remove what killed runs have left of a store in an object store.

    Only what carries the mark of such a run is removed, whether the run lives or not. A complete store stays.

    Parameters
    ----------
    path : path
        The address of the store.

    Returns
    -------
    int
        Number of objects that were removed.

    Raises
    ------
    UsageError
        The path is on a local disk, where the next run on the same path removes what is left, or on a server
        that is only read.
    StorageError
        Listing or removing failed.
    """
    target = address_of(path)
    if target is None:
        raise UsageError(
            f"{os.fspath(path)} is on a local disk, where the next run on the same path removes what a "
            f"killed one has left; leave {parameter('sweep', True)} out"
        )
    bucket = Bucket(target)
    bucket.refuse_read_only(target.key)
    siblings = bucket.list(target.parent.key)[1]
    beside = [name for name in siblings if name.startswith(f"{target.name}.building-")]
    places = [target, *map(target.with_name, beside)]
    removed = 0
    for place in places:
        objects = bucket.list(place.key)[0]
        if BUILDING not in objects:
            continue
        complete = bucket.version((place / METADATA).key) is not None
        if complete and place == target:  # the run was killed before it removed its mark
            bucket.remove([(place / BUILDING).key])
            removed += 1
        else:
            removed += remove_all(bucket, place)
    return removed

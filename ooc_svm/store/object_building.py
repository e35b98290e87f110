"""A store that is being written to an object store, which has no locks and cannot rename.

A mark lies among the objects as long as they are no store, and is written again as long as the run lives. It
names the run: one that finds the mark of another in place of its own has lost the place, and ends.
A mark that has become old, or whose owner says so, is of a run that was killed: what lies there is removed.
A store that is to be replaced stays until the new one is complete: that is built next to it, and copied
inside the service. If copying fails, the new one stays where it is.
"""

from __future__ import annotations

import os
import secrets
import shlex
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

from ooc_svm.errors import StorageError, UsageError, parameter
from ooc_svm.parameters import PATH, checks
from ooc_svm.store.layout import BUILDING, METADATA
from ooc_svm.store.object_storage import keys_of_store
from ooc_svm.system.address import Address, address_of
from ooc_svm.system.folders import refuse_to_replace
from ooc_svm.system.objects import Bucket, MissingObject

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
        self._bucket = Bucket(target)
        self._bucket.refuse_read_only(target.key)
        self._mark = b"%sRun %s\n" % (_CONTENT, secrets.token_hex(16).encode())
        self._ended = threading.Event()
        self._published = self._is_lost = self._keeps_new = False
        objects, folders = self._bucket.list(target.key)
        complete = self._bucket.version((target / METADATA).key) is not None
        if complete or ((objects or folders) and BUILDING not in objects):
            refuse_to_replace(target, overwrite, is_ours)
            self.folder = target.with_name(f"{target.name}.building-{secrets.token_hex(8)}")
        took_over = self._claim(self.folder)
        self._marked = [self.folder]
        self._renewing = threading.Thread(target=self._renew, daemon=True, name="ooc-svm-mark")
        self._renewing.start()
        if took_over:
            try:
                remove_all(self._bucket, target, but_mark=True)
                self._confirm(target)  # two runs may have found the old mark at the same time
            except BaseException:
                self._ended.set()
                raise

    def _claim(self, place: Address) -> bool:
        """Put the mark of this run; whether it replaces that of a killed one.

        StorageError where another run has a mark there and may live.
        """
        # Looked at first: a service may know no condition, and put the mark over another one.
        found = self._mark_in(place)
        if found is None:
            if self._bucket.create((place / BUILDING).key, self._mark):
                return False
            found = self._mark_in(place)
        if found == self._mark:  # the answer to making it was lost
            return False
        self._refuse_running()
        if found is None or self._mark_in(place) != found:
            raise self._running(0)
        self._write_mark(place)
        return True

    def _refuse_running(self) -> None:
        age = mark_age(self._bucket, self.target)
        if age is not None and age < ABANDONED_SECONDS:
            raise self._running(age)

    def _running(self, age: float) -> StorageError:
        return StorageError(
            f"another run is writing {self.target}, or was killed {age:.0f} s ago; wait for it, choose "
            f"another name, or remove what it has left: {_sweep_command(self.target)}"
        )

    def _mark_in(self, place: Address) -> bytes | None:
        try:
            return bytes(self._bucket.read((place / BUILDING).key))
        except MissingObject:
            return None

    def confirm(self) -> None:
        """StorageError if another run writes to `folder` by now: no metadata may make its chunks a store."""
        self._confirm(self.folder)

    def _confirm(self, place: Address) -> None:
        """StorageError if a mark is not that of this run any more."""
        if self._mark_in(place) != self._mark:
            raise self._lost(place)

    def _lost(self, place: Address) -> StorageError:
        self._is_lost = True
        return StorageError(
            f"{place} is not this run's any more: its mark {BUILDING} was removed, or is another run's now, "
            f"as after a pause of {ABANDONED_SECONDS} s; wait for that run or choose another name, then run "
            "again"
        )

    def _write_mark(self, place: Address) -> None:
        self._bucket.write((place / BUILDING).key, self._mark, len(self._mark))

    def _renew(self) -> None:
        while not self._ended.wait(RENEWED_SECONDS):
            for place in tuple(self._marked):
                if self._ended.is_set():
                    return
                with suppress(StorageError):  # the writer of chunks meets the same, and says so
                    if self._mark_in(place) != self._mark:
                        self._is_lost = True
                        return
                    self._write_mark(place)

    def _stop_renewing(self) -> None:
        """Return when no mark will be written any more."""
        self._ended.set()
        self._renewing.join()

    def publish(self) -> None:
        """Make the objects, which are all there, the store under the target.

        StorageError if that fails, or another run writes there by now. Where it fails while a store is being
        replaced, the new one stays in `folder`.
        """
        if self.folder == self.target:
            self._check_whole()
        else:
            self._replace()
        self._stop_renewing()
        self._bucket.remove([(self.target / BUILDING).key])
        if self.folder != self.target:
            remove_all(self._bucket, self.folder)
        self._published = True

    def _check_whole(self) -> None:
        """StorageError if another run has begun among the objects of this one."""
        found = self._mark_in(self.target)
        if found != self._mark:
            if found is not None:  # the other run is not complete: no metadata may say so
                self._bucket.remove([(self.target / METADATA).key])
            raise self._lost(self.target)

    def _replace(self) -> None:
        self._refuse_running()
        old, new = (complete_listing(self._bucket, place) for place in (self.target, self.folder))
        self._claim(self.target)
        self._marked.append(self.target)
        with self._keeping_new():
            self._bucket.remove([(self.target / METADATA).key])
            with ThreadPoolExecutor(_COPIES_AT_ONCE, thread_name_prefix="copy") as pool:
                list(pool.map(self._copy, new - {METADATA, BUILDING}))
            self._confirm(self.target)
            self._bucket.remove([(self.target / key).key for key in old - new])
            self._copy(METADATA)

    @contextmanager
    def _keeping_new(self) -> Iterator[None]:
        """While the target is no store: what ends this leaves the new one, which is whole, and names it."""
        self._keeps_new = True
        target, folder = self.target, self.folder
        kept = f"there is no whole store in {target} now, and the new one is whole in {folder}"
        advice = f": copy its objects to {target} after {_sweep_command(target)}, or convert again"
        try:
            yield
        except OSError as error:
            # Sweeping would remove what another run writes.
            advice = "" if self._is_lost else advice
            raise StorageError(f"replacing {target} failed ({error}); {kept}{advice}") from error
        except BaseException:
            warnings.warn(f"replacing {target} was interrupted; {kept}{advice}", stacklevel=2)
            raise
        self._keeps_new = False

    def _copy(self, key: str) -> None:
        if self._is_lost:
            raise self._lost(self.target)
        self._bucket.copy((self.folder / key).key, (self.target / key).key)

    def close(self) -> None:
        """Remove everything unless it was published, is the only whole store, or is another run's by now."""
        self._stop_renewing()
        if not self._published and not self._keeps_new:
            self._published = True
            if self._mark_in(self.folder) == self._mark:
                remove_all(self._bucket, self.folder)


def _sweep_command(target: Address) -> str:
    return f"ooc-svm convert --sweep {shlex.quote(str(target))}"


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


def remove_all(bucket: Bucket, place: Address, *, but_mark: bool = False) -> int:
    """Remove all objects under an address, the mark last or not at all; return their number.

    The service lists them again until it names none: it may leave some out.
    """
    mark, removed = (place / BUILDING).key, 0
    for _ in range(_MOST_LISTINGS):
        listed = bucket.walk(place.key)
        keys = [key for key in listed if key != mark] or ([] if but_mark else listed)
        if not keys:
            return removed
        bucket.remove(keys)
        removed += len(keys)
    raise StorageError(
        f"removing {place} failed: the service lists objects that were removed; remove the rest later: "
        f"{_sweep_command(place)}"
    )


@checks(path=PATH)
def sweep_store(path: str | os.PathLike[str]) -> int:
    """Remove what killed runs have left of a store in an object store.

    Only what carries the mark of such a run is removed, whether the run lives or not. A complete store stays,
    and so does a new version that is complete while there is no complete store under the address.

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
    is_store = bucket.version((target / METADATA).key) is not None
    for place in places:
        if BUILDING not in bucket.list(place.key)[0]:
            continue
        if place == target and is_store:  # the run was killed before it removed its mark
            bucket.remove([(place / BUILDING).key])
            removed += 1
        elif is_store or bucket.version((place / METADATA).key) is None:
            removed += remove_all(bucket, place)
    return removed

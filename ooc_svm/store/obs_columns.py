"""`ObsColumns`: columns written into ``obs`` of an AnnData store that is there already, whole or not at all.

The arrays are written to a private folder next to the store, forced to the disk and renamed into it; then the
list of columns gets them. A column that is replaced leaves the list first. So whenever a run is killed, every
column that is listed is whole: the new one, the old one, or it is not listed. Consolidated metadata are a
second list, for which the same holds.
"""

from __future__ import annotations

import fcntl
import json
import os
import unicodedata
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from ooc_svm.errors import DamageError, InputError, StorageError, UsageError, parameter, shown
from ooc_svm.store.layout import (
    ARRAY_ATTRIBUTES,
    CATEGORICAL_ATTRIBUTES,
    CHUNK_ROWS,
    METADATA,
    STRING_ATTRIBUTES,
)
from ooc_svm.store.metadata import read_group, read_json
from ooc_svm.store.open import has_manifest
from ooc_svm.store.storage import WRITE_ADVICE, LocalStorage
from ooc_svm.system import private_folders
from ooc_svm.system.descriptors import close_unwritten
from ooc_svm.system.files import status_of, storage_errors, sync_folder
from ooc_svm.system.signals import uninterrupted

if TYPE_CHECKING:
    import zarr

MAX_NAME_BYTES = 200
"""Longest name of a column, in bytes of UTF-8: it becomes that of a folder."""

_SUFFIX = ".columns"


class ObsColumns:
    """New columns of a store; a context manager, which removes what was not committed.

    ``columns`` has the categories of each, None for a column of float64: such a one is appended as numbers,
    another as places in its categories. Columns with the name of one of ``kinds``, or one that goes on with
    an underscore, belong to those that are replaced. UsageError if a column is there and may not be replaced,
    or another one that belongs to it would be left, or the store has a manifest, which would not list them.
    StorageError if another run writes columns of the store.
    """

    def __init__(
        self,
        path: Path,
        n_rows: int,
        columns: Mapping[str, Sequence[str] | None],
        *,
        overwrite: bool,
        kinds: tuple[str, ...] = (),
    ) -> None:
        self._path, self._n_rows, self._columns = path, n_rows, columns
        self._storage = LocalStorage(path)
        if has_manifest(path):
            raise UsageError(
                f"{path} has a manifest of all its columns, so none is added; write to a file instead "
                f"({parameter('output')})"
            )
        self._format: Literal[2, 3] = 3 if self._storage.describe(f"obs/{METADATA}") is not None else 2
        self._check_names(overwrite, kinds)
        with ExitStack() as stack, self._errors():
            self._lock(stack)
            self._folder = stack.enter_context(private_folders.made(path.parent, f".{path.name}.", _SUFFIX))
            # Zarr goes on where waiting for it is interrupted: it ends before the folder is removed.
            self._zarr = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="columns"))
            created = {name: self._zarr.submit(self._create, name, own) for name, own in columns.items()}
            self._arrays = {name: array.result() for name, array in created.items()}
            self._resources = stack.pop_all()
        self._waiting: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in columns}
        self._done = self._count = 0

    @contextmanager
    def _errors(self) -> Iterator[None]:
        with storage_errors("writing", self._path, WRITE_ADVICE):
            yield

    def _lock(self, stack: ExitStack) -> None:
        """Keep other runs from writing columns."""
        descriptor = os.open(self._path / "obs", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(close_unwritten, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StorageError(f"another run writes columns of {self._path}; wait for it") from None
        private_folders.sweep(self._path.parent, f".{self._path.name}.", _SUFFIX)

    def _order(self) -> list[str]:
        attributes = read_group(self._storage, "obs")
        order = None if attributes is None else attributes.get("column-order")
        if not isinstance(order, list) or not all(isinstance(name, str) for name in order):
            raise DamageError(f"obs of {self._path} has no list of columns; the store is damaged")
        return order

    def _check_names(self, overwrite: bool, kinds: tuple[str, ...]) -> None:
        index = (read_group(self._storage, "obs") or {}).get("_index")
        for name in self._columns:
            if "/" in name or name in ("", ".", "..", "_index", index) or name.startswith((".", "__")):
                raise UsageError(f"{shown(name)} cannot be the name of a column of obs; choose another one")
            if len(name.encode()) > MAX_NAME_BYTES:
                raise UsageError(f"the name {shown(name)} of a column is too long; choose another one")
        order = self._order()
        there = [name for name in self._columns if name in order]
        if there and not overwrite:
            raise UsageError(
                f"{self._path} has a column {shown(there[0])} in obs already; choose another name, or "
                f"replace it ({parameter('overwrite', True)})"
            )
        others = (name for name in order if name not in self._columns)
        left = [each for each in others if any(each == kind or each.startswith(f"{kind}_") for kind in kinds)]
        if there and left:
            raise UsageError(
                f"{self._path} has a column {shown(left[0])} in obs, which belongs to {shown(there[0])} and "
                "would be left as it is: write it as well, choose another name, or remove it"
            )

    def _create(self, name: str, categories: Sequence[str] | None) -> zarr.Array[Any]:
        """Create the arrays of a column; returns that with an entry for each row."""
        import zarr

        with warnings.catch_warnings(action="ignore"):  # Zarr on its own plans
            if categories is None:
                return self._array(name, (self._n_rows,), np.float64)
            group = zarr.create_group(self._folder / name, zarr_format=self._format)
            group.update_attributes(CATEGORICAL_ATTRIBUTES)
            kinds = (np.int8, np.int16, np.int32)
            kind = next(kind for kind in kinds if len(categories) <= np.iinfo(kind).max)
            names = self._array(f"{name}/categories", (len(categories),), str)
            names[:] = np.array(categories, object)
            return self._array(f"{name}/codes", (self._n_rows,), kind)

    def _array(self, name: str, shape: tuple[int], dtype: Any) -> zarr.Array[Any]:
        import zarr

        return zarr.create_array(
            self._folder / name,
            shape=shape,
            chunks=(max(min(shape[0], CHUNK_ROWS), 1),),
            dtype=dtype,
            zarr_format=self._format,
            attributes=STRING_ATTRIBUTES if dtype is str else ARRAY_ATTRIBUTES,
            config={"write_empty_chunks": True},
        )

    def append(self, entries: Mapping[str, npt.NDArray[Any]]) -> None:
        """Append the entries of the next rows to each column."""
        for name, own in entries.items():
            self._waiting[name].append(np.array(own))
        self._count += len(own)
        if self._count - self._done >= CHUNK_ROWS:
            self._flush(self._count - self._count % CHUNK_ROWS)

    def _flush(self, stop: int) -> None:
        """Write the entries up to a row: whole chunks, or all that is left."""
        with self._errors():
            for name, parts in self._waiting.items():
                entries = np.concatenate(parts)
                rows = slice(self._done, stop)
                self._zarr.submit(self._arrays[name].__setitem__, rows, entries[: stop - self._done]).result()
                parts[:] = [entries[stop - self._done :]]
        self._done = stop

    def commit(self) -> None:
        """Write what is left, and make the columns appear in the store."""
        if self._count != self._n_rows:
            raise InputError(f"{self._count} predictions for {self._n_rows} rows of {self._path}; run again")
        if self._done < self._count:
            self._flush(self._count)
        with self._errors():
            _sync(self._folder)
        with self._errors(), uninterrupted():
            order = self._order()
            self._list([name for name in order if name not in self._columns])
            for name in self._columns:
                target = self._path / "obs" / name
                if status_of(target, follow=False) is not None:
                    os.rename(target, self._folder / f"__old {name}")
                os.rename(self._folder / name, target)
            sync_folder(self._path / "obs")
            self._list(order + [name for name in self._columns if name not in order])

    def _list(self, order: list[str]) -> None:
        """Make these the columns of ``obs``, in its metadata and then in the consolidated ones."""
        if self._format == 3:
            record = self._record(f"obs/{METADATA}")
            record.pop("consolidated_metadata", None)
            record["attributes"]["column-order"] = order
            self._write(f"obs/{METADATA}", record)
            root = self._record(METADATA)
            consolidated = root.get("consolidated_metadata")
            if consolidated is not None:
                self._consolidate(consolidated["metadata"], "obs", record, order)
                self._write(METADATA, root)
            return
        record = self._record("obs/.zattrs")
        record["column-order"] = order
        self._write("obs/.zattrs", record)
        if self._storage.describe(".zmetadata") is not None:
            root = self._record(".zmetadata")
            self._consolidate(root["metadata"], "obs/.zattrs", record, order)
            self._write(".zmetadata", root)

    def _consolidate(
        self, entries: dict[str, Any], obs: str, record: dict[str, Any], order: list[str]
    ) -> None:
        """Make consolidated metadata those of the files, for ``obs`` and the columns written here."""
        entries[obs] = record
        for name in self._columns:
            for key in [key for key in entries if f"{key}/".startswith(f"obs/{name}/")]:
                del entries[key]
            if name in order:
                entries.update(self._metadata_of(f"obs/{name}"))
        ordered = sorted(entries.items(), key=_place)
        entries.clear()
        entries.update(ordered)

    def _metadata_of(self, name: str) -> dict[str, Any]:
        """The content of all metadata files of a column, as consolidated metadata name them."""
        found = {}
        for part in (name, f"{name}/codes", f"{name}/categories"):
            for file in (METADATA, ".zgroup", ".zarray", ".zattrs"):
                if (record := read_json(self._storage, f"{part}/{file}")) is not None:
                    found[part if file == METADATA else f"{part}/{file}"] = record
        return found

    def _record(self, key: str) -> dict[str, Any]:
        record = read_json(self._storage, key)
        if record is None:
            raise DamageError(f"{self._path}/{key} is missing; the store is damaged")
        return record

    def _write(self, key: str, record: dict[str, Any]) -> None:
        self._storage.write(key, json.dumps(record, indent=2).encode())

    def __enter__(self) -> ObsColumns:
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(OSError):
            self._resources.close()


def _place(entry: tuple[str, Any]) -> tuple[int, str]:
    """Where Zarr has an entry of consolidated metadata: it reads them in this order only."""
    key = entry[0]
    node = key.rpartition("/")[0] if key.rpartition("/")[2].startswith(".z") else key
    return (node.count("/") if node else -1), unicodedata.normalize("NFKC", node).casefold()


def _sync(folder: Path) -> None:
    """Force all files and folders in a folder to the disk."""
    for place, _, files in os.walk(folder):
        for file in files:
            with open(os.path.join(place, file), "rb") as opened:
                os.fsync(opened.fileno())
        sync_folder(Path(place))

"""AnnData files of both kinds as trees of groups and arrays: a Zarr store, or HDF5 (``.h5ad``).

Arrays are read in ranges, and nothing is trusted before it was checked. A file of HDF5 may name other files,
in links and behind datasets: these are never opened.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ooc_svm.errors import DamageError, InputError, OocSvmError, StorageError
from ooc_svm.store.dense import DenseValues
from ooc_svm.store.encoded_chunks import EncodedChunks
from ooc_svm.store.metadata import chunk_versions, is_array, read_array, read_group
from ooc_svm.store.storage import FILL_HINT, Storage

_ADVICE = "copy or write the file again"
# In messages of HDF5: the operating system failed, not the file.
_SYSTEM_ERROR = re.compile(r"errno = ([0-9]+)")


class TreeArray(Protocol):
    """An array of one dimension; ``dtype`` is object for strings. ``step`` elements are decoded at once."""

    dtype: np.dtype[Any]
    length: int
    step: int

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Elements ``start <= i < stop``."""


class TreeMatrix(Protocol):
    """A dense matrix; ``step`` rows are decoded at once."""

    dtype: np.dtype[Any]
    shape: tuple[int, int]
    step: int

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Rows ``start <= i < stop``."""


class Tree(Protocol):
    """An AnnData file; ``location`` names it in messages."""

    location: str

    def attributes(self, name: str) -> dict[str, Any] | None:
        """Attributes of a group, None where there is no group."""

    def children(self, name: str) -> list[str]:
        """Names in a group; empty where there is none."""

    def is_array(self, name: str) -> bool:
        """Whether there is an array, of any dimensions."""

    def array(self, name: str) -> TreeArray:
        """Open an array of one dimension."""

    def matrix(self, name: str) -> TreeMatrix:
        """Open a dense matrix."""

    def close(self) -> None:
        """Close the file."""


class _ZarrArray:
    def __init__(self, storage: Storage, name: str) -> None:
        info = read_array(storage, name)
        self._chunks = EncodedChunks(storage, info, chunk_versions(storage, info, hint=FILL_HINT))
        self.dtype = info.dtype.newbyteorder("=")
        self.length, self.step = info.length, info.inner_chunk

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """See `TreeArray`."""
        out = np.empty(stop - start, self.dtype)
        self._chunks.read_into(start, stop, out)
        return out


class _ZarrMatrix:
    def __init__(self, storage: Storage, name: str) -> None:
        info = read_array(storage, name, 2)
        assert info.grid is not None
        versions = chunk_versions(storage, info, hint=FILL_HINT)
        self._values = DenseValues(EncodedChunks(storage, info, versions), info)
        self.dtype = info.dtype.newbyteorder("=")
        self.shape, self.step = (info.grid.rows, info.grid.columns), info.grid.chunk_rows

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """See `TreeMatrix`."""
        out = np.empty((stop - start, self.shape[1]), self.dtype)
        self._values.read_rows(start, stop, out)
        return out


class ZarrTree:
    """A Zarr store."""

    def __init__(self, storage: Storage) -> None:
        self._storage, self.location = storage, storage.location

    def attributes(self, name: str) -> dict[str, Any] | None:
        """See `Tree`."""
        return read_group(self._storage, name)

    def children(self, name: str) -> list[str]:
        """See `Tree`."""
        return [child for child, version in sorted(self._storage.list(name).items()) if version is None]

    def is_array(self, name: str) -> bool:
        """See `Tree`."""
        return is_array(self._storage, name)

    def array(self, name: str) -> TreeArray:
        """See `Tree`."""
        return _ZarrArray(self._storage, name)

    def matrix(self, name: str) -> TreeMatrix:
        """See `Tree`."""
        return _ZarrMatrix(self._storage, name)

    def close(self) -> None:
        """Nothing is kept open."""


@contextmanager
def _hdf5_errors(location: str) -> Iterator[None]:
    """What HDF5 raises, as damage of a file or failure of the system."""
    try:
        yield
    except OocSvmError:
        raise
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, UnicodeError) as error:
        found = _SYSTEM_ERROR.search(str(error))
        if found is not None and int(found[1]):
            reason = os.strerror(int(found[1]))
            raise StorageError(f"{location} cannot be read: {reason}; check the disk") from error
        raise DamageError(f"{location} cannot be read ({str(error)[:160]}); {_ADVICE}") from error


class _Hdf5Array:
    def __init__(self, dataset: Any, location: str, dimensions: int) -> None:
        import h5py

        self._location = location
        with _hdf5_errors(location):
            if dataset.external or dataset.is_virtual:
                raise DamageError(f"{location} lies in other files, which are not opened; {_ADVICE}")
            if len(dataset.shape or ()) != dimensions:
                raise DamageError(f"{location} has the shape {dataset.shape}, not {dimensions} dimensions")
            is_text = h5py.check_string_dtype(dataset.dtype) is not None
            if not is_text and dataset.dtype.kind not in "biuf":
                raise DamageError(
                    f"{location} has the data type {dataset.dtype!s:.80}, which is not read here"
                )
            self.dtype = np.dtype(object) if is_text else dataset.dtype.newbyteorder("=")
            self._dataset = dataset.asstr() if is_text else dataset
            self.shape = tuple(dataset.shape)
            self.length = self.shape[0]
            self.step = dataset.chunks[0] if dataset.chunks else 1

    def read(self, start: int, stop: int) -> npt.NDArray[Any]:
        """See `TreeArray` and `TreeMatrix`."""
        with _hdf5_errors(self._location):
            return np.asarray(self._dataset[start:stop], self.dtype)


def _as_json(value: Any) -> Any:
    """An attribute as JSON would have it; text of a fixed length is read as bytes."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list):
        return [_as_json(entry) for entry in value]
    return value.decode() if isinstance(value, bytes) else value


class Hdf5Tree:
    """A file of HDF5; InputError where the package to read it is not installed."""

    def __init__(self, path: Path) -> None:
        self.location = os.fspath(path)
        try:
            import h5py
        except ImportError:
            raise InputError(
                f"{self.location} is HDF5, and the package h5py to read it is not installed; "
                "install it: pip install 'ooc-svm[anndata]'"
            ) from None
        self._h5py = h5py
        with _hdf5_errors(self.location):
            self._file = h5py.File(path, "r", locking=False)

    def _node(self, name: str) -> Any:
        """What is under a name, or None; links to other places are refused."""
        node: Any = self._file
        with _hdf5_errors(f"{self.location}/{name}"):
            for part in filter(None, name.split("/")):
                if not isinstance(node, self._h5py.Group):
                    return None
                link = node.get(part, getlink=True)
                if link is None:
                    return None
                if not isinstance(link, self._h5py.HardLink):
                    raise DamageError(f"{self.location}/{name} is a link, which is not followed; {_ADVICE}")
                node = node[part]
        return node

    def attributes(self, name: str) -> dict[str, Any] | None:
        """See `Tree`."""
        node = self._node(name)
        if not isinstance(node, self._h5py.Group):
            return None
        with _hdf5_errors(f"{self.location}/{name}"):
            return {key: _as_json(node.attrs[key]) for key in node.attrs}

    def children(self, name: str) -> list[str]:
        """See `Tree`."""
        node = self._node(name)
        return sorted(node) if isinstance(node, self._h5py.Group) else []

    def is_array(self, name: str) -> bool:
        """See `Tree`."""
        return isinstance(self._node(name), self._h5py.Dataset)

    def _dataset(self, name: str, dimensions: int) -> _Hdf5Array:
        node = self._node(name)
        if not isinstance(node, self._h5py.Dataset):
            raise DamageError(f"{self.location} has no array {name}; the file is incomplete")
        return _Hdf5Array(node, f"{self.location}/{name}", dimensions)

    def array(self, name: str) -> TreeArray:
        """See `Tree`."""
        return self._dataset(name, 1)

    def matrix(self, name: str) -> TreeMatrix:
        """See `Tree`."""
        return self._dataset(name, 2)

    def close(self) -> None:
        """See `Tree`."""
        self._file.close()

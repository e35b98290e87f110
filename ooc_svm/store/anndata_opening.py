"""An AnnData store of another writer that is being opened: its matrix, and what its files were then."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.limits import LARGEST_FEATURE_COUNT
from ooc_svm.errors import DamageError, InputError, parameter, shown
from ooc_svm.store.codecs import has_checksum
from ooc_svm.store.encoded_chunks import EncodedChunks
from ooc_svm.store.layout import CHUNK_ROWS, X
from ooc_svm.store.metadata import (
    LARGEST_LENGTH,
    ArrayInfo,
    Grid,
    chunk_versions,
    is_array,
    read_array,
    read_group,
)
from ooc_svm.store.storage import FILL_HINT, FileVersion, Storage

# Bytes of a chunk, as stored and as decoded, that have room in any plan: AnnData's own chunks take less.
_USUAL_DECODING = 128 << 20

# Chunk files of an array that are sampled for the id, and bytes of all samples of an array.
_SAMPLED_CHUNKS, _SAMPLED_BYTES = 16, 1 << 20


class Opening:
    """The store that is being opened, and the arrays and versions of their chunk files seen so far."""

    def __init__(self, storage: Storage, layer: str) -> None:
        self.storage = storage
        self.location = storage.location
        self.layer = layer
        self.matrix = X if layer == X else f"layers/{layer}"
        self.infos: dict[str, ArrayInfo] = {}
        self.versions: dict[str, npt.NDArray[np.void]] = {}
        self.unused: list[str] = []  # Columns of weights or qids that have no numbers
        self.grid: Grid | None = None
        self.n_rows, self.n_features = self._shape()

    @property
    def advice(self) -> str:
        """What to type about a matrix that is not read as it is."""
        layer = "" if self.layer == X else f" --layer {shlex.quote(self.layer)}"
        return f"convert it first: ooc-svm convert {shlex.quote(self.location)} -o NEW.zarr{layer}"

    def _shape(self) -> tuple[int, int]:
        """Shape of the matrix; raises InputError where it is neither CSR nor dense."""
        if self.layer != X:
            self._check_layer()
        what = f"{self.matrix} of {self.location}"
        attributes = read_group(self.storage, self.matrix)
        if attributes is None:
            if not is_array(self.storage, self.matrix):
                raise InputError(f"{what} is missing; check the path, or name a layer ({parameter('layer')})")
            grid = self.grid = read_array(self.storage, self.matrix, 2).grid
            assert grid is not None
            shape: Any = [grid.rows, grid.columns]
        else:
            encoding = attributes.get("encoding-type")
            if encoding == "csc_matrix":
                raise InputError(f"{what} is stored by columns (CSC), and rows are read; {self.advice}")
            if encoding != "csr_matrix":
                raise InputError(f"{what} is encoded as {encoding!r:.80}, not as 'csr_matrix'")
            shape = attributes.get("shape")
        if (
            not isinstance(shape, list)
            or len(shape) != 2
            or any(type(length) is not int or length > LARGEST_LENGTH for length in shape)
        ):
            raise DamageError(f"{what} has the shape {shape!r:.80}; the store is damaged")
        n_rows, n_features = shape
        least = 0 if self.grid is None else 1
        if n_rows < 1 or not least <= n_features <= LARGEST_FEATURE_COUNT:
            raise InputError(f"{what} has {n_rows} rows and {n_features} features; there is nothing to read")
        if self.grid is not None and n_rows * n_features > LARGEST_LENGTH:
            raise DamageError(f"{what} has the shape {shape!r:.80}; the store is damaged")
        return n_rows, n_features

    def _check_layer(self) -> None:
        layers = sorted(self.storage.list("layers").items())
        known = [name for name, version in layers if version is None]
        if self.layer not in known:
            listed = ", ".join(f"{name!r:.80}" for name in known[:20]) or "none"
            raise InputError(
                f"{self.location} has no layer {shown(self.layer)}; choose one "
                f"({parameter('layer')}): {listed}"
            )

    def info(self, name: str, dimensions: int = 1) -> ArrayInfo:
        """Checked metadata of an array all of whose chunk files are there."""
        info = self.infos[name] = read_array(self.storage, name, dimensions)
        self.versions[name] = chunk_versions(self.storage, info, hint=FILL_HINT)
        return info

    def column_info(self, name: str) -> ArrayInfo:
        """Like `info`, for an array with one entry a row."""
        info = self.info(name)
        if info.length != self.n_rows:
            entries = f"{info.length} entries for {self.n_rows} rows"
            raise DamageError(f"{self.location}/{name} has {entries}; the store is damaged")
        return info

    def array(self, info: ArrayInfo) -> EncodedChunks:
        return EncodedChunks(self.storage, info, self.versions[info.name])

    @property
    def decoding_nbytes(self) -> int:
        """What decoding the largest chunk takes, stored and decoded, more than those of a usual store."""
        decoded = (info.inner_chunk * info.dtype.itemsize for info in self.infos.values())
        stored = (int(versions["size"].max(initial=0)) for versions in self.versions.values())
        largest = max(size + min(size, file) for size, file in zip(decoded, stored, strict=True))
        return max(largest - _USUAL_DECODING, 0)

    def add_files(self, digest: hashlib._Hash) -> tuple[str, str]:
        """Add the versions of all chunk files, and a sample of their bytes.

        Returns the digest without inodes, which machines that share the files may number differently, and the
        whole digest.
        """
        for name, versions in self.versions.items():
            digest.update(versions["size"].tobytes() + versions["mtime_ns"].tobytes())
            count = min(len(versions), _SAMPLED_CHUNKS)
            for index in sorted({i * (len(versions) - 1) // max(count - 1, 1) for i in range(count)}):
                version = FileVersion(*versions[index].item())
                length = min(version.size, _SAMPLED_BYTES // count)
                start = (version.size - length) // 2
                key = self.infos[name].key(index)
                digest.update(self.storage.read(key, start, start + length, version=version).data)
        shared = digest.hexdigest()
        for versions in self.versions.values():
            digest.update(versions["inode"].tobytes())
        return shared, digest.hexdigest()

    def remark(self) -> str | None:
        """Which columns are not used, and which arrays have no checksums, if any."""
        found = [
            f"{name} of {self.location} is not used: its entries are no plain numbers" for name in self.unused
        ]
        if names := ", ".join(name for name, info in self.infos.items() if not has_checksum(info.codecs)):
            what = f"{names} of {self.location} have no checksums"
            found.append(f"{what}: there is nothing to check their bytes against")
        return "; ".join(found) or None

    def row_ranges(self) -> Iterator[tuple[int, int]]:
        """Consecutive ranges that together are all rows."""
        for start in range(0, self.n_rows, CHUNK_ROWS):
            yield start, min(start + CHUNK_ROWS, self.n_rows)

"""The metadata of new groups and arrays: Zarr's format 3, byte by byte as Zarr writes them.

Zarr is not asked for them: importing it takes longer than converting a small file.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.store.layout import ARRAY_ATTRIBUTES, STRING_ATTRIBUTES

COMPRESSOR = "lz4"
LEVEL = 5


class NewNode:
    """A group or an array: the content of its metadata file, which may change until that is written."""

    def __init__(self, record: dict[str, Any]) -> None:
        self._record = record
        self._content: bytes | None = None

    def update_attributes(self, attributes: dict[str, Any]) -> None:
        """Add attributes, or replace them."""
        self._record["attributes"] = self._record["attributes"] | attributes
        self._content = None

    def resize(self, length: int) -> None:
        """Give an array its length."""
        self._record["shape"] = [length]
        self._content = None

    def content(self) -> bytes:
        """The bytes of the file."""
        if self._content is None:
            self._content = json.dumps(self._record, indent=2, allow_nan=False).encode()
        return self._content


def new_group() -> NewNode:
    """A group without attributes."""
    return NewNode({"attributes": {}, "zarr_format": 3, "node_type": "group"})


def new_array(dtype: npt.DTypeLike, chunk: int, fill_value: float | str) -> NewNode:
    """An array of one dimension and length 0 with our codecs: blosc (lz4), then crc32c.

    Numbers are shuffled before they are compressed. One of the type object is an array of strings, whose
    first codec is vlen-utf8.
    """
    kind = np.dtype(dtype)
    is_text = kind.kind == "O"
    blosc = {
        "typesize": 1 if is_text else kind.itemsize,
        "cname": COMPRESSOR,
        "clevel": LEVEL,
        "shuffle": "noshuffle" if is_text else "shuffle",
        "blocksize": 0,
    }
    record = {
        "shape": [0],
        "data_type": "string" if is_text else kind.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [chunk]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": _fill_value(kind, fill_value),
        "codecs": [_to_bytes(kind), {"name": "blosc", "configuration": blosc}, {"name": "crc32c"}],
        "attributes": STRING_ATTRIBUTES if is_text else ARRAY_ATTRIBUTES,
        "zarr_format": 3,
        "node_type": "array",
        "storage_transformers": [],
    }
    return NewNode(record)


def _to_bytes(kind: np.dtype[Any]) -> dict[str, Any]:
    """The codec that makes bytes of elements."""
    if kind.kind == "O":
        return {"name": "vlen-utf8", "configuration": {}}
    if kind.itemsize == 1:
        return {"name": "bytes"}
    return {"name": "bytes", "configuration": {"endian": "little"}}


def _fill_value(kind: np.dtype[Any], value: float | str) -> Any:
    """The fill value in JSON, which has no NaN."""
    if kind.kind == "O":
        return value
    filled = kind.type(value).item()
    return "NaN" if isinstance(filled, float) and math.isnan(filled) else filled

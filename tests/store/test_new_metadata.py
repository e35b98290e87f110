"""The metadata files of new stores are those that Zarr writes, byte by byte."""

from __future__ import annotations

import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec
from zarr.storage import MemoryStore

from ooc_svm.store.layout import ARRAY_ATTRIBUTES, STRING_ATTRIBUTES
from ooc_svm.store.new_metadata import COMPRESSOR, LEVEL, new_array, new_group


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        *(("float64", np.nan), ("float32", np.nan), ("float64", 0.0), ("bool", False), ("object", "")),
        *((kind, -1) for kind in ("int8", "int16", "int32", "int64")),
        *((kind, 0) for kind in ("uint8", "uint32")),
    ],
)
def test_of_arrays(dtype, fill):
    text = dtype == "object"
    entries = {}
    theirs = zarr.create_array(
        MemoryStore(entries),
        name="a",
        shape=(0,),
        chunks=(5,),
        dtype="str" if text else dtype,
        filters=None,
        compressors=[
            BloscCodec(cname=COMPRESSOR, clevel=LEVEL, shuffle="noshuffle" if text else "shuffle"),
            Crc32cCodec(),
        ],
        fill_value=fill,
        zarr_format=3,
        attributes=STRING_ATTRIBUTES if text else ARRAY_ATTRIBUTES,
    )
    ours = new_array(dtype, 5, fill)
    assert ours.content() == entries["a/zarr.json"].to_bytes()
    theirs.resize((12,))
    ours.resize(12)
    assert ours.content() == entries["a/zarr.json"].to_bytes()


def test_of_groups():
    entries = {}
    theirs, ours = zarr.create_group(MemoryStore(entries), zarr_format=3), new_group()
    for attributes in ({}, {"shape": [2, 3], "text": "\xe9\n"}, {"shape": [4, 3]}):
        theirs.update_attributes(attributes)
        ours.update_attributes(attributes)
        assert ours.content() == entries["zarr.json"].to_bytes()

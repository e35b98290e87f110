"""Names, sizes and encoding attributes of a store on disk: the AnnData layout of Zarr version 3.

::

    <store>/zarr.json            attributes: encoding of AnnData; format version and hash of the manifest
    <store>/X/{data,indices,indptr}          CSR rows
    <store>/obs/{_index,label,qid,weight}    one entry a row (qid and weight where the data have them)
    <store>/obs/label/{codes,categories}     in place of label, where the labels are names, or sets of names
    <store>/var/_index                       one entry a feature: its name, or its number in the source
    <store>/uns/ooc_svm/...                  the manifest (`ooc_svm.store.manifest`)
"""

from __future__ import annotations

from typing import Any

FORMAT_VERSION = 3
"""The newest version that is read. Version 3 is of stores whose labels are sets, which an older program would
take for classes."""

PLAIN_VERSION = 2
"""Version of all other stores that are written: features and labels may have names, and row pointers four
bytes. Version 1 is read as ever."""

CHUNK_ELEMENTS = 2**20
"""Number of elements in a chunk of ``X/data`` and ``X/indices``."""

CHUNK_ROWS = 2**16
"""Number of rows in a chunk of ``X/indptr`` and of ``obs``, and of elements in a chunk of the tails."""

BLOCK_CHUNKS = 4
"""Number of chunks of ``X/indices`` in a block."""

BLOCK_ROWS = 2**19
"""Number of rows after which a block ends at the next chunk boundary."""

BLOCK_ROWS_SLACK = 4
"""Multiple of `BLOCK_ROWS` at which a block ends anywhere."""

LARGEST_NARROW = 2**31 - 1
"""Largest row pointer that is stored in four bytes; larger ones make all eight bytes long."""

MARK = "ooc_svm"
"""Name of our root attribute and of our folder under ``uns``."""

SOURCE = "ooc_svm_source"
"""Name of the root attribute of an AnnData store that was converted: it has no manifest."""

BUILDING = "ooc-svm-building"
"""Name of the object that marks a store which is being written to an object store."""

MANIFEST = f"uns/{MARK}"
"""Path of the manifest in a store."""

X = "X"
"""Name of the matrix that is read where no layer is named."""

LABEL = "obs/label"
"""The labels, or the group of their names and codes."""

CODES, CATEGORIES = f"{LABEL}/codes", f"{LABEL}/categories"
"""Where labels are names: the place of each row's name among the names, and the names as they appeared."""

BLOSC_HEADER_BYTES, CHECKSUM_BYTES = 16, 4
"""Bytes of the header of a blosc frame, whose last four are the size of the frame, and of a checksum."""

METADATA = "zarr.json"
"""Name of the metadata file of an array or a group."""

ROOT_ATTRIBUTES = {"encoding-type": "anndata", "encoding-version": "0.1.0"}
DICT_ATTRIBUTES = {"encoding-type": "dict", "encoding-version": "0.1.0"}
ARRAY_ATTRIBUTES: dict[str, Any] = {"encoding-type": "array", "encoding-version": "0.2.0"}
CATEGORICAL_ATTRIBUTES: dict[str, Any] = {
    "encoding-type": "categorical",
    "encoding-version": "0.2.0",
    "ordered": False,
}
STRING_ATTRIBUTES: dict[str, Any] = {"encoding-type": "string-array", "encoding-version": "0.2.0"}


def csr_attributes(n_rows: int, n_features: int) -> dict[str, Any]:
    """Attributes of the group ``X``."""
    return {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [n_rows, n_features]}


def dataframe_attributes(columns: list[str]) -> dict[str, Any]:
    """Attributes of the groups ``obs`` and ``var``."""
    encoding = {"encoding-type": "dataframe", "encoding-version": "0.2.0"}
    return encoding | {"_index": "_index", "column-order": columns}


def code_type(label_sets: bool) -> str:
    """Type of the places of names of labels; there may be more sets of labels than classes."""
    return "int32" if label_sets else "int16"


def chunk_count(length: int, chunk: int) -> int:
    """Number of chunks of an array of one dimension."""
    return -(-length // chunk)

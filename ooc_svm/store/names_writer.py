"""Names of features and of labels as arrays of strings of a store that is being written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numcodecs.vlen import VLenUTF8

from ooc_svm.data.feature_names import FeatureNames
from ooc_svm.errors import InputError, shown
from ooc_svm.store.array_writer import GrowingArray
from ooc_svm.store.codecs import most_text_bytes
from ooc_svm.store.feature_names import NAMES
from ooc_svm.store.label_summary import MOST_COUNTED
from ooc_svm.store.layout import CATEGORIES
from ooc_svm.store.zarr_files import StoreFiles
from ooc_svm.system.memory import format_size


def write_names(files: StoreFiles, names: FeatureNames, chunk: int) -> GrowingArray:
    """Write the names of features as an array of strings, which lacks no more than `finish`."""
    return _write(files, NAMES, names, chunk)


def write_label_names(files: StoreFiles, names: Sequence[str], chunk: int) -> GrowingArray:
    """Write the names of labels, or of their sets, in the same way; few of them in one chunk."""
    return _write(
        files, CATEGORIES, names, min(len(names), chunk) if len(names) > MOST_COUNTED else len(names)
    )


def _write(files: StoreFiles, place: str, names: Any, chunk: int) -> GrowingArray:
    array = GrowingArray(files, place, object, chunk, fill_value="", encode=_encode)
    for start in range(0, len(names), chunk):
        array.extend(np.array(names[start : start + chunk], object))
    return array


def _encode(names: Any) -> Any:
    """A chunk of names as it is stored, but for its compression."""
    content = np.frombuffer(VLenUTF8().encode(names), np.uint8)
    if len(content) > (most := most_text_bytes(len(names))):
        raise InputError(
            f"names such as {shown(max(names, key=len))} take more than {format_size(most)} in one chunk, "
            "which could not be read again; shorten them"
        )
    return content

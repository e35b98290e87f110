"""Paths that a command line names: what is read is of the right kind, and what is written destroys nothing.

All checks are made before any work; files that cannot be read are left to what reads them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

from ooc_svm.errors import DamageError, InputError, UsageError, parameter
from ooc_svm.parameters import Complaint, Kind
from ooc_svm.system.address import address_of, located
from ooc_svm.system.files import check_writable, exists, is_same_file, read_head
from ooc_svm.system.recognition import (
    MODEL,
    PARQUET,
    STATE,
    check_outside_stores,
    first_bytes,
    is_zarr,
    known_kind,
)

# Bytes that are looked at of a file that text would replace; how a row of SVMlight text begins, perhaps
# without a label; and how exported models begin, which have such rows.
_HEAD_BYTES = 1 << 16
_ROW = re.compile(rb"^[^\s:]*[ \t]+(qid:[0-9]+|[0-9]+:[^\s:]+)(\s|\Z)", re.MULTILINE)
_EXPORTED = b"SVM-light ", b"svm_type "


def file_kind(kind: Kind) -> Kind:
    """The kind of paths where a file or folder is made, which is not standard output."""

    def convert(value: object) -> object:
        if value == "-":
            raise Complaint("cannot be -, standard output: name a file (./- is one of that name)")
        return kind.convert(value)

    return Kind(kind.doc, kind.allowed, convert)


def is_model(path: str) -> bool:
    """Whether a file of the local disk begins as a model does."""
    return first_bytes(path) == MODEL


def check_data(paths: Iterable[object]) -> None:
    """Refuse files that are neither a store nor text: InputError. What is no text is no path."""
    for path in paths:
        if isinstance(path, str) and (kind := known_kind(path)) is not None:
            raise InputError(f"{path} is {kind}, not data; check the path")


def check_store(path: str) -> None:
    """Refuse, as a store, a file of another kind than text: InputError."""
    from ooc_svm.conversion.formats import refuse_other_formats

    check_data([path])
    if address_of(path) is None:
        refuse_other_formats([path])


def check_model(command: str, model: str, data: str) -> None:
    """Refuse what is no model: UsageError where it and the data are swapped, else DamageError."""
    if is_model(data) and not is_model(model):
        raise UsageError(f"{data} is a model, and {model} is none; write ooc-svm {command} MODEL DATA")
    refuse_no_model(model)
    check_data([data])


def refuse_no_model(path: str) -> None:
    """Refuse a folder or a saved state in place of a model: DamageError."""
    if address_of(path) is None and os.path.isdir(path):
        what = "a Zarr store" if is_zarr(path) else "a folder"
        raise DamageError(f"{path} is {what}, not a model; give a file that train has written")
    if first_bytes(path) == STATE:
        raise DamageError(
            f"{path} is {known_kind(path)}, not a model; go on with train {parameter('resume', True)}"
        )


def check_target(path: str | None, inputs: Sequence[str | None] = ()) -> None:
    """Refuse to write a file over an input, or into a Zarr store: UsageError."""
    if path is None:
        return
    if any(each is not None and is_same_file(path, each) for each in inputs):
        raise UsageError(f"{path}: is an input; choose another name to write to")
    check_outside_stores(path)


def place_of(path: str | os.PathLike[str]) -> str:
    """Where a path leads, which is the same for all names of one place."""
    return os.path.realpath(str(located(path)))


def check_no_folder(path: str) -> None:
    """Refuse a folder in the way of a file: UsageError."""
    if address_of(path) is None and os.path.isdir(path):
        raise UsageError(f"{path}: is a folder, and a file is to be written; choose another name")


def check_file_target(path: str, kind: str, start: bytes) -> None:
    """Refuse a path where no file can be written, or where a file lies that begins in another way."""
    check_target(path)
    check_no_folder(path)
    check_writable(path)
    if exists(path) and read_head(path, len(start)) not in (b"", start):
        raise UsageError(f"{path}: is no {kind} file, so it is not replaced; choose another name")


def check_text_target(path: str) -> None:
    """Refuse to write text over what is no text, or rows of SVMlight text; a table of Parquet over others."""
    head = first_bytes(path, _HEAD_BYTES)
    if path.lower().endswith(".parquet"):
        fits = head[:4] in (b"", PARQUET)
    else:
        is_text = not any(byte < 32 and byte not in b"\t\n\r" for byte in head)
        fits = is_text and (head.startswith(_EXPORTED) or _ROW.search(head) is None)
    if not fits:
        raise UsageError(f"{path}: is no file of results, so it is not replaced; choose another name")

"""JSON files that commands write: reports and metrics."""

from __future__ import annotations

import json
import os
from typing import Any, BinaryIO

from ooc_svm.errors import UsageError


def check_json_target(path: str) -> None:
    """Refuse, before any work, a place where no JSON can be written or something else would be lost.

    Raises
    ------
    UsageError
        A file is there that does not start as a JSON object does: data or a model, named by mistake.
    StorageError
        The folder or the file cannot be written.
    """
    from ooc_svm.system.files import check_writable

    check_writable(path)
    if os.path.exists(path):
        with open(path, "rb") as file:
            start = file.read(1)
        if start not in (b"", b"{"):
            raise UsageError(f"{path}: is no JSON file, so it is not replaced; choose another name")


def write_json(path: str, content: Any) -> None:
    """Write a JSON file, whole or not at all.

    Raises
    ------
    UsageError, StorageError
        See `check_json_target`.
    """
    from ooc_svm.model.file import json_ready
    from ooc_svm.system.files import atomic_write

    check_json_target(path)
    text = json.dumps(json_ready(content), indent=2, allow_nan=False) + "\n"

    def write(file: BinaryIO) -> None:
        file.write(text.encode())

    atomic_write(path, write)

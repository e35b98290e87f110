"""JSON files that commands write: reports and metrics."""

from __future__ import annotations

import json
import os
from typing import Any, BinaryIO

from ooc_svm.errors import UsageError


def check_json_target(path: str) -> None:
    """Refuse, before any work, a path where JSON cannot be written or another file would be lost.

    UsageError if the file exists and does not begin like a JSON object: data or a model, named by mistake.
    StorageError if the folder or the file cannot be written.
    """
    from ooc_svm.system.files import check_writable

    check_writable(path)
    if os.path.exists(path):
        with open(path, "rb") as file:
            start = file.read(1)
        if start not in (b"", b"{"):
            raise UsageError(f"{path}: is not a JSON file, so it is not replaced; choose another name")


def write_json(path: str, content: Any) -> None:
    """Write a JSON file atomically; raises as `check_json_target` does."""
    from ooc_svm.model.file import json_ready
    from ooc_svm.system.files import atomic_write

    check_json_target(path)
    text = json.dumps(json_ready(content), indent=2, allow_nan=False) + "\n"

    def write(file: BinaryIO) -> None:
        file.write(text.encode())

    atomic_write(path, write)

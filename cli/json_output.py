"""Files that commands write: JSON of reports and metrics, CSV of confusions."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, BinaryIO

from ooc_svm.cli.paths import check_file_target, check_no_folder, check_target, check_text_target, place_of
from ooc_svm.errors import UsageError


def check_json_target(path: str) -> None:
    """Refuse, before any work, a path where JSON cannot be written or another file would be lost.

    UsageError if the file exists and does not begin like a JSON object (data or a model, named by mistake),
    lies in a store, or is a folder.
    StorageError if the folder or the file cannot be written.
    """
    check_file_target(path, "JSON", b"{")


def check_csv_target(path: str, others: Collection[str | None]) -> None:
    """Refuse, before any work, a path where CSV cannot be written or another file would be lost.

    UsageError if it is a file that the command names for something else, a model, or a folder, or lies in a
    store.
    StorageError if the folder or the file cannot be written.
    """
    from ooc_svm.model.file import check_no_model
    from ooc_svm.system.files import check_writable

    for other in others:
        if other is not None and place_of(path) == place_of(other):
            raise UsageError(f"{path}: is named twice; give files of different names")
    check_target(path)
    check_no_folder(path)
    check_no_model(path)
    check_text_target(path)
    check_writable(path)


def write_json(path: str, content: Any) -> None:
    """Write a JSON file atomically; raises as `check_json_target` does."""
    from ooc_svm.model.file import json_ready
    from ooc_svm.system.files import atomic_write

    check_json_target(path)
    text = json.dumps(json_ready(content), indent=2, allow_nan=False) + "\n"

    def write(file: BinaryIO) -> None:
        file.write(text.encode())

    atomic_write(path, write)

"""Checkpoints whose states were changed by hand."""

from __future__ import annotations

import numpy as np

from ooc_svm.system.arrayfile import read_arrays, write_arrays
from ooc_svm.training.checkpoint import CHECKPOINT_FILE


def forge(folder, **changes):
    """Change arrays of the first model of a checkpoint, with right checksums.

    ``changes``: functions of all arrays, by the names of those that they change, ``__`` for ``/``.
    """
    for path in folder.glob("checkpoint-*.state"):
        content, arrays = read_arrays(path, CHECKPOINT_FILE)
        for name, change in changes.items():
            key = "0/" + name.replace("__", "/")
            arrays[key] = np.asarray(change(arrays), arrays[key].dtype)
        with path.open("wb") as file:
            write_arrays(file, CHECKPOINT_FILE, content, arrays)

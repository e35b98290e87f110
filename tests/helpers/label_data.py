"""Rows with sets of labels, as text, matrix and indicator."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

LABELS = ["1", "2", "10", "cat", "dog"]


class LabelData(NamedTuple):
    """Rows, and which of `LABELS` each has, shape (n_rows, 5)."""

    X: npt.NDArray[np.float64]
    Y: npt.NDArray[np.bool_]

    def sets(self) -> list[list[str]]:
        """The labels of each row."""
        return [[LABELS[k] for k in np.flatnonzero(own)] for own in self.Y]

    def write(self, path: Path) -> Path:
        """As text."""
        lines = [
            ",".join(own) + "".join(f" {j + 1}:{value!r}" for j, value in enumerate(row) if value)
            for own, row in zip(self.sets(), self.X.tolist(), strict=True)
        ]
        path.write_text("\n".join(lines) + "\n")
        return path


def make_labels(n_rows: int = 300, seed: int = 0) -> LabelData:
    """Labels that follow from the rows but for some noise; some rows have none, some have several."""
    rng = np.random.default_rng(seed)
    X = (rng.random((n_rows, 12)) * (rng.random((n_rows, 12)) < 0.6)).astype(np.float32).astype(np.float64)
    planes = np.random.default_rng(77).standard_normal((12, len(LABELS)))
    scores = X @ planes + 0.2 * rng.standard_normal((n_rows, len(LABELS)))
    return LabelData(X, scores > np.array([0.3, 0.6, 0.9, 0.2, 1.2]))

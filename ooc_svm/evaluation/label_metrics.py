"""How good predicted sets of labels are: counts of rows and labels, and the metrics that follow from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Int64Array


class LabelCounts:
    """Rows with each label, rows that it is predicted for, and both; and how alike the sets of a row are.

    Labels that the model does not know are predicted for no row: `add` takes for each row how many of them it
    has. ``unknown`` has the rows of each different one, which are labels as the others are.
    ``n_left_out`` are rows that were not counted for such labels.
    """

    def __init__(self, n_labels: int) -> None:
        self.actual = np.zeros(n_labels, np.int64)
        self.predicted = np.zeros(n_labels, np.int64)
        self.hits = np.zeros(n_labels, np.int64)
        self.unknown: Mapping[str, int] = {}
        self.unknown_entries = self.n_left_out = 0
        self.n_rows = self.n_equal = 0
        self._alike: Counter[tuple[int, int]] = Counter()  # Rows by labels in both sets, and in either

    @property
    def n_unknown(self) -> int:
        """Different labels that the model does not know."""
        return len(self.unknown)

    @property
    def n_labels(self) -> int:
        """Different labels, those that the model does not know included."""
        return len(self.hits) + self.n_unknown

    @property
    def likeness(self) -> Fraction:
        """Sum over the rows of the share of labels in both sets among those in either; 1 of empty sets."""
        shares = (Fraction(both, either) if either else Fraction(1) for both, either in self._alike)
        parts = (n * share for n, share in zip(self._alike.values(), shares, strict=True))
        return sum(parts, Fraction(0))

    def add(
        self, actual: npt.NDArray[np.bool_], predicted: npt.NDArray[np.bool_], unknown: Int64Array
    ) -> None:
        """Count more rows: shape (n_rows, n_labels), and the labels of each that are unknown."""
        hits = actual & predicted
        self.actual += np.count_nonzero(actual, axis=0)
        self.predicted += np.count_nonzero(predicted, axis=0)
        self.hits += np.count_nonzero(hits, axis=0)
        both, either = np.count_nonzero(hits, axis=1), np.count_nonzero(actual | predicted, axis=1) + unknown
        pairs, n_rows = np.unique(np.column_stack([both, either]), axis=0, return_counts=True)
        for (shared, whole), n in zip(pairs.tolist(), n_rows.tolist(), strict=True):
            self._alike[shared, whole] += n
        self.unknown_entries += int(unknown.sum())
        self.n_rows += len(actual)
        self.n_equal += int(np.count_nonzero(both == either))


def micro_f1(counts: LabelCounts) -> float:
    """F1 of all labels of all rows together; 0 where there are none, and none is predicted."""
    sizes = int(counts.actual.sum() + counts.predicted.sum()) + counts.unknown_entries
    return 2 * int(counts.hits.sum()) / sizes if sizes else 0.0


def jaccard(counts: LabelCounts) -> float:
    """Example-based accuracy: mean over the rows of what the two sets share, ``|Y & Z| / |Y | Z|``.

    1 for a row where both are empty. M.-L. Zhang and Z.-H. Zhou (2014), A Review on Multi-Label Learning
    Algorithms, IEEE TKDE 26(8), section 2.2.2.
    """
    return float(counts.likeness / counts.n_rows)


def subset_accuracy(counts: LabelCounts) -> float:
    """Share of the rows whose set is predicted as it is."""
    return counts.n_equal / counts.n_rows


def hamming_loss(counts: LabelCounts) -> float:
    """Share of the pairs of row and label that are predicted wrong."""
    sizes = int(counts.actual.sum() + counts.predicted.sum()) - 2 * int(counts.hits.sum())
    return (sizes + counts.unknown_entries) / (counts.n_rows * counts.n_labels)

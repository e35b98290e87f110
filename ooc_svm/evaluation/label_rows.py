"""Sets of labels of rows, translated to the labels of a model by their names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int64Array
from ooc_svm.data.label_sets import labels_of
from ooc_svm.errors import InputError, parameter
from ooc_svm.evaluation.binary_rows import labels_of as labels_of_rows
from ooc_svm.evaluation.label_metrics import LabelCounts as LabelCounts
from ooc_svm.prediction.scores import ScoredRows


class LabelRows:
    """Translates numbers of sets, positions in `names`, to the labels `texts` of a model.

    Labels among `ignored` are left out. All others are unknown: ``unknown`` has the rows of each of them.
    """

    def __init__(self, texts: Sequence[str], ignored: Sequence[str], names: Sequence[str]) -> None:
        self._places = {text: place for place, text in enumerate(texts)} | dict.fromkeys(ignored, -1)
        self._n_labels, self._names = len(texts), names
        self.unknown: dict[str, int] = {}

    def members(self, labels: Float64Array) -> tuple[npt.NDArray[np.bool_], Int64Array]:
        """Which labels each row has, shape (n_rows, n_labels), and how many unknown ones."""
        numbers, place, n_rows = np.unique(labels, return_inverse=True, return_counts=True)
        members = np.zeros((len(numbers), self._n_labels), np.bool_)
        unknown = np.zeros(len(numbers), np.int64)
        for row, (number, n) in enumerate(zip(numbers.tolist(), n_rows.tolist(), strict=True)):
            for label in labels_of(self._names[int(number)]):
                own = self._places.get(label)
                if own is None:
                    unknown[row] += 1
                    self.unknown[label] = self.unknown.get(label, 0) + n
                elif own >= 0:
                    members[row, own] = True
        return members[place], unknown[place]


def count_labels(stream: ScoredRows, *, skip_unknown: bool) -> LabelCounts:
    """Counts of rows of sets of labels; rows with a label that the model does not know may be left out."""
    decision, names = stream.decision, stream.rows.label_names
    assert names is not None  # those of text are none yet
    others = [text for text, side in decision.sides.items() if side < 0]
    rows, counts = LabelRows(decision.texts, others, names), LabelCounts(len(decision.texts))
    for block in stream:
        actual, unknown = rows.members(labels_of_rows(block))
        predicted = block.scores > 0
        if skip_unknown:
            known = unknown == 0
            counts.n_left_out += int(np.count_nonzero(~known))
            actual, predicted, unknown = actual[known], predicted[known], unknown[known]
        counts.add(actual, predicted, unknown)
    counts.unknown = {} if skip_unknown else rows.unknown
    return counts


def check_kind(name: str, *, has_sets: bool, wants_sets: bool) -> None:
    """Raise InputError where the labels of data are sets and should not be, or the other way round."""
    option = parameter("labels", "sets")
    if wants_sets and not has_sets:
        raise InputError(
            f"{name} has no sets of labels, which the model predicts; convert the text with {option}"
        )
    if has_sets and not wants_sets:
        raise InputError(
            f"{name} has sets of labels, and the model predicts none; convert the text without {option}, or "
            "train a model on sets"
        )

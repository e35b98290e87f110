"""What an evaluation finds: metrics, the quality of each class, confusions, and rows that were left out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ooc_svm.errors import UsageError
from ooc_svm.evaluation.label_metrics import LabelCounts
from ooc_svm.evaluation.metrics import BinaryCounts, ClassCounts
from ooc_svm.model.file import check_output
from ooc_svm.system import delimited
from ooc_svm.system.files import atomic_write


@dataclass(frozen=True, slots=True)
class ClassScores:
    """How well the rows of one class are predicted; `support` is their number.

    A share of nothing is 0: precision where no row is predicted as the class, recall where no row is of it.
    """

    label: str
    precision: float
    recall: float
    f1: float
    support: int


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """Result of `ooc_svm.evaluation_report`.

    Attributes
    ----------
    metrics : dict of str to float
        See `ooc_svm.evaluate`.
    classes : tuple of ClassScores
        In the order of the classes, or labels; empty unless the model predicts several classes or sets of
        labels.
    confusion : tuple of (str, str, int), or None
        Class, predicted class and number of rows, for each pair that occurs, if that was asked for.
    n_unlabelled, n_unknown : int
        Rows that were left out: without a label, and of a class or with a label that the model was not
        trained on.
    unknown_labels : dict of str to int
        Rows with each label of sets that the model was not trained on, which count as not predicted.
    """

    metrics: dict[str, float]
    classes: tuple[ClassScores, ...]
    confusion: tuple[tuple[str, str, int], ...] | None
    n_unlabelled: int
    n_unknown: int
    unknown_labels: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The metrics by name; then ``classes`` by label, and what was ``left_out``, where there is any.

        ``unknown_labels`` has the rows with each label of sets that the model was not trained on.
        """
        record: dict[str, Any] = dict(self.metrics)
        if self.classes:
            record["classes"] = {
                each.label: {
                    "precision": each.precision,
                    "recall": each.recall,
                    "f1": each.f1,
                    "support": each.support,
                }
                for each in self.classes
            }
        if self.n_unlabelled or self.n_unknown:
            record["left_out"] = {"unlabelled": self.n_unlabelled, "unknown": self.n_unknown}
        if self.unknown_labels:
            record["unknown_labels"] = dict(self.unknown_labels)
        return record

    def write_confusion(self, path: str | os.PathLike[str]) -> None:
        """Write the confusions as CSV, a line for each pair of classes that occurs.

        Raises
        ------
        UsageError
            They were not asked for, or the path is a model or lies in a Zarr store.
        StorageError
            The file cannot be written; it appears whole or not at all.
        """
        if self.confusion is None:
            raise UsageError("no confusions were counted; evaluate with confusion=True")
        check_output(path)
        lines = map(delimited.line, (("label", "predicted", "rows"), *self.confusion))
        text = "".join(lines).encode()
        atomic_write(path, lambda file: file.write(text))


def class_scores(texts: Sequence[str], counts: ClassCounts | LabelCounts | None) -> tuple[ClassScores, ...]:
    """The quality of each class; none without counts."""
    if counts is None:
        return ()
    columns = (counts.hits, counts.predicted, counts.actual)
    return tuple(
        ClassScores(
            text,
            hits / predicted if predicted else 0.0,
            hits / actual if actual else 0.0,
            2 * hits / (actual + predicted) if actual + predicted else 0.0,
            actual,
        )
        for text, hits, predicted, actual in zip(texts, *(each.tolist() for each in columns), strict=True)
    )


def confusion_of(
    texts: Sequence[str], counts: Mapping[tuple[type, int | None], Any]
) -> tuple[tuple[str, str, int], ...]:
    """Pairs of classes with their rows; of two classes the negative one comes first."""
    if (ClassCounts, None) in counts:
        found = counts[ClassCounts, None].confusion()
    else:
        binary: BinaryCounts = counts[BinaryCounts, None]
        table = [
            [binary.true_negatives, binary.false_positives],
            [binary.false_negatives, binary.true_positives],
        ]
        found = [(*pair, table[pair[0]][pair[1]]) for pair in np.ndindex(2, 2) if table[pair[0]][pair[1]]]
    return tuple((texts[label], texts[predicted], rows) for label, predicted, rows in found)

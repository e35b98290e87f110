"""What the scores of a model decide: which of its functions speak, and which label they stand for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int64Array, RowBlock
from ooc_svm.data.classes import label_text
from ooc_svm.errors import InputError, UsageError
from ooc_svm.model.model import Model
from ooc_svm.ops.rows import scores_of_models, unsigned


def select_C(model: Model, C: float | None) -> Model:  # noqa: N802  (C is the field's name for it)
    """The model with the functions of one value of C selected to predict.

    Parameters
    ----------
    model : Model
    C : float or None
        None leaves the selection as it is.

    Returns
    -------
    Model
        Shares the weights of `model`.

    Raises
    ------
    UsageError
        If no function was trained with this C.
    """
    if C is None:
        return model
    if C not in model.C:
        known = ", ".join(f"{value!r}" for value in dict.fromkeys(model.C)) or "no values of C at all"
        raise UsageError(f"the model has nothing trained with C = {C!r}; it has {known}")
    return replace(model, selected=model.C.index(C))


def class_names(model: Model) -> tuple[str, ...]:
    """The classes of a model as people write them: names where the data had them, else numbers."""
    if model.label_names is not None:
        return model.label_names
    return tuple(label_text(label) for label in model.classes)


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """The functions of a model that predict together, ready for rows.

    Attributes
    ----------
    weights : ndarray of float64, shape (n_features, K)
    bias : ndarray of float64, shape (K,)
    labels : ndarray of float64, shape (n_labels,)
        What can be predicted: the negative and the positive label, or of one-vs-rest the label of each score,
        ascending. Empty where the score itself is the prediction.
    texts : tuple of str
        The same as people write it.
    """

    weights: Float64Array
    bias: Float64Array
    labels: Float64Array
    texts: tuple[str, ...]

    @classmethod
    def of(cls, model: Model) -> Decision:
        """What the active functions of `model` decide."""
        active = list(model.active)
        labels: list[float] = []
        if model.positive:
            active.sort(key=lambda k: model.positive[k])
            labels = [model.positive[k] for k in active]
            if model.negative is not None:
                labels.insert(0, model.negative)
        weights = model.weights[active[0]].reshape(-1, 1)
        if len(active) > 1:
            weights = np.empty((model.n_features, len(active)))
            for place, k in enumerate(active):
                weights[:, place] = model.weights[k]
        names = dict(zip(model.classes, class_names(model), strict=True))
        texts = tuple(names.get(label, label_text(label)) for label in labels)
        return cls(weights, model.bias[active], np.array(labels), texts)

    @property
    def n_features(self) -> int:
        """Number of features, d."""
        return len(self.weights)

    @property
    def n_scores(self) -> int:
        """Scores of a row, K."""
        return len(self.bias)

    def scores(self, rows: RowBlock, first: int, last: int) -> Float64Array:
        """Scores ``X W + b`` of the rows ``first <= i < last`` of a block.

        Returns
        -------
        ndarray of float64, shape (last - first, K)

        Raises
        ------
        InputError
            If one of them is not finite.
        """
        out = np.empty((last - first, self.n_scores))
        ids = unsigned(rows.indices)
        scores_of_models(unsigned(rows.indptr), ids, rows.values, first, last, self.weights, self.bias, out)
        finite = np.isfinite(out)
        if not finite.all():
            row = rows.start + first + int(np.argmin(finite.all(axis=1)))
            raise InputError(
                f"row {row} (counted from 0) has a score beyond the range of float64; "
                "its values are far larger than those of training: scale them the same way"
            )
        return out

    def choices(self, scores: Float64Array) -> Int64Array:
        """Places in `labels` of what is predicted.

        Positive is a score above 0; of several classes the one with the largest score, the first of equals.
        """
        if self.n_scores == 1 and len(self.labels) == 2:
            return (scores[:, 0] > 0).astype(np.int64)
        largest: Int64Array = scores.argmax(axis=1)
        return largest

    def predictions(self, scores: Float64Array, *, named: bool = False) -> npt.NDArray[Any]:
        """Predicted labels of the rows, or the scores where they are the prediction.

        Parameters
        ----------
        scores : ndarray of float64, shape (n, K)
        named : bool
            Whether labels are given as text.

        Returns
        -------
        ndarray of float64 or str, shape (n,)
        """
        if len(self.labels) == 0:
            return scores[:, 0]
        answers: npt.NDArray[Any] = np.array(self.texts) if named else self.labels
        return answers[self.choices(scores)]

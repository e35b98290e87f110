"""What the scores of a model mean: which of its functions predict, and the labels they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.catalog import CALIBRATIONS
from ooc_svm.data.blocks import Float64Array, Int64Array, RowBlock
from ooc_svm.data.classes import label_text
from ooc_svm.errors import InputError, UsageError, parameter
from ooc_svm.model import probabilities
from ooc_svm.model.calibration import Calibration
from ooc_svm.model.kernel import KernelScorer
from ooc_svm.model.linear import LinearFunctions, LinearScorer
from ooc_svm.model.model import Model

TWO_CLASSES = "two classes"
SEVERAL_CLASSES = "several classes"
LABEL_SETS = "sets of labels"
VALUES = "values"
GRADES = "grades"
TWO_RANKS = "the order of two classes"
RANKINGS = "rankings"

_PREDICTED = {"svr": VALUES, "nu-svr": VALUES, "ordinal": GRADES, "roc-area": TWO_RANKS, "ranking": RANKINGS}


def predicted_by(model: Model) -> str:
    """What a model predicts, as messages name it: one of the constants of this module."""
    several = model.problem not in _PREDICTED and model.is_one_vs_rest
    return predicted_of(model.problem, one_vs_rest=several, multilabel=several and model.multilabel)


def predicted_of(problem: str, *, one_vs_rest: bool, multilabel: bool) -> str:
    """What models of a problem predict.

    `one_vs_rest`: whether there is one for each of several classes; `multilabel`: for each label of sets.
    """
    if problem in _PREDICTED:
        return _PREDICTED[problem]
    if multilabel:
        return LABEL_SETS
    return SEVERAL_CLASSES if one_vs_rest else TWO_CLASSES


def select_C(model: Model, C: float | None) -> Model:  # noqa: N802  (C is the field's name for it)
    """The model with the functions of one value of C selected to predict; None leaves the selection as it is.

    It shares the functions of `model`. UsageError if no function was trained with this C.
    """
    if C is None:
        return model
    if C not in model.C:
        known = ", ".join(f"{value!r}" for value in dict.fromkeys(model.C)) or "no values of C at all"
        raise UsageError(f"the model has nothing trained with C = {C!r}; it has {known}")
    return replace(model, selected=model.C.index(C))


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """The functions of a model that predict together, and what their scores mean.

    The scorer has the functions; of one-vs-rest, and of sets of labels, in the order of `labels`. These are
    the labels that can be predicted: the negative and the positive label, or of one-vs-rest and of sets the
    label of each score, ascending; none where the score itself is the prediction. `texts` are their names:
    those of the data where it has names (`named`), else the numbers. `sides` has 1 for a positive class and
    -1 for a negative one, by name: of two classes all classes of the training data; of sets of labels all
    labels, -1 for those without a function; of two ranks the labels named as the higher rank, if any were.
    `has_probabilities`: whether the scores give those of the labels, by the maps of `calibration` if there
    are any.
    """

    scorer: LinearScorer | KernelScorer
    predicted: str
    labels: Float64Array
    texts: tuple[str, ...]
    sides: Mapping[str, int]
    named: bool = False
    has_probabilities: bool = False
    active: tuple[int, ...] = ()  # Numbers of the functions, in the order of the scores
    calibration: Calibration | None = None

    @classmethod
    def of(cls, model: Model) -> Decision:
        """The decision of the active functions of `model`."""
        active = list(model.active)
        labels: list[float] = []
        if model.positive:
            active.sort(key=lambda k: model.positive[k])
            labels = [model.positive[k] for k in active]
            if model.negative is not None:
                labels.insert(0, model.negative)
        names = dict(zip(model.classes, model.label_names or (), strict=False))
        texts = tuple(names.get(label, label_text(label)) for label in labels)
        sides: dict[str, int] = {}
        listed = model.options.get("positive")
        listed = [each for each in listed if isinstance(each, str | int | float)] if listed else []
        predicted = predicted_by(model)
        if predicted == TWO_RANKS:
            sides = {each if isinstance(each, str) else label_text(each): 1 for each in listed}
        elif predicted == LABEL_SETS:
            sides = {names[each]: 1 if each in labels else -1 for each in model.classes}
        elif predicted == TWO_CLASSES:
            numbers = {each for each in listed if each in model.classes} or {labels[1]}
            for each in model.classes or labels:
                sides[names.get(each, label_text(each))] = 1 if each in numbers else -1
        scorer, gives = model.functions.scorer(active), model.gives_probabilities
        maps = None if model.calibration is None else model.calibration.of(active)
        found = scorer, predicted, np.array(labels), texts, sides, bool(names), gives, tuple(active)
        return cls(*found, maps)

    @property
    def classes(self) -> npt.NDArray[Any]:
        """What can be predicted, in the order of `labels`: names as text where the data had names."""
        return np.array(self.texts) if self.named else self.labels

    def scores(self, rows: RowBlock, first: int, last: int) -> Float64Array:
        """Scores of the rows ``first <= i < last`` of a block, shape (last - first, K).

        InputError if one of them is not finite.
        """
        scores = self.scorer.scores(rows, first, last)
        finite = np.isfinite(scores)
        if not finite.all():
            row = rows.start + first + int(np.argmin(finite.all(axis=1)))
            raise InputError(
                f"row {row} (counted from 0) has a score beyond the range of float64; "
                "its values are far larger than those of training: scale them the same way"
            )
        return scores

    def choices(self, scores: Float64Array) -> Int64Array:
        """Positions in `labels` of the predicted labels.

        Positive is a score above 0; of several classes the one with the largest score, the first of equals.
        """
        if self.scorer.n_scores == 1 and len(self.labels) == 2:
            return (scores[:, 0] > 0).astype(np.int64)
        largest: Int64Array = scores.argmax(axis=1)
        return largest

    def sets(self, scores: Float64Array) -> list[list[str]]:
        """The names of the labels of each row: those with a score above 0."""
        found: list[list[str]] = [[] for _ in range(len(scores))]
        for row, label in np.argwhere(scores > 0).tolist():
            found[row].append(self.texts[label])
        return found

    def predictions(self, scores: Float64Array) -> npt.NDArray[Any]:
        """Predicted classes, or scores where they are the prediction; shape (n,).

        Of sets of labels int8 of shape (n, K), 1 where a row has a label.
        """
        if self.predicted == LABEL_SETS:
            return (scores > 0).astype(np.int8)
        return self.classes[self.choices(scores)] if len(self.labels) else scores[:, 0]

    def log_probabilities(self, scores: Float64Array) -> Float64Array:
        """Logarithms of the probabilities of the labels, in the order of `labels`; see `probabilities`."""
        odds = scores if self.calibration is None else self.calibration.log_odds(scores)
        if self.predicted == TWO_CLASSES:
            return probabilities.log_of_two(odds[:, 0])
        if self.predicted == LABEL_SETS:
            return probabilities.log_of_sets(odds)
        temperatures = None if self.calibration is None else self.calibration.temperatures
        return probabilities.log_of_several(odds, temperatures)

    def probabilities(self, scores: Float64Array) -> Float64Array:
        """Probabilities of the labels, in the order of `labels`, shape (n, labels).

        Those of classes sum up to 1; of several classes each function's is divided by their sum, see
        `log_of_several`. Of sets that of each label.
        """
        shares: Float64Array = np.exp(self.log_probabilities(scores))
        return shares


def decision_alone(model: Model, C: float) -> Decision:
    """What scores of the functions of one value of C mean, without their weights."""
    none = LinearFunctions(np.empty((model.n_models, 0)), np.zeros(model.n_models))
    return Decision.of(select_C(replace(model, functions=none, feature_names=None), C))


def require_probabilities(model: Model) -> None:
    """Raise UsageError if the scores of a model give no probabilities."""
    if not model.gives_probabilities:
        if not model.is_classifier:
            raise UsageError(
                f"a model of the problem {model.problem} gives no probabilities; they are of classes (svc)"
            )
        ways = [parameter("calibrate", method) for method in CALIBRATIONS]
        ways += [parameter("loss", loss) for loss in probabilities.LOSSES]
        raise UsageError(
            f"a model with the loss {model.loss} gives scores and no probabilities; train one with "
            f"{', '.join(ways[:-1])} or {ways[-1]}"
        )

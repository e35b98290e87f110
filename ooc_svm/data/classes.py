"""From labels to binary problems: the classes, and the sign and weight of the rows of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array
from ooc_svm.data.limits import INEXACT
from ooc_svm.errors import InputError, UsageError, parameter

MAX_CLASSES = 1000

OTHERS = -1.0  # The label that stands for all that are not positive, where they are several


@dataclass(frozen=True, slots=True)
class BinaryProblem:
    """One class, or set of classes, against the others.

    `positive` and `negative` are the labels predicted for such scores; negative is None if there is no single
    one. `sign`, +1 or -1, and `weight`, of the losses, have an entry for each class.
    """

    positive: float
    negative: float | None
    sign: Float64Array
    weight: Float64Array


@dataclass(frozen=True, slots=True, eq=False)
class LabelProblem:
    """One label of several that a row may have: rows with it against those without.

    `positive` is the number of the label, `members` its bits (`ooc_svm.data.label_sets.LabelSets`), and
    `side_weight` the weights of the losses of rows without the label, and with it.
    """

    positive: float
    members: npt.NDArray[np.uint8]
    side_weight: tuple[float, float]
    negative: None = None


def label_text(label: float) -> str:
    """A label as text: whole numbers without a decimal point."""
    return str(int(label)) if float(label).is_integer() and abs(label) < INEXACT else repr(float(label))


def label_name(label: float, names: Sequence[str] | None) -> str:
    """What a label is called: by its name if it is the number of one, else as text."""
    if names is None or not 0 <= label < len(names):
        return label_text(label)
    return names[int(label)]


def _takes(what: str) -> str:
    classifier, regressor = parameter("problem", "svc"), parameter("problem", "svr")
    return f"a classifier ({classifier}) takes {what}, values are for {regressor}"


def check_classes(counts: Mapping[float, int] | None, names: Sequence[str] | None) -> Float64Array:
    """Return the labels, ascending; ``names``: what they are called in messages.

    InputError if there are fewer than two labels or too many, or if they are not whole numbers.
    """
    if counts is None or len(counts) > MAX_CLASSES:
        raise InputError(f"there are more than {MAX_CLASSES} different labels; {_takes('classes')}")
    labels = np.array(sorted(label for label, count in counts.items() if count), dtype=np.float64)
    broken = labels[labels != np.round(labels)]
    if len(broken):
        raise InputError(
            f"the labels are values, not classes (for example {label_text(float(broken[0]))}); "
            f"{_takes('whole numbers')}"
        )
    if len(labels) < 2:
        found = ", ".join(label_name(label, names) for label in labels)
        raise InputError(
            f"training needs rows of at least two classes, found {{{found}}}; add rows of another class"
        )
    return labels


def binary_problems(
    counts: Mapping[float, int] | None,
    positive: Sequence[float],
    class_weight: str | Mapping[float, float] | None,
    trained: Mapping[float, int] | None,
    named_others: float | None,
    names: Sequence[str] | None,
) -> tuple[Float64Array, list[BinaryProblem]]:
    """The classes, ascending, and the binary problems of classification.

    With two labels, the larger one is positive; with more, there is one problem for each label against the
    rest. With ``positive``, there is one problem: these labels against all others. "balanced" weighs the two
    sides of each problem with ``n / (2 n_side)``, counting the rows of each label that are ``trained`` on
    where these are not all; weights by label are for the rows of that label, 1 by default. ``named_others``
    is the label that is called as all others together are, ``names`` are those of the labels. InputError if
    the labels cannot be classes, or no row has a label that is named.
    """
    classes = check_classes(counts, names)
    assert counts is not None
    named = [*positive, *(class_weight if isinstance(class_weight, Mapping) else ())]
    for label in named:
        if label not in classes:
            found = ", ".join(label_name(known, names) for known in classes[:20])
            raise InputError(f"no row has the label {label_name(label, names)}; the labels are {found}")
    if positive:
        sides = [set(positive)]
    elif len(classes) == 2:
        sides = [{float(classes[1])}]
    else:
        sides = [{float(label)} for label in classes]
    sizes = np.array([(trained or counts)[label] for label in classes], dtype=np.float64)
    one_against_rest = not positive and len(classes) > 2
    return classes, [
        _problem(classes, sizes, side, class_weight, one_against_rest, named_others) for side in sides
    ]


def _problem(
    classes: Float64Array,
    sizes: Float64Array,
    side: set[float],
    class_weight: str | Mapping[float, float] | None,
    one_against_rest: bool,
    named_others: float | None,
) -> BinaryProblem:
    inside = np.array([label in side for label in classes])
    if inside.all():
        raise InputError("all labels are named as positive; training needs rows of another class")
    weight = np.ones(len(classes))
    if class_weight == "balanced":
        n = sizes.sum()
        weight = np.where(inside, n / (2 * sizes[inside].sum()), n / (2 * sizes[~inside].sum()))
    elif isinstance(class_weight, Mapping):
        weight = np.array([class_weight.get(float(label), 1.0) for label in classes])
        if not weight.any():
            raise UsageError(
                f"{parameter('class_weight')} gives all classes a weight of 0, so that there is nothing to "
                "train on; give some a weight above 0"
            )
    negative = None
    if not one_against_rest:  # the only other label; of several -1, or the lowest if -1 is a positive label
        others = classes[~inside]
        negative = float(others[0]) if len(others) == 1 or named_others in side else OTHERS
    return BinaryProblem(float(classes[inside][0]), negative, np.where(inside, 1.0, -1.0), weight)

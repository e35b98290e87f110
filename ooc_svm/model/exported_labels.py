"""Labels as the text formats of LIBLINEAR and LIBSVM have them: integers, the positive one first."""

from __future__ import annotations

from ooc_svm.errors import InputError
from ooc_svm.model.model import Model

# Largest magnitude of a label that these programs read.
_LABEL_LIMIT = 2**31 - 1


def labels_of(model: Model) -> list[float]:
    """The labels in the order of the formats: that of the positive class first."""
    return [model.positive[k] for k in model.active] + ([] if model.negative is None else [model.negative])


def integer_label(label: float, program: str) -> str:
    """A label in the text; InputError if the program cannot read it."""
    if not label.is_integer() or abs(label) > _LABEL_LIMIT:
        raise InputError(
            f"the label {label!r} is not an integer of 32 bits, and {program} reads no other labels; "
            "export to svmlight, or convert the data with integer labels"
        )
    return str(int(label))

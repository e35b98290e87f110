"""Labels as estimators have them: columns of an indicator matrix, and classes in the type of the labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy import sparse

from ooc_svm.data.blocks import Float64Array
from ooc_svm.data.classes import label_text
from ooc_svm.data.csr import csr_of_sparse
from ooc_svm.errors import InputError, UsageError, parameter
from ooc_svm.model.decision import Decision
from ooc_svm.model.model import Model


@dataclass(frozen=True, slots=True)
class LabelColumns:
    """Which rows of training have the label of each column: none, some or all."""

    none: npt.NDArray[np.bool_]
    all: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, indicator: Any, positive: Any) -> Self:
        """The columns of a matrix.

        UsageError if labels are named as positive besides, InputError if nothing can be learned of any label.
        """
        if np.size(positive):
            raise UsageError(
                f"y has a column for each label to train; leave {parameter('positive')} out, or give fewer "
                "columns"
            )
        entries = _copied(indicator) if sparse.issparse(indicator) else indicator
        rows = np.asarray((entries != 0).sum(axis=0)).ravel()
        found = cls(rows == 0, rows == indicator.shape[0])
        if not found._learned.any():
            _check_values(indicator)
            raise InputError("of each label y has either no row or all rows: nothing can be learned")
        return found

    @property
    def _learned(self) -> npt.NDArray[np.bool_]:
        return ~(self.none | self.all)

    @property
    def trained(self) -> tuple[str, ...]:
        """The labels that models are trained for, as `ooc_svm.train` calls them."""
        return tuple(map(str, np.flatnonzero(self._learned)))

    def spread(self, of_model: Float64Array, none: float, all: float) -> Float64Array:
        """The columns of the model in their places; those of other labels have what is given for them."""
        spread = np.empty((len(of_model), len(self.none)))
        spread[:, self._learned] = of_model
        spread[:, self.none], spread[:, self.all] = none, all
        return spread


def different_labels(y: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The labels, sorted; InputError if they are of several types, or are one class."""
    try:
        labels: npt.NDArray[Any] = np.unique(y)
    except TypeError as error:
        raise InputError(f"y has labels of several types ({error}); give numbers or text alone") from None
    if len(labels) < 2:
        [only] = labels.tolist()
        raise InputError(f"training needs rows of at least two classes, y has one class: {only!r}")
    return labels


def sorted_classes(model: Model) -> npt.NDArray[Any]:
    """The classes of a model, sorted, but for those that are joined (the others first) and labels of sets."""
    joined = not model.is_one_vs_rest and len(model.classes) > 2
    return model.classes_ if joined or model.multilabel else np.sort(model.classes_)


def same_order(classes: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """The places among ``classes`` of those that are ``wanted``: the same ones, maybe of another type."""
    return np.argsort(classes)[np.argsort(np.argsort(wanted))]


def sides_of(decision: Decision, y: Any) -> npt.NDArray[np.int64]:
    """The side of each label: 1 of all that were named as positive, 0 of the others."""
    known, codes = np.unique(np.asarray(y), return_inverse=True)
    texts = [str(label) if decision.named else label_text(float(label)) for label in known]
    return np.array([decision.sides.get(text, -1) > 0 for text in texts], np.int64)[codes]


def of_type(classes: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Classes of a model in the type of the labels, or of whole numbers, if it has them; else as they are."""
    for each in (dtype, np.dtype(np.int64)) if dtype.kind in "iu" else (dtype,):
        with np.errstate(invalid="ignore"):  # -1 in a type without a sign
            cast = classes.astype(each)
        if (cast == classes).all():
            return cast
    return classes


def _copied(indicator: Any) -> Any:
    """A sparse matrix that SciPy may sort in place; InputError if its ids are not those of its shape."""
    try:
        return csr_of_sparse(indicator).copy()
    except (TypeError, ValueError, IndexError, OverflowError) as error:
        raise InputError(f"y is not a valid matrix: {str(error)[:100]}; give 0 and 1") from error


def _check_values(indicator: Any) -> None:
    """InputError for -1 and the like, where a row without a label should have 0."""
    entries = sparse.coo_array(indicator)
    wrong = np.flatnonzero((entries.data != 0) & (entries.data != 1))
    if len(wrong):
        value, row, column = (part[wrong[0]] for part in (entries.data, entries.row, entries.col))
        raise InputError(
            f"y is a matrix, which says by 0 and 1 what labels a row has, and has {value} in row {row}, "
            f"column {column}, from 0; give one label a row, or 0 and 1 alone"
        )

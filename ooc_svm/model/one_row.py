"""Scores of one row at a time, of weights without Numba: for a program that answers requests.

A score has the bits that `ooc_svm.decision_scores` gives: the same four partial sums, by ascending columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, RowBlock
from ooc_svm.errors import InputError, UsageError, shown
from ooc_svm.model.decision import LABEL_SETS, Decision
from ooc_svm.model.linear import LinearScorer
from ooc_svm.parameters import plain, read_number

if TYPE_CHECKING:
    from ooc_svm.model.model import Model

# Up to so many features a loop in Python takes less time than the calls of NumPy.
_FEW = 64
# Types that a product with a weight takes as they are.
_NUMBERS = {float, int}

_ALLOWED = (
    "a mapping of columns, or names of features, to values, a pair of column numbers and values, a sparse "
    "matrix of one row, or a 1-d array of all features"
)


class OneRow:
    """The functions of a model that predict together, ready to score single rows."""

    def __init__(self, model: Model) -> None:
        self.made_for = (model.functions, model.selected)
        self.decision = decision = Decision.of(model)
        self.labels: list[Any] = list(decision.texts if model.label_names else decision.labels.tolist())
        scorer = decision.scorer
        self._bias = scorer.bias
        # None: the scorer itself takes the row.
        self._weights = scorer.weights if isinstance(scorer, LinearScorer) else None
        self._n_features = decision.scorer.n_features
        self._single = decision.scorer.n_scores == 1
        # Indexing gives a float at once, and sees a change of the weights.
        alone = self._weights if self._single else None
        self._column = None if alone is None else alone.reshape(-1).data
        names = getattr(model, "feature_names", None)
        self._places = None if names is None else {name: place for place, name in enumerate(names)}
        if self._places is not None and len(self._places) < self._n_features:
            raise UsageError("two features of the model have the same name; give column numbers")

    def score(self, row: Any) -> Any:
        """A float, or of several classes, or sets of labels, a dict of label and score."""
        if self._single and self.decision.predicted == LABEL_SETS:
            return {self.labels[0]: self._one_score(row)}
        if self._single:
            return self._one_score(row)
        return dict(zip(self.labels, self._scores(row).tolist(), strict=True))

    def prediction(self, row: Any) -> Any:
        """The label, or the score where it is the prediction."""
        if self.decision.predicted == LABEL_SETS:
            scores = self._scores(row) if not self._single else [self._one_score(row)]
            return [label for label, score in zip(self.labels, scores, strict=True) if score > 0]
        if not self._single:
            return self.labels[int(self._scores(row).argmax())]
        score = self._one_score(row)
        return self.labels[score > 0] if self.labels else score

    def _one_score(self, row: Any) -> float:
        weights = self._column
        if weights is not None and isinstance(row, Mapping) and len(row) <= _FEW:
            columns, values = self._listed(row)
            try:
                parts = [weights[column] * value for column, value in zip(columns, values, strict=True)]
            except OverflowError:
                self._refuse(values)
            a0 = a1 = a2 = a3 = 0.0
            whole = len(parts) & ~3
            for place in range(0, whole, 4):
                a0 += parts[place]
                a1 += parts[place + 1]
                a2 += parts[place + 2]
                a3 += parts[place + 3]
            for part in parts[whole:]:
                a0 += part
            score = ((a0 + a1) + (a2 + a3)) + self._bias.item()
            if not math.isfinite(score):
                self._refuse(values)
            return score
        return float(self._scores(row)[0])

    def _scores(self, row: Any) -> Float64Array:
        columns, values = self._arrays(row)
        if self._weights is None:
            return self._scores_by_kernel(columns, values)
        with np.errstate(over="ignore", invalid="ignore"):
            parts = self._weights[columns] * values[:, None]
            whole = len(parts) & ~3
            sums = parts[:whole].reshape(-1, 4, parts.shape[1]).sum(axis=0)
            for part in parts[whole:]:
                sums[0] += part
            scores: Float64Array = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + self._bias
        if not np.isfinite(scores).all():
            self._refuse(values.tolist())
        return scores

    def _scores_by_kernel(self, columns: npt.NDArray[Any], values: Float64Array) -> Float64Array:
        """Scores by the support vectors."""
        ends = np.array([0, len(columns)], np.int64)
        block = RowBlock(0, ends, columns.astype(np.int32), values)
        scores: Float64Array = self.decision.scorer.scores(block, 0, 1)[0]
        if not np.isfinite(scores).all():
            self._refuse(values.tolist())
        return scores

    def _listed(self, row: Mapping[Any, Any]) -> tuple[list[int], list[Any]]:
        """Columns, ascending, and their values; what the model does not have is left out."""
        kinds = set(map(type, row))
        if not set(map(type, row.values())) <= _NUMBERS:
            row = {key: _value(key, value) for key, value in row.items()}
        if kinds == {str}:
            if self._places is None:
                raise UsageError("the model has no names of features; give column numbers, from 0, as keys")
            found = {self._places[name]: value for name, value in row.items() if name in self._places}
        elif kinds <= {int}:
            found = dict(row)
        else:
            found = {_column(key): value for key, value in row.items()}
            if len(found) < len(row):
                raise UsageError("the row has a column twice; give each once")
        columns = sorted(found)
        if columns and columns[0] < 0:
            raise UsageError(f"the row has the column {columns[0]}; columns count from 0")
        while columns and columns[-1] >= self._n_features:
            columns.pop()
        return columns, [found[column] for column in columns]

    def _arrays(self, row: Any) -> tuple[npt.NDArray[Any], Float64Array]:
        """The same as arrays, of any row."""
        if isinstance(row, Mapping):
            columns, values = self._listed(row)
            return np.array(columns, np.int64), _floats(values)
        if isinstance(row, np.ndarray) and row.ndim == 1:
            if len(row) != self._n_features:
                raise UsageError(f"the row has {len(row)} features, the model {self._n_features}")
            dense = _floats(row)
            present = np.flatnonzero(dense)  # streaming a dense matrix drops zeros too
            return present, dense[present]
        if hasattr(row, "tocsr") and getattr(row, "shape", (0,))[0] == 1:
            row = row.tocsr()
            if not row.has_canonical_format:
                row = row.copy()
                row.sum_duplicates()
            row = (row.indices, row.data)
        if not isinstance(row, tuple) or len(row) != 2:
            raise UsageError(f"a row must be {_ALLOWED}, not {shown(row)}")
        return self._ordered(_column_array(row[0]), _floats(row[1]))

    def _ordered(self, columns: Any, values: Float64Array) -> tuple[npt.NDArray[Any], Float64Array]:
        if not len(columns.shape) == 1 == values.ndim or len(columns) != len(values):
            raise UsageError(
                f"a row must have as many columns as values, not {columns.shape} and {values.shape}"
            )
        if len(columns) and columns.dtype.kind not in "iu":
            raise UsageError(f"the columns of a row must be integers, not {shown(columns.tolist())}")
        columns = columns.astype(np.int64, copy=False)
        if (columns[1:] <= columns[:-1]).any():
            order = np.argsort(columns)
            columns, values = columns[order], values[order]
            if (columns[1:] == columns[:-1]).any():
                raise UsageError("the row has a column twice; give each once")
        if len(columns) and columns[0] < 0:
            raise UsageError(f"the row has the column {columns[0]}; columns count from 0")
        known = int(np.searchsorted(columns, self._n_features))
        return columns[:known], values[:known]

    def _refuse(self, values: list[Any]) -> NoReturn:
        for value in values:
            if not math.isfinite(_value(None, value)):
                raise UsageError(f"the row has the value {value}; give finite numbers")
        raise InputError(
            "the row has a score beyond the range of float64; its values are far larger than those of "
            "training: scale them the same way"
        )


def _column(key: Any) -> int:
    key = plain(key)
    if isinstance(key, bool) or not isinstance(key, int):
        raise UsageError(
            f"the row has the key {shown(key)}; give column numbers, or names of features, for all values"
        )
    return key


def _value(key: Any, value: Any) -> float:
    try:
        return float(read_number(value))
    except (TypeError, OverflowError):
        where = "" if key is None else f" at {shown(key)}"
        raise UsageError(f"the row has the value {shown(value)}{where}; give finite numbers") from None


def _column_array(columns: Any) -> npt.NDArray[Any]:
    try:
        return np.asarray(columns)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"the columns of a row must be integers, not {shown(columns)}") from None


def _floats(values: Any) -> Float64Array:
    try:
        array = np.asarray(values)
        if array.size and array.dtype.kind not in "fiu":
            raise TypeError
        return array.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"the values of a row must be finite numbers, not {shown(values)}") from None

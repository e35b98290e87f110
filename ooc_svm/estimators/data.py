"""The data that estimators take: what is streamed by the package, and what is checked by scikit-learn."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import (
    _check_feature_names,
    _check_n_features,
    check_array,
    check_X_y,
    validate_data,
)

from ooc_svm.data.annotated import DEFAULT_LABEL, is_annotated, own_numbers, read_annotated
from ooc_svm.errors import InputError, UsageError, shown
from ooc_svm.parameters import is_path

# Options of reading text with their values, as messages advise them.
_READING = re.compile(r"\b(?:labels|index_base|dtype)=(?:'\w+'|\d)")

# Dense matrices are turned into sparse ones of these types, and sparse ones into this format.
_CHECKS: dict[str, Any] = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}


def is_streamed(X: Any) -> bool:
    """Whether X is a store or a path, read by the package block by block."""
    return is_path(X) or hasattr(X, "read_block") or (isinstance(X, list | tuple) and any(map(is_path, X)))


@contextmanager
def reading(X: Any) -> Iterator[None]:
    """Say of text that is to be read in another way that it is to be converted: estimators cannot be told."""
    try:
        yield
    except InputError as error:
        advised = _READING.search(str(error)) if is_streamed(X) else None
        if advised is None:
            raise
        raise InputError(
            f"{error}; an estimator has no such parameter: convert the text first, with "
            f"ooc_svm.convert(..., {advised.group()}), and give the store"
        ) from error


class Given(NamedTuple):
    """Rows with their labels, weights and numbers of queries: what was given, or columns of AnnData."""

    X: Any
    y: Any
    sample_weight: Any
    qid: Any

    @classmethod
    def of(cls, estimator: Any, X: Any, y: Any, sample_weight: Any = None, qid: Any = None) -> Given:
        """Those of the rows that have labels; labels alone are taken from AnnData.

        UsageError if AnnData has no such column, InputError if a row has no label, and is not to be skipped.
        """
        if not is_annotated(X):
            return cls(X, y, sample_weight, qid)
        if y is None:
            y = _label_column(X, estimator.label)
            where = estimator.label, estimator.layer
            labels = read_annotated(X, *where, unlabelled=estimator.unlabelled).labels
            if not (kept := np.isfinite(labels)).all():
                X, y = X[kept], y[kept]
                sample_weight, qid = (
                    None if each is None else np.asarray(each)[kept] for each in (sample_weight, qid)
                )
        return cls(X, y, sample_weight, qid)

    def to_score(self) -> Given:
        """The same; UsageError where there are neither labels nor data that bring them."""
        if self.y is None and not is_streamed(self.X):
            raise UsageError("score needs y with a matrix; a store, text and AnnData bring their own labels")
        return self

    def with_weights(self) -> Given:
        """The same with the weights."""
        return self._replace(sample_weight=self._own("weight", self.sample_weight))

    def with_queries(self) -> Given:
        """The same with the numbers of the queries."""
        return self._replace(qid=self._own("qid", self.qid))

    def _own(self, name: str, given: Any) -> Any:
        return own_numbers(self.X, name) if given is None and is_annotated(self.X) else given


def _label_column(X: Any, label: str | None) -> Any:
    name = DEFAULT_LABEL if label is None else label
    if name not in X.obs:
        raise UsageError(
            f"obs of the AnnData has no column {shown(name)} of labels, only {shown(list(X.obs.columns))}; "
            "name one of them as label, or give y"
        )
    return np.asarray(X.obs[name])


def checked_rows(estimator: Any, X: Any) -> Any:
    """The rows to predict: a matrix with the columns that the estimator was fitted to."""
    if not is_annotated(X):
        return validate_data(estimator, X, reset=False, **_CHECKS)
    _check_columns(estimator, X, reset=False)
    return check_array(_matrix(X, estimator.layer), estimator=estimator, **_CHECKS)


def checked_training(
    estimator: Any, X: Any, y: Any, *, y_numeric: bool, multi_output: bool = False
) -> tuple[Any, Any]:
    """The rows and targets to fit to; their columns are those that the estimator has from now on."""
    checks = {**_CHECKS, "y_numeric": y_numeric, "ensure_min_samples": 2, "multi_output": multi_output}
    if not is_annotated(X):
        return validate_data(estimator, X, y, **checks)  # type: ignore[no-any-return]
    _check_columns(estimator, X, reset=True)
    return check_X_y(_matrix(X, estimator.layer), y, estimator=estimator, **checks)  # type: ignore[no-any-return]


def _matrix(X: Any, layer: str | None) -> Any:
    """The matrix of AnnData, or its layer."""
    return read_annotated(X, layer=layer, labelled=False, unlabelled="keep").matrix


def _check_columns(estimator: Any, X: Any, *, reset: bool) -> None:
    """Check or keep the names and the number of the columns of AnnData."""
    _check_feature_names(estimator, X.var.T, reset=reset)
    _check_n_features(estimator, X, reset=reset)

"""Probabilities of classes from the scores of logistic models: ``1 / (1 + exp(-f(x)))`` of each function."""

from __future__ import annotations

import numpy as np

from ooc_svm.catalog import PROBLEMS
from ooc_svm.data.blocks import Float64Array

LOSSES = ("logistic",)
"""Losses whose models give probabilities."""


def gives_probabilities(problem: str, loss: str) -> bool:
    """Whether the scores of models of a problem with a loss give probabilities."""
    return loss in LOSSES and PROBLEMS[problem].form == "classes"


def log_of_two(scores: Float64Array) -> Float64Array:
    """Logarithms of the probabilities of the negative and the positive class; shape (n, 2)."""
    signed = np.column_stack([-scores, scores])
    return _log_sigmoid(signed)


def log_of_several(scores: Float64Array) -> Float64Array:
    """Logarithms of the functions' probabilities, divided by their sum; shape (n, K)."""
    each = _log_sigmoid(scores)
    # A row may be so far from all classes that the probabilities underflow.
    each -= each.max(axis=1, keepdims=True)
    log: Float64Array = each - np.log(np.exp(each).sum(axis=1, keepdims=True))
    return log


def log_of_sets(scores: Float64Array) -> Float64Array:
    """Logarithms of the probability of each label by itself; shape (n, K)."""
    return _log_sigmoid(scores)


def _log_sigmoid(scores: Float64Array) -> Float64Array:
    log: Float64Array = np.minimum(scores, 0.0) - np.log1p(np.exp(-np.abs(scores)))
    return log

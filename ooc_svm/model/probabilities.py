"""Probabilities of classes from the log-odds of each function: ``1 / (1 + exp(-z))``.

The log-odds z of a logistic model are its scores; a calibration gives those of other models.
"""

from __future__ import annotations

import numpy as np

from ooc_svm.catalog import PROBLEMS
from ooc_svm.data.blocks import Float64Array

LOSSES = ("logistic",)
"""Losses whose scores are log-odds."""


def gives_probabilities(problem: str, loss: str, *, calibrated: bool) -> bool:
    """Whether models of a problem with a loss give probabilities, which they do if they are calibrated."""
    return calibrated or (loss in LOSSES and PROBLEMS[problem].form == "classes")


def log_of_two(odds: Float64Array) -> Float64Array:
    """Logarithms of the probabilities of the negative and the positive class; shape (n, 2)."""
    signed = np.column_stack([-odds, odds])
    return _log_sigmoid(signed)


def log_of_several(odds: Float64Array, temperatures: Float64Array | None = None) -> Float64Array:
    """Logarithms of the functions' probabilities to the power of 1 / T, divided by their sum; shape (n, K).

    ``temperatures``: T, shape (K,); None: 1.
    """
    each = _log_sigmoid(odds)
    if temperatures is not None:
        each /= temperatures
    # A row may be so far from all classes that the probabilities underflow.
    each -= each.max(axis=1, keepdims=True)
    log: Float64Array = each - np.log(np.exp(each).sum(axis=1, keepdims=True))
    return log


def log_of_sets(odds: Float64Array) -> Float64Array:
    """Logarithms of the probability of each label by itself; shape (n, K)."""
    return _log_sigmoid(odds)


def _log_sigmoid(odds: Float64Array) -> Float64Array:
    log: Float64Array = np.minimum(odds, 0.0) - np.log1p(np.exp(-np.abs(odds)))
    return log

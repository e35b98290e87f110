"""The features with the largest weights of each decision function."""

from __future__ import annotations

from typing import Any

import numpy as np

from ooc_svm.catalog import LINEAR
from ooc_svm.data.blocks import Float64Array, Int64Array
from ooc_svm.data.classes import label_text
from ooc_svm.errors import UsageError
from ooc_svm.model.model import Model


def top_features(model: Model, count: int) -> list[dict[str, Any]]:
    """The features with the largest weights, by magnitude, of each function, in terms of JSON.

    For each function its ``label`` (None unless it stands for a class), its ``C`` (None where it is not
    known) and a list of ``features``: the ``name`` (None where features have no names), the ``number`` as in
    text, and the ``weight`` of each, the largest magnitude first and the lowest number first of equals.
    Weights that are 0 are left out.

    UsageError for a model without weights.
    """
    if model.kernel != LINEAR:
        raise UsageError(
            f"features have weights in linear models, and this one has the kernel {model.kernel}"
        )
    names = dict(zip(model.classes, model.label_names or (), strict=False))
    found = []
    for k, weights in enumerate(model.weights):
        label = model.positive[k] if model.positive else None
        features = [
            {
                "name": None if model.feature_names is None else model.feature_names[j],
                "number": j + model.index_base,
                "weight": float(weights[j]),
            }
            for j in _largest(weights, count).tolist()
        ]
        found.append(
            {
                "label": None if label is None else names.get(label, label_text(label)),
                "C": model.C[k] if model.C else None,
                "features": features,
            }
        )
    return found


def _largest(weights: Float64Array, count: int) -> Int64Array:
    """Places of the largest magnitudes other than 0, in their order."""
    magnitudes = np.abs(weights)
    candidates = np.flatnonzero(magnitudes)
    if len(candidates) > count:
        least = np.partition(magnitudes, len(magnitudes) - count)[len(magnitudes) - count]
        candidates = np.flatnonzero(magnitudes >= least)
    order = np.argsort(-magnitudes[candidates], kind="stable")[:count]
    return candidates[order]

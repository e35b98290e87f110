"""Isotonic regression: the probability of a class as a function that never falls, fitted to counts of scores.

Source: B. Zadrozny and C. Elkan, "Transforming classifier scores into accurate multiclass probability
estimates" (2002); the fit is that of pool adjacent violators (Ayer et al. 1955).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array
from ooc_svm.model.sigmoid import targets_of


@dataclass(frozen=True, slots=True, eq=False)
class Isotonic:
    """Probabilities at some scores, ascending, both of shape (knots,); lines between, constant outside."""

    scores: Float64Array
    probabilities: Float64Array

    def log_odds(self, scores: Float64Array) -> Float64Array:
        """Logarithms of ``p / (1 - p)``; shape (n,)."""
        p = np.interp(scores, self.scores, self.probabilities)
        odds: Float64Array = np.log(p) - np.log1p(-p)
        return odds

    @classmethod
    def fit(cls, scores: Float64Array, negatives: Float64Array, positives: Float64Array) -> Isotonic:
        """The function closest to Platt's targets that never falls; parameters as of `Sigmoid.fit`.

        With the targets 0 and 1 it would be the same function, and reach them. A pool of bins has a knot at
        either end.
        """
        rows, hits = negatives + positives, targets_of(negatives, positives)
        firsts, means = _pooled(rows.tolist(), hits.tolist())
        lasts = [*(first - 1 for first in firsts[1:]), len(scores) - 1]
        places, own = np.unique([firsts, lasts], return_index=True)
        return cls(scores[places], np.array(means)[own % len(means)])

    @staticmethod
    def arrays_of(maps: Sequence[Isotonic]) -> dict[str, npt.NDArray[Any]]:
        """The arrays of a file: the knots of all maps, and how many each has."""
        knots = [np.column_stack([own.scores, own.probabilities]) for own in maps]
        return {
            "isotonic_knots": np.concatenate(knots),
            "isotonic_lengths": np.array([len(own) for own in knots], np.int32),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> list[Isotonic]:
        """The maps from the arrays of a file; KeyError, ValueError where these are none."""
        knots, lengths = arrays["isotonic_knots"], arrays["isotonic_lengths"]
        if knots.dtype != np.float64 or knots.ndim != 2 or knots.shape[1] != 2:
            raise ValueError("the knots of isotonic functions are no pairs of numbers")
        if lengths.dtype != np.int32 or lengths.ndim != 1 or lengths.min(initial=1) < 1:
            raise ValueError("the numbers of knots of isotonic functions are none")
        ends = np.cumsum(lengths, dtype=np.int64)
        if len(ends) == 0 or ends[-1] != len(knots):
            raise ValueError("the knots of isotonic functions are not as many as there should be")
        parts = np.split(knots, ends[:-1])
        return [cls(np.ascontiguousarray(own[:, 0]), np.ascontiguousarray(own[:, 1])) for own in parts]

    def check(self) -> None:
        """Raise ValueError for scores that do not rise, or probabilities that fall or reach 0 or 1."""
        scores, values = self.scores, self.probabilities
        if not np.isfinite(scores).all() or not (scores[1:] > scores[:-1]).all():
            raise ValueError("the scores of an isotonic function do not rise")
        if not (0.0 < values[0] <= values[-1] < 1.0) or not (values[1:] >= values[:-1]).all():
            raise ValueError("the probabilities of an isotonic function fall, or reach 0 or 1")

    def to_json(self) -> dict[str, Any]:
        """As in the report; the knots are in the model."""
        return {"knots": len(self.scores)}


def _pooled(rows: Sequence[float], hits: Sequence[float]) -> tuple[list[int], list[float]]:
    """The first bin of each pool of adjacent bins, and the mean of its rows, which rises."""
    pools: list[tuple[int, float, float]] = []  # first bin, rows, sum of the targets
    for first, (own_rows, own_hits) in enumerate(zip(rows, hits, strict=True)):
        pool = first, own_rows, own_hits
        while pools and pools[-1][2] * pool[1] >= pool[2] * pools[-1][1]:
            before = pools.pop()
            pool = before[0], before[1] + pool[1], before[2] + pool[2]
        pools.append(pool)
    return [pool[0] for pool in pools], [hits_of / rows_of for _, rows_of, hits_of in pools]

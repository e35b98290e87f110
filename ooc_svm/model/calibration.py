"""Maps of the scores of decision functions to probabilities: a method, and a map for each function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from ooc_svm.catalog import CALIBRATIONS, load
from ooc_svm.data.blocks import Float64Array
from ooc_svm.model.sigmoid import Sigmoid

_TEMPERATURES = "temperatures"  # Name of their array in a file


class ScoreMap(Protocol):
    """From scores of a function to log-odds of its class, which never fall; see `Sigmoid`, `Isotonic`."""

    def log_odds(self, scores: Float64Array) -> Float64Array: ...

    def check(self) -> None: ...

    def to_json(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """A map for each function of a model, all of the same method.

    Of several classes `temperatures`, shape (functions,), that of the classes which a function belongs to:
    see `ooc_svm.model.probabilities.log_of_several`. None stands for 1.

    ValueError for an unknown method, maps that are not such maps, temperatures that are not positive numbers.
    """

    method: str
    maps: tuple[ScoreMap, ...]
    temperatures: Float64Array | None = None

    def __post_init__(self) -> None:
        if (given := self.temperatures) is not None and not (
            given.dtype == np.float64
            and given.shape == (len(self.maps),)
            and (np.isfinite(given) & (given > 0.0)).all()
        ):
            raise ValueError("the temperatures are not a positive number for each function")
        kind = map_of(self.method)
        for each in self.maps:
            if not isinstance(each, kind):
                raise ValueError(f"a map of the method {self.method} is a {type(each).__name__}")
            each.check()

    def of(self, functions: Sequence[int]) -> Self:
        """That of some functions."""
        temperatures = None if self.temperatures is None else self.temperatures[list(functions)]
        return type(self)(self.method, tuple(self.maps[k] for k in functions), temperatures)

    def log_odds(self, scores: Float64Array) -> Float64Array:
        """Logarithms of ``p / (1 - p)`` of each function's class by itself; both of shape (n, K)."""
        columns = [own.log_odds(column) for own, column in zip(self.maps, scores.T, strict=True)]
        return np.column_stack(columns)

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays of a file."""
        found: dict[str, npt.NDArray[Any]] = map_of(self.method).arrays_of(self.maps)
        return found if self.temperatures is None else found | {_TEMPERATURES: self.temperatures}

    @classmethod
    def from_arrays(cls, method: str, arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """The calibration from the arrays of a file; KeyError, ValueError where these are none."""
        return cls(method, tuple(map_of(method).from_arrays(arrays)), arrays.get(_TEMPERATURES))

    @classmethod
    def joined(cls, parts: Sequence[Calibration]) -> Self:
        """That of all functions, from those of some after another, of the same method."""
        maps = tuple(own for part in parts for own in part.maps)
        known = [part.temperatures for part in parts if part.temperatures is not None]
        return cls(parts[0].method, maps, np.concatenate(known) if len(known) == len(parts) else None)


def map_of(method: str) -> Any:
    """The class of the maps of a method; ValueError if it is unknown."""
    if method not in CALIBRATIONS:
        raise ValueError(f"the calibration is {method[:80]!r}, this release knows {', '.join(CALIBRATIONS)}")
    return load(CALIBRATIONS[method])


def unfitted(n_functions: int) -> Calibration:
    """Scores taken for log-odds: what stands for a calibration until there are scores to fit it to."""
    return Calibration("sigmoid", (Sigmoid(1.0, 0.0),) * n_functions)

"""Linear decision functions: the weights of a model, how they are stored, and the scores they give."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, cast

import numpy as np
import numpy.typing as npt

from ooc_svm.catalog import LINEAR
from ooc_svm.data.blocks import Float64Array, RowBlock
from ooc_svm.errors import MemoryBudgetError
from ooc_svm.system.memory import available_memory, size_available, size_needed

Arrays = Mapping[str, npt.NDArray[Any]]

# Share of nonzero weights below which column ids and values (12 or 16 bytes) take less than all weights (8).
_SPARSE_SHARE = 1 / 3


@dataclass(frozen=True, slots=True, eq=False)
class LinearFunctions:
    """Decision functions ``f_k(x) = weights[k] . x + bias[k]``.

    The weights, shape (K, d), are in the units of the data: `scale`, of the columns, is folded in and kept
    for information. ValueError if the shapes do not fit each other, or a number is not finite.
    """

    kernel: ClassVar[str] = LINEAR

    weights: Float64Array
    bias: Float64Array
    scale: Float64Array | None = None

    def __post_init__(self) -> None:
        as_float64(self, ("weights", "bias", "scale"))
        self.check()

    def check(self) -> None:
        """Raise ValueError if the arrays do not fit each other, or a number is not finite."""
        if self.weights.ndim != 2 or len(self.weights) == 0:
            raise ValueError(f"weights have the shape {self.weights.shape}, not (models, features)")
        n_models, n_features = self.weights.shape
        check_arrays(self, {"weights": (n_models, n_features), "bias": (n_models,), "scale": (n_features,)})

    @property
    def n_models(self) -> int:
        """Number of decision functions, K."""
        return len(self.weights)

    @property
    def n_features(self) -> int:
        """Number of features, d."""
        return int(self.weights.shape[1])

    def scorer(self, active: Sequence[int]) -> LinearScorer:
        """The functions with these numbers, ready to score rows."""
        if len(active) == 1:
            weights = self.weights[active[0]].reshape(-1, 1)
            return LinearScorer(weights, self.bias[list(active)], self.weights.nbytes)
        weights = np.empty((self.n_features, len(active)))
        for place, k in enumerate(active):
            weights[:, place] = self.weights[k]
        return LinearScorer(weights, self.bias[list(active)], self.weights.nbytes + weights.nbytes)

    def info(self) -> dict[str, Any]:
        """What ``info MODEL --json`` prints of the functions, in terms of JSON."""
        return {
            "n_nonzero_weights": int(np.count_nonzero(self.weights)),
            "scaled": self.scale is not None,
            "bias": self.bias.tolist(),
        }

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays of the file: all weights, or ids and values of the nonzero ones if that is shorter."""
        arrays: dict[str, npt.NDArray[Any]] = {"bias": self.bias}
        flat = self.weights.reshape(-1)
        is_set = flat.view(np.int64) != 0  # -0.0 counts as set: the file gives the same bits back
        if np.count_nonzero(is_set) >= _SPARSE_SHARE * len(flat):
            arrays["weights"] = self.weights
        else:
            places = np.flatnonzero(is_set)
            narrow = len(flat) <= np.iinfo(np.int32).max
            arrays["weight_ids"] = places.astype(np.int32 if narrow else np.int64)
            arrays["weight_values"] = flat[places]
        if self.scale is not None:
            arrays["scale"] = self.scale
        return arrays

    @classmethod
    def from_arrays(cls, kernel: str, arrays: Arrays, n_models: int, n_features: int) -> Self:
        """The functions from the arrays of a file.

        ValueError or KeyError if an array is missing or does not fit the others, MemoryBudgetError if the
        weights do not fit the memory of this process.
        """
        return cls(
            weights=_restored_weights(arrays, n_models, n_features),
            bias=float64_array(arrays, "bias"),
            scale=float64_array(arrays, "scale") if "scale" in arrays else None,
        )


@dataclass(frozen=True, slots=True, eq=False)
class LinearScorer:
    """Some decision functions of a model, side by side for scoring: weights (d, K) and bias (K,).

    `nbytes` is the memory that these weights and those of the model take together.
    """

    weights: Float64Array
    bias: Float64Array
    nbytes: int

    @property
    def n_features(self) -> int:
        """Number of features, d."""
        return len(self.weights)

    @property
    def n_scores(self) -> int:
        """Scores of a row, K."""
        return len(self.bias)

    @property
    def tile_bytes(self) -> int:
        """Bytes that scoring takes for each thread, the scores left out."""
        return 0

    def scores(self, rows: RowBlock, first: int, last: int) -> Float64Array:
        """Scores ``X W + b`` of the rows ``first <= i < last`` of a block, shape (last - first, K)."""
        from ooc_svm.ops.rows import scores_of_models  # with Numba, which scoring one row does without

        out = np.empty((last - first, self.n_scores))
        scores_of_models(*rows.arrays, first, last, self.weights, self.bias, out)
        return out


def as_float64(functions: Any, names: Sequence[str]) -> None:
    """Make arrays of frozen functions contiguous ones of float64; None stays as it is."""
    for name in names:
        array = getattr(functions, name)
        if array is not None:
            object.__setattr__(functions, name, np.ascontiguousarray(array, np.float64))


def check_arrays(functions: Any, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise ValueError unless arrays of functions have these shapes and finite numbers; None passes."""
    for name, shape in shapes.items():
        array = getattr(functions, name)
        if array is None:
            continue
        if array.shape != shape:
            raise ValueError(f"{name} has the shape {array.shape} instead of {shape}")
        # The sum of finite numbers may overflow; the smallest and largest number cannot.
        if array.size and not (math.isfinite(array.min()) and math.isfinite(array.max())):
            raise ValueError(f"{name} holds a number that is not finite")


def float64_array(arrays: Arrays, name: str) -> Float64Array:
    """An array of a file; ValueError if it is of another type."""
    if arrays[name].dtype != np.float64:
        raise ValueError(f"array {name!r} holds {arrays[name].dtype}, not float64")
    return cast(Float64Array, arrays[name])


def _restored_weights(arrays: Arrays, n_models: int, n_features: int) -> Float64Array:
    if "weights" in arrays:
        weights = float64_array(arrays, "weights")
        if weights.shape != (n_models, n_features):
            raise ValueError(f"weights have the shape {weights.shape} instead of {(n_models, n_features)}")
        return weights
    ids, values = arrays["weight_ids"], float64_array(arrays, "weight_values")
    if ids.dtype.kind != "i" or ids.ndim != 1 or values.shape != ids.shape:
        raise ValueError("ids and values of the weights do not fit each other")
    if n_models < 1 or n_features < 0:
        raise ValueError(f"it has {n_models} models of {n_features} features")
    total = n_models * n_features
    # The file is short, the weights need not be: this is the one size that the file does not bound.
    if total * 8 > available_memory():
        raise MemoryBudgetError(
            f"{n_models} models of {n_features} features take {size_needed(total * 8)}, "
            f"this process may use {size_available(available_memory())}; use a machine with more memory"
        )
    if len(ids) and (ids[0] < 0 or ids[-1] >= total or not (ids[1:] > ids[:-1]).all()):
        raise ValueError("the ids of the weights are not ascending or not below the number of weights")
    flat = np.zeros(total)
    flat[ids] = values
    return flat.reshape(n_models, n_features)

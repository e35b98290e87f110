"""Kernel expansions: support vectors and coefficients of a model, how they are stored, and their scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ooc_svm.catalog import KERNELS, LINEAR, load
from ooc_svm.data.blocks import Float64Array, RowBlock
from ooc_svm.model.linear import Arrays, as_float64, check_arrays, float64_array
from ooc_svm.ops.kernels import GaussianOfFullRows, for_rows, in_precision
from ooc_svm.parameters import LARGEST_DEGREE

PRECISIONS = ("float32", "float64")

_NUMBERS = "kernel_numbers"  # The array of the numbers of the kernel, and the bits of the precision


@dataclass(frozen=True, slots=True, eq=False)
class KernelFunctions:
    """Decision functions ``f_k(x) = sum_j coefficients[k, j] k(x, z_j) + bias[k]``.

    ValueError if parts do not fit each other, or a number is not finite.

    Attributes
    ----------
    function : NamedTuple
        The kernel with its numbers, see `ooc_svm.ops.kernels`.
    vectors : RowBlock
        The support vectors z of all functions together, in units of the data.
    coefficients : ndarray of float64, shape (K, m)
    bias : ndarray of float64, shape (K,)
    n_features : int
        Number of features, d.
    scale : ndarray of float64, shape (d,), or None
        Scale of the columns: the kernel is that of ``x_j scale_j``.
    precision : {"float32", "float64"}
        Of products and kernel values in scores; sums are float64.
    """

    function: Any
    vectors: RowBlock
    coefficients: Float64Array
    bias: Float64Array
    n_features: int
    scale: Float64Array | None = None
    precision: str = "float32"

    def __post_init__(self) -> None:
        as_float64(self, ("coefficients", "bias", "scale"))
        self.check()

    def check(self) -> None:
        """Raise ValueError if parts do not fit each other, or a number is not finite."""
        _check_kernel(self.function)
        if self.precision not in PRECISIONS:
            raise ValueError(f"the precision is {self.precision!r:.80}")
        _check_rows(self.vectors, self.n_features)
        if self.coefficients.ndim != 2 or len(self.coefficients) == 0:
            raise ValueError(f"coefficients have the shape {self.coefficients.shape}")
        n_models = len(self.coefficients)
        shapes = {"coefficients": (n_models, self.vectors.n_rows), "bias": (n_models,)}
        check_arrays(self, {**shapes, "scale": (self.n_features,)})

    @property
    def kernel(self) -> str:
        """The kernel's name: ``"rbf"``, ``"poly"`` or ``"sigmoid"``."""
        own = type(self.function).__name__
        return next(name for name, entry in KERNELS.items() if entry.home.endswith(f":{own}"))

    @property
    def n_models(self) -> int:
        """Number of decision functions, K."""
        return len(self.coefficients)

    def scorer(self, active: Sequence[int]) -> KernelScorer:
        """The functions with these numbers, ready to score rows."""
        return KernelScorer(
            self, np.ascontiguousarray(self.coefficients[list(active)]), self.bias[list(active)]
        )

    def support(self, active: Sequence[int]) -> tuple[Any, Float64Array]:
        """The support vectors of some functions, a csr_array in units of the data, and the coefficients."""
        from scipy import sparse

        vectors, coefficients = self.vectors, self.coefficients[list(active)]
        values = np.ones(len(vectors.indices)) if vectors.values is None else vectors.values
        rows = sparse.csr_array(
            (values, vectors.indices, vectors.indptr), shape=(vectors.n_rows, self.n_features)
        )
        used = np.flatnonzero((coefficients != 0).any(axis=0))
        return rows[used], coefficients[:, used]

    def info(self) -> dict[str, Any]:
        """What ``info MODEL --json`` prints of the functions, in terms of JSON."""
        return {
            "n_support_vectors": self.vectors.n_rows,
            **self.function._asdict(),
            "precision": self.precision,
            "scaled": self.scale is not None,
            "bias": self.bias.tolist(),
        }

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays of the file; support vectors of which every value is 1 have no values."""
        numbers = [*map(float, self.function), float(self.precision.removeprefix("float"))]
        arrays: dict[str, npt.NDArray[Any]] = {
            "bias": self.bias,
            "coefficients": self.coefficients,
            "vector_ends": self.vectors.indptr[1:],
            "vector_ids": self.vectors.indices,
            _NUMBERS: np.array(numbers),
        }
        if self.vectors.values is not None:
            arrays["vector_values"] = self.vectors.values
        if self.scale is not None:
            arrays["scale"] = self.scale
        return arrays

    @classmethod
    def from_arrays(cls, kernel: str, arrays: Arrays, n_models: int, n_features: int) -> Self:
        """The functions from the arrays of a file.

        ValueError or KeyError if an array is missing or does not fit the others.
        """
        *numbers, bits = float64_array(arrays, _NUMBERS).tolist()
        kind = load(KERNELS[kernel].home)
        if len(numbers) != len(kind._fields):
            raise ValueError(f"the kernel {kernel} has {len(numbers)} numbers")
        function = kind(
            *(
                int(x) if name == "degree" and x.is_integer() else x
                for name, x in zip(kind._fields, numbers, strict=True)
            )
        )
        ends, ids, values = arrays["vector_ends"], arrays["vector_ids"], arrays.get("vector_values")
        if ends.dtype != np.int64 or ids.dtype != np.int32 or ends.ndim != 1 or ids.ndim != 1:
            raise ValueError("the support vectors are no rows")
        if values is not None and (values.dtype.name not in PRECISIONS or values.shape != ids.shape):
            raise ValueError("values and ids of the support vectors do not fit each other")
        coefficients = float64_array(arrays, "coefficients")
        if coefficients.ndim != 2 or len(coefficients) != n_models:
            raise ValueError(f"coefficients have the shape {coefficients.shape} for {n_models} models")
        rows = RowBlock(0, np.concatenate([np.zeros(1, np.int64), ends]), ids, values)
        scale = float64_array(arrays, "scale") if "scale" in arrays else None
        bias = float64_array(arrays, "bias")
        return cls(function, rows, coefficients, bias, n_features, scale, f"float{bits:g}")


def _check_kernel(function: Any) -> None:
    homes = {entry.home.rpartition(":")[2] for name, entry in KERNELS.items() if name != LINEAR}
    if type(function).__name__ not in homes:
        raise ValueError(f"the kernel is {type(function).__name__}")
    numbers = function._asdict()
    if not all(math.isfinite(number) for number in numbers.values()) or not numbers["gamma"] > 0.0:
        raise ValueError(f"the numbers of the kernel are {numbers}")
    if "degree" in numbers and not 1 <= numbers["degree"] == int(numbers["degree"]) <= LARGEST_DEGREE:
        raise ValueError(f"the degree of the kernel is {numbers['degree']}")


def _check_rows(rows: RowBlock, n_features: int) -> None:
    """Raise ValueError unless compiled functions can take the rows."""
    ends, ids = rows.indptr, rows.indices
    if ends[0] != 0 or ends[-1] != len(ids) or (ends[1:] < ends[:-1]).any():
        raise ValueError("the lengths of the support vectors do not fit their ids")
    if len(ids):
        if ids.min() < 0 or ids.max() >= n_features:
            raise ValueError("a support vector has an id that is not below the number of features")
        rising = ids[1:] > ids[:-1]
        rising[ends[1:-1][(ends[1:-1] > 0) & (ends[1:-1] < len(ids))] - 1] = True
        if not rising.all():
            raise ValueError("the ids of a support vector are not ascending")
    if rows.values is not None and not np.isfinite(rows.values).all():
        raise ValueError("a support vector has a value that is not finite")


class KernelScorer:
    """Some decision functions of a model, ready to score rows.

    Attributes
    ----------
    coefficients : ndarray of float64, shape (K, m)
    bias : ndarray of float64, shape (K,)
    nbytes : int
        Memory that these and the support vectors take, with what is scattered of them.
    """

    def __init__(self, functions: KernelFunctions, coefficients: Float64Array, bias: Float64Array) -> None:
        self._functions, self.coefficients, self.bias = functions, coefficients, bias
        self._scale2 = None if functions.scale is None else functions.scale**2
        own = functions.vectors
        n_entries = own.n_rows * functions.n_features
        kind = "ones" if own.values is None else own.values.dtype.name
        kernel = for_rows(functions.function, len(own.indices), n_entries, kind, functions.scale is not None)
        # By differences, float32 is good enough for all rows.
        full = isinstance(kernel, GaussianOfFullRows)
        self._precision = "float32" if full else functions.precision
        self._kernel = in_precision(kernel, self._precision)
        self._squares: Float64Array | None = None

    @property
    def n_features(self) -> int:
        """Number of features, d."""
        return self._functions.n_features

    @property
    def n_scores(self) -> int:
        """Scores of a row, K."""
        return len(self.bias)

    @property
    def nbytes(self) -> int:
        """Bytes of support vectors and coefficients."""
        return self._functions.vectors.nbytes + 2 * self._functions.coefficients.nbytes

    @property
    def tile_bytes(self) -> int:
        """Bytes that scoring takes for each thread."""
        from ooc_svm.ops.gram import buffer_bytes

        longest = int(np.diff(self._functions.vectors.indptr).max(initial=0))
        itemsize = np.dtype(self._precision).itemsize
        return buffer_bytes(longest, self._functions.n_features, itemsize)

    def scores(self, rows: RowBlock, first: int, last: int) -> Float64Array:
        """Scores of the rows ``first <= i < last`` of a block, shape (last - first, K)."""
        from ooc_svm.ops import gram  # with Numba
        from ooc_svm.ops.rows import row_squares
        from ooc_svm.ops.squares import squares_of

        own, scale2 = self._functions.vectors, self._scale2
        if self._squares is None:
            self._squares = squares_of(*own.arrays, scale2)
        chosen, near = np.arange(first, last, dtype=np.uint64), np.empty(last - first)
        row_squares(*rows.arrays, scale2, chosen, near)
        out = np.empty((self.n_scores, last - first))
        out[:] = self.bias[:, None]
        buffers = gram.new_buffers(own.indptr, self.n_features, self._precision)
        gram.add_values(
            *(self._kernel, *rows.arrays, chosen, near),
            *(*own.arrays, self._squares, scale2, self.coefficients, *buffers, out),
        )
        return np.ascontiguousarray(out.T)

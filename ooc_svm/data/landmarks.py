"""Features of rows from their kernel values with some of them, the landmarks: a source for linear solvers.

With K the kernel values of the landmarks among each other, and ``K = U diag(l) U'``, the features of a row x
are ``z = T' k(x, landmarks)`` with ``T = U diag(l)^(-1/2)`` (Williams and Seeger, Using the Nystroem method
to speed up kernel machines, NIPS 2000). A linear function of them is one of the kernel's space, with the
same norm:

    w.z = sum_j (T w)_j k(x, landmark_j),      |w|^2 = (T w)' K (T w)
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int64Array, RowBlock
from ooc_svm.data.source import NothingAhead, Source
from ooc_svm.errors import InputError, parameter
from ooc_svm.ops import gram
from ooc_svm.ops.kernels import in_precision
from ooc_svm.ops.rows import row_squares
from ooc_svm.ops.squares import squares_of

Float32Array = npt.NDArray[np.float32]

SAMPLE = 4  # Rows that the landmarks are chosen among, as a multiple of them

# Eigenvalues below this share of the largest one are left out: features are float32, and smaller ones would
# be made of rounding.
LEAST_EIGENVALUE = 1e-6
NEGATIVE = 1e-5  # Eigenvalue below 0, as a share of the largest one, that no rounding explains
BLOCK_ELEMENTS = 1 << 21  # Features of a block at most


def kernel_values(
    kernel: Any, rows: RowBlock, squares: Float64Array, others: RowBlock, of_others: Float64Array,
    n_features: int, scale2: Float64Array | None,
) -> Float64Array:  # fmt: skip
    """Kernel values in float64 of all rows of a block with others; both come with their squared norms."""
    places, values = np.arange(rows.n_rows, dtype=np.uint64), np.empty((rows.n_rows, others.n_rows))
    gram.fill_values(
        *(kernel, *rows.arrays, places, squares, *others.arrays, of_others, scale2),
        *(*gram.new_buffers(others.indptr, n_features, np.float64), values),
    )
    return values


@dataclass(frozen=True, slots=True, eq=False)
class Landmarks:
    """Rows, a kernel, and the matrix that makes features of its values."""

    kernel: Any  # See `ooc_svm.ops.kernels`
    rows: RowBlock
    squares: Float64Array
    scale2: Float64Array | None  # Squares of the columns' scales
    n_features: int  # Of the data
    whitening: Float32Array  # T, shape (m, features)

    @classmethod
    def of(cls, kernel: Any, rows: RowBlock, n_features: int, scale2: Float64Array | None) -> Landmarks:
        """The landmarks with their features, at least one.

        InputError if kernel values overflow or cannot be.
        """
        squares = squares_of(*rows.arrays, scale2)
        values = kernel_values(kernel, rows, squares, rows, squares, n_features, scale2)
        if not np.isfinite(values).all():
            raise InputError(
                "kernel values of the landmarks overflow; scale the columns "
                f"({parameter('scale', 'maxabs')}), or choose a smaller {parameter('gamma')}"
            )
        eigenvalues, vectors = np.linalg.eigh(0.5 * (values + values.T))
        if eigenvalues[0] < -NEGATIVE * np.abs(eigenvalues).max():
            raise InputError(
                "the kernel is not positive semi-definite on the landmarks (an eigenvalue is "
                f"{eigenvalues[0]:.3g}), so no bound holds; choose other numbers ({parameter('gamma')}, "
                f"{parameter('coef0')}) or {parameter('kernel', 'rbf')}"
            )
        kept = eigenvalues > LEAST_EIGENVALUE * max(float(eigenvalues[-1]), 0.0)
        kept[-1] = True
        roots = np.sqrt(np.maximum(eigenvalues[kept], np.finfo(np.float32).tiny))
        return cls(kernel, rows, squares, scale2, n_features, (vectors[:, kept] / roots).astype(np.float32))

    @property
    def n_rows(self) -> int:
        """Number of landmarks."""
        return self.rows.n_rows

    def coefficients(self, w: Float64Array) -> Float64Array:
        """The coefficients of the landmarks in a linear function of the features: ``T w``."""
        found: Float64Array = self.whitening.astype(np.float64) @ w
        return found

    def new_buffers(self) -> tuple[Any, ...]:
        """Buffers of `fill_features`."""
        return gram.new_buffers(self.rows.indptr, self.n_features, np.float32)

    def fill_features(
        self, block: RowBlock, places: npt.NDArray[np.uint64], buffers: tuple[Any, ...], out: Float32Array
    ) -> None:
        """Features of some rows of a block, in ``out`` of shape (rows, features)."""
        squares, values = np.empty(len(places)), np.empty((len(places), self.n_rows), np.float32)
        row_squares(*block.arrays, self.scale2, places, squares)
        gram.fill_values(
            *(in_precision(self.kernel, np.float32), *block.arrays, places, squares),
            *(*self.rows.arrays, self.squares, self.scale2, *buffers, values),
        )
        with np.errstate(over="ignore", invalid="ignore"):  # the certificate reports it
            np.matmul(values, self.whitening, out=out)


@dataclass(frozen=True, slots=True)
class FeatureSpan:
    """The rows of a block of features, and the block of the data that they are in."""

    start: int
    stop: int
    n_nonzeros: int
    nbytes: int
    origin: int


class _Reader(threading.local):
    """What a reading thread keeps: buffers, and the block of the data that it read last."""

    origin: int = -1
    block: RowBlock | None = None
    of_source: Any = None
    of_landmarks: tuple[Any, ...] | None = None


class LandmarkSource(NothingAhead):
    """Rows of another source by their features, which are computed whenever a block is read.

    Every row has all features, as float32 values. Without landmarks, which are not known yet, nothing is
    read, and there are ``width`` features.
    """

    value_type = "float32"

    def __init__(self, base: Source, landmarks: Landmarks | None, width: int) -> None:
        self.base, self._landmarks = base, landmarks
        self.n_rows = base.n_rows
        self.n_features = width if landmarks is None else landmarks.whitening.shape[1]
        self.n_nonzeros = self.n_rows * self.n_features
        self.has_weight, self.has_qid = base.has_weight, base.has_qid
        self.blocks: Sequence[FeatureSpan] = tuple(self._spans())
        self._reader = _Reader()

    def _spans(self) -> list[FeatureSpan]:
        width, found = self.n_features, list[FeatureSpan]()
        most = max(BLOCK_ELEMENTS // width, 1)
        for origin, span in enumerate(self.base.blocks):
            parts = -(-(span.stop - span.start) // most)
            cuts = [span.start + (span.stop - span.start) * part // parts for part in range(parts + 1)]
            for start, stop in pairwise(cuts):
                count = (stop - start) * width
                found.append(FeatureSpan(start, stop, count, 4 * count, origin))
        return found

    @property
    def _most_rows(self) -> int:
        return max((span.stop - span.start for span in self.blocks), default=0)

    @cached_property
    def _pattern(self) -> tuple[Int64Array, npt.NDArray[np.int32]]:
        """Row pointers and ids of the longest block, of which those of others are a part."""
        width, most = self.n_features, self._most_rows
        return np.arange(most + 1) * width, np.tile(np.arange(width, dtype=np.int32), most)

    def thread_nbytes(self, n_landmarks: int, most_nonzeros: int) -> int:
        """Bytes that a reading thread needs in addition to blocks, with rows of so many nonzeros."""
        base = max((span.nbytes for span in self.base.blocks), default=0)
        scattered = gram.buffer_bytes(most_nonzeros, self.base.n_features, 4)
        return base + scattered + 4 * n_landmarks * self._most_rows

    def shared_nbytes(self, n_landmarks: int, most_nonzeros: int) -> int:
        """Bytes of the landmarks, of the rows that they are chosen among, and of what all blocks share."""
        # Of float64: the decomposition that they are chosen by, and kernel values and eigenvectors of half of
        # them at the same time; or those of all, later. Finding eigenvectors takes three such matrices.
        matrices = 8 * 8 * n_landmarks * n_landmarks + 12 * SAMPLE * n_landmarks * most_nonzeros
        return matrices + 4 * self._most_rows * self.n_features

    def block_stored_bytes(self, index: int) -> int:
        """The share of the rows in the bytes of the block that they are in."""
        span = self.blocks[index]
        whole = self.base.blocks[span.origin]
        stored = self.base.block_stored_bytes(span.origin)
        return stored * (span.stop - span.start) // (whole.stop - whole.start)

    def new_buffers(self) -> Float32Array:
        """Room for the features of the longest block."""
        return np.empty((self._most_rows, self.n_features), np.float32)

    def read_block(self, index: int, buffers: Any = None) -> RowBlock:
        """The features of the rows of a block; with ``buffers`` they are a view into them."""
        assert self._landmarks is not None
        span, reader = self.blocks[index], self._reader
        if reader.of_landmarks is None:
            reader.of_source, reader.of_landmarks = self.base.new_buffers(), self._landmarks.new_buffers()
        if reader.block is None or reader.origin != span.origin:
            reader.block = None
            reader.block = self.base.read_block(span.origin, reader.of_source)
            reader.origin = span.origin
        n_rows = span.stop - span.start
        places = np.arange(n_rows, dtype=np.uint64) + np.uint64(span.start - reader.block.start)
        out = self.new_buffers()[:n_rows] if buffers is None else buffers[:n_rows]
        self._landmarks.fill_features(reader.block, places, reader.of_landmarks, out)
        indptr, indices = self._pattern
        return RowBlock(span.start, indptr[: n_rows + 1], indices[: out.size], out.reshape(-1))

    def read_labels(self, start: int, stop: int) -> Float64Array:
        """Labels of the rows ``start <= i < stop``."""
        return self.base.read_labels(start, stop)

    def read_qids(self, start: int, stop: int) -> Int64Array:
        """Group numbers of the rows ``start <= i < stop``."""
        return self.base.read_qids(start, stop)

    def read_weights(self, start: int, stop: int) -> Float64Array:
        """Weights of the rows ``start <= i < stop``."""
        return self.base.read_weights(start, stop)

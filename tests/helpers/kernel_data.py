"""Rows and kernels, and what their values are by the formulas."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from ooc_svm.data.blocks import RowBlock
from ooc_svm.ops.kernels import Gaussian, Linear, Polynomial, Sigmoid

KERNELS = (Linear(), Gaussian(0.3), Polynomial(0.2, 0.5, 3), Polynomial(0.5, 0.0, 1), Sigmoid(0.1, -0.2))


@dataclass(frozen=True)
class Rows:
    """Rows as a CSR matrix; ``kind`` is that of their values."""

    csr: sparse.csr_array
    kind: str

    @property
    def n_rows(self) -> int:
        return self.csr.shape[0]

    @property
    def n_features(self) -> int:
        return self.csr.shape[1]

    @cached_property
    def dense(self):
        return self.csr.toarray().astype(np.float64)

    @cached_property
    def block(self) -> RowBlock:
        values = None if self.kind == "ones" else self.csr.data.astype(self.kind)
        return RowBlock(0, self.csr.indptr.astype(np.int64), self.csr.indices.astype(np.int32), values)

    def squares(self, scale=None):
        return ((self.dense if scale is None else self.dense * scale) ** 2).sum(axis=1)


def make_rows(n_rows: int, n_features: int, density: float, kind: str, seed: int) -> Rows:
    rng = np.random.default_rng(seed)
    values = np.ones((n_rows, n_features)) if kind == "ones" else rng.normal(size=(n_rows, n_features))
    dense = np.where(rng.random((n_rows, n_features)) < density, values, 0.0)
    return Rows(sparse.csr_array(dense.astype("float64" if kind == "ones" else kind)), kind)


def plain_values(kernel, rows: Rows, of: Rows, scale=None, magnitudes=False):
    """Kernel values by the formula; with ``magnitudes`` what their rounding is a share of."""
    x = rows.dense if scale is None else rows.dense * scale
    z = of.dense if scale is None else of.dense * scale
    products = np.abs(x) @ np.abs(z).T if magnitudes else x @ z.T
    if isinstance(kernel, Linear):
        return products
    if isinstance(kernel, Gaussian):
        x2, z2 = (x**2).sum(axis=1)[:, None], (z**2).sum(axis=1)
        if magnitudes:
            return 1.0 + kernel.gamma * (x2 + z2 + 2.0 * products)
        return np.exp(-kernel.gamma * ((x[:, None, :] - z[None, :, :]) ** 2).sum(axis=2))
    inner = kernel.gamma * products + (abs(kernel.coef0) if magnitudes else kernel.coef0)
    if isinstance(kernel, Polynomial):
        return kernel.degree * inner**kernel.degree if magnitudes else inner**kernel.degree
    return 1.0 + inner if magnitudes else np.tanh(inner)

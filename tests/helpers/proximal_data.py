"""Rows for proximal steps, and the state of a solve of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from helpers.losses import make_loss
from scipy import sparse

from ooc_svm.passes.crew import Alone, Crew
from ooc_svm.solvers.streamed_smo import dual_loops, proximal

MU = 0.3


@dataclass
class Rows:
    """Sparse rows, their targets and costs, and the state of a solve."""

    loss: str
    n: int = 120
    d: int = 9
    ones: bool = False
    scaled: bool = False
    rho: float = 0.0
    mean: bool = False
    C: float = 4.0
    density: float = 0.4
    far: tuple[float, float] = (1.0, 1.0)  # Means of the columns, where there is a mean row
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))

    in_rows: ClassVar[bool] = False  # Whether a dense system is one of the rows

    def __post_init__(self) -> None:
        rng, n, d = self.rng, self.n, self.d
        X = sparse.random_array((n, d), density=self.density, format="csr", rng=rng)
        X.data = np.ones(X.nnz) if self.ones else rng.standard_normal(X.nnz)
        s = X @ rng.standard_normal(d) + 0.7 * rng.standard_normal(n)
        if self.mean:
            X.data += np.geomspace(*self.far, d)[X.indices]
        self.t = s if "insensitive" in self.loss else np.where(s > 0.0, 1.0, -1.0)
        self.c = self.C * rng.uniform(0.5, 2.0, n)
        self.c[:3] = 0.0
        self.targets = np.column_stack([self.t, self.c])
        self.scale2 = rng.uniform(0.5, 2.0, d) if self.scaled else None
        scale = np.ones(d) if self.scale2 is None else np.sqrt(self.scale2)
        Z = X.toarray() * scale
        center = Z.mean(axis=0) if self.mean else np.zeros(d)
        # What each row is to the solver: less the mean row, with a feature for the bias.
        self.whole = np.column_stack([Z - center, np.full(n, np.sqrt(self.rho))])
        self.mean_row = center * scale if self.mean else None
        self.moments = Z @ center if self.mean else None
        X.sort_indices()
        self.csr = X.indptr.astype(np.uint64), X.indices.astype(np.uint32), None if self.ones else X.data
        self.places = np.arange(n, dtype=np.uint64)
        self.squares, self.products = (Z**2).sum(axis=1), Z @ Z.T
        self.dual = np.zeros(n)
        self.w, self.stationarity = np.zeros(d), np.zeros(n)
        self.bias = np.array([0.0, self.rho + center @ center, 0.0])
        self.scales = scale

    @property
    def of_loss(self):
        return make_loss(self.loss)

    @property
    def solve(self) -> proximal.Solve:
        return proximal.Solve(
            self.of_loss, self.csr, self.places, self.squares, self.moments, self.mean_row, self.scale2,
            self.w, self.bias, self.targets, self.dual, self.stationarity,
            self.products if self.in_rows else None,
        )  # fmt: skip

    def sweeps(self, most: int) -> None:
        dual_loops.solve(
            self.of_loss, *self.csr, None, self.places, self.squares, self.moments, self.scale2, self.w,
            self.bias, 0.0, self.targets, self.dual, self.stationarity, np.uint64(3), 0.0,
            most * (len(self.csr[1]) + self.n), np.zeros(1, np.uint8), np.zeros(dual_loops.N_SUMS),
        )  # fmt: skip

    def step(
        self,
        mu: float = MU,
        stop: int = 0,
        most: int = 10**9,
        crew: Crew | None = None,
        wanted: float = 0.0,
    ):
        sums = np.zeros(dual_loops.N_SUMS)
        n_elements, flag = len(self.csr[1]) + self.n, np.full(1, stop, np.uint8)
        of_step = mu, wanted, n_elements, most, flag, sums, crew or Alone()
        longer, self.gap, self.is_found = proximal.proximal_step(self.solve, *of_step)
        return sums, longer

    def row_gaps(self) -> float:
        """The sum of the row gaps where the solve is, by dense products."""
        center = 0.0 if self.mean_row is None else self.mean_row / self.scales
        own = np.append(self.w / self.scales - self.bias[dual_loops.TOTAL] * center, 0.0)
        residual = self.t - self.whole @ own
        return float(dual_loops.row_gaps(self.of_loss, self.dual, residual, self.targets, self.stationarity))

    def residual(self, dual):
        """By dense products, from the multipliers alone."""
        return self.t - self.whole @ (self.whole.T @ dual)

    def value(self, dual) -> float:
        """D, by dense products."""
        gains = np.empty(self.n)
        dual_loops.gains(self.of_loss, np.zeros(self.n), dual, self.targets, gains)
        return float(gains.sum() - 0.5 * np.square(self.whole.T @ dual).sum())


KINDS = [
    {}, {"rho": 1.0}, {"ones": True}, {"scaled": True}, {"scaled": True, "ones": True, "rho": 0.5},
    {"mean": True, "rho": 0.3}, {"mean": True, "rho": 0.3, "scaled": True},
]  # fmt: skip

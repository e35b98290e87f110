"""The cuts of a kernel model as their master problem sees them: offsets, products, multipliers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int64Array
from ooc_svm.solvers.certificate import Certificate
from ooc_svm.solvers.cutting_plane.free_master import solve_free_master
from ooc_svm.solvers.cutting_plane.free_oracle import FreeCutOracle
from ooc_svm.solvers.cutting_plane.master import solve_master
from ooc_svm.solvers.cutting_plane.oracle_solver import master_tolerance
from ooc_svm.solvers.stopping import Stopping

IDLE = 1e-9  # A multiplier that is no larger is none, as a share of C


@dataclass(slots=True)
class CutMatrix:
    """Cuts, without their row vectors, which are in slots."""

    capacity: int = field(metadata={"saved": False})  # Largest number of cuts kept
    slots: Int64Array = field(default_factory=lambda: np.empty(0, np.int64))  # shape (m,)
    offsets: Float64Array = field(default_factory=lambda: np.empty(0))  # shape (m,): delta
    beta: Float64Array = field(default_factory=lambda: np.empty(0))  # shape (m,)
    gram: Float64Array = field(default_factory=lambda: np.empty((0, 0)))  # shape (m, m): P
    unsolved: int = 0  # 1 where a time limit came before `beta` was that of the newest cut
    mixed: int = 0  # 1 if the functions of some cuts have been added up to one, so that parts have cancelled

    @property
    def n_cuts(self) -> int:
        """Number of cuts, m."""
        return len(self.offsets)

    @property
    def is_full(self) -> bool:
        """Whether there is no slot left."""
        return self.n_cuts >= self.capacity

    @property
    def slack(self) -> float:
        """The slack of the solution: the height of the highest cut, r."""
        return float((self.offsets - self.gram @ self.beta).max(initial=0.0))

    def is_sound(self) -> bool:
        """Whether the parts fit each other; saved ones may come from anywhere."""
        m = self.n_cuts
        known = m <= self.capacity and self.slots.shape == self.beta.shape == (m,)
        inside = bool(((self.slots >= 0) & (self.slots < self.capacity)).all())
        finite = bool(np.isfinite(self.beta).all() and (self.beta >= 0.0).all())
        return (
            known and self.gram.shape == (m, m) and inside and finite and len(set(self.slots.tolist())) == m
        )

    def upgrade(self, saved: dict[str, npt.NDArray[Any]]) -> None:
        """Give the arrays of a release that did not tell whether cuts were mixed those of today."""
        saved.setdefault("mixed", np.asarray(1))

    def unused_slot(self) -> int:
        """A slot of no cut."""
        return min(set(range(self.capacity)) - set(self.slots.tolist()))

    def add(self, slot: int, offset: float, products: Float64Array) -> None:
        """Add a cut with its products ``h_k.g`` with the others and with itself; P grows by a row."""
        m = self.n_cuts
        gram = np.empty((m + 1, m + 1))
        gram[:m, :m], gram[m, :], gram[:, m] = self.gram, products, products
        self.gram = gram
        self.slots = np.append(self.slots, slot)
        self.offsets, self.beta = np.append(self.offsets, offset), np.append(self.beta, 0.0)

    def solve(self, oracle: FreeCutOracle, certificate: Certificate, stopping: Stopping) -> None:
        """Solve the master problem; the multipliers stay if there is no time left."""
        m, tolerance = self.n_cuts, master_tolerance(certificate, stopping)
        groups, in_time = np.zeros(m, np.int64), True
        if not np.isfinite(self.gram).all():
            self.beta = np.full(m, np.nan)
        elif oracle.equal:
            free = solve_free_master(
                *(self.gram, self.offsets, np.empty((0, m)), groups, 1, oracle.C, np.empty(0), tolerance),
                equal=True,
                deadline=stopping.deadline,
            )
            in_time = free.in_time
            self.beta = free.beta if in_time else self.beta
        else:
            plain = solve_master(
                *(self.gram, self.offsets, groups, 1, oracle.C),
                start=self.beta, tolerance=tolerance, deadline=stopping.deadline,
            )  # fmt: skip
            total = float(plain.beta.sum())
            beta = plain.beta * (oracle.C / total) if total > oracle.C else plain.beta
            in_time = plain.in_time
            self.beta = beta if in_time else self.beta
        self.unsolved = int(not in_time)

    def drop_idle(self) -> bool:
        """Drop the cuts without a multiplier; whether there were any."""
        total = float(self.beta.sum())
        kept = self.beta > IDLE * total
        if kept.all() or not kept.any():
            return False
        self.slots, self.offsets, self.beta = self.slots[kept], self.offsets[kept], self.beta[kept]
        self.gram = self.gram[np.ix_(kept, kept)]
        self.beta *= total / float(self.beta.sum())
        return True

    def combine(self, shares: Float64Array) -> None:
        """Put one cut in the place of all: their sum with these shares, in the first slot."""
        self.mixed = 1
        self.slots = self.slots[:1]
        self.beta = np.array([float(self.beta.sum())])
        self.offsets = np.array([float(shares @ self.offsets)])
        self.gram = np.array([[float(shares @ self.gram @ shares)]])

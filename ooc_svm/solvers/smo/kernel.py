"""Sequential minimal optimization with a kernel: its support vectors are kept in memory.

The outputs of a round's rows follow from the support vectors, and those of the rows in memory from the error
cache, which each step brings up to date. P and D are of the same multipliers. With a kernel that is not
positive semi-definite they are no bounds of an optimum, which need not exist: then the gap, a sum over the
rows of terms that are 0 where the KKT conditions hold, tells how far from these the model is.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import BoolArray, Float64Array
from ooc_svm.errors import MemoryBudgetError, parameter
from ooc_svm.ops import gram
from ooc_svm.passes.base import UNCOUNTED, RowSlice, Steps
from ooc_svm.passes.gather import GatherPass, NonzeroRows, join_gathered
from ooc_svm.passes.rowwise import CopyScores, RowPass
from ooc_svm.solvers.base import PRECISION, KernelExpansion
from ooc_svm.solvers.definite import indefinite_hints, is_definite
from ooc_svm.solvers.smo.examine_pass import SIZE, SQUARE, Examined
from ooc_svm.solvers.smo.objective import KernelObjective, KernelPoint
from ooc_svm.solvers.smo.rows import ALPHA, OUTPUT, START, HeldRows, Y
from ooc_svm.solvers.smo.scorers import KernelScorer
from ooc_svm.solvers.smo.solver import Smo, columns_of


@dataclass(frozen=True, slots=True)
class SumsOfBest:
    """Rule on row vectors: the sums ``v.s`` and ``|v|`` of the best multipliers and the scores."""

    coefficients: str
    scores: str
    writes: ClassVar[tuple[str, ...]] = ()
    sums_shape: ClassVar[tuple[int, ...]] = (2,)

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.coefficients, self.scores)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        v = rows.vectors[self.coefficients]
        sums += [v @ rows.vectors[self.scores], np.abs(v).sum()]


@dataclass(slots=True, eq=False)
class KernelSmo(Smo):
    """The solver of one kernel model."""

    kernel: Any = None  # See `ooc_svm.ops.kernels`

    @property
    def vectors(self) -> Mapping[str, npt.DTypeLike]:
        model = self.model
        return dict.fromkeys((model.multipliers, model.best, model.coefficients), np.float64)

    @property
    def scratch_vectors(self) -> Mapping[str, npt.DTypeLike]:
        return dict.fromkeys((self.model.scores, self.model.start), np.float64)

    @property
    def is_definite(self) -> bool:
        return is_definite(self.kernel)

    def hints(self) -> dict[str, str]:
        return indefinite_hints(self.kernel)

    def solution(self) -> KernelExpansion:
        return KernelExpansion(self.model.coefficients, self.state.best_b, PRECISION, self.rows)

    def _begin_read(self) -> Steps:
        known = self.state.held.known
        known[:, START] = known[:, ALPHA]
        yield RowPass(CopyScores(self.model.multipliers, self.model.start), self.rows)

    def _scorer(self) -> KernelScorer:
        held = self.state.held
        coefficients = held.known[:, Y] * held.known[:, [START, ALPHA]].T
        return self._expansion(held.block, held.squares(self.space.scale2), coefficients)

    def _expansion(self, support: Any, squares: Float64Array, coefficients: Float64Array) -> KernelScorer:
        coefficients = np.ascontiguousarray(coefficients)
        space = self.space
        return KernelScorer(self.kernel, support, squares, coefficients, space.n_features, space.scale2)

    def _arrays(self, rows: HeldRows) -> tuple[Any, Any]:
        scale2, squares, own = self.space.scale2, rows.squares(self.space.scale2), np.empty(len(rows.ids))
        gram.own_values(self.kernel, squares, np.empty(len(own)), own)
        # The columns that there are, without a sort, which takes twice the memory of the rows.
        places = np.zeros(self.space.n_features, np.uint32)
        places[rows.indices] = 1
        columns = np.flatnonzero(places)
        places[columns] = np.arange(len(columns))
        indptr, _, values = rows.block.arrays
        indices = places[rows.indices]
        scale2 = None if scale2 is None else scale2[columns]
        space = np.empty(0), np.zeros(len(columns)), np.empty((2, len(own)))
        return self.kernel, (indptr, indices, values, scale2, squares, own, *columns_of(rows), *space)

    def _stays(self, rows: HeldRows) -> BoolArray:
        """All support vectors, those of the beginning of the read included."""
        stays = (rows.multipliers > 0.0) | (rows.known[:, START] > 0.0)
        n_elements = int(rows.sizes[stays].sum())
        if n_elements > self.capacity:
            raise MemoryBudgetError(
                f"the support vectors have {n_elements} nonzeros and rows together, and the memory allowed "
                f"is for {self.capacity}, since the solver smo keeps all of them; allow more "
                f"({parameter('memory')}), or take another solver ({parameter('solver')})"
            )
        return stays

    def _make_consistent(self, rows: HeldRows) -> None:
        """With outputs from the support vectors first: many small steps leave a residue."""
        rows.known[:, OUTPUT] = self._scorer().scores(rows.block, np.arange(len(rows.ids)))[1]
        Smo._make_consistent(self, rows)

    def _end_read(self, found: Examined) -> KernelPoint:
        square, size = (float(found.sums[k]) for k in (SQUARE, SIZE))
        return KernelPoint(square, size)

    def _keep_best(self, point: KernelPoint) -> Steps:
        yield RowPass(CopyScores(self.model.start, self.model.coefficients), self.rows)

    def _make_objective(self, found: Examined) -> KernelObjective:
        return KernelObjective(found.magnitudes, self.kernel, self.space, self.model.C)

    def _saved_points(self) -> Generator[Any, Any, tuple[Any, Examined]]:
        names = self.model.multipliers, self.model.coefficients
        parts = yield GatherPass(NonzeroRows(names), names, UNCOUNTED, self.rows)
        support = join_gathered(parts, names)
        squares = HeldRows.of_block(support.rows, support.numbers, np.empty(0)).squares(self.space.scale2)
        found = Examined(np.empty(0))
        for name in names:
            v = support.vectors[name]
            scored = yield from self._score_again(self._expansion(support.rows, squares, np.stack([v, v])))
            if name == self.model.multipliers:
                found = scored
        self._know(found)
        rule = SumsOfBest(self.model.coefficients, self.model.scores)
        square, size = (yield RowPass(rule, self.rows)).tolist()
        return KernelPoint(square, size), found

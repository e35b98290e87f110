"""The decision functions of a model, from what solvers end with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ooc_svm.errors import MemoryBudgetError, parameter
from ooc_svm.model.kernel import KernelFunctions
from ooc_svm.model.linear import LinearFunctions
from ooc_svm.passes.base import UNCOUNTED, RowSet, RowSlice
from ooc_svm.passes.gather import GatherPass, NonzeroRows, join_gathered
from ooc_svm.passes.rowwise import RowPass
from ooc_svm.solvers.base import KernelExpansion, LinearFunction, Solution
from ooc_svm.training.memory_plan import program_bytes

if TYPE_CHECKING:
    from ooc_svm.data.blocks import Float64Array
    from ooc_svm.training.run import Run


@dataclass(frozen=True, slots=True)
class CountNonzero:
    """Rule on row vectors: the number of rows that have an entry other than 0 in one of them."""

    reads: tuple[str, ...]
    writes: ClassVar[tuple[str, ...]] = ()
    sums_shape: ClassVar[tuple[int, ...]] = (1,)

    def __call__(self, rows: RowSlice, sums: Float64Array) -> None:
        sums[0] += len(NonzeroRows(self.reads)(rows))


def decision_functions(
    run: Run, solutions: Sequence[Solution], room: int | None
) -> LinearFunctions | KernelFunctions:
    """The decision functions of the solutions; of kernels, a read that is not counted brings the rows.

    ``room``: bytes for these rows, where the run goes on; None: those that the solvers need no more.
    """
    bias, scale = np.array([each.bias for each in solutions]), run.context.space.scale
    linear = [each for each in solutions if isinstance(each, LinearFunction)]
    if linear:
        return LinearFunctions(np.array([each.weights for each in linear]), bias, scale)
    expansions = [each for each in solutions if isinstance(each, KernelExpansion)]
    names = tuple(each.coefficients for each in expansions)
    _require_room(run, names, expansions[0].rows, room)
    parts = run.engine.stream([GatherPass(NonzeroRows(names), names, UNCOUNTED, expansions[0].rows)])[0]
    found = join_gathered(parts, names)
    coefficients = np.array([found.vectors[name] for name in names])
    precision = max(each.precision for each in expansions)
    n_features = run.engine.source.n_features
    return KernelFunctions(
        run.context.kernels[run.variant], found.rows, coefficients, bias, n_features, scale, precision
    )


def _require_room(run: Run, names: tuple[str, ...], rows: RowSet | None, room: int | None) -> None:
    """MemoryBudgetError if the support vectors of a model, and copies of them, take more than is allowed."""
    count = int(run.engine.stream([RowPass(CountNonzero(names), rows)])[0][0])
    size, budget = run.context.size, run.budget
    row_bytes = 8 * (1 + len(names)) + (4 + size.value_bytes) * size.n_nonzeros / max(size.n_rows, 1)
    # The rows as they come, and joined
    needed = int(2 * count * row_bytes)
    if room is None:
        room = budget.total - program_bytes(run.prepared.options, converted=False) - budget.row_vector_bytes
    if needed > room:
        raise MemoryBudgetError(
            f"the model has {count} support vectors, which take {needed / 1e6:.0f} MB of memory while it is "
            f"put together, and {max(room, 0) / 1e6:.0f} MB are left of those allowed; allow more "
            f"({parameter('memory')}), or take a smaller C",
            needed,
        )

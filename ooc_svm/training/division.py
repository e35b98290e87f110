"""How many models are trained at the same time: as many as fit the memory."""

from __future__ import annotations

from dataclasses import replace

from ooc_svm.errors import MemoryBudgetError
from ooc_svm.system.memory import memory_budget
from ooc_svm.training.batches import batches_of
from ooc_svm.training.memory_plan import Budget, divide
from ooc_svm.training.preparation import Preparation


def batches(prepared: Preparation) -> list[Preparation]:
    """The run itself if it fits the memory, else its batches: as few as fit with room enough to work in.

    All classes of a C stay together where their scores are compared, and then folds are divided. Values of C
    and folds have batches of their own where they would have little room together.

    MemoryBudgetError if not even one model at a time fits; the message holds the sum.
    """
    most = _most_batches(prepared)
    # Classes share reads whatever room they have.
    roomiest = most if _divides_folds(prepared) else min(most, len(prepared.options.C))
    for crowded in (False, True):
        found = _fewest(prepared, most, crowded=crowded)
        if found is not None:
            return in_batches(prepared, _roomier(prepared, found, roomiest))
    raise _refusal(prepared, most)


def in_batches(prepared: Preparation, total: int) -> list[Preparation]:
    """The run in at least so many batches, the largest first; one is the run itself."""
    if total == 1:
        return [prepared]
    costs, n_models, n_folds = prepared.options.C, prepared.n_models, prepared.n_folds
    divides_folds = _divides_folds(prepared)
    parts = batches_of(costs, n_models // len(costs), total, n_folds, divides_folds=divides_folds)
    return [replace(prepared, batch=each) for each in parts]


def _divides_folds(prepared: Preparation) -> bool:
    """Whether folds are compared, each by itself: for probabilities the scores of all count together."""
    tuning = prepared.tuning
    return tuning is not None and not tuning.on_store and prepared.options.calibrate is None


def _most_batches(prepared: Preparation) -> int:
    if not prepared.options.is_linear or len(prepared.variants) > 1:
        # Kernel models are no larger for being many; points of a grid are compared when all are there.
        return 1
    n_costs = len(prepared.options.C)
    if _divides_folds(prepared):
        return n_costs * (1 + prepared.n_folds)
    compares = prepared.tuning is not None or prepared.options.validation is not None
    return n_costs if compares else prepared.n_models


def _budget(prepared: Preparation) -> Budget:
    """The division of the memory of this process."""
    work, options = prepared.workload, prepared.options
    if options.engine == "dask":
        work = replace(work, block_nbytes=0, data_nbytes=0, holds_rows=False)
    return divide(work, prepared.solver, options, memory_budget(options.memory))


def _fewest(prepared: Preparation, most: int, *, crowded: bool) -> int | None:
    """The least number of batches that fits; None if none does. The more there are, the less each needs.

    ``crowded``: whether they may have too little room to work well in, see `SolverPlan`.
    """

    def fits(total: int) -> bool:
        try:
            plan = _budget(in_batches(prepared, total)[0]).plan
            return crowded or not plan.crowded
        except MemoryBudgetError:
            return False

    too_few, enough = 0, 1
    while not fits(enough):
        if enough == most:
            return None
        too_few, enough = enough, min(2 * enough, most)
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        too_few, enough = (too_few, middle) if fits(middle) else (middle, enough)
    return enough


def _roomier(prepared: Preparation, least: int, most: int) -> int:
    """The least number of batches in which models have room, see `SolverPlan`; else ``least``."""
    total = least
    while total <= most:
        parts = in_batches(prepared, total)
        if not _budget(parts[0]).plan.cramped:
            return total
        total = len(parts) + 1
    return least


def _refusal(prepared: Preparation, most: int) -> MemoryBudgetError:
    """Not even one model at a time fits: how many a run could have."""
    least = in_batches(prepared, most)[0]
    try:
        _budget(least)
    except MemoryBudgetError as error:
        batch = least.batch
        if batch is None:
            return error
        finished = batch.finished_bytes(prepared.data.source.n_features)
        spare = memory_budget(prepared.options.memory) - (error.needed - finished)
        fitting = max(int(batch.n_final * spare / max(finished, 1)), 0)
        if fitting == 0:
            return error
        where = " on all rows" if batch.n_fold_parts > 1 else ""
        return MemoryBudgetError(
            f"{error}; of the {batch.n_final} models of this run{where} about {fitting} fit, one at a time",
            error.needed,
        )
    raise AssertionError("it fits")

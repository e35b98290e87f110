"""What a training would need and take, before it is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ooc_svm.errors import UsageError, parameter
from ooc_svm.options import TrainOptions
from ooc_svm.parameters import ANY_DATA, ARRAY, FEATURE_NAMES, FOLDS, GRID, PRICE, checks
from ooc_svm.solvers.base import MemoryItem
from ooc_svm.system.amounts import format_seconds
from ooc_svm.system.memory import format_size, memory_budget
from ooc_svm.training.division import batches
from ooc_svm.training.landmark_features import FIRST_PASSES, feature_budget, first_count, with_features
from ooc_svm.training.memory_plan import RESERVE, SLACK, compiling, divide, note_of, to_json
from ooc_svm.training.pace import seconds_per_pass
from ooc_svm.training.prepare import open_prepared
from ooc_svm.training.transfer import Prices, Transfer, transfer_of
from ooc_svm.training.tuning import NO_GRID, TuneRequest
from ooc_svm.training.warmup import warm_up


@dataclass(frozen=True, slots=True)
class Plan:
    """Memory and time that a training would take.

    Attributes
    ----------
    items : tuple of MemoryItem
        Uses of memory, the block cache last.
    total, budget : int
        Sum of the items, and bytes allowed.
    n_rows, n_features, n_nonzeros, n_models : int
    n_batches : int
        Where not all models fit the memory at the same time, they are trained in so many batches, one after
        another; the memory is that of the largest, and each makes its own passes.
    pass_bytes : int
        Stored bytes that one read of the data fetches.
    seconds_per_pass : float
        From a few blocks of this store; nothing of them was in the block cache. It has the least of what is
        computed in addition, see `expected_seconds`.
    expected_passes : int
        Of all batches, typical of the solver at a gap of 1e-3.
    pruning_passes : int
        If weights are pruned, one for each batch: the last pass finds the gap of what is left.
    expected_seconds : tuple of float
        Of all passes, from the least to the most. The rows in memory are worked on as often as they need it,
        and that depends on how hard they are to fit: no few blocks tell. Measured on data of several kinds.
    parameters : dict of str to int
        The solver's own.
    threads : int
    transfer : Transfer or None
        Requests, bytes and cost of the whole run, where the store is in a bucket.
    """

    items: tuple[MemoryItem, ...]
    total: int
    budget: int
    n_rows: int
    n_features: int
    n_nonzeros: int
    n_models: int
    n_batches: int
    pass_bytes: int
    seconds_per_pass: float
    expected_passes: int
    pruning_passes: int
    expected_seconds: tuple[float, float]
    parameters: dict[str, int]
    threads: int
    transfer: Transfer | None = None

    @property
    def fits(self) -> bool:
        """Whether the sum is within the budget; `plan` raises where it is not."""
        return self.total <= self.budget

    def lines(self) -> list[str]:
        """The plan for people, a line each."""
        width = max(len(item.name) for item in self.items)
        batches = f" in {self.n_batches} batches, one after another" if self.n_batches > 1 else ""
        lines = [
            f"{self.n_rows} rows, {self.n_features} features, {self.n_nonzeros} nonzeros, "
            f"{self.n_models} model(s){batches}"
        ]
        lines += [
            f"  {item.name:<{width}}  {format_size(item.nbytes):>10}  {note_of(item)}" for item in self.items
        ]
        lines.append(
            f"  {'sum':<{width}}  {format_size(self.total):>10}  of {format_size(self.budget)} allowed"
        )
        reserve = format_size(round(self.budget * SLACK))
        lines.append(f"  {RESERVE:<{width}}  {reserve:>10}  {100 * SLACK:g} % of that, not planned")
        seconds = self.seconds_per_pass
        lines.append(
            f"one pass: about {format_seconds(seconds)} with {self.threads} thread(s), "
            f"{format_size(self.pass_bytes)} to read"
        )
        least, most = map(format_seconds, self.expected_seconds)
        spread = "" if least == most else f" to {most}, the harder the rows are to fit, the longer"
        pruning = ", and one for what pruning leaves" if self.pruning_passes else ""
        lines.append(f"about {self.expected_passes} passes to a gap of 1e-3{pruning}: {least}{spread}")
        return lines if self.transfer is None else [*lines, self.transfer.line()]

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON can hold it."""
        names = [name for name in self.__dataclass_fields__ if name != "items"]
        return {
            "items": to_json(self.items),
            "fits": self.fits,
            **{name: getattr(self, name) for name in names},
            "transfer": None if self.transfer is None else asdict(self.transfer),
        }


@checks(
    TrainOptions,
    data=ANY_DATA,
    labels=ARRAY,
    sample_weight=ARRAY,
    qid=ARRAY,
    feature_names=FEATURE_NAMES,
    folds=FOLDS,
    grid=GRID,
    price_get=PRICE,
    price_gb=PRICE,
)
def plan(
    data: Any,
    labels: Any = None,
    *,
    sample_weight: Any = None,
    qid: Any = None,
    feature_names: Any = None,
    folds: int | None = None,
    grid: Mapping[str, Any] = NO_GRID,
    price_get: float = 0.0,
    price_gb: float = 0.0,
    **options: Any,
) -> Plan:
    """Say what `train` with these arguments would need; a few blocks are read to measure the speed.

    Parameters
    ----------
    data, labels, sample_weight, qid, feature_names, **options
        As `ooc_svm.train` takes them, but for text: its size in rows and nonzeros is not known beforehand.
    folds : int, optional
        Say what `ooc_svm.tune` with so many folds would need.
    grid : mapping of str to sequence of float, optional
        Say what `ooc_svm.tune` with this grid would need.
    price_get, price_gb : float
        For a store in a bucket: what its service takes for a thousand requests that read, and for a gigabyte
        that leaves it, in any currency.

    Returns
    -------
    Plan

    Raises
    ------
    MemoryBudgetError
        What is needed does not fit ``memory``; the message holds the sum.
    UsageError, InputError, DamageError, StorageError
        As `ooc_svm.train` does before its first pass.
    """
    wanted = TrainOptions(**options)
    if wanted.engine != "local":
        raise UsageError(f"a plan is for one machine; leave {parameter('engine')} out")
    tuning = None if folds is None and not grid else TuneRequest(folds, grid=grid)
    whole = open_prepared(data, labels, sample_weight, qid, wanted, feature_names, tuning=tuning)
    prepared, *others = batches(whole)
    work, source = prepared.workload, prepared.data.source
    budget = divide(work, prepared.solver, wanted, memory_budget(wanted.memory))
    reads, largest, decoded = budget.plan.expected_reads, budget, work.data_nbytes
    if wanted.landmarks is not None:
        features = feature_budget(prepared)
        first = FIRST_PASSES if first_count(prepared) else 0
        reads = first + features.plan.expected_reads + (reads if wanted.polish else 1)
        if features.needed > budget.needed:
            # One part comes after the other, and each has all of the memory.
            largest, decoded = features, with_features(prepared, None).workload.data_nbytes
    items = largest.items
    if largest.ahead_bytes:
        items += (MemoryItem("fetched ahead", largest.ahead_bytes, "chunks of the next blocks"),)
    if largest.cache_bytes:
        items += (MemoryItem("block cache", largest.cache_bytes, "of {each} decoded", decoded),)
    with compiling(wanted):
        warm_up(wanted, prepared.data.value_type, prepared.weighted, lambda message: None, load=True)
        least, most = seconds_per_pass(prepared, work, budget)
    n_batches = 1 + len(others)
    prices = Prices(price_get, price_gb)
    reads, pruning = reads * n_batches, n_batches * (wanted.prune is not None)
    return Plan(
        items=items,
        total=sum(item.nbytes for item in items),
        budget=budget.total,
        n_rows=source.n_rows,
        n_features=source.n_features,
        n_nonzeros=source.n_nonzeros,
        n_models=whole.workload.size.n_models,
        n_batches=n_batches,
        pass_bytes=sum(source.block_stored_bytes(index) for index in range(len(source.blocks))),
        seconds_per_pass=least,
        expected_passes=reads,
        pruning_passes=pruning,
        expected_seconds=(reads * least + pruning * least, reads * most + pruning * least),
        parameters=asdict(budget.plan.parameters),
        threads=work.threads,
        transfer=transfer_of(source, wanted, work, budget, reads + pruning, prices),
    )

"""Training on a cluster: what the client and each worker may use, and what workers are told of the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from ooc_svm.cluster.connection import Cluster, Worker
from ooc_svm.cluster.engine import ClusterEngine
from ooc_svm.cluster.partition import Partition
from ooc_svm.cluster.worker import Resources
from ooc_svm.errors import DamageError, MemoryBudgetError
from ooc_svm.options import TrainOptions
from ooc_svm.solvers.base import SolverPlan
from ooc_svm.solvers.stopping import Stopping
from ooc_svm.store import Store, open_store
from ooc_svm.system.address import AnyPath, located
from ooc_svm.system.folders import default_scratch_folder, shared_folder
from ooc_svm.training.memory_plan import Budget, Workload, divide, least_plan, room_of, with_plan
from ooc_svm.training.opened import opening_options
from ooc_svm.training.preparation import Preparation
from ooc_svm.training.warmup import warm_up


@dataclass(frozen=True, slots=True)
class StoreOnWorker:
    """Opens a store in a worker's process, and compiles what its rows will need."""

    path: AnyPath
    shared_id: str  # Of the client's store
    opening: Mapping[str, Any]  # As the client has opened it: the column of labels, and the layer
    options: TrainOptions
    weighted: bool  # Whether some model sees weights

    def __call__(self) -> Store:
        """Open it.

        DamageError if it is another store than the client's.
        InputError, StorageError if there is none.
        """
        options = self.options
        store = open_store(self.path, **self.opening)
        if store.shared_id != self.shared_id:
            raise DamageError(
                f"{self.path} is another store on a worker than on this machine; put it on a file system "
                "that all machines share, and run again if it was replaced meanwhile"
            )
        if options.cache is not None:
            store.keep_chunks(options.cache, options.cache_size)
        warm_up(self.options, store.value_type, self.weighted, lambda message: None)
        return store


def client_budget(
    prepared: Preparation,
    work: Workload,
    total: int,
    workers: Sequence[Worker],
    kept: Mapping[str, int] | None,
) -> Budget:
    """Divide the client's memory.

    The solver's parameters fit each worker too, whose memory may be less. Where one has too little for any,
    that is reported when it is assigned rows.

    MemoryBudgetError if not even the smallest division fits the client; the sum is enough for workers too.
    """
    # No blocks and no row vectors, but what each worker comes back with.
    own = replace(work, block_nbytes=0, data_nbytes=0, threads=len(workers), holds_rows=False)
    solver, options = prepared.solver, prepared.options
    kinds = {(worker.memory, _threads_of(worker, options)): worker for worker in workers}
    try:
        budget = divide(own, solver, options, total, kept=kept)
    except MemoryBudgetError as refusal:
        # The option is for workers too: of all sums the largest one is named.
        refusals, least = [refusal], least_plan(own, solver, options, kept)
        for (_, threads), worker in kinds.items():
            try:
                worker_budget(prepared, replace(work, threads=threads), least, worker)
            except MemoryBudgetError as theirs:
                refusals.append(theirs)
        raise max(refusals, key=lambda each: each.needed) from None
    if kept is not None:
        return budget
    for memory, threads in kinds:
        there = solver.plan(work.size, options, room_of(replace(work, threads=threads), memory))
        shared = solver.shared(budget.plan, there)
        if shared != asdict(budget.plan.parameters):
            budget = divide(own, solver, options, total, kept=shared)
    return budget


def _threads_of(worker: Worker, options: TrainOptions) -> int:
    """Threads that a worker may use: on a cluster of others no more than are asked for."""
    if options.scheduler is not None and options.threads is not None:
        return min(worker.threads, options.threads)
    return worker.threads


@contextmanager
def open_engine(
    cluster: Cluster, prepared: Preparation, work: Workload, budget: Budget
) -> Iterator[ClusterEngine]:
    """The engine of a training on a cluster, with a folder for the row vectors that all workers see."""
    options, store = prepared.options, prepared.data.source
    assert isinstance(store, Store)
    remote = options.scheduler is not None
    if options.checkpoint is not None:
        # Workers have working directories of their own.
        parent: AnyPath = located(options.checkpoint).absolute()
    else:
        parent = store.path.absolute().parent if remote else default_scratch_folder()
    context = prepared.context(work.size, None, Stopping())
    with shared_folder(parent, "ooc-svm-rows") as folder:
        cluster.require_visible(folder)
        with ClusterEngine(
            store,
            cluster,
            open_source=StoreOnWorker(
                *(store.path.absolute(), store.shared_id, opening_options(store, options)),
                *(options, prepared.weighted),
            ),
            resources_of=partial(_resources_of, prepared, store, work, budget),
            folder=folder,
            # A machine that fails takes the client of a local cluster along.
            durable=remote,
            rounds=prepared.solver.rounds(budget.plan, context),
        ) as engine:
            yield engine


def _resources_of(
    prepared: Preparation,
    store: Store,
    work: Workload,
    budget: Budget,
    member: Worker,
    partitions: Sequence[Partition],
) -> Resources:
    """Divide a worker's memory."""
    options = prepared.options
    spans = [store.blocks[index] for index in sorted({block for part in partitions for block in part.blocks})]
    threads = _threads_of(member, options)
    size = replace(
        work.size,
        n_rows=sum(part.n_rows for part in partitions),
        n_nonzeros=sum(span.n_nonzeros for span in spans),
    )
    own = replace(work, size=size, data_nbytes=sum(span.nbytes for span in spans), threads=threads)
    division = worker_budget(prepared, own, budget.plan, member)
    return Resources(threads, division.row_vector_bytes, division.cache_bytes)


def worker_budget(prepared: Preparation, work: Workload, whole: SolverPlan, member: Worker) -> Budget:
    """Divide a worker's memory for some rows of a run with the plan ``whole``.

    MemoryBudgetError if it does not fit.
    """
    plan, alone = (
        prepared.solver.worker_plan(work.size, prepared.options, room_of(each, member.memory), whole)
        for each in (work, replace(work, threads=1))
    )
    try:
        return with_plan(work, plan, member.memory, alone=alone)
    except MemoryBudgetError as error:
        raise MemoryBudgetError(f"the worker {member.address}: {error}", error.needed) from None

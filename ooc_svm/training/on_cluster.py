"""Training on a cluster: what the client and each worker may use, and what workers are told of the data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ooc_svm.cluster.connection import Cluster
from ooc_svm.cluster.engine import ClusterEngine
from ooc_svm.cluster.link import Member
from ooc_svm.cluster.partition import Partition
from ooc_svm.cluster.worker import Resources
from ooc_svm.errors import DamageError, MemoryBudgetError
from ooc_svm.options import TrainOptions
from ooc_svm.passes.base import Extent
from ooc_svm.rowvectors.vector import default_scratch_folder
from ooc_svm.store import Store, open_store
from ooc_svm.system.folders import shared_folder
from ooc_svm.training.assembly import smo_effort
from ooc_svm.training.memory_plan import Budget, Parameters, Workload, divide
from ooc_svm.training.warmup import warm_up


@dataclass(frozen=True, slots=True)
class StoreOnWorker:
    """Opens a store in a worker's process, and compiles what its rows will need.

    Attributes
    ----------
    path : Path
    id : str
        Hash of the store's content.
    options : TrainOptions
    """

    path: Path
    id: str
    options: TrainOptions

    def __call__(self) -> Store:
        """Open it.

        Raises
        ------
        DamageError
            It is another store than the client's.
        InputError, StorageError
            There is none.
        """
        store = open_store(self.path, label=self.options.label)
        if store.id != self.id:
            raise DamageError(
                f"{self.path} is another store on a worker than on this machine; put it on a file system "
                "that all machines share"
            )
        warm_up(self.options, store.value_type, store.has_weight, lambda message: None)
        return store


def client_budget(
    work: Workload,
    options: TrainOptions,
    total: int,
    workers: Sequence[Member],
    keep: Parameters | None,
) -> Budget:
    """Divide the client's memory.

    No more rows are resident than the smallest worker has room to offer, whose memory may be less. Where it
    has too little for any, it says so itself when rows are dealt to it.

    Raises
    ------
    MemoryBudgetError
        Not even the smallest division fits the client.
    """
    # No blocks and no row vectors, but what each worker comes back with.
    own = replace(work, block_nbytes=0, data_nbytes=0, vector_bytes=0, threads=len(workers))
    budget = divide(own, options, total, keep=keep)
    if options.resolved_solver == "streamed-smo" and keep is None and options.resident is None:
        smallest = min(workers, key=lambda worker: worker.memory)
        with suppress(MemoryBudgetError):
            there = divide(replace(work, threads=smallest.threads), options, smallest.memory).parameters
            if there.capacity < budget.parameters.capacity:
                return divide(own, options, total, keep=there)
    return budget


@contextmanager
def open_engine(
    cluster: Cluster,
    store: Store,
    options: TrainOptions,
    work: Workload,
    budget: Budget,
    rounds: Sequence[Extent],
) -> Iterator[ClusterEngine]:
    """The engine of a training on a cluster, with a folder for the row vectors that all workers see."""
    remote = options.scheduler is not None
    if options.checkpoint is not None:
        parent = Path(options.checkpoint)
    else:
        parent = store.path.absolute().parent if remote else default_scratch_folder()
    with shared_folder(parent, "ooc-svm-rows") as folder:
        cluster.require_visible(folder)
        with ClusterEngine(
            store,
            cluster,
            open_source=StoreOnWorker(store.path.absolute(), store.id, options),
            resources_of=partial(_resources_of, store, options, work, budget),
            folder=folder,
            # A machine that fails takes the client of a local cluster along.
            durable=remote,
            rounds=rounds,
        ) as engine:
            yield engine


def _resources_of(
    store: Store,
    options: TrainOptions,
    work: Workload,
    budget: Budget,
    member: Member,
    partitions: Sequence[Partition],
) -> Resources:
    """Divide a worker's memory."""
    spans = [store.blocks[index] for index in sorted({block for part in partitions for block in part.blocks})]
    threads = member.threads
    if options.scheduler is not None and options.threads is not None:
        threads = min(threads, options.threads)
    own = replace(
        work,
        n_rows=sum(part.n_rows for part in partitions),
        n_nonzeros=sum(span.n_nonzeros for span in spans),
        data_nbytes=sum(span.nbytes for span in spans),
        threads=threads,
    )
    # Cuts are kept by the client. A round's best rows lie with the workers before they are sent.
    parameters = replace(budget.parameters, max_cuts=min(budget.parameters.max_cuts, 1))
    if options.resolved_solver == "streamed-smo":
        # The lanes are those of all the data.
        options = replace(options, lanes=smo_effort(options, budget.parameters, store).lanes)
    try:
        division = divide(own, options, member.memory, keep=parameters)
    except MemoryBudgetError as error:
        raise MemoryBudgetError(f"the worker {member.address}: {error}") from None
    return Resources(threads, division.row_vector_bytes, division.cache_bytes)

"""Opens the engine that the options ask for, with the memory divided for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from ooc_svm.data.matrix import MatrixSource
from ooc_svm.engine.base import Engine
from ooc_svm.engine.local import LocalEngine
from ooc_svm.engine.serial import SerialEngine
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.solvers.stopping import Stopping
from ooc_svm.store import Store
from ooc_svm.system.memory import memory_budget, parse_size
from ooc_svm.training.columns import needs_columns
from ooc_svm.training.memory_plan import Budget, divide
from ooc_svm.training.preparation import Preparation

ON_CLUSTER = "ooc_svm.training.on_cluster"  # Preloaded by the processes of a local cluster


@contextmanager
def open_engine(prepared: Preparation, kept: Mapping[str, int] | None) -> Iterator[tuple[Engine, Budget]]:
    """Divide the memory, and open an engine.

    ``kept``: the solver's parameters of a saved state that the run goes on from.
    """
    source, options = prepared.data.source, prepared.options
    work, total = prepared.workload, memory_budget(options.memory)
    with ExitStack() as stack:
        if options.engine == "dask":
            from ooc_svm.cluster.connection import connect

            assert isinstance(source, Store)
            # Before what follows is imported: workers load theirs meanwhile.
            cluster = stack.enter_context(
                connect(
                    options.scheduler,
                    workers=work.threads,
                    memory=None if options.memory is None else parse_size(options.memory),
                    insecure=options.insecure_cluster,
                    visible=source.path,
                    preload=ON_CLUSTER,
                )
            )
            from ooc_svm.training import on_cluster

            budget = on_cluster.client_budget(prepared, work, total, cluster.workers(), kept)
            yield stack.enter_context(on_cluster.open_engine(cluster, prepared, work, budget)), budget
            return
        budget = divide(work, prepared.solver, options, total, kept=kept)
        vectors = stack.enter_context(RowVectors(source.n_rows, budget.row_vector_bytes))
        if isinstance(source, MatrixSource) and work.threads == 1:
            yield stack.enter_context(SerialEngine(source, vectors)), budget
            return
        if isinstance(source, Store):
            source.limit_ahead(budget.ahead_bytes)
            source.settle(budget.cache_bytes)
        engine = stack.enter_context(
            LocalEngine(source, vectors, threads=work.threads, cache_bytes=budget.cache_bytes)
        )
        if isinstance(source, Store):
            source.hold_only(engine.pinned)
        if needs_columns(options) is None and kept is None:
            # While compiled functions are loaded.
            context = prepared.context(work.size, None, Stopping())
            engine.prefetch(prepared.solver.opening(budget.plan, context))
        yield engine, budget

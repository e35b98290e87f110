"""Engines on a cluster for tests: some of its workers, and the row vectors of another engine."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from ooc_svm.cluster.engine import ClusterEngine
from ooc_svm.cluster.worker import Resources


class Chosen:
    """The workers of a cluster with these process ids."""

    def __init__(self, cluster, pids):
        self._cluster, self.pids = cluster, list(pids)

    @property
    def client(self):
        return self._cluster.client

    def workers(self):
        return [worker for worker in self._cluster.workers() if worker.pid in self.pids]

    def require_visible(self, *paths):
        """Do nothing: all is on one machine, and the cluster outlives the paths."""


class Some(Chosen):
    """The first workers of a cluster."""

    def __init__(self, cluster, n_workers):
        super().__init__(cluster, [worker.pid for worker in cluster.workers()[:n_workers]])


def resources(member, partitions, *, vector_bytes=1 << 30, cache_bytes=0, threads=1):
    return Resources(threads, vector_bytes, cache_bytes)


@contextmanager
def cluster_engine(
    cluster, source, open_source, vectors=None, *, rounds=(), resources_of=resources, **options
):
    """An engine whose row vectors begin with the entries of others."""
    with (
        TemporaryDirectory() as folder,
        ClusterEngine(
            source,
            cluster,
            open_source=open_source,
            resources_of=resources_of,
            folder=Path(folder),
            rounds=rounds,
            **options,
        ) as engine,
    ):
        for name in () if vectors is None else vectors.names():
            vector = vectors[name]
            engine.vectors.create(name, vector.dtype).write(0, vector.read(0, vector.n_rows))
        yield engine


def with_memory(memory_bytes):
    """Resources with so much memory for row vectors."""
    return partial(resources, vector_bytes=memory_bytes)

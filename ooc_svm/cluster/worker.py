"""What a worker of a cluster does: it is a local engine over the partitions it holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import Any

from ooc_svm.cluster.partition import Partition
from ooc_svm.cluster.shared_vectors import Saved, load_partition, write_partitions
from ooc_svm.data.source import Source
from ooc_svm.engine.base import Stream
from ooc_svm.engine.local import LocalEngine
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.system.files import atomic_write
from ooc_svm.system.malloc import share_freed_memory
from ooc_svm.system.memory import peak_memory

Fill = Callable[[RowVectors, Source], object]


@dataclass(frozen=True, slots=True)
class Resources:
    """What a worker may use: computing threads, bytes of row vectors in memory, bytes of pinned blocks."""

    threads: int
    row_vector_bytes: int
    cache_bytes: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a worker holds."""

    partitions: tuple[Partition, ...]  # Ascending
    resources: Resources
    fill: Fill  # Makes the row vectors that come from the data
    vectors: tuple[tuple[str, str, float], ...]  # Name, type and first value of the others
    # Name of a vector, position of a partition above, and where its entries are, if they are not the first
    saved: tuple[tuple[str, int, Saved], ...]


@dataclass(frozen=True, slots=True)
class Work:
    """A worker's part of some passes that share one stream."""

    stream: Stream  # With no segments but the worker's own, and no work of solvers
    segments: tuple[int, ...]  # Their numbers
    n_passes: int  # Reads of the data so far
    path: str  # Where the changed row vectors are written to; must not be there
    names: tuple[str, ...]  # Row vectors that change
    partitions: tuple[Partition, ...]  # Where they change
    durable: bool  # Whether what is written has to survive the machine


@dataclass(frozen=True, slots=True)
class Answer:
    """What a worker comes back with."""

    nodes: list[dict[tuple[int, int], Any]]  # For each pass what is merged, by (width, place)
    checksums: list[int]  # Of the partitions written
    costs: tuple[float, ...]  # What to add to the `Counters`, without their passes
    peak_memory: int  # Of the worker's process


class WorkerSession:
    """A worker's share of a run.

    ``open_source``: opens the data in the worker's process.
    """

    def __init__(self, open_source: Callable[[], Source]) -> None:
        self._open_source = open_source
        self._source: Source | None = None
        self._engine: LocalEngine | None = None
        self._of: tuple[tuple[Partition, ...], Resources] | None = None
        self.done = 0
        """Pieces visited of the stream under way, those that came before it in the same read included."""

    def open(self) -> Source:
        """Open the data, unless that was done; it may take a while."""
        if self._source is None:
            share_freed_memory()
            self._source = self._open_source()
        return self._source

    def hold(self, assignment: Assignment) -> None:
        """Hold these partitions and no others, with the entries that were saved."""
        source = self.open()
        held = [(partition.start, partition.stop) for partition in assignment.partitions]
        resources = assignment.resources
        vectors = RowVectors(source.n_rows, resources.row_vector_bytes, held=held)
        if self._engine is not None and self._of == (assignment.partitions, resources):
            self._engine.vectors.close()
            self._engine.vectors = vectors
        else:
            self.close()
            self._engine = self._make_engine(source, vectors, assignment)
            self._of = assignment.partitions, resources
        assignment.fill(vectors, source)
        for name, dtype, fill in assignment.vectors:
            vectors.create(name, dtype, fill)
        for name, position, saved in assignment.saved:
            load_partition(vectors, name, assignment.partitions[position], saved)

    def work(self, work: Work) -> Answer:
        """Do a part of some passes, and write what row vectors it has changed."""
        engine = self._engine
        assert engine is not None
        engine.counters.passes = work.n_passes
        self.done = work.stream.position.before
        before = astuple(engine.counters)
        trees = engine.merged(work.stream, work.segments)
        checksums: list[int] = []
        if work.names and work.partitions:

            def write(file: Any) -> None:
                checksums[:] = write_partitions(file, engine.vectors, work.names, work.partitions)

            atomic_write(work.path, write, durable=work.durable)
        costs = tuple(b - a for a, b in zip(before[1:], astuple(engine.counters)[1:], strict=True))
        return Answer([tree.nodes for tree in trees], checksums, costs, peak_memory())

    def close(self) -> None:
        """Give everything up."""
        if self._engine is not None:
            self._engine.close()
            self._engine.vectors.close()
            self._engine = None

    def _make_engine(self, source: Source, vectors: RowVectors, assignment: Assignment) -> LocalEngine:
        blocks = sorted({block for partition in assignment.partitions for block in partition.blocks})
        threads, cache_bytes = assignment.resources.threads, assignment.resources.cache_bytes
        engine = LocalEngine(source, vectors, threads=threads, cache_bytes=cache_bytes, blocks=blocks)

        def note(done: int, of: int) -> None:
            self.done = done

        engine.on_block = note
        return engine

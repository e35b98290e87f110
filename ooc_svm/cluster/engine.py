"""The engine of a dask cluster: workers hold the rows and what belongs to them, the client everything else.

A worker is a local engine over its partitions of the rows: it reads their blocks itself, keeps decoded ones
as far as its memory goes, and has their part of the row vectors. A request goes out once to each worker and
comes back as what could be merged there; the client merges the rest, in the same tree as on one machine.

A worker that changes row vectors writes them to a folder shared by all before it answers (`SharedVectors`).
When one is lost, its partitions go to the others, all take the row vectors as they were before the request,
and the request is made once more: it costs the time of one pass at most. Nothing is kept by the scheduler.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any

from ooc_svm.cluster.connection import Cluster, Worker
from ooc_svm.cluster.dask_calls import DaskClient, WorkerLost
from ooc_svm.cluster.link import WorkerConnection, WorkerService, call_all
from ooc_svm.cluster.messages import DeltaEncoder
from ooc_svm.cluster.partition import Partition, Partitioning, SegmentAssignment, assign_segments
from ooc_svm.cluster.shared_vectors import SharedVectors
from ooc_svm.cluster.worker import Answer, Assignment, Fill, Resources, Work
from ooc_svm.data.source import Source
from ooc_svm.engine.base import Counters, Engine, Stream
from ooc_svm.engine.merge import MergeTree
from ooc_svm.errors import MemoryBudgetError, StorageError, parameter
from ooc_svm.passes.base import Pass, RowSet, union
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.system.address import AnyPath

PATIENCE = 60.0  # Seconds without a sign of life after which a worker is given up
GOODBYE_SECONDS = 5.0  # What the workers have to end a run


def _no_fill(vectors: RowVectors, source: Source) -> None:
    """No row vectors come from the data."""


class ClusterEngine(Engine):
    """Streams a source through passes on the workers of a cluster; a context manager.

    ``source``: the data as this process sees it.
    ``open_source``: opens the same data in a worker's process; sent there.
    ``resources_of``: what a worker may use to hold some partitions.
    ``folder``: shared by all processes, this run's alone, for row vectors.
    ``durable``: whether they have to survive the failure of a machine.
    ``rounds``: where passes come in rounds: those of one read. Passes over row vectors then visit the rows of
        `ooc_svm.passes.base.rows_of` them.
    ``patience``: seconds without a sign of life after which a worker is given up.
    """

    def __init__(
        self,
        source: Source,
        cluster: Cluster,
        *,
        open_source: Callable[[], Source],
        resources_of: Callable[[Worker, Sequence[Partition]], Resources],
        folder: AnyPath,
        durable: bool = False,
        rounds: Sequence[RowSet] = (),
        patience: float = PATIENCE,
    ) -> None:
        self._partitioning = (
            Partitioning.of_lanes(rounds) if rounds else Partitioning.of_blocks(source.blocks)
        )
        self._shared = SharedVectors(folder, self._partitioning.partitions)
        super().__init__(source, self._shared)
        self._cluster, self._resources_of = cluster, resources_of
        self._durable, self._patience = durable, patience
        self._fill: Fill = _no_fill
        self._run = f"ooc-svm-{secrets.token_hex(8)}"
        self._connections: list[WorkerConnection] = []
        self._given_up: set[str] = set()
        self._owners: list[int] = []
        self._granularity = len(self._partitioning)
        self._held: int | None = None
        """Version of the row vectors that the workers hold; None if they have to take them again."""
        self._peak = 0
        self._reported = 0
        vector_bytes = 8 * max(source.n_features, 1)
        self._encoder = DeltaEncoder(vector_bytes)
        self._client.start_service(self._run, WorkerService(open_source, vector_bytes))

    def fill(self, fill: Fill) -> None:
        """Have the workers make the row vectors that come from the data."""
        self._fill = fill
        self._held = None

    def peak_memory(self) -> int:
        """The largest of all processes'."""
        return max(self._peak, super().peak_memory())

    def close(self) -> None:
        """Disconnect from the workers, and remove the row vectors."""
        self._leave(self._connections)
        # A worker that is stopped would be waited for.
        ending = threading.Thread(target=self._unregister, daemon=True)
        ending.start()
        ending.join(GOODBYE_SECONDS)
        self._shared.close()

    @property
    def _client(self) -> DaskClient:
        return self._cluster.client

    def _unregister(self) -> None:
        with contextlib.suppress(Exception):  # the cluster may be gone
            self._client.stop_service(self._run)

    def _stream(self, stream: Stream) -> list[Any]:
        if stream.data and stream.position.begins:
            self._join()
        while True:
            assigned = self._settle(stream)
            works = self._works(stream, assigned)
            answers = self._ask(works, stream)
            if answers is not None:
                break
        self._commit(works, answers)
        trees = [MergeTree(len(stream.rows.segments), request.merge) for request in stream.passes]
        for answer in answers:
            # A worker that only reads ahead has none.
            for tree, nodes in zip(trees, answer.nodes, strict=bool(answer.nodes)):
                for (width, place), node in nodes.items():
                    tree.add(place, node, width)
        return [tree.total for tree in trees]

    def _settle(self, stream: Stream) -> SegmentAssignment:
        """Bring the workers up to date, and assign the segments to them."""
        anywhere = not any(request.reads or request.writes for request in stream.passes)
        while True:
            if self._held != self._shared.version:
                self._hold()
            n_workers = len(self._connections)
            assigned = assign_segments(
                stream.rows, stream.prefetch, self._partitioning, self._owners, n_workers, anywhere=anywhere
            )
            if assigned is not None:
                return assigned
            # So few segments that some would lie with several workers: more neighbours have to stay together.
            self._granularity, self._held = len(stream.rows.segments), None

    def _join(self) -> None:
        """Take up workers that have come since."""
        known = {connection.member.address for connection in self._connections} | self._given_up
        fresh = [
            WorkerConnection(member, self._run, self._encoder, self._patience)
            for member in self._cluster.workers()
            if member.address not in known and (not self._connections or self._fits(member))
        ]
        opened = self._wait(call_all([connection.open(self._client) for connection in fresh]))
        joined = [connection for connection, failure in zip(fresh, opened, strict=True) if failure is None]
        self._given_up.update(connection.member.address for connection in fresh if connection not in joined)
        if joined:
            if self._connections:
                self._tell(f"{_count(joined)} joined; all rows are assigned again")
            self._connections += joined
            self._held = None

    def _fits(self, member: Worker) -> bool:
        """Whether a worker that comes later could hold all rows, should it be the only one left."""
        try:
            self._resources_of(member, self._partitioning.partitions)
        except MemoryBudgetError as error:
            self._given_up.add(member.address)
            self._tell(f"a worker that joined is left out: {error}")
            return False
        return True

    def _give_up(self, lost: Sequence[WorkerConnection]) -> None:
        self._given_up.update(connection.member.address for connection in lost)
        self._leave(lost)
        names = ", ".join(connection.member.address for connection in lost)
        rest = (
            f"their rows go to the {_count(self._connections)} that are left"
            if self._connections
            else "none is left"
        )
        self._tell(f"{_count(lost)} lost: {names}; {rest}")

    def _leave(self, connections: Sequence[WorkerConnection]) -> None:
        """Disconnect from some workers; the partitions have to be assigned again."""
        for connection in connections:
            self._client.call_soon(connection.close)
        self._connections = [connection for connection in self._connections if connection not in connections]
        self._held = None

    def _hold(self) -> None:
        """Deal out the partitions, and have all workers take the row vectors as they were written last."""
        while True:
            if not self._connections:
                self._join()
            if not self._connections:
                # Those that were silent may be back.
                self._given_up.clear()
                self._join()
            if not self._connections:
                raise StorageError(
                    "no worker of the cluster is left; see why they ended, and go on from the last "
                    f"checkpoint with {parameter('resume', True)} if there is one"
                )
            self._owners = self._partitioning.assign(len(self._connections), self._granularity)
            version = self._shared.version
            assignments = [
                self._assignment(number, connection) for number, connection in enumerate(self._connections)
            ]
            calls = [
                connection.hold(own) for connection, own in zip(self._connections, assignments, strict=True)
            ]
            if not self._lost(self._connections, self._wait(call_all(calls))):
                self._held = version
                return

    def _assignment(self, worker: int, connection: WorkerConnection) -> Assignment:
        numbers = [
            k
            for k, owner in enumerate(self._owners)
            if owner == worker and self._partitioning.partitions[k].n_rows
        ]
        partitions = tuple(self._partitioning.partitions[k] for k in numbers)
        names = self._shared.names()
        saved = (
            (name, position, self._shared.saved(name, number))
            for name in names
            for position, number in enumerate(numbers)
        )
        return Assignment(
            partitions,
            self._resources_of(connection.member, partitions),
            self._fill,
            tuple((name, *self._shared.kind(name)) for name in names),
            tuple((name, position, place) for name, position, place in saved if place is not None),
        )

    def _works(
        self, stream: Stream, assigned: SegmentAssignment
    ) -> list[tuple[WorkerConnection, Work, tuple[int, ...]]]:
        """What each worker has to do, and the numbers of the partitions that it visits."""
        names = union(request.writes for request in stream.passes)
        works = []
        for connection, rows, prefetch, segments, numbers in zip(
            self._connections,
            assigned.rows,
            assigned.prefetch,
            assigned.segments,
            assigned.partitions,
            strict=True,
        ):
            if not segments and not prefetch:
                continue
            passes = tuple(_of_worker(request, rows) for request in stream.passes) if segments else ()
            part = Stream(passes, rows, stream.data, stream.position, prefetch)
            partitions = tuple(self._partitioning.partitions[k] for k in numbers)
            path, n_passes = self._shared.new_path(), self.counters.passes
            work = Work(part, segments, n_passes, path, names, partitions, self._durable)
            works.append((connection, work, numbers))
        return works

    def _ask(
        self, works: Sequence[tuple[WorkerConnection, Work, tuple[int, ...]]], stream: Stream
    ) -> list[Answer] | None:
        """The answers of the workers; None if one was lost, and all have to hold their partitions again."""
        self._reported = 0
        connections = [connection for connection, _, _ in works]
        note = partial(self._note, connections, stream) if stream.data else None
        calls = [self._one(connection, work, note) for connection, work, _ in works]
        coming = self._client.begin(call_all(calls))
        answers: list[Any] = []
        try:
            began = time.perf_counter()
            while stream.works:
                stream.works.pop(0)()
            self.counters.visiting_seconds += time.perf_counter() - began
            answers = coming.result()
            failures = [a for a in answers if isinstance(a, BaseException) and not isinstance(a, WorkerLost)]
            if failures:
                raise failures[0]
        except BaseException:
            # The answers of the others are not waited for: the state of their row vectors is unknown.
            self._leave(self._connections)
            raise
        if self._lost(connections, answers):
            for _, work, _ in works:
                self._shared.discard(work.path)
            return None
        return answers

    async def _one(self, connection: WorkerConnection, work: Work, note: Callable[[], None] | None) -> Any:
        position = work.stream.position
        connection.done = position.before
        answer = await connection.work(work, note)
        connection.done = position.before + work.stream.rows.n_ranges
        if note is not None:
            note()
        return answer

    def _note(self, connections: Sequence[WorkerConnection], stream: Stream) -> None:
        """Report how far the workers are."""
        before = stream.position.before
        done = before + sum(max(connection.done - before, 0) for connection in connections)
        if self.on_block is not None and done > self._reported:
            self._reported = done
            self.on_block(done, stream.end)

    def _lost(self, connections: Sequence[WorkerConnection], answers: Sequence[Any]) -> bool:
        """Give up the workers that did not answer; whether there were any. Errors of others are raised."""
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, WorkerLost):
                raise answer
        lost = [
            connection
            for connection, answer in zip(connections, answers, strict=True)
            if isinstance(answer, WorkerLost)
        ]
        if lost:
            self._give_up(lost)
        return bool(lost)

    def _commit(
        self, works: Sequence[tuple[WorkerConnection, Work, tuple[int, ...]]], answers: Sequence[Answer]
    ) -> None:
        """Hold for true what the workers wrote, and count what they did."""
        for (_, work, numbers), answer in zip(works, answers, strict=True):
            if answer.checksums:
                self._shared.commit(work.path, work.names, numbers, answer.checksums)
            names = [item.name for item in fields(Counters)][1:]
            for name, cost in zip(names, answer.costs, strict=True):
                setattr(self.counters, name, getattr(self.counters, name) + cost)
            self._peak = max(self._peak, answer.peak_memory)

    def _tell(self, message: str) -> None:
        if self.on_note is not None:
            self.on_note(message)

    def _wait(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self._client.begin(coroutine).result()


def _count(connections: Sequence[WorkerConnection]) -> str:
    return f"{len(connections)} worker{'' if len(connections) == 1 else 's'}"


def _of_worker(request: Any, rows: RowSet) -> Pass:
    """A pass as it goes to a worker: with its part of the rows."""
    has_rows = "rows" in {item.name for item in fields(request)}
    part: Pass = replace(request, rows=rows) if has_rows else request
    return part

"""The client's connections to workers, and the service that answers them there.

Dask starts the workers, knows which of them are there, and carries the messages. Its tasks are not used here:
a round of a sweep takes no longer than the scheduler takes for a task, and a task's result may lie with any
worker. The client asks each worker directly, as dask's own servers ask each other.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from ooc_svm.cluster.connection import Worker
from ooc_svm.cluster.dask_calls import Channel, DaskClient, WorkerLost
from ooc_svm.cluster.messages import DeltaDecoder, DeltaEncoder, Message, Slot
from ooc_svm.cluster.worker import Answer, Assignment, Work, WorkerSession
from ooc_svm.errors import parameter_spelling, spell_parameters

CONNECT_SECONDS = 10.0  # Timeout of a connection to a worker, in seconds
HEARTBEAT_SECONDS = 0.25  # Time between two questions how far a working worker is, in seconds


class WorkerService:
    """Answers a run's client in a worker's process; see `ooc_svm.cluster.dask_calls.Service`.

    ``open_source``: opens the data in the worker's process.
    ``vector_bytes``: size of a vector of the features.
    """

    def __init__(self, open_source: Callable[[], Any], vector_bytes: int) -> None:
        self._open_source, self._vector_bytes = open_source, vector_bytes
        self._spelling = parameter_spelling()

    def start(self) -> None:
        """Open the data while the client makes ready."""
        spell_parameters(self._spelling)
        self._session = WorkerSession(self._open_source)
        self._decoder = DeltaDecoder(self._vector_bytes)
        self._turn = asyncio.Lock()
        self._opening = asyncio.ensure_future(self._open())

    async def stop(self) -> None:
        """Close the session, after a call that may still go on though its client is gone."""
        async with self._turn:
            await asyncio.to_thread(self._session.close)

    async def answer(self, message: Message | None) -> Message | int:
        """The answer to an encoded request; to None at once how many pieces of the stream are done."""
        if message is None:
            return self._session.done
        # One after another: the call before may still go on though its client has disconnected. In a thread,
        # since the worker has to answer the scheduler meanwhile.
        async with self._turn:
            return await asyncio.to_thread(self._serve, message)

    async def _open(self) -> None:
        """Open the data; what is wrong with it is raised by the first request."""
        async with self._turn:
            with suppress(Exception):
                await asyncio.to_thread(self._session.open)

    def _serve(self, message: Message) -> Message:
        request = self._decoder.decode(message)
        answer: Answer | None = None
        if isinstance(request, Assignment):
            self._session.hold(request)
        elif isinstance(request, Work):
            answer = self._session.work(request)
        return self._decoder.encode_answer(answer)


class WorkerConnection:
    """The connection to one worker.

    ``run``: name of the run's `WorkerService`.
    ``encoder``: shared by all connections of the run.
    ``patience``: seconds without a sign of life after which the worker is lost.
    """

    def __init__(self, member: Worker, run: str, encoder: DeltaEncoder, patience: float) -> None:
        self.member = member
        self.done = 0  # Pieces that the worker has visited, as it reported last
        self._run, self._encoder, self._patience = run, encoder, patience
        self._known: dict[Slot, int] = {}
        # The first carries requests, the second heartbeats.
        self._channels: list[Channel] = []

    async def open(self, client: DaskClient) -> None:
        """Connect, and wait until the worker has opened the data or failed to.

        WorkerLost if the worker does not answer.
        """
        try:
            for _ in range(2):
                self._channels.append(await client.open_channel(self.member.address, CONNECT_SECONDS))
            await self._request(None)
        except WorkerLost:
            self.close()
            raise

    def close(self) -> None:
        """Disconnect at once, whatever the worker is doing."""
        for channel in self._channels:
            channel.close()

    async def hold(self, assignment: Assignment) -> None:
        """Have the worker hold what it is assigned; raises as `work` does."""
        await self._request(assignment)

    async def work(self, work: Work, on_heartbeat: Callable[[], None] | None = None) -> Answer:
        """Have the worker do its part of some passes, and wait for as long as it shows signs of life.

        WorkerLost if the worker is gone, or has been silent for too long.
        Exception, as raised by the worker's session.
        """
        answer: Answer = await self._request(work, on_heartbeat)
        return answer

    async def _request(self, request: Any, on_heartbeat: Callable[[], None] | None = None) -> Any:
        requests, heartbeats = self._channels
        message = self._encoder.encode(request, self._known)
        answer = asyncio.ensure_future(requests.ask(self._run, message))
        try:
            while not (await asyncio.wait({answer}, timeout=HEARTBEAT_SECONDS))[0]:
                beat = asyncio.ensure_future(heartbeats.ask(self._run, None))
                await self._wait_for(beat)
                self.done = beat.result()
                if on_heartbeat is not None:
                    on_heartbeat()
            return self._encoder.decode_answer(answer.result())
        finally:
            answer.cancel()

    async def _wait_for(self, beat: asyncio.Future[int]) -> None:
        """Return when there is a sign of life."""
        # In steps: if this process was stopped for a while itself, that is one of them.
        step = min(1.0, self._patience)
        for _ in range(math.ceil(self._patience / step)):
            if (await asyncio.wait({beat}, timeout=step))[0]:
                return
        beat.cancel()
        raise WorkerLost(self.member.address)


async def call_all(calls: Sequence[Any]) -> list[Any]:
    """The results of some calls, or their errors, once all have ended."""
    return await asyncio.gather(*calls, return_exceptions=True)

"""Talking to the workers of a dask cluster: one connection each for the work and for the pulse.

Dask brings the workers, tells who is there, and carries the messages. Its tasks are not used: a round of a
sweep takes no longer than the scheduler takes for a task, and a task's result may lie with any worker. The
client asks each worker directly, as dask's own servers ask each other.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from distributed import WorkerPlugin
from distributed.comm.core import Comm, connect
from distributed.protocol.serialize import to_serialize

from ooc_svm.cluster.messages import Inbox, Outbox, Parcel, Slot
from ooc_svm.cluster.worker import Share

CONNECT_SECONDS = 10.0
"""What a worker has to take up a connection."""

PULSE_SECONDS = 0.25
"""A worker that works is asked so often how far it is."""


class Lost(Exception):
    """A worker does not answer."""


class Member(Protocol):
    """A worker of a cluster that may be asked for work."""

    @property
    def address(self) -> str: ...

    @property
    def threads(self) -> int: ...

    @property
    def memory(self) -> int: ...


class Serving(WorkerPlugin):
    """A run in a worker's process: answers what its client asks.

    Parameters
    ----------
    run : str
        The name of the run, under which it is asked.
    open_source : callable
        Opens the data in the worker's process.
    vector_bytes : int
        Of a vector of the features.
    """

    def __init__(self, run: str, open_source: Callable[[], Any], vector_bytes: int) -> None:
        self.name = run
        self._open_source, self._vector_bytes = open_source, vector_bytes

    def setup(self, worker: Any) -> None:
        """Be there for questions."""
        self._share = Share(self._open_source)
        self._inbox = Inbox(self._vector_bytes)
        self._turn = asyncio.Lock()
        worker.handlers[self.name] = self.answer
        self._opening = asyncio.ensure_future(self._open())

    async def teardown(self, worker: Any) -> None:
        """The run is over, or the worker ends."""
        worker.handlers.pop(self.name, None)
        # Not under the feet of a call that nobody waits for any more.
        async with self._turn:
            await asyncio.to_thread(self._share.close)

    async def _open(self) -> None:
        """Open the data while the client makes ready; who asks for it first hears what is wrong with it."""
        async with self._turn:
            with suppress(Exception):
                await asyncio.to_thread(self._share.open)

    async def answer(self, call: str, parcel: Parcel | None = None) -> dict[str, Any]:
        """What a call of the `Share` returns, or the error it raises."""
        if parcel is None:
            return {"done": self._share.done}
        try:
            # One after another: what was asked for before may still go on, though nobody waits for it. In a
            # thread of its own, since the worker must answer the scheduler meanwhile.
            async with self._turn:
                answer = await asyncio.to_thread(self._call, call, parcel)
        except Exception as error:
            return {"error": to_serialize(error)}
        return {"parcel": to_serialize(answer)}

    def _call(self, call: str, parcel: Parcel) -> Parcel:
        if call == "greet":
            self._inbox = Inbox(self._vector_bytes)
        message = self._inbox.unpack(parcel)
        calls: dict[str, Callable[[Any], Any]] = {"hold": self._share.hold, "work": self._share.work}
        return self._inbox.pack(calls[call](message) if call in calls else None)


class Link:
    """The connection to one worker.

    Parameters
    ----------
    member : Member
    run : str
        See `Serving`.
    outbox : Outbox
        Of all links of the run.
    patience : float
        Seconds without a sign of life after which the worker is lost.
    """

    def __init__(self, member: Member, run: str, outbox: Outbox, patience: float) -> None:
        self.member = member
        self.done = 0
        """Pieces that the worker has visited, as it said last."""
        self._run, self._outbox, self._patience = run, outbox, patience
        self._known: dict[Slot, int] = {}
        self._comms: list[Comm] = []

    async def open(self, connection_args: dict[str, Any]) -> None:
        """Connect.

        Raises
        ------
        Lost
            The worker does not answer.
        """
        try:
            for _ in range(2):
                # A process that is stopped takes up connections all the same.
                connecting = connect(self.member.address, timeout=CONNECT_SECONDS, **connection_args)
                self._comms.append(await asyncio.wait_for(connecting, CONNECT_SECONDS))
            await self.call("greet", None)
        except (OSError, TimeoutError, Lost) as error:
            self.close()
            raise Lost(self.member.address) from error

    def close(self) -> None:
        """Let go of the worker, whatever it is doing."""
        for comm in self._comms:
            comm.abort()

    async def call(self, call: str, argument: Any, on_pulse: Callable[[], None] | None = None) -> Any:
        """Ask the worker, and wait for as long as it shows signs of life.

        Raises
        ------
        Lost
            The worker is gone, or has been silent for too long.
        Exception
            What the call raised there.
        """
        work, pulse = self._comms
        parcel = self._outbox.pack(argument, self._known)
        answer = asyncio.ensure_future(self._ask(work, call, parcel))
        try:
            while not (await asyncio.wait({answer}, timeout=PULSE_SECONDS))[0]:
                beat = asyncio.ensure_future(self._ask(pulse, "pulse", None))
                await self._wait_for(beat)
                self.done = beat.result()["done"]
                if on_pulse is not None:
                    on_pulse()
            return self._outbox.unpack(answer.result()["parcel"])
        finally:
            answer.cancel()

    async def _wait_for(self, beat: asyncio.Future[Any]) -> None:
        """Return when there is a sign of life."""
        # In steps: if this process was stopped for a while itself, that is one of them.
        step = min(1.0, self._patience)
        for _ in range(math.ceil(self._patience / step)):
            if (await asyncio.wait({beat}, timeout=step))[0]:
                return
        beat.cancel()
        raise Lost(self.member.address)

    async def _ask(self, comm: Comm, call: str, parcel: Parcel | None) -> dict[str, Any]:
        try:
            await comm.write({"op": self._run, "call": call, "parcel": to_serialize(parcel)})
            reply: dict[str, Any] | None = await comm.read()
        except OSError as error:
            raise Lost(self.member.address) from error
        if reply is None:
            # The worker knows nothing of the run: it was started anew under its old address.
            raise Lost(self.member.address)
        if "error" in reply:
            raise reply["error"]
        return reply


async def call_all(calls: Sequence[Any]) -> list[Any]:
    """The results of some calls, or their errors, once all have ended."""
    return await asyncio.gather(*calls, return_exceptions=True)

"""All that the package calls of dask, with types.

Code that depends on how dask is made is here: its event loop, its messages, its servers and its logs. The
import of this module loads `distributed`, which takes a second.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future as Coming
from contextlib import contextmanager, suppress
from typing import Any, Protocol, TypeVar

import dask
import numpy as np
import numpy.typing as npt
from distributed import Client, Future, LocalCluster, Security, WorkerPlugin, get_worker, wait
from distributed.cli.dask_worker import main as worker_main
from distributed.comm.core import Comm, connect
from distributed.protocol.serialize import deserialize as from_frames
from distributed.protocol.serialize import serialize as to_frames
from distributed.protocol.serialize import to_serialize
from distributed.scheduler import KilledWorker
from distributed.versions import get_versions

__all__ = ["Future", "KilledWorker"]

_LOGGERS = ("distributed", "distributed.client", "tornado", "tornado.application", "asyncio")

T = TypeVar("T")


class WorkerLost(Exception):
    """A worker does not answer."""


class Service(Protocol):
    """Answers messages in a worker's process; it is sent there, and started there."""

    def start(self) -> None:
        """Make ready, in the event loop."""

    async def answer(self, message: Any) -> Any:
        """The answer to a message; an error that this raises is raised at the client."""

    async def stop(self) -> None:
        """Release everything: the client has ended the service, or the worker ends."""


class DaskClient:
    """A client of a scheduler."""

    def __init__(self, client: Client) -> None:
        # Untyped, since dask types the scheduler and the loop as optional.
        self._client: Any = client

    @property
    def address(self) -> str:
        """Address of the scheduler."""
        return str(self._client.scheduler.address)

    def threads(self, timeout: float) -> dict[str, int]:
        """Threads of every worker, by address.

        OSError, RuntimeError, TimeoutError if the scheduler does not answer.
        """
        return dict(self._client.sync(self._client.scheduler.ncores, callback_timeout=timeout))

    def releases(
        self, addresses: Sequence[str], packages: Sequence[str], timeout: float
    ) -> dict[str, dict[str, str | None]]:
        """Releases of Python and of packages on some workers; a worker that does not answer is left out.

        OSError, RuntimeError, TimeoutError if the scheduler does not answer, or a worker keeps it waiting.
        """
        answers = self._client.sync(
            self._client.scheduler.broadcast,
            msg={"op": "versions", "packages": list(packages)},
            workers=list(addresses),
            on_error="ignore",
            callback_timeout=timeout,
        )
        return {address: answer["packages"] for address, answer in answers.items()}

    def submit(self, function: Callable[..., Any], *arguments: Any, workers: Sequence[str]) -> Future[Any]:
        """Call a function once on one of these workers."""
        future: Future[Any] = self._client.submit(
            function, *arguments, workers=list(workers), allow_other_workers=False, pure=False
        )
        return future

    def wait_for_one(self, futures: Sequence[Future[Any]], timeout: float) -> None:
        """Return when one of some calls is done, or after this many seconds."""
        with suppress(TimeoutError), self._client.as_current():
            wait(list(futures), timeout=timeout, return_when="FIRST_COMPLETED")

    def cancel(self, futures: Sequence[Future[Any]]) -> None:
        """Cancel some calls."""
        self._client.cancel(list(futures))

    def start_service(self, name: str, service: Service) -> None:
        """Start a service in every worker, those included that join later."""
        self._client.register_plugin(_ServicePlugin(name, service), name=name)

    def stop_service(self, name: str) -> None:
        """Stop a service in every worker."""
        self._client.unregister_worker_plugin(name)

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> Coming[T]:
        """Run a coroutine in the client's event loop, where connections to workers live."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._client.loop.asyncio_loop)

    def call_soon(self, function: Callable[[], None]) -> None:
        """Call a function in the client's event loop, without waiting for it."""
        self._client.loop.asyncio_loop.call_soon_threadsafe(function)

    async def open_channel(self, address: str, timeout: float) -> Channel:
        """Connect to a worker; WorkerLost if it does not take up the connection."""
        connecting = connect(address, timeout=timeout, **self._client.connection_args)
        try:
            # A process that is stopped accepts a connection, and then says nothing.
            return Channel(address, await asyncio.wait_for(connecting, timeout))
        except (OSError, TimeoutError) as error:
            raise WorkerLost(address) from error


class Channel:
    """A connection to the services of a worker; made by `DaskClient.open_channel`."""

    def __init__(self, address: str, comm: Comm) -> None:
        self._address, self._comm = address, comm

    async def ask(self, service: str, message: Any) -> Any:
        """Send a message to a service, and wait for its answer.

        WorkerLost if the connection broke, or the worker does not have the service: it was started again
            under its old address.
        Exception, as the service raised it.
        """
        try:
            await self._comm.write({"op": service, "message": to_serialize(message)})
            reply = await self._comm.read()
        except OSError as error:
            raise WorkerLost(self._address) from error
        if reply is None:
            raise WorkerLost(self._address)
        if "error" in reply:
            raise reply["error"]
        return reply["answer"]

    def close(self) -> None:
        """Disconnect at once, whatever the worker is doing."""
        self._comm.abort()


class _ServicePlugin(WorkerPlugin):
    """Makes a service a handler of the worker's own server."""

    def __init__(self, name: str, service: Service) -> None:
        self.name, self._service = name, service

    def setup(self, worker: Any) -> None:
        self._service.start()
        worker.handlers[self.name] = self._handle

    async def teardown(self, worker: Any) -> None:
        worker.handlers.pop(self.name, None)
        await self._service.stop()

    async def _handle(self, message: Any) -> dict[str, Any]:
        try:
            return {"answer": to_serialize(await self._service.answer(message))}
        except Exception as error:
            return {"error": to_serialize(error)}


def serialize(value: Any) -> tuple[dict[str, Any], list[npt.NDArray[np.uint8]]]:
    """A value as a header and frames of bytes, one for each of its arrays."""
    header, frames = to_frames(value, serializers=("pickle",), on_error="raise")
    return header, [np.frombuffer(frame, np.uint8) for frame in frames]


def deserialize(header: dict[str, Any], frames: Sequence[npt.NDArray[np.uint8]]) -> Any:
    """The value that was serialized; its arrays share the memory of the frames."""
    return from_frames(header, frames)


def own_releases(packages: Sequence[str]) -> dict[str, str | None]:
    """Releases of Python and of packages in this process."""
    releases: dict[str, str | None] = get_versions(packages=packages)["packages"]
    return releases


def worker_memory_limit() -> int | None:
    """Bytes to which dask limits the worker in this process; None without a limit."""
    return get_worker().memory_manager.memory_limit or None


@contextmanager
def local_scheduler(lost_worker_seconds: float) -> Iterator[DaskClient]:
    """A scheduler in this process, which listens on 127.0.0.1 only and has no workers yet, and its client.

    ``lost_worker_seconds``: a worker counts as lost after so long without a sign of life.
    """
    security = Security(require_encryption=False)
    with (
        dask.config.set({"distributed.scheduler.worker-ttl": f"{lost_worker_seconds:.0f} s"}),
        LocalCluster(
            n_workers=0,
            processes=True,
            host="127.0.0.1",
            protocol="tcp://",
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
            silence_logs=False,
            security=security,
        ) as scheduler,
        Client(scheduler.scheduler_address, security=security, set_as_default=False) as client,
    ):
        yield DaskClient(client)


@contextmanager
def remote_scheduler(address: str, timeout: float) -> Iterator[DaskClient]:
    """A client of the scheduler at an address, with the certificates that dask's configuration names.

    OSError, TimeoutError if there is no scheduler.
    TypeError, ValueError, RuntimeError if the address or the certificates are unusable.
    """
    security = Security()

    async def probe() -> None:
        arguments = security.get_connection_args("client")
        comm = await connect(address, timeout=timeout, **arguments)
        comm.abort()

    # A `Client` that cannot connect takes some more seconds to end, and prints something.
    asyncio.run(probe())
    with Client(address, security=security, timeout=timeout, set_as_default=False) as client:
        yield DaskClient(client)


def run_worker(scheduler: str, threads: int) -> None:
    """Run a worker on 127.0.0.1 in this process, without a nanny, until its scheduler is gone."""
    options = ["--nthreads", str(threads), "--host", "127.0.0.1", "--memory-limit", "0", "--no-nanny"]
    # A worker without a dashboard still has a server, which needs an address.
    options += ["--no-dashboard", "--dashboard-address", "127.0.0.1:0", "--death-timeout", "60"]
    worker_main([scheduler, *options])


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress dask's logs and warnings, which mean nothing to a user of this package."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"(distributed|dask|tornado)(\..*)?$")
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)

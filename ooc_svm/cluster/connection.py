"""Connecting to a dask cluster: worker processes on this machine, or the scheduler at an address.

Whoever asks for work on a cluster gets workers that were looked at: they run the same releases of what the
answer depends on, see the same files, and have the memory.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import socket
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ooc_svm.cluster.processes import LocalWorkers, local_workers
from ooc_svm.errors import MemoryBudgetError, OocSvmError, StorageError, UsageError
from ooc_svm.system.memory import available_memory, format_size

CONNECT_SECONDS = 5.0
"""What a scheduler has to answer at all."""

JOIN_SECONDS = 5.0
"""What the first worker of a remote scheduler has to be there."""

START_SECONDS = 120.0
"""What local worker processes have to start."""

ANSWER_SECONDS = 30.0
"""What a worker has to answer; one that is busy with work of others does not."""

LOST_WORKER_SECONDS = 60.0
"""After so long without a sign of life a local worker counts as lost; elsewhere the scheduler decides."""

# What the answer, or talking at all, depends on.
_SAME_RELEASES = ("ooc_svm", "numpy", "numba", "zarr", "numcodecs", "distributed")
_LOGGERS = ("distributed", "distributed.client", "tornado", "tornado.application", "asyncio")
# A worker with a limit of dask's own is paused by dask when it holds more than this share of it.
_PAUSE_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker that was looked at.

    Attributes
    ----------
    address : str
        As the scheduler knows it; names it in messages.
    host : str
    pid : int
    threads : int
        Tasks it runs at once.
    memory : int
        Bytes that its process may use.
    """

    address: str
    host: str
    pid: int
    threads: int
    memory: int


@dataclass(frozen=True, slots=True)
class _Facts:
    """What a worker says of itself."""

    host: str
    pid: int
    available: int
    limit: int | None
    seen: list[str | None]


class Cluster:
    """A connection to a cluster; made by `connect`.

    Attributes
    ----------
    client : distributed.Client
    where : str
        Names the cluster in messages.
    """

    def __init__(
        self, client: Any, where: str, *, memory: int | None, visible: Path | None, own_host: str | None
    ) -> None:
        self.client = client
        self.where = where
        self._memory = memory
        self._visible: tuple[Path, ...] = () if visible is None else (visible,)
        self._own_host = own_host
        self._known: dict[str, Worker] = {}
        self._refused: set[str] = set()

    def workers(self) -> tuple[Worker, ...]:
        """The workers that are there now, in the order of their coming.

        One that has joined since is looked at first; if it does not fit, it is not among them.

        Raises
        ------
        StorageError
            The scheduler does not answer.
        """
        threads = self._threads()
        for address in threads.keys() - self._known.keys() - self._refused:
            try:
                self._admit([address], threads)
            except OocSvmError:
                self._refused.add(address)
        return tuple(worker for address, worker in self._known.items() if address in threads)

    def admit_all(self) -> None:
        """Look at all workers that are there; what is wrong with one of them is raised."""
        threads = self._threads()
        if not threads:
            raise StorageError(
                f"{self.where} has no workers; start some on the machines that are to work, then run again"
            )
        self._admit(sorted(threads), threads)

    def require_visible(self, *paths: Path) -> None:
        """Have all workers, those too that join later, see files and folders as this process does.

        Raises
        ------
        StorageError
            A worker does not see one of them, or something else in its place.
        """
        self._visible = tuple(dict.fromkeys((*self._visible, *paths)))
        _check_seen(self._ask(list(self._known), paths), paths)

    def _threads(self) -> dict[str, int]:
        """Threads of every worker the scheduler has."""
        with scheduler_errors(self.where):
            return dict(self.client.sync(self.client.scheduler.ncores, callback_timeout=ANSWER_SECONDS))

    def _admit(self, addresses: list[str], threads: dict[str, int]) -> None:
        self._check_releases(addresses)
        facts = self._ask(addresses, self._visible)
        _check_seen(facts, self._visible)
        hosts = Counter(fact.host for fact in facts.values())
        hosts.update(known.host for address, known in self._known.items() if address in threads)
        if self._own_host is not None:
            hosts[self._own_host] += 1  # this process
        for address, fact in facts.items():
            share = fact.available // hosts[fact.host]
            if fact.limit is not None:
                share = min(share, int(_PAUSE_SHARE * fact.limit))
            if self._memory is not None and self._memory > share:
                raise MemoryBudgetError(
                    f"the worker {address} on {fact.host!r:.80} may use {format_size(share)} of memory, and "
                    f"{format_size(self._memory)} are asked for on each worker: ask for less with --memory, "
                    "or let fewer workers share a machine"
                )
            memory = share // 2 if self._memory is None else self._memory
            self._known[address] = Worker(address, fact.host, fact.pid, threads[address], memory)

    def _check_releases(self, addresses: list[str]) -> None:
        """Raise StorageError where a worker has other releases than this process of what matters."""
        from distributed.versions import get_versions

        message = {"op": "versions", "packages": list(_SAME_RELEASES)}
        with scheduler_errors(self.where):
            answers = self.client.sync(
                self.client.scheduler.broadcast,
                msg=message,
                workers=addresses,
                on_error="ignore",
                callback_timeout=ANSWER_SECONDS,
            )
        own = get_versions(packages=_SAME_RELEASES)["packages"]
        for address, answer in sorted(answers.items()):
            theirs = answer["packages"]
            for name in ("python", *_SAME_RELEASES):
                here, there = _release(name, own.get(name)), _release(name, theirs.get(name))
                if here != there:
                    raise StorageError(
                        f"the worker {address} has {name.replace('_', '-')} {there}, and this process has "
                        f"{here}: install the same release on all machines"
                    )

    def _ask(self, addresses: list[str], paths: tuple[Path, ...]) -> dict[str, _Facts]:
        """What each worker says of itself and of some paths."""
        names = [os.path.abspath(path) for path in paths]
        deadline = time.monotonic() + ANSWER_SECONDS
        with scheduler_errors(self.where):
            futures = {
                address: self.client.submit(
                    _facts, names, workers=[address], allow_other_workers=False, pure=False
                )
                for address in addresses
            }
            facts = {}
            for address, future in futures.items():
                try:
                    facts[address] = future.result(timeout=max(deadline - time.monotonic(), 0.1))
                except TimeoutError:
                    raise StorageError(
                        f"the worker {address} has not answered for {ANSWER_SECONDS:.0f} s: it is stopped, "
                        "or busy with other work; end it, or wait, and run again"
                    ) from None
            return facts


def _release(name: str, version: Any) -> str:
    """The release in words; of Python the first two numbers, which its compiled code depends on."""
    if version is None:
        return "(not installed)"
    return ".".join(str(version).split(".")[:2]) if name == "python" else str(version)


def _check_seen(facts: dict[str, _Facts], paths: tuple[Path, ...]) -> None:
    here = [_fingerprint(os.path.abspath(path)) for path in paths]
    for address, fact in facts.items():
        for path, own, seen in zip(paths, here, fact.seen, strict=True):
            if seen != own:
                what = "does not see" if seen is None else "sees something else at"
                raise StorageError(
                    f"the worker {address} {what} {path}: put it on a file system that all machines share, "
                    "under the same path"
                )


def _facts(paths: list[str]) -> _Facts:
    """What a worker knows; runs there."""
    from distributed import get_worker

    limit = get_worker().memory_manager.memory_limit
    seen = [_fingerprint(path) for path in paths]
    return _Facts(socket.gethostname(), os.getpid(), available_memory(), limit or None, seen)


def _fingerprint(path: str) -> str | None:
    """What tells a file or store from another one of the same path; None where there is nothing to see."""
    try:
        if not os.path.isdir(path):
            status = os.stat(path)
            return f"{status.st_size} bytes, changed at {status.st_mtime_ns}"
        metadata = Path(path, "zarr.json")  # of a store: with the hash of its manifest
        return hashlib.sha256(metadata.read_bytes()).hexdigest() if metadata.exists() else "a folder"
    except OSError:
        return None


@contextmanager
def scheduler_errors(where: str) -> Iterator[None]:
    """Say in one sentence that the scheduler is lost."""
    try:
        yield
    except OocSvmError:
        raise
    except (OSError, RuntimeError, TimeoutError) as error:
        raise StorageError(
            f"{where} does not answer any more ({type(error).__name__}): see whether it runs, then run again"
        ) from error


@contextmanager
def connect(
    scheduler: str | None,
    *,
    workers: int,
    threads_per_worker: int = 1,
    memory: int | None,
    insecure: bool = False,
    visible: Path | None = None,
) -> Iterator[Cluster]:
    """Connect to a cluster for as long as the context lasts.

    What dask logs and warns of is not shown meanwhile.

    Parameters
    ----------
    scheduler : str or None
        ``tls://host:port``, with the certificates that dask's configuration names
        (``distributed.comm.tls``); any other protocol needs `insecure`. None: a cluster of processes on this
        machine, which listens on 127.0.0.1 only and ends with the context.
    workers, threads_per_worker : int
        Of a cluster on this machine.
    memory : int or None
        Bytes that each worker may use; None: half of its part of what its machine allows.
    insecure : bool
        Take a scheduler to which anybody may talk, and send it data in the clear.
    visible : Path, optional
        A file or folder that all workers must see as this process does.

    Yields
    ------
    Cluster
        With one worker at least.

    Raises
    ------
    UsageError
        An address without encryption where `insecure` is False, or `insecure` without an address.
    StorageError
        No scheduler at the address, no workers, a worker with other releases or that does not see what it
        must.
    MemoryBudgetError
        `memory` is more than a worker may use.
    """
    if scheduler is None:
        if insecure:
            raise UsageError(
                "--insecure-cluster is for a scheduler's address: add --scheduler, or leave it out"
            )
    elif not scheduler.startswith("tls://") and not insecure:
        raise UsageError(
            f"the scheduler {scheduler!r:.80} is not at a tls:// address: use TLS, or allow everybody on the "
            "network to read the data and to run programs as you with --insecure-cluster"
        )
    with ExitStack() as stack:
        if scheduler is None:
            processes = stack.enter_context(local_workers(workers, threads_per_worker))
            stack.enter_context(_quiet())
            client = stack.enter_context(_local_cluster(processes))
            where, own_host = "the local cluster", socket.gethostname()
        else:
            stack.enter_context(_quiet())
            client = stack.enter_context(_remote_cluster(scheduler))
            where, own_host = f"the scheduler at {scheduler}", None
        cluster = Cluster(client, where, memory=memory, visible=visible, own_host=own_host)
        cluster.admit_all()
        yield cluster


@contextmanager
def _local_cluster(workers: LocalWorkers) -> Iterator[Any]:
    """A scheduler in this process, which the workers join, and a client."""
    import dask
    from distributed import Client, LocalCluster, Security

    security = Security(require_encryption=False)
    with (
        dask.config.set({"distributed.scheduler.worker-ttl": f"{LOST_WORKER_SECONDS:.0f} s"}),
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
        closing(workers),  # before the scheduler
    ):
        workers.join(scheduler.scheduler_address)
        _wait_for(client, workers)
        yield client


def _wait_for(client: Any, workers: LocalWorkers) -> None:
    """Return when all processes have joined."""
    deadline = time.monotonic() + START_SECONDS
    while len(client.nthreads()) < len(workers.processes):
        workers.check_running()
        if time.monotonic() > deadline:
            raise StorageError(
                f"the worker processes of the local cluster did not start within {START_SECONDS:.0f} s: "
                "see what keeps this machine busy, or use --engine local"
            )
        time.sleep(0.02)


@contextmanager
def _remote_cluster(address: str) -> Iterator[Any]:
    """A client of the scheduler at an address, which has a worker."""
    from distributed import Client, Security

    security = Security()
    try:
        # A client that fails does not end before some more seconds, and not without a word.
        asyncio.run(_knock(address, security))
        client: Any = Client(address, security=security, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise StorageError(
            f"there is no scheduler at {address!r:.80}, or it cannot be reached from here: see whether it "
            "runs, and check address and certificates"
        ) from error
    except (TypeError, ValueError, RuntimeError) as error:
        raise StorageError(
            f"the scheduler {address!r:.80} cannot be talked to ({str(error)!r:.80}): check the address, and "
            "for tls:// the certificates in dask's configuration"
        ) from error
    with client:
        deadline = time.monotonic() + JOIN_SECONDS
        while not client.nthreads() and time.monotonic() < deadline:
            time.sleep(0.1)
        yield client


async def _knock(address: str, security: Any) -> None:
    """Connect to an address, and leave."""
    from distributed.comm.core import connect as connect_to

    comm = await connect_to(address, timeout=CONNECT_SECONDS, **security.get_connection_args("client"))
    comm.abort()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what dask logs and warns of from a user to whom it says nothing."""
    import distributed  # noqa: F401  (its import sets the levels of its loggers)

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

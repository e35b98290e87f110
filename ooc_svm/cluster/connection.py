"""Connecting to a dask cluster: worker processes on this machine, or the scheduler at an address.

Workers are checked before they are used: they must have the same releases of what the answer depends on, see
the same files, and have the memory.
"""

from __future__ import annotations

import hashlib
import os
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ooc_svm.cluster.processes import LocalWorkers, local_workers
from ooc_svm.errors import MemoryBudgetError, OocSvmError, StorageError, UsageError, parameter
from ooc_svm.system.address import AnyPath, address_of, located
from ooc_svm.system.files import IrregularFileError, open_to_read
from ooc_svm.system.memory import available_memory, format_size, size_available
from ooc_svm.system.object_files import object_fingerprint

if TYPE_CHECKING:
    from ooc_svm.cluster.dask_calls import DaskClient

CONNECT_SECONDS = 5.0  # Timeout of the first contact with a scheduler, in seconds
JOIN_SECONDS = 5.0  # Time in which a remote scheduler must have a worker, in seconds
START_SECONDS = 120.0  # Time in which local worker processes must have started, in seconds

ANSWER_SECONDS = 30.0
"""Timeout of a question to a worker, in seconds; one that is busy with other work does not answer."""

LOST_WORKER_SECONDS = 60.0
"""Time without a sign of life after which a local worker counts as lost, in seconds; a remote scheduler has
its own."""

# Packages whose releases the answer, or the connection itself, depends on.
_SAME_RELEASES = ("ooc_svm", "numpy", "numba", "zarr", "numcodecs", "distributed")
_PAUSE_SHARE = 0.8  # Share of a worker's own memory limit above which dask pauses it


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker that was checked."""

    address: str  # As the scheduler knows it; names it in messages
    host: str
    pid: int
    threads: int  # Tasks it runs at once
    memory: int  # Bytes that its process may use


@dataclass(frozen=True, slots=True)
class _WorkerInfo:
    """What a worker reports of itself; its limit is dask's, its fingerprints are those of some paths."""

    host: str
    pid: int
    available: int
    limit: int | None
    fingerprints: list[str | None]


class Cluster:
    """A connection to a cluster; made by `connect`.

    ``where``: names the cluster in messages.
    """

    def __init__(
        self,
        client: DaskClient,
        where: str,
        *,
        memory: int | None,
        visible: AnyPath | None,
        own_host: str | None,
    ) -> None:
        self.client = client
        self.where = where
        self._memory = memory
        self._visible: tuple[AnyPath, ...] = () if visible is None else (visible,)
        self._own_host = own_host
        self._known: dict[str, Worker] = {}
        self._refused: set[str] = set()

    def workers(self) -> tuple[Worker, ...]:
        """The workers that are there now, in the order in which they joined.

        One that has joined since the last call is checked first, and left out if it does not fit.

        StorageError if the scheduler does not answer.
        """
        threads = self._threads()
        for address in threads.keys() - self._known.keys() - self._refused:
            try:
                self._admit([address], threads)
            except OocSvmError:
                self._refused.add(address)
        return tuple(worker for address, worker in self._known.items() if address in threads)

    def admit_all(self) -> None:
        """Check all workers that are there; what is wrong with one of them is raised."""
        threads = self._threads()
        if not threads:
            raise StorageError(
                f"{self.where} has no workers; start some on the machines of the cluster, then run again"
            )
        self._admit(sorted(threads), threads)

    def require_visible(self, *names: str | os.PathLike[str]) -> None:
        """Require that all workers, now and later, see files and folders as this process does.

        StorageError if a worker does not see one of them, or sees something else in its place.
        """
        paths = tuple(map(located, names))
        self._visible = tuple(dict.fromkeys((*self._visible, *paths)))
        _check_fingerprints(self._infos(list(self._known), paths), paths)

    def _threads(self) -> dict[str, int]:
        """Threads of every worker the scheduler has."""
        with scheduler_errors(self.where):
            return self.client.threads(ANSWER_SECONDS)

    def _admit(self, addresses: list[str], threads: dict[str, int]) -> None:
        self._check_releases(addresses)
        infos = self._infos(addresses, self._visible)
        _check_fingerprints(infos, self._visible)
        hosts = Counter(info.host for info in infos.values())
        hosts.update(known.host for address, known in self._known.items() if address in threads)
        if self._own_host is not None:
            hosts[self._own_host] += 1  # this process
        for address, info in infos.items():
            share = info.available // hosts[info.host]
            if info.limit is not None:
                share = min(share, int(_PAUSE_SHARE * info.limit))
            if self._memory is not None and self._memory > share:
                raise MemoryBudgetError(
                    f"the worker {address} on {info.host!r:.80} may use {size_available(share)} of memory, "
                    f"and {format_size(self._memory)} are asked for on each worker: ask for less "
                    f"({parameter('memory')}), or let fewer workers share a machine"
                )
            memory = share // 2 if self._memory is None else self._memory
            self._known[address] = Worker(address, info.host, info.pid, threads[address], memory)

    def _check_releases(self, addresses: list[str]) -> None:
        """Raise StorageError where a worker has another release than this process."""
        from ooc_svm.cluster.dask_calls import own_releases

        # `Client.get_versions(check=True)` only warns, with a table. It knows neither numba nor zarr, objects
        # to another patch release of Python, and waits for ever for a worker that is stopped.
        with scheduler_errors(self.where):
            releases = self.client.releases(addresses, _SAME_RELEASES, ANSWER_SECONDS)
        own = own_releases(_SAME_RELEASES)
        for address, theirs in sorted(releases.items()):
            for name in ("python", *_SAME_RELEASES):
                here, there = _release(name, own.get(name)), _release(name, theirs.get(name))
                if here != there:
                    raise StorageError(
                        f"the worker {address} has {name.replace('_', '-')} {there}, and this process has "
                        f"{here}: install the same release on all machines"
                    )

    def _infos(self, addresses: list[str], paths: tuple[AnyPath, ...]) -> dict[str, _WorkerInfo]:
        """What each worker reports of itself and of some paths."""
        names = [os.fspath(path.absolute()) for path in paths]
        deadline = time.monotonic() + ANSWER_SECONDS
        with scheduler_errors(self.where):
            futures = {
                address: self.client.submit(_worker_info, names, workers=[address]) for address in addresses
            }
            infos = {}
            for address, future in futures.items():
                try:
                    infos[address] = future.result(timeout=max(deadline - time.monotonic(), 0.1))
                except TimeoutError:
                    raise StorageError(
                        f"the worker {address} has not answered for {ANSWER_SECONDS:.0f} s: it is stopped, "
                        "or busy with other work; end it, or wait, and run again"
                    ) from None
            return infos


def _release(name: str, version: Any) -> str:
    """The release in words; of Python the first two numbers, which its compiled code depends on."""
    if version is None:
        return "(not installed)"
    return ".".join(str(version).split(".")[:2]) if name == "python" else str(version)


def _check_fingerprints(infos: dict[str, _WorkerInfo], paths: tuple[AnyPath, ...]) -> None:
    here = [_fingerprint(os.fspath(path.absolute())) for path in paths]
    for address, info in infos.items():
        for path, own, seen in zip(paths, here, info.fingerprints, strict=True):
            if seen != own:
                what = "does not see" if seen is None else "sees something else at"
                raise StorageError(
                    f"the worker {address} {what} {path}: put it on a file system that all machines share, "
                    "under the same path"
                )


def _worker_info(paths: list[str]) -> _WorkerInfo:
    """Runs in a worker."""
    from ooc_svm.cluster.dask_calls import worker_memory_limit

    fingerprints = [_fingerprint(path) for path in paths]
    return _WorkerInfo(
        socket.gethostname(), os.getpid(), available_memory(), worker_memory_limit(), fingerprints
    )


def _fingerprint(path: str) -> str | None:
    """Tells a file or store from another one of the same path; None if there is none."""
    try:
        if (address := address_of(path)) is not None:
            return object_fingerprint(address)
        if not os.path.isdir(path):
            status = os.stat(path)
            return f"{status.st_size} bytes, changed at {status.st_mtime_ns}"
        metadata = Path(path, "zarr.json")  # of a store: with the hash of its manifest
        if not metadata.is_file():
            return "a folder"
        with open_to_read(metadata) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, IrregularFileError):
        return None


@contextmanager
def scheduler_errors(where: str) -> Iterator[None]:
    """Turn what dask raises without a scheduler into one sentence."""
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
    visible: AnyPath | None = None,
    preload: str | None = None,
) -> Iterator[Cluster]:
    """Connect to a cluster for as long as the context lasts; dask's logs and warnings are suppressed.

    ``scheduler``: ``tls://host:port``, with the certificates that dask's configuration names
        (``distributed.comm.tls``); any other protocol needs `insecure`. None: a cluster of processes on this
        machine, which listens on 127.0.0.1 only and ends with the context.
    ``workers``: processes of a cluster on this machine.
    ``threads_per_worker``: tasks that each of them runs at once.
    ``memory``: bytes that each worker may use; None: half of its share of what its machine allows.
    ``insecure``: accept a connection without encryption and authentication.
    ``visible``: a file or folder that all workers must see as this process does.
    ``preload``: a module that the processes of a cluster on this machine import as they start.
    Yields Cluster: with one worker at least.
    UsageError for an address without encryption where `insecure` is False, or `insecure` without an address.
    StorageError for no scheduler at the address, no workers, a worker with other releases, or one that does
        not see what it must.
    MemoryBudgetError if `memory` is more than a worker may use.
    """
    if scheduler is None:
        if insecure:
            raise UsageError(
                f"{parameter('insecure_cluster')} is for a scheduler's address: add "
                f"{parameter('scheduler')}, or leave it out"
            )
    elif not scheduler.startswith("tls://") and not insecure:
        raise UsageError(
            f"the scheduler {scheduler!r:.80} is not at a tls:// address: use TLS, or allow everybody on the "
            "network to read the data and to run programs as you with "
            f"{parameter('insecure_cluster', True)}"
        )
    with ExitStack() as stack:
        if scheduler is None:
            processes = stack.enter_context(local_workers(workers, threads_per_worker, preload))
        # Not before: the worker processes load their modules while this one loads dask.
        from ooc_svm.cluster import dask_calls

        stack.enter_context(dask_calls.quiet())
        if scheduler is None:
            client = stack.enter_context(dask_calls.local_scheduler(LOST_WORKER_SECONDS))
            stack.enter_context(closing(processes))  # before the scheduler
            processes.join(client.address)
            where, own_host = "the local cluster", socket.gethostname()
            with scheduler_errors(where):
                _wait_for(client, processes)
        else:
            client = stack.enter_context(_remote_scheduler(scheduler))
            where, own_host = f"the scheduler at {scheduler}", None
        cluster = Cluster(client, where, memory=memory, visible=visible, own_host=own_host)
        cluster.admit_all()
        yield cluster


def _wait_for(client: DaskClient, workers: LocalWorkers) -> None:
    """Return when all processes have joined."""
    deadline = time.monotonic() + START_SECONDS
    while len(client.threads(ANSWER_SECONDS)) < len(workers.processes):
        workers.check_running()
        if time.monotonic() > deadline:
            raise StorageError(
                f"the worker processes of the local cluster did not start within {START_SECONDS:.0f} s: "
                f"see what keeps this machine busy, or use {parameter('engine', 'local')}"
            )
        time.sleep(0.02)


@contextmanager
def _remote_scheduler(address: str) -> Iterator[DaskClient]:
    """A client of the scheduler at an address, once it has a worker or should have one."""
    from ooc_svm.cluster import dask_calls

    with ExitStack() as stack:
        try:
            client = stack.enter_context(dask_calls.remote_scheduler(address, CONNECT_SECONDS))
        except (OSError, TimeoutError) as error:
            raise StorageError(
                f"there is no scheduler at {address!r:.80}, or it cannot be reached from here: see whether "
                "it runs, and check address and certificates"
            ) from error
        except (TypeError, ValueError, RuntimeError) as error:
            raise StorageError(
                f"the scheduler {address!r:.80} cannot be talked to ({str(error)!r:.80}): check the address, "
                "and for tls:// the certificates in dask's configuration"
            ) from error
        deadline = time.monotonic() + JOIN_SECONDS
        with scheduler_errors(f"the scheduler at {address}"):
            while not client.threads(ANSWER_SECONDS) and time.monotonic() < deadline:
                time.sleep(0.1)
        yield client

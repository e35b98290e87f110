"""Independent tasks for the workers of a cluster, each of which may be run more than once."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ooc_svm.cluster.connection import Cluster, scheduler_errors
from ooc_svm.errors import OocSvmError, StorageError, parameter_spelling, spell_parameters

# Calls submitted for each thread of the workers, so that none waits for this process.
_CALLS_PER_THREAD = 2
_POLL_SECONDS = 1.0
_LOST_SECONDS = 10.0  # Time without any worker after which all count as lost


def run_all(
    cluster: Cluster, function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]
) -> Iterator[tuple[int, Any]]:
    """Call a function on the workers with each of many tuples of arguments.

    Some are submitted ahead of time, never all of them. The tasks of a lost worker go to others, so the
    function may be called more than once for a task.

    ``function``: importable by the workers.
    Yields (int, object): number of a task and its result, in the order of completion.
    StorageError if the scheduler is lost, or all workers are, or several on the same task.
    OocSvmError, as raised by the function.
    """
    calls = _Calls(cluster, function)
    coming = enumerate(tasks)
    try:
        while True:
            for number, arguments in itertools.islice(coming, max(calls.room(), 0)):
                calls.add(number, arguments)
            if not calls.waiting:
                return
            yield from calls.results()
    finally:
        calls.cancel()


@dataclass(frozen=True)
class _Raised:
    """An `OocSvmError` as it is sent back; some exceptions cannot be pickled."""

    kind: type[OocSvmError]
    message: str


def _call(
    spelling: Mapping[str, str] | None, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> Any:
    """What the function returns or raises; runs in a worker."""
    spell_parameters(spelling)
    try:
        return function(*arguments)
    except OocSvmError as error:
        return _Raised(type(error), str(error))


class _Calls:
    """Calls of a function that are under way; those of lost workers are made again."""

    def __init__(self, cluster: Cluster, function: Callable[..., Any]) -> None:
        self._cluster = cluster
        self._client = cluster.client
        self._function = function
        self._threads: dict[str, int] = {}
        self._polled = self._seen = -math.inf
        # Number, arguments, and the workers that may run it.
        self.waiting: dict[Any, tuple[int, tuple[Any, ...], frozenset[str]]] = {}

    def room(self) -> int:
        """How many more calls keep all threads busy."""
        self._poll()
        return _CALLS_PER_THREAD * sum(self._threads.values()) - len(self.waiting)

    def add(self, number: int, arguments: tuple[Any, ...]) -> None:
        """Make a call."""
        workers = frozenset(self._threads)
        with scheduler_errors(self._cluster.where):
            call = (_call, parameter_spelling(), self._function, arguments)
            future = self._client.submit(*call, workers=sorted(workers))
        self.waiting[future] = (number, arguments, workers)

    def results(self) -> Iterator[tuple[int, Any]]:
        """Wait a moment, or for one result; yield all results that are there."""
        from ooc_svm.cluster.dask_calls import KilledWorker

        self._client.wait_for_one(list(self.waiting), _POLL_SECONDS)
        for future in [future for future in self.waiting if future.done()]:
            number, _, _ = self.waiting.pop(future)
            try:
                result = future.result()
            except KilledWorker as error:
                raise StorageError(
                    f"several workers of {self._cluster.where} were lost, one after another, with the same "
                    "task: see why they ended; memory is the usual reason"
                ) from error
            except CancelledError as error:
                raise StorageError(
                    f"the connection to {self._cluster.where} was lost: see whether it runs, then run again"
                ) from error
            if isinstance(result, _Raised):
                raise result.kind(result.message)
            yield number, result

    def _poll(self) -> None:
        """See now and then which workers there are; calls that only lost ones may run are made again."""
        now = time.monotonic()
        if now - self._polled < _POLL_SECONDS:
            return
        self._polled = now
        self._threads = {worker.address: worker.threads for worker in self._cluster.workers()}
        if self._threads:
            self._seen = now
        elif now - self._seen > _LOST_SECONDS:
            raise StorageError(
                f"all workers of {self._cluster.where} are lost: see why they ended, then run again"
            )
        else:
            return
        for future, (number, arguments, workers) in list(self.waiting.items()):
            if not future.done() and workers.isdisjoint(self._threads):
                del self.waiting[future]
                future.cancel()
                self.add(number, arguments)

    def cancel(self) -> None:
        """Cancel all calls."""
        with suppress(Exception):  # the connection may be lost
            self._client.cancel(list(self.waiting))

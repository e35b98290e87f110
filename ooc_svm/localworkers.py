"""Worker processes of a local dask cluster: started by this process, ended with it however it ends."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from ooc_svm.errors import StorageError

_STOP_SECONDS = 0.5
# Dask's own logs stay below errors, and libraries of arrays need no threads beside ours.
_SETTINGS = {
    "DASK_LOGGING__DISTRIBUTED": "error",
    "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "False",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}

LocalWorker = subprocess.Popen[bytes]


@contextmanager
def local_workers(scheduler: str, count: int, threads: int) -> Iterator[list[LocalWorker]]:
    """Worker processes, all of them gone when the context is left.

    They have no nannies: one that is lost is not started again. A worker leaves by itself when its connection
    to the scheduler breaks, so that none outlives this process, in which the scheduler is, even if it is
    killed.

    Parameters
    ----------
    scheduler : str
        Address on this machine.
    count : int
    threads : int
        Tasks that each runs at once.

    Raises
    ------
    StorageError
        A process cannot be started.
    """
    workers: list[LocalWorker] = []
    with ExitStack() as stack:
        stack.callback(_stop, workers)
        for _ in range(count):
            try:
                workers.append(_start(scheduler, threads))
            except OSError as error:
                raise StorageError(
                    f"a worker process of the local cluster cannot be started: {error.strerror}; "
                    "use fewer threads, or --engine local"
                ) from error
        yield workers


def check_running(workers: list[LocalWorker]) -> None:
    """Raise StorageError if one of them has ended."""
    for worker in workers:
        code = worker.poll()
        if code is not None:
            raise StorageError(
                f"a worker process of the local cluster ended with code {code} as it started: "
                "check the installation of distributed, or use --engine local"
            )


def _start(scheduler: str, threads: int) -> LocalWorker:
    # A module run as a program: unlike multiprocessing, this does not run the caller's main module again.
    command = [sys.executable, "-m", "distributed.cli.dask_worker", scheduler]
    command += ["--nthreads", str(threads), "--host", "127.0.0.1", "--memory-limit", "0"]
    # Without a dashboard there still is a server, for which an address has to be given.
    command += ["--no-nanny", "--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
    command += ["--death-timeout", "60"]
    paths = os.pathsep.join(path for path in sys.path if path)
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | _SETTINGS | {"PYTHONPATH": paths},
        start_new_session=True,  # a Ctrl-C at the terminal is for this process alone
    )


def _stop(workers: list[LocalWorker]) -> None:
    """Ask all to end, wait a moment, end those that are busy or stopped."""
    for worker in workers:
        worker.terminate()
    deadline = time.monotonic() + _STOP_SECONDS
    for worker in workers:
        with contextlib.suppress(subprocess.TimeoutExpired):
            worker.wait(max(deadline - time.monotonic(), 0))
        worker.kill()
        worker.wait()

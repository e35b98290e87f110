"""Worker processes of a dask cluster on this machine: started by this process, ended with it however it ends.

The modules of a worker take a second to load. So workers are started before this process loads its own, and
receive the scheduler's address on their standard input once there is one.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ooc_svm.errors import StorageError, parameter

_STOP_SECONDS = 0.5
# Dask reads its settings as it is imported. Its own logs stay below errors; libraries of arrays need no
# threads in addition to ours.
_ENVIRONMENT = {
    "DASK_LOGGING__DISTRIBUTED": "error",
    "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "False",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


class LocalWorkers:
    """Worker processes; made by `local_workers`."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, threads: int, preload: str | None) -> None:
        """Start one more; StorageError if the process cannot be started."""
        # A module run as a program: unlike multiprocessing, this does not run the caller's main module again.
        command = [sys.executable, "-m", "ooc_svm.cluster.processes", str(threads)]
        paths = os.pathsep.join(path for path in sys.path if path)
        try:
            process = subprocess.Popen(
                command if preload is None else [*command, preload],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=os.environ | _ENVIRONMENT | {"PYTHONPATH": paths},
                start_new_session=True,  # a Ctrl-C at the terminal is for this process alone
            )
        except OSError as error:
            raise StorageError(
                f"a worker process of the local cluster cannot be started: {error.strerror}; "
                f"use fewer threads, or {parameter('engine', 'local')}"
            ) from error
        self.processes.append(process)

    def join(self, scheduler: str) -> None:
        """Have them join the scheduler at an address on this machine."""
        for process in self.processes:
            assert process.stdin is not None
            with contextlib.suppress(OSError), process.stdin:  # the process may have ended
                process.stdin.write(f"{scheduler}\n".encode())

    def check_running(self) -> None:
        """Raise StorageError if one of them has ended."""
        for process in self.processes:
            code = process.poll()
            if code is not None:
                raise StorageError(
                    f"a worker process of the local cluster ended with code {code} as it started: "
                    f"check the installation of distributed, or use {parameter('engine', 'local')}"
                )

    def close(self) -> None:
        """Terminate all, wait a moment, and kill those that are busy or stopped."""
        for process in self.processes:
            process.terminate()
        deadline = time.monotonic() + _STOP_SECONDS
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(deadline - time.monotonic(), 0))
            process.kill()
            process.wait()
            if process.stdin is not None:
                process.stdin.close()


@contextmanager
def local_workers(count: int, threads: int, preload: str | None = None) -> Iterator[LocalWorkers]:
    """Worker processes that wait for a scheduler, all of them gone when the context is left.

    They have no nannies: one that is lost is not started again. A worker ends by itself when its connection
    to the scheduler breaks. The scheduler is in this process, so no worker outlives it, even if it is killed.

    ``threads``: tasks that each runs at once.
    ``preload``: a module that each imports while it waits.
    StorageError if a process cannot be started.
    """
    workers = LocalWorkers()
    try:
        for _ in range(count):
            workers.start(threads, preload)
        yield workers
    finally:
        workers.close()


def _run_worker(threads: str, *preload: str) -> None:
    """The program of a worker process."""
    # The garbage collector would visit all objects of all libraries again and again.
    gc.disable()
    from ooc_svm.cluster.dask_calls import run_worker

    for module in preload:
        importlib.import_module(module)
    gc.freeze()
    gc.enable()
    scheduler = sys.stdin.readline().strip()
    if not scheduler:  # the process that started this one has ended
        return
    try:
        run_worker(scheduler, int(threads))
    finally:
        gc.freeze()


if __name__ == "__main__":
    _run_worker(*sys.argv[1:])

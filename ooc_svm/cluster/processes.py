"""Worker processes of a local dask cluster: started by this process, ended with it however it ends.

What a worker works with takes a second to load. So it is started before this process loads its own part, and
is told the scheduler's address on its standard input once there is one.
"""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

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


class LocalWorkers:
    """Worker processes; made by `local_workers`.

    Attributes
    ----------
    processes : list of subprocess.Popen
    """

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, threads: int) -> None:
        """Start one more.

        Raises
        ------
        StorageError
            The process cannot be started.
        """
        paths = os.pathsep.join(path for path in sys.path if path)
        try:
            process = subprocess.Popen(
                # A module run as a program: unlike multiprocessing, this does not run the caller's main
                # module again.
                [sys.executable, "-m", "ooc_svm.cluster.processes", str(threads)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=os.environ | _SETTINGS | {"PYTHONPATH": paths},
                start_new_session=True,  # a Ctrl-C at the terminal is for this process alone
            )
        except OSError as error:
            raise StorageError(
                f"a worker process of the local cluster cannot be started: {error.strerror}; "
                "use fewer threads, or --engine local"
            ) from error
        self.processes.append(process)

    def join(self, scheduler: str) -> None:
        """Have them join the scheduler at an address on this machine."""
        for process in self.processes:
            assert process.stdin is not None
            with contextlib.suppress(OSError), process.stdin:  # one that has ended does not listen
                process.stdin.write(f"{scheduler}\n".encode())

    def check_running(self) -> None:
        """Raise StorageError if one of them has ended."""
        for process in self.processes:
            code = process.poll()
            if code is not None:
                raise StorageError(
                    f"a worker process of the local cluster ended with code {code} as it started: "
                    "check the installation of distributed, or use --engine local"
                )

    def close(self) -> None:
        """Ask all to end, wait a moment, end those that are busy or stopped."""
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
def local_workers(count: int, threads: int) -> Iterator[LocalWorkers]:
    """Worker processes that wait for a scheduler, all of them gone when the context is left.

    They have no nannies: one that is lost is not started again. A worker leaves by itself when its connection
    to the scheduler breaks, so that none outlives this process, in which the scheduler is, even if it is
    killed.

    Parameters
    ----------
    count : int
    threads : int
        Tasks that each runs at once.

    Raises
    ------
    StorageError
        A process cannot be started.
    """
    workers = LocalWorkers()
    try:
        for _ in range(count):
            workers.start(threads)
        yield workers
    finally:
        workers.close()


def _work(threads: str) -> None:
    """Be such a process."""
    # The collector would look at all objects of all libraries again and again.
    gc.disable()
    from distributed.cli.dask_worker import main

    import ooc_svm.training.on_cluster  # noqa: F401  (what it will be asked for)

    gc.freeze()
    gc.enable()
    scheduler = sys.stdin.readline().strip()
    if not scheduler:  # whoever started this process is gone
        return
    options = ["--nthreads", threads, "--host", "127.0.0.1", "--memory-limit", "0"]
    # Without a dashboard there still is a server, for which an address has to be given.
    options += ["--no-nanny", "--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
    options += ["--death-timeout", "60"]
    try:
        main([scheduler, *options])
    finally:
        gc.freeze()


if __name__ == "__main__":
    _work(*sys.argv[1:])

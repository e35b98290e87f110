"""Runs in processes forked from one that has imported and compiled everything: a run takes no second.

`ForkServer` is the client. This file is also the script of the server: it reads a job a line, as JSON, and
answers with a line when its process has stopped or ended. The server starts no thread, so that it can fork.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent.parent
sys.path[:0] = [str(TESTS)] * (__name__ == "__main__")

from faults.calls import CallFault, counted, follow, library  # noqa: E402

TIMEOUT = 120.0
"""Seconds after which a run counts as hanging; the machine may be busy."""


@dataclass
class Ended:
    """How a run ended.

    ``code`` is the exit code, minus the signal that killed it, or None if it hung. ``calls`` and ``spoiled``
    count the calls of the fault's kinds, ``of_kind`` those of each kind. ``answer`` is what a function
    returned, ``error`` the type and the message of what it raised.
    """

    code: int | None
    err: str
    calls: int
    spoiled: int
    seconds: float
    peak_bytes: int
    of_kind: dict[str, int] = field(default_factory=dict)
    answer: Any = None
    error: tuple[str, str] | None = None


class ForkServer:
    """A warm process whose forks run commands and functions; a context manager.

    With ``warm`` False it has imported the command line alone, and each fork imports the rest.
    """

    def __init__(self, *, warm: bool = True) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="ooc-svm-faults-")
        self._preloaded = library()
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
        if self._preloaded:
            environment["LD_PRELOAD"] = str(self._preloaded)
        self._process = subprocess.Popen(
            [sys.executable, __file__, "warm" if warm else "cold"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.stdout.close()
        assert self._process.wait(timeout=60) == 0
        self._folder.cleanup()

    def command(self, *arguments: object, **options: Any) -> Ended:
        """Run a command line; see `_run`."""
        return self._run({"argv": [str(each) for each in arguments]}, **options)

    def call(self, function: str, *arguments: Any, **options: Any) -> Ended:
        """Call ``module:function`` with arguments that JSON can hold; see `_run`."""
        return self._run({"function": function, "arguments": arguments}, **options)

    def _run(
        self,
        job: dict[str, Any],
        *,
        fault: CallFault | None = None,
        within: str | Path = "",
        cwd: str | Path = ".",
        out: str | Path = os.devnull,
        stdin: str | Path = os.devnull,
        settings: dict[str, Any] | None = None,
        environment: dict[str, str] | None = None,
        plain: bool = False,
        on_stop: Callable[[int], None] | None = None,
        timeout: float = TIMEOUT,
    ) -> Ended:
        """Run a job with a fault in the calls on the files below the folder ``within``.

        ``settings`` are values of attributes, by "module:attribute", ``environment`` variables. With
        ``plain`` the permissions of files hold for root as well. With ``on_stop`` the fault may stop the
        process (SIGSTOP): the function is then called with its process id, and the process goes on.
        """
        names = {name: os.path.join(self._folder.name, name) for name in ("err", "record", "answer")}
        for name in names.values():
            Path(name).unlink(missing_ok=True)
        plan = "" if fault is None else fault.plan(names["record"], os.fspath(within))
        job |= {"plan": plan, "cwd": os.fspath(cwd), "out": os.fspath(out), "stdin": os.fspath(stdin)}
        job |= {"err": names["err"], "answer": names["answer"], "settings": settings or {}, "plain": plain}
        job |= {"environment": environment or {}}
        begin = time.monotonic()
        self._tell(job)
        pid = self._hear(timeout)["pid"]
        ended: dict[str, Any] = {}
        while "status" not in ended:
            answered = self._hear(begin + timeout - time.monotonic())
            if answered is None:
                os.kill(pid, signal.SIGUSR1)  # which writes where every thread is
                time.sleep(1.0)
                os.killpg(pid, signal.SIGKILL)
                self._hear(60.0)
                ended = {"status": None, "peak": 0}
            elif "stopped" in answered:
                if on_stop is not None:
                    on_stop(pid)
                os.kill(pid, signal.SIGCONT)
                self._tell({})
            else:
                ended = answered
        calls, spoiled, of_kind = counted(names["record"])
        err = Path(names["err"]).read_text(errors="surrogateescape")
        answer = Path(names["answer"])
        return Ended(
            code=ended["status"],
            err=err,
            calls=calls,
            spoiled=spoiled,
            of_kind=of_kind,
            seconds=time.monotonic() - begin,
            peak_bytes=1024 * ended["peak"],
            **(json.loads(answer.read_text()) if answer.exists() else {}),
        )

    def _tell(self, what: dict[str, Any]) -> None:
        self._process.stdin.write(f"{json.dumps(what)}\n")
        self._process.stdin.flush()

    def _hear(self, seconds: float) -> dict[str, Any] | None:
        ready, _, _ = select.select([self._process.stdout], [], [], max(seconds, 0.0))
        return json.loads(self._process.stdout.readline()) if ready else None


# The server


def _warm() -> None:
    """Import and compile what the runs need."""
    import numpy as np
    from helpers.store_data import random_rows

    import ooc_svm.cli.app
    import ooc_svm.cli.progress
    import ooc_svm.cluster.connection
    import ooc_svm.conversion.convert
    import ooc_svm.conversion.reorder
    import ooc_svm.evaluation.evaluate
    import ooc_svm.model.export
    import ooc_svm.prediction.predict
    import ooc_svm.training.on_cluster
    import ooc_svm.training.plan
    import ooc_svm.training.train  # noqa: F401
    from ooc_svm.options import TrainOptions
    from ooc_svm.store.blocks import BlockCutter
    from ooc_svm.store.validate import check_rows
    from ooc_svm.training.warmup import warm_up

    for solver in ("ocas", "cutting-plane", "streamed-smo"):
        warm_up(TrainOptions(solver=solver), "float64", True, lambda message: None)
    matrix, _ = random_rows(2, n_rows=6)
    pointers = matrix.indptr.astype(np.int64)
    check_rows(pointers, matrix.indices, matrix.data, 20)
    BlockCutter(64, 2, 6).add(pointers[:-1], int(pointers[-1]))
    with tempfile.TemporaryDirectory() as folder:
        from ooc_svm.text.reader import TextRows

        text = Path(folder, "a.svm")
        text.write_text("1 1:0.5 # a\nbad line\n-1 qid:1 2:1\n")
        list(TextRows(str(text), bad_lines="skip"))


def _become(job: dict[str, Any]) -> None:
    """Turn the fork into the process of a job."""
    import faulthandler

    os.setsid()
    for number, name, flags in (
        (0, job["stdin"], os.O_RDONLY),
        (1, job["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        (2, job["err"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    ):
        descriptor = os.open(name, flags, 0o666)
        os.dup2(descriptor, number)
        os.close(descriptor)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    os.chdir(job["cwd"])
    os.environ.update(job["environment"])
    for name, value in job["settings"].items():
        module, attribute = name.split(":")
        setattr(import_module(module), attribute, value)
    if job["plain"]:
        _give_up_root()
    follow(job["plan"])


def _give_up_root() -> None:
    """Let the permissions of files hold for root as well (drop CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH)."""
    if os.geteuid() == 0:
        header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
        libc = ctypes.CDLL(None)
        assert libc.capget(header, sets) == 0
        for place in range(3):  # effective, permitted, inheritable
            sets[place] &= ~0b110
        assert libc.capset(header, sets) == 0


def _do(job: dict[str, Any]) -> None:
    """Do a job and exit."""
    if "argv" in job:
        from ooc_svm.cli import main

        sys.argv = ["ooc-svm", *job["argv"]]
        main()
    module, name = job["function"].split(":")
    try:
        ended = {"answer": getattr(import_module(module), name)(*job["arguments"])}
    except Exception as error:
        traceback.print_exc()
        ended = {"error": [type(error).__name__, str(error)]}
    follow("")
    Path(job["answer"]).write_text(json.dumps(ended))
    sys.exit("error" in ended)


def _leave(code: int) -> None:
    """End as Python does, but leave the objects of all libraries alone: that takes longer than most runs."""
    threading._shutdown()
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(code)


def _say(what: dict[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps(what)}\n")
    sys.stdout.flush()


def _serve() -> None:
    if sys.argv[1] == "warm":
        _warm()
    else:
        import ooc_svm.cli.app  # noqa: F401
    gc.freeze()  # a fork that collects garbage would copy all of it
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if not pid:
            _become(job)
            try:
                _do(job)
            except SystemExit as end:
                _leave(end.code)
        _say({"pid": pid})
        while True:
            _, status, used = os.wait4(pid, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                break
            _say({"stopped": pid})
            sys.stdin.readline()
        _say({"status": os.waitstatus_to_exitcode(status), "peak": used.ru_maxrss})


if __name__ == "__main__":
    _serve()

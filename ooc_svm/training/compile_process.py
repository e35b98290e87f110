"""Compiling in a process of its own: what it takes is given back, and a run has its memory for the data.

A process that compiles keeps 100 to 250 MB for it; one that loads what was compiled needs next to nothing.
Here the other process compiles a function and puts it into the cache, and this one loads it from there. Where
that fails, this one compiles, as it does by itself.
"""

from __future__ import annotations

import importlib
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, reduce
from typing import IO, Any

from ooc_svm.ops import compile_events

# Seconds without a request after which the process ends: the functions of a run are compiled one soon after
# another, and then the data is to have the memory.
IDLE_SECONDS = 2.0

_SERVE = f"import sys; sys.path[:] = sys.argv[1:]; from {__name__} import serve; serve()"
_LENGTH_BYTES = 8  # Of the length of a request, which comes before it
_DONE, _FAILED = b"+", b"-"


class _Compiler:
    """The other process, which is started when it is first asked."""

    def __init__(self) -> None:
        self.users = 0  # Runs that want functions compiled there
        self.process: subprocess.Popen[bytes] | None = None
        self._fails = False  # Whether it could not do what it was asked for, and is not asked again
        self._lock = threading.Lock()

    def join(self) -> None:
        """One more run wants it."""
        with self._lock:
            if not self.users:
                compile_events.helpers.append(compile_apart)
            self._fails = False
            self.users += 1

    def leave(self) -> None:
        """One wants it no longer; the process ends with the last of them."""
        with self._lock:
            if not self.users:
                return  # It began before a fork.
            self.users -= 1
            if not self.users:
                compile_events.helpers.remove(compile_apart)
                self._end()

    def forget(self) -> None:
        """In a fork of this process: the other one is not its own."""
        if self.process is not None:
            self.process.returncode = 0  # Of another process's child nothing is known.
        self.users, self.process, self._lock = 0, None, threading.Lock()
        if compile_apart in compile_events.helpers:
            compile_events.helpers.remove(compile_apart)

    def compile(self, request: bytes) -> bool:
        """Whether a function could be compiled, and is in the cache."""
        with self._lock:
            if self._fails or not self.users:
                return False
            # The process may have ended since it was last asked.
            answer = self._ask(request) or self._ask(request)
            self._fails = answer != _DONE
            return not self._fails

    def _ask(self, request: bytes) -> bytes:
        """The answer; nothing where there is no such process or it ends."""
        answer = b""
        try:
            if self.process is None:
                self.process = _start()
            to, back = self.process.stdin, self.process.stdout
            assert to is not None
            assert back is not None
            to.write(request)
            to.flush()
            answer = back.read(1)
        except OSError:
            pass
        finally:
            # After an exception as well: its answer would be taken for that to the next request.
            if not answer:
                self._end()
        return answer

    def _end(self) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with suppress(OSError):
                pipe.close()
        process.wait()


compiler = _Compiler()
os.register_at_fork(after_in_child=compiler.forget)


@cache
def can_compile_apart() -> bool:
    """Whether this is Python, not a program that has it inside, and what is compiled can be kept."""
    from ooc_svm.ops.compiled import cache_folder

    return os.path.basename(sys.executable or "").startswith("python") and cache_folder() is not None


def _start() -> subprocess.Popen[bytes]:
    """The process; OSError where there can be none."""
    # Ctrl-C at a terminal is meant for this process alone.
    return subprocess.Popen(
        [sys.executable, "-c", _SERVE, *sys.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


@contextmanager
def compiled_apart() -> Iterator[None]:
    """While this lasts functions are compiled in another process."""
    compiler.join()
    try:
        yield
    finally:
        compiler.leave()


def compile_apart(function: Callable[..., Any], signature: Any) -> bool:
    """Let the other process compile a function; whether it is in the cache then."""
    if "<" in function.__qualname__:
        return False  # Made by a call: no other process finds it.
    from numba.core.serialize import dumps

    request = dumps((function.__module__, function.__qualname__, signature))  # type: ignore[no-untyped-call]
    compile_events.report(True)
    try:
        return compiler.compile(len(request).to_bytes(_LENGTH_BYTES, "little") + request)
    finally:
        compile_events.report(False)


def serve(idle_seconds: float = IDLE_SECONDS) -> None:
    """Compile what is asked for on standard input, until that ends or nothing has come for so long."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests = sys.stdin.buffer
    # What else is written to standard output is no answer.
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        while select.select([requests], [], [], idle_seconds)[0]:
            request = _next(requests)
            if request is None:
                return
            answers.write(_DONE if _compiled(request) else _FAILED)
            answers.flush()


def _next(requests: IO[bytes]) -> bytes | None:
    """The next request; None if no more come."""
    n_bytes = int.from_bytes(requests.read(_LENGTH_BYTES), "little")
    request = requests.read(n_bytes)
    return request if n_bytes and len(request) == n_bytes else None


def _compiled(request: bytes) -> bool:
    """Whether the function is compiled and kept; why not is said where it is compiled instead."""
    from numba.core.serialize import loads

    try:
        module, name, signature = loads(request)
        function = reduce(getattr, name.split("."), importlib.import_module(module))
        function.compile(signature)
        # On a full disk it is not.
        return function._cache.load_overload(signature, function.targetctx) is not None
    except Exception:
        return False

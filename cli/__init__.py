"""The command line of the package, ``ooc-svm``.

Importing it imports nothing: signals are handled before the rest is imported, and what fails then is
explained.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

__all__ = ["main"]

PROGRAM = "ooc-svm"


def main() -> NoReturn:
    """Run the command line of this process; the entry point of the script ``ooc-svm``."""
    import atexit
    import gc
    import os

    # Registered first, it is called last.
    atexit.register(_ignore_signals)
    # Importing makes many objects that stay. By default they are looked through 200 times, which takes 0.05
    # seconds more.
    gc.set_threshold(20_000)
    # OpenBLAS starts its threads when NumPy is imported, and they wait busily. None is used: products of
    # matrices are made by one thread, so that their bits do not depend on the number of processors.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        from ooc_svm.system.signals import handle_signals

        with handle_signals(grace=0, last=True):
            from ooc_svm.cli.exit_codes import completed

            code = completed(_run)
    except BaseException as error:
        code = _explained(error)
        if code in (130, 143):
            _end_at_once(code)
    # Otherwise the garbage collector visits every object of all libraries again, for 0.25 seconds.
    gc.freeze()
    sys.exit(code)


def _ignore_signals() -> None:
    """All is done: Python has no handlers while it takes itself down, and a signal would end it by number."""
    import signal

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _end_at_once(code: int) -> NoReturn:
    """End without taking down what a signal has left half made: a compiler's library may not survive it."""
    import contextlib
    import os

    for stream in (sys.stdout, sys.stderr):
        # There may be none, or its reader may be gone.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
    os._exit(code)


def _run() -> object:
    if sys.argv[1:] == ["--version"]:  # Without the libraries of the command line
        print_version()
        return None
    from ooc_svm.cli.app import run

    return run()


def print_version() -> None:
    """Print the name of the program and its release."""
    from importlib.metadata import version

    sys.stdout.write(f"{PROGRAM} {version(PROGRAM)}\n")


def _explained(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt):  # before signals were handled
        sys.stderr.write("ooc-svm: error: interrupted by SIGINT before it began; run it again\n")
        return 130
    try:
        from ooc_svm.cli.exit_codes import explained
    except (OSError, ImportError, SyntaxError, ValueError):  # a file of zeros, before Python 3.11.4
        if sys.stderr is not None:
            sys.stderr.write(
                "ooc-svm: error: its own files cannot be read; check the disk, or install it again\n"
            )
        return 5
    code = explained(error)
    import warnings

    # What the error has cut short, such as a coroutine, may warn when it goes.
    warnings.simplefilter("ignore")
    return code

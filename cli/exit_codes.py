"""The end of a command: exceptions become exit codes and one sentence on standard error."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import typer

from ooc_svm.cli.format import printable
from ooc_svm.errors import OocSvmError, StorageError
from ooc_svm.system import signals

BUG, USAGE, STORAGE, MEMORY = 1, 2, 5, 6
SIGINT_CODE, SIGPIPE_CODE = 130, 141

TRACEBACK_VARIABLE = "OOC_SVM_TRACEBACK"

# The base of the errors of command lines, in the release of Click that Typer uses.
_ParsingError: Any = typer.BadParameter.__base__

_REMEDIES = {
    errno.ENOSPC: "make room on the disk",
    errno.EDQUOT: "make room within your quota",
    errno.EACCES: "check the permissions",
    errno.EPERM: "check the permissions",
    errno.EROFS: "choose a place that can be written",
    errno.ENOENT: "check the path",
    errno.EMFILE: "allow more open files (ulimit -n)",
}


def exit_code(run: Callable[[], object]) -> int:
    """Run a command and turn its end into an exit code: what it returns if that is an int, else 0.

    See the list of exit codes in the documentation; failures are explained on standard error.
    """
    try:
        with signals.handle_signals(grace=0), _warnings_as_lines():
            _check_standard_output()
            code = run()
            sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except BrokenPipeError:
        return reader_gone()
    except SystemExit as request:
        return request.code if isinstance(request.code, int) else BUG
    except BaseException as error:
        return _explain(signals.public_error(error))


def reader_gone() -> int:
    """The exit code of a command whose reader has closed the pipe: that of SIGPIPE, without a message."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still in the buffer
    return SIGPIPE_CODE


def one_line(text: str) -> str:
    """Text on one line, without characters that control a terminal."""
    return printable(" ".join(text.split()))


def complain(kind: str, text: str) -> None:
    """Write ``ooc-svm: error: ...`` or ``ooc-svm: warning: ...`` to standard error."""
    with contextlib.suppress(OSError, ValueError):
        typer.echo(f"ooc-svm: {kind}: {one_line(text)}", err=True)


def _explain(error: BaseException) -> int:
    """Write what went wrong to standard error; return the exit code."""
    if os.environ.get(TRACEBACK_VARIABLE):
        import traceback

        traceback.print_exception(error)
    code, sentence = _verdict(error)
    complain("error", sentence)
    return code


def _verdict(error: BaseException) -> tuple[int, str]:
    if isinstance(error, OocSvmError):
        return error.exit_code, str(error)
    if isinstance(error, _ParsingError):
        return USAGE, _usage_sentence(error)
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return SIGINT_CODE, "interrupted by SIGINT"
    if isinstance(error, MemoryError):
        detail = f" ({error})" if str(error) else ""
        return MEMORY, f"memory ran out{detail}; give a smaller --memory, or use a machine with more"
    if isinstance(error, OSError):
        return STORAGE, _storage_sentence(error)
    detail = f": {error}" if str(error) else ""
    return BUG, (
        f"{type(error).__name__}{detail}; this is a bug; set {TRACEBACK_VARIABLE}=1 to see where it happened"
    )


def _usage_sentence(error: Any) -> str:
    message = error.format_message().rstrip(".")
    command = error.ctx.command_path if error.ctx is not None else "ooc-svm"
    return f"{message[:1].lower()}{message[1:]}; see {command} --help"


def _storage_sentence(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    named = f"{os.fsdecode(error.filename)}: {reason}" if isinstance(error.filename, str | bytes) else reason
    remedy = _REMEDIES.get(error.errno or 0, "check the disk and the connections")
    return f"{named}; {remedy}"


def _check_standard_output() -> None:
    if sys.stdout is None:
        raise StorageError(
            "standard output is closed, so results cannot be written; redirect it to a file or /dev/null"
        )
    if hasattr(sys.stdout, "reconfigure"):  # file names need not be valid text
        sys.stdout.reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Show warnings as a sentence each, without the line of code they come from."""

    def show(message: Warning | str, *args: Any, **kwargs: Any) -> None:
        complain("warning", str(message))

    before = warnings.showwarning
    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = before

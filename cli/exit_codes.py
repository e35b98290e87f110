"""The end of a command: exceptions become exit codes and one sentence on standard error."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from ooc_svm.cli.failed_imports import is_damaged, module_not_loaded, root_cause, variables_of
from ooc_svm.cli.format import printable
from ooc_svm.errors import OocSvmError, StorageError
from ooc_svm.system import signals

BUG, USAGE, STORAGE, MEMORY = 1, 2, 5, 6
SIGINT_CODE, SIGPIPE_CODE = 130, 141

TRACEBACK_VARIABLE = "OOC_SVM_TRACEBACK"
_TRACEBACK = "Traceback (most recent call last)"  # Numba has one in its warnings

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
    """Run a command and turn its end into an exit code; failures are explained on standard error."""
    try:
        with signals.handle_signals(grace=0):
            return completed(run)
    except BaseException as error:
        return explained(error)


def completed(run: Callable[[], object]) -> int:
    """The exit code of a command that comes to its end: what it returns if that is an int, else 0."""
    with _warnings_as_lines():
        _check_standard_files()
        code = run()
        sys.stdout.flush()
    return code if isinstance(code, int) else 0


def explained(error: BaseException) -> int:
    """The exit code of a command that raised this; see the list of exit codes in the documentation.

    A failure is explained on standard error.
    """
    error = signals.public_error(error)
    if isinstance(error, BrokenPipeError):
        return reader_gone()
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else BUG
    return _explain(error)


def reader_gone() -> int:
    """The exit code of a command whose reader has closed the pipe: that of SIGPIPE, without a message."""
    _discard_output()
    return SIGPIPE_CODE


def _discard_output() -> None:
    """Send what is still in the buffer of standard output nowhere, at the end of the process too."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def one_line(text: str) -> str:
    """Text on one line, without characters that control a terminal."""
    return printable(" ".join(text.split()))


def complain(kind: str, text: str) -> None:
    """Write ``ooc-svm: error: ...`` or ``ooc-svm: warning: ...`` to standard error."""
    if sys.stderr is None:
        return
    with contextlib.suppress(OSError, ValueError):
        sentence = one_line(text.partition(_TRACEBACK)[0]).rstrip(" :")
        sys.stderr.write(f"ooc-svm: {kind}: {sentence}\n")
        sys.stderr.flush()


def _explain(error: BaseException) -> int:
    """Write what went wrong to standard error; return the exit code."""
    if os.environ.get(TRACEBACK_VARIABLE):
        import traceback

        traceback.print_exception(error)
    code, sentence = _verdict(error)
    complain("error", sentence)
    try:
        sys.stdout.flush()
    except (OSError, ValueError, AttributeError):  # it fails again, or there is none
        _discard_output()
    return code


def _verdict(error: BaseException) -> tuple[int, str]:
    if isinstance(error, OocSvmError):
        return error.exit_code, str(error)
    # Where Typer is not loaded, nothing of it was raised.
    typer: Any = sys.modules.get("typer")
    if typer is not None and isinstance(error, typer.BadParameter.__base__):
        return USAGE, _usage_sentence(error)
    if isinstance(error, KeyboardInterrupt) or (typer is not None and isinstance(error, typer.Abort)):
        return SIGINT_CODE, "interrupted by SIGINT"
    if isinstance(error, MemoryError):
        detail = f" ({error})" if str(error) else ""
        return MEMORY, f"memory ran out{detail}; give a smaller --memory, or use a machine with more"
    module = module_not_loaded(error)
    if module is not None:
        return _import_verdict(error, module)
    if isinstance(error, OSError):
        return STORAGE, _storage_sentence(error)
    detail = f": {error}" if str(error) else ""
    return BUG, (
        f"{type(error).__name__}{detail}; this is a bug; set {TRACEBACK_VARIABLE}=1 to see where it happened"
    )


def _import_verdict(error: BaseException, module: str) -> tuple[int, str]:
    """Of a module that cannot be loaded: its files are damaged, or a variable is wrong."""
    error = root_cause(error)
    if is_damaged(error):
        reason = getattr(error, "strerror", None) or str(error)
        remedy = _REMEDIES.get(getattr(error, "errno", 0), "check the disk, or install ooc-svm again")
        return STORAGE, f"{module} cannot be loaded: {reason}; {remedy}"
    reason = f"{type(error).__name__}: {error}"
    variables = variables_of(module)
    if variables:
        named = ", ".join(variables)
        return USAGE, f"{module} cannot be loaded with {named} in the environment ({reason}); unset it"
    return STORAGE, f"{module} cannot be loaded ({reason}); check the environment, or install ooc-svm again"


def _usage_sentence(error: Any) -> str:
    message = error.format_message().rstrip(".")
    command = error.ctx.command_path if error.ctx is not None else "ooc-svm"
    return f"{message[:1].lower()}{message[1:]}; see {command} --help"


def _storage_sentence(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    named = f"{os.fsdecode(error.filename)}: {reason}" if isinstance(error.filename, str | bytes) else reason
    remedy = _REMEDIES.get(error.errno or 0, "check the disk and the connections")
    return f"{named}; {remedy}"


def _check_standard_files() -> None:
    """Refuse a closed standard output. No file opened later may take the place of a closed standard file."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the smallest descriptor that is free
    _prepare_standard_output()


def _prepare_standard_output() -> None:
    if sys.stdout is None:
        raise StorageError(
            "standard output is closed, so results cannot be written; redirect it to a file or /dev/null"
        )
    is_own = sys.stdout is sys.__stdout__  # and not one of a test
    if is_own:
        raw = io.BufferedWriter(_StandardOutput(sys.stdout.fileno(), "wb", closefd=False))
        sys.stdout = io.TextIOWrapper(raw, sys.stdout.encoding, line_buffering=sys.stdout.isatty())
    if hasattr(sys.stdout, "reconfigure"):  # file names need not be valid text
        sys.stdout.reconfigure(errors="backslashreplace")


class _StandardOutput(io.FileIO):
    """Standard output, named in the errors of writing it."""

    def write(self, content: Any) -> int:
        try:
            return super().write(content)
        except OSError as error:
            error.filename = "standard output"
            raise


@contextlib.contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Show warnings as a sentence each, without the line of code they come from.

    They are not errors, even where PYTHONWARNINGS says so: they are those of libraries.
    """

    def show(message: Warning | str, *args: Any, **kwargs: Any) -> None:
        complain("warning", str(message))

    with warnings.catch_warnings():
        if any(option.startswith("error") for option in sys.warnoptions):
            warnings.resetwarnings()
            warnings.simplefilter("ignore", DeprecationWarning)
        warnings.showwarning = show
        yield

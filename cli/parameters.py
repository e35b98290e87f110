"""Parameters that several commands share, and how their values are read."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from ooc_svm.errors import UsageError
from ooc_svm.system.memory import parse_size

_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)


def choice(*names: str, help: str) -> Any:
    """A Typer option that takes one of a few names."""

    def check(value: str | None) -> str | None:
        if value is not None and value not in names:
            raise typer.BadParameter(f"{value[:80]!r} is not one of {', '.join(names)}")
        return value

    return typer.Option(metavar="|".join(names), callback=check, help=help)


def _check_size(value: str | None) -> str | None:
    if value is not None:
        try:
            parse_size(value)
        except UsageError as error:
            raise typer.BadParameter(str(error)) from error
    return value


def parse_number(text: str, option: str) -> float:
    """A decimal number from the command line.

    Raises
    ------
    UsageError
        It is none: no hexadecimal, no ``nan``, no ``1_000``.
    """
    if _NUMBER.fullmatch(text) is None:
        raise UsageError(f"{option}: {text[:80]!r} is not a number")
    return float(text)


def parse_numbers(text: str, option: str) -> tuple[float, ...]:
    """Decimal numbers with commas between them; see `parse_number`."""
    return tuple(parse_number(part.strip(), option) for part in text.split(","))


Label = Annotated[
    str | None,
    typer.Option("--label", metavar="COLUMN", help="Column of an AnnData store (obs) that holds the labels."),
]
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="SIZE",
        callback=_check_size,
        help="Memory this process may use, for example 600MB or 4GiB. By default half of what is there.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option("--threads", metavar="N", min=1, help="Threads; by default one for each processor."),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="ADDRESS",
        help="The dask scheduler of --engine dask, tls://HOST:PORT; by default processes of this machine.",
    ),
]
InsecureCluster = Annotated[
    bool,
    typer.Option("--insecure-cluster", help="Take a scheduler without TLS, to which anybody may talk."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress on standard error.")]
SelectedC = Annotated[
    float | None,
    typer.Option("--C", metavar="FLOAT", help="Which model, of one trained with several values of C."),
]

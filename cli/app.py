"""All commands, and the entry point.

NumPy, Numba and Zarr are not imported here: a command imports what it calls when it runs.
"""

from __future__ import annotations

import gc
import sys
from functools import partial
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from ooc_svm.cli.convert import ConvertCommand, convert
from ooc_svm.cli.exit_codes import exit_code, reader_gone
from ooc_svm.cli.export import export
from ooc_svm.cli.info import info, verify
from ooc_svm.cli.predict import EvaluateCommand, evaluate, predict
from ooc_svm.cli.train import plan, train

PROGRAM = "ooc-svm"


class CommandLine(TyperGroup):
    """The group of the commands; the process always ends with a documented exit code."""

    def main(self, *args: Any, **options: Any) -> NoReturn:
        """Run a command line and exit."""
        options["standalone_mode"] = False
        sys.exit(exit_code(partial(super().main, *args, **options)))

    def invoke(self, ctx: Any) -> Any:
        """Run the command; a closed pipe is handled here, before Typer handles it in its own way."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise typer.Exit(reader_gone()) from error


app = typer.Typer(
    name=PROGRAM,
    cls=CommandLine,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"{PROGRAM} {version(PROGRAM)}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Train linear support vector machines on sparse data that need not fit in memory.

    Text is converted once into a store; training streams the store and ends with a certified gap.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)


app.command(cls=ConvertCommand)(convert)
app.command()(info)
app.command()(verify)
app.command()(train)
app.command()(predict)
app.command(cls=EvaluateCommand)(evaluate)
app.command()(export)
app.command()(plan)


def main() -> NoReturn:
    """Run the command line of this process; the entry point of the script ``ooc-svm``."""
    try:
        app(prog_name=PROGRAM)
    finally:
        # Otherwise the garbage collector visits every object of all libraries again, for 0.25 seconds.
        gc.freeze()
    raise AssertionError("the command line exits by itself")

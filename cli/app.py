"""All commands.

NumPy, Numba and Zarr are not imported here: a command imports what it calls when it runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ooc_svm.cli.compiling import compile_notice, warmup
from ooc_svm.cli.convert import ConvertCommand, convert
from ooc_svm.cli.exit_codes import exit_code, reader_gone
from ooc_svm.cli.export import export
from ooc_svm.cli.habits import PredictsWithHabits, TuneCommand, WithHabits
from ooc_svm.cli.help import Command
from ooc_svm.cli.info import info, verify
from ooc_svm.cli.predict import EvaluateCommand, evaluate, predict
from ooc_svm.cli.runs import report
from ooc_svm.cli.train import plan, train
from ooc_svm.cli.tune import tune
from ooc_svm.errors import spell_parameters

PROGRAM = "ooc-svm"
# Commands whose progress says that they compile.
_TELL_THEMSELVES = ("train", "tune", "warmup")


class CommandLine(TyperGroup):
    """The group of the commands; called by itself it ends the process with a documented exit code."""

    def main(self, *args: Any, standalone_mode: bool = True, **options: Any) -> Any:
        """Run a command line and exit; without the standalone mode, return or raise as the command does."""
        options["standalone_mode"] = False
        run = partial(super().main, *args, **options)
        if not standalone_mode:
            return run()
        spell_parameters({})
        try:
            sys.exit(exit_code(run))
        finally:
            spell_parameters(None)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; from here on messages write its parameters as it does."""
        found = super().resolve_command(ctx, args)
        if found[1] is not None:
            spell_parameters({each.name: _written(each) for each in found[1].params})
            ctx.with_resource(compile_notice(found[0] in _TELL_THEMSELVES or "--quiet" in args))
        return found

    # A closed pipe is handled here, before Typer handles it in its own way.

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Parse a command line, which may print help or the version."""
        with _pipe_closed():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with _pipe_closed():
            return super().invoke(ctx)


@contextmanager
def _pipe_closed() -> Iterator[None]:
    """End the command with the code for a reader that has gone away."""
    try:
        yield
    except BrokenPipeError as error:
        raise typer.Exit(reader_gone()) from error


def _written(parameter: Any) -> str:
    """How a command line writes a parameter of a command."""
    text: str = parameter.metavar if parameter.param_type_name == "argument" else parameter.opts[0]
    return text


app = typer.Typer(
    name=PROGRAM,
    cls=CommandLine,
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


def _add(command: Callable[..., None], example: str, cls: type[Command] = Command) -> None:
    app.command(cls=cls, epilog=f"{PROGRAM} {command.__name__} {example}")(command)


_add(convert, "train.svm.gz -o train.zarr --shuffle", ConvertCommand)
_add(info, "train.zarr")
_add(verify, "train.zarr")
_add(train, "train.zarr -o news.model --C 0.1,1 --memory 4GB", WithHabits)
_add(tune, "train.zarr -o news.model --C 0.01,0.1,1 --folds 5 --metric auc", TuneCommand)
_add(predict, "news.model test.svm -o labels.txt", PredictsWithHabits)
_add(evaluate, "news.model test.svm --metric accuracy --metric auc", EvaluateCommand)
_add(export, "news.model -o news.liblinear --to liblinear")
_add(plan, "train.zarr --C 0.1,1 --memory 4GB", WithHabits)
_add(report, "first.json second.json -o gaps.svg")
_add(warmup, "--problem svc")


def run() -> object:
    """Run the command line of this process; raises what its command raises."""
    return app(prog_name=PROGRAM, standalone_mode=False)

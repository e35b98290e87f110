"""All commands.

A command is imported when its name is typed, or when all are listed, and imports what it calls when it runs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from ooc_svm.catalog import load
from ooc_svm.cli import PROGRAM, print_version
from ooc_svm.cli.compiling import compile_notice
from ooc_svm.cli.exit_codes import exit_code, reader_gone
from ooc_svm.cli.help import keep_text
from ooc_svm.errors import spell_parameters

# Commands whose progress says that they compile.
_TELL_THEMSELVES = ("train", "tune", "warmup")


class _Home(NamedTuple):
    """Where a command is in this package, in the form of `load`; an example; the class that parses it."""

    function: str
    example: str
    parser: str = "help:Command"


_HOMES = {
    "convert": _Home(
        "convert:convert", "train.svm.gz -o train.zarr --shuffle", parser="convert:ConvertCommand"
    ),
    "info": _Home("info:info", "train.zarr"),
    "verify": _Home("info:verify", "train.zarr"),
    "train": _Home(
        "train:train", "train.zarr -o news.model --C 0.1,1 --memory 4GB", parser="habits:WithHabits"
    ),
    "tune": _Home(
        "tune:tune",
        "train.zarr -o news.model --C 0.01,0.1,1 --folds 5 --metric auc",
        parser="habits:TuneCommand",
    ),
    "predict": _Home(
        "predict:predict", "news.model test.svm -o labels.txt", parser="habits:PredictsWithHabits"
    ),
    "evaluate": _Home(
        "predict:evaluate",
        "news.model test.svm --metric accuracy --metric auc",
        parser="predict:EvaluateCommand",
    ),
    "export": _Home("export:export", "news.model -o news.liblinear --to liblinear"),
    "plan": _Home("train:plan", "train.zarr --C 0.1,1 --memory 4GB", parser="habits:WithHabits"),
    "report": _Home("runs:report", "first.json second.json -o gaps.svg"),
    "warmup": _Home("warmup:warmup", "--problem svc"),
}


class _Commands(Mapping[str, Any]):
    """The commands of Typer by their names; each is made when it is first asked for."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            home = _HOMES[name]
            function, parser = (load(f"ooc_svm.cli.{place}") for place in (home.function, home.parser))
            alone = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
            alone.command(name, cls=parser, epilog=f"{PROGRAM} {name} {home.example}")(function)
            self._made[name] = typer.main.get_command(alone)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_HOMES)

    def __len__(self) -> int:
        return len(_HOMES)


class CommandLine(TyperGroup):
    """The group of the commands; called by itself it ends the process with a documented exit code."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options | {"commands": _Commands()})

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

    def get_params(self, ctx: Any) -> list[Any]:
        """The options before the name of the command."""
        return [keep_text(each, absent_only=True) for each in super().get_params(ctx)]

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
        print_version()
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Train support vector machines, linear or with kernels, on sparse data that need not fit in memory.

    Text is converted once into a store; training streams the store and ends with a certified gap.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)


def run() -> object:
    """Run the command line of this process; raises what its command raises."""
    return app(prog_name=PROGRAM, standalone_mode=False)

"""A command: its help has options in groups and an example at the end; its values stay as they are typed."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

from ooc_svm.errors import UsageError

OTHER = "Options"  # Heading of the options that belong to no group


class Command(TyperCommand):
    """A command whose options are listed by the group that each names, and whose epilog is an example.

    Its values are text, which it leaves as it is typed, or flags.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        """The arguments and options, ``--help`` as well."""
        return [keep_text(each) for each in super().get_params(ctx)]

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Parse; `UsageError` for an option of several values that is given twice: one would be lost.

        Of other options the last one counts, so that it stands in for one of a script.
        """
        # A line that is completed may still be wrong.
        given = [] if ctx.resilient_parsing else self.make_parser(ctx).parse_args(list(args))[2]
        for each in given:
            has_several = "," in (each.metavar or "") and not each.multiple
            if has_several and (times := given.count(each)) > 1:
                name = max(each.opts, key=len)
                raise UsageError(f"{name} is given {times} times; give it once, its values by commas")
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What follows the name of the command, with the options that are needed."""
        needed = [each for each in self.get_params(ctx) if each.required and each.param_type_name == "option"]
        written = [f"{min(each.opts, key=len)} {each.metavar}" for each in needed]
        return [*super().collect_usage_pieces(ctx), *written]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, and the options group by group, in the order in which the groups come."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], OTHER: []}
        for each in self.get_params(ctx):
            record = each.get_help_record(ctx)
            if record is not None:
                groups.setdefault(group_of(each), []).append(record)
        for heading, records in groups.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the example."""
        if self.epilog:
            with formatter.section("Example"):
                formatter.write(f"{'':{formatter.current_indent}}{self.epilog}\n")


def keep_text(parameter: Any, *, absent_only: bool = False) -> Any:
    """Let a parameter give text to its callback as it was typed; with `absent_only`, only what was not typed.

    Typer reads it by Pydantic, whose import takes longer than all else that a command line needs. Returns the
    parameter.
    """
    if "process_value" in vars(parameter):
        return parameter

    def process_value(ctx: Any, value: Any) -> Any:
        missing = parameter.required and parameter.value_is_missing(value)
        if missing or isinstance(value, bool) or (absent_only and value is not None):
            return by_typer(ctx, value)
        if value is None and (parameter.multiple or parameter.nargs == -1):
            value = ()
        return value if parameter.callback is None else parameter.callback(ctx, parameter, value)

    by_typer, parameter.process_value = parameter.process_value, process_value
    return parameter


def group_of(parameter: Any) -> str:
    """The heading under which a parameter is listed."""
    if parameter.param_type_name == "argument":
        return "Arguments"
    return getattr(parameter, "rich_help_panel", None) or OTHER

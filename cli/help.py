"""The help of a command: its options in groups, and an example at the end."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

OTHER = "Options"  # Heading of the options that belong to no group


class Command(TyperCommand):
    """A command whose options are listed by the group that each names, and whose epilog is an example."""

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


def group_of(parameter: Any) -> str:
    """The heading under which a parameter is listed."""
    if parameter.param_type_name == "argument":
        return "Arguments"
    return getattr(parameter, "rich_help_panel", None) or OTHER

"""The pages of the reference that are read off the program: commands, options of training, public names.

``docs/conf.py`` writes them when the documentation is built; they are not kept in the repository.
"""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path
from typing import Any

import typer
from numpydoc.docscrape import ClassDoc

import ooc_svm
from ooc_svm.cli.app import app
from ooc_svm.cli.help import OTHER, group_of
from ooc_svm.options import TrainOptions

FOLDER = Path(__file__).resolve().parents[2] / "docs/reference"


def commands() -> str:
    """Every command with its arguments and options, as ``--help`` has them."""
    group: Any = typer.main.get_command(app)
    lines = ["# Commands", "", inspect.cleandoc(group.help), ""]
    lines += ["This page is made from the program: `ooc-svm COMMAND --help` prints the same.", ""]
    for name, command in group.commands.items():
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        options = [p for p in command.params if p.param_type_name == "option"]
        usage = " ".join(map(_spelled, arguments))
        lines += [f"## {name}", "", inspect.cleandoc(command.help), ""]
        lines += ["```text", f"ooc-svm {name} [OPTIONS] {usage}", "```", ""]
        lines += ["For example:", "", "```text", command.epilog, "```", ""]
        groups = dict.fromkeys(["Arguments", OTHER, *map(group_of, options)])
        for group in groups:
            listed = [each for each in (*arguments, *options) if group_of(each) == group]
            lines += [f"*{group}*", ""] if listed else []
            for parameter in listed:
                lines += [f"`{_spelled(parameter)}`", f": {_explained(parameter)}", ""]
    return "\n".join(lines)


def _spelled(parameter: Any) -> str:
    """An argument's name, or an option's names and its value."""
    if parameter.param_type_name == "argument":
        return f"{parameter.metavar}{'...' if parameter.nargs == -1 else ''}"
    names = ", ".join(sorted(parameter.opts, key=len))
    return names if parameter.is_flag else f"{names} {parameter.metavar or parameter.type.name.upper()}"


def _explained(parameter: Any) -> str:
    text = parameter.help or ""
    if parameter.required:
        return f"{text} Required."
    shown = parameter.default not in (None, False)
    return f"{text} Default: `{parameter.default}`." if shown else text


def options() -> str:
    """Every option of training: on the command line, as a field of `ooc_svm.TrainOptions`, what it means."""
    lines = ["# Options of training", ""]
    lines += [
        "`train`, `tune` and `plan` take these options, and `ooc_svm.TrainOptions` has them as fields.",
        "",
    ]
    group: Any = typer.main.get_command(app)
    typed = {parameter.name: parameter for parameter in group.commands["train"].params}
    described = {entry.name: " ".join(entry.desc) for entry in ClassDoc(TrainOptions)["Attributes"]}
    for field in fields(TrainOptions):
        lines += [
            f"`{_spelled(typed[field.name])}`",
            f": {described[field.name] or typed[field.name].help}",
            "",
        ]
        role = getattr(field.metadata.get("option"), "role", None)
        shown = "" if role is None else f" ({role.value})"
        lines += [f"  `{field.name}: {field.type} = {field.default!r}`{shown}", ""]
    return "\n".join(lines)


def public_names() -> str:
    """The public functions, classes and exceptions, as Sphinx documents them."""
    found = {name: getattr(ooc_svm, name) for name in dir(ooc_svm)}
    types = [name for name, value in found.items() if inspect.isclass(value)]
    errors = [name for name in types if issubclass(found[name], Exception)]
    classes = [name for name in types if name not in errors]
    functions = [name for name in found if name not in types]
    lines = ["Library", "=======", "", "Everything below is imported from ``ooc_svm``.", ""]
    lines += [".. currentmodule:: ooc_svm", ""]
    for title, directive, names in (
        ("Functions", "autofunction", functions),
        ("Classes", "autoclass", classes),
        ("Errors", "autoexception", errors),
    ):
        lines += [title, "-" * len(title), ""]
        for name in names:
            lines += [f".. {directive}:: {name}", *(["   :members:"] if directive == "autoclass" else []), ""]
    return "\n".join(lines)


def write() -> None:
    """Write the pages; one that has not changed keeps its time."""
    for name, text in (("cli.md", commands()), ("options.md", options()), ("api.rst", public_names())):
        path = FOLDER / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)

"""The README names every command, every option and every public name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

import ooc_svm
from ooc_svm.cli.app import app
from ooc_svm.options import OPTIONS

README = (Path(__file__).parent.parent / "README.md").read_text()
COMMANDS = typer.main.get_command(app).commands
NAMES = {"convert", "info", "verify", "train", "predict", "evaluate", "export", "plan"}


def named(text: str) -> bool:
    """Whether the README has it as a word of its own."""
    return re.search(rf"(?<![\w-]){re.escape(text)}(?![\w-])", README) is not None


def test_these_are_the_commands():
    assert set(COMMANDS) == NAMES


@pytest.mark.parametrize("command", sorted(NAMES))
def test_the_command_and_its_options_are_explained(command):
    assert f"ooc-svm {command}" in README or f"`{command} " in README
    options = [parameter.opts for parameter in COMMANDS[command].params if parameter.opts[0].startswith("-")]
    assert options or command == "verify"
    assert [forms for forms in options if not any(map(named, forms))] == []


@pytest.mark.parametrize("option", OPTIONS)
def test_the_choices_are_named(option):
    assert [choice for choice in OPTIONS[option].choices if not named(choice)] == []


def test_the_public_names_are_explained():
    assert [name for name in ooc_svm.__all__ if not named(name)] == []


def test_the_exit_codes_are_named():
    codes = {getattr(ooc_svm, name).exit_code for name in ooc_svm.__all__ if name.endswith("Error")}
    assert [code for code in codes - {1} if not named(str(code))] == []

"""README and documentation name every command, option and public name, and show the program as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import structure
import typer

import ooc_svm
from ooc_svm.cli.app import app
from ooc_svm.options import OPTIONS

ROOT = Path(__file__).parent.parent
GENERATED = {"cli.md", "options.md", "api.rst"}
PAGES = {
    path: path.read_text()
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if path.name not in GENERATED and "_build" not in path.parts
}
README = PAGES[ROOT / "README.md"]
GUIDE = "\n".join(text for path, text in PAGES.items() if path.parent.name == "guide")
COMMANDS = typer.main.get_command(app).commands
NAMES = {
    "convert",
    "info",
    "verify",
    "train",
    "predict",
    "evaluate",
    "export",
    "plan",
    "report",
    "tune",
    "warmup",
}
README_BYTES = 16_000


def named(text: str, page: str = README) -> bool:
    """Whether a page has it as a word of its own."""
    return re.search(rf"(?<![\w-]){re.escape(text)}(?![\w-])", page) is not None


def test_the_readme_stays_short():
    assert len(README.encode()) <= README_BYTES


def test_these_are_the_commands():
    assert set(COMMANDS) == NAMES


@pytest.mark.parametrize("command", sorted(NAMES))
def test_the_command_and_its_options_are_explained(command):
    assert f"`{command} " in README
    assert f"ooc-svm {command} " in GUIDE
    options = [parameter.opts for parameter in COMMANDS[command].params if parameter.opts[0].startswith("-")]
    assert options or command == "verify"
    assert [forms for forms in options if not any(named(form, GUIDE) for form in forms)] == []


def test_the_choices_are_named():
    """The values of all options of training that take one of a few names."""
    values = [option.metavar.split("|") for option in OPTIONS.values()]
    choices = [
        name for names in values if all(re.fullmatch("[a-z0-9-]+", n) for n in names) for name in names
    ]
    assert {"svc", "hinge", "ocas", "linear", "penalized", "maxabs", "dask"} <= set(choices)
    assert [choice for choice in choices if not named(choice)] == []


def test_the_public_names_are_explained():
    assert [name for name in ooc_svm.__all__ if not named(name, GUIDE)] == []


@pytest.mark.parametrize("page", ["README.md", "docs/guide/troubleshooting.md"])
def test_the_exit_codes_are_named(page):
    codes = {getattr(ooc_svm, name).exit_code for name in ooc_svm.__all__ if name.endswith("Error")}
    assert [code for code in codes - {1} if not named(str(code), PAGES[ROOT / page])] == []


def test_the_pictures_of_the_packages_are_up_to_date():
    for path, text in structure.pages().items():
        assert path.read_text() == text, f"{path}: run python scripts/docs/structure.py"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    """A page is there, and has the heading; those made at build time are left to Sphinx."""
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", PAGES[path]):
        other = (path.parent / target).resolve() if target else path
        if other.name in GENERATED:
            continue
        assert other.exists(), target
        headings = re.findall(r"^#+ (.*)$", other.read_text(), re.MULTILINE) if anchor else []
        slugs = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
        assert not anchor or anchor in slugs, f"{target}#{anchor}"

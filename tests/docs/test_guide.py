"""The guide works as written: commands run, the output shown is printed, no option is missing."""

from __future__ import annotations

import re
from pathlib import Path

import examples
import pytest
import readme
import typer.main

from ooc_svm.cli.app import app

FOLDER = examples.ROOT / "docs" / "guide"
# Compiling everything takes minutes where nothing is compiled yet.
PAGES = [page for page in sorted(FOLDER.glob("*.md")) if page.stem not in ("index", "installing")]
COMMANDS = typer.main.get_command(app).commands

_TEXT = re.compile(r"^```text\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_TIMES = re.compile(r"  about [^()]*? left|\d+(\.\d+)? (s|min)\b")
# A block of text that is no output of the commands of its page.
_NO_OUTPUT = "label [qid:"


def shown_lines(page: str) -> list[str]:
    """The lines of output that a page shows, in order."""
    blocks = [block for block in _TEXT.findall(page) if not block.startswith(_NO_OUTPUT)]
    return [line for block in blocks for line in block.splitlines() if line.strip() not in ("", "...")]


def compared(line: str) -> str:
    """A line without what differs from run to run: times, speeds, sizes of the process, widths of columns."""
    line = _TIMES.sub("#", readme.compared(line))
    return " ".join(line.replace("#", " # ").split())


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_examples_of_a_page_run_and_print_what_it_shows(page, tmp_path):
    done = examples.run_page(page, tmp_path)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    printed = {compared(line) for line in (done.stdout + done.stderr).splitlines()}
    missing = [line for line in shown_lines(page.read_text()) if compared(line) not in printed]
    assert not missing, "\n".join([*missing, "are not in", done.stdout, done.stderr])


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("time  0.8 s (8 % of it waiting)", "time 1 min 2 s (0 % of it waiting)", True),
        (
            "pass 3  P 5  1.3 s  about 14 s left  2 models",
            "pass 3  P 5  9 s  about 3 min 08 s left  2 models",
            True,
        ),
        ("pass 2  P 5  0.7 s", "pass 2  P 6  0.7 s", False),
        ("passes  2 (9.45 MB read)", "passes  3 (9.45 MB read)", False),
    ],
)
def test_what_differs_from_run_to_run_is_not_compared(shown, printed, same):
    assert (compared(shown) == compared(printed)) == same


def test_outputs_are_found():
    lines = shown_lines(Path(FOLDER, "training.md").read_text())
    assert any(line.startswith("pass 2 ") for line in lines)
    assert any(line.startswith("micro-f1 ") for line in lines)


def test_every_option_is_on_a_page():
    pages = [*FOLDER.glob("*.md"), *(FOLDER.parent / "reference").glob("[fmp]*.md")]
    named = set(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", "\n".join(page.read_text() for page in pages)))
    missing = {
        f"{name} {option.opts[-1]}"
        for name, command in COMMANDS.items()
        for option in command.params
        if option.param_type_name == "option" and named.isdisjoint(option.opts)
    }
    assert not {each for each in missing if not each.endswith("--help")}

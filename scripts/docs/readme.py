"""The example in README.md, run as it is written: what `train` prints, and what follows from its numbers.

    python scripts/docs/readme.py            compares README.md with a run now; 1 if it differs
    python scripts/docs/readme.py --write    writes what is printed now into it

Times, speeds, peak memory and the size of the model, which holds times, are shown as they were and not
compared. The first pass and the last one stand for all.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from examples import ROOT, examples_of
from structure import replaced

README = ROOT / "README.md"
NAME, SCRIPT = "example", "scripts/docs/readme.py"
# What another run has not: seconds, bytes a second, and the size of the process and of the model's file.
_PASSING = re.compile(
    r"(\d+ min )?[\d.]+ (s\b|\w?B/s)|\d+(?= % of it)"
    r"|(?<=peak memory    )[\d.]+ \w+|(?<= features, )[\d.]+ \w+"
)
_TIME_LEFT = re.compile(r"  about .* left$", re.MULTILINE)


def commands(page: str) -> list[str]:
    """The lines of the first example of a page, up to the one that trains."""
    lines = examples_of(page)[0].code.splitlines()
    last = next(number for number, line in enumerate(lines) if line.startswith("ooc-svm train"))
    return lines[: last + 1]


def printed_by(lines: list[str]) -> str:
    """What the last of some commands prints to both streams, run one after another in a fresh folder."""
    path = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "scripts").symlink_to(ROOT / "scripts")
        for line in lines:
            done = subprocess.run(
                ["bash", "-c", line],
                cwd=folder,
                env=os.environ | {"PATH": path},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            if done.returncode:
                raise RuntimeError(f"{line}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def shown(printed: str) -> str:
    """The output as README.md has it, and what the lower bound in it says."""
    lines = _TIME_LEFT.sub("", printed).splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("pass "))
    last = max(number for number, line in enumerate(lines) if line.startswith("pass "))
    left_out = ["..."] if last > first + 1 else []
    block = "\n".join(["```text", lines[first], *left_out, *lines[last:], "```"])
    bound = float(_found(r"^lower bound D +(\S+)", printed))
    above = 100 * float(_found(r"relative gap ([^\s,]+)", printed))
    least = math.floor(100 * bound) / 100
    sentence = (
        f"No weight vector whatsoever has an objective below {least:.2f}, so the model is at most "
        f"{above:.2g} % above the best one."
    )
    return f"{block}\n\n{sentence}"


def _found(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"{pattern} is not in\n{text}")
    return found[1]


def compared(page: str) -> str:
    """A page without the numbers that another run has not."""
    return _PASSING.sub("#", page)


def current() -> str:
    """README.md with the example as it is now."""
    page = README.read_text()
    return replaced(page, NAME, shown(printed_by(commands(page))), SCRIPT)


def main(arguments: list[str]) -> int:
    """Compare, or write; the exit code."""
    page = current()
    if arguments == ["--write"]:
        README.write_text(page)
        return 0
    if compared(page) == compared(README.read_text()):
        return 0
    print(page)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

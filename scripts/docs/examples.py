"""Run the examples of pages as written.

    python scripts/docs/examples.py README.md docs/guide/*.md

Code blocks marked ``sh`` and ``python`` are run in order, each page in a fresh folder with a link to the
scripts of this repository. The Python blocks of a page share one namespace. A block marked ``output`` is what
the block before it prints to standard output; ``...`` in it stands for any text. Other blocks are not run.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_SHELL = ["bash", "-euo", "pipefail", "-c"]


class Example(NamedTuple):
    """A code block: its line on the page, its language, and what it prints if the page shows that."""

    line: int
    language: str
    code: str
    output: str | None


def examples_of(text: str) -> list[Example]:
    """The examples of a page, in order."""
    found: list[Example] = []
    for block in _BLOCK.finditer(text):
        language, code = block.groups()
        if language in ("sh", "python"):
            found.append(Example(text[: block.start()].count("\n") + 1, language, code, None))
        elif language == "output":
            if not found or found[-1].output is not None:
                raise ValueError("an output block follows no code block")
            found[-1] = found[-1]._replace(output=code)
    return found


def run_examples(page: Path) -> None:
    """Run the examples of a page in the working directory; raises where one of them fails."""
    namespace = {"__name__": "__main__"}
    for example in examples_of(page.read_text()):
        place = f"{page}:{example.line}"
        if example.language == "python":
            # Blank lines give tracebacks the lines of the page.
            code = compile("\n" * example.line + example.code, str(page), "exec")
            with contextlib.redirect_stdout(io.StringIO()) as stream:
                exec(code, namespace)
            printed = stream.getvalue()
        else:
            done = subprocess.run([*_SHELL, example.code], stdout=subprocess.PIPE, text=True)
            printed = done.stdout
            if done.returncode:
                raise RuntimeError(f"{place}: exit code {done.returncode}\n{printed}")
        print(printed, end="", flush=True)
        if example.output is not None and not _matches(example.output, printed):
            raise RuntimeError(f"{place}: printed\n{printed}\ninstead of\n{example.output}")


def _matches(wanted: str, printed: str) -> bool:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(wanted, printed, flags)


def run_page(page: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the examples of a page in a process of their own, in a fresh folder."""
    (folder / "scripts").symlink_to(ROOT / "scripts")
    path = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
    command = [sys.executable, __file__, "--here", str(page.resolve())]
    return subprocess.run(
        command, cwd=folder, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
    )


def main(arguments: list[str]) -> int:
    """The exit code for pages, or for one in the working directory."""
    if arguments[0] == "--here":
        run_examples(Path(arguments[1]))
        return 0
    failed = False
    for name in arguments:
        with tempfile.TemporaryDirectory() as folder:
            done = run_page(Path(name), Path(folder))
        print(f"== {name}", done.stdout, done.stderr, sep="\n")
        failed |= done.returncode != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What each command imports and loads, in milliseconds, on a file so small that nothing else takes time.

Every run is a process of its own. Wall time and the peak are those of the fastest of --repeat runs, processor
time is the least of them; functions compiled earlier come from their cache. One more run under
``-X importtime`` says whose modules take the time that imports take, and how many there are; it is slower
than the others, so that only the shares count. Another one counts and times the loading of compiled
functions. Modules of the interpreter and of what is not listed are "others".

Run: python scripts/bench/starts.py [--text FILE.svm] [--repeat 5] [--commands version,train]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from processes import run

# The packages that are told apart, by what they are part of.
OWNERS = {
    "numpy": "numpy",
    **dict.fromkeys(("numba", "llvmlite", "yaml"), "numba"),
    **dict.fromkeys(("typer", "pydantic", "pydantic_core", "rich", "annotated_types"), "typer"),
    **dict.fromkeys(("zarr", "numcodecs", "fsspec"), "zarr"),
    **dict.fromkeys(("scipy", "sklearn"), "scipy"),
    **dict.fromkeys(("dask", "distributed"), "dask"),
    "ooc_svm": "ooc_svm",
}
OTHERS = "others"

COUNT_LOADS = """
import json, sys, time
from ooc_svm.ops.cache import CheckedCache
load, found = CheckedCache.load_overload, []
def timed(self, *arguments):
    began = time.perf_counter()
    try:
        return load(self, *arguments)
    finally:
        found.append(time.perf_counter() - began)
CheckedCache.load_overload = timed
from ooc_svm.cli import main
try:
    main()
finally:
    sys.stderr.write(json.dumps([len(found), sum(found)]))
"""


class Start(NamedTuple):
    """What a command takes; times in milliseconds, memory in MB."""

    wall: float
    cpu: float
    peak: float
    shares: Counter[str]
    modules: Counter[str]
    loads: int
    loading: float


def commands(text: Path, folder: Path) -> dict[str, list[str]]:
    """The commands that are measured; some read what others have written."""
    store, model = str(folder / "rows.zarr"), str(folder / "model")
    return {
        "version": ["--version"],
        "help": ["train", "--help"],
        "convert": ["convert", str(text), "-o", store, "--overwrite", "--quiet"],
        "info": ["info", store],
        "train": ["train", store, "-o", model, "--quiet"],
        "train-text": ["train", str(text), "-o", model, "--quiet"],
        "predict": ["predict", model, store, "-o", str(folder / "labels.txt")],
        "evaluate": ["evaluate", model, store],
        "plan": ["plan", store],
        "report": ["report", model],
        "verify": ["verify", store, "--quiet"],
    }


def make_rows(folder: Path, n_rows: int = 1600, n_columns: int = 120, per_row: int = 14) -> Path:
    """Rows of ones, with two classes."""
    draw = random.Random(1)
    rows = [sorted(draw.sample(range(1, n_columns + 1), per_row)) for _ in range(n_rows)]
    text = folder / "rows.svm"
    lines = [" ".join(["1" if row[0] < 7 else "-1", *(f"{column}:1" for column in row)]) for row in rows]
    text.write_text("\n".join(lines) + "\n")
    return text


def measured(words: Sequence[str], repeat: int) -> Start:
    """Run a command until its functions are in the cache, then measure it."""
    plain = (sys.executable, "-m", "ooc_svm.cli", *words)
    for _ in range(2):
        if (ended := run(plain)).code:
            raise SystemExit(f"{' '.join(words)}: {ended.errors}")
    runs = [run(plain) for _ in range(repeat)]
    fastest, cpu = min(runs, key=lambda usage: usage.seconds), min(usage.cpu for usage in runs)
    shares, modules = _imports(words)
    counted = run((sys.executable, "-c", COUNT_LOADS, *words))
    loads, loading = json.loads(counted.errors.splitlines()[-1])
    return Start(1e3 * fastest.seconds, 1e3 * cpu, fastest.peak / 1e6, shares, modules, loads, 1e3 * loading)


def _imports(words: Sequence[str]) -> tuple[Counter[str], Counter[str]]:
    """Milliseconds in the modules of each owner, and their number."""
    said = run((sys.executable, "-X", "importtime", "-m", "ooc_svm.cli", *words)).errors
    times, modules = Counter[str](), Counter[str]()
    for line in said.splitlines():
        if line.startswith("import time:") and "self [us]" not in line:
            own, _, name = line.removeprefix("import time:").split("|")
            owner = OWNERS.get(name.strip().partition(".")[0], OTHERS)
            # Where threads import, that of one is subtracted from another.
            times[owner] += max(int(own), 0) / 1e3
            modules[owner] += 1
    return times, modules


def table(found: dict[str, Start]) -> str:
    """A line for each command, in Markdown."""
    owners = [*dict.fromkeys(OWNERS.values()), OTHERS]
    head = ("command", "wall ms", "CPU ms", "peak MB", "functions loaded", "in ms", *owners)
    lines = [f"| {' | '.join(head)} |", f"|---|{'--:|' * (len(head) - 1)}"]
    for name, start in found.items():
        total = sum(start.shares.values())
        shares = (
            f"{100 * start.shares[owner] / total:.0f} % of {start.modules[owner]}"
            if start.modules[owner]
            else "-"
            for owner in owners
        )
        times = (start.wall, start.cpu, start.peak, start.loads, start.loading)
        numbers = " | ".join(f"{number:.0f}" for number in times)
        lines.append(f"| `{name}` | {numbers} | {' | '.join(shares)} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", type=Path, help="rows of SVMlight; by default 1600 generated ones")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--commands", help="names with commas between them; by default all")
    options = parser.parse_args()
    # Compiled modules are kept, as they are where the package is installed.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as name:
        made = make_rows(Path(name))
        all_commands = commands(options.text or made, Path(name))
        chosen = options.commands.split(",") if options.commands else list(all_commands)
        for needed in ("convert", "train"):
            run((sys.executable, "-m", "ooc_svm.cli", *all_commands[needed]))
        print(table({each: measured(all_commands[each], options.repeat) for each in chosen}))


if __name__ == "__main__":
    main()

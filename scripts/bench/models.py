"""Many models at once against one after another: reads, rows visited, seconds, memory.

    python scripts/bench/models.py FOLDER [--only NAME ...] [--alone]

FOLDER holds the data sets of `SETS` (the LIBSVM collection); what is missing is left out. Each training has a
process of its own, so that its peak is its own. With ``--alone`` each model is trained by itself as well, in
the same share of resident rows. Seconds are those of the reports, and differ from run to run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import ooc_svm


class Set(NamedTuple):
    """A data set: its file, the options of the training together, and those that each one alone has."""

    file: str
    together: dict[str, Any]
    alone: list[dict[str, Any]]


VALUES = [2.0**k for k in range(-10, 6)]
CLASSES = {"scale": "maxabs", "resident": 0.1}
SETS = {
    "a9a, 16 values of C": Set(
        "adult/a9a.bz2", {"C": VALUES, "resident": 0.1}, [{"C": C, "resident": 0.1} for C in VALUES]
    ),
    "covtype, 7 classes": Set(
        "covtype/covtype.multiclass.bz2", CLASSES, [{"positive": k, **CLASSES} for k in range(1, 8)]
    ),
}


def measure(store: Path, options: dict[str, Any]) -> dict[str, Any]:
    """The report of one training, in a process of its own."""
    command = [sys.executable, __file__, str(store), "--options", json.dumps(options)]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return found


def line(name: str, reports: list[dict[str, Any]]) -> str:
    """A row of the table; of several trainings the sums, of reads and peaks the largest."""
    models = [model for report in reports for model in report["models"]]
    passes = [model["passes"] for model in models]
    uncertified = "" if all(report["converged"] for report in reports) else "*"
    cells = (
        f"{max(passes)}{uncertified} ({' '.join(map(str, passes))})",
        f"{sum(model['row_visits'] for model in models):.0f} n",
        f"{sum(report['seconds'] for report in reports):.1f}",
        f"{max(report['peak_memory_bytes'] for report in reports) / 1e6:.0f} MB",
    )
    return f"| {name} | " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", action="append", metavar="NAME", choices=SETS)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--options", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.options is not None:
        print(json.dumps(ooc_svm.train(options.folder, progress=lambda _: None, **options.options).report))
        return
    print("| data | reads (of each) | visits | seconds | peak |")
    print("|---|---|---|---|---|", flush=True)
    for name, data in SETS.items():
        source = options.folder / data.file
        if not source.exists() or (options.only is not None and name not in options.only):
            continue
        with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
            store = Path(scratch, "store")
            ooc_svm.convert(source, store)
            print(line(f"{name}, together", [measure(store, data.together)]), flush=True)
            if options.alone:
                print(line(f"{name}, alone", [measure(store, own) for own in data.alone]), flush=True)


if __name__ == "__main__":
    main()

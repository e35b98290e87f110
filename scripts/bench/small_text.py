"""Many classes of little data from text to model, next to LIBLINEAR's C program.

news20-like  15,935 rows of 62,061 columns, some 80 words of a power law a row, length 1, 20 classes
letter-like  15,000 dense rows of 16 columns, 26 classes

Both train one model for each class, hinge loss, no bias. LIBLINEAR runs with ``-s 3`` and its default
tolerance (Debian: liblinear-tools); ours is `ooc-svm train TEXT` to the default gap, functions from their
cache. The two are run in turn; medians.

Run: python scripts/bench/small_text.py [--repeat 3] [--C 1] [--keep FOLDER] [--threads N]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from processes import Usage, run

TARGETS = {"news20-like": 1.5, "letter-like": 1.0}


def make_news(path: Path, n_rows: int = 15935, n_columns: int = 62061, n_classes: int = 20) -> None:
    """Three words of ten are of the class; the others of all."""
    rng = np.random.default_rng(1)
    ranks = np.arange(1, n_columns + 1)
    common = np.cumsum(1.0 / ranks) / np.sum(1.0 / ranks)
    own = [rng.permutation(n_columns)[:2000] for _ in range(n_classes)]
    with path.open("w") as file:
        for _ in range(n_rows):
            label, length = int(rng.integers(n_classes)), int(rng.lognormal(4.2, 0.7)) + 5
            words = np.searchsorted(common, rng.random(length))
            of_class = rng.random(length) < 0.3
            words[of_class] = own[label][(2000 * rng.random(np.count_nonzero(of_class)) ** 3).astype(int)]
            ids, counts = np.unique(words, return_counts=True)
            _write_row(file, label + 1, ids, (1.0 + np.log(counts)) * np.log1p(ids / 50.0 + 1.0))


def make_letters(path: Path, n_rows: int = 15000, n_columns: int = 16, n_classes: int = 26) -> None:
    """Clouds around a center for each class, between -1 and 1."""
    rng = np.random.default_rng(2)
    centers = rng.uniform(-0.6, 0.6, (n_classes, n_columns))
    with path.open("w") as file:
        for _ in range(n_rows):
            label = int(rng.integers(n_classes))
            row = np.clip(centers[label] + 0.25 * rng.normal(size=n_columns), -1.0, 1.0)
            pairs = " ".join(f"{j + 1}:{value:.6g}" for j, value in enumerate(row))
            file.write(f"{label + 1} {pairs}\n")


def _write_row(file: object, label: int, ids: npt.NDArray[np.int64], values: npt.NDArray[np.float64]) -> None:
    values /= np.linalg.norm(values)
    pairs = " ".join(f"{j + 1}:{value:.6g}" for j, value in zip(ids, values, strict=True))
    file.write(f"{label} {pairs}\n")  # type: ignore[attr-defined]


def measured(command: Sequence[str | Path]) -> Usage:
    """Run a command that must not fail."""
    usage = run(command)
    if usage.code:
        raise SystemExit(usage.errors)
    return usage


def race(name: str, text: Path, options: argparse.Namespace, folder: Path) -> None:
    """Print the line of a data set."""
    theirs = (options.liblinear, "-s", "3", "-q", "-c", repr(options.C), text, folder / "liblinear.model")
    report = folder / "report.json"
    words = ("train", text, "-o", folder / "model", "--bias", "none", "--C", repr(options.C), "--quiet")
    ours = (sys.executable, "-m", "ooc_svm.cli", *words, "--report", report, *options.threads)
    measured(ours)
    runs = [(measured(theirs), measured(ours)) for _ in range(options.repeat)]
    wall, cpu = (
        [statistics.median(part(each[side]) for each in runs) for side in (0, 1)]
        for part in (lambda usage: usage.seconds, lambda usage: usage.cpu)
    )
    peak = max(own.peak for _, own in runs)
    said = json.loads(report.read_text())
    gap = max(model["relative_gap"] for model in said["models"])
    print(
        f"| {name} | {wall[0]:.2f} ({cpu[0]:.2f}) | {wall[1]:.2f} ({cpu[1]:.2f}) | {wall[1] / wall[0]:.2f} "
        f"({cpu[1] / cpu[0]:.2f}) | {TARGETS[name]} | {peak / 1e6:.0f} MB | {said['passes']} | {gap:.1e} |",
        flush=True,
    )


def main() -> None:
    """Make the data and race on them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--C", type=float, default=1.0)
    parser.add_argument("--keep", type=Path, help="folder for the texts, used again by the next run")
    parser.add_argument("--threads", type=int, help="of ours; by default one for each processor")
    parser.add_argument("--liblinear", default=shutil.which("liblinear-train") or shutil.which("train"))
    options = parser.parse_args()
    if options.liblinear is None:
        parser.error("LIBLINEAR's program is not on the PATH; name it by --liblinear")
    options.threads = () if options.threads is None else ("--threads", str(options.threads))
    # Compiled modules are kept, as they are where the package is installed.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    head = (
        "| data | LIBLINEAR s (CPU) | ours s (CPU) | ratio (CPU) | target | our peak | reads | largest gap |"
    )
    print(f"{head}\n|---|--:|--:|--:|--:|--:|--:|--:|", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for name, make in (("news20-like", make_news), ("letter-like", make_letters)):
            text = folder / f"{name}.svm"
            if not text.exists():
                make(text)
            race(name, text, options, Path(scratch))


if __name__ == "__main__":
    main()

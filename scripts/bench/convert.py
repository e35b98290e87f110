"""Speed of a whole conversion, everything on the disk at its end, beside reading alone and scikit-learn.

Run: python scripts/bench/convert.py [--size 60MB] [--repeats 3] [--threads 2]

The text is made by scripts/make_data.py. All run in turn on the same file, in the page cache; medians.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from sklearn.datasets import load_svmlight_file

from ooc_svm.conversion.convert import convert
from ooc_svm.system.memory import format_size, parse_size
from ooc_svm.text.reader import TextRows

MAKE_DATA = Path(__file__).parents[1] / "make_data.py"


def make_text(folder: Path, size: int) -> Path:
    """Text-like rows of about `size` bytes."""
    path = folder / "data.svm"
    command = [sys.executable, MAKE_DATA, path, folder / "rest.svm", "--size", str(size * 10 // 9)]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return path


def read_file(path: Path) -> None:
    """The bytes of the file and nothing else."""
    with path.open("rb", buffering=0) as file:
        buffer = bytearray(1 << 20)
        while file.readinto(buffer):
            pass


def parse(path: Path, threads: int) -> None:
    """All row blocks, given up one after another."""
    for _ in TextRows(path, threads=threads):
        pass


def median_seconds(
    readers: dict[str, Callable[[], object]], repeats: int, clean: Callable[[], object]
) -> dict[str, float]:
    """Median time of each, taken in turn; `clean` runs before each, outside of the time."""
    seconds: dict[str, list[float]] = {name: [] for name in readers}
    for _ in range(repeats):
        for name, read in readers.items():
            clean()
            start = time.perf_counter()
            read()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", type=parse_size, default="60MB", help="bytes of text (%(default)s)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--folder", type=Path, help="where to work; by default the folder for temporary files"
    )
    options = parser.parse_args()
    threads = options.threads
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        path, target = make_text(folder, options.size), folder / "data.zarr"
        report = convert(path, target)  # compiles
        readers: dict[str, Callable[[], object]] = {
            "file, raw": lambda: read_file(path),
            "scikit-learn": lambda: load_svmlight_file(str(path)),
            "parse, 1 thread": lambda: parse(path, 1),
            f"parse, {threads} threads": lambda: parse(path, threads),
            f"convert, {threads} threads": lambda: convert(path, target, threads=threads),
            f"convert --shuffle, {threads} threads": lambda: convert(
                path, target, threads=threads, shuffle=0
            ),
        }
        medians = median_seconds(readers, options.repeats, lambda: shutil.rmtree(target, ignore_errors=True))
    print(
        f"{format_size(report.bytes_in)} of text, {report.rows:,} rows, {report.nonzeros:,} nonzeros; "
        f"{format_size(report.bytes_out)} in the store"
    )
    print(f"{'':<30}{'seconds':>9}{'MB/s':>9}{'x scikit-learn':>16}")
    for reader, median in medians.items():
        speed = report.bytes_in / 1e6 / median
        print(f"{reader:<30}{median:>9.3f}{speed:>9.1f}{medians['scikit-learn'] / median:>16.1f}")


if __name__ == "__main__":
    main()

"""Speed of reading SVMlight text: this package, one thread, beside scikit-learn, on the same generated file.

Run: python scripts/bench/parse.py [--megabytes 50] [--repeats 3]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.datasets import load_svmlight_file

from ooc_svm.data.blocks import LabelledRows, RowBlock
from ooc_svm.text.reader import TextRows
from ooc_svm.text.writer import format_rows

N_COLUMNS = 1 << 20


def make_block(rng: np.random.Generator, n_rows: int, decimals: int | None) -> LabelledRows:
    """Rows of 20 to 100 random columns; values in (0, 1) with so many decimals, or all of a float32."""
    lengths = rng.integers(20, 101, n_rows)
    ids = [np.unique(rng.integers(0, N_COLUMNS, length)) for length in lengths]
    indptr = np.concatenate(([0], np.cumsum([len(row) for row in ids])))
    values = rng.uniform(0.001, 1, indptr[-1])
    if decimals is not None:
        values = values.round(decimals)
    rows = RowBlock(0, indptr, np.concatenate(ids).astype(np.int32), values.astype(np.float32))
    return LabelledRows(rows, rng.choice([-1.0, 1.0], n_rows))


def write_text(path: Path, n_bytes: int, decimals: int | None, seed: int) -> None:
    """At least `n_bytes` of text."""
    rng = np.random.default_rng(seed)
    with path.open("wb") as file:
        while file.tell() < n_bytes:
            file.write(format_rows(make_block(rng, 5000, decimals)))


def read_file(path: Path) -> None:
    """The bytes of the file and nothing else."""
    with path.open("rb", buffering=0) as file:
        buffer = bytearray(1 << 20)
        while file.readinto(buffer):
            pass


def read_with_this_package(path: Path, threads: int) -> None:
    """All row blocks, given up one after another."""
    for _ in TextRows(path, threads=threads):
        pass


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    readers: dict[str, Callable[[Path], object]] = {
        "file, raw": read_file,
        "ooc-svm, 1 thread": lambda path: read_with_this_package(path, 1),
        "ooc-svm, 2 threads": lambda path: read_with_this_package(path, 2),
        "scikit-learn": lambda path: load_svmlight_file(str(path)),
    }
    print(f"{'values':<14}{'reader':<20}{'seconds':>9}{'MB/s':>9}{'x scikit-learn':>16}")
    with tempfile.TemporaryDirectory() as folder:
        for name, decimals in (("4 decimals", 4), ("float32, all", None)):
            path = Path(folder) / "data.svm"
            write_text(path, options.megabytes * 10**6, decimals, seed=7)
            size = path.stat().st_size / 1e6
            read_with_this_package(path, 2)  # compiles
            seconds: dict[str, list[float]] = {reader: [] for reader in readers}
            for _ in range(options.repeats):
                for reader, read in readers.items():
                    start = time.perf_counter()
                    read(path)
                    seconds[reader].append(time.perf_counter() - start)
            medians = {reader: statistics.median(times) for reader, times in seconds.items()}
            for reader, median in medians.items():
                ratio = medians["scikit-learn"] / median
                print(f"{name:<14}{reader:<20}{median:>9.3f}{size / median:>9.1f}{ratio:>16.1f}")


if __name__ == "__main__":
    main()

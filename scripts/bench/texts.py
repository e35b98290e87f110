"""Make the binary SVMlight texts that scripts/bench/train.py races on; labels are -1 and 1.

Run: python scripts/bench/texts.py generated OUT --nonzeros 60M
     python scripts/bench/texts.py sequences OUT --rows 100000
     python scripts/bench/texts.py arxiv|covtype OUT --data FOLDER

generated  rows of scripts/make_data.py with 2^20 columns
sequences  sequences of four letters: for each of 398 positions and each length from 1 to 5, which word begins
           there; 1990 ones a row in 542,872 columns, a planted rule, 3 % positive
arxiv      FOLDER/arxiv/arxiv.svm.bz2, word counts: turned into tf-idf rows of length 1, the classes 5 to 11
           (astro-ph.*) against the rest
covtype    FOLDER/covtype/covtype.multiclass.bz2: class 1 against the rest; with --scaled OUT2 a second text
           whose columns are divided by their largest magnitude
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, LabelledRows, RowBlock, Values
from ooc_svm.system.files import atomic_write
from ooc_svm.system.memory import parse_size
from ooc_svm.text.reader import TextRows
from ooc_svm.text.writer import format_rows

MAKE_DATA = Path(__file__).parents[1] / "make_data.py"
SOURCES = {"arxiv": "arxiv/arxiv.svm.bz2", "covtype": "covtype/covtype.multiclass.bz2"}
ASTRO_PH, FIRST_COVER = (5, 6, 7, 8, 9, 10, 11), (1,)

FEATURES = 1 << 20
# Bytes of generated text a nonzero, line ends and labels included.
BYTES_A_NONZERO = 15.5
# Of the sequences: positions, the longest word, the share of positive rows, and the noise of their scores.
POSITIONS, LONGEST_WORD = 398, 5
POSITIVE, NOISE = 0.03, 0.5
SEQUENCES_AT_ONCE = 2000

# What svm-scale and C's %g write.
SIGNIFICANT_DIGITS = 6


def make_generated(out: Path, nonzeros: int) -> None:
    """About so many nonzeros; scripts/make_data.py keeps a tenth of its text for a second file."""
    rest = out.with_suffix(".rest")
    size = str(int(nonzeros * BYTES_A_NONZERO / 0.9))
    subprocess.run(
        [sys.executable, MAKE_DATA, out, rest, "--size", size, "--features", str(FEATURES)], check=True
    )
    rest.unlink()


def make_sequences(out: Path, n_rows: int) -> None:
    """The rule weighs words of length 3 at a tenth of the positions; the noise is a share of the spread."""
    rng = np.random.default_rng(0)
    widths = [4**length for length in range(1, LONGEST_WORD + 1)]
    first = np.cumsum([0, *np.tile(widths, POSITIONS)])[:-1].reshape(POSITIONS, LONGEST_WORD)
    places = rng.choice(POSITIONS, POSITIONS // 10, replace=False)
    rule = rng.standard_normal((len(places), 4**3))
    spread = np.sqrt(len(places))

    def write(file: BinaryIO) -> None:
        threshold = None
        for start in range(0, n_rows, SEQUENCES_AT_ONCE):
            count = min(SEQUENCES_AT_ONCE, n_rows - start)
            letters = rng.integers(0, 4, (count, POSITIONS + LONGEST_WORD - 1))
            words = np.zeros((count, POSITIONS, LONGEST_WORD), np.int64)
            for length in range(LONGEST_WORD):
                before = words[:, :, length - 1] if length else 0
                words[:, :, length] = 4 * before + letters[:, length : POSITIONS + length]
            scores = rule[np.arange(len(places)), words[:, places, 2]].sum(axis=1)
            scores += NOISE * spread * rng.standard_normal(count)
            if threshold is None:
                threshold = np.quantile(scores, 1.0 - POSITIVE)
            indices = (words + first).reshape(-1).astype(np.int32)
            indptr = np.arange(count + 1, dtype=np.int64) * (POSITIONS * LONGEST_WORD)
            labels = np.where(scores > threshold, 1.0, -1.0)
            file.write(format_rows(LabelledRows(RowBlock(start, indptr, indices, None), labels)))

    atomic_write(out, write)


def make_arxiv(source: Path, out: Path) -> None:
    """Rows of length 1 of (1 + ln count) ln((n + 1) / (rows with the word + 1)); idf of the whole text."""
    n_rows, frequency = 0, np.zeros(0, np.int64)
    for block in TextRows(source):
        n_rows += block.rows.n_rows
        frequency = padded_sum(frequency, np.bincount(block.rows.indices))
    idf = np.log((n_rows + 1) / (frequency + 1))

    def tf_idf(block: LabelledRows) -> Values:
        rows = block.rows
        values = (1.0 + np.log(values_of(block))) * idf[rows.indices]
        row = np.repeat(np.arange(rows.n_rows), np.diff(rows.indptr))
        length = np.sqrt(np.bincount(row, values * values, rows.n_rows))
        return rounded(values / np.where(length > 0.0, length, 1.0)[row])

    write_binary(out, source, ASTRO_PH, tf_idf)


def make_covtype(source: Path, out: Path, scaled: Path | None) -> None:
    """The text as it is, and one whose columns are divided by their largest magnitude."""
    write_binary(out, source, FIRST_COVER, lambda block: values_of(block).astype(np.float32))
    if scaled is None:
        return
    largest: Float64Array = np.zeros(0)
    for block in TextRows(source):
        here = np.zeros(int(block.rows.indices.max(initial=-1)) + 1)
        np.maximum.at(here, block.rows.indices, np.abs(values_of(block)))
        width = max(len(here), len(largest))
        largest = np.maximum(np.pad(here, (0, width - len(here))), np.pad(largest, (0, width - len(largest))))
    scale = 1.0 / np.where(largest > 0.0, largest, 1.0)
    write_binary(
        scaled,
        source,
        FIRST_COVER,
        lambda block: rounded(values_of(block) * scale[block.rows.indices]),
    )


def rounded(values: Float64Array) -> Values:
    """Values with so few significant digits that their text is short; 0 stays 0."""
    magnitude = np.where(values == 0.0, 1.0, np.abs(values))
    unit = 10.0 ** (np.floor(np.log10(magnitude)) - (SIGNIFICANT_DIGITS - 1))
    return (np.round(values / unit) * unit).astype(np.float32)


def values_of(block: LabelledRows) -> Float64Array:
    """The values in float64, ones written out."""
    values = block.rows.values
    return np.ones(len(block.rows.indices)) if values is None else values.astype(np.float64)


def padded_sum(first: npt.NDArray[np.int64], second: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Sum of two vectors, the shorter one filled up with zeros."""
    total = np.zeros(max(len(first), len(second)), np.int64)
    total[: len(first)] += first
    total[: len(second)] += second
    return total


def write_binary(
    out: Path, source: Path, positive: tuple[int, ...], values: Callable[[LabelledRows], Values]
) -> None:
    """Write the rows of a text with new values, and 1 for the positive labels, -1 for the others."""

    def blocks() -> Iterator[LabelledRows]:
        for block in TextRows(source):
            labels = np.where(np.isin(block.labels, positive), 1.0, -1.0)
            yield LabelledRows(replace(block.rows, values=values(block)), labels)

    def write(file: BinaryIO) -> None:
        for block in blocks():
            file.write(format_rows(block))

    atomic_write(out, write)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("name", choices=("generated", "sequences", *SOURCES))
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", type=Path, help="folder with the data sets")
    parser.add_argument("--scaled", type=Path, help="covtype: the second text")
    parser.add_argument("--nonzeros", type=parse_size, default="60M", help="of generated text (%(default)s)")
    parser.add_argument("--rows", type=int, default=100_000, help="of sequences (%(default)s)")
    options = parser.parse_args()
    if options.name == "generated":
        make_generated(options.out, options.nonzeros)
        return
    if options.name == "sequences":
        make_sequences(options.out, options.rows)
        return
    if options.data is None:
        parser.error(f"{options.name} needs --data FOLDER")
    source = options.data / SOURCES[options.name]
    if options.name == "arxiv":
        make_arxiv(source, options.out)
    else:
        make_covtype(source, options.out, options.scaled)


if __name__ == "__main__":
    main()

"""Make text-like data in SVMlight format: a training and a test file, the same for the same seed.

Documents are bags of words: columns are drawn by a Zipf law and counted, values are tf-idf with five
significant digits, rows have length 1. The label is the sign of a sparse linear rule over the more frequent
words, and wrong for some rows.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import LabelledRows, RowBlock
from ooc_svm.system.files import atomic_write
from ooc_svm.system.memory import format_size, parse_size
from ooc_svm.text.writer import format_rows

Float64Array = npt.NDArray[np.float64]

BLOCK_ROWS = 4096
# A Zipf law that is flat for the most frequent words, as if stop words had been left out.
EXPONENT, FLATTENED = 1.1, 50
SIGNIFICANT_DIGITS = 5
# How many words the rule may use, and the share of them that it uses.
RULE_WORDS, RULE_SHARE = 1000, 0.3


@dataclass(frozen=True)
class Recipe:
    """What the data are made from.

    Attributes
    ----------
    seed : int
    cumulative : ndarray of float64, shape (features,)
        Probability of a column or one before it, by falling frequency.
    column : ndarray of int32, shape (features,)
        Number of the column with a rank.
    rank : ndarray of int64, shape (features,)
        The other way round.
    weights : ndarray of float64, shape (features,)
        The rule, by rank.
    idf : ndarray of float64, shape (features,)
        By rank.
    length : float
        Mean number of words of a row.
    noise : float
        Share of rows with the wrong label.
    """

    seed: int
    cumulative: Float64Array
    column: npt.NDArray[np.int32]
    rank: npt.NDArray[np.int64]
    weights: Float64Array
    idf: Float64Array
    length: float
    noise: float


def make_recipe(seed: int, features: int, length: float, noise: float) -> Recipe:
    """Draw the columns' frequencies, their numbers and the rule."""
    rng = np.random.default_rng([seed, 0])
    frequency = (np.arange(features) + FLATTENED) ** -EXPONENT
    cumulative = np.cumsum(frequency / frequency.sum())
    used = (np.arange(features) < RULE_WORDS) & (rng.random(features) < RULE_SHARE)
    weights = rng.standard_normal(features) * used
    idf = np.log(frequency[0] / frequency) + 1.0
    column = rng.permutation(features).astype(np.int32)
    return Recipe(seed, cumulative, column, np.argsort(column), weights, idf, length, noise)


def make_block(recipe: Recipe, number: int) -> LabelledRows:
    """Rows of one block; its own random numbers make it independent of all others."""
    rng = np.random.default_rng([recipe.seed, 1, number])
    features = len(recipe.cumulative)
    words = np.maximum(rng.lognormal(np.log(recipe.length) - 0.125, 0.5, BLOCK_ROWS).astype(np.int64), 1)
    rank = np.minimum(np.searchsorted(recipe.cumulative, rng.random(int(words.sum()))), features - 1)
    row = np.repeat(np.arange(BLOCK_ROWS), words)
    keys, counts = np.unique(row * features + recipe.column[rank], return_counts=True)
    row, column = np.divmod(keys, features)
    rank = recipe.rank[column]
    values = (1.0 + np.log(counts)) * recipe.idf[rank]
    values /= np.sqrt(np.bincount(row, values * values, BLOCK_ROWS))[row]
    scores = np.bincount(row, values * recipe.weights[rank], BLOCK_ROWS)
    labels = np.where(scores > 0, 1.0, -1.0)
    labels[rng.random(BLOCK_ROWS) < recipe.noise] *= -1.0
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=BLOCK_ROWS))])
    rows = RowBlock(number * BLOCK_ROWS, indptr.astype(np.int64), column.astype(np.int32), rounded(values))
    return LabelledRows(rows, labels)


def rounded(values: Float64Array) -> npt.NDArray[np.float32]:
    """Values with so many significant digits that their text is short."""
    unit = 10.0 ** (np.floor(np.log10(values)) - (SIGNIFICANT_DIGITS - 1))
    return (np.round(values / unit) * unit).astype(np.float32)


def main() -> None:
    """Write the two files."""
    arguments = _arguments()
    recipe = make_recipe(arguments.seed, arguments.features, arguments.length, arguments.noise)
    began = time.monotonic()
    numbers = iter(range(1 << 40))
    with ThreadPoolExecutor(2) as pool:
        for path, size in (
            (arguments.train, arguments.size * 9 // 10),
            (arguments.test, arguments.size // 10),
        ):
            atomic_write(path, lambda file, size=size: _fill(file.write, size, recipe, numbers, pool))
    written = arguments.train.stat().st_size + arguments.test.stat().st_size
    elapsed = time.monotonic() - began
    print(f"{format_size(written)} of text in {elapsed:.1f} s", file=sys.stderr)


def _fill(
    write: Callable[[bytes], object],
    size: int,
    recipe: Recipe,
    numbers: Iterator[int],
    pool: ThreadPoolExecutor,
) -> None:
    """Write pairs of blocks until there are at least `size` bytes."""
    done = 0
    while done < size:
        pair = [next(numbers), next(numbers)]
        for text in pool.map(lambda number: format_rows(make_block(recipe, number)), pair):
            write(text)
            done += len(text)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("train", type=Path, help="file for nine tenths of the size")
    parser.add_argument("test", type=Path, help="file for one tenth of it")
    least = (
        f"least bytes of text in all (%(default)s); each file grows by {2 * BLOCK_ROWS} rows at a time "
        "(12 MB with the default columns and words) until it has its part"
    )
    parser.add_argument("--size", type=parse_size, default="120MB", help=least)
    parser.add_argument("--features", type=int, default=1 << 18, help="columns (%(default)s)")
    parser.add_argument("--length", type=float, default=120.0, help="words of a row (%(default)s)")
    parser.add_argument("--noise", type=float, default=0.03, help="share of wrong labels (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""Make a store that is larger than memory, of the rows of scripts/make_data.py, without their text.

Run: python scripts/bench/large.py OUT --nonzeros 3.2e9

Columns are drawn by a power law. To train on it from disk, give the memory, and empty the cache of the
operating system before:

    ooc-svm train OUT -o model --memory 4GB
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from make_data import make_block, make_recipe

import ooc_svm
from ooc_svm.system.memory import format_size

AHEAD = 4  # Blocks that are made while one is written
NOISE, LENGTH = 0.03, 120.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--nonzeros", type=float, default=3.2e9, help="at least (%(default)g)")
    parser.add_argument("--features", type=int, default=1 << 22)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    recipe = make_recipe(arguments.seed, arguments.features, LENGTH, NOISE)
    began = time.monotonic()
    with (
        ThreadPoolExecutor(2) as pool,
        ooc_svm.StoreWriter(arguments.out, index_base=1, n_features=arguments.features, threads=2) as writer,
    ):
        made = [pool.submit(make_block, recipe, number) for number in range(AHEAD)]
        number = AHEAD
        while writer.n_nonzeros < arguments.nonzeros:
            writer.append(made.pop(0).result())
            made.append(pool.submit(make_block, recipe, number))
            number += 1
        writer.commit()
        size = f"{writer.n_rows:,} rows, {writer.n_nonzeros:,} nonzeros"
    stored = sum(path.stat().st_size for path in arguments.out.rglob("*") if path.is_file())
    print(f"{size}, {format_size(stored)} in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()

"""Quality and reads by `--bias` and `--scale`, with all other options at their defaults.

    python scripts/bench/defaults.py FOLDER [--only NAME ...] [--out FILE.json]

FOLDER holds the data sets of `SETS`; what is missing is left out. A set without a test file is split by a
hash of the line's number: a fifth is for testing. Classifiers show accuracy and macro F1, in percent,
regressions R2, in percent as well; then the reads of the data, with the one that finds the scale. A star
marks a run that was not certified within `--max-passes`.
"""

from __future__ import annotations

import argparse
import bz2
import json
import tempfile
import zlib
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import ooc_svm

TEST_SHARE = 5
BIASES, SCALES = ("none", "penalized", "free"), ("none", "maxabs")


class Set(NamedTuple):
    """A data set: its files, how it is trained, and lines and labels that are left out or made others."""

    name: str
    train: str
    test: str | None = None
    options: dict[str, Any] = {}  # noqa: RUF012
    most_lines: int = 1 << 62


SETS = (
    Set("a1a", "adult/a1a.bz2", "adult/a9a.t.bz2"),
    Set("a9a", "adult/a9a.bz2", "adult/a9a.t.bz2"),
    Set("w1a", "web/w1a.bz2", "web/w1a.t.bz2"),
    Set("w8a", "web/w8a.bz2"),
    Set("ijcnn1", "ijcnn1/ijcnn1.trn.bz2", "ijcnn1/ijcnn1.tst.bz2"),
    Set("covtype, class 1", "covtype/covtype.multiclass.bz2", options={"positive": 1}, most_lines=20_000),
    Set("covtype, 7 classes", "covtype/covtype.multiclass.bz2", most_lines=20_000),
    Set("connect-4, 3 classes", "nie/connect-4.svm.bz2"),
    Set("poker, 10 classes", "nie/poker.trn.svm.bz2"),
    Set("shuttle, 7 classes", "nie/shuttle.trn.svm.bz2", "nie/shuttle.tst.svm.bz2"),
    Set(
        "arxiv, astro-ph",
        "arxiv/arxiv.svm.bz2",
        options={"positive": [5, 6, 7, 8, 9, 10, 11]},
        most_lines=20_000,
    ),
    Set("scene, label 1", "multilabel/scene.mlabel.svm.bz2", options={"positive": 1}),
    Set("abalone", "regression/abalone.trn.bz2", options={"problem": "svr"}),
    Set("housing", "regression/housing_scale.bz2", options={"problem": "svr"}),
    Set("protein", "regression/protein.bz2", options={"problem": "svr"}),
)


def lines_of(path: Path, most: int) -> Iterator[str]:
    """The lines of a text; of several labels, whether 1 is one of them."""
    several = ".mlabel" in path.name
    with bz2.open(path, "rt") as file:
        for number, line in enumerate(file):
            if number == most:
                return
            if several:
                labels, _, rest = line.partition(" ")
                line = f"{int('1' in labels.split(','))} {rest}"
            yield line


def write_texts(data: Set, folder: Path, target: Path) -> tuple[Path, Path]:
    """Text to train on, and text to test with."""
    train, test = target / "train.svm", target / "test.svm"
    with train.open("w") as first, test.open("w") as second:
        for number, line in enumerate(lines_of(folder / data.train, data.most_lines)):
            tested = data.test is None and zlib.crc32(b"%d" % number) % TEST_SHARE == 0
            (second if tested else first).write(line)
        if data.test is not None:
            second.writelines(lines_of(folder / data.test, data.most_lines))
    return train, test


def quality(model: ooc_svm.Model, test: Path) -> dict[str, float]:
    """Accuracy and macro F1, or R2."""
    labels, found = [], []
    stream = ooc_svm.decision_scores(model, test)
    for block in stream:
        labels.append(block.labels)
        found.append(stream.decision.predictions(block.scores))
    y, z = np.concatenate(labels), np.concatenate(found)
    if model.is_regressor:
        return {"r2": 1 - float(np.mean((y - z) ** 2) / np.var(y))}
    if model.negative is not None and model.options.get("positive"):
        y = np.where(np.isin(y, model.options["positive"]), model.positive[0], model.negative)
    scores = []
    for label in np.union1d(y, z):
        both = np.sum((y == label) & (z == label))
        scores.append(2 * both / (np.sum(y == label) + np.sum(z == label)))
    return {"accuracy": float(np.mean(y == z)), "f1": float(np.mean(scores))}


def measure(data: Set, folder: Path, max_passes: int) -> list[dict[str, Any]]:
    """All runs of a set."""
    rows = []
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        train, test = write_texts(data, folder, Path(scratch))
        ooc_svm.convert(train, Path(scratch, "store"))
        for scale, bias in product(SCALES, BIASES):
            options = {"bias": bias, "scale": scale, "max_passes": max_passes, **data.options}
            model = ooc_svm.train(Path(scratch, "store"), **options)
            facts = {"reads": model.report["passes"], "converged": model.report["converged"]}
            rows.append({"data": data.name, "bias": bias, "scale": scale, **quality(model, test), **facts})
    return rows


def cell(row: dict[str, Any]) -> str:
    """A run in the table."""
    numbers = " / ".join(f"{100 * row[name]:.1f}" for name in ("accuracy", "f1", "r2") if name in row)
    return f"{numbers} ({row['reads']}{'' if row['converged'] else '*'})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", action="append", metavar="NAME")
    parser.add_argument("--max-passes", type=int, default=40)
    parser.add_argument("--out", type=Path, help="Also write all numbers as JSON.")
    options = parser.parse_args()
    print("| data | " + " | ".join(f"{scale}, {bias}" for scale, bias in product(SCALES, BIASES)) + " |")
    print("|---" * (1 + len(SCALES) * len(BIASES)) + "|", flush=True)
    everything = []
    for data in SETS:
        wanted = options.only is None or data.name in options.only
        if not wanted or not (options.folder / data.train).exists():
            continue
        rows = measure(data, options.folder, options.max_passes)
        everything += rows
        print(f"| {data.name} | " + " | ".join(map(cell, rows)) + " |", flush=True)
        if options.out is not None:
            options.out.write_text(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main()

"""What the experiments of the papers share: data, measured runs, LIBLINEAR, tables in Markdown.

Times are CPU seconds of this process, system time included, with one thread. What is compiled is compiled
before, on a few rows. Reading text takes no part in them.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import ooc_svm
from ooc_svm.store import open_store

FEW_ROWS = 400  # Trained on before anything is timed


def options_of(description: str | None, parts: Iterable[str], quick_rows: int) -> argparse.ArgumentParser:
    """The options of an experiment with several parts."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", choices=list(parts), default=list(parts))
    parser.add_argument("--quick", action="store_true", help=f"the first {quick_rows:,} rows of each set")
    parser.add_argument("--rows", type=int, metavar="N", help="so many rows of each set at most")
    parser.add_argument("--stores", type=Path, help="folder that keeps the stores made of the texts")
    parser.add_argument("--pictures", type=Path, help="folder for pictures of the figures")
    return parser


@dataclass(frozen=True)
class Data:
    """Rows (float32) with their labels."""

    name: str
    rows: sparse.csr_matrix
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def first(self, n: int) -> Data:
        """The first n rows; all of them if there are fewer."""
        return replace(self, rows=self.rows[:n], labels=self.labels[:n])

    def after(self, n: int) -> Data:
        """All rows but the first n."""
        return replace(self, rows=self.rows[n:], labels=self.labels[n:])

    def against_rest(self, *positive: float) -> Data:
        """The same rows with the label 1 for these classes and -1 for the others."""
        return replace(self, labels=np.where(np.isin(self.labels, positive), 1.0, -1.0))

    def shuffled(self) -> Data:
        """The same rows in a random order, always the same one."""
        order = np.random.default_rng(0).permutation(len(self))
        return replace(self, rows=self.rows[order], labels=self.labels[order])

    def scaled(self) -> Data:
        """Columns divided by their largest magnitude."""
        largest = abs(self.rows).max(axis=0).toarray()[0]
        factors = sparse.diags_array(1.0 / np.where(largest > 0.0, largest, 1.0))
        return replace(self, rows=_with_small_ids(self.rows @ factors))

    def tf_idf(self) -> Data:
        """Counts of words as rows of length 1: (1 + log count) log((n + 1) / (document frequency + 1))."""
        rows = self.rows.astype(np.float64)
        frequency = np.bincount(rows.indices, minlength=rows.shape[1])
        rows.data = (1.0 + np.log(rows.data)) * np.log((len(self) + 1) / (frequency + 1))[rows.indices]
        lengths = np.sqrt(rows.multiply(rows).sum(axis=1)).A1
        factors = sparse.diags_array(1.0 / np.where(lengths > 0.0, lengths, 1.0))
        return replace(self, rows=_with_small_ids(factors @ rows))


def _with_small_ids(rows: Any) -> sparse.csr_matrix:
    """float32 values and the 32-bit ids that LIBLINEAR takes."""
    rows = sparse.csr_matrix(rows, dtype=np.float32)
    rows.indices, rows.indptr = rows.indices.astype(np.int32), rows.indptr.astype(np.int32)
    return rows


def load(name: str, texts: Sequence[Path], stores: Path) -> Data | None:
    """Rows of SVMlight text of one or more files; None if one is missing.

    The store that is made of a text is kept in the folder ``stores`` and taken the next time.
    """
    parts = []
    for text in texts:
        store = stores / f"{text.name}.zarr"
        if not store.exists():
            if not text.exists():
                return None
            ooc_svm.convert(text, store)
        parts.append(_read(store))
    width = max(rows.shape[1] for rows, _ in parts)
    for rows, _ in parts:
        rows.resize(rows.shape[0], width)
    stacked = _with_small_ids(sparse.vstack([rows for rows, _ in parts]))
    return Data(name, stacked, np.concatenate([labels for _, labels in parts]))


def _read(path: Path) -> tuple[sparse.csr_matrix, np.ndarray]:
    """The rows and labels of a store."""
    store, blocks = open_store(path), []
    for index in range(len(store.blocks)):
        block = store.read_block(index)
        values = np.ones(len(block.indices), np.float32) if block.values is None else block.values
        shape = (block.n_rows, store.n_features)
        blocks.append(sparse.csr_matrix((values, block.indices, block.indptr), shape))
    return sparse.vstack(blocks, format="csr"), store.read_labels(0, store.n_rows)


@dataclass(frozen=True)
class Point:
    """What was known after a read: CPU seconds since the run began, and the bounds."""

    seconds: float
    primal: float
    dual: float


@dataclass(frozen=True)
class Run:
    """A model, the CPU seconds that it took, and what was known after each read."""

    model: ooc_svm.Model
    seconds: float
    points: list[Point]

    @property
    def report(self) -> dict[str, Any]:
        """The report of the only model of the run."""
        return self.model.report["models"][0]

    @property
    def reads(self) -> int:
        """Reads of the data."""
        return int(self.model.report["passes"])

    def within(self, optimum: float, share: float) -> tuple[float, int] | None:
        """CPU seconds and reads until P was within this share of the optimum; None if it never was."""
        for number, point in enumerate(self.points, start=1):
            if point.primal <= (1.0 + share) * optimum:
                return point.seconds, number
        return None


_COMPILED: set[tuple[Any, ...]] = set()


def trained(data: Data, **options: Any) -> Run:
    """One model of the data, on one thread; tells of it on standard error."""
    kinds = (str(options.get(name)) for name in ("solver", "problem", "loss", "bias", "kernel"))
    form = (*kinds, bool((data.rows.data == 1.0).all()))
    if form not in _COMPILED:
        _COMPILED.add(form)
        _trained(few_of_each(data), **{**options, "max_passes": 8})
    run = _trained(data, **options)
    made = {name: value for name, value in options.items() if name in ("solver", "problem", "loss", "C")}
    note = f"{data.name}, {len(data):,} rows, {made}: {run.reads} reads, {run.seconds:.2f} s"
    print(note, file=sys.stderr, flush=True)
    return run


def few_of_each(data: Data) -> Data:
    """A few rows of each label."""
    kept = np.concatenate(
        [np.flatnonzero(data.labels == label)[:FEW_ROWS] for label in np.unique(data.labels)]
    )
    return replace(data, rows=data.rows[kept], labels=data.labels[kept])


def _trained(data: Data, **options: Any) -> Run:
    points: list[Point] = []
    began = time.process_time()

    def note(progress: ooc_svm.Progress) -> None:
        if progress.kind == "pass":
            points.append(Point(time.process_time() - began, progress.primal, progress.dual))

    model = ooc_svm.train(data.rows, data.labels, threads=1, progress=note, **options)
    return Run(model, time.process_time() - began, points)


def objective(data: Data, w: np.ndarray, b: float, C: float, p: float = 1.0) -> float:
    """``1/2 |w|^2 + C sum_i max(0, 1 - y_i (w.x_i + b))^p``."""
    slack = np.maximum(0.0, 1.0 - data.labels * (data.rows.astype(np.float64) @ w + b))
    return float(0.5 * w @ w + C * (slack**p).sum())


@dataclass(frozen=True)
class Liblinear:
    """A solver of LIBLINEAR with what it does about a bias."""

    solver: int  # Its option -s: 3 and 1 are dual coordinate descent, 2 is Newton's method on the primal
    bias: float = -1.0  # Its option -B: the value of a feature added to each row; -1 for none
    free: bool = False  # Its option -R: the weight of that feature is not penalised

    def train(self, data: Data, C: float, tolerance: float) -> tuple[np.ndarray, float, float]:
        """Weights, bias and CPU seconds, without those for the conversion of the rows."""
        from liblinear.liblinear import parameter, problem
        from liblinear.liblinearutil import train

        bias = f"-B {self.bias!r}{' -R' if self.free else ''}"
        options = parameter(f"-s {self.solver} -c {C!r} -e {tolerance!r} {bias} -q")
        task = problem(data.labels, data.rows.astype(np.float64), self.bias)
        began = time.process_time()
        model = train(task, options)
        seconds = time.process_time() - began
        # The weights are those of the label that comes first in the data.
        sign = float(model.get_labels()[0])
        weights, b = model.get_decfun()
        return sign * np.array(weights[: data.rows.shape[1]]), sign * b, seconds


def growth(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The power k of a fit of ``values ~ sizes^k``."""
    return float(np.polyfit(np.log(sizes), np.log(np.maximum(values, 1e-3)), 1)[0])


def accuracy(model: ooc_svm.Model, data: Data) -> float:
    """Percent of the rows with the right label."""
    return 100.0 * ooc_svm.evaluate(model, data.rows, "accuracy", labels=data.labels, threads=1)["accuracy"]


def break_even(model: ooc_svm.Model, data: Data) -> float:
    """Percent of precision where it equals recall."""
    return 100.0 * ooc_svm.evaluate(model, data.rows, "prbep", labels=data.labels, threads=1)["prbep"]


def machine() -> str:
    """One line: what the figures were measured with."""
    names = ("numpy", "numba", "liblinear-official")
    versions = [f"{name} {_version(name)}" for name in names]
    cpu = _processor()
    return f"ooc-svm {_version('ooc-svm')}, Python {platform.python_version()}, {', '.join(versions)}; {cpu}"


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def _processor() -> str:
    """The name of the processor, as far as the system tells."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table in Markdown, line by line as its rows come; columns but the first are numbers."""
    print("| " + " | ".join(header) + " |")
    print("|---" + "|--:" * (len(header) - 1) + "|", flush=True)
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)
    print(flush=True)


def number(value: float | None, digits: int = 2) -> str:
    """A number for a table, in as many significant digits or whole; a dash for none."""
    if value is None or not np.isfinite(value):
        return "-"
    return f"{value:.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"

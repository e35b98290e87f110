"""The tables of Platt, Sequential Minimal Optimization (1998), section 3, with the solver smo.

    scripts/paper/platt FOLDER [--only NAME ...] [--largest ROWS] [--exact 1e-5]

FOLDER holds adult/a1a.bz2 ... a9a.bz2 and web/w1a.bz2 ... w8a.bz2 (the LIBSVM collection); what is missing is
left out. The artificial sets are made as the report describes them. Of each run: CPU seconds on one thread to
a certified gap of 1e-3, reads, steps, and support vectors, those of the report in brackets. With ``--exact``
each set of real data is trained to that gap as well, for the threshold, which a gap of 1e-3 leaves open: the
report's b has the other sign. A fit of ``seconds ~ n^p`` over the sizes closes each table.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from experiment import Data, Run, growth, load, machine, trained
from scipy import sparse

GAUSSIAN = {"kernel": "rbf", "gamma": 0.05}  # A variance of 10
N_FEATURES, SHARE = 300, 0.1  # Of the artificial sets, and the share of ones in them


@dataclass(frozen=True)
class Table:
    """One table: its data, its options, what the report found."""

    C: float
    power: float  # The report's exponent
    # By set: support vectors at no bound and at C, and the threshold, where it is known
    found: dict[str, tuple[float, float, float | None]]
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def sets(self) -> list[str]:
        """Names of the sets, by size."""
        return list(self.found)


TABLES = {
    "adult-linear": Table(
        0.05,
        1.9,
        {
            "adult/a1a": (42, 633, 0.884999),
            "adult/a2a": (47, 930, 1.12781),
            "adult/a3a": (57, 1210, 1.17302),
            "adult/a4a": (63, 1791, 1.24946),
            "adult/a8a": (88, 8209, 1.39797),
            "adult/a9a": (149, 11558, 1.41408),
        },
    ),
    "adult-gaussian": Table(
        1.0,
        2.1,
        {
            "adult/a1a": (106, 585, 0.428453),
            "adult/a2a": (165, 845, 0.28563),
            "adult/a3a": (181, 1115, 0.243414),
            "adult/a4a": (238, 1650, 0.2599),
            "adult/a8a": (813, 7526, 0.302583),
            "adult/a9a": (1011, 10663, 0.371348),
        },
        GAUSSIAN,
    ),
    "web-linear": Table(
        1.0,
        1.6,
        {
            "web/w1a": (123, 47, 1.08553),
            "web/w7a": (273, 698, 1.02946),
            "web/w8a": (315, 1408, 1.03446),
        },
    ),
    "web-gaussian": Table(
        5.0,
        1.7,
        {
            "web/w1a": (439, 43, 0.177057),
            "web/w7a": (2300, 419, -0.242451),
            "web/w8a": (3720, 764, -0.3587),
        },
        GAUSSIAN,
    ),
    "separable": Table(
        100.0,
        1.0,
        {
            "separable 1000": (275, 0, None),
            "separable 2000": (286, 0, None),
            "separable 5000": (299, 0, None),
            "separable 10000": (309, 0, None),
            "separable 20000": (329, 0, None),
        },
    ),
    "noise-linear": Table(
        0.1,
        1.8,
        {
            "noise 500": (162, 263, None),
            "noise 1000": (220, 632, None),
            "noise 2000": (264, 1476, None),
            "noise 5000": (283, 4201, None),
            "noise 10000": (293, 9034, None),
        },
    ),
    "noise-gaussian": Table(
        0.1,
        2.2,
        {
            "noise 500": (22, 476, None),
            "noise 1000": (82, 888, None),
            "noise 2000": (75, 1905, None),
            "noise 5000": (30, 4942, None),
            "noise 10000": (48, 9897, None),
        },
        GAUSSIAN,
    ),
}
ARTIFICIAL = ("separable", "noise-linear", "noise-gaussian")


def make(name: str) -> Data:
    """An artificial set: random binary rows, separable by a plane with a margin, or of random labels."""
    kind, size = name.split()
    rng = np.random.default_rng(0)
    rows, labels, n = [], [], 0
    w = rng.uniform(-1.0, 1.0, N_FEATURES)
    while n < int(size):
        x = rng.random((4096, N_FEATURES)) < SHARE
        score = x @ w
        kept = np.abs(score) > 1.0 if kind == "separable" else np.ones(len(x), bool)
        rows.append(x[kept])
        labels.append(np.sign(score[kept]) if kind == "separable" else rng.choice([-1.0, 1.0], len(x)))
        n += int(kept.sum())
    matrix = sparse.csr_matrix(np.concatenate(rows)[: int(size)].astype(np.float32))
    return Data(name, matrix, np.concatenate(labels)[: int(size)])


def stored_densely(data: Data) -> Data:
    """The same rows with a stored value for each column: zeros are values too small to matter."""
    dense = data.rows.toarray()
    return replace(data, rows=sparse.csr_matrix(np.where(dense == 0.0, np.float32(1e-30), dense)))


def find(name: str, folder: Path, stores: Path) -> Data | None:
    """A set; None if its file is missing."""
    return load(name, [folder / f"{name}.bz2"], stores) if "/" in name else make(name)


def by_smo(data: Data, table: Table, **options: Any) -> Run:
    """A run with the options of a table."""
    return trained(data, **{"solver": "smo", "bias": "free", "C": table.C, **table.options, **options})


def lines(table: Table, arguments: argparse.Namespace, stores: Path) -> Iterator[str]:
    """The lines of a table, in Markdown."""
    has_threshold = any(b is not None for *_, b in table.found.values())
    last = " b (report) | gap |" if has_threshold and arguments.exact else " seconds, stored densely |"
    yield f"| set | rows | CPU s | reads | steps | not bound | bound |{last}"
    yield "|---|--:|--:|--:|--:|--:|--:|" + "--:|" * (last.count("|"))
    sizes, seconds = [], []
    for name in table.sets:
        data = find(name, arguments.folder, stores)
        if data is None or len(data) > arguments.largest:
            continue
        run = by_smo(data, table)
        row, own = run.report, run.report
        free, bound, b = table.found[name]
        more = ""
        if b is not None and arguments.exact:
            own = by_smo(data, table, tol=arguments.exact).report
            more = f" {-own['bias']:.4f} ({b:.4f}) | {own['relative_gap']:.1e} |"
        elif b is None:
            more = f" {by_smo(stored_densely(data), table).seconds:.2f} |" if arguments.dense else " |"
        support = f"{own['non_bound_support']:.0f} ({free}) | {own['bound_support']:.0f} ({bound})"
        steps = f"{row['steps']:.0f}"
        yield f"| {name} | {len(data)} | {run.seconds:.2f} | {run.reads} | {steps} | {support} |{more}"
        sizes.append(len(data))
        seconds.append(run.seconds)
    if len(sizes) > 1:
        power = growth(sizes, seconds)
        yield f"\nCPU seconds grow as n^{power:.1f} here, as n^{table.power} in the report."


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--largest", type=int, default=10**9, metavar="ROWS", help="leave out larger sets")
    parser.add_argument("--exact", type=float, metavar="GAP", help="train to this gap as well, for b")
    parser.add_argument("--dense", action="store_true", help="time the artificial sets stored densely, too")
    arguments = parser.parse_args()
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory() as stores:
        for name in arguments.only:
            table = TABLES[name]
            print(f"\n## {name}, C = {table.C:g}\n", flush=True)
            for line in lines(table, arguments, Path(stores)):
                print(line, flush=True)


if __name__ == "__main__":
    main()

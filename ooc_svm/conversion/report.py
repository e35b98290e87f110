"""What a conversion has done, and what in the data may spoil training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ooc_svm.store.label_summary import LabelSummary

# Runs of equal labels fewer than this share of what random order has: the rows are sorted.
_SORTED_SHARE = 0.1
_FEWEST_ROWS_TO_JUDGE = 1000


@dataclass(frozen=True)
class ConvertReport:
    """What a conversion has done.

    Attributes
    ----------
    path : Path
        The store.
    id : str
        The `Store.id` of it.
    rows, features, nonzeros : int
    value_type : {"ones", "float32", "float64"}
    labels : LabelSummary
    label_runs : int
        Runs of equal labels, in the order of the store.
    lines, blank_lines, comment_lines, bad_lines : int
        Lines of the text, all of them and those without a row; 0 for a matrix.
    explicit_zeros : int
        Values 0 in the source; they are not stored.
    bytes_in : int
        Size of the source: files as they are on disk, arrays of a matrix.
    bytes_out : int
        Size of the store's chunks.
    seconds : float
        From the call to the store on the disk.
    rejected : Path or None
        The file with the bad lines, if there are any.
    warnings : list of str
        What may spoil training.
    """

    path: Path
    id: str
    rows: int
    features: int
    nonzeros: int
    value_type: Literal["ones", "float32", "float64"]
    labels: LabelSummary
    label_runs: int
    lines: int
    blank_lines: int
    comment_lines: int
    bad_lines: int
    explicit_zeros: int
    bytes_in: int
    bytes_out: int
    seconds: float
    rejected: Path | None = None
    warnings: list[str] = field(default_factory=list)


def find_warnings(report: ConvertReport) -> Iterator[str]:
    """Sentences about a finished conversion."""
    if report.bad_lines:
        yield f"{report.bad_lines} bad lines were left out; they are in {report.rejected}"
    if report.explicit_zeros:
        yield f"{report.explicit_zeros} explicit zeros were dropped; they count for the number of columns"
    counts = report.labels.counts
    if counts is None:
        return
    if len(counts) == 1:
        yield f"all rows have the label {next(iter(counts)):.17g}; classification needs two labels"
        return
    n = report.rows
    by_chance = 1 + (n - 1) * (1 - sum((count / n) ** 2 for count in counts.values()))
    if n >= _FEWEST_ROWS_TO_JUDGE and report.label_runs < _SORTED_SHARE * by_chance:
        yield (
            f"the labels come in {report.label_runs} runs where random order has about {by_chance:.0f}: "
            "training on sorted rows needs more passes; convert with --shuffle"
        )

"""What a conversion reports: its progress, what it has done, and what in the data may spoil training."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from ooc_svm.data.label_sets import LabelSets
from ooc_svm.errors import parameter, shown
from ooc_svm.store.label_summary import LabelSummary, runs_by_chance
from ooc_svm.store.manifest import StoreMetadata
from ooc_svm.system.address import AnyPath
from ooc_svm.text.reader import TextCounts

if TYPE_CHECKING:
    from ooc_svm.conversion.spill import WeightedRows

Progress = Callable[[int, int | None, int], None]


@dataclass
class Meter:
    """Counts what was read and written, and reports it to `progress` (`ooc_svm.conversion.convert.convert`).

    `twice`: rows are read and then written; a byte counts half each time. ``total`` is the size of the source
    in bytes, where it is known; ``started`` is on the monotonic clock.
    """

    progress: Progress | None
    twice: bool
    total: int | None = None
    bytes_in: int = 0
    rows: int = 0
    started: float = field(default_factory=time.monotonic)

    def counted(self, blocks: Iterable[WeightedRows]) -> Iterator[WeightedRows]:
        """The same rows, counted as they are read."""
        for labelled, weights in blocks:
            self.rows += labelled.rows.n_rows
            yield labelled, weights

    def read(self, n_bytes: int) -> None:
        """Report that `n_bytes` bytes of the source were read so far."""
        self.bytes_in = n_bytes
        if self.progress is not None:
            self.progress(n_bytes // 2 if self.twice else n_bytes, self.total, self.rows)

    def written(self, done: int, of: int) -> None:
        """Report that, after all was read, ``done / of`` of it was written."""
        if self.progress is not None:
            read = self.bytes_in // 2
            self.progress(read + (self.bytes_in - read) * done // max(of, 1), self.bytes_in, self.rows)


@dataclass(frozen=True)
class ConvertReport:
    """What a conversion has done.

    Attributes
    ----------
    path : Path
        The store.
    id : str
        Its `Store.id`; empty where the store is in memory only.
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
        Size of the store's chunks, as far as they are written.
    seconds : float
        Time from the call to the store, on the disk or in memory.
    rejected : Path or None
        The file with the bad lines, if there are any.
    label_names : tuple of str or None
        Where the labels are names: a label is the place of its name here.
    label_sets : bool
        Whether these are names of sets of labels.
    warnings : list of str
        What may spoil training.
    columns : tuple of str
        Columns of cells that were kept, of AnnData; its `id`, `labels` and `label_runs` are empty: they
        depend on the column that is taken for the labels.
    """

    path: AnyPath
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
    rejected: AnyPath | None = None
    label_names: tuple[str, ...] | None = None
    warnings: list[str] = field(default_factory=list)
    columns: tuple[str, ...] = ()
    label_sets: bool = False


def make_report(
    written: StoreMetadata, counts: TextCounts, meter: Meter, rejected: AnyPath | None
) -> ConvertReport:
    """The report of a conversion that has just ended."""
    report = ConvertReport(
        path=written.path,
        id=written.id,
        rows=written.n_rows,
        features=written.n_features,
        nonzeros=written.n_nonzeros,
        value_type=written.value_type,
        labels=written.labels,
        label_runs=written.label_runs,
        lines=counts.lines,
        blank_lines=counts.blank_lines,
        comment_lines=counts.comment_lines,
        bad_lines=counts.bad_lines,
        explicit_zeros=counts.explicit_zeros,
        bytes_in=meter.bytes_in,
        bytes_out=written.n_bytes,
        seconds=time.monotonic() - meter.started,
        rejected=rejected,
        label_names=written.label_names,
        label_sets=written.label_sets,
    )
    report.warnings.extend(find_warnings(report))
    return report


def dropped_zeros(count: int, value_type: str) -> str:
    """What values became of that are 0 as a store has them."""
    dropped = "1 explicit zero was dropped" if count == 1 else f"{count} explicit zeros were dropped"
    if value_type == "float64":
        return dropped
    return f"{dropped}, with what is too small for float32 ({parameter('dtype', 'float64')} keeps that)"


def find_warnings(report: ConvertReport) -> Iterator[str]:
    """Sentences about a finished conversion."""
    if report.bad_lines:
        one = report.bad_lines == 1
        left_out = "1 bad line was left out" if one else f"{report.bad_lines} bad lines were left out"
        those = "it is" if one else "they are"
        where = report.rejected and f"{those} in {report.rejected}"
        keep = f"keep the store ({parameter('store')}), and {those} kept next to it"
        yield f"{left_out}; {where or keep}"
    if report.explicit_zeros:
        dropped = dropped_zeros(report.explicit_zeros, report.value_type)
        yield f"{dropped}; they count for the number of columns"
    counts = report.labels.counts
    if counts is None:
        return
    if report.label_sets:
        yield from _about_sets(report)
    elif len(counts) == 1:
        [label] = counts
        text = f"{label:.17g}" if report.label_names is None else shown(report.label_names[int(label)])
        yield f"all rows have the label {text}; classification needs two labels"
        return
    by_chance = runs_by_chance(counts, report.label_runs)
    if by_chance is not None:
        yield (
            f"the labels come in {report.label_runs} runs where random order has about {by_chance:.0f}: "
            f"training on sorted rows needs more passes; convert with {parameter('shuffle', 0)}"
        )


def _about_sets(report: ConvertReport) -> Iterator[str]:
    """Sentences about labels that say nothing: those of all rows, or none at all."""
    sets = LabelSets.of(report.label_names or (), str(report.path))
    everywhere = np.flatnonzero(sets.rows(report.labels.counts or {}) == report.rows).tolist()
    if not sets.labels:
        yield "no row has a label; there is nothing to be trained"
    elif everywhere:
        named = ", ".join(shown(sets.labels[k]) for k in everywhere[:10])
        yield f"all rows have the label {named}: nothing can be learned of it; leave it out of the text"

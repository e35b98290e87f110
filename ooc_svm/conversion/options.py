"""A conversion as it was asked for, and what every kind of it does: options, progress, commit, report."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ooc_svm.conversion.plan import ConversionPlan, plan_conversion
from ooc_svm.conversion.report import ConvertReport, find_warnings
from ooc_svm.errors import UsageError
from ooc_svm.store.manifest import StoreMetadata
from ooc_svm.store.parallel_writer import ParallelWriter
from ooc_svm.store.writer import StoreWriter
from ooc_svm.system.files import storage_errors
from ooc_svm.system.folders import Scratch
from ooc_svm.system.malloc import return_freed_memory
from ooc_svm.system.memory import memory_budget
from ooc_svm.text.compression import window_bytes
from ooc_svm.text.reader import Input, SourceFacts, TextCounts

Progress = Callable[[int, int | None, int], None]
Writer = TypeVar("Writer", StoreWriter, ParallelWriter)

_ADVICE = "free some space or check the disk, then run again"


@dataclass
class Meter:
    """Counts what was read, and tells who wants to know.

    Parameters
    ----------
    progress : callable or None
        See `ooc_svm.conversion.convert.convert`.
    twice : bool
        Whether rows are read and then written, so that the bytes count twice.
    """

    progress: Progress | None
    twice: bool
    total: int | None = None
    bytes_in: int = 0
    rows: int = 0

    def read(self, n_bytes: int) -> None:
        """So many bytes of the source were read."""
        self.bytes_in = n_bytes
        if self.progress is not None:
            total = self.total if self.total is None or not self.twice else 2 * self.total
            self.progress(n_bytes, total, self.rows)

    def written(self, done: int, of: int) -> None:
        """After all was read, this part of it was written."""
        if self.progress is not None:
            self.progress(self.bytes_in + self.bytes_in * done // max(of, 1), 2 * self.bytes_in, self.rows)


@dataclass(frozen=True)
class Request:
    """The options that all conversions have in common.

    Raises
    ------
    UsageError
        A value that is not possible.
    """

    output: Path
    index_base: int
    features: int | None
    dtype: str
    overwrite: bool
    shuffle: int | None
    group: bool
    started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        if self.shuffle is not None and not 0 <= self.shuffle < 2**64:
            raise UsageError(f"the seed of the shuffle is {self.shuffle}: from 0 to 2^64 - 1")
        if self.shuffle is not None and self.group:
            raise UsageError("--shuffle and --group are two orders of the rows: choose one")
        if self.dtype not in ("float32", "float64"):
            raise UsageError(f"dtype is {self.dtype!r:.80}: float32 or float64")

    def plan(
        self, threads: int | None, memory: str | int | None, inputs: Sequence[Input] = ()
    ) -> ConversionPlan:
        """Divide the memory for so many threads that parse; None is as many as may be used."""
        count = count_threads(threads)
        window = max(map(window_bytes, inputs), default=0)
        value_bytes = np.dtype(self.dtype).itemsize
        budget = memory_budget(memory)
        plan = plan_conversion(budget, count, value_bytes, reorder=self.reorders, window=window)
        return_freed_memory()
        return plan

    @property
    def reorders(self) -> bool:
        """Whether rows are written in another order than they are read."""
        return self.group or self.shuffle is not None

    @property
    def rejected(self) -> Path:
        """Where bad lines go that are skipped."""
        return self.output.with_name(f"{self.output.name}.rejected")

    @contextmanager
    def writing(self, kind: type[Writer], scratch: Scratch, threads: int) -> Iterator[Writer]:
        """Hold the output and the scratch folder; what is not committed is removed."""
        writer = kind(
            self.output,
            dtype=self.dtype,
            index_base=self.index_base,
            n_features=self.features,
            overwrite=self.overwrite,
            threads=threads,
        )
        with writer, storage_errors("writing", self.output, _ADVICE), scratch:
            yield writer

    def provenance(self, sources: list[dict[str, Any]], counts: dict[str, int]) -> dict[str, Any]:
        """Where the rows came from, as the manifest keeps it; only `created` differs between two runs."""
        names = ("index_base", "features", "dtype", "shuffle", "group")
        options = {name: getattr(self, name) for name in names}
        return {
            "sources": sources,
            "options": options,
            "counts": counts,
            "version": version("ooc-svm"),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }

    def commit_text(
        self,
        writer: StoreWriter | ParallelWriter,
        counts: TextCounts,
        sources: Sequence[SourceFacts],
        reject_file: Path | None,
        bytes_in: int,
    ) -> ConvertReport:
        """Put the store of a text, and the lines of it that were bad, in their places."""
        rejected: Path | None = None
        if reject_file is not None:
            rejected = _publish_rejected(reject_file, self.rejected, counts.bad_lines)
        try:
            provenance = self.provenance([asdict(source) for source in sources], asdict(counts))
            written = writer.commit(n_features=counts.n_features, provenance=provenance)
        except BaseException:
            if rejected is not None:
                rejected.unlink(missing_ok=True)
            raise
        return self.report(written, counts, bytes_in, rejected)

    def report(
        self, written: StoreMetadata, counts: TextCounts, bytes_in: int, rejected: Path | None = None
    ) -> ConvertReport:
        """What was done."""
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
            bytes_in=bytes_in,
            bytes_out=written.n_bytes,
            seconds=time.monotonic() - self.started,
            rejected=rejected,
        )
        report.warnings.extend(find_warnings(report))
        return report


def count_threads(threads: int | None) -> int:
    """So many threads as asked for, else as many as processors may be used."""
    if threads is not None and threads < 1:
        raise UsageError(f"threads is {threads}: at least 1")
    return len(os.sched_getaffinity(0)) if threads is None else threads


def check_rejected(target: Path, names: Sequence[Input]) -> None:
    """Fail before anything is read where the bad lines cannot go to their place."""
    if not os.path.lexists(target):
        return
    if not stat.S_ISREG(os.lstat(target).st_mode):
        raise UsageError(f"{target} is no regular file, but the bad lines go there: move it away")
    if any(os.path.exists(name) and os.path.samefile(name, target) for name in names):
        raise UsageError(f"{target} is an input, but the bad lines go there: rename it")


def _publish_rejected(reject_file: Path, target: Path, n_lines: int) -> Path | None:
    """Put the bad lines beside the store that is about to be committed; None if there are none."""
    if n_lines == 0:
        target.unlink(missing_ok=True)
        return None
    with open(reject_file, "rb") as file:
        os.fsync(file.fileno())
    os.replace(reject_file, target)
    return target

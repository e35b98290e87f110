"""Conversion of text on a cluster: the same store, bit for bit, as on one machine.

The text is cut into parts, and read twice. First every part is read by somebody: what is counted tells where
its rows and elements are in the whole data, and what stands beside the elements goes to one place, in order.
Then everybody knows which chunks of the elements are whose; whoever writes some reads the parts with their
elements again. Nobody knows the line numbers of a part before all parts before it were read: where something
is wrong with one, it is read once more when they are known.
"""

from __future__ import annotations

import shutil
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from ooc_svm.cluster.connection import Cluster, Worker, connect
from ooc_svm.cluster.tasks import run_all
from ooc_svm.conversion.cluster_tasks import PartFacts, read_columns, scan_part, write_run
from ooc_svm.conversion.options import Meter, Progress, Request, count_threads
from ooc_svm.conversion.plan import ConversionPlan
from ooc_svm.conversion.report import ConvertReport
from ooc_svm.conversion.text import TextOptions
from ooc_svm.errors import MemoryBudgetError, UsageError
from ooc_svm.store.layout import chunk_count
from ooc_svm.store.parallel_writer import ChunkRun, ParallelWriter
from ooc_svm.system.folders import Scratch
from ooc_svm.system.memory import INTERPRETER_BYTES, parse_size
from ooc_svm.text.reader import Input, TextCounts, TextPart, TextStart, require_rows
from ooc_svm.text.split import CutText, cut_text, part_bytes
from ooc_svm.text.svmlight import QID_UNKNOWN

# The outline is written here while the workers read.
_WRITE_THREADS = 2


def convert_on_cluster(
    inputs: Sequence[Input],
    request: Request,
    *,
    bad_lines: Literal["stop", "skip"],
    max_bad_lines: int | None,
    threads: int | None,
    memory: str | int | None,
    scheduler: str | None,
    insecure: bool,
    progress: Progress | None,
) -> ConvertReport:
    """Convert text on a cluster; parameters and errors are those of `ooc_svm.conversion.convert.convert`."""
    if request.reorders:
        option = "--group" if request.group else "--shuffle"
        raise UsageError(f"{option} needs all rows in one process: leave it out, or leave out --engine dask")
    count = count_threads(threads)
    text = cut_text(inputs, count)
    scratch = Scratch(request.output)
    with (
        request.writing(ParallelWriter, scratch, _WRITE_THREADS) as writer,
        connect(
            scheduler,
            workers=count,
            memory=None if memory is None else parse_size(memory),
            insecure=insecure,
        ) as cluster,
    ):
        workers = cluster.workers()
        if scheduler is not None:
            text = cut_text(inputs, sum(worker.threads for worker in workers))
        cluster.require_visible(writer.folder, *(Path(part.path) for part in text.parts))
        plan = _plan(request, workers, inputs)
        options = TextOptions(
            request.index_base,
            request.dtype,
            request.features,
            bad_lines,
            max_bad_lines,
            plan.block_bytes,
            plan.max_line_bytes,
        )
        conversion = _Conversion(cluster, options, text, writer, scratch.make(), progress)
        conversion.scan()
        require_rows(conversion.total.rows, [source.name for source in text.sources])
        reject_file = conversion.gather_rejected() if bad_lines == "skip" else None
        conversion.write()
        return request.commit_text(writer, conversion.total, text.sources, reject_file, text.n_bytes)


def _plan(request: Request, workers: Sequence[Worker], inputs: Sequence[Input]) -> ConversionPlan:
    """Sizes that fit every worker, each thread of which does a task of its own."""
    plans = []
    for worker in workers:
        each = INTERPRETER_BYTES + (worker.memory - INTERPRETER_BYTES) // worker.threads
        try:
            plans.append(request.plan(1, each, inputs))
        except MemoryBudgetError as error:
            raise MemoryBudgetError(
                f"for each of the {worker.threads} thread(s) of the worker {worker.address}: {error}, or "
                "start workers with fewer threads"
            ) from error
    return min(plans, key=lambda plan: (plan.max_line_bytes, plan.block_bytes))


@dataclass(frozen=True)
class _Known:
    """A part that was read: with what is before it, and what is in it."""

    part: TextPart
    start: TextStart
    facts: PartFacts


class _Conversion:
    """The two readings of one text.

    Attributes
    ----------
    total : TextCounts
        Of all parts read so far, in order.
    """

    def __init__(
        self,
        cluster: Cluster,
        text: TextOptions,
        cut: CutText,
        writer: ParallelWriter,
        scratch: Path,
        progress: Progress | None,
    ) -> None:
        self.total = TextCounts()
        self._cluster = cluster
        self._text = text
        self._parts = cut.parts
        self._writer = writer
        self._scratch = scratch
        self._meter = Meter(progress, twice=True, total=cut.n_bytes)
        self._known: list[_Known] = []

    # -- the first reading -------------------------------------------------------------------------

    def scan(self) -> None:
        """Read all parts; give the writer what it needs of them, in order."""
        # Until the first row says whether rows have a qid, one part after another.
        while self._qid_rule == QID_UNKNOWN and len(self._known) < len(self._parts):
            self._accept(self._scan_exactly())
        first = len(self._known)
        start = TextStart(qid_rule=self._qid_rule)
        tasks = ((self._text, part, start, self._scratch) for part in self._parts[first:])
        waiting: dict[int, PartFacts | None] = {}
        for number, found in run_all(self._cluster, partial(scan_part, exact=False), tasks):
            waiting[first + number] = found
            while len(self._known) in waiting:
                facts = waiting.pop(len(self._known))
                if facts is None or self._has_too_many_bad_lines(facts):
                    self._accept(self._scan_exactly())
                else:
                    part, start = self._next()
                    self._accept(_Known(part, start, facts))

    @property
    def _qid_rule(self) -> int:
        return self._known[-1].facts.qid_rule if self._known else QID_UNKNOWN

    def _next(self) -> tuple[TextPart, TextStart]:
        """The next part, all parts before it being known."""
        part = self._parts[len(self._known)]
        if part.span is not None and part.span[0] > 0:  # goes on with the input of the part before
            before, counts = self._known[-1].part, self._known[-1].facts.counts
            part = replace(
                part,
                lines_before=before.lines_before + counts.lines,
                rows_before=before.rows_before + counts.rows,
            )
        return part, TextStart(self.total, self._qid_rule)

    def _has_too_many_bad_lines(self, facts: PartFacts) -> bool:
        most = self._text.max_bad_lines
        return most is not None and self.total.bad_lines + facts.counts.bad_lines > most

    def _scan_exactly(self) -> _Known:
        """Read the next part, knowing all before it; what is wrong with it is raised."""
        part, start = self._next()
        [(_, facts)] = self._scan_again([(part, start)])
        return _Known(part, start, facts)

    def _scan_again(self, parts: Iterable[tuple[TextPart, TextStart]]) -> Iterator[tuple[int, PartFacts]]:
        tasks = ((self._text, part, start, self._scratch) for part, start in parts)
        return run_all(self._cluster, partial(scan_part, exact=True), tasks)

    def _accept(self, known: _Known) -> None:
        """Count a part, and outline its rows."""
        for lengths, labels, qids in read_columns(known.facts):
            self._writer.outline(lengths, labels, qids)
        self._known.append(known)
        self.total += known.facts.counts
        self._meter.rows = self.total.rows
        self._meter.read(self._meter.bytes_in + part_bytes(known.part))

    def gather_rejected(self) -> Path:
        """The bad lines of all parts in one file."""
        files: dict[int, Path | None] = {
            number: known.facts.rejected
            for number, known in enumerate(self._known)
            if known.facts.counts.bad_lines
        }
        missing = [number for number, path in files.items() if path is None]
        again = self._scan_again((self._known[number].part, self._known[number].start) for number in missing)
        for place, facts in again:
            files[missing[place]] = facts.rejected
            facts.columns.unlink(missing_ok=True)
        target = self._scratch / "rejected"
        with open(target, "wb") as whole:
            for number in sorted(files):
                path = files[number]
                assert path is not None
                with open(path, "rb") as file:
                    shutil.copyfileobj(file, whole)
        return target

    # -- the second reading ------------------------------------------------------------------------

    def write(self) -> None:
        """Have all chunks of the elements written."""
        ones = all(known.facts.ones for known in self._known)
        self._writer.begin("ones" if ones else "float32" if self._text.dtype == "float32" else "float64")
        runs: list[ChunkRun] = []
        done = 0
        for number, written in run_all(self._cluster, write_run, self._runs(runs)):
            self._writer.adopt(runs[number], written)
            done += runs[number].stop - runs[number].start
            self._meter.written(done, self.total.nonzeros)

    def _runs(self, runs: list[ChunkRun]) -> Iterator[tuple[Any, ...]]:
        """Arguments of `write_run`: whoever reads a part writes the chunks that begin in it."""
        chunk = self._writer.chunk_elements
        ends = [known.start.counts.nonzeros for known in self._known[1:]] + [self.total.nonzeros]
        for number, (known, end) in enumerate(zip(self._known, ends, strict=True)):
            position = known.start.counts.nonzeros
            first, stop = chunk_count(position, chunk), chunk_count(end, chunk)
            if first == stop:
                continue
            run = self._writer.run(first, stop)
            runs.append(run)
            last = bisect_left(ends, run.stop)
            parts = [each.part for each in self._known[number : last + 1]]
            yield self._text, run, parts, position, known.start.qid_rule, self._scratch

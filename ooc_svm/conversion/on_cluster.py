"""Conversion of text on a cluster: the same store, bit for bit, as on one machine.

The text is split into segments and read twice. The first reading counts rows and elements, which gives the
place of each segment in the whole data, and collects everything except the elements in one place, in order.
Then every chunk of elements belongs to one segment; the second reading reads the segments with its elements
again and writes it. Line numbers of a segment are known once all segments before it were read: where
something is wrong with one, it is read once more then.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ooc_svm.cluster.connection import Cluster, Worker, connect
from ooc_svm.cluster.tasks import run_all
from ooc_svm.conversion.cluster_tasks import (
    SegmentScan,
    discard_columns,
    join_files,
    no_names_yet,
    read_columns,
    scan_segment,
    shared_scratch,
    write_chunks,
)
from ooc_svm.conversion.options import ConvertOptions
from ooc_svm.conversion.output import check_rejected, commit, writing
from ooc_svm.conversion.plan import ConversionPlan, plan_conversion
from ooc_svm.conversion.report import ConvertReport, Meter, Progress
from ooc_svm.errors import MemoryBudgetError
from ooc_svm.store.layout import chunk_count
from ooc_svm.store.parallel_writer import ChunkRun, ParallelWriter
from ooc_svm.system.folders import Scratch
from ooc_svm.system.memory import INTERPRETER_BYTES, format_size, parse_size, size_needed
from ooc_svm.text.reader import InputPath, TextCounts, TextSegment, TextStart, require_rows
from ooc_svm.text.split import segment_bytes, split_text
from ooc_svm.text.svmlight import QID_UNKNOWN

# Number of threads that write everything except the elements, while the workers read.
_WRITE_THREADS = 2


def convert_on_cluster(
    inputs: Sequence[InputPath], options: ConvertOptions, progress: Progress | None
) -> ConvertReport:
    """Convert text on a cluster; options and errors are those of `ooc_svm.conversion.convert.convert`."""
    meter = Meter(progress, twice=True)
    if options.bad_lines == "skip":
        check_rejected(options.rejected, inputs)
    text = split_text(inputs, options.thread_count)
    # Workers may have other working directories.
    options = replace(options, output=options.output.absolute())
    scratch = Scratch(options.output)
    with (
        writing(ParallelWriter, options, scratch, _WRITE_THREADS) as writer,
        connect(
            options.scheduler,
            workers=options.thread_count,
            memory=None if options.memory is None else parse_size(options.memory),
            insecure=options.insecure_cluster,
            preload="ooc_svm.conversion.cluster_tasks",
        ) as cluster,
        ExitStack() as stack,
    ):
        workers = cluster.workers()
        if options.scheduler is not None:
            text = split_text(inputs, sum(worker.threads for worker in workers))
        meter.total = text.n_bytes
        shared = stack.enter_context(shared_scratch(options, scratch))
        cluster.require_visible(shared, writer.folder, *(segment.path for segment in text.segments))
        plan = _plan(options, workers, inputs)
        unnamed = replace(options, feature_names=None)  # workers need no names
        conversion = _Conversion(cluster, unnamed, plan, text.segments, writer, shared, scratch.make(), meter)
        conversion.scan()
        require_rows(conversion.total, text.inputs)
        reject_file = conversion.gather_rejected() if options.bad_lines == "skip" else None
        conversion.write()
        names = conversion.label_names
        return commit(writer, options, conversion.total, text.inputs, reject_file, meter, names)


def _plan(options: ConvertOptions, workers: Sequence[Worker], inputs: Sequence[InputPath]) -> ConversionPlan:
    """Sizes that fit every worker, each thread of which does a task of its own."""
    plans, refusals = [], []
    for worker in workers:
        memory = INTERPRETER_BYTES + (worker.memory - INTERPRETER_BYTES) // worker.threads
        try:
            plans.append(plan_conversion(replace(options, threads=1, memory=memory), inputs))
        except MemoryBudgetError as error:
            needed = INTERPRETER_BYTES + worker.threads * (error.needed - INTERPRETER_BYTES)
            refusals.append(
                MemoryBudgetError(
                    f"a conversion needs at least {size_needed(needed)} of memory for the {worker.threads} "
                    f"thread(s) of the worker {worker.address}, and {format_size(worker.memory)} are "
                    "allowed: allow more, or start workers with fewer threads",
                    needed,
                )
            )
    if refusals:
        raise max(refusals, key=lambda each: each.needed)
    return min(plans, key=lambda plan: (plan.max_line_bytes, plan.chunk_bytes))


@dataclass(frozen=True)
class _Scanned:
    """A segment that was read, what is before it, and what is in it."""

    segment: TextSegment
    start: TextStart
    scan: SegmentScan


class _Conversion:
    """The two readings of one text; ``total`` counts all segments read so far, in order.

    ``label_names`` are the names of their labels, in the order of the text, where labels are names.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: ConvertOptions,
        plan: ConversionPlan,
        segments: Sequence[TextSegment],
        writer: ParallelWriter,
        scratch: os.PathLike[str],
        local: Path,
        meter: Meter,
    ) -> None:
        self.total = TextCounts()
        self.label_names = no_names_yet(options, plan)
        self._cluster, self._options, self._plan = cluster, options, plan
        self._segments, self._writer = segments, writer
        self._scratch, self._local, self._meter = scratch, local, meter
        self._scanned: list[_Scanned] = []

    # The first reading

    def scan(self) -> None:
        """Read all segments; give the writer what it needs of them, in order."""
        # Until the first row says whether rows have a qid, one segment after another.
        while self._qid_rule == QID_UNKNOWN and len(self._scanned) < len(self._segments):
            self._accept(self._scan_exactly())
        first = len(self._scanned)
        start = TextStart(qid_rule=self._qid_rule)
        waiting: dict[int, SegmentScan | None] = {}
        for number, found in self._scan_all(((each, start) for each in self._segments[first:]), exact=False):
            waiting[first + number] = found
            while len(self._scanned) in waiting:
                scan = waiting.pop(len(self._scanned))
                if scan is None or self._has_too_many_bad_lines(scan):
                    self._accept(self._scan_exactly())
                else:
                    self._accept(_Scanned(*self._next(), scan))

    @property
    def _qid_rule(self) -> int:
        return self._scanned[-1].scan.qid_rule if self._scanned else QID_UNKNOWN

    def _next(self) -> tuple[TextSegment, TextStart]:
        """The next segment, and what is before it, once all segments before it were read."""
        segment = self._segments[len(self._scanned)]
        if segment.extent is not None and segment.extent[0] > 0:  # of the same input as the one before
            before, counts = self._scanned[-1].segment, self._scanned[-1].scan.counts
            segment = replace(segment, lines_before=before.lines_before + counts.lines)
        return segment, TextStart(self.total, self._qid_rule)

    def _has_too_many_bad_lines(self, scan: SegmentScan) -> bool:
        most = self._options.max_bad_lines
        return most is not None and self.total.bad_lines + scan.counts.bad_lines > most

    def _scan_exactly(self) -> _Scanned:
        """Read the next segment after all before it; what is wrong with it is raised."""
        segment, start = self._next()
        [(_, scan)] = self._scan_all([(segment, start)], exact=True)
        return _Scanned(segment, start, scan)

    def _scan_all(
        self, segments: Iterable[tuple[TextSegment, TextStart]], *, exact: bool
    ) -> Iterator[tuple[int, Any]]:
        tasks = ((self._options, self._plan, *each, self._scratch) for each in segments)
        return run_all(self._cluster, partial(scan_segment, exact=exact), tasks)

    def _accept(self, scanned: _Scanned) -> None:
        """Count a segment, and outline its rows."""
        for lengths, labels, qids in read_columns(scanned.scan, self.label_names):
            self._writer.outline(lengths, labels, qids)
        self._scanned.append(scanned)
        self.total += scanned.scan.counts
        self._meter.rows = self.total.rows
        self._meter.read(self._meter.bytes_in + segment_bytes(scanned.segment))

    def gather_rejected(self) -> Path:
        """The bad lines of all segments in one file."""
        bad = [scanned for scanned in self._scanned if scanned.scan.counts.bad_lines]
        files = [scanned.scan.rejected for scanned in bad]
        missing = [number for number, path in enumerate(files) if path is None]
        again = ((bad[number].segment, bad[number].start) for number in missing)
        for place, scan in self._scan_all(again, exact=True):
            files[missing[place]] = scan.rejected
            discard_columns(scan)
        target = self._local / "rejected"
        join_files(files, target)
        return target

    # The second reading

    def write(self) -> None:
        """Have all chunks of the elements written."""
        ones = all(scanned.scan.ones for scanned in self._scanned)
        self._writer.begin("ones" if ones else "float32" if self._options.dtype == "float32" else "float64")
        runs: list[ChunkRun] = []
        done = 0
        for number, written in run_all(self._cluster, write_chunks, self._tasks(runs)):
            self._writer.adopt(runs[number], written)
            done += runs[number].stop - runs[number].start
            self._meter.written(done, self.total.nonzeros)

    def _tasks(self, runs: list[ChunkRun]) -> Iterator[tuple[Any, ...]]:
        """Arguments of `write_chunks`: one task for the chunks that begin in a segment."""
        chunk = self._writer.chunk_elements
        ends = [scanned.start.counts.nonzeros for scanned in self._scanned[1:]] + [self.total.nonzeros]
        for number, (scanned, end) in enumerate(zip(self._scanned, ends, strict=True)):
            position = scanned.start.counts.nonzeros
            first, stop = chunk_count(position, chunk), chunk_count(end, chunk)
            if first == stop:
                continue
            run = self._writer.run(first, stop)
            runs.append(run)
            last = bisect_left(ends, run.stop)
            segments = [each.segment for each in self._scanned[number : last + 1]]
            yield self._options, self._plan, run, segments, position, scanned.start.qid_rule, self._scratch

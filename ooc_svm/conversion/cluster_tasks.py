"""What the processes of a cluster do in a conversion: read a segment of the text, write some chunks."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ooc_svm.conversion.options import ConvertOptions
from ooc_svm.conversion.plan import ConversionPlan
from ooc_svm.conversion.text import checked_blocks, text_rows
from ooc_svm.data.blocks import Float64Array, Int64Array, LabelledRows
from ooc_svm.errors import InputError, OocSvmError
from ooc_svm.store.parallel_writer import ChunkRun, RunWriter, WrittenRun
from ooc_svm.store.storage import WRITE_ADVICE
from ooc_svm.system.address import AnyPath
from ooc_svm.system.files import open_to_read, remove_file, storage_errors
from ooc_svm.system.folders import Scratch, ScratchFiles, scratch_files, shared_folder
from ooc_svm.system.records import RecordFile, append_record
from ooc_svm.text.inputs import display_name
from ooc_svm.text.label_names import LabelNames
from ooc_svm.text.reader import TextCounts, TextSegment, TextStart, new_label_names


@dataclass(frozen=True)
class SegmentScan:
    """What was found in a segment of a text.

    ``counts`` are those of the segment alone, except for `n_features`. ``qid_rule`` says whether rows have a
    qid, after the segment; ``label_names`` are the names of its labels, where labels are names, and
    ``source`` the name of the input; ``ones``, whether every value is 1. ``columns`` is the file for
    `read_columns`, and ``rejected`` the file with the bad lines, if it was asked for.
    """

    counts: TextCounts
    qid_rule: int
    label_names: list[str] | None
    source: str
    ones: bool
    columns: AnyPath
    n_records: int
    rejected: AnyPath | None


def scan_segment(
    options: ConvertOptions,
    plan: ConversionPlan,
    segment: TextSegment,
    start: TextStart,
    scratch: AnyPath,
    *,
    exact: bool,
) -> SegmentScan | None:
    """Read a segment: count, and spill everything of its rows except their elements to files in `scratch`.

    If `exact`, `start` has all counts of the text before and messages can be complete: what is wrong is
    raised, as by `ooc_svm.conversion.convert.convert`. If not, bad lines are neither written to a file nor
    checked against their limit, and None is returned if something is wrong.
    """
    with scratch_files(scratch) as folder:
        return _scan(options, plan, segment, start, folder, exact=exact)


def _scan(
    options: ConvertOptions,
    plan: ConversionPlan,
    segment: TextSegment,
    start: TextStart,
    scratch: ScratchFiles,
    *,
    exact: bool,
) -> SegmentScan | None:
    """See `scan_segment`."""
    token = secrets.token_hex(8)
    columns, rejected = scratch.local / f"columns-{token}", None
    if exact and options.bad_lines == "skip":
        rejected = scratch.local / f"rejected-{token}"
    rows = text_rows([segment], options, plan, start, reject_file=rejected)
    ones, n_records = True, 0
    try:
        with closing(checked_blocks(rows, plan)) as blocks:
            for labelled in blocks:
                _put_columns(columns, labelled)
                values = labelled.rows.values
                ones = ones and (values is None or bool((values == 1).all()))
                n_records += 1
    except OocSvmError:
        if exact:
            raise
        return None
    names = None if rows.label_names is None else list(rows.label_names)
    counts, source = rows.counts - start.counts, display_name(segment.path)
    kept = scratch.share(columns) if n_records else columns
    bad = None if rejected is None else scratch.share(rejected)
    return SegmentScan(counts, rows.qid_rule, names, source, ones, kept, n_records, bad)


def _put_columns(path: Path, labelled: LabelledRows) -> None:
    sizes = np.array([labelled.rows.n_rows, labelled.qids is not None], np.int64)
    lengths = np.diff(labelled.rows.indptr).astype(np.int32)
    qids = [] if labelled.qids is None else [labelled.qids]
    append_record(path, [sizes, lengths, labelled.labels, *qids])


@contextmanager
def shared_scratch(options: ConvertOptions, scratch: Scratch) -> Iterator[AnyPath]:
    """Where all processes put what they have read: in the bucket if that is all that they share."""
    if options.scheduler is None or isinstance(options.output, Path):
        yield scratch.make()
        return
    with shared_folder(options.output.parent, f"{options.output.name}.scratch") as folder:
        yield folder


def discard_columns(scan: SegmentScan) -> None:
    """Remove the file for `read_columns`."""
    remove_file(scan.columns)


def join_files(paths: Sequence[AnyPath | None], target: Path) -> None:
    """Put the content of all files into one, in order."""
    with open(target, "wb") as whole:
        for path in paths:
            assert path is not None
            with open_to_read(path) as file:
                shutil.copyfileobj(file, whole)


def no_names_yet(options: ConvertOptions, plan: ConversionPlan) -> LabelNames | None:
    """Where the names of the labels of all segments go, where labels are names."""
    return new_label_names(options.labels, plan.names_bytes)


def read_columns(
    scan: SegmentScan, names: LabelNames | None = None
) -> Iterator[tuple[Int64Array, Float64Array, Int64Array | None]]:
    """Lengths, labels and qids of the rows of a segment, block by block; the file is removed at the end.

    Labels that are names are numbered by `names`, which get those that are new.

    Raises StorageError where reading failed, or what is read is not what was written.
    """
    if scan.n_records == 0:
        return
    rows = scan.counts.rows
    with RecordFile(scan.columns) as file:
        for _ in range(scan.n_records):
            n_rows, has_qids = file.read(2, np.int64).tolist()
            file.require(0 < n_rows <= rows)
            lengths, labels = file.read(n_rows, np.int32), file.read(n_rows, np.float64)
            qids = file.read(n_rows, np.int64) if has_qids else None
            file.end_record()
            if names is not None:
                labels = names.renumber(labels, scan.label_names, scan.source)
            yield lengths.astype(np.int64), labels, qids
    remove_file(scan.columns)


def write_chunks(
    options: ConvertOptions,
    plan: ConversionPlan,
    run: ChunkRun,
    segments: Sequence[TextSegment],
    position: int,
    qid_rule: int,
    scratch: AnyPath,
) -> WrittenRun:
    """Read segments again and write some chunks of their elements.

    `segments` are those with the elements of the chunks; `position` is the number of the first element in
    them, and `qid_rule` says whether rows have a qid, before them. Raises InputError if the text is not what
    was read before, and StorageError if reading or writing failed.
    """
    rows = text_rows(segments, options, plan, TextStart(qid_rule=qid_rule))
    with (
        storage_errors("writing", run.folder, WRITE_ADVICE),
        RunWriter(run, scratch, position) as writer,
        closing(checked_blocks(rows, plan)) as blocks,
    ):
        for labelled in blocks:
            writer.append(labelled.rows.indices, labelled.rows.values)
            if writer.missing <= 0:
                rows.require_unchanged()
                return writer.finish()
        raise InputError(f"{display_name(segments[-1].path)}: the file changed after the start: start again")

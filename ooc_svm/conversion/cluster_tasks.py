"""What the processes of a cluster do in a conversion: read a part of the text, write some chunks."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ooc_svm.conversion.text import TextOptions
from ooc_svm.data.blocks import Float64Array, Int64Array, LabelledRows
from ooc_svm.errors import InputError, OocSvmError
from ooc_svm.store.parallel_writer import ChunkRun, RunWriter, WrittenRun
from ooc_svm.system.files import storage_errors
from ooc_svm.system.records import RecordFile, append_record
from ooc_svm.text.inputs import display_name
from ooc_svm.text.reader import TextCounts, TextPart, TextStart

_ADVICE = "free some space or check the disk, then run again"


@dataclass(frozen=True)
class PartFacts:
    """What is in a part of a text.

    Attributes
    ----------
    counts : TextCounts
        Of the part alone, but for `n_features`.
    qid_rule : int
        Whether rows have a qid, after the part.
    ones : bool
        Whether every value is 1.
    columns : Path
        What `read_columns` reads.
    n_records : int
    rejected : Path or None
        The bad lines, if they were asked for.
    """

    counts: TextCounts
    qid_rule: int
    ones: bool
    columns: Path
    n_records: int
    rejected: Path | None


def scan_part(
    text: TextOptions, part: TextPart, start: TextStart, scratch: Path, *, exact: bool
) -> PartFacts | None:
    """Read a part: count, and put aside everything of its rows but their elements.

    Parameters
    ----------
    text : TextOptions
    part : TextPart
    start : TextStart
        Whether rows have a qid; all counts of the text before only if `exact`.
    scratch : Path
        A folder for the files that are made.
    exact : bool
        Whether messages can be complete. If not, bad lines are neither put aside nor held against their
        limit.

    Returns
    -------
    PartFacts or None
        None if something is wrong and it is not exact.

    Raises
    ------
    OocSvmError
        If something is wrong and it is exact, as for `ooc_svm.conversion.convert.convert`.
    """
    token = secrets.token_hex(8)
    columns, rejected = scratch / f"columns-{token}", None
    if exact and text.bad_lines == "skip":
        rejected = scratch / f"rejected-{token}"
    rows = text.rows([part], start, reject_file=rejected)
    ones, n_records = True, 0
    try:
        with text.pieces(rows) as pieces:
            for labelled in pieces:
                _put_columns(columns, labelled)
                values = labelled.rows.values
                ones = ones and (values is None or bool((values == 1).all()))
                n_records += 1
    except OocSvmError:
        if exact:
            raise
        return None
    return PartFacts(rows.counts - start.counts, rows.qid_rule, ones, columns, n_records, rejected)


def _put_columns(path: Path, labelled: LabelledRows) -> None:
    sizes = np.array([labelled.rows.n_rows, labelled.qids is not None], np.int64)
    lengths = np.diff(labelled.rows.indptr).astype(np.int32)
    qids = [] if labelled.qids is None else [labelled.qids]
    append_record(path, [sizes, lengths, labelled.labels, *qids])


def read_columns(facts: PartFacts) -> Iterator[tuple[Int64Array, Float64Array, Int64Array | None]]:
    """Lengths, labels and qids of the rows of a part, piece by piece; the file is removed at the end.

    Raises
    ------
    StorageError
        Reading failed, or what is read is not what was written.
    """
    if facts.n_records == 0:
        return
    rows = facts.counts.rows
    with RecordFile(facts.columns) as file:
        for _ in range(facts.n_records):
            n_rows, has_qids = file.read(2, np.int64).tolist()
            file.require(0 < n_rows <= rows)
            lengths, labels = file.read(n_rows, np.int32), file.read(n_rows, np.float64)
            qids = file.read(n_rows, np.int64) if has_qids else None
            file.end_record()
            yield lengths.astype(np.int64), labels, qids
    facts.columns.unlink()


def write_run(
    text: TextOptions, run: ChunkRun, parts: Sequence[TextPart], position: int, qid_rule: int, scratch: Path
) -> WrittenRun:
    """Read parts again and write some chunks of their elements.

    Parameters
    ----------
    text : TextOptions
    run : ChunkRun
    parts : sequence of TextPart
        Those with the elements of the run.
    position : int
        Number of the first element in them.
    qid_rule : int
        Whether rows have a qid, before them.
    scratch : Path
        A folder for the files that are made.

    Raises
    ------
    InputError
        The text is not what was read before.
    StorageError
        Reading or writing failed.
    """
    rows = text.rows(parts, TextStart(qid_rule=qid_rule))
    with (
        storage_errors("writing", run.folder, _ADVICE),
        RunWriter(run, scratch, position) as writer,
        text.pieces(rows) as pieces,
    ):
        for labelled in pieces:
            writer.append(labelled.rows.indices, labelled.rows.values)
            if writer.missing <= 0:
                return writer.finish()
        raise InputError(f"{display_name(parts[-1].path)}: the file changed after the start: start again")

"""A conversion in this process: rows are read, put into order where that is asked for, and written."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

from ooc_svm.conversion.formats import open_rows
from ooc_svm.conversion.options import ConvertOptions
from ooc_svm.conversion.output import commit, writing
from ooc_svm.conversion.report import ConvertReport, Meter, Progress
from ooc_svm.store.kept import KeptBlocks
from ooc_svm.store.writer import StoreWriter
from ooc_svm.system.folders import Scratch

# Size of rows in memory relative to the input on disk: between 0.7 for plain text and 3 for compressed text.
_USUAL_GROWTH = 2


def convert_here(
    format_name: str,
    data: Any,
    options: ConvertOptions,
    progress: Progress | None,
    kept: KeptBlocks | None = None,
) -> ConvertReport:
    """Convert data of one of the formats; ``kept`` gets the blocks of the store, as many as fit."""
    meter = Meter(progress, options.reorders)
    scratch = Scratch(options.output)
    rows = open_rows(format_name, data, options, scratch.path, meter.read)
    if options.labels != "sets":  # a matrix brings labels of either kind
        options = replace(options, labels="numbers" if rows.label_names is None else "text")
    meter.total = rows.total_bytes
    with (
        writing(StoreWriter, options, scratch, rows.plan.write_threads) as writer,
        closing(rows.blocks()) as blocks,
    ):
        if options.reorders or rows.reject_file is not None:
            scratch.make()
        if kept is not None:
            kept.limit(rows.plan.kept_bytes, options.dtype)
            writer.kept = kept
        ordered = meter.counted(blocks)
        if options.reorders:
            from ooc_svm.conversion.reorder import group_rows, shuffle_rows

            expected = None if meter.total is None else _USUAL_GROWTH * meter.total
            place = scratch.path, rows.plan.reorder_bytes, expected
            if options.shuffle is None:
                ordered = group_rows(ordered, *place)
            else:
                ordered = shuffle_rows(ordered, options.shuffle, *place)
        for labelled, weights in ordered:
            writer.append(labelled, weights)
            if options.reorders:
                meter.written(labelled.rows.stop, meter.rows)
        return commit(writer, options, rows.counts, rows.inputs, rows.reject_file, meter, rows.label_names)

"""A conversion in this process: rows are read, put into order where that is asked for, and written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from ooc_svm.conversion.formats import InputRows, open_rows
from ooc_svm.conversion.options import ConvertOptions
from ooc_svm.conversion.output import commit, writing
from ooc_svm.conversion.report import ConvertReport, Meter, Progress
from ooc_svm.store import Store, StoreWriter
from ooc_svm.store.held_store import HeldRows
from ooc_svm.system.folders import Scratch
from ooc_svm.text.reader import InputPath

AnyWriter = TypeVar("AnyWriter", StoreWriter, HeldRows)

# Size of rows in memory relative to the input on disk: between 0.7 for plain text and 3 for compressed text.
_LEAST_GROWTH, _USUAL_GROWTH = 0.7, 2


def convert_here(
    format_name: str, data: Any, options: ConvertOptions, progress: Progress | None
) -> ConvertReport:
    """Convert data of one of the formats."""
    report, _ = _converted(format_name, data, options, progress, lambda _: StoreWriter)
    return report


def convert_for_reading_here(
    inputs: Sequence[InputPath],
    options: ConvertOptions,
    progress: Progress,
    *,
    hold: bool,
    write_always: bool,
) -> tuple[ConvertReport, Store]:
    """Convert text; returns the store, which holds the blocks that fit in memory if it is to ``hold`` some.

    One that holds all of its blocks is not written, unless it is to be in any case.
    """

    def writer(rows: InputRows) -> Callable[..., HeldRows]:
        most = rows.plan.held_bytes if hold else 0
        # What will not fit is written while it is read, by threads that wait otherwise.
        too_large = _LEAST_GROWTH * (rows.total_bytes or 0) > most
        return partial(HeldRows, most_bytes=most, write_always=write_always or too_large)

    report, rows = _converted("svmlight", inputs, options, progress, writer)
    return report, rows.store()


def _converted(
    format_name: str,
    data: Any,
    options: ConvertOptions,
    progress: Progress | None,
    writer_of: Callable[[InputRows], Callable[..., AnyWriter]],
) -> tuple[ConvertReport, AnyWriter]:
    """Convert data of one of the formats, to what ``writer_of`` makes of them; returns the writer, closed."""
    meter = Meter(progress, options.reorders)
    scratch = Scratch(options.output)
    rows = open_rows(format_name, data, options, scratch.path, meter.read)
    if options.labels != "sets":  # a matrix brings labels of either kind
        options = replace(options, labels="numbers" if rows.label_names is None else "text")
    meter.total = rows.total_bytes
    with (
        writing(writer_of(rows), options, scratch, rows.plan.write_threads) as writer,
        closing(rows.blocks()) as blocks,
    ):
        if options.reorders or rows.reject_file is not None:
            scratch.make()
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
            writer.append(labelled, weight=weights)
            if options.reorders:
                meter.written(labelled.rows.stop, meter.rows)
        counts, names = rows.counts, rows.label_names
        return commit(writer, options, counts, rows.inputs, rows.reject_file, meter, names), writer

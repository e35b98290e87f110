"""SVMlight text as conversions read it, with the limits of their options and of the memory."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ooc_svm.conversion.options import ConvertOptions
from ooc_svm.conversion.output import check_rejected
from ooc_svm.conversion.plan import ConversionPlan, plan_conversion
from ooc_svm.data.blocks import LabelledRows
from ooc_svm.errors import InputError, MemoryBudgetError
from ooc_svm.system.memory import format_size
from ooc_svm.text.diagnostics import NO_LIMIT, FeatureLimit
from ooc_svm.text.inputs import MAX_LINE_BYTES, InputMetadata, LineTooLongError
from ooc_svm.text.reader import InputPath, TextCounts, TextRows, TextSegment, TextStart

if TYPE_CHECKING:
    from ooc_svm.conversion.spill import WeightedRows


class TextBlocks:
    """Rows of text files; an `ooc_svm.conversion.formats.InputRows`."""

    def __init__(
        self,
        inputs: Sequence[InputPath],
        options: ConvertOptions,
        scratch: Path,
        progress: Callable[[int], None],
    ) -> None:
        self.reject_file: Path | None = None
        if options.bad_lines == "skip":
            check_rejected(options.rejected, inputs)
            self.reject_file = scratch / "rejected"
        self.plan = plan_conversion(options, inputs)
        self._rows = text_rows(inputs, options, self.plan, reject_file=self.reject_file, progress=progress)
        self.total_bytes = self._rows.total_bytes

    @property
    def counts(self) -> TextCounts:
        return self._rows.counts

    @property
    def label_names(self) -> Sequence[str] | None:
        return self._rows.label_names

    @property
    def inputs(self) -> Sequence[InputMetadata]:
        return self._rows.opened

    def blocks(self) -> Generator[WeightedRows, None, None]:
        """The rows in order."""
        with closing(checked_blocks(self._rows, self.plan)) as blocks:
            for labelled in blocks:
                yield labelled, None


def text_rows(
    inputs: Sequence[InputPath | TextSegment],
    options: ConvertOptions,
    plan: ConversionPlan,
    start: TextStart | None = None,
    *,
    reject_file: Path | None = None,
    progress: Callable[[int], None] | None = None,
) -> TextRows:
    """The rows of inputs; where bad lines are skipped, they are counted only with a reject file."""
    uncounted = options.bad_lines == "skip" and reject_file is None
    limit = NO_LIMIT
    if options.features is not None:
        limit = FeatureLimit(options.features, options.feature_names is not None)
    return TextRows(
        inputs,
        start=start,
        index_base=options.index_base,
        limit=limit,
        dtype=options.dtype,
        labels=options.labels,
        threads=plan.threads,
        bad_lines=options.bad_lines,
        max_bad_lines=None if uncounted else options.max_bad_lines,
        reject_file=reject_file,
        chunk_bytes=plan.chunk_bytes,
        max_line_bytes=plan.max_line_bytes,
        names_bytes=plan.names_bytes,
        progress=progress,
    )


def checked_blocks(rows: TextRows, plan: ConversionPlan) -> Generator[LabelledRows, None, None]:
    """Read the rows; lines beyond the plan are errors."""
    try:
        with closing(cast("Generator[LabelledRows, None, None]", iter(rows))) as blocks:
            yield from blocks
    except InputError as error:
        # The line may be too long only for the memory.
        if isinstance(error.__cause__, LineTooLongError) and plan.max_line_bytes < MAX_LINE_BYTES:
            raise MemoryBudgetError(
                f"{error}; with more memory or fewer threads, lines of up to "
                f"{format_size(MAX_LINE_BYTES)} are read"
            ) from error
        raise

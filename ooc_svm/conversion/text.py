"""Text as conversions read it: held against the number of columns and the memory."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np

from ooc_svm.data.blocks import LabelledRows, RowBlock
from ooc_svm.errors import InputError, MemoryBudgetError
from ooc_svm.system.memory import format_size
from ooc_svm.text.inputs import MAX_LINE_BYTES, LineTooLongError
from ooc_svm.text.reader import Input, TextPart, TextRows, TextStart, read_rows


@dataclass(frozen=True)
class TextOptions:
    """How text is read, whoever reads which part of it.

    Attributes
    ----------
    index_base, dtype, bad_lines, max_bad_lines, block_bytes, max_line_bytes
        As for `ooc_svm.text.reader.read_rows`.
    features : int or None
        More columns than this are an error.
    """

    index_base: int
    dtype: str
    features: int | None
    bad_lines: Literal["stop", "skip"]
    max_bad_lines: int | None
    block_bytes: int
    max_line_bytes: int

    def rows(
        self,
        inputs: Sequence[Input | TextPart],
        start: TextStart | None = None,
        *,
        threads: int = 1,
        reject_file: Input | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> TextRows:
        """The rows of inputs; where bad lines are skipped, the reject file says that they are counted."""
        uncounted = self.bad_lines == "skip" and reject_file is None
        return read_rows(
            inputs,
            start=start,
            index_base=self.index_base,
            dtype=self.dtype,
            threads=threads,
            bad_lines=self.bad_lines,
            max_bad_lines=None if uncounted else self.max_bad_lines,
            reject_file=reject_file,
            block_bytes=self.block_bytes,
            max_line_bytes=self.max_line_bytes,
            progress=progress,
        )

    @contextmanager
    def pieces(self, rows: TextRows) -> Iterator[Iterator[LabelledRows]]:
        """Read them, and say in terms of a conversion what is wrong."""
        with self._line_limit(), closing(self._checked(rows)) as pieces:
            yield pieces

    def _checked(self, rows: TextRows) -> Generator[LabelledRows, None, None]:
        n_sources = first_row = 0
        with closing(cast("Generator[LabelledRows, None, None]", iter(rows))) as blocks:
            for block in blocks:
                if len(rows.sources) > n_sources:
                    n_sources, first_row = len(rows.sources), block.rows.start - rows.part.rows_before
                if self.features is not None and rows.counts.n_features > self.features:
                    raise _too_wide(rows, block.rows, first_row, self.features, self.index_base)
                yield block

    @contextmanager
    def _line_limit(self) -> Iterator[None]:
        """Blame the memory for a line that is too long only for the memory."""
        try:
            yield
        except InputError as error:
            if isinstance(error.__cause__, LineTooLongError) and self.max_line_bytes < MAX_LINE_BYTES:
                raise MemoryBudgetError(
                    f"{error}; with more memory or fewer threads, lines of up to "
                    f"{format_size(MAX_LINE_BYTES)} are read"
                ) from error
            raise


def _too_wide(rows: TextRows, block: RowBlock, first_row: int, features: int, index_base: int) -> InputError:
    largest = rows.counts.n_features - 1 + index_base
    where = f"{rows.sources[-1].name}: an explicit zero has the index {largest}"
    beyond = np.flatnonzero(block.indices >= features)
    if len(beyond):
        row = int(np.searchsorted(block.indptr, beyond[0], side="right")) - 1
        index = int(block.indices[beyond[0]]) + index_base
        where = f"{rows.sources[-1].name}: row {block.start - first_row + row + 1} has the index {index}"
    return InputError(
        f"{where}, but features is {features} (indices up to {features - 1 + index_base}): "
        f"give {rows.counts.n_features} or more, or leave it out"
    )

"""The formats that conversions read."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, Protocol

from ooc_svm.conversion.matrix import MatrixRows
from ooc_svm.conversion.options import ConvertOptions
from ooc_svm.conversion.plan import ConversionPlan
from ooc_svm.conversion.spill import WeightedRows
from ooc_svm.conversion.text import TextBlocks
from ooc_svm.text.inputs import InputMetadata
from ooc_svm.text.reader import TextCounts


class InputRows(Protocol):
    """The rows of an input in any format.

    Attributes
    ----------
    plan : ConversionPlan
    total_bytes : int or None
        Size of the input; None if it is not known before the end.
    counts : TextCounts
        Of the blocks yielded so far.
    inputs : sequence of InputMetadata
        The inputs read so far.
    reject_file : Path or None
        File in the scratch folder that gets the rows that break a rule; None if they are errors.
    """

    plan: ConversionPlan
    total_bytes: int | None
    reject_file: Path | None

    @property
    def counts(self) -> TextCounts: ...

    @property
    def inputs(self) -> Sequence[InputMetadata]: ...

    def blocks(self) -> Generator[WeightedRows, None, None]:
        """The rows without explicit zeros, in order, with their weights if there are any; once."""


FORMATS: dict[str, Callable[[Any, ConvertOptions, Path, Callable[[int], None]], InputRows]] = {
    "svmlight": TextBlocks,
    "matrix": MatrixRows,
}
"""How each format is opened: with the data, the options, the path of the scratch folder (which is not there
yet), and a function that is called with the number of bytes read so far. What is wrong with the data and can
be found at once is raised."""

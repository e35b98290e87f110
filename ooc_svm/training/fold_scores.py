"""The scores of the rows of each fold, which solvers have kept, as metrics are counted from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ooc_svm.data.blocks import SLICE_ROWS, Float64Array, Int64Array, row_slices
from ooc_svm.data.folds import Folds
from ooc_svm.engine.base import Engine
from ooc_svm.model.decision import Decision
from ooc_svm.passes.base import union
from ooc_svm.problems.folds import fill_folds
from ooc_svm.problems.targets import FOLDS
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.rowvectors.vector import RowVector
from ooc_svm.solvers.base import KeptScores

_LEAST_SLICE = 1 << 8  # Fewest rows that are scored together, however many classes there are


class FoldRows(NamedTuple):
    """What is known of the rows of a fold, as `ooc_svm.evaluation` asks for it."""

    name: str
    n_rows: int
    label_names: Sequence[str] | None
    has_qid: bool
    label_counts: None = None
    label_sets: bool = False


class ScoredSlice(NamedTuple):
    """Some rows of a fold: scores of shape (n_rows, models), labels, and qids if the data have them."""

    scores: Float64Array
    labels: Float64Array
    qids: Int64Array | None


@dataclass(frozen=True, slots=True)
class FoldScores:
    """The scores of the rows of one fold; ``kept``: where they are, None for made-up ones."""

    engine: Engine
    numbers: RowVector  # The fold of each row
    fold: int
    kept: Sequence[KeptScores] | None
    decision: Decision
    rows: FoldRows
    spare_bytes: int

    def __iter__(self) -> Iterator[ScoredSlice]:
        """All rows, in order."""
        vectors, source = self.engine.vectors, self.engine.source
        names = union(each.reads for each in self.kept or ())
        n_scores = self.decision.scorer.n_scores
        for start, stop in row_slices(vectors.n_rows, max(SLICE_ROWS // n_scores, _LEAST_SLICE)):
            marked = self.numbers.read(start, stop) == self.fold
            if not marked.any():
                continue
            if self.kept is None:
                scores = np.repeat(np.arange(start, stop, dtype=np.float64)[marked, None], n_scores, axis=1)
            else:
                own = {name: vectors[name].read(start, stop) for name in names}
                scores = np.column_stack([each.of(own)[marked] for each in self.kept])
            qids = source.read_qids(start, stop)[marked] if self.rows.has_qid else None
            yield ScoredSlice(scores, source.read_labels(start, stop)[marked], qids)


def fold_numbers(engine: Engine, folds: Folds, memory_bytes: int) -> RowVector:
    """The fold of each row; made again, in so much memory or in a scratch file, where workers have it."""
    if FOLDS in engine.vectors:
        return engine.vectors[FOLDS]
    vectors = RowVectors(engine.source.n_rows, memory_bytes)
    fill_folds(vectors, engine.source, folds)
    return vectors[FOLDS]


def rows_of_folds(numbers: RowVector, n_folds: int) -> list[int]:
    """Rows of each fold."""
    counts = np.zeros(n_folds, np.int64)
    for start, stop in row_slices(numbers.n_rows):
        counts += np.bincount(numbers.read(start, stop), minlength=n_folds)
    return [int(rows) for rows in counts]

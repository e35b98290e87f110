"""The landmarks of a run, chosen among rows that the seed draws: first by their kernel values alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ooc_svm.data.blocks import Int64Array
from ooc_svm.data.landmarks import SAMPLE, Landmarks
from ooc_svm.passes.base import UNCOUNTED
from ooc_svm.passes.columns import ColumnSums
from ooc_svm.passes.gather import GatherPass, NumberedRows, join_gathered
from ooc_svm.training.columns import column_scale, column_sums, kernel_gamma, needs_columns
from ooc_svm.training.engines import open_engine
from ooc_svm.training.landmark_features import first_count
from ooc_svm.training.pivots import Pivots
from ooc_svm.training.preparation import Preparation
from ooc_svm.training.progress import Progress, Recorder
from ooc_svm.training.result import costs


@dataclass(slots=True, eq=False)
class Drawn:
    """The rows drawn, the landmarks among them, and what was found on the way."""

    sampled: Int64Array  # Numbers of the rows, ascending
    pivots: Pivots
    random: np.random.Generator
    columns: ColumnSums | None
    costs: dict[str, Any]  # Its part of what a run sums up to

    @property
    def numbers(self) -> Int64Array:
        """Numbers of the landmarks, ascending."""
        return self.sampled[self.pivots.chosen]

    def landmarks(self) -> Landmarks:
        """The landmarks with their features."""
        return self.pivots.landmarks()


def drawn_numbers(n_rows: int, count: int, random: np.random.Generator) -> Int64Array:
    """Numbers of so many rows, ascending; of all rows if there are no more."""
    drawn = random.choice(n_rows, min(count, n_rows), replace=False, shuffle=False)
    return np.sort(drawn).astype(np.int64)


def draw(prepared: Preparation, progress: Callable[[Progress], None] | None) -> Drawn:
    """Read rows and choose half of the landmarks, or all where there are folds.

    What scales and the kernel follow from is found before.
    """
    options, source = prepared.options, prepared.data.source
    assert options.landmarks is not None
    random = np.random.default_rng(options.seed)
    sampled = drawn_numbers(source.n_rows, SAMPLE * options.landmarks, random)
    with open_engine(prepared, None) as (engine, _):
        recorder = Recorder(engine, list, options.tol, progress)
        purpose, columns = needs_columns(options), None
        if purpose is not None:
            recorder.note(f"one read comes first, for {purpose}")
            columns = column_sums(engine)
        count = min(options.landmarks, source.n_rows)
        recorder.note(
            f"one read brings {len(sampled)} rows; {count} of them become landmarks, whose kernel values are "
            "features"
        )
        rows = join_gathered(engine.stream([GatherPass(NumberedRows(sampled), (), UNCOUNTED)])[0]).rows
    # Blocks in memory are gone by now.
    scale = column_scale(columns, options, source.n_rows, prepared.data.index_base)
    gamma = kernel_gamma(columns, options, source.n_rows, source.n_features, scale)
    kernel = prepared.variants[0].kernel(gamma)
    scale2 = None if scale is None else scale**2
    pivots = Pivots(kernel, rows, source.n_features, scale2, options.landmarks)
    pivots.draw(first_count(prepared) or pivots.count, random)
    return Drawn(sampled, pivots, random, columns, costs(recorder, engine))

"""The landmarks of a run: rows that the seed draws, with the kernel that they are landmarks of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ooc_svm.data.blocks import Int64Array
from ooc_svm.data.landmarks import Landmarks
from ooc_svm.passes.base import UNCOUNTED
from ooc_svm.passes.columns import ColumnSums
from ooc_svm.passes.gather import GatherPass, NumberedRows, join_gathered
from ooc_svm.training.columns import column_scale, column_sums, kernel_gamma, needs_columns
from ooc_svm.training.engines import open_engine
from ooc_svm.training.preparation import Preparation
from ooc_svm.training.progress import Progress, Recorder
from ooc_svm.training.result import costs


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """The landmarks, and what was found on the way."""

    numbers: Int64Array
    landmarks: Landmarks
    columns: ColumnSums | None
    report: dict[str, Any]  # Its part of what a run sums up to


def landmark_numbers(n_rows: int, count: int, seed: int) -> Int64Array:
    """Numbers of so many rows that the seed draws, ascending; of all rows if there are no more."""
    drawn = np.random.default_rng(seed).choice(n_rows, min(count, n_rows), replace=False, shuffle=False)
    return np.sort(drawn).astype(np.int64)


def draw(prepared: Preparation, progress: Callable[[Progress], None] | None) -> Drawn:
    """Read the landmarks, and before them what scales and numbers of the kernel follow from."""
    options, source = prepared.options, prepared.data.source
    assert options.landmarks is not None
    numbers = landmark_numbers(source.n_rows, options.landmarks, options.seed)
    with open_engine(prepared, None) as (engine, _):
        recorder = Recorder(engine, list, options.tol, progress)
        purpose, columns = needs_columns(options), None
        if purpose is not None:
            recorder.note(f"one read comes first, for {purpose}")
            columns = column_sums(engine)
        recorder.note(f"one read brings {len(numbers)} landmarks, whose kernel values are features")
        rows = join_gathered(engine.stream([GatherPass(NumberedRows(numbers), (), UNCOUNTED)])[0]).rows
    # Blocks in memory are gone by now.
    scale = column_scale(columns, options, source.n_rows, prepared.data.index_base)
    gamma = kernel_gamma(columns, options, source.n_rows, source.n_features, scale)
    kernel = prepared.variants[0].kernel(gamma)
    landmarks = Landmarks.of(kernel, rows, source.n_features, None if scale is None else scale**2)
    return Drawn(numbers, landmarks, columns, costs(recorder, engine))

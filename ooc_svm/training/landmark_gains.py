"""The other half of the landmarks: rows that a model of the first half would gain most from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ooc_svm.data.blocks import Float64Array, RowBlock, row_slices
from ooc_svm.ops import gram
from ooc_svm.ops.kernels import in_precision
from ooc_svm.ops.squares import squares_of
from ooc_svm.passes.base import UNCOUNTED, RowSlice, WholeRead
from ooc_svm.passes.gather import NonzeroRows, take_rows
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.training.engines import open_engine
from ooc_svm.training.landmark_draw import Drawn
from ooc_svm.training.landmark_features import beside_sample
from ooc_svm.training.pivots import Pivots
from ooc_svm.training.preparation import Preparation
from ooc_svm.training.progress import Progress, Recorder
from ooc_svm.training.result import costs


@dataclass(frozen=True, slots=True, eq=False)
class SampleScores(WholeRead):
    """``sum_i v_i k(x_i, x)`` over all rows, for the rows x of the sample; shape (n_models, n_sampled).

    Kernel values are float32: what is chosen by them needs no more.
    """

    pivots: Pivots
    reads: tuple[str, ...]  # Names of the multipliers of each model
    position = UNCOUNTED
    needs_data: ClassVar[bool] = True
    writes: ClassVar[tuple[str, ...]] = ()

    def empty(self) -> Float64Array:
        return np.zeros((len(self.reads), self.pivots.rows.n_rows))

    def visit(self, block: RowBlock | None, rows: RowSlice, partial: Float64Array) -> None:
        assert block is not None
        places = NonzeroRows(self.reads)(rows)
        if len(places):
            moved = take_rows(block, rows.start + rows.step * places - block.start)
            changes = np.array([rows.vectors[name][places] for name in self.reads])
            _add_scores(self.pivots, moved, changes, partial)

    def merge(self, left: Float64Array, right: Float64Array) -> Float64Array:
        left += right
        return left


def choose_by_gain(
    drawn: Drawn,
    prepared: Preparation,
    multipliers: RowVectors,
    primals: Sequence[float],
    progress: Callable[[Progress], None] | None,
) -> dict[str, Any]:
    """Choose the landmarks that are missing.

    Parameters
    ----------
    drawn : Drawn
    prepared : Preparation
        Of the kernel's problem.
    multipliers : RowVectors
        Of all rows, that linear models of the features of the landmarks chosen so far have: those of the k-th
        model as ``str(k)``.
    primals : sequence of float
        P of these models: gains are shares of it.
    progress : callable, optional

    Returns
    -------
    dict
        What that has cost, see `ooc_svm.training.result.costs`.
    """
    pivots, names = drawn.pivots, tuple(str(number) for number in range(len(primals)))
    with open_engine(beside_sample(prepared), None) as (engine, _):
        recorder = Recorder(engine, list, prepared.options.tol, progress)
        recorder.note(f"one read finds {pivots.missing} landmarks more, that the model gains most from")
        for name in names:
            own = engine.vectors.create(name, np.float64)
            for first, last in row_slices(own.n_rows):
                own.write(first, multipliers[name].read(first, last))
        scores: Float64Array = engine.stream([SampleScores(pivots, names)])[0]
        spent = costs(recorder, engine)
    # What overflows, or is the best function already, has nothing to say.
    speak = np.isfinite(scores).all(axis=1) & (np.array(primals) > 0.0)
    pivots.take_best(scores[speak] / np.sqrt(np.array(primals)[speak])[:, None])
    pivots.draw(pivots.missing, drawn.random)
    return spent


def _add_scores(pivots: Pivots, rows: RowBlock, coefficients: Float64Array, out: Float64Array) -> None:
    """Add the scores of the sample by kernel values with some rows, of shape (n_models, n_sampled)."""
    places, dtype = np.arange(pivots.rows.n_rows, dtype=np.uint64), np.dtype(np.float32)
    gram.add_values(
        *(in_precision(pivots.kernel, dtype), *pivots.rows.arrays, places, pivots.squares),
        *(*rows.arrays, squares_of(*rows.arrays, pivots.scale2), pivots.scale2, coefficients),
        *(*gram.new_buffers(rows.indptr, pivots.n_features, dtype), out),
    )

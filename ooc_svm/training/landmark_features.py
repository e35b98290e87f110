"""The linear problem that has the features of landmarks in place of columns, and the memory that it needs."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from ooc_svm.catalog import LINEAR, SOLVERS, load
from ooc_svm.data.landmarks import SAMPLE, Landmarks, LandmarkSource
from ooc_svm.system.memory import memory_budget
from ooc_svm.training.data import Data
from ooc_svm.training.grid import variants_of
from ooc_svm.training.memory_plan import Budget, divide
from ooc_svm.training.preparation import Preparation

FEATURE_SOLVER = "streamed-smo"  # It has a multiplier of each row, which D of the kernel follows from
FIRST_TOL, FIRST_PASSES = 0.1, 3  # Where the model ends that landmarks are chosen by


def with_features(prepared: Preparation, landmarks: Landmarks | None) -> Preparation:
    """The linear problem that has the features of landmarks in place of columns.

    ``landmarks``: None where they are not known yet; there are no more features than landmarks.
    """
    options, data, count = prepared.options, prepared.data, _count(prepared)
    linear = replace(
        options, kernel=LINEAR, gamma=None, degree=None, coef0=None, solver=FEATURE_SOLVER, scale="none",
        landmarks=None, polish=False, calibrate=None, validation=options.held_out_share,
    )  # fmt: skip
    source = LandmarkSource(data.source, landmarks, count)
    longest = _longest(data)
    features = replace(
        data,
        source=source,
        id=lambda: _id_of(data.id(), options.seed, landmarks),
        value_type=source.value_type,
        index_base=0,
        feature_names=None,
        thread_nbytes=data.thread_nbytes + source.thread_nbytes(count, longest),
        shared_nbytes=source.shared_nbytes(count, longest),
    )
    return replace(
        prepared,
        data=features,
        options=linear,
        solver=load(SOLVERS[FEATURE_SOLVER].home),
        variants=list(variants_of({}, linear)),
    )


def _count(prepared: Preparation) -> int:
    """Landmarks: all rows, if there are no more."""
    assert prepared.options.landmarks is not None
    return min(prepared.options.landmarks, prepared.data.source.n_rows)


def first_count(prepared: Preparation) -> int:
    """How many landmarks come first, for a rough model that the others are chosen by; 0 if there is none.

    A model that a fold is held out of sees no label of it, nor landmarks that were chosen by these.
    """
    count = _count(prepared)
    return 0 if prepared.folds is not None or count == prepared.data.source.n_rows else count // 2


def first_features(prepared: Preparation, landmarks: Landmarks) -> Preparation:
    """The same of the landmarks that come first, for a rough model that the others are chosen by.

    Where it ends is no limit of the run: the others would be other ones, and a run that goes on from a limit
    is one that was never stopped.
    """
    rough = with_features(prepared, landmarks)
    limits = replace(rough.options, tol=FIRST_TOL, max_passes=FIRST_PASSES, time_limit=None)
    return replace(rough, options=limits)


def beside_sample(prepared: Preparation) -> Preparation:
    """The kernel's problem, next to what landmarks are chosen by."""
    data, count = prepared.data, _count(prepared)
    source, longest = LandmarkSource(data.source, None, count), _longest(data)
    # Rows of a block with a multiplier, the multipliers, and the scores of the sample.
    models, most = prepared.workload.size.n_models, max(span.stop - span.start for span in data.source.blocks)
    copies = max(span.nbytes for span in data.source.blocks) + 8 * models * (most + SAMPLE * count)
    own = replace(
        data,
        thread_nbytes=data.thread_nbytes + source.thread_nbytes(count, longest) + copies,
        shared_nbytes=data.shared_nbytes + source.shared_nbytes(count, longest),
    )
    return replace(prepared, data=own)


def feature_budget(prepared: Preparation) -> Budget:
    """The division of the memory for the linear part of a run; MemoryBudgetError if it does not fit."""
    allowed, found = memory_budget(prepared.options.memory), list[Budget]()
    for part in (beside_sample(prepared), with_features(prepared, None)):
        found.append(divide(part.workload, part.solver, part.options, allowed))
    return found[-1]


def _longest(data: Data) -> int:
    """Nonzeros of a long row, as far as one knows."""
    return -(-4 * data.source.n_nonzeros // max(data.source.n_rows, 1))


def _id_of(data_id: str, seed: int, landmarks: Landmarks | None) -> str:
    """What tells features from others."""
    assert landmarks is not None
    scaled, rows = landmarks.scale2 is not None, hashlib.sha256()
    for array in (landmarks.rows.indptr, landmarks.rows.indices, landmarks.rows.values):
        rows.update(b"" if array is None else array.tobytes())
    return f"{data_id} landmarks {rows.hexdigest()[:16]} {seed} {landmarks.kernel} {scaled}"

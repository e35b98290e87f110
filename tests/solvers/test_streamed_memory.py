"""Vectors of weights that live at the same time: what is planned is a bound, and a near one."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy import sparse

from ooc_svm import plan, train
from ooc_svm.solvers.streamed_smo import company
from ooc_svm.solvers.streamed_smo.admission import admit
from ooc_svm.solvers.streamed_smo.company import MOST_OFFERS
from ooc_svm.solvers.streamed_smo.plan import CANDIDATE_BYTES
from ooc_svm.solvers.streamed_smo.sweep import distinct

N_ROWS, N_FEATURES, LENGTH = 500, 50_000, 15
CLASSES = {"resident": 0.1, "tol": 1e-4, "max_passes": 4, "threads": 1}


def wide_rows(n_classes, *, far=False):
    """Few rows of many columns, so that weights are most of what is in memory; far from the origin or not."""
    rng = np.random.default_rng(0)
    columns, values = rng.integers(1, N_FEATURES, (N_ROWS, LENGTH)), rng.random((N_ROWS, LENGTH))
    columns[:, 1:6] = rng.integers(1, 50, (N_ROWS, 5))
    if far:
        columns[:, 0], values[:, 0] = 0, 9.0
    rows = np.repeat(np.arange(N_ROWS), LENGTH)
    matrix = sparse.csr_matrix((values.ravel(), (rows, columns.ravel())), shape=(N_ROWS, N_FEATURES))
    scores = matrix @ rng.standard_normal((N_FEATURES, n_classes))
    return matrix, np.argmax(scores + scores.std() * rng.gumbel(size=scores.shape), axis=1)


@pytest.mark.parametrize(
    ("n_classes", "far", "options"),
    [
        (3, False, {"bias": "none"}),
        (10, False, {"bias": "none"}),
        (40, False, {"bias": "penalized"}),
        (10, False, {"bias": "none", "scale": "std"}),
        (10, False, {"bias": "none", "resident": None}),
        (3, True, {"bias": "free", "C": [0.1, 1.0, 10.0]}),
        (10, True, {"bias": "free", "lanes": 2}),
        (10, True, {"bias": "free", "loss": "squared-hinge"}),
        (10, False, {"bias": "free", "lanes": 4, "threads": 4}),
    ],
    ids=str,
)
@pytest.mark.parametrize("all_held", [False, True])
def test_no_more_vectors_live_than_are_planned(n_classes, far, options, all_held, request):
    if not all_held:
        request.getfixturevalue("few_held")
    rows, options = wide_rows(n_classes, far=far), CLASSES | options
    items = {item.name: item.nbytes for item in plan(*rows, **options).items}
    train(*rows, **options | {"max_passes": 2})  # what is called is loaded
    tracemalloc.start()
    try:
        report = train(*rows, **options).report
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert report["passes"] > 1
    vectors = items["weights"] + items["other vectors"] + items["lanes"]
    assert peak < vectors + items["resident rows"] + items["row vectors"]
    # Of four lanes none is swept in the reads without steps, where all rows are held.
    assert 0.5 * vectors < peak or (all_held and "lanes" in options)


@pytest.mark.parametrize(
    ("n_classes", "options", "most_copies"),
    [
        (5, {}, 5),
        (3, {"C": [0.5, 1.0, 2.0]}, 1),
        (40, {}, 2),
        (10, {"bias": "free"}, 8),
        (10, {"lanes": 4}, 1),
        (10, {"lanes": 4, "bias": "free"}, 8),
        (70, {"lanes": 4, "bias": "free"}, 8),
    ],
    ids=str,
)
@pytest.mark.parametrize("all_held", [False, True])
def test_candidates_take_no_more_than_is_planned(
    n_classes, options, most_copies, all_held, request, monkeypatch
):
    if not all_held:
        request.getfixturevalue("few_held")
    # With a mean row each model is swept by itself.
    rows = wide_rows(n_classes, far=options.get("bias") == "free")
    options = {"bias": "none", "max_passes": 3, "threads": 1} | options
    seen, copied = [], []

    def recorded(held, claims):
        candidates = [part for each in claims for part in each.candidates]
        parts = distinct(candidates)
        copies = [(part.ids, part.indptr, part.indices, part.values) for part in parts]
        own = [(c.ids, c.places, c.targets, c.dual, c.step, c.priority) for c in candidates]
        copied.append(sum(len(part.ids) + len(part.indices) for part in parts))
        seen.append(sum(array.nbytes for arrays in (*copies, *own) for array in arrays if array is not None))
        return admit(held, claims)

    monkeypatch.setattr(company, "admit", recorded)
    items = {item.name: item.nbytes for item in plan(*rows, **options).items}
    report = train(*rows, **options).report
    n_models, elements = len(report["models"]), rows[0].nnz + N_ROWS
    if all_held:
        assert 0.6 * most_copies * elements < max(copied) <= most_copies * elements
        of_models = CANDIDATE_BYTES * n_models * N_ROWS
        assert max(seen) <= min(12 * most_copies * elements + of_models, items["resident rows"])
    else:
        offered = 0.5 * min(n_models, MOST_OFFERS) * report["resident"]
        # Each model may offer a part of a row more.
        assert 0 < max(copied) <= offered * elements + n_models
        assert max(seen) <= items["resident rows"]

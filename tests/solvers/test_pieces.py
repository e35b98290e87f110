"""Proximal steps in pieces, by one thread and by several."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from helpers.crews import helpers
from helpers.proximal_data import KINDS, Rows

from ooc_svm.engine.crew import ThreadCrew
from ooc_svm.solvers.streamed_smo import proximal
from ooc_svm.solvers.streamed_smo.effort import effort_for
from ooc_svm.solvers.streamed_smo.resident_rows import ResidentRows, has_shared_steps, proximal_bytes
from ooc_svm.solvers.streamed_smo.working_set import WorkingSet


@pytest.fixture(params=["system", "products"])
def in_pieces(request, monkeypatch):
    monkeypatch.setattr(proximal, "PIECE_ELEMENTS", 64)
    monkeypatch.setattr(proximal, "FEW_ROWS", 0)
    if request.param == "products":
        monkeypatch.setattr(proximal, "MOST_DIRECT", 0)


@pytest.mark.parametrize("loss", ["hinge", "squared-hinge", "logistic", "epsilon-insensitive"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_helpers_change_no_bit(loss, kind, in_pieces):
    def run(n_helpers: int):
        crew, rows = ThreadCrew(), Rows(loss, n=400, **kind)
        rows.sweeps(1)
        with helpers(crew, n_helpers) as counts:
            sums, longer = rows.step(crew=crew)
        arrays = rows.dual, rows.w, rows.bias, sums, np.float64(longer)
        return [each.tobytes() for each in arrays], sum(counts)

    alone, _ = run(0)
    for n_helpers in (1, 3):
        for _ in range(100):
            found, helped = run(n_helpers)
            assert found == alone
            # On a machine that others use as well, a helper may come too late.
            if helped:
                break
        assert helped > 0


@pytest.mark.parametrize("loss", ["hinge", "squared-hinge", "logistic", "epsilon-insensitive"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_pieces_come_to_what_the_whole_comes_to(loss, kind, in_pieces, monkeypatch):
    monkeypatch.setattr(proximal, "LEFT", 1e-12)
    found = []
    for size in (64, 10**9):
        monkeypatch.setattr(proximal, "PIECE_ELEMENTS", size)
        rows = Rows(loss, n=400, **kind)
        rows.sweeps(1)
        rows.step()
        found.append((rows.dual, rows.w, rows.bias))
    assert len(np.unique(found[0][0])) > 1
    for parts, whole in zip(*found, strict=True):
        assert parts == pytest.approx(whole, rel=1e-6, abs=1e-6)


def test_the_number_of_pieces_follows_from_that_of_elements():
    least, most = proximal.PIECE_ELEMENTS, proximal.MOST_PIECES
    sizes = [0, 1, least, 2 * least - 1, 2 * least, most * least, 10**12]
    assert [proximal.count_pieces(size) for size in sizes] == [1, 1, 1, 1, 2, most, most]


@pytest.mark.parametrize(
    ("capacity", "n_columns", "expected"), [(8, 9, True), (1, 9, False), (8, 5000, False)]
)
def test_others_are_asked_where_they_may_be_of_use(capacity, n_columns, expected):
    rows = ResidentRows(capacity * proximal.PIECE_ELEMENTS, np.empty(0), all_ones=False)
    assert WorkingSet(rows).is_helped(n_columns) == expected


@pytest.mark.parametrize("n_elements", [1, 4 * proximal.PIECE_ELEMENTS, 10**12])
@pytest.mark.parametrize(
    ("d", "by_factor"),
    [(9, False), (256, False), (257, False), (300, True), (400, False), (4096, False)],
)
def test_the_plan_knows_what_a_step_takes(d, n_elements, by_factor, monkeypatch):
    pieces = proximal.count_pieces(n_elements)
    monkeypatch.setattr(proximal, "count_pieces", lambda n: pieces)
    monkeypatch.setattr(proximal, "ROW_SYSTEM_COST", (1.0, 1.0, 1.0, 0.0))
    monkeypatch.setattr(Rows, "in_rows", by_factor)
    a_row, others = proximal_bytes(d, n_elements, 300, by_factor=by_factor)
    # The first run loads what it calls; what other threads of this process take meanwhile only adds.
    peaks = []
    for _ in range(10):
        rows = Rows("hinge", n=300, d=d, density=0.05)
        tracemalloc.start()
        try:
            rows.step()
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    # With little overhead for each piece; what compiled functions take for themselves is not traced.
    assert min(peaks) <= 300 * a_row + others + 20_000 * (1 + pieces)


def test_few_columns_take_steps_sooner():
    few, many = (effort_for(10**6, 1.0, narrow=True, few_columns=few) for few in (True, False))
    assert few.patience < many.patience
    assert effort_for(10**6, 0.1, narrow=True, few_columns=True) == effort_for(10**6, 0.1, narrow=True)


def test_steps_that_threads_share_come_sooner_yet():
    kinds = {"narrow": True, "few_columns": True}
    own, shared = (effort_for(10**7, 1.0, **kinds, shared=shared) for shared in (False, True))
    assert shared.patience < own.patience
    # Not where no row comes to rest, nor where rows are solved again and again with others coming in between.
    for other in ({"rests": False}, {"resident": 0.1}):
        options = {"resident": 1.0, **kinds, **other}
        assert effort_for(10**7, **options) == effort_for(10**7, **options, shared=True)


@pytest.mark.parametrize(
    ("dimension", "n_elements", "n_rows", "expected"),
    [
        (54, 7_500_000, 580_000, True),
        (54, 750_000, 58_000, False),  # one piece
        (200, 6_000_000, 30_000, False),  # long rows
        (300, 7_500_000, 580_000, False),  # too many columns for a matrix
    ],
)
def test_of_many_short_rows_threads_share_steps(dimension, n_elements, n_rows, expected):
    assert has_shared_steps(dimension, n_elements, n_rows) == expected

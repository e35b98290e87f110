"""Long rows in parts, which several threads work on: the steps of one thread, to the last bit."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from helpers.dual_data import dual_data
from helpers.dual_runs import Solving
from hypothesis import given, settings
from hypothesis import strategies as st

from ooc_svm.solvers.streamed_smo import team_loops
from ooc_svm.solvers.streamed_smo.proximal import MOST_COLUMNS, MOST_OF_DENSE
from ooc_svm.solvers.streamed_smo.resident_rows import LEAST_PART, PARTS, count_parts
from ooc_svm.solvers.streamed_smo.team import LONGEST_REST, Team, on_lines

VALUES = (None, np.float32, np.float64)
N_FEATURES = 400
LONG = 30.0


def rows(loss="hinge", **options):
    return dual_data(loss, n_rows=200, n_features=N_FEATURES, density=0.3, C=0.05, **options)


def part_of(columns, n_parts):
    """Sixteen columns side by side are of one part."""
    return (np.asarray(columns) // 16) % n_parts


@given(seed=st.integers(0, 10**6), n_parts=st.sampled_from([2, 4, 8, 16]), first=st.integers(0, 20))
@pytest.mark.parametrize("dtype", VALUES)
@settings(deadline=None, max_examples=30)
def test_the_parts_of_rows(dtype, seed, n_parts, first):
    """Against sorting by part; the rows before the first stay, and parts stay what they are."""
    data = dual_data("hinge", n_rows=20, n_features=90, seed=seed)
    indptr, indices, values = (None if a is None else a.copy() for a in data.arrays(dtype))
    before = indices.copy()
    cuts = np.empty((20 - first, n_parts + 1), np.uint32)
    for _ in range(2):
        team_loops.part_rows(indptr, indices, values, first, cuts)
        for i in range(20):
            own = slice(int(indptr[i]), int(indptr[i + 1]))
            if i < first:
                assert indices[own].tolist() == before[own].tolist()
                continue
            parts = part_of(before[own], n_parts)
            order = np.argsort(parts, kind="stable")
            assert indices[own].tolist() == before[own][order].tolist()
            assert cuts[i - first].tolist() == np.searchsorted(parts[order], range(n_parts + 1)).tolist()
            if values is not None:
                assert values[own].tolist() == data.matrix.data[own].astype(dtype)[order].tolist()


def test_the_number_of_parts_follows_from_the_length_of_rows():
    lengths = [0, 1, 2 * LEAST_PART - 1, 2 * LEAST_PART, 4 * LEAST_PART, 10**6]
    wide = MOST_OF_DENSE + 2
    assert [count_parts(wide, length * 1000, 1000) for length in lengths] == [1, 1, 1, 2, 4, PARTS[-1]]
    assert count_parts(wide, 0, 0) == 1
    # With fewer columns there are proximal steps; with some more, if rows have a quarter of them.
    assert count_parts(MOST_COLUMNS + 1, 800 * 1000, 1000) == 1
    assert count_parts(MOST_COLUMNS + 2, 800 * 1000, 1000) == 4
    assert count_parts(MOST_OF_DENSE, MOST_OF_DENSE // 4 * 1000, 1000) == 1


@pytest.mark.parametrize("n_parts", [2, 16])
@pytest.mark.parametrize("options", [{}, {"rho": 0.3, "scaled": True}], ids=str)
@pytest.mark.parametrize("loss", ["hinge", "squared-hinge", "logistic", "epsilon-insensitive"])
def test_parts_reach_the_same_optimum(loss, options, n_parts):
    data = rows(loss, **options)
    whole, parted = Solving(data, wanted=1e-9), Solving(data, wanted=1e-9, n_parts=n_parts)
    assert data.primal(parted.dual) - data.dual(parted.dual) <= 1e-8
    assert data.dual(parted.dual) == pytest.approx(data.dual(whole.dual), rel=1e-9)
    np.testing.assert_allclose(parted.w, data.weights(parted.dual), atol=1e-9)


@pytest.mark.parametrize("n_helpers", [1, 2, 7])
@pytest.mark.parametrize("dtype", VALUES)
def test_helpers_change_no_bit(dtype, n_helpers):
    data = rows(ones=dtype is None, rho=1.0, scaled=True)
    n_helped = 0
    for number in range(30):
        alone, helped = (
            Solving(data, dtype=dtype, most_elements=10**6, n_parts=8, n_helpers=n, seed=number)
            for n in (0, n_helpers)
        )
        for name in ("w", "dual", "far", "bias", "sums"):
            assert getattr(helped, name).tobytes() == getattr(alone, name).tobytes(), name
        # On a machine that others use as well, a helper may come too late.
        n_helped += helped.n_helped > 0
        if n_helped == 2:
            break
    assert n_helped == 2


def test_with_a_mean_row():
    data = rows()
    mean = np.random.default_rng(5).normal(size=N_FEATURES)
    alone, helped = (Solving(data, mean=mean, wanted=1e-8, n_parts=4, n_helpers=n) for n in (0, 2))
    whole = Solving(data, mean=mean, wanted=1e-8)
    assert helped.w.tobytes() == alone.w.tobytes()
    np.testing.assert_allclose(alone.dual, whole.dual, atol=1e-6)


def test_a_solve_that_is_stopped_has_added_all_of_its_changes():
    data = rows()
    v = Solving(data, wanted=1.0).dual
    run = Solving(data, v, stopped=True, n_parts=4, n_helpers=2)
    assert run.dual.tolist() == v.tolist()
    np.testing.assert_allclose(run.w, data.weights(v), atol=1e-12)


class TestTeam:
    """Who may help, and when."""

    def test_none_helps_where_there_is_no_solve(self):
        assert not Team(4).help()

    def test_no_more_helpers_than_parts(self, monkeypatch):
        team, seen = Team(4), []
        entered, leave = threading.Semaphore(0), threading.Event()

        def help_out(*arguments):
            seen.append(arguments[-2])
            entered.release()
            assert leave.wait(LONG)
            return True

        team.begin(*team_rows())
        monkeypatch.setattr(team_loops, "help_out", help_out)
        threads = [threading.Thread(target=team.help) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert entered.acquire(timeout=LONG)
        assert not team.help()
        leave.set()
        for thread in threads:
            thread.join()
        assert len(set(seen)) == 3
        assert team.help()

    def test_one_that_is_of_no_use_rests_longer_each_time(self, monkeypatch):
        team = Team(2)
        team.begin(*team_rows())
        monkeypatch.setattr(team_loops, "help_out", lambda *arguments: False)
        rests = []
        for _ in range(14):
            assert team.help()
            rests.append(next(n for n in range(10**4) if team._refusals == 0 or team.help()))
        assert rests == [min(2 ** (k + 1), LONGEST_REST) for k in range(14)]
        monkeypatch.setattr(team_loops, "help_out", lambda *arguments: True)
        assert team.help()
        assert team.help()

    def test_one_that_comes_too_late_changes_nothing(self):
        """It was asked for one solve, and finds that another one has begun, or none."""
        team, matrix = Team(2), team_rows()
        team.begin(*matrix)
        solve = team._solve
        for begin_another in (lambda: team.begin(*team_rows()), team.end):
            begin_another()
            before = matrix[-1].tobytes()
            team_loops.help_out(*solve, team_loops.HELPERS, 10)
            assert matrix[-1].tobytes() == before

    def test_a_helper_is_let_go_where_the_solve_fails(self):
        team, matrix = Team(2), team_rows()
        team.begin(*matrix)
        helped = threading.Thread(target=team.help)
        helped.start()
        while not team._words[team_loops.WISHES]:
            assert helped.is_alive()
        team.end()
        helped.join(LONG)
        assert not helped.is_alive()
        assert not team.help()


def team_rows():
    """What `Team.begin` is told of a solve."""
    data = rows()
    indptr, indices, values = (array.copy() for array in data.arrays())
    cuts = np.empty((len(indptr) - 1, 3), np.uint32)
    team_loops.part_rows(indptr, indices, values, 0, cuts)
    return indptr, indices, values, cuts, None, on_lines(N_FEATURES, np.float64)


def test_arrays_begin_with_a_line():
    for n in (1, 7, 1000):
        array = on_lines(n, np.float64)
        assert array.ctypes.data % 128 == 0
        assert len(array) == n
        assert array.flags.c_contiguous
        assert not array.any()

"""The working set: what is kept, what leaves, and that its rows stay those of the data."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.dual_data import dual_data, dual_model
from helpers.losses import LOSSES, QUADRATIC, box_of
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import sparse

from ooc_svm.errors import DamageError
from ooc_svm.ops import rows as row_ops
from ooc_svm.solvers.streamed_smo import dual_loops, proximal
from ooc_svm.solvers.streamed_smo.admission import Claim, admit
from ooc_svm.solvers.streamed_smo.resident_rows import ResidentRows
from ooc_svm.solvers.streamed_smo.sweep import CandidateRows, CopiedRows, seed_of
from ooc_svm.solvers.streamed_smo.working_set import GO_ON, WorkingSet
from ooc_svm.system.arrayfile import read_arrays, write_arrays
from ooc_svm.training.checkpoint import CHECKPOINT_FILE, _flatten, _unflatten, _upgrade

N_ROWS = 300
VALUES = (None, np.float32, np.float64)


def working_set(capacity, dtype=np.float64):
    values = np.empty(0, dtype=np.float32 if dtype is None else dtype)
    return WorkingSet(ResidentRows(capacity, values, dtype is None))


def take(held, model, candidates, theta, min_priority=0.0):
    """What leaves, where a model alone takes the best of its rows and of the candidates."""
    claim = Claim(held, held.priorities(model, 1.0), candidates, theta, min_priority)
    [leaving] = admit(held.rows, [claim])
    held.rows.measure(model.space.scale2)
    return leaving


def rows_of(data, ids, priority, dtype=np.float64, *, dual=0.0, step=0.0):
    """Rows of the data as a lane offers them."""
    ids = np.asarray(ids, dtype=np.int64)
    part = data.matrix[ids]
    values = None if dtype is None else part.data.astype(dtype)
    full = [np.broadcast_to(np.asarray(x, dtype=np.float64), len(ids)).copy() for x in (dual, step, priority)]
    copies = CopiedRows(ids, part.indptr.astype(np.int64), part.indices.astype(np.int32), values)
    return CandidateRows(ids, copies, np.arange(len(ids)), data.targets[ids], *full)


def data_of(dtype=np.float64, loss="hinge"):
    data = dual_data(loss, n_rows=N_ROWS, n_features=30, ones=dtype is None)
    if dtype == np.float32:
        data.matrix.data = data.matrix.data.astype(np.float32).astype(np.float64)
    return data


def check(held, data):
    """The rows held are rows of the data, one after another, within the capacity."""
    indptr, indices, values = held.rows.matrix
    assert len(set(held.ids.tolist())) == len(held.ids)
    assert indptr.dtype == np.uint64
    assert indices.dtype == np.uint32
    assert held.is_sound(data.matrix.shape[1])
    assert len(indices) + len(held.ids) <= held.rows.capacity
    if held.rows.all_ones:
        assert values is None
        values = np.ones(len(indices))
    shape = (len(held.ids), data.matrix.shape[1])
    found = sparse.csr_array((values, indices.astype(np.int64), indptr.astype(np.int64)), shape=shape)
    assert abs(found - data.matrix[held.rows.ids]).sum() == 0.0
    assert sorted(held.ids) == sorted(held.rows.ids)
    np.testing.assert_array_equal(held.targets, data.targets[held.ids])


@pytest.mark.parametrize("dtype", VALUES)
@given(seed=st.integers(0, 10**6), capacity=st.integers(0, 1500))
@example(seed=6374, capacity=677)
@settings(deadline=None, max_examples=40)
def test_the_best_by_priority_are_kept_and_the_others_leave(dtype, seed, capacity):
    """Against a list of all rows on offer, sorted by priority."""
    rng, data = np.random.default_rng(seed), data_of(dtype)
    model = dual_model(data)
    held = working_set(capacity, dtype)
    size = np.diff(data.matrix.indptr) + 1
    known = {}
    for _ in range(5):
        free = rng.permutation(np.setdiff1d(np.arange(N_ROWS), held.ids))[: rng.integers(0, 120)]
        lanes = [np.sort(part) for part in np.array_split(free, rng.integers(1, 5))]
        theta = rng.random()
        dual, step = rng.random(N_ROWS), rng.normal(size=N_ROWS)
        priority = np.round(4 * rng.random(N_ROWS), 1)
        before = dict(zip(held.ids.tolist(), held.dual.tolist(), strict=True))
        offers = list(zip(held.ids.tolist(), held.priorities(model, 1.0).tolist(), strict=True))
        offers += [(int(i), priority[i]) for i in np.sort(free)]
        known = before | {int(i): dual[i] + theta * step[i] for i in free}
        expected, used = [], 0
        # Of nearly equal priority the first one is as good.
        for i, _ in sorted(offers, key=lambda offer: int((4.0 - offer[1]) * 16383.0)):
            if size[i] > capacity:
                continue
            used += size[i]
            if used > capacity:
                break
            expected.append(i)
        offered = [rows_of(data, p, priority[p], dtype, dual=dual[p], step=step[p]) for p in lanes]
        gone, multipliers = take(held, model, offered, theta)
        check(held, data)
        assert sorted(held.ids.tolist()) == sorted(expected)
        left_out = any(i not in expected and size[i] <= capacity for i, _ in offers)
        assert held.rows.cutoff == (
            min((key for i, key in offers if i in expected), default=0.0) if left_out else 0.0
        )
        assert sorted(gone.tolist()) == sorted(set(before) - set(expected))
        assert [before[i] for i in gone.tolist()] == multipliers.tolist()
        np.testing.assert_allclose(held.dual, [known[i] for i in held.ids.tolist()])
        held.stationarity[:] = rng.normal(size=len(held.ids))


def test_nothing_offered_changes_nothing():
    data = data_of()
    model = dual_model(data)
    held = working_set(500)
    take(held, model, [rows_of(data, range(40), 1.0)], 1.0)
    before = [part.copy() for part in held.rows.matrix]
    gone, multipliers = take(held, model, [], 0.5)
    assert len(gone) == len(multipliers) == 0
    assert [part.tobytes() for part in held.rows.matrix] == [part.tobytes() for part in before]


def test_a_row_that_is_too_long_is_not_in_the_way():
    data = data_of()
    model = dual_model(data)
    sizes = np.diff(data.matrix.indptr)
    longest = int(np.argmax(sizes))
    held = working_set(int(sizes[longest]))
    take(held, model, [rows_of(data, [longest], 4.0), rows_of(data, np.argsort(sizes)[:2], 1.0)], 1.0)
    assert len(held.ids) == 2


def test_rows_without_features_take_room():
    data = data_of()
    model = dual_model(data)
    data.matrix.data[:] = 0.0
    data.matrix.eliminate_zeros()
    held = working_set(25)
    take(held, model, [rows_of(data, range(100), np.arange(100.0) / 30)], 1.0)
    assert held.ids.tolist() == list(range(75, 100))
    gone, _ = take(held, model, [rows_of(data, [200], 3.5)], 1.0)
    assert len(gone) == 1
    check(held, data)


@pytest.mark.parametrize("dtype", VALUES)
def test_no_capacity(dtype):
    data = data_of(dtype)
    model = dual_model(data)
    held = working_set(0, dtype)
    kind = held.rows.values.dtype
    gone, _ = take(held, model, [rows_of(data, range(30), 1.0, dtype)], 1.0)
    assert len(held.ids) == len(gone) == 0
    assert held.rows.values.dtype == kind
    check(held, data)


def test_rows_of_too_low_a_priority_are_not_kept():
    data = data_of()
    model = dual_model(data)
    held = working_set(10**6)
    priority = np.arange(100) / 50
    take(held, model, [rows_of(data, range(100), priority)], 1.0, 0.7)
    assert held.ids.tolist() == np.flatnonzero(priority >= 0.7).tolist()
    assert held.rows.cutoff == 0.0
    # Those that have gone far from the margin leave, and there is room.
    held.dual[:], held.stationarity[:] = 0.0, -np.arange(len(held.ids)) / 10
    far = held.priorities(model, 1.0) < 0.7
    assert 0 < far.sum() < len(far)
    ids, multipliers = held.ids.copy(), held.dual.copy()
    gone, values = take(held, model, [], 1.0, 0.7)
    assert gone.tolist() == ids[far].tolist()
    assert values.tolist() == multipliers[far].tolist()
    assert held.ids.tolist() == ids[~far].tolist()
    check(held, data)
    # Where there is no room for all, the lowest that was kept tells.
    held = working_set(100)
    take(held, model, [rows_of(data, range(100), priority)], 1.0, 0.7)
    assert held.rows.cutoff == held.ids.min() / 50 > 0.7


def test_the_lowest_priority_that_was_kept():
    data = data_of()
    model = dual_model(data)
    held = working_set(10**6)
    take(held, model, [rows_of(data, range(40), np.arange(40.0) / 10)], 1.0)
    assert held.rows.cutoff == 0.0
    held = working_set(500)
    take(held, model, [rows_of(data, range(100), np.arange(100.0) / 30)], 1.0)
    assert held.rows.cutoff == held.ids.min() / 30 > 0.0
    least = held.rows.cutoff
    take(held, model, [], 1.0)
    assert held.rows.cutoff == least  # nothing came that could tell another one


def test_memory_is_taken_once():
    """The arrays of a full set are never made again, whatever comes and goes."""
    data = data_of()
    model = dual_model(data)
    held = working_set(800)
    addresses = set()
    for number in range(6):
        own = range(50 * number, 50 * number + 50)
        take(held, model, [rows_of(data, own, 5.0 + number)], 1.0)
        held.stationarity[:] = -1.0
        addresses |= {(held.rows.indices.ctypes.data, held.rows.values.ctypes.data)}
    assert len(addresses) == 1


class TestSolve:
    @pytest.mark.parametrize("dtype", VALUES)
    def test_equals_solving_the_same_rows_by_themselves(self, dtype):
        data = data_of(dtype)
        model, held = dual_model(data), working_set(10**6, dtype)
        take(held, model, [rows_of(data, range(N_ROWS), 1.0, dtype)], 0.0)
        w, bias = np.zeros(30), np.zeros(3)
        sums, _ = held.solve(model, w, bias, seed_of(1), 1e-6, 10**7)
        dual, far = np.zeros((2, N_ROWS))
        expected, expected_w = np.zeros(dual_loops.N_SUMS), np.zeros(30)
        squares = np.empty(N_ROWS)
        row_ops.row_squares(*data.arrays(dtype), None, np.arange(N_ROWS), squares)
        dual_loops.solve(
            model.loss, *data.arrays(dtype), None, np.arange(N_ROWS, dtype=np.uint64), squares, None, None,
            expected_w, np.zeros(3), 0.0, data.targets, dual, far, seed_of(1), 1e-6, 10**7, GO_ON, expected,
        )  # fmt: skip
        assert held.dual.tobytes() == dual.tobytes()
        assert w.tobytes() == expected_w.tobytes()
        assert sums.tobytes() == expected.tobytes()
        assert held.stationarity.tobytes() == far.tobytes()
        np.testing.assert_allclose(held.sum_of_rows(model), w, atol=1e-9)

    @pytest.mark.parametrize("loss", LOSSES)
    def test_proximal_steps_end_sooner(self, loss):
        """With a large C, and more rows than columns; where sweeps are enough there is no step."""
        n, d = 3000, 10
        data = dual_data(loss, n_rows=n, n_features=d, C=30.0, density=0.5)
        model, visits, weights = dual_model(data), [], []
        for patience in (np.inf, 5.0):
            held, w = working_set(10**6), np.zeros(d)
            take(held, model, [rows_of(data, range(n), 1.0)], 0.0)
            sums, longest = held.solve(model, w, np.zeros(3), seed_of(1), 1.0, 10**9, patience=patience)
            assert sums[dual_loops.GAP] <= 1.0
            assert (longest == 0.0) == (patience == np.inf)
            assert longest == 0.0 or longest >= np.linalg.norm(w)
            np.testing.assert_allclose(held.sum_of_rows(model), w, atol=1e-6 * np.abs(w).max())
            visits.append(sums[dual_loops.ROWS])
            weights.append(w)
        assert visits[1] < 0.3 * visits[0]
        np.testing.assert_allclose(weights[1], weights[0], rtol=0.1, atol=0.1)
        held = working_set(10**6)
        take(held, model, [rows_of(data, range(n), 1.0)], 0.0)
        assert held.solve(model, np.zeros(d), np.zeros(3), seed_of(1), np.inf, 10**9, patience=5.0)[1] == 0.0

    def test_no_rows(self):
        w = np.ones(30)
        sums, _ = working_set(10).solve(dual_model(data_of()), w, np.zeros(3), seed_of(1), 0.0, 10)
        assert not sums.any()
        assert (w == 1.0).all()

    def test_goes_on_after_rows_have_come_and_gone(self):
        data = data_of()
        model, held = dual_model(data), working_set(600)
        w = np.zeros(30)
        values, left = [0.0], {}
        for number in range(6):
            free = np.setdiff1d(np.arange(50 * number, 50 * number + 50), held.ids)
            gone = take(held, model, [rows_of(data, free, 1.5)], 1.0)
            left |= dict(zip(*(part.tolist() for part in gone), strict=True))
            held.solve(model, w, np.zeros(3), seed_of(number), 1e-6, 10**7)
            v = np.zeros(N_ROWS)
            v[list(left)] = list(left.values())
            v[held.ids] = held.dual
            np.testing.assert_allclose(w, data.weights(v), atol=1e-9)
            values.append(data.dual(v))
            check(held, data)
            np.testing.assert_allclose(held.rows.squares, data.squares[held.ids])
        assert (np.diff(values) >= -1e-12).all()
        assert values[-1] > values[1] > 0.0
        assert len(left) > 20


@pytest.mark.parametrize("dtype", VALUES)
@pytest.mark.parametrize("capacity", [0, 700])
def test_goes_on_from_a_checkpoint(tmp_path, dtype, capacity):
    data, model = data_of(dtype), dual_model(data_of(dtype))
    held = working_set(capacity, dtype)
    take(held, model, [rows_of(data, range(0, 200, 2), np.linspace(0.1, 4, 100), dtype)], 1.0)
    held.solve(model, np.zeros(30), np.zeros(3), seed_of(0), 1.0, 10**6)
    arrays, texts = {}, {}
    _flatten("0", held, arrays, texts)
    assert not any("room" in name for name in arrays)
    with (tmp_path / "state").open("wb") as file:
        write_arrays(file, CHECKPOINT_FILE, {}, arrays)
    _, arrays = read_arrays(tmp_path / "state", CHECKPOINT_FILE)
    restored = working_set(capacity, dtype)
    _unflatten("0", restored, arrays, texts)
    assert restored.rows.capacity == capacity
    assert restored.rows.all_ones is (dtype is None)
    check(restored, data)
    results = []
    for one in (held, restored):
        offered = [rows_of(data, range(1, 200, 2), np.linspace(0.1, 4, 100), dtype, dual=0.1, step=0.2)]
        gone, multipliers = take(one, model, offered, 0.5)
        w = np.zeros(30)
        sums, _ = one.solve(model, w, np.zeros(3), seed_of(4), 1e-3, 10**6)
        check(one, data)
        rows = one.ids, *one.rows.matrix[:2], one.rows.values
        parts = (gone, multipliers, *rows, one.dual, one.stationarity, w, sums)
        results.append([part.tobytes() for part in parts])
    assert results[0] == results[1]
    assert (len(held.ids) > 0) == (capacity > 0)


class TestAbsorb:
    """Taking away what the multipliers sum up to, for a bound with a free bias."""

    @pytest.mark.parametrize("excess", [0.0, 1e-3, 2.0, -2.0, 9.0, 1e6, -1e6])
    @pytest.mark.parametrize("loss", LOSSES)
    def test_multipliers_stay_feasible_and_d_is_theirs(self, loss, excess):
        data = dual_data(loss, n_rows=N_ROWS, n_features=N_ROWS)
        data.matrix = sparse.csr_array(sparse.eye_array(N_ROWS, format="csr"))
        model, held = dual_model(data), working_set(10**6)
        v = data.random_multipliers(np.random.default_rng(0))
        take(held, model, [rows_of(data, range(N_ROWS), 1.0, dual=v)], 0.0)
        w = v.copy()
        gain, rest, sums = held.absorb(model, excess, w)
        # Each row has a feature of its own, so that w tells the multipliers.
        assert held.dual.tobytes() == v.tobytes()
        assert ((w >= data.box[:, 1] - 1e-12) & (w <= data.box[:, 2] + 1e-12)).all()
        assert (w * v >= -1e-12).all()
        assert (w != v).any() == (excess != 0.0)
        assert w.sum() == pytest.approx(v.sum() - excess + np.sign(excess) * rest, abs=1e-9)
        assert (rest > 0.0) == (abs(excess) > 1e5)
        assert gain == pytest.approx(data.linear(w) - data.linear(v), abs=1e-9)
        assert sums[dual_loops.CHANGES] == (w != v).sum()
        assert sums[dual_loops.DISTANCE] == pytest.approx(np.abs(w - v).sum())
        assert sums[dual_loops.SIZE] >= abs(gain)
        named = [dual_loops.CHANGES, dual_loops.DISTANCE, dual_loops.SIZE]
        assert not np.delete(sums, named).any()

    def test_those_off_their_bounds_go_first(self):
        data = dual_data("hinge", n_rows=N_ROWS, n_features=N_ROWS)
        data.matrix = sparse.csr_array(sparse.eye_array(N_ROWS, format="csr"))
        model, held = dual_model(data), working_set(10**6)
        v = data.random_multipliers(np.random.default_rng(0))
        take(held, model, [rows_of(data, range(N_ROWS), 1.0, dual=v)], 0.0)
        free = (v > data.box[:, 1]) & (v < data.box[:, 2])
        w = v.copy()
        held.absorb(model, 0.5, w)
        assert (w[~free] == v[~free]).all()
        assert (w[free] != v[free]).any()


class TestVersion1:
    """Saved states of version 1 had a box of target, bounds and damping where there are target and cost."""

    @pytest.mark.parametrize("scale", [1.0, 1e-9, 3e7])
    @pytest.mark.parametrize("loss", QUADRATIC)
    def test_boxes_become_targets_and_costs(self, loss, scale):
        data = dual_data(loss, n_rows=N_ROWS, C=0.3 * scale)
        assert (data.cost == 0.0).any()
        saved = {"box": data.box.copy(), "dual": np.arange(3.0)}
        working_set(10**6).upgrade(saved)
        assert sorted(saved) == ["dual", "targets"]
        np.testing.assert_array_equal(saved["targets"][:, 0], data.t)
        np.testing.assert_allclose(saved["targets"][:, 1], data.cost, rtol=1e-15, atol=0.0)
        # The bounds and the damping are those that the box had, to the last bit.
        again = np.array([box_of(loss, *row) for row in saved["targets"]])
        np.testing.assert_array_equal(again, data.box)

    @pytest.mark.parametrize("loss", QUADRATIC)
    def test_a_saved_set_is_read(self, loss):
        data = dual_data(loss, n_rows=N_ROWS, n_features=30)
        model, held, restored = dual_model(data), working_set(10**6), working_set(10**6)
        take(held, model, [rows_of(data, range(0, N_ROWS, 3), 1.0, dual=0.1)], 1.0)
        arrays, texts = {}, {}
        _flatten("0", held, arrays, texts)
        del arrays["0/targets"]
        arrays["0/box"] = data.box[held.ids]
        _upgrade("0", restored, arrays)
        _unflatten("0", restored, arrays, texts)
        np.testing.assert_allclose(restored.targets, data.targets[held.ids], rtol=1e-15, atol=0.0)
        assert restored.ids.tolist() == held.ids.tolist()
        assert restored.is_sound(30)

    def test_an_empty_set(self):
        saved = {"box": np.empty((0, 4))}
        working_set(10).upgrade(saved)
        assert saved["targets"].shape == (0, 2)

    @pytest.mark.parametrize("shape", [(5,), (5, 3), (5, 4, 1)])
    def test_a_box_of_another_shape_is_refused(self, shape):
        arrays, texts = {}, {}
        _flatten("0", working_set(10), arrays, texts)
        del arrays["0/targets"]
        arrays["0/box"] = np.zeros(shape)
        restored = working_set(10)
        _upgrade("0", restored, arrays)
        with pytest.raises(DamageError, match="no fitting targets"):
            _unflatten("0", restored, arrays, texts)

    def test_a_state_of_today_stays_as_it_is(self):
        saved = {"targets": np.ones((5, 2)), "dual": np.arange(5.0)}
        before = dict(saved)
        working_set(10).upgrade(saved)
        assert saved == before


@pytest.mark.parametrize(
    ("again", "d", "at_once"), [(False, 10, False), (True, 10, True), (True, 300, False)]
)
def test_a_step_comes_at_once_where_rows_are_solved_again(again, d, at_once, monkeypatch):
    data = dual_data("hinge", n_rows=3000, n_features=d, C=30.0, density=0.5)
    held, model, visits = working_set(10**7), dual_model(data), []
    take(held, model, [rows_of(data, range(3000), 1.0)], 0.0)
    step = proximal.proximal_step

    def at_step(*arguments):
        visits.append(arguments[-2][dual_loops.ROWS])
        return step(*arguments)

    monkeypatch.setattr(proximal, "proximal_step", at_step)
    held.solve(model, np.zeros(d), np.zeros(3), seed_of(1), 1.0, 10**9, patience=5.0, again=again)
    # Sweeps look at fewer rows each time.
    assert visits[0] == 3000 if at_once else 4 * 3000 < visits[0] <= 6 * 3000

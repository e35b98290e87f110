"""Rounds and lanes: how the data is cut, and what a round does with its rows and with those held."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from helpers.dual_data import (
    dual_data,
    dual_model,
    dual_vectors,
    held_rows,
    read_all,
    score_pass,
    sweep_pass,
)
from helpers.losses import LOSSES, plain_losses
from helpers.problems_data import MatrixSource, cut_rows
from helpers.thinning import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import sparse

from ooc_svm.data.matrix import MatrixSpan
from ooc_svm.engine.serial import SerialEngine
from ooc_svm.passes.base import WHOLE, RowSet, RowSlice, StridedRange
from ooc_svm.solvers.streamed_smo import dual_loops
from ooc_svm.solvers.streamed_smo.rounds import MIN_ROWS, cut_rounds
from ooc_svm.solvers.streamed_smo.sweep import NormPass, places, seed_of


def spans_of(lengths):
    edges = np.cumsum([0, *lengths])
    return [MatrixSpan(int(a), int(b), int(b - a), 8) for a, b in pairwise(edges)]


def row_numbers(rows):
    """The rows of a set, in the order of its segments."""
    return np.concatenate([np.arange(p.start, p.stop, p.step) for s in rows.segments for p in s])


@st.composite
def block_lengths(draw):
    """Rows of each block: alike, as conversion makes them, or anything."""
    if draw(st.booleans()):
        count, length = draw(st.integers(1, 300)), draw(st.integers(1, 3000))
        return [length] * count + [draw(st.integers(1, length))]
    return draw(st.lists(st.one_of(st.integers(1, 40), st.integers(1, 5000)), min_size=1, max_size=60))


class TestCutRounds:
    @given(block_lengths(), st.integers(1, 40), st.sampled_from([1, 2, 4, 8]))
    @settings(deadline=None, max_examples=examples(300))
    @example([1000, 3], 20, 4)
    @example([5000, 1, 5000], 20, 4)
    @example([1], 20, 4)
    def test_every_row_once_and_lanes_apart(self, lengths, n_rounds, n_lanes):
        blocks = spans_of(lengths)
        n_rows = blocks[-1].stop
        rounds = cut_rounds(blocks, n_rounds, n_lanes)
        visits = np.zeros(n_rows, dtype=int)
        before = 0
        for number, each in enumerate(rounds):
            assert len(each.rows.segments) == n_lanes
            ranges = [part for segment in each.rows.segments for part in segment]
            assert ranges
            position = each.position
            total = sum(r.rows.n_ranges for r in rounds)
            assert (position.before, position.own, position.total) == (before, len(ranges), total)
            assert position.begins == (number == 0)
            assert position.ends == (number == len(rounds) - 1)
            before += each.rows.n_ranges
            for part in ranges:
                span = blocks[part.block]
                assert span.start <= part.start < part.stop <= span.stop
                visits[part.start : part.stop : part.step] += 1
            # Row vectors on disk are written back as whole ranges, by several lanes at once.
            ends = sorted((part.start, part.stop) for part in ranges)
            assert all(a[1] <= b[0] for a, b in pairwise(ends))
            following = rounds[number + 1].rows.segments if number + 1 < len(rounds) else ()
            assert set(each.prefetch) == {segment[0].block for segment in following if segment}
            assert len(set(each.prefetch)) == len(each.prefetch)
        assert (visits == 1).all()

    @given(st.integers(1, 400), st.integers(1, 2000), st.integers(1, 40), st.sampled_from([1, 2, 4]))
    @settings(deadline=None, max_examples=examples(200))
    def test_about_as_many_rounds_as_wanted(self, n_blocks, length, n_rounds, n_lanes):
        rounds = cut_rounds(spans_of([length] * n_blocks), n_rounds, n_lanes)
        possible = max(1, min(n_rounds, n_blocks * length // (MIN_ROWS * n_lanes)))
        assert possible / 2 <= len(rounds) <= 2 * possible + 1

    @pytest.mark.parametrize(
        ("n_rows", "n_blocks", "most"), [(100, 1, 1), (600, 3, 3), (300, 300, 1), (2000, 2, 8)]
    )
    def test_few_rounds_where_rows_are_few(self, n_rows, n_blocks, most):
        assert len(cut_rounds(spans_of([n_rows // n_blocks] * n_blocks), 20, 4)) <= most

    def test_lanes_have_about_as_many_rows(self):
        for lengths in ([10_000], [700] * 30, [100] * 900):
            rounds = cut_rounds(spans_of(lengths), 20, 4)
            sizes = [sum(part.n_rows for part in segment) for r in rounds[:-1] for segment in r.rows.segments]
            assert max(sizes) <= 2 * min(sizes)

    def test_rounds_of_a_sorted_block_are_alike(self):
        """Each has rows from everywhere in the block."""
        rounds = cut_rounds(spans_of([8000]), 10, 4)
        assert len(rounds) == 10
        for each in rounds:
            rows = row_numbers(each.rows)
            assert np.bincount(rows // 1000, minlength=8).tolist() == [100] * 8


class TestPlaces:
    def test_only_rows_of_the_range(self):
        ids = np.array([3, 10, 13, 16, 17, 19, 22])
        inside, place = places(ids, StridedRange(0, 10, 20, 3))
        assert ids[inside].tolist() == [10, 13, 16, 19]
        assert place.tolist() == [0, 1, 2, 3]

    def test_marks(self):
        held = held_rows(100)
        marks = held.marks(RowSlice(20, 80, {}, 4))
        rows = np.arange(20, 80, 4)
        assert (marks & dual_loops.HELD > 0).tolist() == np.isin(rows, held.now).tolist()
        assert (marks & dual_loops.HELD_AT_START > 0).tolist() == np.isin(rows, held.at_start).tolist()

    def test_seeds_differ(self):
        seeds = [seed_of(a, b) for a in range(30) for b in range(30)]
        assert len(set(seeds)) == 900
        assert seed_of(1, 2) != seed_of(2, 1) != seed_of(1)


class Run:
    """One round on the reference engine, with the row vectors before and after."""

    def __init__(self, data, n_blocks=5, number=0, n_rounds=2, scored=True, **options):
        self.data, self.model = data, dual_model(data)
        source = MatrixSource(data.matrix, data.t, spans=cut_rows(data.matrix, n_blocks))
        of_read = cut_rounds(source.blocks, n_rounds, 2)[number]
        self.row_set = options.pop("rows", of_read.rows)
        position = of_read.position if self.row_set is of_read.rows else WHOLE
        self.rows = row_numbers(self.row_set)
        self.vectors = dual_vectors(data, [self.model])
        self.names = self.model.row_vectors
        self.before = [read_all(self.vectors, name) for name in self.names]
        self.request = sweep_pass(self.model, self.row_set, position, **options)
        self.scores = score_pass(self.model, self.row_set, position)
        requests = [self.request, self.scores] if scored else [self.request]
        self.answer = SerialEngine(source, self.vectors).stream(requests)[0]
        self.after = [read_all(self.vectors, name) for name in self.names]


DATA = {"n_rows": 400, "n_features": 30}


class TestRound:
    @pytest.mark.parametrize("rho", [0.0, 1.0])
    @pytest.mark.parametrize("n_blocks", [1, 40])
    @pytest.mark.parametrize("loss", LOSSES)
    def test_sums_are_those_of_its_rows(self, loss, n_blocks, rho):
        data, held = dual_data(loss, rho=rho, scaled=rho > 0.0, **DATA), held_rows(400)
        # Inside their bounds, where a class has one at 0.
        held.multipliers[:] *= np.sign(data.t)[held.returned] * (data.cost[held.returned] > 0.0)
        run = Run(data, n_blocks, held=held, number=1)
        others = np.setdiff1d(np.arange(400), run.rows)
        assert len(others) > 100
        for before, after in zip(run.before, run.after, strict=True):
            assert before[others].tobytes() == after[others].tobytes()
        dual = run.before[0] + 0.6 * run.before[1]
        dual[held.returned] = held.multipliers
        np.testing.assert_array_equal(run.after[0][run.rows], dual[run.rows])
        own = np.zeros(400, dtype=bool)
        own[run.rows] = True
        step = np.where(own, run.after[1], 0.0)
        assert (step[held.now] == 0.0).all()
        moving = own & ~np.isin(np.arange(400), held.now)
        assert (step[moving] != 0.0).sum() > moving.sum() // 4
        inside = dual + step
        assert (inside[own] >= data.box[own, 1] - 1e-12).all()
        assert (inside[own] <= data.box[own, 2] + 1e-12).all()
        answer = run.answer
        np.testing.assert_allclose(answer.w, run.request.w + data.weights(step), atol=1e-9)
        kept = own & ~np.isin(np.arange(400), held.at_start)
        np.testing.assert_allclose(answer.rebuilt, data.weights(np.where(kept, dual, 0.0)), atol=1e-9)
        np.testing.assert_allclose(run.after[2][run.rows], (data.matrix @ run.scores.reference)[run.rows])
        assert answer.sums[dual_loops.MOVED] == pytest.approx(step.sum())
        linear, quadratic = answer.sums[dual_loops.LINEAR], answer.sums[dual_loops.QUADRATIC]
        gain = data.linear(np.where(own, inside, 0.0)) - data.linear(np.where(own, dual, 0.0))
        assert linear - 0.5 * quadratic == pytest.approx(gain)
        assert answer.sums[dual_loops.ROWS] == moving.sum()
        assert answer.sums[dual_loops.ELEMENTS] == np.diff(data.matrix.indptr)[moving].sum()

    def test_gaps_are_those_of_the_rows_one_after_another(self):
        """With one row a lane nothing moves before the gap is taken."""
        data = dual_data("hinge", **DATA)
        rows = [7, 100, 200, 399]
        blocks = cut_rows(data.matrix, 5)
        block_of = [next(k for k, span in enumerate(blocks) if span.start <= i < span.stop) for i in rows]
        row_set = RowSet(tuple((StridedRange(k, i, i + 1),) for k, i in zip(block_of, rows, strict=True)))
        run = Run(data, rows=row_set)
        v, s = run.after[0][rows], data.matrix[rows] @ run.request.w + 0.1
        t = data.t[rows]
        gaps = plain_losses("hinge", t, s, data.cost[rows]) - (t - s) * v
        assert run.answer.sums[dual_loops.GAP] == pytest.approx(gaps.sum())

    def test_what_is_not_wanted_is_left_alone(self):
        data = dual_data("hinge", **DATA)
        whole, bare = Run(data), Run(data, scored=False, rebuild=False)
        assert bare.after[2].tobytes() == bare.before[2].tobytes()
        assert len(bare.answer.rebuilt) == 0
        assert bare.answer.w.tobytes() == whole.answer.w.tobytes()
        was = slice(dual_loops.WAS_LINEAR, None)
        assert not bare.answer.sums[was].any()
        assert whole.answer.sums[was].all()
        bare.answer.sums[was] = whole.answer.sums[was]
        assert bare.answer.sums.tobytes() == whole.answer.sums.tobytes()
        assert bare.after[0].tobytes() == whole.after[0].tobytes()

    def test_weights_that_came_in_stay(self):
        run = Run(dual_data("hinge", **DATA))
        fresh = sweep_pass(run.model, run.row_set)
        assert run.request.w.tobytes() == fresh.w.tobytes()
        assert run.request.bias.tobytes() == fresh.bias.tobytes()

    def test_all_lanes_begin_alike(self):
        """A lane alone does what it does next to others."""
        data = dual_data("epsilon-insensitive", rho=1.0, **DATA)
        both = Run(data, 40)
        lanes = both.row_set.segments
        one = Run(data, 40, rows=RowSet((lanes[0], ())))
        two = Run(data, 40, rows=RowSet(((), lanes[1])))
        assert len(one.rows) + len(two.rows) == len(both.rows)
        assert len(lanes[0]) > 1
        np.testing.assert_array_equal(both.after[1][one.rows], one.after[1][one.rows])
        np.testing.assert_array_equal(both.after[1][two.rows], two.after[1][two.rows])
        np.testing.assert_array_equal(both.answer.sums, one.answer.sums + two.answer.sums)
        np.testing.assert_allclose(both.answer.w, one.answer.w + two.answer.w - both.request.w, atol=1e-14)

    def test_ranges_of_a_lane_follow_on_from_each_other(self):
        """Weights and bias of a lane go on from range to range."""
        data = dual_data("hinge", rho=1.0, **DATA)
        lane = Run(data, 40).row_set.segments[0][:2]
        both = Run(data, 40, rows=RowSet((lane,)))
        first = Run(data, 40, rows=RowSet((lane[:1],)))
        request = replace(
            both.request, w=first.answer.w, rows=RowSet((lane[1:],)), bias=both.request.bias.copy()
        )
        moved = first.answer.sums[dual_loops.MOVED]
        request.bias[dual_loops.B] += request.bias[dual_loops.RHO] * moved
        request.bias[dual_loops.TOTAL] += moved
        second = Run(data, 40, rows=RowSet((lane[1:],)))
        vectors = dual_vectors(data, [both.model])
        source = MatrixSource(data.matrix, data.t, spans=cut_rows(data.matrix, 40))
        answer = SerialEngine(source, vectors).stream([request])[0]
        assert answer.w.tobytes() == both.answer.w.tobytes()
        step = read_all(vectors, both.names[1])[second.rows]
        assert step.tobytes() == both.after[1][second.rows].tobytes()
        assert step.tobytes() != second.after[1][second.rows].tobytes()


class TestBest:
    """What lanes bring back for the working set."""

    @pytest.mark.parametrize("ones", [False, True])
    @pytest.mark.parametrize("n_blocks", [1, 40])
    def test_with_room_for_all_it_is_all_rows_that_cost_something_and_are_not_held(self, n_blocks, ones):
        data, held = dual_data("hinge", ones=ones, **DATA), held_rows(400)
        run = Run(data, n_blocks, held=held)
        best = run.answer.candidates
        ids = np.concatenate([rows.ids for rows in best])
        assert sorted(ids) == sorted(np.setdiff1d(run.rows[data.cost[run.rows] > 0.0], held.now))
        assert (data.cost == 0.0).any()
        of_lane = [{i for p in s for i in range(p.start, p.stop, p.step)} for s in run.row_set.segments]
        lanes = [next(k for k, own in enumerate(of_lane) if rows.ids[0] in own) for rows in best]
        assert lanes == sorted(lanes)
        for rows in best:
            matrix, copies = data.matrix[rows.ids], rows.copies
            assert copies.ids[rows.places].tolist() == rows.ids.tolist()
            assert len(copies.ids) == len(rows.ids)
            assert (copies.values is None) == ones
            values = np.ones(len(copies.indices)) if ones else copies.values
            found = sparse.csr_array((values, copies.indices, copies.indptr), shape=matrix.shape)
            assert abs(found - matrix).max() == 0.0
            assert (np.diff(rows.ids) > 0).all()
            np.testing.assert_array_equal(rows.targets, data.targets[rows.ids])
            np.testing.assert_array_equal(rows.dual, run.after[0][rows.ids])
            np.testing.assert_array_equal(rows.step, run.after[1][rows.ids])
            assert (rows.priority >= 0.0).all()

    @pytest.mark.parametrize("room", [0, 1, 50, 300, 500])
    @pytest.mark.parametrize("n_blocks", [1, 40])
    def test_they_are_the_best_that_fit(self, n_blocks, room):
        data, held = dual_data("hinge", **DATA), held_rows(400)
        whole, run = Run(data, n_blocks, held=held), Run(data, n_blocks, held=held, room=room)
        key = {
            int(i): k
            for rows in whole.answer.candidates
            for i, k in zip(rows.ids, rows.priority, strict=True)
        }
        size = dict(enumerate(np.diff(data.matrix.indptr) + 1))
        kept = {int(i) for rows in run.answer.candidates for i in rows.ids}
        for rows in run.answer.candidates:
            assert [key[i] for i in rows.ids] == rows.priority.tolist()
        for lane in run.row_set.segments:
            of_lane = [set(range(p.start, p.stop, p.step)) & set(key) for p in lane]
            assert sum(size[i] for own in of_lane for i in own & kept) <= room
            n_rows = sum(p.n_rows for p in lane)
            for part, own in zip(lane, of_lane, strict=True):
                share = room * part.n_rows // n_rows
                # Rows that would not fit alone are passed over.
                left = {i for i in own - kept if size[i] <= share}
                if left:
                    next_one = max(left, key=lambda i: (key[i], -i))
                    assert min((key[i] for i in own & kept), default=9.0) >= key[next_one]
                    assert sum(size[i] for i in own & kept) + size[next_one] > share
        assert len(kept) < len(key)

    @pytest.mark.parametrize("most", [1, 3, 20])
    def test_they_are_no_more_than_asked_for(self, most):
        data, held = dual_data("hinge", **DATA), held_rows(400)
        whole, run = Run(data, 1, held=held), Run(data, 1, held=held, most=most)
        for rows, every in zip(run.answer.candidates, whole.answer.candidates, strict=True):
            assert len(rows.ids) == most < len(every.ids)
            chosen = np.isin(every.ids, rows.ids)
            assert every.priority[chosen].min() >= every.priority[~chosen].max() - 1e-3

    @pytest.mark.parametrize("least", [0.4, 1.0, 9.0])
    def test_those_below_the_least_priority_are_left_out(self, least):
        data, held = dual_data("hinge", **DATA), held_rows(400)
        whole, run = Run(data, 7, held=held), Run(data, 7, held=held, min_priority=least)
        priorities = [rows.priority for rows in whole.answer.candidates]
        expected = [rows.ids[rows.priority >= least].tolist() for rows in whole.answer.candidates]
        assert [rows.ids.tolist() for rows in run.answer.candidates] == [ids for ids in expected if ids]
        assert np.concatenate(priorities).min() < least
        assert read_all(run.vectors, run.names[0]).tobytes() == run.after[0].tobytes()

    def test_rows_without_features_take_room_too(self):
        data = dual_data("hinge", **DATA)
        data.matrix.data[:] = 0.0
        data.matrix.eliminate_zeros()
        assert sum(len(rows.ids) for rows in Run(data, 1, room=10).answer.candidates) == 20


@pytest.mark.parametrize("scaled", [False, True])
def test_norms_of_a_part_of_the_rows(scaled):
    data = dual_data("hinge", scaled=scaled, **DATA)
    source = MatrixSource(data.matrix, data.t, spans=cut_rows(data.matrix, 3))
    last = cut_rounds(source.blocks, 4, 2)[-1]
    rows = row_numbers(last.rows)
    engine = SerialEngine(source, dual_vectors(data, []))
    model = dual_model(data)
    bare = engine.stream([NormPass(model, False, last.rows, last.position)])[0]
    found = engine.stream([NormPass(model, True, last.rows, last.position)])[0]
    cost, squares = data.cost[rows], (data.scaled[rows] ** 2).sum(axis=1)
    lengths = (np.diff(data.matrix.indptr)[rows] + 2) ** 2 * squares
    expected = [cost.sum(), cost @ squares, cost @ lengths, np.sqrt(lengths.max())]
    np.testing.assert_allclose(found.sums, expected)
    np.testing.assert_allclose(found.columns, data.matrix[rows].T @ cost)
    assert bare.sums.tobytes() == found.sums.tobytes()
    assert len(bare.columns) == 0

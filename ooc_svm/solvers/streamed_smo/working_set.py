"""The resident rows that matter to a model, with what the model knows of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import BoolArray, Float64Array, Int64Array, Values
from ooc_svm.ops import rows as row_ops
from ooc_svm.passes.crew import Crew
from ooc_svm.solvers.streamed_smo import dual_loops, proximal
from ooc_svm.solvers.streamed_smo.dual import DualModel, looked_at
from ooc_svm.solvers.streamed_smo.newton_loops import inner
from ooc_svm.solvers.streamed_smo.proximal import ProximalSteps, Solve, count_pieces
from ooc_svm.solvers.streamed_smo.resident_rows import ResidentRows, is_narrow
from ooc_svm.solvers.streamed_smo.sweep import CandidateRows, CopiedRows, seed_of
from ooc_svm.solvers.streamed_smo.team import Parts, Team, on_lines

# Limits of the search for a bias: doublings of a step, and halvings of the interval that is found.
MAX_DOUBLINGS, BISECTIONS = 60, 20

GO_ON = np.zeros(1, np.uint8)  # For a solve that nothing stops

SAME = 1e-12  # Relative difference of two costs that is rounding


@dataclass(slots=True)
class WorkingSet:
    """The rows whose multipliers a model moves between those that it reads.

    Rows that are resident for other models alone are not among them: they are moved when they are read.
    """

    rows: ResidentRows = field(metadata={"saved_as": "", "shared": True})
    places: Int64Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # shape (m,): in ``rows``
    # shape (m, 2): target and cost of each row
    targets: Float64Array = field(default_factory=lambda: np.empty((0, 2)))
    # shape (m,): multipliers, and how far each row was from being stationary when last looked at
    dual: Float64Array = field(default_factory=lambda: np.empty(0))
    stationarity: Float64Array = field(default_factory=lambda: np.empty(0))
    # shape (k,): products of the first rows with the mean; those that came since the last solving have none
    # yet
    moments: Float64Array = field(default_factory=lambda: np.empty(0), metadata={"saved": False})
    # How firmly the first proximal step of a solve holds multipliers, 0 if that is not known yet
    firm: float = 0.0
    # The threads that may solve: of rows in parts; of other rows
    _team: Team | None = field(default=None, init=False, metadata={"saved": False})
    _crew: Crew = field(init=False, metadata={"saved": False})
    # Sum of the row gaps that a step left, if the last solve ended with one
    _gap_after_step: float = field(default=math.inf, init=False, metadata={"saved": False})

    def __post_init__(self) -> None:
        self._crew = self.rows.crew()
        if self.rows.n_parts > 1:
            self._team = Team(self.rows.n_parts)

    def is_helped(self, n_columns: int) -> bool:
        """Whether other threads may take part in a `solve`: of rows in parts, or by steps in pieces."""
        in_pieces = n_columns <= self.rows.most_columns and count_pieces(self.rows.capacity) > 1
        return self._team is not None or in_pieces

    def help(self) -> bool:
        """Take part in the `solve` of another thread, see `Overlap`."""
        return self._crew.help() if self._team is None else self._team.help()

    @property
    def ids(self) -> Int64Array:
        """Row numbers, shape (m,)."""
        return self.rows.ids[self.places]

    def priorities(self, model: DualModel, unit: float) -> Float64Array:
        """What each row is worth keeping; ``unit``: of residuals."""
        priority = np.empty(len(self.places))
        dual_loops.priorities(model.loss, self.dual, self.stationarity, unit, self.targets, priority)
        return priority

    def keep(self, kept: BoolArray, places: Int64Array) -> tuple[Int64Array, Float64Array]:
        """Keep some rows only, which will be at other places; ids and multipliers of those that leave."""
        gone = np.flatnonzero(~kept)
        leaving = self.rows.ids[self.places[gone]], self.dual[gone]
        if len(gone):
            stay = np.flatnonzero(kept)
            places, self.targets = places.take(stay), self.targets.take(stay, axis=0)
            self.dual, self.stationarity = self.dual.take(stay), self.stationarity.take(stay)
            self.moments = self.moments.take(stay[: np.searchsorted(stay, len(self.moments))])
        self.places = places
        return leaving

    def append(self, rows: CandidateRows, chosen: Int64Array, places: Int64Array, theta: float) -> None:
        """Take some rows that are at these places; ``theta``: the share of their steps that was taken."""
        self.places = np.concatenate([self.places, places])
        self.targets = np.concatenate([self.targets, rows.targets.take(chosen, axis=0)])
        self.dual = np.concatenate([self.dual, rows.dual[chosen] + theta * rows.step[chosen]])
        self.stationarity = np.concatenate([self.stationarity, np.zeros(len(chosen))])

    def copy(self) -> WorkingSet:
        """The same rows, to be moved apart from these."""
        targets, dual, stationarity = self.targets.copy(), self.dual.copy(), self.stationarity.copy()
        return WorkingSet(
            self.rows, self.places.copy(), targets, dual, stationarity, self.moments.copy(), self.firm
        )

    def rescale(self, model: DualModel, ratio: float) -> None:
        """Go on with C times ``ratio``: costs and multipliers are multiplied."""
        self.dual *= ratio
        self.targets[:, 1] *= ratio
        dual_loops.put_inside(model.loss, self.dual, self.targets)

    def solve(
        self,
        model: DualModel,
        w: Float64Array,
        bias: Float64Array,
        seed: np.uint64,
        wanted: float,
        most_elements: int,
        *,
        patience: float = math.inf,
        again: bool = False,
        unit: float = 1.0,
        mean: Float64Array | None = None,
        stop: npt.NDArray[np.uint8] = GO_ON,
        follow: float = 0.0,
    ) -> tuple[Float64Array, float]:
        """Improve the multipliers here until their gaps sum up to ``wanted``; w and b follow.

        ``bias``, ``mean``, ``stop`` and ``follow``: see `dual_loops`.
        ``patience``: sweeps before a proximal step, if that is not reached by then. One, whatever this is,
        where columns are few and the rows are solved ``again``, to a smaller sum than they just were.
        ``unit``: of residuals.

        Returns the sums of `dual_loops.solve`, shape (N_SUMS,), and a bound of the norm of w on the way.
        """
        sums, rows = np.zeros(dual_loops.N_SUMS), self.rows
        if not len(self.places):
            return sums, 0.0
        scale2, own_mean, moments = rows.own(model.space.scale2), rows.own(mean), self._moments(mean)
        of_rows = rows.matrix, self._unsigned_places, rows.squares, moments, own_mean, scale2
        first = 1.0 if again and is_narrow(rows.n_solved(len(w))) else patience
        if again and self._gap_after_step < math.inf:
            first, sums[dual_loops.GAP] = 0.0, self._gap_after_step
        run = partial(
            self._run, model, seed=seed, wanted=wanted, most_elements=most_elements, unit=unit, stop=stop,
            follow=follow, sums=sums,
        )  # fmt: skip

        def solve(parts: Parts | None, own: Float64Array) -> float:
            here = Solve(model.loss, *of_rows, own, bias, self.targets, self.dual, self.stationarity)
            if rows.by_factor and own is w:
                return self._run_by_factor(run, model, here, first, most_elements, sums)
            has_steps = own is w and len(w) <= rows.most_columns
            return run(here, first if has_steps else None, parts=parts)[0]

        if self._team is None:
            own = rows.own(w)
            longest = solve(None, own)
        else:
            own = rows.own(w, on_lines(len(rows.columns) or len(w), np.float64))
            try:
                longest = solve(self._team.begin(*rows.matrix, rows.cuts, scale2, own), own)
            finally:
                self._team.end()
        rows.give_back(own, w)
        return sums, longest

    def _run(
        self,
        model: DualModel,
        here: Solve,
        first: float | None,
        *,
        seed: np.uint64,
        wanted: float,
        most_elements: int,
        unit: float,
        stop: npt.NDArray[np.uint8],
        follow: float,
        sums: Float64Array,
        parts: Parts | None = None,
        most_sweeps: float = math.inf,
    ) -> tuple[float, bool]:
        """Sweep rows, so often before the first proximal step; None: there is none.

        ``most_sweeps``: after a step that moves nothing.

        Returns a bound of the norm of w on the way, and whether there is no more to do.
        """
        n_elements, steps, limit = 0, None, most_elements
        if first is not None:
            n_elements = here.count_elements()
            steps = self._steps(model, here, n_elements, unit, stop, sums)
            if steps is not None and first * n_elements < most_elements:
                limit = int(first * n_elements)
        longest, order, n_steps = 0.0, seed, 0
        self._gap_after_step = math.inf
        while True:
            done = limit > 0 and dual_loops.solve(
                here.loss, *here.matrix, parts, here.places, here.squares, here.moments, here.scale2, here.w,
                here.bias, follow, here.targets, here.dual, here.stationarity, order, wanted, limit, stop,
                sums,
            )  # fmt: skip
            left = most_elements - looked_at(sums)
            if done or stop[0] or left <= 0 or steps is None:
                return longest, bool(done or stop[0])
            longer, gap, limit = steps.go(wanted, left)
            self.firm = steps.first
            longest = max(longest, math.sqrt(inner(here.w, here.w, here.scale2)) + longer)
            if steps.is_idle:
                steps, limit = None, int(min(limit, most_sweeps * n_elements))
            if gap <= proximal.ENOUGH * wanted:
                self._gap_after_step = gap
                return longest, True
            n_steps += 1
            order = seed_of(int(seed), n_steps)

    def _run_by_factor(
        self,
        run: Callable[..., tuple[float, bool]],
        model: DualModel,
        here: Solve,
        first: float,
        most_elements: int,
        sums: Float64Array,
    ) -> float:
        """Solve the rows of a factor in place of those here, after sweeps of these at first; as `_run`."""
        rows, longest, n_elements = self.rows, 0.0, here.count_elements()
        if not self.firm and first > 0.0:
            # What few sweeps solve is not worth a factor.
            longest, done = run(here, None, most_elements=int(first * n_elements))
            if done:
                return longest
            first = 0.0
        if (factor := rows.factor(len(here.w), here.scale2)) is None:
            return max(longest, run(here, first if len(here.w) <= rows.most_columns else None)[0])
        before, n_changes = self.dual.copy(), sums[dual_loops.CHANGES]
        w = factor.vector(rows.scores(here.w))
        mean = None if here.mean is None else factor.vector(rows.scores(here.mean))
        factored = replace(here, matrix=factor.matrix, mean=mean, scale2=None, w=w, products=factor.products)
        run(factored, first, most_sweeps=most_elements / n_elements)
        # The rows move w once.
        change = self.dual - before
        longest = max(
            longest, model.space.norm(here.w) + float(np.abs(change) @ np.sqrt(rows.squares[self.places]))
        )
        self._add_rows(model, change, here.w)
        sums[dual_loops.CHANGES] = n_changes + np.count_nonzero(change)
        return longest

    def _steps(
        self,
        model: DualModel,
        here: Solve,
        n_elements: int,
        unit: float,
        stop: npt.NDArray[np.uint8],
        sums: Float64Array,
    ) -> ProximalSteps | None:
        """The proximal steps of a `solve`, if it has any; ``n_elements``: nonzeros and rows."""
        # Where multipliers have limits, these are what residuals are to be compared with.
        scale = unit if model.has_limits else 1.0
        if not scale > 0.0:
            return None
        by_products = model.has_limits and not is_narrow(len(here.w))
        where = here, n_elements, stop, sums, self._crew
        return ProximalSteps(*where, first=self.firm, unit=scale, by_products=by_products)

    def bias_step(self, model: DualModel, w: Float64Array, bias: Float64Array, step: float) -> float:
        """The change of b at which the losses' slopes sum up to 0, those of rows elsewhere staying.

        ``step`` is returned where that is less: the sum would have changed its sign before.
        """
        total = float(bias[dual_loops.TOTAL])
        elsewhere = total - float(self.dual.sum())
        residual = np.empty(len(self.places))
        moments = None if not len(self.moments) else self.moments
        dual_loops.residuals(
            *self.rows.matrix, self._unsigned_places, moments, self.rows.own(w), bias, self.targets, residual
        )

        def beyond(shift: float) -> bool:
            """Whether the sum at a shift still has the sign that it has now."""
            slopes = dual_loops.slope_sum(model.loss, residual, shift, self.targets)
            return bool((elsewhere + slopes) * total > 0.0)

        near, far = step, 2.0 * step
        if not math.isfinite(far) or step == 0.0 or not beyond(near):
            return step
        for _ in range(MAX_DOUBLINGS):
            if not beyond(far):
                break
            near, far = far, 2.0 * far
        else:
            return step
        for _ in range(BISECTIONS):
            middle = 0.5 * (near + far)
            if beyond(middle):
                near = middle
            else:
                far = middle
        return near

    def sums_before(self, model: DualModel) -> Float64Array:
        """The sums of the multipliers here, see `dual_loops.count_before`."""
        sums = np.zeros(dual_loops.N_SUMS)
        marks = np.zeros(len(self.dual), np.uint8)
        dual_loops.count_before(model.loss, self.dual, self.targets, marks, sums)
        return sums

    def sum_of_rows(self, model: DualModel) -> Float64Array:
        """Sum of ``v_i x_i`` over the rows here, in units of the data."""
        total = np.zeros(model.space.n_features)
        self._add_rows(model, self.dual, total)
        return total

    def count_with_cost(self) -> int:
        """Number of rows here that cost something."""
        return int(np.count_nonzero(self.targets[:, 1]))

    def count_free(self, model: DualModel) -> int:
        """Number of rows here that are free."""
        return int(dual_loops.count_free(model.loss, self.dual, self.targets))

    def takes_up(self, model: DualModel, excess: float, least: float) -> bool:
        """Whether rows of at least this priority could take away an excess of the multipliers' sum."""
        m = len(self.dual)
        room, inside = np.empty(m), np.empty(m, np.bool_)
        dual_loops.rooms(model.loss, self.dual, self.targets, -np.sign(excess), room, inside)
        return bool(room[self.priorities(model, 1.0) >= least].sum() >= abs(excess))

    def absorb(self, model: DualModel, excess: float, w: Float64Array) -> tuple[float, float, Float64Array]:
        """Move w as if the multipliers here took away an excess of their sum; they stay as they are.

        Those off their bounds go first, since D does not feel them in first order; no multiplier changes its
        sign.

        Returns the change of D without its norm, what could not be taken away, and sums of the changes as
        `dual_loops.solve` has them.
        """
        change, rest = self._changes(model, excess)
        gain, sums = self._take(model, change, w)
        return gain, rest, sums

    def _take(self, model: DualModel, change: Float64Array, w: Float64Array) -> tuple[float, Float64Array]:
        """Move w by changes of the multipliers: what D without its norm gains, and sums of the changes."""
        gains = np.empty(len(change))
        dual_loops.gains(model.loss, self.dual, change, self.targets, gains)
        self._add_rows(model, change, w)
        sums = np.zeros(dual_loops.N_SUMS)
        sums[dual_loops.CHANGES] = np.count_nonzero(change)
        sums[dual_loops.DISTANCE] = np.abs(change).sum()
        sums[dual_loops.SIZE] = np.abs(gains).sum() + 2.0 * np.abs(change * self.targets[:, 0]).sum()
        return float(gains.sum()), sums

    def settle(self, model: DualModel, excess: float, w: Float64Array) -> Float64Array:
        """`absorb` an excess for good: the multipliers change too; sums as `dual_loops.solve` has them."""
        change, _ = self._changes(model, excess)
        gain, sums = self._take(model, change, w)
        self.dual += change
        sums[dual_loops.LINEAR], sums[dual_loops.MOVED] = gain, change.sum()
        return sums

    def _changes(self, model: DualModel, excess: float) -> tuple[Float64Array, float]:
        """The changes of the multipliers that take an excess away, and what could not be taken away."""
        away = -np.sign(excess)
        m = len(self.dual)
        room, inside, change = np.empty(m), np.empty(m, np.bool_), np.zeros(m)
        dual_loops.rooms(model.loss, self.dual, self.targets, away, room, inside)
        rest = abs(excess)
        for tier in (inside, ~inside):
            most = float(room[tier].sum())
            if rest > 0.0 and most > 0.0:
                part = min(1.0, rest / most)
                change[tier] = away * part * room[tier]
                rest = rest - most if part == 1.0 else 0.0
        return change, max(rest, 0.0)

    def holds(self, rows: CopiedRows, targets: Float64Array) -> bool:
        """Whether some rows are here, the same to the last bit; costs but for rounding, see `rescale`."""
        if not self.rows.holds(rows):
            return False
        pair = np.full(len(self.rows.ids), -1)
        pair[self.places] = np.arange(len(self.places))
        own = pair[self.rows.find(rows.ids)]
        return bool((own >= 0).all()) and np.allclose(self.targets[own], targets, rtol=SAME, atol=0.0)

    def upgrade(self, saved: dict[str, npt.NDArray[Any]]) -> None:
        """Turn the arrays of older releases into today's.

        Version 1 had bounds and damping for the cost. Later each model had resident rows of its own, then
        columns had no numbers. None knew how firm its steps were.
        """
        box = saved.pop("box", None)
        if box is not None and box.ndim == 2 and box.shape[1] == 4:
            with np.errstate(divide="ignore"):
                cost = np.where(box[:, 3] > 0.0, 0.5 / box[:, 3], np.maximum(-box[:, 1], box[:, 2]))
            saved["targets"] = np.column_stack([box[:, 0], cost])
        if "ids" in saved:
            saved.setdefault("columns", np.empty(0, np.int32))
        if "places" not in saved and "ids" in saved:
            saved["places"] = np.arange(saved["ids"].size)
            if len(self.rows.ids):
                self._join(saved)
        if "places" in saved:
            saved.setdefault("firm", np.asarray(0.0))

    def _join(self, saved: dict[str, npt.NDArray[Any]]) -> None:
        """Make the saved rows of this model a part of those that others have brought."""
        rows = self.rows
        ids, indptr, indices, values = (
            saved.get(name, np.empty(0)) for name in ("ids", "indptr", "indices", "values")
        )
        own = ResidentRows(rows.capacity, values, rows.all_ones, ids, indptr, indices)
        kinds = [(a.dtype, a.ndim) for a in (own.values, own.ids, own.indptr, own.indices)]
        wanted = [(a.dtype, a.ndim) for a in (rows.values, rows.ids, rows.indptr, rows.indices)]
        if kinds != wanted or not own.is_whole():
            return  # what is refused when it is taken for the state
        places = rows.find(own.ids)
        new = np.flatnonzero(places < 0)
        places[new] = len(rows.ids) + np.arange(len(new))
        saved["places"] = places
        joined = rows.joined(CopiedRows(ids, indptr, indices, None if own.all_ones else values), new)
        saved |= {name: getattr(joined, name) for name in ("ids", "indptr", "indices", "values", "columns")}

    def is_sound(self, n_features: int) -> bool:
        """Whether the parts fit each other; a saved set may come from anywhere."""
        m = len(self.places)
        fits = self.targets.shape == (m, 2) and len(self.dual) == len(self.stationarity) == m
        if not (fits and 0.0 <= self.firm < math.inf):
            return False
        inside = ((self.places >= 0) & (self.places < len(self.rows.ids))).all()
        return bool(inside) and len(np.unique(self.places)) == m and self.rows.is_sound(n_features)

    @property
    def _unsigned_places(self) -> Values:
        return row_ops.unsigned(self.places)

    def _moments(self, mean: Float64Array | None) -> Float64Array | None:
        """Products of the rows with the mean, if there is one."""
        if mean is None:
            return None
        new = self._unsigned_places[len(self.moments) :]
        moments = np.empty(len(new))
        row_ops.row_scores(*self.rows.matrix, new, self.rows.own(mean), moments)
        self.moments = np.concatenate([self.moments, moments])
        return self.moments

    def _add_rows(self, model: DualModel, coefficients: Float64Array, w: Float64Array) -> None:
        """``w += sum_i coefficients_i x_i``, in units of the data."""
        spread = np.zeros(len(self.rows.ids))
        spread[self.places] = coefficients
        own = self.rows.own(w)
        row_ops.add_rows(*self.rows.matrix, self.rows.own(model.space.scale2), spread, own)
        self.rows.give_back(own, w)

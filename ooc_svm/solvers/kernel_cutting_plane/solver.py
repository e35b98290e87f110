"""Yajima and Kawasoe, cutting planes for support vector algorithms, with kernels (figures 2 to 5).

    min 1/2 |f|^2 + C R(f)         R: the losses of the rows, b and other free parameters at their best for f
    R(f) >= delta_k - h_k.s        for the scores s of every f: a cut

A cut k is a vector h of the rows (`cut_rules`), and ``g = K h`` the scores of its function. The master
problem over the cuts has the matrix ``P = H'G``, which grows by a row in each iteration (3.17, 3.33, 4.5):

    max_beta  delta.beta - 1/2 beta.P beta,   beta >= 0,   sum beta <= C   (by nu: = C)

Its solution is the function of ``v = H beta``, with the scores ``s = G beta``. The best free parameters for
these are order statistics (Theorems 3.1, 3.4, 4.3, 4.5), and the most violated cut follows from them: it is
the subgradient in which they do not occur. An iteration reads the data twice, once for the rows of the new h
that are not 0 and once for the products of all rows with these; that is counted as one read. H and G are row
vectors.

The heuristic (3.19) takes an h with more zeros that still cuts the solution off: of each sign the pieces with
the largest losses. It costs more iterations, and each of them evaluates fewer columns of K.

P and D are those of v: both follow from v and s on all rows, in float64.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array
from ooc_svm.passes.base import UNCOUNTED, Position, Steps
from ooc_svm.passes.columns import Magnitudes
from ooc_svm.passes.gather import GatherPass, join_gathered
from ooc_svm.passes.rowwise import CopyScores, RowPass
from ooc_svm.solvers.base import PRECISION, KeptScores, KernelExpansion, Sample, Solver
from ooc_svm.solvers.certificate import Certificate
from ooc_svm.solvers.cutting_plane.free_oracle import EDGE, FreeCutOracle
from ooc_svm.solvers.cutting_plane.quantile import weighted_quantiles
from ooc_svm.solvers.kernel_cutting_plane import cut_rules
from ooc_svm.solvers.kernel_cutting_plane.columns_pass import ColumnsPass, PartOfRows
from ooc_svm.solvers.kernel_cutting_plane.cut_rules import Pair, SidedLosses
from ooc_svm.solvers.kernel_cutting_plane.master import CutMatrix
from ooc_svm.solvers.rounding import FEW, gamma
from ooc_svm.solvers.smo.objective import largest_values

# Of the weight of the pieces that the most violated cut takes, the shares that a sparser one is tried with,
# and the share of its height that is enough.
SHARES, ENOUGH = (1 / 16, 1 / 8, 1 / 4, 1 / 2), 0.2
CHECKED = 8  # Cuts whose products a resumed run finds again at a time: each takes a row vector


@dataclass(slots=True)
class KernelCutState:
    """Everything the solver knows between two reads, apart from the row vectors."""

    cuts: CutMatrix
    certificate: Certificate = field(default_factory=Certificate)
    best_free: Float64Array = field(default_factory=lambda: np.zeros(2))  # b, and k of the nu problems
    # Of the rows: largest squared norm, nonzeros of the longest; 0 before the first read
    square: float = 0.0
    nonzeros: float = 0.0
    columns: float = 0.0  # Columns of the kernel matrix evaluated so far

    def is_sound(self) -> bool:
        """Whether the parts fit each other; a saved state may come from anywhere."""
        known = self.best_free.shape == (2,) and bool(np.isfinite(self.best_free).all())
        return known and self.square >= 0.0 and self.cuts.is_sound() and self.certificate.is_sound()


@dataclass(slots=True, eq=False)
class KernelCuttingPlane(Solver):
    """The solver of one model."""

    oracle: FreeCutOracle  # Of losses of scores; its space has the free parameters alone
    kernel: Any  # See `ooc_svm.ops.kernels`
    n_features: int
    scale2: Float64Array | None
    stopping: Any  # ooc_svm.solvers.stopping.Stopping
    state: KernelCutState
    name: str
    n_rows: int
    parts: int  # Parts that the rows of a cut are brought to memory in
    checked_parts: int  # Parts that those of several cuts are
    sparse: bool = False  # Whether cuts are made sparser (3.19)
    _free: Float64Array = field(default_factory=lambda: np.zeros(2))  # At the scores of the moment
    _origin: str | None = None
    _facts: dict[str, float] = field(default_factory=dict)

    @property
    def losses(self) -> SidedLosses:
        """The losses at the scores of the moment."""
        losses = self.oracle.losses
        assert isinstance(losses, SidedLosses)
        return losses

    @property
    def multipliers(self) -> str:
        """Row vector of v."""
        return f"{self.name}/multipliers"

    @property
    def coefficients(self) -> str:
        """Row vector of v at the best point."""
        return f"{self.name}/coefficients"

    @property
    def bound(self) -> str:
        """Row vector of v at the best D: that of the cuts may be lower, and what is saved is found again."""
        return f"{self.name}/bound"

    @property
    def products(self) -> tuple[str, ...]:
        """Row vectors of products that are found again; the first are used again for the next cut."""
        more = (f"{self.name}/product{number}" for number in range(2, CHECKED))
        return (self.losses.previous, self.multipliers, *more)

    def cut_names(self, slot: int) -> tuple[str, str]:
        """Row vectors of h and g."""
        return f"{self.name}/h{slot}", f"{self.name}/g{slot}"

    @property
    def vectors(self) -> Mapping[str, npt.DTypeLike]:
        slots = range(self.state.cuts.capacity)
        cuts = [name for slot in slots for name in self.cut_names(slot)]
        return dict.fromkeys((self.losses.best, self.coefficients, self.bound, *cuts), np.float64)

    @property
    def scratch_vectors(self) -> Mapping[str, npt.DTypeLike]:
        return dict.fromkeys(self.products, np.float64)

    def solution(self) -> KernelExpansion:
        bias = float(self.state.best_free[0]) + self.oracle.center
        return KernelExpansion(self.coefficients, bias, PRECISION)

    def is_sound(self) -> bool:
        return self.state.is_sound()

    def distrust(self, origin: str) -> None:
        self._origin = origin

    def metadata(self, n_rows: int) -> dict[str, float]:
        """Part of the report: columns of K evaluated, as a multiple of all; what a nu problem finds."""
        return {"kernel_columns": self.state.columns / n_rows, **self._facts}

    def kept_scores(self) -> KeptScores:
        best = self.losses.best
        return KeptScores(best, best, offset=float(self.state.best_free[0]) + self.oracle.center)

    def sample(self) -> Sample:
        """The read for the rows of a cut."""
        h, _ = self.cut_names(0)
        return Sample((), (GatherPass(PartOfRows((h,), 0, self.parts), (h,)),), sweeps=(1.0, 4.0))

    def steps(self) -> Steps:
        certificate = self.certificate
        yield from self.oracle.open()
        losses = self.losses
        certificate.scale = self.oracle.scale
        if self._origin is not None:
            yield from self._check_saved()
        if self.state.cuts.unsolved:
            yield from self._solve()
            certificate.amend(self.stopping)
        sums = yield from self._combine()
        if self.state.cuts.n_cuts:
            yield from self._settle()
        else:
            yield from self._offer_primal(sums)
        while certificate.stop_reason is None:
            yield from self._add_cut()
            yield from self._solve()
            certificate.record(self.stopping)
        yield RowPass(CopyScores(losses.best, losses.previous))
        n_free = self.oracle.space.n_free
        certificate.n_support, self._facts = yield from self.oracle.count_support(
            1.0, self.state.best_free[:n_free]
        )

    def _solve(self) -> Steps:
        """Solve the master problem; P and D at its solution."""
        certificate, cuts = self.certificate, self.state.cuts
        cuts.solve(self.oracle, certificate, self.stopping)
        if cuts.unsolved and math.isfinite(certificate.lower):
            return  # The point is as it was
        sums = yield from self._combine()
        yield from self._offer_primal(sums)
        if certificate.offer_dual(*self._dual(sums)):
            yield RowPass(CopyScores(self.multipliers, self.bound))

    def _combine(self) -> Generator[Any, Any, Float64Array]:
        """Multipliers and scores of the master problem's solution; their sums."""
        cuts = self.state.cuts
        names = tuple(self.cut_names(slot) for slot in cuts.slots.tolist())
        rule = cut_rules.Combine(self.losses, names, cuts.beta.copy(), self.multipliers)
        sums: Float64Array = yield RowPass(rule)
        return sums

    def _settle(self) -> Generator[Any, Any, float]:
        """Find the best free parameters at the scores of the moment; the losses there, without C."""
        start = np.zeros(self.oracle.space.n_free)
        settled, loss = yield from self.oracle.settle(1.0, start, math.inf)
        self._free = np.append(settled, np.zeros(2 - len(settled)))
        return loss

    def _offer_primal(self, sums: Float64Array) -> Steps:
        """P at the scores of the moment, with their best free parameters."""
        oracle, loss = self.oracle, (yield from self._settle())
        square, mass = (float(sums[k]) for k in (cut_rules.SQUARE, cut_rules.MASS))
        weight, (b, k) = oracle.C * oracle.targets.weight, self._free.tolist()
        value = 0.5 * square + oracle.C * loss
        reach = weight * (oracle.reach + 2.0 * (abs(b) + abs(k) + 1.0) + mass * self._largest)
        error = (weight + mass) * self._error_of(sums) + gamma(self.n_rows + FEW) * (reach + abs(square))
        error += oracle.C * oracle.solution_error(self._free[: oracle.space.n_free])
        if self.certificate.offer_primal(value, error):
            self.state.best_free = self._free
            yield RowPass(CopyScores(self.losses.previous, self.losses.best))
            yield RowPass(CopyScores(self.multipliers, self.coefficients))

    def _dual(self, sums: Float64Array) -> tuple[float, float]:
        """D at the multipliers of the moment, and a bound of its rounding.

        What is off of the sums that the free parameters ask for is charged with the largest that they can be.
        A tube is no narrower than 0, so there the size of v may be less than what its width costs.
        """
        oracle = self.oracle
        oracle.largest_norm = math.sqrt(self._largest)
        return oracle.in_box(self.certificate.upper, partial(self._dual_in_box, sums))

    def _dual_in_box(self, sums: Float64Array, box: float) -> tuple[float, float]:
        """The same where the free parameters of an optimum are no larger than ``box``."""
        oracle = self.oracle
        square, linear, total, mass, _ = sums.tolist()
        linear -= self.losses.kink * mass
        value, n = linear - 0.5 * square - box * abs(total), self.n_rows
        if oracle.nu is not None:
            value -= oracle.C * oracle.price * oracle.origin
            beyond = mass - oracle.C * oracle.price
            value -= box * (abs(beyond) if self.losses.targets.in_margins else max(beyond, 0.0))
        reach = (
            mass * (oracle.reach + 1.0 + box + mass * self._largest) + abs(linear) + oracle.C * oracle.price
        )
        return value, mass * self._error_of(sums) + gamma(n + self.state.cuts.n_cuts + FEW) * reach

    @property
    def _largest(self) -> float:
        """The largest kernel value; 0 before the first read."""
        return largest_values(self.kernel, self.state.square)[0] if self.state.nonzeros else 0.0

    def _error_of(self, sums: Float64Array) -> float:
        """What the scores of a combination are off by; mixed cuts weigh no more than all rows do."""
        weight = self.oracle.C * self.oracle.targets.weight
        return self._score_error(weight if self.state.cuts.mixed else float(sums[cut_rules.PARTS]))

    def _score_error(self, parts: float) -> float:
        """What a score is off by at most, see `ooc_svm.solvers.smo.objective.KernelObjective`.

        ``parts``: the magnitudes that the function is added up from, before any cancel.
        """
        largest, argument = largest_values(self.kernel, self.state.square)
        own = gamma(self.state.nonzeros + FEW) * argument
        return parts * (own + gamma(self.n_rows + self.state.cuts.n_cuts + 2.0 * FEW) * largest)

    def _add_cut(self) -> Steps:
        """Add the most violated cut at the scores of the moment, or a sparser one."""
        cuts, oracle = self.state.cuts, self.oracle
        if cuts.is_full:
            yield from self._make_room()
            # What is left is all that a resumed run has, so the same is gone on from here.
            yield from self._combine()
            yield from self._settle()
        slot = cuts.unused_slot()
        h, g = self.cut_names(slot)
        b, k = self._free.tolist()
        found = yield from self._take((b + k, k - b), None, h)
        if self.sparse:
            found = yield from self._take_sparser(found, (b + k, k - b), h)
        offset = float(found[cut_rules.OFFSET]) - oracle.price * oracle.origin
        yield from self._multiply((h,), (g,), self.parts)
        slots = [*cuts.slots.tolist(), slot]
        names = tuple(self.cut_names(each)[0] for each in slots)
        products: Float64Array = yield RowPass(cut_rules.Products(g, names))
        cuts.add(slot, offset, products)

    def _take(self, thetas: Pair, half: float | None, h: str) -> Generator[Any, Any, Float64Array]:
        """Take the cut of the pieces above thetas, into a row vector.

        ``half``: the weight of each sign; None: what the problem asks for.
        """
        oracle, losses = self.oracle, self.losses
        edge = EDGE * (1.0 + max(map(abs, thetas)) + oracle.reach)
        above = yield RowPass(cut_rules.SideSums(losses, thetas, edge))
        if half is None:
            half = 0.5 * oracle.price if oracle.nu is not None else float(above[:2].max())
        wanted = np.maximum(half - above[:2], 0.0)
        shares = [
            float(min(x / on, 1.0)) if on > 0.0 else 0.0 for x, on in zip(wanted, above[2:], strict=True)
        ]
        rule = cut_rules.TakeCut(losses, thetas, edge, (shares[0], shares[1]), h)
        sums: Float64Array = yield RowPass(rule)
        return sums

    def _take_sparser(self, full: Float64Array, thetas: Pair, h: str) -> Generator[Any, Any, Float64Array]:
        """The heuristic (3.19): the sparsest of some cuts that is above the master problem's slack."""
        slack, height = self.state.cuts.slack, float(full[cut_rules.HEIGHT])
        falling = self.oracle.targets.falling
        for share in SHARES:
            half = 0.5 * share * float(full[cut_rules.SIZE])
            wanted = [(1.0, falling - half), (-1.0, half)]
            upper, lower = yield from weighted_quantiles(self.losses, 1.0, wanted, self.n_rows)
            found = yield from self._take((upper[0], -lower[0]), half, h)
            if found[cut_rules.HEIGHT] >= slack + ENOUGH * (height - slack) > slack:
                return found
        found = yield from self._take(thetas, None, h)
        return found

    def _multiply(
        self, functions: tuple[str, ...], to: tuple[str, ...], parts: int, *, counted: bool = True
    ) -> Generator[Any, Any, Float64Array]:
        """``g = K h`` of some h: the rows that are not 0 in them, and passes of all rows over these.

        Returns ``sum |h|`` of each.
        """
        masses = np.zeros(len(functions))
        for part in range(parts):
            gathers, adds = _positions(part, parts) if counted else (UNCOUNTED, UNCOUNTED)
            choice = PartOfRows(functions, part, parts)
            support = join_gathered((yield GatherPass(choice, functions, gathers)), functions)
            columns = np.array([support.vectors[name] for name in functions])
            own = *(self.kernel, support.rows, columns, self.n_features, self.scale2), to, part > 0
            found: Magnitudes = yield ColumnsPass(*own, adds)
            masses += [np.abs(each).sum() for each in columns]
            if counted:
                self.state.columns += len(support.numbers)
        self._know(found)
        return masses

    def _know(self, found: Magnitudes) -> None:
        """Know the sizes of the rows."""
        self.state.square, self.state.nonzeros = found.square, float(found.nonzeros)
        self.certificate.vanishing = self.oracle.vanishing(self.stopping.tol)

    def _make_room(self) -> Steps:
        """Drop the cuts without a multiplier; if there are none, combine all of them."""
        cuts = self.state.cuts
        if cuts.drop_idle() or cuts.n_cuts < 2:
            return
        slots, shares = cuts.slots.tolist(), cuts.beta / cuts.beta.sum()
        for k in range(2):
            names = tuple(self.cut_names(slot)[k] for slot in slots)
            yield RowPass(cut_rules.MixVectors(names, shares, names[0]))
        cuts.combine(shares)

    def _check_saved(self) -> Steps:
        """Before a resumed run goes on: products with K again, by reads that are not counted; P and D."""
        names = [self.cut_names(slot) for slot in self.state.cuts.slots.tolist()]
        pairs = [*names, (self.coefficients, self.losses.best)]
        for first in range(0, len(pairs), CHECKED):
            yield from self._check_products(pairs[first : first + CHECKED])
        yield from self._check_primal()
        yield from self._check_dual()
        self.certificate.reopen(self.stopping)

    def _check_products(self, pairs: list[tuple[str, str]]) -> Steps:
        """Some functions and their scores, in no more memory than that of one cut."""
        functions, again = tuple(function for function, _ in pairs), self.products[: len(pairs)]
        masses = yield from self._multiply(functions, again, self.checked_parts, counted=False)
        # Of a mix more was added up than is left of it.
        most = max(self.oracle.C, 1.0) * self.oracle.targets.weight
        mixed = [self.state.cuts.mixed > 0 or function == self.coefficients for function, _ in pairs]
        sizes = [max(mass, most) if mix else mass for mass, mix in zip(masses.tolist(), mixed, strict=True)]
        allowed = np.array([2.0 * self._score_error(size) for size in sizes])
        compared = tuple((own, scores) for own, (_, scores) in zip(again, pairs, strict=True))
        far: Float64Array = yield RowPass(cut_rules.CountFar(compared, allowed))
        if far[0]:
            raise Certificate.does_not_fit(self._origin, "the scores in it are not those of its multipliers")

    def _check_primal(self) -> Steps:
        """P of the best point."""
        certificate = self.certificate
        sums = yield from self._sums_of(self.coefficients, self.losses.best)
        own = replace(certificate, primal=math.inf, primal_rounding=0.0)
        self.state.certificate, best_free = own, self.state.best_free
        yield from self._offer_primal(sums)
        self.state.certificate, self.state.best_free = certificate, best_free
        certificate.check_primal(own.primal, own.primal_rounding + 1e-12 * abs(own.primal), self._origin)

    def _check_dual(self) -> Steps:
        """D of the multipliers of the best bound; those of the cuts, which others will be made of."""
        certificate, cuts, C = self.certificate, self.state.cuts, self.oracle.C
        names = tuple(self.cut_names(slot)[0] for slot in cuts.slots.tolist())
        outside = (yield RowPass(cut_rules.CountOutside(self.losses, names)))[0]
        most = C * (1.0 + gamma(2.0 * cuts.capacity + FEW))
        outside += (yield RowPass(cut_rules.CountOutside(self.losses, (self.bound,), most)))[0]
        if outside or not cuts.beta.sum() <= C * (1.0 + gamma(cuts.n_cuts + FEW)):
            raise Certificate.does_not_fit(self._origin, "multipliers in it are outside their bounds")
        yield from self._multiply((self.bound,), (self.losses.previous,), self.parts, counted=False)
        dual, error = self._dual((yield from self._sums_of(self.bound, self.losses.previous)))
        certificate.check_dual(dual, error, self._origin)

    def _sums_of(self, function: str, scores: str) -> Generator[Any, Any, Float64Array]:
        """Take a function with its scores for the point of the moment; see `cut_rules.Combine`."""
        rule = cut_rules.Combine(self.losses, ((function, scores),), np.ones(1), self.multipliers)
        sums: Float64Array = yield RowPass(rule)
        return sums


def _positions(part: int, parts: int) -> tuple[Position, Position]:
    """Of the two reads for a part of the rows of a cut: they are counted as one, with those of all parts."""
    gathers = Position(0, 1, 2) if part == 0 else Position(1, 1, 3)
    return gathers, Position(1, 1, 2) if part + 1 == parts else Position(1, 1, 3)

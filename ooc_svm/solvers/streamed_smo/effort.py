"""How streamed SMO cuts a read and how far it solves the working set: numbers of the algorithm.

They follow from the size of the data and the share of it that is resident, never from a clock or the machine,
since the bits of the answer follow from them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from ooc_svm.solvers.base import MANY_MODELS

# Gap, as a multiple of the one wanted, from which on no solve is an early one.
NEAR = 100.0

# A read that leaves more than this share of the gap is a slow one. After each the working set is solved so
# many times as hard, for so many of them at most.
SLOW, HARDER, MOST_SLOW = 0.5, 5.0, 2

# Nonzeros and rows that a solve may always look at: a few milliseconds, which no read takes less than.
WORTHWHILE = 1_000_000

# So many models are swept or scored as one: fewer gain little, threads share the groups of more, and what is
# prefetched of a row for more models would not stay in the cache.
FEWEST_FUSED, MOST_FUSED = MANY_MODELS, 32


@dataclass(frozen=True, slots=True)
class Effort:
    """How a read is cut, and how far the resident set is solved in each round."""

    # Rounds per read, and their upper limit
    rounds: int
    max_rounds: int
    # A round sweeps at most this multiple of the working set: where that is small there are more rounds
    max_round_ratio: float
    lanes: int  # Lanes of a round; a power of two
    visits: int  # Times that a lane moves each of its rows
    # The working set is solved until its row gaps sum up to this share of the gaps of all other rows, as last
    # seen: ``share`` in a round; at the end of a read ``last_share``, which is smaller since that w is the
    # next reference, or ``early_share`` as long as the gap is more than `NEAR` times the one wanted
    share: float
    early_share: float
    last_share: float
    floor: float  # Share of the gap wanted below which the working set is not solved
    # Upper limit of the steps of a solve, as a multiple of those of a round; and of a model that is likely to
    # go on from another one of its path
    sweeps: float
    waiting_sweeps: float = field(default=60.0, kw_only=True)
    # Rows at a bound are held if a change of their margin by at most this much would move them
    margin_reach: float
    # The lanes of a round offer together at most this share of what the resident set may hold. All of that
    # takes more memory, and up to two thirds more reads where little is resident: too many rows leave before
    # their time.
    offered: float = 0.5
    # Sweeps over as many rows as the data has that the solves of one read amount to, from rows easily told
    # apart to classes that overlap (measured: 2 on texts, 18 to 74 on dense rows; of much data 2 to 38)
    expected_sweeps: tuple[float, float] = (2.0, 75.0)
    # Where multipliers have no upper bound, the shares are so many times as large; unless that is 1, each row
    # is moved so many times at least. Rounds are cut as if so many times the rows were resident
    unbounded_ratio: float = field(default=0.1, kw_only=True)
    unbounded_visits: int = field(default=2, kw_only=True)
    unbounded_cut: float = field(default=1.0, kw_only=True)
    # These three where columns are few, if they are others
    unbounded_few_columns: tuple[float, int, float] | None = field(default=None, kw_only=True)
    # Rounds per read where this share of the rows is resident, or more: most of those that are free are then.
    # More rounds solve these more often, and hardly save a read (61 M generated nonzeros, half of them
    # resident: 5 rounds take 10.4 n steps, 3 the same reads and 8.4 n; of little data 20 take twice as long)
    many: float = field(default=0.25, kw_only=True)
    few_rounds: int = field(default=5, kw_only=True)
    # Where all rows are resident and this is so, a read is one round with this floor and these
    # ``waiting_sweeps``
    one_round: bool = field(default=False, kw_only=True)
    at_once_floor: float = field(default=0.5, kw_only=True)
    at_once_waiting_sweeps: float = field(default=12.0, kw_only=True)
    # Whether models that differ in C are solved in chains then
    chains: bool = field(default=False, kw_only=True)
    # Sweeps of a solve before a proximal step, if the gaps are not small enough by then; with few columns,
    # where such a step costs less; where all rows are new to a solve, or most are moved in each sweep; where
    # columns are few as well; and where threads share such steps, which they do no sweep
    patience: float = field(default=20.0, kw_only=True)
    narrow_patience: float = field(default=20.0, kw_only=True)
    least_patience: float = field(default=5.0, kw_only=True)
    few_columns_patience: float = field(default=3.0, kw_only=True)
    shared_patience: float = field(default=1.0, kw_only=True)

    @property
    def at_once(self) -> bool:
        """Whether all rows are resident after the first round."""
        return self.rounds == 1

    def unbounded(self) -> Effort:
        """The effort where multipliers have no upper bound."""
        if (ratio := self.unbounded_ratio) == 1.0:
            return self
        share, early, last = (ratio * each for each in (self.share, self.early_share, self.last_share))
        visits, patience = max(self.unbounded_visits, self.visits), self.least_patience
        return replace(
            self, share=share, early_share=early, last_share=last, visits=visits, patience=patience
        )


# By the number of nonzeros from which on they are worth it (measured): with little data a read is dear next
# to the steps, with much data the steps are what takes the time. Each lane more takes more reads and memory,
# and one is enough where solving the resident set keeps another processor busy; only of very large data,
# which several machines may take part of, there are two. With 2 % resident 20 rounds take 17 and 11 reads
# (covtype, a9a), 60 take 13 and 8. Rows further from the margin than ``margin_reach`` hardly ever move:
# without them no data takes more reads, and arXiv two thirds of the time. Where a read is dear, two visits
# save up to half of them (squared losses of a regression, all of whose rows are free), and hardly add any.
# Where all rows of little data are resident, most of what a round takes is its overhead, and no row elsewhere
# undoes what a solve has gained. With one round, solves that go on until the gap wanted is reached, and all
# rows held in the first read, most data take two reads, not three or four, and a quarter less steps.
# Without upper bounds most rows with a loss are free, and so are most of those elsewhere: to solve the
# working set ten times as well and to move each row twice saves up to three reads (a9a and covtype with the
# squared hinge: 5 and 9 reads, not 7 and 12). Where parts of the data differ, as those of covtype's file do,
# what one has to give to another goes through the resident rows alone, and from one round to the next; with
# 100 rounds, still better solving and 4 visits its 9 reads are 6. With many columns that takes two to four
# times as long and saves no read (15 M generated nonzeros, a third of arXiv, images of 784 points). Little
# data takes up to twice the steps. Of much data that is not known.
_LARGE = Effort(
    5,
    20,
    2.0,
    1,
    1,
    0.3,
    0.1,
    0.03,
    0.1,
    60.0,
    0.43,
    expected_sweeps=(2.0, 40.0),
    unbounded_ratio=1.0,
    many=0.4,
    few_rounds=3,
)
_MIDDLE = Effort(
    20, 100, 0.8, 1, 1, 0.1, 0.01, 0.01, 0.1, 60.0, 0.67,
    one_round=True, unbounded_few_columns=(0.02, 4, 0.125),
)  # fmt: skip
EFFORTS = {
    0: Effort(20, 100, 0.8, 1, 2, 0.05, 0.02, 0.005, 0.03, 300.0, 0.67, one_round=True, narrow_patience=5.0),
    2_000_000: _MIDDLE,
    20_000_000: _LARGE,
    1_000_000_000: replace(_LARGE, lanes=2),
}


def effort_for(
    n_nonzeros: int,
    resident: float,
    lanes: int | None = None,
    *,
    rests: bool = True,
    narrow: bool = False,
    few_columns: bool = False,
    shared: bool = False,
    long_rows: bool = False,
    factor_sweeps: float = 0.0,
    rounds: int = 0,
) -> Effort:
    """The effort for data of a size with a share of it resident, and so many lanes where they are given.

    ``rests``: whether rows come to rest at a bound. ``narrow``: see `SmoParameters`. ``few_columns``: whether
    these are so few that a proximal step costs little; ``shared``: whether threads may share it, too;
    ``long_rows``: see `ooc_svm.solvers.streamed_smo.resident_rows.are_long`. ``factor_sweeps``: that a factor
    takes the time of, 0 where rows are not solved by one.
    ``rounds``: those of a run that goes on, else 0. None of them must follow from a clock, or from the
    threads there are, since the bits follow from them.
    """
    effort = EFFORTS[max(least for least in EFFORTS if least <= n_nonzeros)]
    if few_columns and effort.unbounded_few_columns is not None:
        ratio, visits, cut = effort.unbounded_few_columns
        effort = replace(effort, unbounded_ratio=ratio, unbounded_visits=visits, unbounded_cut=cut)
    if narrow:
        # Proximal steps: a model is soon solved by itself, whatever others come to. A step cut short is lost.
        sweeps = max(effort.sweeps, EFFORTS[0].sweeps)
        effort = replace(
            effort, one_round=True, patience=effort.narrow_patience, sweeps=sweeps, waiting_sweeps=sweeps,
            at_once_waiting_sweeps=sweeps, chains=True,
        )  # fmt: skip
    wanted = 1.0 / (effort.max_round_ratio * max(resident, 1e-9))
    least = effort.rounds if resident < effort.many else effort.few_rounds
    has_one_round = effort.one_round and rounds <= 1
    rounds = rounds or round(min(max(wanted, least), effort.max_rounds))
    lanes = lanes or effort.lanes
    if resident < 1.0:
        return replace(effort, rounds=rounds, lanes=lanes)
    # None has to leave, and all are moved often.
    effort = replace(effort, lanes=lanes, unbounded_ratio=1.0, offered=1.0, visits=1)
    if not has_one_round:
        return replace(effort, rounds=rounds)
    patience = effort.patience if long_rows else effort.least_patience
    patience = effort.few_columns_patience if few_columns else patience
    return replace(
        effort,
        rounds=1,
        floor=effort.at_once_floor,
        waiting_sweeps=effort.at_once_waiting_sweeps,
        # A factor is that of the rows that are held: none has to leave.
        margin_reach=math.inf if factor_sweeps else effort.margin_reach,
        # Where no row comes to rest, a step gains little until sweeps have put all in their places.
        patience=effort.shared_patience if shared and rests else (factor_sweeps or patience),
    )


def hardness_after(history: Sequence[tuple[int, float, float]]) -> float:
    """How many times as hard a working set is solved: more after each slow read of a certificate's history.

    With a large C the steps of rows elsewhere undo what a working set that is not solved well has gained.
    """
    gaps = [upper - lower for _, upper, lower in history]
    slow = sum(gap > SLOW * before for before, gap in pairwise(gaps))
    return HARDER ** min(slow, MOST_SLOW)

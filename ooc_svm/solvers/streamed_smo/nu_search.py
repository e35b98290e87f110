"""Where two models go next, whose shares are on both sides of the wanted nu, or should be.

The share of a model falls as its place grows, and the wanted place is where it is nu. It is a function that
may be nearly straight, have corners, or jump: where the optimum of the nu problem is one of many multipliers,
of which those of a model are the ones with the largest or the smallest share.

Between two places the wanted one is predicted by the straight line through their shares. Where that has
missed, the share is taken for one that jumps: the mean of the shares between the places, which is known from
the two values of D, then says where. Shares are those of models that are not solved to the end, and may
mislead; `low` and `high` are proved, and never left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# What a read makes of the distance of the two: the least part of it, by a line and by a jump. So many times
# the distance they go at most, where nu is not between them.
NARROWER, NARROWER_JUMP, WIDER = 0.25, 0.0625, 2.0
MOST_DOUBLINGS = 50
MISSES = 2  # So many misses in a row, and the other way to predict is tried


@dataclass(slots=True)
class NuSearch:
    """What is known of the wanted place."""

    low: float = -math.inf  # The wanted place is between these two
    high: float = math.inf
    misses: int = 0  # How often in a row nu was not between the two
    turns: int = 0  # How often the way to predict was given up for the other one

    @property
    def jumps(self) -> bool:
        """Whether the share is taken for one that jumps."""
        return self.turns % 2 == 1

    def learn(self, low: float, high: float) -> None:
        """The wanted place is between these two as well."""
        self.low, self.high = max(self.low, low), min(self.high, high)

    def between(
        self,
        places: tuple[float, float],
        shares: tuple[float, float],
        mean: float,
        nu: float,
        narrower: float,
    ) -> tuple[float, float]:
        """The next places of two models that nu is between; ``mean``: of the shares between them.

        ``narrower``: the part of the distance that is enough.
        """
        (first, second), (more, less) = places, shares
        self.misses = 0
        part = (mean - less if self.jumps else more - nu) / (more - less)
        place = first + min(max(part, 0.0), 1.0) * (second - first)
        least = NARROWER_JUMP if self.jumps else NARROWER
        part = min(max(narrower, least), 1.0)
        return _apart(places, place - part * (place - first), place + part * (second - place))

    def beyond(
        self,
        places: tuple[float, float],
        shares: tuple[float, float],
        nu: float,
        farthest: float = math.inf,
    ) -> tuple[float, float]:
        """The next places of two models that nu is not between, none of them above ``farthest``."""
        (first, second), (more, less) = places, shares
        self.misses += 1
        if self.misses == MISSES:
            self.turns += 1
        width = second - first
        # Along the line through the two, but not far: it may be nearly level, or rise.
        slope, lacking = (less - more) / width, nu - less
        away = lacking / slope if slope < 0.0 else math.copysign(math.inf, -lacking)
        width *= WIDER ** min(self.misses - 1, MOST_DOUBLINGS)
        place = second + min(max(away, -WIDER * width), WIDER * width)
        # Not back behind both of them: there the share may be level.
        low, high = (
            max(self.low, first if more >= nu else -math.inf),
            min(self.high, second if less < nu else farthest),
        )
        place = min(max(place, low), high)
        return _apart(places, max(place - 0.5 * width, low), min(place + 0.5 * width, high))


def _apart(places: tuple[float, float], first: float, second: float) -> tuple[float, float]:
    """Two new places, or the old ones where rounding leaves nothing between the new ones."""
    return (first, second) if first < second else places

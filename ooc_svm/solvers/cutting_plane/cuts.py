"""What cuts and the row vectors of a ray are, whatever the loss."""

from __future__ import annotations

from dataclasses import dataclass

from ooc_svm.data.blocks import Float64Array


@dataclass(frozen=True, slots=True)
class Cuts:
    """A cut for each group: ``R_g(v) >= offsets[g] - planes[g].v`` for every v.

    ``planes`` has shape (groups, dimension), ``offsets`` (groups,), both float64.
    """

    planes: Float64Array
    offsets: Float64Array


class RayScores:
    """Names of the row vectors of scores that a line search works on."""

    name: str

    @property
    def best(self) -> str:
        """Scores at the best point."""
        return f"{self.name}/best"

    @property
    def previous(self) -> str:
        """Scores at the point of the last read."""
        return f"{self.name}/previous"

"""What a cut is, whatever the loss."""

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

"""The grid of a comparison: numbers of the problem, the loss or the kernel that are tried as well as C."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from ooc_svm.catalog import KERNELS, LOSSES, load, owners
from ooc_svm.errors import UsageError, parameter
from ooc_svm.options import OPTIONS, TrainOptions

Grid = Mapping[str, Sequence[float]]

# What the numbers of a grid may belong to.
_OWNERS = {"problem", "loss", "kernel"}


@dataclass(frozen=True, slots=True)
class Variant:
    """One point of the grid: its numbers, by name, and the options and the loss that they give."""

    settings: Mapping[str, float]
    options: TrainOptions
    loss: Any

    def kernel(self, gamma: float | None) -> Any:
        """The kernel with its numbers; where gamma is not known yet, a number stands for it."""
        numbers = self.options.kernel_numbers
        if "gamma" in numbers:
            numbers["gamma"] = 1.0 if gamma is None else gamma
        return load(KERNELS[self.options.kernel].home)(**numbers)


def numbers_of_grids() -> list[str]:
    """Names of the options that may be in a grid."""
    kinds = {name: option.kind.doc.split()[0] for name, option in OPTIONS.items()}
    return [
        name for name, kind in kinds.items() if kind in ("int", "float") and _OWNERS & owners(name).keys()
    ]


def check_grid(grid: Grid, options: TrainOptions) -> None:
    """UsageError for a name that no grid has, a value given twice, or one that is an option as well."""
    known = numbers_of_grids()
    for name, values in grid.items():
        if name == "C":
            raise UsageError(f"{parameter('C')} takes several values itself; give them there")
        if name not in known:
            raise UsageError(f"{parameter('grid')} has {name!r:.82}; it takes {', '.join(known)}")
        if getattr(options, name) != OPTIONS[name].default:
            raise UsageError(f"{parameter('grid')} has values for {name}; leave {parameter(name)} out")
        twice = next((value for value in values if values.count(value) > 1), None)
        if twice is not None:
            raise UsageError(f"{parameter('grid')} has {name} = {twice:g} twice; give each value once")


def variants_of(grid: Grid, options: TrainOptions) -> Iterator[Variant]:
    """All points of a grid, the last name varying fastest; without one the options as they are.

    UsageError for a number that cannot be, or that does not belong to problem, loss or kernel.
    """
    for point in product(*grid.values()):
        settings: dict[str, Any] = dict(zip(grid, point, strict=True))
        try:
            own = replace(options, **settings)
        except UsageError as error:
            told = ", ".join(f"{name}={value:g}" for name, value in settings.items())
            raise UsageError(f"{parameter('grid')} {told}: {error}") from None
        entry = LOSSES[own.resolved_loss]
        numbers = {name: getattr(own, f"resolved_{name}") for name in entry.options}
        yield Variant(settings, own, load(entry.home)(**numbers))

"""What options stand for where none was given: the defaults that follow from others."""

from __future__ import annotations

from os import PathLike
from typing import Any

from ooc_svm.catalog import KERNELS, LINEAR, LOSSES, PROBLEMS

DEFAULT_EPSILON = 0.1
DEFAULT_NU = 0.5
DEFAULT_GAMMA, DEFAULT_DEGREE, DEFAULT_COEF0 = "scale", 3, 0.0
DEFAULT_P = 1.5


class ResolvedOptions:
    """The part of `ooc_svm.options.TrainOptions` that follows from the options given."""

    problem: str
    loss: str | None
    kernel: str
    bias: str | None
    epsilon: float | None
    p: float | None
    nu: float | None
    validation: float | str | PathLike[str] | None

    @property
    def over_pairs(self) -> bool:
        """Whether losses are of pairs of rows."""
        return PROBLEMS[self.problem].form == "pairs"

    @property
    def resolved_loss(self) -> str:
        """The loss, the problem's first one if none was named."""
        return PROBLEMS[self.problem].losses[0] if self.loss is None else self.loss

    @property
    def is_linear(self) -> bool:
        """Whether models are weights of the features."""
        return self.kernel == LINEAR

    @property
    def has_end(self) -> bool:
        """Whether rows may be without a loss."""
        return LOSSES[self.resolved_loss].has_end

    @property
    def bounded(self) -> bool:
        """Whether the multipliers of rows with a class have an upper bound."""
        return LOSSES[self.resolved_loss].bounded or self.resolved_p == 1.0

    @property
    def resolved_bias(self) -> str:
        """The bias, the problem's own if none was named."""
        return PROBLEMS[self.problem].bias if self.bias is None else self.bias

    @property
    def resolved_epsilon(self) -> float:
        """Deviation from a value that costs nothing: 0 for losses that have no such number, or find it."""
        if "epsilon" not in LOSSES[self.resolved_loss].options or self.by_nu:
            return 0.0
        return DEFAULT_EPSILON if self.epsilon is None else self.epsilon

    @property
    def resolved_p(self) -> float | None:
        """The power of the slack; None for losses that have no such number."""
        if "p" not in LOSSES[self.resolved_loss].options:
            return None
        return DEFAULT_P if self.p is None else self.p

    @property
    def resolved_nu(self) -> float:
        """The nu of the nu problems."""
        return DEFAULT_NU if self.nu is None else self.nu

    @property
    def kernel_numbers(self) -> dict[str, Any]:
        """The numbers of the kernel's formula, by name; gamma may be a rule instead."""
        defaults = {"gamma": DEFAULT_GAMMA, "degree": DEFAULT_DEGREE, "coef0": DEFAULT_COEF0}
        given = {name: getattr(self, name) for name in KERNELS[self.kernel].options}
        return {name: defaults[name] if value is None else value for name, value in given.items()}

    @property
    def n_free(self) -> int:
        """Parameters without penalty: a free bias; by nu the margin or the width of the tube as well."""
        return int(self.resolved_bias == "free") + int(self.by_nu)

    @property
    def by_nu(self) -> bool:
        """Whether the margin or the width of the tube is found by training."""
        return PROBLEMS[self.problem].form.endswith("by nu")

    @property
    def held_out_share(self) -> float | None:
        """The share of the rows that is held out of training, if any is."""
        return self.validation if isinstance(self.validation, float) else None

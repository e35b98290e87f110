"""Kernels that are positive semi-definite on all data: only with these is D a bound."""

from __future__ import annotations

from typing import Any

from ooc_svm.ops.kernels import Gaussian, Polynomial


def is_definite(kernel: Any) -> bool:
    """Whether the kernel is positive semi-definite on all data: then, and only then, D bounds an optimum."""
    return isinstance(kernel, Gaussian) or (isinstance(kernel, Polynomial) and kernel.coef0 >= 0.0)


def indefinite_hints(kernel: Any) -> dict[str, str]:
    """What a user should know of a kernel that is not."""
    if is_definite(kernel):
        return {}
    return {
        "indefinite-kernel": "the kernel is not positive semi-definite on all data: the gap tells how "
        "far the model is from the KKT conditions, not from an optimum, which need not exist"
    }

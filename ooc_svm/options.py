"""What a training run can be asked for, checked before anything is read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any

from ooc_svm.errors import UsageError

PROBLEMS = ("svc",)
LOSSES = ("hinge",)
SOLVERS = ("auto", "cutting-plane", "ocas")
KERNELS = ("linear",)
BIASES = ("none", "penalized")
SCALES = ("none", "maxabs", "std")
ENGINES = ("local",)


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Options of `ooc_svm.train`, with the names of the command line.

    Attributes
    ----------
    problem, loss, kernel, engine : str
        ``"svc"``, ``"hinge"``, ``"linear"``, ``"local"``.
    solver : {"auto", "ocas", "cutting-plane"}
        "auto" is "ocas".
    bias : {"none", "penalized"}
    C : tuple of float
        A model is trained for each value, all on the same reads.
    class_weight : "balanced", mapping of label (or name) to weight, or None
    positive : tuple of float or str
        Labels of the positive class (names where the data has names); empty: the larger of two labels, or one
        model a class.
    label : str or None
        Column of an AnnData store that holds the labels.
    scale : {"none", "maxabs", "std"}
        Columns are divided by their largest magnitude or their standard deviation.
    tol : float
        Relative certified gap ``(P - D) / P``.
    max_passes : int or None
    time_limit : float or None
        Seconds.
    memory : str, int or None
        Bytes or a size like ``"600MB"``; None: half of what the process may use.
    threads : int or None
        None: all that the process may use.
    seed : int
        Written into the model; the solvers of this release draw no random numbers.
    cut_groups : int or None
        Groups of rows with a slack each; None: 1 for "cutting-plane", what fits for "ocas".
    checkpoint : path or None
        Folder for saved states.
    resume : bool
        Go on from the newest state in that folder, if there is one.

    Raises
    ------
    UsageError
        A value that is not possible, or options that contradict each other.
    """

    problem: str = "svc"
    loss: str = "hinge"
    solver: str = "auto"
    kernel: str = "linear"
    bias: str = "none"
    C: tuple[float, ...] = (1.0,)
    class_weight: str | Mapping[float | str, float] | None = None
    positive: tuple[float | str, ...] = ()
    label: str | None = None
    scale: str = "none"
    tol: float = 1e-3
    max_passes: int | None = None
    time_limit: float | None = None
    memory: str | int | None = None
    threads: int | None = None
    seed: int = 0
    cut_groups: int | None = None
    checkpoint: str | PathLike[str] | None = None
    resume: bool = False
    engine: str = "local"

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("problem", self.problem, PROBLEMS),
            ("loss", self.loss, LOSSES),
            ("solver", self.solver, SOLVERS),
            ("kernel", self.kernel, KERNELS),
            ("bias", self.bias, BIASES),
            ("scale", self.scale, SCALES),
            ("engine", self.engine, ENGINES),
        ):
            if value not in allowed:
                raise UsageError(f"{name} {value!r} is not known; choose from: {', '.join(allowed)}")
        if not self.C or not all(isinstance(C, int | float) and 0 < C < math.inf for C in self.C):
            raise UsageError(f"C must be positive and finite, not {', '.join(map(str, self.C)) or 'empty'}")
        if len(set(self.C)) < len(self.C):
            raise UsageError(f"the same C is given twice: {', '.join(map(str, self.C))}")
        if not (0 < self.tol < 1):
            raise UsageError(f"tol is a relative gap between 0 and 1, not {self.tol}")
        for name, count in (
            ("max_passes", self.max_passes),
            ("threads", self.threads),
            ("cut_groups", self.cut_groups),
        ):
            if count is not None and count < 1:
                raise UsageError(f"{name} must be at least 1, not {count}")
        if self.time_limit is not None and not self.time_limit > 0:
            raise UsageError(f"time_limit must be positive, not {self.time_limit}")
        if self.resume and self.checkpoint is None:
            raise UsageError("resume needs a checkpoint folder to go on from; add checkpoint")
        self._check_class_weight()

    def _check_class_weight(self) -> None:
        if isinstance(self.class_weight, str):
            if self.class_weight != "balanced":
                raise UsageError(f"class_weight {self.class_weight!r}: give 'balanced' or weights by label")
        elif self.class_weight is not None:
            for label, weight in self.class_weight.items():
                if not (math.isfinite(weight) and weight >= 0):
                    raise UsageError(f"the weight of class {label} must be finite and not negative: {weight}")

    @property
    def resolved_solver(self) -> str:
        """The solver that "auto" stands for."""
        return "ocas" if self.solver == "auto" else self.solver

    def to_json(self) -> dict[str, Any]:
        """The options as JSON can hold them."""
        record = asdict(self)
        if isinstance(self.class_weight, Mapping):
            record["class_weight"] = [[label, weight] for label, weight in self.class_weight.items()]
        record["checkpoint"] = None if self.checkpoint is None else str(self.checkpoint)
        record["C"], record["positive"] = list(self.C), list(self.positive)
        return record

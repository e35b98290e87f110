"""What a training run can be asked for, checked before anything is read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any

from ooc_svm.errors import UsageError

# Losses of each problem, the default first.
LOSSES_OF = {
    "svc": ("hinge", "squared-hinge"),
    "svr": ("epsilon-insensitive", "squared-epsilon-insensitive"),
    "ordinal": ("hinge",),
    "roc-area": ("hinge",),
    "ranking": ("hinge",),
}
PROBLEMS = tuple(LOSSES_OF)
PAIR_PROBLEMS = ("ordinal", "roc-area", "ranking")
"""Those whose losses are of pairs of rows."""
LOSSES = tuple(dict.fromkeys(loss for losses in LOSSES_OF.values() for loss in losses))
SOLVERS = ("auto", "streamed-smo", "cutting-plane", "ocas")
KERNELS = ("linear",)
BIASES = ("none", "penalized", "free")
SCALES = ("none", "maxabs", "std")
ENGINES = ("local", "dask")
LANES = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Options of `ooc_svm.train`, with the names of the command line.

    Attributes
    ----------
    problem : {"svc", "svr", "ordinal", "roc-area", "ranking"}
    loss : {"hinge", "squared-hinge", "epsilon-insensitive", "squared-epsilon-insensitive"} or None
        None is the first of the problem's: the hinge loss for "svc" and, of pairs of rows, for "ordinal",
        "roc-area" and "ranking"; the epsilon-insensitive one for "svr".
    epsilon : float or None
        Half width of the tube of "svr" in which a loss is 0; None is 0.1.
    kernel : str
        ``"linear"``.
    solver : {"auto", "streamed-smo", "ocas", "cutting-plane"}
        "auto" is "streamed-smo", or "ocas" where ``cut_groups`` is given or losses are of pairs of rows.
    bias : {"none", "penalized", "free"}
    C : tuple of float
        A model is trained for each value, all on the same reads.
    class_weight : "balanced", mapping of label (or name) to weight, or None
    positive : tuple of float or str
        Labels of the positive class (names where the data has names), or of the higher rank of "roc-area";
        empty: the larger of two labels, or one model a class.
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
        Of the order of steps of "streamed-smo"; the other solvers draw no random numbers.
    resident : float or None
        Share of the data that "streamed-smo" holds in memory; None: what fits.
    lanes : int or None
        Parts of a round that "streamed-smo" works on at the same time, a power of two up to 64; None: 1, and
        2 from 1e9 nonzeros on.
    cut_groups : int or None
        Groups of rows, or of pairs by their higher row, with a slack each; None: what fits for "ocas" on
        "svc", else 1.
    checkpoint : path or None
        Folder for saved states.
    resume : bool
        Go on from the newest state in that folder, if there is one.
    warm_start : path or None
        A model file, or a folder with the saved state of a run that differs in C at most: where
        "streamed-smo" begins.
    engine : {"local", "dask"}
        "dask" works on a cluster: processes on this machine, one for each of the threads, or those of a
        scheduler.
    scheduler : str or None
        Address of the cluster's scheduler, ``tls://host:port``.
    insecure_cluster : bool
        Take a scheduler without TLS.

    Raises
    ------
    UsageError
        A value that is not possible, or options that contradict each other.
    """

    problem: str = "svc"
    loss: str | None = None
    epsilon: float | None = None
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
    resident: float | None = None
    lanes: int | None = None
    cut_groups: int | None = None
    checkpoint: str | PathLike[str] | None = None
    resume: bool = False
    warm_start: str | PathLike[str] | None = None
    engine: str = "local"
    scheduler: str | None = None
    insecure_cluster: bool = False

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("problem", self.problem, PROBLEMS),
            ("loss", self.loss or LOSSES[0], LOSSES),
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
        if self.engine != "dask" and (self.scheduler is not None or self.insecure_cluster):
            raise UsageError("a scheduler is for the engine 'dask'; choose it as well")
        if self.resident is not None and not 0 < self.resident <= 1:
            raise UsageError(f"resident is a share of the data above 0, at most 1, not {self.resident}")
        if self.lanes is not None and self.lanes not in LANES:
            raise UsageError(f"lanes is one of {', '.join(map(str, LANES))}, not {self.lanes}")
        self._check_combinations()
        self._check_class_weight()

    def _check_combinations(self) -> None:
        """What goes together; nothing that was asked for is passed over silently."""
        problem, solver = self.problem, self.resolved_solver
        if self.resolved_loss not in LOSSES_OF[problem]:
            losses = " or ".join(LOSSES_OF[problem])
            raise UsageError(f"problem {problem!r} takes the loss {losses}, not {self.loss!r}")
        if self.positive and problem not in ("svc", "roc-area"):
            raise UsageError(f"positive is for the problems 'svc' and 'roc-area', not for {problem!r}")
        if self.class_weight is not None and problem != "svc":
            raise UsageError(f"class_weight is for problem 'svc'; {problem!r} has no classes to weigh")
        if self.epsilon is not None and (problem != "svr" or not 0 <= self.epsilon < math.inf):
            raise UsageError(
                f"epsilon is for problem 'svr', and not negative: {self.epsilon} for {problem!r}"
            )
        if self.over_pairs and self.bias != "none":
            raise UsageError(
                f"problem {problem!r} has no bias, it would cancel in every pair; leave bias out"
            )
        if solver == "streamed-smo":
            if self.over_pairs:
                raise UsageError(f"problem {problem!r} is for the solvers 'ocas' and 'cutting-plane'")
            if self.cut_groups is not None:
                raise UsageError("cut_groups is for the solvers 'ocas' and 'cutting-plane'")
            return
        for name, value in (
            ("resident", self.resident),
            ("lanes", self.lanes),
            ("warm_start", self.warm_start),
        ):
            if value is not None:
                raise UsageError(f"{name} is for the solver 'streamed-smo', not {solver!r}")
        if (self.resolved_loss, self.bias == "free") != ("hinge", False):
            raise UsageError(
                f"the solver {solver!r} takes the hinge loss and the biases none and penalized; "
                "'streamed-smo' takes all losses and biases"
            )

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
        if self.solver != "auto":
            return self.solver
        return "streamed-smo" if self.cut_groups is None and not self.over_pairs else "ocas"

    @property
    def over_pairs(self) -> bool:
        """Whether losses are of pairs of rows."""
        return self.problem in PAIR_PROBLEMS

    @property
    def resolved_loss(self) -> str:
        """The loss, the problem's first one if none was named."""
        return LOSSES_OF[self.problem][0] if self.loss is None else self.loss

    @property
    def resolved_epsilon(self) -> float:
        """Half width of the tube that costs nothing: 0 for classes."""
        if self.problem != "svr":
            return 0.0
        return 0.1 if self.epsilon is None else self.epsilon

    def to_json(self) -> dict[str, Any]:
        """The options as JSON can hold them."""
        record = asdict(self)
        record["loss"], record["epsilon"] = self.resolved_loss, self.resolved_epsilon
        if isinstance(self.class_weight, Mapping):
            record["class_weight"] = [[label, weight] for label, weight in self.class_weight.items()]
        for name in ("checkpoint", "warm_start"):
            record[name] = None if record[name] is None else str(record[name])
        record["C"], record["positive"] = list(self.C), list(self.positive)
        return record

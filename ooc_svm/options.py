"""The options of a training run: one list, from which everything else that knows options is derived.

A field of `TrainOptions` carries all that is known of its option (`Option`). From this list follow the
command line, the checks, the keys of checkpoints and warm starts, and the tables of the documentation. The
problems, losses or solvers that an option belongs to name it in `ooc_svm.catalog`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import Enum
from os import PathLike
from typing import Any, NamedTuple

from ooc_svm.catalog import BIASES, LOSSES, PROBLEMS, SOLVERS, SolverEntry, owners
from ooc_svm.errors import UsageError

ENGINES = ("local", "dask")
DEFAULT_EPSILON = 0.1


class Role(Enum):
    """What an option decides."""

    IDENTITY = "identity"  # which answer is computed; a checkpoint is of use for one value only
    # A resumed run may have another value of the others.
    RESOURCE = "resource"  # with what it is computed
    LIMIT = "limit"  # when the run ends
    PLACE = "place"  # where the run starts from and where it is saved


# What is wrong with a value, in words that follow the option's name; None if nothing is.
Check = Callable[[Any], str | None]


class Option(NamedTuple):
    """What is known of an option besides its name and type.

    `metavar` stands for its value in the help and is empty for a flag. `choices` are all values, where it
    takes one of a few names; `check` is called with values other than the default. `varies`: whether a warm
    start may come from a run with another value, for the role "identity".
    """

    default: Any
    role: Role
    help: str
    metavar: str = ""
    choices: tuple[str, ...] = ()
    check: Check | None = None
    varies: bool = False

    def complaint(self, value: Any) -> str | None:
        """What is wrong with a value, as of `Check`."""
        if self.choices and value not in self.choices:
            return f"{value!r:.82} is not known; choose from: {', '.join(self.choices)}"
        return None if self.check is None else self.check(value)


def _option(default: Any, role: Role, help: str, metavar: str = "", **details: Any) -> Any:
    """A field of `TrainOptions`; see `Option`."""
    metavar = metavar or "|".join(details.get("choices", ()))
    return field(default=default, metadata={"option": Option(default, role, help, metavar, **details)})


def _must_be(rule: str, holds: Callable[[Any], bool]) -> Check:
    return lambda value: None if holds(value) else f"must be {rule}, not {value}"


def _check_costs(values: tuple[float, ...]) -> str | None:
    named = ", ".join(map(str, values)) or "empty"
    if not values or not all(isinstance(C, int | float) and 0 < C < math.inf for C in values):
        return f"must be positive and finite, not {named}"
    return None if len(set(values)) == len(values) else f"holds the same value twice: {named}"


def _check_class_weight(weights: str | Mapping[float | str, float]) -> str | None:
    if isinstance(weights, str):
        known = weights == "balanced"
        return None if known else f"{weights!r:.82} is not known; give 'balanced' or weights by label"
    for label, weight in weights.items():
        if not 0 <= weight < math.inf:
            return f"of label {label} must be finite and not negative, not {weight}"
    return None


_COUNT = _must_be("at least 1", lambda count: count >= 1)
_GAP = _must_be("a relative gap between 0 and 1", lambda tol: 0 < tol < 1)
_POSITIVE = _must_be("positive", lambda number: number > 0)


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Options of `ooc_svm.train`, with the names of the command line.

    Raises
    ------
    UsageError
        A value that is not possible, or options that contradict each other.
    """

    problem: str = _option(
        "svc",
        Role.IDENTITY,
        "What is learned: classes (svc), values (svr) or an order of rows (ordinal, roc-area, ranking).",
        choices=tuple(PROBLEMS),
    )
    loss: str | None = _option(
        None,
        Role.IDENTITY,
        "Loss of a row or of a pair of rows; by default hinge, epsilon-insensitive for svr.",
        choices=tuple(LOSSES),
    )
    epsilon: float | None = _option(
        None,
        Role.IDENTITY,
        f"Deviation from a value that costs nothing; by default {DEFAULT_EPSILON}.",
        "FLOAT",
        check=_must_be("finite and not negative", lambda epsilon: 0 <= epsilon < math.inf),
    )
    solver: str = _option(
        "auto",
        Role.IDENTITY,
        "Algorithm; auto is the first of the others that takes the problem and all options.",
        choices=("auto", *SOLVERS),
    )
    kernel: str = _option("linear", Role.IDENTITY, "Kernel function.", choices=("linear",))
    bias: str = _option(
        "none",
        Role.IDENTITY,
        "Penalized: the weight of a constant feature 1; free: a constant without penalty.",
        choices=BIASES,
    )
    C: tuple[float, ...] = _option(
        (1.0,),
        Role.IDENTITY,
        "Weight of the sum of the losses, for pairs of rows of their mean; one model is trained for each "
        "value, all on the same reads.",
        "FLOAT[,FLOAT...]",
        check=_check_costs,
        varies=True,
    )
    class_weight: str | Mapping[float | str, float] | None = _option(
        None,
        Role.IDENTITY,
        "Weights of the losses of classes, by label; a class that is not named has weight 1.",
        "balanced|LABEL:W,...",
        check=_check_class_weight,
    )
    positive: tuple[float | str, ...] = _option(
        (),
        Role.IDENTITY,
        "Labels of the positive class, against all others. By default the larger of two labels; of more, "
        "svc trains a model for each.",
        "LABEL[,LABEL...]",
    )
    label: str | None = _option(
        None, Role.IDENTITY, "Column of an AnnData store (obs) that holds the labels.", "COLUMN"
    )
    scale: str = _option(
        "none",
        Role.IDENTITY,
        "Divide columns by their largest magnitude or by their standard deviation.",
        choices=("none", "maxabs", "std"),
    )
    tol: float = _option(1e-3, Role.LIMIT, "Relative gap (P - D) / P to certify.", "FLOAT", check=_GAP)
    max_passes: int | None = _option(None, Role.LIMIT, "Reads of the data at most.", "N", check=_COUNT)
    time_limit: float | None = _option(
        None, Role.LIMIT, "No read begins after this time.", "SECONDS", check=_POSITIVE
    )
    memory: str | int | None = _option(
        None,
        Role.RESOURCE,
        "Memory this process may use, for example 600MB or 4GiB; by default half of what is there.",
        "SIZE",
    )
    threads: int | None = _option(
        None, Role.RESOURCE, "Threads; by default one for each processor.", "N", check=_COUNT
    )
    seed: int = _option(
        0,
        Role.IDENTITY,
        "Seed of the order of steps of streamed-smo; other solvers draw no random numbers.",
        "N",
        varies=True,
    )
    resident: float | None = _option(
        None,
        Role.IDENTITY,
        "Share of the data held in memory; by default what fits.",
        "SHARE",
        check=_must_be("a share of the data above 0 and at most 1", lambda share: 0 < share <= 1),
        varies=True,
    )
    lanes: int | None = _option(
        None,
        Role.IDENTITY,
        "Parts of a round worked on at the same time; by default 1, from 1e9 nonzeros on 2.",
        "N",
        check=_must_be("a power of two up to 64", lambda lanes: lanes in (1, 2, 4, 8, 16, 32, 64)),
    )
    cut_groups: int | None = _option(
        None,
        Role.IDENTITY,
        "Groups of rows, or of pairs by their higher row, with a slack each; by default what fits for ocas "
        "on svc, else 1.",
        "N",
        check=_COUNT,
    )
    checkpoint: str | PathLike[str] | None = _option(  # noqa: RUF009
        None, Role.PLACE, "Save the state of the run in this folder from time to time.", "FOLDER"
    )
    resume: bool = _option(False, Role.PLACE, "Go on from the newest state in the checkpoint folder, if any.")
    warm_start: str | PathLike[str] | None = _option(  # noqa: RUF009
        None,
        Role.PLACE,
        "Begin with this model, or with the state that a run with another C saved.",
        "MODEL|FOLDER",
    )
    engine: str = _option(
        "local", Role.RESOURCE, "Compute in threads, or in processes of a dask cluster.", choices=ENGINES
    )
    scheduler: str | None = _option(
        None,
        Role.RESOURCE,
        "Scheduler of the dask cluster, tls://HOST:PORT; by default the cluster is started on this machine.",
        "ADDRESS",
    )
    insecure_cluster: bool = _option(
        False, Role.RESOURCE, "Accept a scheduler without TLS; every host that reaches it controls it."
    )

    def __post_init__(self) -> None:
        for name, option in OPTIONS.items():
            value = getattr(self, name)
            complaint = None if value == option.default else option.complaint(value)
            if complaint is not None:
                raise UsageError(f"{name} {complaint}")
        self._check_problem()
        self._check_solver()
        if self.resume and self.checkpoint is None:
            raise UsageError("resume needs a checkpoint folder to go on from; add checkpoint")
        if self.engine != "dask" and (self.scheduler is not None or self.insecure_cluster):
            raise UsageError("a scheduler is for the engine 'dask'; choose it as well")

    def _check_problem(self) -> None:
        """Refuse what does not go with the problem or the loss; no option is ignored silently."""
        problem = PROBLEMS[self.problem]
        if self.resolved_loss not in problem.losses:
            losses = " or ".join(problem.losses)
            raise UsageError(f"problem {self.problem!r} takes the loss {losses}, not {self.loss!r}")
        for kind, chosen in (("problem", self.problem), ("loss", self.resolved_loss)):
            for name, takers in self._owned(kind):
                if chosen not in takers:
                    raise UsageError(f"{_belongs(name, kind, takers)}, not {chosen!r}")
        if self.bias not in problem.biases:
            raise UsageError(
                f"problem {self.problem!r} has no bias, it would cancel in every pair; leave bias out"
            )

    def _check_solver(self) -> None:
        """Refuse a run that the solver does not take, or for "auto" no solver."""
        objections = [self._objection(solver) for solver in SOLVERS if self.solver in ("auto", solver)]
        if all(objections):
            found = "; ".join(dict.fromkeys(filter(None, objections)))
            if self.solver == "auto":
                raise UsageError(f"no solver takes all of the options: {found}")
            raise UsageError(f"{found}, not {self.solver!r}")

    def _objection(self, solver: str) -> str | None:
        """Why a solver does not take this run; None if it does."""
        form, properties = PROBLEMS[self.problem].form, LOSSES[self.resolved_loss].properties
        rules: tuple[tuple[str, Callable[[SolverEntry], bool]], ...] = (
            (f"problem {self.problem!r}", lambda entry: form in entry.forms),
            (f"loss {self.resolved_loss!r}", lambda entry: entry.needs in properties),
            (f"bias {self.bias!r}", lambda entry: self.bias in entry.biases),
        )
        takers = [(subject, [n for n, entry in SOLVERS.items() if takes(entry)]) for subject, takes in rules]
        for subject, names in (*takers, *self._owned("solver")):
            if solver not in names:
                return _belongs(subject, "solver", names)
        return None

    def _owned(self, kind: str) -> Iterator[tuple[str, list[str]]]:
        """The options given that belong to problems, losses or solvers, and the names of these."""
        for name, option in OPTIONS.items():
            if getattr(self, name) != option.default and kind in (owned := owners(name)):
                yield name, owned[kind]

    @property
    def resolved_solver(self) -> str:
        """The solver that "auto" stands for: the first that takes this run."""
        if self.solver != "auto":
            return self.solver
        return next(solver for solver in SOLVERS if self._objection(solver) is None)

    @property
    def over_pairs(self) -> bool:
        """Whether losses are of pairs of rows."""
        return PROBLEMS[self.problem].form == "pairs"

    @property
    def resolved_loss(self) -> str:
        """The loss, the problem's first one if none was named."""
        return PROBLEMS[self.problem].losses[0] if self.loss is None else self.loss

    @property
    def resolved_epsilon(self) -> float:
        """Deviation from a value that costs nothing: 0 for losses that have no such number."""
        if "epsilon" not in LOSSES[self.resolved_loss].options:
            return 0.0
        return DEFAULT_EPSILON if self.epsilon is None else self.epsilon

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


def _belongs(subject: str, kind: str, names: Collection[str]) -> str:
    """``resident is for the solver 'streamed-smo'``."""
    plural = "" if len(names) == 1 else "es" if kind == "loss" else "s"
    return f"{subject} is for the {kind}{plural} {' and '.join(map(repr, names))}"


OPTIONS: dict[str, Option] = {item.name: item.metadata["option"] for item in fields(TrainOptions)}
"""All options by name, in the order of the command line."""


def identity_fields() -> list[str]:
    """Names of the options that make a run what it is: the key of its checkpoints."""
    return [name for name, option in OPTIONS.items() if option.role is Role.IDENTITY]


def family_fields() -> list[str]:
    """Names of the options in which a run equals those whose states it can start from."""
    return [name for name in identity_fields() if not OPTIONS[name].varies]


def flag(name: str) -> str:
    """The option on the command line: ``--max-passes``."""
    return "--" + name.replace("_", "-")


def default_text(name: str) -> str:
    """The default as it is typed; empty where it is no value of its own."""
    default = OPTIONS[name].default
    if default is None or default is False:
        return ""
    parts = default if isinstance(default, tuple) else (default,)
    return ",".join(f"{part:g}" if isinstance(part, float) else str(part) for part in parts)


def described(name: str) -> str:
    """The help of an option, with the problems, losses or solvers that it is only for."""
    only = "".join(f" Only for {' and '.join(names)}." for names in owners(name).values())
    return OPTIONS[name].help + only


if TrainOptions.__doc__:  # python -OO leaves it out
    TrainOptions.__doc__ += "\n    Attributes\n    ----------\n" + "".join(
        f"    {name} : {option.choices or TrainOptions.__annotations__[name]}, default {option.default!r}\n"
        f"        {described(name)}\n"
        for name, option in OPTIONS.items()
    )

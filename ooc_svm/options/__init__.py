"""The options of a training run: one list, from which everything else that knows options is derived.

A field of `TrainOptions` carries all that is known of its option (`Option`). From this list follow the
command line, the checks, the keys of checkpoints and warm starts, and the tables of the documentation. The
problems, losses, kernels or solvers that an option belongs to name it in `ooc_svm.catalog`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from os import PathLike
from typing import Any

from ooc_svm.catalog import (
    BIASES,
    CALIBRATIONS,
    KERNELS,
    LINEAR,
    LOSSES,
    PROBLEMS,
    SOLVERS,
    SolverEntry,
    belongs,
    objection,
    owners,
)
from ooc_svm.errors import UsageError, parameter
from ooc_svm.options.option import (
    CLUSTER_HEADING,
    SOLVER_HEADING,
    Option,
    Role,
    name_option,
    train_option,
)
from ooc_svm.options.resolved import (
    DEFAULT_COEF0,
    DEFAULT_DEGREE,
    DEFAULT_EPSILON,
    DEFAULT_NU,
    DEFAULT_P,
    ResolvedOptions,
)
from ooc_svm.parameters import (
    CLASS_WEIGHT,
    COSTS,
    COUNT,
    DEGREE,
    DEVIATION,
    FINITE,
    FLAG,
    GAMMA,
    GAP,
    LABELS,
    LANES,
    LOCAL_PATH,
    NU,
    PATH,
    POWER,
    PRUNED_SHARE,
    SECONDS,
    SEED,
    SHARE,
    SIZE,
    TEXT,
    THREADS,
    VALIDATION,
    check_engine,
    checked_fields,
)

ENGINES = ("local", "dask")


@checked_fields
@dataclass(frozen=True, kw_only=True)
class TrainOptions(ResolvedOptions):
    """Options of `ooc_svm.train`, with the names of the command line.

    Raises
    ------
    UsageError
        A value that is not possible, or options that contradict each other.
    """

    problem: str = name_option(
        PROBLEMS,
        "svc",
        Role.IDENTITY,
        "What is learned: classes (svc, nu-svc), values (svr, nu-svr) or an order of rows (ordinal, "
        "roc-area, ranking).",
    )
    loss: str | None = name_option(
        LOSSES,
        None,
        Role.IDENTITY,
        "Loss of a row or of a pair of rows; by default hinge, epsilon-insensitive for svr and nu-svr.",
    )
    epsilon: float | None = train_option(
        DEVIATION,
        None,
        Role.IDENTITY,
        f"Deviation from a value that costs nothing; by default {DEFAULT_EPSILON}.",
        "FLOAT",
    )
    p: float | None = train_option(
        POWER,
        None,
        Role.IDENTITY,
        f"Power of the slack in the loss, from 1 (hinge) to 2 (squared-hinge); by default {DEFAULT_P}.",
        "FLOAT",
    )
    nu: float | None = train_option(
        NU,
        None,
        Role.IDENTITY,
        "Share of the rows: at most so many have a loss, at least so many are support vectors; by default "
        f"{DEFAULT_NU}.",
        "FLOAT",
        varies=True,
    )
    solver: str = name_option(
        ("auto", *SOLVERS),
        "auto",
        Role.IDENTITY,
        "Algorithm; auto is the first of the others that takes the problem and all options; for the nu "
        "problems ocas comes first.",
        heading=SOLVER_HEADING,
    )
    kernel: str = name_option(
        KERNELS,
        LINEAR,
        Role.IDENTITY,
        "Kernel function: x.z (linear), (gamma x.z + coef0)^degree (poly), exp(-gamma norm(x - z)^2) (rbf) "
        "or tanh(gamma x.z + coef0) (sigmoid).",
    )
    gamma: float | str | None = train_option(
        GAMMA,
        None,
        Role.IDENTITY,
        "Factor in the kernel: a number, auto for 1 / features, or by default scale: that divided by the "
        "variance of all entries of the data.",
        "FLOAT|scale|auto",
    )
    degree: int | None = train_option(
        DEGREE, None, Role.IDENTITY, f"Degree of the kernel; by default {DEFAULT_DEGREE}.", "N"
    )
    coef0: float | None = train_option(
        FINITE, None, Role.IDENTITY, f"Constant in the kernel; by default {DEFAULT_COEF0:g}.", "FLOAT"
    )
    landmarks: int | None = train_option(
        COUNT,
        None,
        Role.IDENTITY,
        "For millions of rows: a model of the kernel values with so many rows, chosen among four times as "
        "many that the seed draws; its gap is that of the kernel. By default all rows are used.",
        "K",
        heading=SOLVER_HEADING,
    )
    polish: bool = train_option(
        *(FLAG, False, Role.LIMIT, "Go on from the model of landmarks until the gap is certified."),
        heading=SOLVER_HEADING,
    )
    bias: str | None = name_option(
        BIASES,
        None,
        Role.IDENTITY,
        "Penalized, by default but for pairs and nu: the weight of a constant feature 1; free: without "
        "penalty. A bias takes at most one read more.",
    )
    C: tuple[float, ...] = train_option(
        COSTS,
        (1.0,),
        Role.IDENTITY,
        "Weight of the sum of the losses, for pairs of rows of their mean; one model is trained for each "
        "value, all on the same reads.",
        "FLOAT[,FLOAT...]",
        varies=True,
    )
    class_weight: str | Mapping[float | str, float] | None = train_option(
        CLASS_WEIGHT,
        None,
        Role.IDENTITY,
        "Weights of the losses of classes, by label; by default 1 for each. On the command line, a label "
        "with commas stands in double quotes; an option that is given again takes one label each time.",
        "balanced|LABEL:W,...",
    )
    positive: tuple[float | str, ...] = train_option(
        LABELS,
        (),
        Role.IDENTITY,
        "Labels of the positive class, against all others; by default the larger of two labels, or of more "
        "each in turn (svc). On the command line, a label with commas stands in double quotes; an option "
        "that is given again takes one label each time.",
        "LABEL[,LABEL...]",
    )
    calibrate: str | None = name_option(
        CALIBRATIONS,
        None,
        Role.RESULT,
        "Give probabilities, by default none, fitted to scores of rows that models were trained without: of "
        "five folds, of the folds that tune compares on, or of the share held out for validation.",
    )
    label: str | None = train_option(
        TEXT,
        None,
        Role.IDENTITY,
        "Column of an AnnData store (obs) that holds the labels; by default label.",
        "COLUMN",
        heading="Data",
    )
    validation: float | str | PathLike[str] | None = train_option(  # noqa: RUF009
        VALIDATION,
        None,
        Role.IDENTITY,
        "Measure the quality after each pass, on a share of the rows (of ranking: of the queries) that is "
        "held out of training, or on another store; of several C, predict then takes the best by default.",
        "SHARE|STORE",
        heading="Data",
    )
    unlabelled: str = name_option(
        ("error", "skip"), "error", Role.ROWS, "What to do with rows without a label; skip leaves them out."
    )
    layer: str | None = train_option(
        TEXT,
        None,
        Role.PLACE,
        "Layer of an AnnData store that is read; by default its matrix X.",
        "NAME",
        heading="Data",
    )
    scale: str = name_option(
        ("none", "maxabs", "std"),
        "none",
        Role.IDENTITY,
        "Divide columns by their largest magnitude or by their standard deviation.",
    )
    tol: float = train_option(GAP, 1e-3, Role.LIMIT, "Relative gap (P - D) / P to certify.", "FLOAT")
    max_passes: int | None = train_option(
        COUNT, None, Role.LIMIT, "Reads of the data at most; by default as many as it takes.", "N"
    )
    time_limit: float | None = train_option(
        SECONDS, None, Role.LIMIT, "No read begins after this time; by default without limit.", "SECONDS"
    )
    prune: float | None = train_option(
        PRUNED_SHARE,
        None,
        Role.RESULT,
        "Set weights to 0 in the end that are smaller than this share of the largest one of their model; one "
        "read more finds the gap of what is left. By default all are kept.",
        "SHARE",
    )
    memory: str | int | None = train_option(
        SIZE,
        None,
        Role.RESOURCE,
        "Memory this process may use, for example 600MB or 4GiB; by default half of what is there.",
        "SIZE",
    )
    threads: int | None = train_option(
        THREADS, None, Role.RESOURCE, "Threads; by default one for each processor.", "N"
    )
    seed: int = train_option(
        SEED,
        0,
        Role.IDENTITY,
        "Seed of the order of steps of streamed-smo and smo, of the rows that block-smo draws, of those that "
        "--validation SHARE holds out, and of folds.",
        "N",
        varies=True,
        heading=SOLVER_HEADING,
    )
    resident: float | None = train_option(
        SHARE,
        None,
        Role.IDENTITY,
        "Share of the data held in memory, for all models together; by default what fits.",
        "SHARE",
        varies=True,
        heading=SOLVER_HEADING,
    )
    lanes: int | None = train_option(
        LANES,
        None,
        Role.IDENTITY,
        "Parts of a round worked on at the same time; by default 1, from 1e9 nonzeros on 2.",
        "N",
        heading=SOLVER_HEADING,
    )
    cut_groups: int | None = train_option(
        COUNT,
        None,
        Role.IDENTITY,
        "Groups of rows (pairs: of their higher rows) with a slack each; by default 1, for ocas what fits.",
        "N",
        heading=SOLVER_HEADING,
    )
    sparse_cuts: bool = train_option(
        FLAG, False, Role.IDENTITY, "Take cuts of fewer kernel columns.", heading=SOLVER_HEADING
    )
    checkpoint: str | PathLike[str] | None = train_option(  # noqa: RUF009
        PATH, None, Role.PLACE, "Save the state of the run in this folder from time to time.", "FOLDER"
    )
    resume: bool = train_option(
        FLAG, False, Role.PLACE, "Go on from the newest state in the checkpoint folder, if any."
    )
    warm_start: str | PathLike[str] | None = train_option(  # noqa: RUF009
        PATH,
        None,
        Role.PLACE,
        "Begin with this model, or with the state that a run with another C or nu saved.",
        "MODEL|FOLDER",
    )
    cache: str | PathLike[str] | None = train_option(  # noqa: RUF009
        LOCAL_PATH, None, Role.RESOURCE, "Keep chunks of a store in a bucket in this folder.", "FOLDER"
    )
    cache_size: str | int | None = train_option(
        SIZE, None, Role.RESOURCE, "Size of that cache; by default half of what is free on the disk.", "SIZE"
    )
    engine: str = name_option(
        ENGINES,
        "local",
        Role.RESOURCE,
        "Compute in threads, or in processes of a dask cluster.",
        heading=CLUSTER_HEADING,
    )
    scheduler: str | None = train_option(
        TEXT,
        None,
        Role.RESOURCE,
        "Scheduler of the dask cluster, tls://HOST:PORT; by default the cluster is started on this machine.",
        "ADDRESS",
        heading=CLUSTER_HEADING,
    )
    insecure_cluster: bool = train_option(
        FLAG,
        False,
        Role.RESOURCE,
        "Accept a scheduler without TLS; every host that reaches it controls it.",
        heading=CLUSTER_HEADING,
    )

    def __post_init__(self) -> None:
        self._check_problem()
        self._check_solver()
        for name, needed, what in (
            ("cache_size", "cache", "the folder"),
            ("resume", "checkpoint", "the folder to go on from"),
            ("polish", "landmarks", "the number of rows to begin with"),
        ):
            if getattr(self, name) and getattr(self, needed) is None:
                raise UsageError(f"{parameter(name)} needs {parameter(needed)}, {what}; add it")
        check_engine(self.engine, self.scheduler, self.insecure_cluster)
        if self.landmarks is not None and self.engine != "local":
            raise UsageError(
                f"{parameter('landmarks')} is for one machine; leave {parameter('engine')} out, or train on "
                "all rows"
            )

    def _check_problem(self) -> None:
        """Refuse what does not go with the problem or the loss; no option is ignored silently."""
        problem = PROBLEMS[self.problem]
        if self.resolved_loss not in problem.losses:
            losses = " or ".join(problem.losses)
            raise UsageError(f"problem {self.problem!r} takes the loss {losses}, not {self.loss!r}")
        chosen_of = {"problem": self.problem, "loss": self.resolved_loss, "kernel": self.kernel}
        for kind, chosen in chosen_of.items():
            for subject, takers in self._owned(kind):
                if chosen not in takers:
                    raise UsageError(f"{belongs(subject, kind, takers)}, not {chosen!r}")
        for name in problem.without:
            if getattr(self, name) != OPTIONS[name].default:
                instead = f"{parameter(problem.options[0])} in place of {parameter(name)}"
                raise UsageError(f"problem {self.problem!r} has {instead}; leave that out")
        if self.resolved_bias not in problem.biases:
            if not self.over_pairs:
                raise UsageError(f"problem {self.problem!r} has a free bias, not {self.resolved_bias!r}")
            reason = f"problem {self.problem!r} has no bias, it would cancel in every pair"
            raise UsageError(f"{reason}; leave {parameter('bias')} out")

    def _check_solver(self) -> None:
        """Refuse a run that the solver does not take, or for "auto" no solver."""
        rules = self._solver_rules()
        auto = [name for name, entry in SOLVERS.items() if self.kernel in entry.kernels]
        objections = [objection(name, rules) for name in (auto if self.solver == "auto" else [self.solver])]
        if all(objections):
            if self.solver == "auto":
                given = self._without_defaults(rules)
                objections = [*(objection(name, given) for name in auto), *self._objection_by_kernel(given)]
            found = "; ".join(dict.fromkeys(filter(None, objections)))
            if self.solver == "auto":
                raise UsageError(f"no solver takes all of the options: {found}")
            raise UsageError(f"{found}, not {self.solver!r}")

    def _without_defaults(self, rules: list[tuple[str, list[str]]]) -> list[tuple[str, list[str]]]:
        """The rules, but those of a loss or a bias that is a default and not the only thing in the way."""
        for name in ("loss", "bias"):
            value = getattr(self, f"resolved_{name}")
            others = [rule for rule in rules if rule[0] != f"{name} {value!r}"]
            if getattr(self, name) is None and all(objection(solver, others) for solver in SOLVERS):
                rules = others
        return rules

    def _objection_by_kernel(self, rules: list[tuple[str, list[str]]]) -> list[str]:
        """What the kernel is for, where some solver would take the run with another one."""
        kernel = f"kernel {self.kernel!r}"
        others = [rule for rule in rules if rule[0] != kernel]
        if all(objection(name, others) for name in SOLVERS):
            return []
        return [belongs(kernel, "solver", dict(rules)[kernel])]

    def _solver_rules(self) -> list[tuple[str, list[str]]]:
        """What this run has that some solvers do not take, and the names of those that do."""
        form, properties = PROBLEMS[self.problem].form, LOSSES[self.resolved_loss].properties
        rules: tuple[tuple[str, Callable[[SolverEntry], bool]], ...] = (
            (f"problem {self.problem!r}", lambda entry: form in entry.forms),
            (f"loss {self.resolved_loss!r}", lambda entry: entry.needs in properties),
            (f"bias {self.resolved_bias!r}", lambda entry: self.resolved_bias in entry.biases),
            (f"kernel {self.kernel!r}", lambda entry: self.kernel in entry.kernels),
        )
        takers = [(subject, [n for n, entry in SOLVERS.items() if takes(entry)]) for subject, takes in rules]
        return [*takers, *self._owned("solver")]

    def _owned(self, kind: str) -> Iterator[tuple[str, list[str]]]:
        """The options given that belong to problems, losses or solvers, and the names of these."""
        for name, option in OPTIONS.items():
            if getattr(self, name) != option.default and kind in (owned := owners(name)):
                yield parameter(name), owned[kind]

    @property
    def resolved_solver(self) -> str:
        """The solver that "auto" stands for: the first that takes this run, second choices last."""
        if self.solver != "auto":
            return self.solver
        form, rules = PROBLEMS[self.problem].form, self._solver_rules()
        takers = [solver for solver in SOLVERS if objection(solver, rules) is None]
        return min(takers, key=lambda solver: form in SOLVERS[solver].second_choice)

    def to_json(self) -> dict[str, Any]:
        """The options as JSON can hold them."""
        record = asdict(self)
        record |= {"nu": self.resolved_nu if self.by_nu else None, "p": self.resolved_p}
        record |= {"loss": self.resolved_loss, "epsilon": self.resolved_epsilon, "bias": self.resolved_bias}
        record |= self.kernel_numbers
        if isinstance(self.class_weight, Mapping):
            record["class_weight"] = [[label, weight] for label, weight in self.class_weight.items()]
        for name in ("checkpoint", "warm_start", "validation", "cache"):
            place = record[name]
            record[name] = str(place) if isinstance(place, PathLike) else place
        record["C"], record["positive"] = list(self.C), list(self.positive)
        return record


OPTIONS: dict[str, Option] = {item.name: item.metadata["option"] for item in fields(TrainOptions)}
"""All options by name, in the order of the command line."""


def identity_fields() -> list[str]:
    """Names of the options that make a run what it is: the key of its checkpoints."""
    return [name for name, option in OPTIONS.items() if option.role is Role.IDENTITY]


def family_fields() -> list[str]:
    """Names of the options in which a run equals those whose states it can start from."""
    return [name for name in identity_fields() if not OPTIONS[name].varies]


def default_text(name: str) -> str:
    """The default as it is typed; empty where it is no value of its own."""
    default = OPTIONS[name].default
    if default is None or default is False:
        return ""
    parts = default if isinstance(default, tuple) else (default,)
    return ",".join(f"{part:g}" if isinstance(part, float) else str(part) for part in parts)


def described(name: str, help: str | None = None) -> str:
    """The help of an option, or another one, with the problems, losses or solvers that it is only for."""
    only = "".join(f" Only for {' and '.join(names)}." for names in owners(name).values())
    return (help or OPTIONS[name].help) + only


if TrainOptions.__doc__:  # python -OO leaves it out
    TrainOptions.__doc__ += "\n    Attributes\n    ----------\n" + "".join(
        f"    {name} : {option.kind.doc}, default {option.default!r}\n        {described(name)}\n"
        for name, option in OPTIONS.items()
    )

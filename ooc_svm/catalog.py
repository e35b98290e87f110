"""Problems, losses, kernels, solvers and calibrations: an entry for each, with its home and what it fits.

Importing this module costs next to nothing; `load` imports a home when it is used. Every check of what goes
together is derived from these entries, so that a new one is a line here and its own package or module.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from importlib import import_module
from typing import Any, Literal, NamedTuple

Form = Literal["classes", "values", "pairs", "classes by nu", "values by nu"]
"""What the losses of a problem are of: rows of two classes, rows with values, or pairs of rows.

"by nu": the margin or the width of the tube is found by training.
"""

LossProperty = Literal["dual", "quadratic dual", "piecewise linear", "power"]
"""What a loss offers to solvers.

Exact dual steps and their slopes; a conjugate that is a parabola between bounds; breakpoints for an exact
line search; a power of the slack.
"""

BIASES = ("none", "penalized", "free")


class LossEntry(NamedTuple):
    """A loss; its home is ``"module:name"``, see `load`.

    `options` belong to it and the other losses that name them: they are the numbers of its formula.
    `has_end`: whether rows may be without a loss, so that most multipliers rest at a bound.
    `bounded`: whether the multiplier of a row with a class has an upper bound.
    """

    home: str
    properties: tuple[LossProperty, ...]
    options: tuple[str, ...] = ()
    has_end: bool = True
    bounded: bool = True


class ProblemEntry(NamedTuple):
    """A problem; its home is ``"module:name"``, see `load`.

    `losses` are those that it takes, the default first. `score` is the metric of its models where one number
    is wanted, the higher the better. `options` belong to it and the other problems that
    name them; those that it is `without` have another one in their place.
    """

    home: str
    form: Form
    losses: tuple[str, ...]
    score: str
    options: tuple[str, ...] = ()
    without: tuple[str, ...] = ()

    @property
    def biases(self) -> tuple[str, ...]:
        """The biases that it takes; in the difference of a pair a bias cancels."""
        if self.form == "pairs":
            return ("none",)
        return ("free",) if self.form.endswith("by nu") else BIASES

    @property
    def bias(self) -> str:
        """The bias that it has where none is named."""
        return "penalized" if "penalized" in self.biases else self.biases[0]


class KernelEntry(NamedTuple):
    """A kernel function; its home is ``"module:name"``, see `load`.

    `options` belong to it and the other kernels that name them: they are the numbers of its formula.
    """

    home: str
    options: tuple[str, ...] = ()


class SolverEntry(NamedTuple):
    """A solver; its home is ``"module:name"``, see `load`.

    It solves problems of its `forms` with its `kernels`, and `needs` a property of the loss. `options` belong
    to it and the other solvers that name them. Of forms in `second_choice` it takes runs that no other solver
    does, unless it is named.
    """

    home: str
    forms: tuple[Form, ...]
    needs: LossProperty
    biases: tuple[str, ...]
    options: tuple[str, ...] = ()
    second_choice: tuple[Form, ...] = ()
    kernels: tuple[str, ...] = ("linear",)


_LINES: tuple[LossProperty, ...] = ("dual", "quadratic dual", "piecewise linear")
_PARABOLAS: tuple[LossProperty, ...] = ("dual", "quadratic dual")

LOSSES = {
    "hinge": LossEntry(home="ooc_svm.losses.hinge:Hinge", properties=(*_LINES, "power")),
    "squared-hinge": LossEntry(
        home="ooc_svm.losses.squared_hinge:SquaredHinge",
        properties=(*_PARABOLAS, "power"),
        bounded=False,
    ),
    "lp": LossEntry(
        home="ooc_svm.losses.lp:lp_hinge", properties=("dual", "power"), options=("p",), bounded=False
    ),
    "logistic": LossEntry(home="ooc_svm.losses.logistic:Logistic", properties=("dual",), has_end=False),
    "epsilon-insensitive": LossEntry(
        home="ooc_svm.losses.epsilon_insensitive:EpsilonInsensitive",
        properties=_LINES,
        options=("epsilon",),
    ),
    "squared-epsilon-insensitive": LossEntry(
        home="ooc_svm.losses.squared_epsilon_insensitive:SquaredEpsilonInsensitive",
        properties=_PARABOLAS,
        options=("epsilon",),
    ),
}

LINEAR = "linear"  # The kernel whose models are weights

KERNELS = {
    LINEAR: KernelEntry(home="ooc_svm.ops.kernels:Linear"),
    "poly": KernelEntry(home="ooc_svm.ops.kernels:Polynomial", options=("gamma", "degree", "coef0")),
    "rbf": KernelEntry(home="ooc_svm.ops.kernels:Gaussian", options=("gamma",)),
    "sigmoid": KernelEntry(home="ooc_svm.ops.kernels:Sigmoid", options=("gamma", "coef0")),
}

PROBLEMS = {
    "svc": ProblemEntry(
        home="ooc_svm.problems.classification:CLASSIFICATION",
        form="classes",
        losses=("hinge", "squared-hinge", "lp", "logistic"),
        score="accuracy",
        options=("class_weight", "positive", "calibrate"),
    ),
    "svr": ProblemEntry(
        home="ooc_svm.problems.regression:REGRESSION",
        form="values",
        losses=("epsilon-insensitive", "squared-epsilon-insensitive"),
        score="r2",
    ),
    "nu-svc": ProblemEntry(
        home="ooc_svm.problems.by_nu:NU_CLASSIFICATION",
        form="classes by nu",
        losses=("hinge",),
        score="accuracy",
        options=("nu", "class_weight", "positive", "calibrate"),
        without=("C",),
    ),
    "nu-svr": ProblemEntry(
        home="ooc_svm.problems.by_nu:NU_REGRESSION",
        form="values by nu",
        losses=("epsilon-insensitive",),
        score="r2",
        options=("nu",),
        without=("epsilon",),
    ),
    "ordinal": ProblemEntry(
        home="ooc_svm.problems.pairwise:ORDINAL",
        form="pairs",
        losses=("hinge",),
        score="kendall-tau",
    ),
    "roc-area": ProblemEntry(
        home="ooc_svm.problems.pairwise:ROC_AREA",
        form="pairs",
        losses=("hinge",),
        score="auc",
        options=("positive",),
    ),
    "ranking": ProblemEntry(
        home="ooc_svm.problems.pairwise:RANKING",
        form="pairs",
        losses=("hinge",),
        score="ndcg@10",
    ),
}

CALIBRATIONS = {"sigmoid": "ooc_svm.model.sigmoid:Sigmoid", "isotonic": "ooc_svm.model.isotonic:Isotonic"}
"""The homes of the maps from scores to probabilities, by the method that fits them."""

CURVED = tuple(name for name in KERNELS if name != LINEAR)

# "auto" stands for the first solver that takes a run, second choices last.
SOLVERS = {
    "streamed-smo": SolverEntry(
        home="ooc_svm.solvers.streamed_smo.plan:SOLVER",
        forms=("classes", "values", "classes by nu", "values by nu"),
        second_choice=("classes by nu", "values by nu"),
        needs="dual",
        biases=BIASES,
        options=("resident", "lanes", "warm_start", "prune"),
    ),
    "ocas": SolverEntry(
        home="ooc_svm.solvers.cutting_plane.plan:OCAS",
        forms=("classes", "values", "pairs", "classes by nu", "values by nu"),
        needs="piecewise linear",
        biases=BIASES,
        options=("cut_groups", "prune"),
    ),
    "cutting-plane": SolverEntry(
        home="ooc_svm.solvers.cutting_plane.plan:JOACHIMS",
        forms=("classes", "values", "pairs", "classes by nu", "values by nu"),
        needs="piecewise linear",
        biases=BIASES,
        options=("cut_groups", "prune"),
    ),
    "block-smo": SolverEntry(
        home="ooc_svm.solvers.block_smo.plan:SOLVER",
        forms=("classes", "values"),
        needs="quadratic dual",
        biases=BIASES,
        options=("landmarks", "polish"),
        kernels=CURVED,
    ),
    "smo": SolverEntry(
        home="ooc_svm.solvers.smo.plan:SOLVER",
        forms=("classes",),
        needs="piecewise linear",
        biases=BIASES,
        kernels=tuple(KERNELS),
    ),
    "kernel-cutting-plane": SolverEntry(
        home="ooc_svm.solvers.kernel_cutting_plane.plan:SOLVER",
        forms=("classes", "values", "classes by nu", "values by nu"),
        needs="piecewise linear",
        biases=("free",),
        options=("sparse_cuts",),
        kernels=CURVED,
    ),
    "alm": SolverEntry(
        home="ooc_svm.solvers.alm.plan:EXACT",
        forms=("classes",),
        needs="power",
        biases=BIASES,
    ),
    "inexact-alm": SolverEntry(
        home="ooc_svm.solvers.alm.plan:INEXACT",
        forms=("classes",),
        needs="power",
        biases=BIASES,
    ),
}


KINDS: dict[str, dict[str, Any]] = {
    "problem": PROBLEMS,
    "loss": LOSSES,
    "kernel": KERNELS,
    "solver": SOLVERS,
}


def owners(option: str) -> dict[str, list[str]]:
    """What an option belongs to: problems, losses, kernels or solvers, by kind; empty for a general one."""
    found = {}
    for kind, entries in KINDS.items():
        if names := [name for name, entry in entries.items() if option in entry.options]:
            found[kind] = names
    return found


def objection(solver: str, rules: Sequence[tuple[str, Collection[str]]]) -> str | None:
    """Why a solver does not take a run; None if it does.

    `rules` are what the run has that some solvers do not take, with the names of those that do.
    """
    for subject, names in rules:
        if solver not in names:
            return belongs(subject, "solver", names)
    return None


def belongs(subject: str, kind: str, names: Collection[str]) -> str:
    """``resident is for the solver 'streamed-smo'``."""
    plural = "" if len(names) == 1 else "es" if kind == "loss" else "s"
    each = [repr(name) for name in names]
    listed = " and ".join([", ".join(each[:-1]), each[-1]] if len(each) > 1 else each)
    return f"{subject} is for the {kind}{plural} {listed}"


def load(home: str) -> Any:
    """What ``"module:name"`` stands for; its module is imported here."""
    module, _, name = home.partition(":")
    return getattr(import_module(module), name)

"""Problems, losses and solvers: an entry for each, with its home and with what it goes together with.

Importing this module costs next to nothing; `load` imports a home when it is used. Every check of what goes
together is derived from these entries, so that a new one is a line here and its own package or module.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal, NamedTuple

Form = Literal["classes", "values", "pairs", "classes by nu", "values by nu"]
"""What the losses of a problem are of: rows of two classes, rows with values, or pairs of rows.

"by nu": the margin or the width of the tube is found by training.
"""

LossProperty = Literal["dual", "piecewise linear", "power"]
"""What a loss offers to solvers: exact dual steps, breakpoints for an exact line search, or the
slope of a dual step of a power of the slack.
"""

BIASES = ("none", "penalized", "free")


class LossEntry(NamedTuple):
    """A loss; its home is ``"module:name"``, see `load`.

    `options` belong to it and the other losses that name them: they are the numbers of its formula.
    """

    home: str
    properties: tuple[LossProperty, ...]
    options: tuple[str, ...] = ()


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


class SolverEntry(NamedTuple):
    """A solver; its home is ``"module:name"``, see `load`.

    It solves problems of its `forms`, and `needs` a property of the loss. `options` belong to it and the
    other solvers that name them. Of forms in `second_choice` it takes runs that no other solver does,
    unless it is named.
    """

    home: str
    forms: tuple[Form, ...]
    needs: LossProperty
    biases: tuple[str, ...]
    options: tuple[str, ...] = ()
    second_choice: tuple[Form, ...] = ()


LOSSES = {
    "hinge": LossEntry(home="ooc_svm.losses.hinge:Hinge", properties=("dual", "piecewise linear", "power")),
    "squared-hinge": LossEntry(
        home="ooc_svm.losses.squared_hinge:SquaredHinge", properties=("dual", "power")
    ),
    "lp": LossEntry(home="ooc_svm.losses.lp:lp_hinge", properties=("dual", "power"), options=("p",)),
    "logistic": LossEntry(home="ooc_svm.losses.logistic:Logistic", properties=("dual",)),
    "epsilon-insensitive": LossEntry(
        home="ooc_svm.losses.epsilon_insensitive:EpsilonInsensitive",
        properties=("dual", "piecewise linear"),
        options=("epsilon",),
    ),
    "squared-epsilon-insensitive": LossEntry(
        home="ooc_svm.losses.squared_epsilon_insensitive:SquaredEpsilonInsensitive",
        properties=("dual",),
        options=("epsilon",),
    ),
}

PROBLEMS = {
    "svc": ProblemEntry(
        home="ooc_svm.problems.classification:CLASSIFICATION",
        form="classes",
        losses=("hinge", "squared-hinge", "lp", "logistic"),
        score="accuracy",
        options=("class_weight", "positive"),
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
        options=("nu", "class_weight", "positive"),
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

# "auto" stands for the first solver that takes a run, second choices last.
SOLVERS = {
    "streamed-smo": SolverEntry(
        home="ooc_svm.solvers.streamed_smo.plan:SOLVER",
        forms=("classes", "values", "classes by nu", "values by nu"),
        second_choice=("classes by nu", "values by nu"),
        needs="dual",
        biases=BIASES,
        options=("resident", "lanes", "warm_start"),
    ),
    "ocas": SolverEntry(
        home="ooc_svm.solvers.cutting_plane.plan:OCAS",
        forms=("classes", "values", "pairs", "classes by nu", "values by nu"),
        needs="piecewise linear",
        biases=BIASES,
        options=("cut_groups",),
    ),
    "cutting-plane": SolverEntry(
        home="ooc_svm.solvers.cutting_plane.plan:JOACHIMS",
        forms=("classes", "values", "pairs", "classes by nu", "values by nu"),
        needs="piecewise linear",
        biases=BIASES,
        options=("cut_groups",),
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


def owners(option: str) -> dict[str, list[str]]:
    """The problems, losses and solvers that an option belongs to, by kind; empty for a general option."""
    kinds: dict[str, dict[str, Any]] = {"problem": PROBLEMS, "loss": LOSSES, "solver": SOLVERS}
    found = {}
    for kind, entries in kinds.items():
        if names := [name for name, entry in entries.items() if option in entry.options]:
            found[kind] = names
    return found


def load(home: str) -> Any:
    """What ``"module:name"`` stands for; its module is imported here."""
    module, _, name = home.partition(":")
    return getattr(import_module(module), name)

"""The trained model: its decision functions, what they stand for, and how they came about."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ooc_svm.catalog import PROBLEMS
from ooc_svm.data.blocks import Float64Array
from ooc_svm.model.linear import LinearFunctions


@dataclass(eq=False, kw_only=True)
class Model:
    """One or more decision functions and what their scores stand for.

    Attributes
    ----------
    problem, loss, solver : str
        As on the command line: ``"svc"`` with ``"hinge"`` or ``"squared-hinge"``, ``"svr"`` with
        ``"epsilon-insensitive"`` or ``"squared-epsilon-insensitive"``, ``"ordinal"``, ``"roc-area"`` and
        ``"ranking"`` with ``"hinge"``; ``"streamed-smo"`` ...
    functions : LinearFunctions
        The decision functions. Their weights, bias and scale are also attributes of the model.
    positive : list of float
        The label that a positive score of function k stands for; empty unless the model is a classifier.
        The scores of other models are values, or order the rows.
    negative : float or None
        The other label of a binary classifier; None for one-vs-rest and for other models.
    classes : tuple of float
        All labels of a classifier, ascending; empty for other models.
    label_names : tuple of str or None
        Names of `classes`, where the data had them.
    C : tuple of float
        Of each function; empty where it is not known.
    selected : int
        The function that predicts when several values of C were trained; for one-vs-rest any function of
        its C. The last one by default.
    index_base : int
        0 or 1, how the text numbered the features.
    options : dict
        Options of the run, in terms of JSON; they hold ``"epsilon"`` of a regressor.
    report : dict
        How the run went, in terms of JSON.

    Raises
    ------
    ValueError
        If the parts do not fit each other, or a number is not finite.
    """

    problem: str
    loss: str
    solver: str
    functions: LinearFunctions
    positive: list[float] = field(default_factory=list)
    negative: float | None = None
    classes: tuple[float, ...] = ()
    label_names: tuple[str, ...] | None = None
    C: tuple[float, ...] = ()
    selected: int = -1
    index_base: int = 1
    options: dict[str, Any] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.positive = _numbers("positive", self.positive)
        self.classes = tuple(_numbers("classes", self.classes))
        self.C = tuple(_numbers("C", self.C))
        if self.negative is not None:
            (self.negative,) = _numbers("negative", [self.negative])
        if self.label_names is not None:
            self.label_names = tuple(self.label_names)
        self.check()
        self.selected %= self.n_models

    def check(self) -> None:
        """Raise ValueError if the parts do not fit each other, or a number is not finite."""
        self.functions.check()
        self._check_problem()
        for name, numbers in (("positive", self.positive), ("C", self.C)):
            if len(numbers) not in (0, self.n_models):
                raise ValueError(f"{name} has {len(numbers)} entries for {self.n_models} models")
        if self.label_names is not None and len(self.label_names) != len(self.classes):
            raise ValueError(f"{len(self.label_names)} names for {len(self.classes)} classes")
        if not -self.n_models <= self.selected < self.n_models:
            raise ValueError(f"model {self.selected} is selected of {self.n_models}")
        if self.index_base not in (0, 1):
            raise ValueError(f"the index base is {self.index_base}, not 0 or 1")

    def _check_problem(self) -> None:
        """Refuse a loss, labels or an epsilon that do not go with the problem."""
        if self.problem not in PROBLEMS:
            known = ", ".join(PROBLEMS)
            raise ValueError(f"the problem is {self.problem[:80]!r}, this release knows {known}")
        if self.loss not in PROBLEMS[self.problem].losses:
            raise ValueError(f"the loss is {self.loss[:80]!r}, which {self.problem} does not have")
        if self.is_classifier:
            if not self.positive:
                raise ValueError(f"{self.problem} has no positive labels")
            return
        for name, given in (
            ("positive labels", bool(self.positive)),
            ("a negative label", self.negative is not None),
            ("classes", bool(self.classes)),
            ("names of classes", self.label_names is not None),
        ):
            if given:
                raise ValueError(f"{self.problem} gives scores, and the model has {name}")
        if self.epsilon is not None and _numbers("epsilon", [self.epsilon])[0] < 0:
            raise ValueError(f"epsilon is {self.epsilon!r}, less than 0")

    @property
    def kernel(self) -> str:
        """Name of the kernel: ``"linear"``."""
        return self.functions.kernel

    @property
    def weights(self) -> Float64Array:
        """Weights of the functions, shape (K, d)."""
        return self.functions.weights

    @property
    def bias(self) -> Float64Array:
        """Bias of each function, shape (K,)."""
        return self.functions.bias

    @property
    def scale(self) -> Float64Array | None:
        """Scale of the columns that was folded into the weights, shape (d,), or None."""
        return self.functions.scale

    @property
    def n_models(self) -> int:
        """Number of decision functions, K."""
        return self.functions.n_models

    @property
    def n_features(self) -> int:
        """Number of features, d."""
        return self.functions.n_features

    @property
    def is_classifier(self) -> bool:
        """Whether scores stand for labels; other scores are values, or order the rows."""
        return self.problem == "svc"

    @property
    def is_regressor(self) -> bool:
        """Whether scores are predicted values, and labels are values."""
        return self.problem == "svr"

    @property
    def epsilon(self) -> float | None:
        """Errors of a regressor up to this size cost nothing; None for classifiers, or if not known."""
        epsilon: float | None = self.options.get("epsilon")
        return epsilon if self.is_regressor else None

    @property
    def is_one_vs_rest(self) -> bool:
        """Whether there is a function for each of several classes."""
        return self.is_classifier and self.negative is None

    @property
    def active(self) -> tuple[int, ...]:
        """The functions that predict together: the selected one, or one-vs-rest all that share its C."""
        if not self.is_one_vs_rest:
            return (self.selected,)
        if not self.C:
            return tuple(range(self.n_models))
        return tuple(k for k in range(self.n_models) if self.C[k] == self.C[self.selected])


def _numbers(name: str, values: Sequence[float]) -> list[float]:
    """Python floats; a label or a C is finite. Text is refused rather than parsed."""
    numbers = []
    for value in values:
        if isinstance(value, bool | str | bytes) or not math.isfinite(value):
            raise ValueError(f"{name} holds {str(value)[:80]!r}, which is not a finite number")
        numbers.append(float(value))
    return numbers

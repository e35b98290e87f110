"""The trained model: its decision functions, what they stand for, and how they came about."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ooc_svm.catalog import PROBLEMS, load
from ooc_svm.data.blocks import Float64Array
from ooc_svm.data.feature_names import FeatureNames
from ooc_svm.errors import InputError, UsageError, shown
from ooc_svm.model.calibration import Calibration
from ooc_svm.model.kernel import KernelFunctions
from ooc_svm.model.linear import LinearFunctions
from ooc_svm.model.probabilities import gives_probabilities
from ooc_svm.parameters import plain, read_items, read_number

if TYPE_CHECKING:
    from ooc_svm.model.decision import Decision
    from ooc_svm.model.one_row import OneRow


@dataclass(eq=False, kw_only=True)
class Model:
    """One or more decision functions and what their scores stand for.

    Attributes
    ----------
    problem, loss, solver : str
        As on the command line: ``"svc"`` with ``"hinge"``, ``"squared-hinge"``, ``"logistic"`` or ``"lp"``,
        ``"svr"`` with ``"epsilon-insensitive"`` or ``"squared-epsilon-insensitive"``, ``"nu-svc"``,
        ``"ordinal"``, ``"roc-area"`` and ``"ranking"`` with ``"hinge"``, ``"nu-svr"`` with
        ``"epsilon-insensitive"``; ``"streamed-smo"`` ...
    functions : LinearFunctions or KernelFunctions
        The decision functions. Their weights (of a linear kernel), bias and scale are also attributes of the
        model.
    positive : list of float
        The label that a positive score of function k stands for; empty unless the model is a classifier.
        The scores of other models are values, or order the rows.
    negative : float or None
        The other label of a binary classifier; None for one-vs-rest and for other models.
    classes : tuple of float
        All labels of a classifier, ascending; empty for other models.
    label_names : tuple of str or None
        Names of `classes`, where the data had them.
    multilabel : bool
        Whether a row has any number of labels: `classes` are then all labels, by number, and function k says
        whether a row has the label ``positive[k]``.
    calibration : Calibration or None
        From the scores of a classifier's functions to probabilities, where these were fitted: a map for each.
    C : tuple of float
        Of each function; empty where it is not known.
    selected : int
        The function that predicts when several values of C were trained; for one-vs-rest any function of
        its C. The last one by default.
    index_base : int
        0 or 1: the number of the first feature in text.
    feature_names : FeatureNames or None
        The names of the features, a sequence of str, where the training data had names. Any sequence of str
        may be given.
    options : dict
        Options of the run, in terms of JSON; they hold ``"epsilon"`` of a regressor.
    report : dict
        How the run went, in terms of JSON.

    Raises
    ------
    UsageError
        If a part is not of its type, parts do not fit each other, or a number is not finite.
    """

    problem: str
    loss: str
    solver: str
    functions: LinearFunctions | KernelFunctions
    positive: list[float] = field(default_factory=list)
    negative: float | None = None
    classes: tuple[float, ...] = ()
    label_names: tuple[str, ...] | None = None
    C: tuple[float, ...] = ()
    selected: int = -1
    index_base: int = 1
    feature_names: FeatureNames | None = None
    multilabel: bool = False
    calibration: Calibration | None = None
    options: dict[str, Any] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=dict)
    _one_row: OneRow | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.selected, self.index_base = plain(self.selected), plain(self.index_base)
        self._check_types()
        self.positive = _numbers("positive", self.positive)
        self.classes = tuple(_numbers("classes", self.classes))
        self.C = tuple(_numbers("C", self.C))
        if self.negative is not None:
            (self.negative,) = _numbers("negative", [self.negative])
        if self.label_names is not None:
            self.label_names = _texts("label_names", self.label_names)
        if self.feature_names is not None:
            try:
                self.feature_names = FeatureNames.of(self.feature_names)
            except InputError as error:
                raise UsageError(str(error)) from None
        self.check()
        self.selected %= self.n_models

    def check(self) -> None:
        """Raise UsageError if the parts do not fit each other, or a number is not finite."""
        self._check_types()
        try:
            self.functions.check()
        except ValueError as error:
            raise UsageError(str(error)) from error
        self._check_problem()
        for name, numbers in (("positive", self.positive), ("C", self.C)):
            if len(numbers) not in (0, self.n_models):
                raise UsageError(f"{name} has {len(numbers)} entries for {self.n_models} models")
        if self.label_names is not None and len(self.label_names) != len(self.classes):
            raise UsageError(f"{len(self.label_names)} names for {len(self.classes)} classes")
        if self.feature_names is not None and len(self.feature_names) != self.n_features:
            raise UsageError(f"{len(self.feature_names)} names for {self.n_features} features")
        if self.calibration is not None and len(self.calibration.maps) != self.n_models:
            n_maps = len(self.calibration.maps)
            raise UsageError(f"the calibration has {n_maps} maps for {self.n_models} models")
        if not -self.n_models <= self.selected < self.n_models:
            raise UsageError(f"model {self.selected} is selected of {self.n_models}")
        if self.index_base not in (0, 1):
            raise UsageError(f"the index base is {self.index_base}, not 0 or 1")

    def _check_types(self) -> None:
        """Refuse a part that is not of its type."""
        known = _TYPES if self.calibration is None else _TYPES | {"calibration": (Calibration,)}
        for name, kinds in known.items():
            part = getattr(self, name)
            if not isinstance(part, kinds) or (isinstance(part, bool) and bool not in kinds):
                names = " or ".join(kind.__name__ for kind in kinds)
                raise UsageError(f"{name} of a model is {shown(part)}, not {names}")

    def _check_problem(self) -> None:
        """Refuse a loss, labels or an epsilon that do not go with the problem."""
        if self.problem not in PROBLEMS:
            known = ", ".join(PROBLEMS)
            raise UsageError(f"the problem is {self.problem[:80]!r}, this release knows {known}")
        if self.loss not in PROBLEMS[self.problem].losses:
            raise UsageError(f"the loss is {self.loss[:80]!r}, which {self.problem} does not have")
        if self.is_classifier:
            if not self.positive:
                raise UsageError(f"{self.problem} has no positive labels")
            if self.multilabel and not (
                self.label_names and self.negative is None and set(self.positive) <= set(self.classes)
            ):
                raise UsageError("a model of sets of labels has no negative label, and names for all labels")
            return
        for name, given in (
            ("positive labels", bool(self.positive)),
            ("a negative label", self.negative is not None),
            ("classes", bool(self.classes)),
            ("names of classes", self.label_names is not None),
            ("sets of labels", self.multilabel),
            ("a calibration", self.calibration is not None),
        ):
            if given:
                raise UsageError(f"{self.problem} gives scores, and the model has {name}")
        if self.epsilon is not None and _numbers("epsilon", [self.epsilon])[0] < 0:
            raise UsageError(f"epsilon is {self.epsilon!r}, less than 0")

    @property
    def kernel(self) -> str:
        """Name of the kernel: ``"linear"``, ``"rbf"`` ..."""
        return self.functions.kernel

    @property
    def linear_functions(self) -> LinearFunctions:
        """The functions of a model that has weights; AttributeError if it has support vectors instead."""
        if not isinstance(self.functions, LinearFunctions):
            raise AttributeError(
                f"a model with the kernel {self.kernel} has no weights: it has support_vectors_, dual_coef_"
            )
        return self.functions

    @property
    def weights(self) -> Float64Array:
        """Weights of the functions of a linear kernel, shape (K, d)."""
        return self.linear_functions.weights

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
        return PROBLEMS[self.problem].form.startswith("classes")

    @property
    def is_regressor(self) -> bool:
        """Whether scores are predicted values, and labels are values."""
        return PROBLEMS[self.problem].form.startswith("values")

    @property
    def gives_probabilities(self) -> bool:
        """Whether the scores of a classifier give probabilities of its classes; see `predict_proba`."""
        return gives_probabilities(self.problem, self.loss, calibrated=self.calibration is not None)

    @property
    def epsilon(self) -> float | None:
        """Errors of a regressor up to this size cost nothing; None for classifiers, or if not known."""
        epsilon: float | None = self.options.get("epsilon")
        return epsilon if self.is_regressor else None

    @property
    def is_one_vs_rest(self) -> bool:
        """Whether there is a function for each of several classes, or of the labels of sets."""
        return self.is_classifier and self.negative is None

    @property
    def active(self) -> tuple[int, ...]:
        """The functions that predict together: the selected one, or one-vs-rest all that share its C."""
        if not self.is_one_vs_rest:
            return (self.selected,)
        if not self.C:
            return tuple(range(self.n_models))
        return tuple(k for k in range(self.n_models) if self.C[k] == self.C[self.selected])

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """What a classifier predicts, in the order of the columns of `decision_function`.

        AttributeError for other models.
        """
        if not self.is_classifier:
            raise AttributeError(f"a model of the problem {self.problem!r} has no classes")
        return self._decision().classes

    @property
    def coef_(self) -> Float64Array:
        """Weights of the functions that predict: (1, d) or (K, d) for a classifier, else (d,)."""
        scorer = self.linear_functions.scorer(self._decision().active)
        weights: Float64Array = scorer.weights.T
        return weights if self.is_classifier else weights[0]

    @property
    def intercept_(self) -> Float64Array:
        """Bias of each function that predicts."""
        return self._decision().scorer.bias

    @property
    def support_vectors_(self) -> Any:
        """Support vectors of a kernel, of all functions that predict: a csr_array of shape (n_SV, d).

        AttributeError of a linear model, as for the next two.
        """
        return self._support()[0]

    @property
    def dual_coef_(self) -> Float64Array:
        """Coefficients of the support vectors in each function that predicts, shape (K, n_SV)."""
        return self._support()[1]

    @property
    def n_support_(self) -> npt.NDArray[np.int64]:
        """Number of the support vectors of each function that predicts, shape (K,)."""
        counts: npt.NDArray[np.int64] = np.count_nonzero(self._support()[1], axis=1)
        return counts

    def _support(self) -> tuple[Any, Float64Array]:
        if not isinstance(self.functions, KernelFunctions):
            raise AttributeError("a linear model has no support vectors: its weights are coef_")
        return self.functions.support(self._decision().active)

    def predict(self, data: Any, **options: Any) -> npt.NDArray[Any]:
        """Labels or values of the rows; see `ooc_svm.predict`."""
        predictions: npt.NDArray[Any] = load("ooc_svm.prediction.predict:predict")(self, data, **options)
        return predictions

    def decision_function(self, data: Any, **options: Any) -> Float64Array:
        """Scores of the rows: (n_rows, K) for several classes, else (n_rows,).

        See `ooc_svm.decision_scores`.
        """
        scores: Float64Array = load("ooc_svm.prediction.scores:score_array")(self, data, **options)
        return scores if self.is_one_vs_rest else scores[:, 0]

    def predict_proba(self, data: Any, **options: Any) -> Float64Array:
        """Probabilities of the rows' classes, shape (n_rows, n_classes), in the order of `classes_`.

        Of sets of labels those of each label. UsageError unless `gives_probabilities`; options as of
        `ooc_svm.decision_scores`.
        """
        found: Float64Array = load("ooc_svm.prediction.scores:probability_array")(self, data, **options)
        return found

    def score(self, data: Any, labels: Any = None, **options: Any) -> float:
        """Accuracy of a classifier, R squared of a regressor, of other models how well they order the rows.

        That is auc for "roc-area", kendall-tau for "ordinal", ndcg@10 for "ranking"; of sets of labels it is
        micro-f1. See `ooc_svm.evaluate`.
        """
        metric = "micro-f1" if self.multilabel else PROBLEMS[self.problem].score
        evaluate = load("ooc_svm.evaluation.evaluate:evaluate")
        return float(evaluate(self, data, metric, labels=labels, **options)[metric])

    def _decision(self) -> Decision:
        from ooc_svm.model.decision import Decision

        return Decision.of(self)

    def score_one(self, row: Any) -> Any:
        """The score of one row, in microseconds and without Numba: for a program that answers requests.

        The bits are those of `decision_scores` on the same values. The first call takes longer: it prepares
        the weights of several classes, and the names of the features. A kernel other than the linear one
        takes Numba, and microseconds for thousands of support vectors.

        Parameters
        ----------
        row : mapping, tuple, sparse matrix or array
            A mapping of columns, counted from 0, or of names of features to values; a pair of column
            numbers and values; a sparse matrix of one row; or a 1-d array of all features, whose zeros are
            left out. Columns and names that the model does not have are ignored.

        Returns
        -------
        float or dict
            Of several classes or sets of labels, the score of each label: by its name where the training data
            had names.

        Raises
        ------
        UsageError
            If the row is none of these, has a column twice, or a value that is not a finite number.
        InputError
            If the score is beyond the range of float64.
        """
        return self._for_one_row().score(row)

    def predict_one(self, row: Any) -> Any:
        """The label of one row, or its value where the model does not classify.

        Parameters
        ----------
        row : mapping, tuple, sparse matrix or array
            See `score_one`.

        Returns
        -------
        float, str or list of str
            A label is a str where the training data had names for its labels; a set of labels is a list.

        Raises
        ------
        UsageError, InputError
            See `score_one`.
        """
        return self._for_one_row().prediction(row)

    def _for_one_row(self) -> OneRow:
        ready = self._one_row
        if ready is None or ready.made_for[0] is not self.functions or ready.made_for[1] != self.selected:
            from ooc_svm.model.one_row import OneRow

            self._one_row = ready = OneRow(self)
        return ready

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_one_row": None}


_TYPES: dict[str, tuple[type, ...]] = {
    "problem": (str,),
    "loss": (str,),
    "solver": (str,),
    "functions": (LinearFunctions, KernelFunctions),
    "selected": (int,),
    "index_base": (int,),
    "multilabel": (bool,),
    "options": (dict,),
    "report": (dict,),
}


def _numbers(name: str, values: Any) -> list[float]:
    """Python floats; a label or a C is finite. Text is refused rather than parsed."""
    numbers = []
    for value in _items(name, values):
        try:
            number = float(read_number(value))
        except (TypeError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            raise UsageError(f"{name} holds {shown(value)}, which is not a finite number")
        numbers.append(number)
    return numbers


def _texts(name: str, values: Any) -> tuple[str, ...]:
    texts = _items(name, values)
    for text in texts:
        if not isinstance(text, str):
            raise UsageError(f"{name} holds {shown(text)}, which is no text")
    return tuple(map(str, texts))


def _items(name: str, values: Any) -> list[Any]:
    try:
        return read_items(values)
    except TypeError:
        raise UsageError(f"{name} of a model is {shown(values)}, not a sequence") from None

"""What the estimators have in common: options, training, and what is known of the model."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from ooc_svm.catalog import PROBLEMS
from ooc_svm.data.annotated import is_annotated
from ooc_svm.data.blocks import Float64Array
from ooc_svm.data.feature_names import FeatureNames
from ooc_svm.errors import UsageError, parameter
from ooc_svm.estimators.constructor import options_of
from ooc_svm.estimators.data import checked_rows, checked_training, is_streamed, reading
from ooc_svm.evaluation.evaluate import evaluate
from ooc_svm.model.model import Model
from ooc_svm.options import TrainOptions
from ooc_svm.parameters import is_path
from ooc_svm.prediction.scores import score_array
from ooc_svm.training.train import train

P = ParamSpec("P")
E = TypeVar("E")
N = TypeVar("N", bound=np.generic)


def all_or_nothing(fit: Callable[Concatenate[E, P], E]) -> Callable[Concatenate[E, P], E]:
    """Decorate `fit` so that one that fails leaves the estimator as it was, fitted or not."""

    @wraps(fit)
    def fitted(self: E, /, *args: P.args, **kwargs: P.kwargs) -> E:
        before = vars(self).copy()
        try:
            return fit(self, *args, **kwargs)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return fitted


class OocEstimator(BaseEstimator):
    """An estimator over `ooc_svm.train`; `problem` is what its models learn.

    `only_loss` is their loss, where the constructor takes none.
    """

    problem: ClassVar[str]
    only_loss: ClassVar[str | None] = None
    model_: Model

    @property
    def _fitted(self) -> Model:
        """The model; scikit-learn's NotFittedError, an AttributeError as well, where there is none yet."""
        check_is_fitted(self, "model_")
        return self.model_

    @property
    def coef_(self) -> Float64Array:
        """Weights of the features; see `Model.coef_`. Of two classes those of the second one."""
        own = self._in_order(self._fitted.coef_)
        return -own if self._is_reversed else own

    @property
    def intercept_(self) -> Float64Array:
        """Bias of each decision function, of two classes that of the second one."""
        own = self._in_order(self._fitted.intercept_)
        return -own if self._is_reversed else own

    @property
    def support_vectors_(self) -> Any:
        """Support vectors of a kernel: a csr_array of shape (n_SV, n_features)."""
        return self._fitted.support_vectors_

    @property
    def dual_coef_(self) -> Float64Array:
        """Coefficients of the support vectors in each decision function, signed as `decision_function`."""
        own = self._in_order(self._fitted.dual_coef_)
        return -own if self._is_reversed else own

    @property
    def n_support_(self) -> npt.NDArray[np.int64]:
        """Number of the support vectors of each decision function."""
        return self._in_order(self._fitted.n_support_)

    @property
    def _is_reversed(self) -> bool:
        """Whether the model has its two classes in the other order."""
        return False

    def _in_order(self, of_functions: npt.NDArray[N]) -> npt.NDArray[N]:
        """What the model has of each of its decision functions, in the order of those of the estimator."""
        return of_functions

    @property
    def report_(self) -> dict[str, Any]:
        """How training went; see `Model.report`."""
        return self._fitted.report

    @property
    def n_iter_(self) -> int:
        """Reads of the data."""
        return int(self._fitted.report["passes"])

    @property
    def dual_gap_(self) -> Any:
        """Largest distance of the objective from the optimum; of several classes one for each."""
        model = self._fitted
        gaps = np.array([model.report["models"][k]["gap"] for k in model.active])
        return self._in_order(gaps) if model.is_one_vs_rest else float(gaps[0])

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn has to know: sparse matrices are taken, and targets are needed."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        return tags

    def _options(self, X: Any) -> dict[str, Any]:
        """The options of training on X."""
        options = {name: getattr(self, name) for name in options_of(self.problem, self.only_loss)}
        if self.only_loss is not None:
            options["loss"] = self.only_loss
        if options.get("warm_start") is False:  # how scikit-learn says that there is none
            options["warm_start"] = None
        if is_annotated(X):  # its column of labels and its layer have been read
            options["label"] = options["layer"] = None
        return options

    def _checked(
        self,
        X: Any,
        y: Any,
        *,
        problem: str | None = None,
        y_numeric: bool = True,
        multi_output: bool = False,
    ) -> tuple[Any, Any]:
        """The rows and targets to train on, where the options and they can be used; see `checked_training`.

        The options first: `ooc_svm.train` checks them again, but only when the rows have been read.
        """
        TrainOptions(problem=problem or self.problem, **self._options(X))
        return checked_training(self, X, y, y_numeric=y_numeric, multi_output=multi_output)

    def _train_on_store(self, data: Any, **given: Any) -> None:
        """Train on a store or a path, which bring all that may be given for the rows of a matrix."""
        self._refuse_given(**given)
        with reading(data):
            model = train(data, problem=self.problem, **self._options(data))
        self._keep(model)
        self.n_features_in_ = self.model_.n_features
        if self.model_.feature_names is not None:
            self.feature_names_in_ = np.array(list(self.model_.feature_names), dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _refuse_given(self, **given: Any) -> None:
        """Refuse what a store or a path brings; raises UsageError."""
        for name, value in given.items():
            if value is not None:
                raise UsageError(f"the data bring their own {name}; leave {parameter(name)} out")

    def _train(
        self, X: Any, matrix: Any, y: Any, sample_weight: Any, *, problem: str | None = None, **others: Any
    ) -> None:
        """Train on a matrix that was checked; X is what it was before, ``others`` are for `ooc_svm.train`."""
        if sample_weight is not None:
            sample_weight = _check_sample_weight(
                sample_weight, matrix, dtype=np.float64, ensure_non_negative=True
            )
            if not sample_weight.any():  # which scikit-learn itself refuses from 1.9 on
                raise UsageError("all entries of sample_weight are zero; at least one must be positive")
        names = getattr(self, "feature_names_in_", None)
        model = train(
            matrix,
            y,
            feature_names=None if names is None else FeatureNames.of(names),
            sample_weight=sample_weight,
            problem=problem or self.problem,
            **(self._options(X) | others),
        )
        model.options["layer"] = self.layer  # where the same rows are in an AnnData store
        self._keep(model)

    def _keep(self, model: Model) -> None:
        self.model_ = model
        if not model.report["converged"]:
            worst = max(each["relative_gap"] for each in model.report["models"])
            warnings.warn(
                f"training ended with a relative gap of {worst:.1e} ({model.report['stop_reason']}), "
                f"tol={self.tol!r} was asked for",
                ConvergenceWarning,
                stacklevel=5,
            )

    def _scores(self, X: Any) -> Float64Array:
        """Scores of the rows, shape (n_samples, K)."""
        check_is_fitted(self, "model_")
        limits = {"threads": self.threads, "memory": self.memory}
        with reading(X):
            return score_array(self.model_, X if is_streamed(X) else checked_rows(self, X), **limits)

    def _evaluated(self, X: Any, metric: str | None = None, **given: Any) -> float:
        """A metric, by default that of the problem, of rows that bring what is not given."""
        check_is_fitted(self, "model_")
        metric = metric or PROBLEMS[self.problem].score
        limits = {"threads": self.threads, "memory": self.memory}
        of_path = {"label": self.label, "unlabelled": self.unlabelled} if is_path(X) else {}
        rows = X if is_streamed(X) else checked_rows(self, X)
        with reading(X):
            return evaluate(self.model_, rows, metric, **of_path, **given, **limits)[metric]

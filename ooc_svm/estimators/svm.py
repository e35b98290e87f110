"""Support vector machines as estimators of scikit-learn's kind."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets, is_multilabel
from sklearn.utils.validation import check_is_fitted

from ooc_svm.data.blocks import Float64Array
from ooc_svm.estimators.base import N, OocEstimator, all_or_nothing
from ooc_svm.estimators.constructor import takes_options
from ooc_svm.estimators.data import Given, is_streamed
from ooc_svm.estimators.label_columns import (
    LabelColumns,
    different_labels,
    of_type,
    same_order,
    sides_of,
    sorted_classes,
)
from ooc_svm.model.decision import Decision
from ooc_svm.model.probabilities import gives_probabilities


def _has_probabilities(estimator: Any) -> bool:
    """Whether the model gives them, or one that is trained with these parameters will."""
    if (model := getattr(estimator, "model_", None)) is not None:
        return bool(model.gives_probabilities)
    loss = estimator.only_loss or estimator.loss
    calibrated = estimator.calibrate is not None
    return isinstance(loss, str | None) and gives_probabilities(
        estimator.problem, loss or "", calibrated=calibrated
    )


@takes_options("svc")
class OocSVC(ClassifierMixin, OocEstimator):
    """Support vector classifier, linear or with a kernel, trained to a certified gap.

    Several classes are trained one against the rest.

    With `positive`, several labels are joined to two sides, and `classes_` has one label of each: first that
    of the others, then that of the positive ones, also where these are not in order. So positive scores stand
    for the positive side, as they do for the second class everywhere in scikit-learn. Several positive labels
    have the smallest of them, several others -1 (``"-1"`` of text). Two labels are not joined: they are
    sorted, and positive scores stand for the second, whichever is `positive`.

    The same as `ooc_svm.train` with ``problem="svc"``, bit for bit. Where rows have sets of labels, a model
    for each label.

    Parameters
    ----------
    OPTIONS

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted, but for those that `positive` joins; where y was an indicator matrix the numbers
        of its columns.
    multilabel_ : bool
        Whether rows have sets of labels.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Weights of the features, of a linear kernel.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Bias of each decision function.
    dual_gap_ : float or ndarray of shape (n_classes,)
        Largest distance of each objective from its optimum.
    FITTED
    """

    problem: ClassVar[str] = "svc"
    multilabel_: bool

    @all_or_nothing
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Train; a call that fails leaves the estimator as it was.

        Parameters
        ----------
        X : {array_like, sparse matrix} of shape (n_samples, n_features), AnnData, Store or path
            Rows in memory, or a store or text that is streamed.
        y : array_like of shape (n_samples,) or (n_samples, n_labels), optional
            Labels: numbers or text; or where rows have sets of labels an indicator matrix of 0 and 1, dense
            or sparse. A store and AnnData bring their own; `label` names the column.
        sample_weight : array_like of shape (n_samples,), optional
            Weights of the losses of the rows of a matrix.

        Returns
        -------
        self
        """
        if is_streamed(X):
            self._train_on_store(X, y=y, sample_weight=sample_weight)
            self._columns = None
            self.classes_, self.multilabel_ = sorted_classes(self.model_), self.model_.multilabel
            return self
        X, given, sample_weight, _ = Given.of(self, X, y, sample_weight).with_weights()
        self.multilabel_ = bool(is_multilabel(given))
        matrix, y = self._checked(X, given, y_numeric=False, multi_output=self.multilabel_)
        if self.multilabel_:
            self._columns = LabelColumns.of(y, self.positive)
            self._train(X, matrix, y, sample_weight, positive=self._columns.trained)
            self.classes_ = np.arange(y.shape[1])
            return self
        self._columns = None
        check_classification_targets(y)
        labels = different_labels(y)
        self._train(X, matrix, y, sample_weight)
        own = self.model_.classes_
        self.classes_ = labels if len(own) == len(labels) else of_type(own, labels.dtype)  # some are joined
        return self

    @property
    def _order(self) -> npt.NDArray[np.intp]:
        """The places of `classes_`, which scikit-learn has sorted, among the classes of the model."""
        own = self._fitted.classes_
        return np.arange(len(own)) if self.multilabel_ else same_order(own, self.classes_)

    @property
    def _is_reversed(self) -> bool:
        """Whether the model has two labels in the other order: the positive one is the smaller."""
        return not self._fitted.is_one_vs_rest and bool(self._order[0] == 1)

    def _in_order(self, of_functions: npt.NDArray[N]) -> npt.NDArray[N]:
        return of_functions[self._order] if self._fitted.is_one_vs_rest else of_functions

    def decision_function(self, X: Any) -> Float64Array:
        """Scores of the rows, of which the largest or positive ones stand for a class.

        Parameters
        ----------
        X : as for `fit`

        Returns
        -------
        ndarray of shape (n_samples,) for two classes, or (n_samples, n_classes)
            Of sets of labels those above 0 stand for the labels. A label that no row of training had has the
            score 0, and one that all had 1.
        """
        scores = self._scores(X)
        if self.model_.is_one_vs_rest:
            return self._all_columns(scores[:, self._order])
        return -scores[:, 0] if self._is_reversed else scores[:, 0]

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Labels of the rows.

        Parameters
        ----------
        X : as for `fit`

        Returns
        -------
        ndarray of shape (n_samples,), or (n_samples, n_labels) of 0 and 1 where rows have sets of labels
        """
        scores = self._scores(X)
        if self.multilabel_:
            return (self._all_columns(scores) > 0).astype(np.int64)
        return self._as_labels(Decision.of(self.model_).choices(scores))

    def _as_labels(self, places: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The labels at places among the classes of the model."""
        labels: npt.NDArray[Any] = self.classes_[np.argsort(self._order)][places]
        return labels

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Float64Array:
        """Probabilities of the classes, in the order of `classes_`; with `calibrate`, or the loss logistic.

        Of several classes, those of one against the rest divided by their sum; of sets those of each label.

        Parameters
        ----------
        X : as for `fit`

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        scores = self._scores(X)
        return self._all_columns(Decision.of(self.model_).probabilities(scores)[:, self._order])

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Float64Array:
        """Logarithms of the probabilities, see `predict_proba`; none of a model is minus infinity.

        Parameters
        ----------
        X : as for `fit`

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        scores = self._scores(X)
        shares = Decision.of(self.model_).log_probabilities(scores)[:, self._order]
        return self._all_columns(shares, absent=-np.inf, everywhere=0.0)

    def _all_columns(
        self, of_model: Float64Array, absent: float = 0.0, everywhere: float = 1.0
    ) -> Float64Array:
        """What the model says, and of labels that no row of training had, or all had, what is given."""
        return of_model if self._columns is None else self._columns.spread(of_model, absent, everywhere)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Accuracy; rows of a store or of AnnData bring their labels.

        Of sets of labels it is the share of rows of which the whole set is predicted. With `positive`, labels
        count as the side that they are on, of which `predict` gives one label.

        Parameters
        ----------
        X : as for `fit`
        y : array_like of shape (n_samples,) or (n_samples, n_labels), optional
        sample_weight : array_like of shape (n_samples,), optional

        Returns
        -------
        float
        """
        check_is_fitted(self, "model_")
        if is_streamed(X) and y is None:
            self._refuse_given(sample_weight=sample_weight)
            return self._evaluated(X, metric="subset-accuracy" if self.multilabel_ else None)
        X, y, sample_weight, _ = Given.of(self, X, y, sample_weight).to_score()
        if len(self.classes_) == 2 and np.size(self.positive):
            y = self._as_labels(sides_of(Decision.of(self.model_), y))
        return float(super().score(X, y, sample_weight))

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn has to know: indicator matrices are taken."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


@takes_options("svc", "logistic")
class OocLogisticRegression(OocSVC):
    """Logistic regression, trained to a certified gap; several classes one against the rest.

    The same as `ooc_svm.train` with ``loss="logistic"``, bit for bit.

    Parameters
    ----------
    OPTIONS

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted, but for those that `positive` joins; where y was an indicator matrix the numbers
        of its columns.
    multilabel_ : bool
        Whether rows have sets of labels.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Weights of the features, of a linear kernel.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Bias of each decision function.
    dual_gap_ : float or ndarray of shape (n_classes,)
        Largest distance of each objective from its optimum.
    FITTED
    """

    only_loss: ClassVar[str | None] = "logistic"


@takes_options("nu-svc")
class OocNuSVC(OocSVC):
    """Classifier whose share of margin errors is given, trained to a certified gap.

    The same as `ooc_svm.train` with ``problem="nu-svc"``, bit for bit.

    Parameters
    ----------
    OPTIONS

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted, but for those that `positive` joins; see `OocSVC`.
    multilabel_ : bool
        Whether rows have sets of labels.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Weights of the features, of a linear kernel.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Bias of each decision function.
    dual_gap_ : float or ndarray of shape (n_classes,)
        Largest distance of each objective from its optimum.
    FITTED
    """

    problem: ClassVar[str] = "nu-svc"


@takes_options("svr")
class OocSVR(RegressorMixin, OocEstimator):
    """Support vector regression, linear or with a kernel, trained to a certified gap.

    The same as `ooc_svm.train` with ``problem="svr"``, bit for bit.

    Parameters
    ----------
    OPTIONS

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Weights of the features, of a linear kernel.
    intercept_ : ndarray of shape (1,)
        The bias.
    dual_gap_ : float
        Largest distance of the objective from its optimum.
    FITTED
    """

    problem: ClassVar[str] = "svr"

    @all_or_nothing
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Train; a call that fails leaves the estimator as it was.

        Parameters
        ----------
        X : {array_like, sparse matrix} of shape (n_samples, n_features), AnnData, Store or path
            Rows in memory, or a store or text that is streamed.
        y : array_like of shape (n_samples,), optional
            Values. A store and AnnData bring their own; `label` names the column.
        sample_weight : array_like of shape (n_samples,), optional
            Weights of the losses of the rows of a matrix.

        Returns
        -------
        self
        """
        if is_streamed(X):
            self._train_on_store(X, y=y, sample_weight=sample_weight)
            return self
        X, y, sample_weight, _ = Given.of(self, X, y, sample_weight).with_weights()
        matrix, y = self._checked(X, y)
        self._train(X, matrix, y, sample_weight)
        return self

    def predict(self, X: Any) -> Float64Array:
        """Values of the rows.

        Parameters
        ----------
        X : as for `fit`

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self._scores(X)[:, 0]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """R squared; rows of a store or of AnnData bring their values.

        Parameters
        ----------
        X : as for `fit`
        y : array_like of shape (n_samples,), optional
        sample_weight : array_like of shape (n_samples,), optional

        Returns
        -------
        float
        """
        if is_streamed(X) and y is None:
            self._refuse_given(sample_weight=sample_weight)
            return self._evaluated(X)
        X, y, sample_weight, _ = Given.of(self, X, y, sample_weight).to_score()
        return float(super().score(X, y, sample_weight))


@takes_options("nu-svr")
class OocNuSVR(OocSVR):
    """Regression whose share of values outside of a tube is given, trained to a certified gap.

    The same as `ooc_svm.train` with ``problem="nu-svr"``, bit for bit.

    Parameters
    ----------
    OPTIONS

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Weights of the features, of a linear kernel.
    intercept_ : ndarray of shape (1,)
        The bias.
    dual_gap_ : float
        Largest distance of the objective from its optimum.
    FITTED
    """

    problem: ClassVar[str] = "nu-svr"


@takes_options("ranking")
class OocRanker(OocEstimator):
    """Linear ranking support vector machine over pairs of rows, trained to a certified gap.

    The same as `ooc_svm.train` with ``problem="ranking"``, bit for bit; of rows in memory
    without qids with ``problem="ordinal"``, where all rows are compared.

    Parameters
    ----------
    OPTIONS

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Weights of the features, of a linear kernel.
    intercept_ : ndarray of shape (1,)
        Always 0.
    dual_gap_ : float
        Largest distance of the objective from its optimum.
    FITTED
    """

    problem: ClassVar[str] = "ranking"

    @all_or_nothing
    def fit(self, X: Any, y: Any = None, qid: Any = None, sample_weight: Any = None) -> Self:
        """Train; a call that fails leaves the estimator as it was.

        Parameters
        ----------
        X : {array_like, sparse matrix} of shape (n_samples, n_features), AnnData, Store or path
            Rows in memory, or a store or text that is streamed.
        y : array_like of shape (n_samples,), optional
            Grades: higher ones are to be ranked first. A store and AnnData bring their own.
        qid : array_like of int of shape (n_samples,), optional
            Numbers of the queries, inside which rows are compared; rows of a query follow one another.
        sample_weight : array_like of shape (n_samples,), optional
            Weights of the rows of a matrix; with qid those of a query are equal.

        Returns
        -------
        self
        """
        if is_streamed(X):
            self._train_on_store(X, y=y, qid=qid, sample_weight=sample_weight)
            return self
        X, y, sample_weight, qid = Given.of(self, X, y, sample_weight, qid).with_weights().with_queries()
        problem = self.problem if qid is not None else "ordinal"
        matrix, y = self._checked(X, y, problem=problem)
        self._train(X, matrix, y, sample_weight, qid=qid, problem=problem)
        return self

    def decision_function(self, X: Any) -> Float64Array:
        """Scores of the rows: a row with a higher score is ranked before one with a lower score.

        Parameters
        ----------
        X : as for `fit`

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self._scores(X)[:, 0]

    def predict(self, X: Any) -> Float64Array:
        """Scores of the rows, as `decision_function` gives them.

        Parameters
        ----------
        X : as for `fit`

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self.decision_function(X)

    def score(self, X: Any, y: Any = None, qid: Any = None) -> float:
        """NDCG of the first ten rows of each query; rows of a store or of AnnData bring their grades.

        All queries count the same, also where rows have weights, as in all metrics of the package.

        Parameters
        ----------
        X : as for `fit`
        y : array_like of shape (n_samples,), optional
        qid : array_like of int of shape (n_samples,), optional
            Without it all rows of a matrix are one query.

        Returns
        -------
        float
        """
        check_is_fitted(self, "model_")
        X, y, _, qid = Given.of(self, X, y, None, qid).to_score().with_queries()
        return self._evaluated(X, labels=y, qid=qid)

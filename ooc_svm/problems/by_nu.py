"""Classification and regression where nu stands in place of the margin or of the tube's width.

The share of rows with a loss is nu at most, that of support vectors nu at least (Schölkopf, Smola,
Williamson, Bartlett 2000).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ooc_svm.losses.epsilon_insensitive import EpsilonInsensitive
from ooc_svm.options import TrainOptions
from ooc_svm.problems.base import LabelSet, ModelSpec
from ooc_svm.problems.classification import Classification
from ooc_svm.problems.multilabel import MultiLabel
from ooc_svm.problems.regression import Regression

if TYPE_CHECKING:
    from ooc_svm.pairs.request import Pairs


def _by_nu(models: list[ModelSpec], options: TrainOptions) -> list[ModelSpec]:
    """The models, by the nu of the options."""
    return [replace(spec, nu=options.resolved_nu, mean=True) for spec in models]


class NuMultiLabel(MultiLabel):
    """The same as `NuClassification` for each label of sets."""

    def models(
        self, labels: LabelSet, options: TrainOptions, loss: Any, row_weight: str | None, pairs: Pairs | None
    ) -> list[ModelSpec]:
        """A model for each label."""
        return _by_nu(super().models(labels, options, loss, row_weight, pairs), options)


class NuClassification(Classification):
    """The margin is found by training; C is of the mean of the losses, and only a scale."""

    of_sets = NuMultiLabel()

    def models(
        self, labels: LabelSet, options: TrainOptions, loss: Any, row_weight: str | None, pairs: Pairs | None
    ) -> list[ModelSpec]:
        """A model for each class, or for two classes."""
        return _by_nu(super().models(labels, options, loss, row_weight, pairs), options)


class NuRegression(Regression):
    """The width of the tube is found by training."""

    name = "nu-svr"

    def models(
        self, labels: LabelSet, options: TrainOptions, loss: Any, row_weight: str | None, pairs: Pairs | None
    ) -> list[ModelSpec]:
        """A model for each C."""
        models = super().models(labels, options, EpsilonInsensitive(0.0), row_weight, pairs)
        return [replace(spec, nu=options.resolved_nu) for spec in models]


NU_CLASSIFICATION, NU_REGRESSION = NuClassification(), NuRegression()

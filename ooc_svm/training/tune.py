"""One call that compares values of C by cross-validation, and trains with all rows in the same reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ooc_svm.model.model import Model
from ooc_svm.options import TrainOptions
from ooc_svm.parameters import ARRAY, CALLBACK, DATA, FEATURE_NAMES, FOLDS, GRID, RULE, TEXT, checks
from ooc_svm.training.execute import execute
from ooc_svm.training.memory_plan import compiling
from ooc_svm.training.prepare import open_prepared
from ooc_svm.training.progress import Progress
from ooc_svm.training.tuning import NO_GRID, TuneRequest


@checks(
    TrainOptions,
    data=DATA,
    labels=ARRAY,
    sample_weight=ARRAY,
    qid=ARRAY,
    feature_names=FEATURE_NAMES,
    folds=FOLDS,
    metric=TEXT,
    rule=RULE,
    grid=GRID,
    progress=CALLBACK,
)
def tune(
    data: Any,
    labels: Any = None,
    *,
    sample_weight: Any = None,
    qid: Any = None,
    feature_names: Any = None,
    folds: int | None = None,
    metric: str | None = None,
    rule: str = "best",
    grid: Mapping[str, Any] = NO_GRID,
    progress: Callable[[Progress], None] | None = None,
    **options: Any,
) -> Model:
    """Choose C by cross-validation, and train with it.

    For each value of C there is a model of all rows, and one for each fold that is trained without the rows
    of the fold and measured on them. All of them share each read of the data, and each ends with a
    certificate of its own. The scores of a fold come from the reads of training as well: nothing more is
    read.

    The folds are drawn by `seed`, and do not depend on threads or the engine. Classes have their share of
    rows in every fold, as far as that is possible; rows of equal qid stay together for "ranking", and where
    the metric compares rows of equal qid. "balanced" class weights follow from the rows that a model is
    trained on. In a metric all rows count the same, whatever their weights.

    Parameters
    ----------
    data : path, Store or matrix
        As `ooc_svm.train` takes it; text has to be converted first.
    labels, sample_weight, qid, feature_names
        As `ooc_svm.train` takes them.
    folds : int, optional
        From 2 to 100; by default 5, or none where `validation` names a store.
    metric : str, optional
        Name of a metric of `ooc_svm.evaluate` that fits the problem. By default accuracy for "svc" and
        "nu-svc", micro-f1 for sets of labels, r2 for "svr" and "nu-svr", kendall-tau for "ordinal", auc for
        "roc-area", ndcg@10 for "ranking".
    rule : {"best", "one-standard-error"}
        The C of the best mean over the folds; or the least C whose mean is at most one standard error worse.
        Of several points of a grid with that C, the best one, and of equal ones the first.
    grid : mapping of str to sequence of float, optional
        Values of numbers of the problem, the loss or the kernel that are tried as well, by name: ``nu``,
        ``p``, ``epsilon``, ``gamma``, ``degree``, ``coef0``. All combinations are compared, for each C, in
        the same reads.
    progress : callable, optional
        Called with a `Progress` after each block and each pass. Without it the hints of the report are
        warnings (`HintWarning`).
    **options
        See `ooc_svm.options.TrainOptions`. `C` holds the values to compare. `validation` is the path of a
        store to measure on in place of folds; the models of all rows are measured then.

    Returns
    -------
    Model
        The models of all rows, for each C, the chosen C selected to predict; of a grid those of the best
        point. ``report["tuning"]`` has the comparison: ``C`` (the chosen one), ``chosen`` (that and the
        numbers of a grid), ``metric``, ``lower_is_better``, ``rule``, ``folds`` (the rows of each) or
        ``store``, ``values`` (for each C, and point of a grid, ``mean``, ``standard_error``, the ``values``
        of the folds, and whether all its models ``converged``), and the certificates of the ``models`` of the
        folds.

    Raises
    ------
    UsageError
        A metric that does not fit, the same C twice, and as `ooc_svm.train`.
    InputError
        More folds than rows of a class or queries, rows that the metric has no value for, a validation store
        that does not fit, and as `ooc_svm.train`.
    DamageError, StorageError, MemoryBudgetError, Interrupted
        As `ooc_svm.train`; all models count in what memory is needed. The error of a signal has no model.
    """
    wanted, request = TrainOptions(**options), TuneRequest(folds, metric, rule, grid)
    with compiling(wanted):
        prepared = open_prepared(data, labels, sample_weight, qid, wanted, feature_names, tuning=request)
        return execute(prepared, progress)

"""One call that puts data, problem, solver and engine together."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ooc_svm.conversion.options import CONVERT_KINDS, READING
from ooc_svm.model.model import Model
from ooc_svm.options import TrainOptions
from ooc_svm.parameters import ANY_DATA, ARRAY, CALLBACK, FEATURE_NAMES, PATH, checks
from ooc_svm.training.data import refuse_columns, refuse_text_options, text_inputs
from ooc_svm.training.execute import execute
from ooc_svm.training.memory_plan import compiling
from ooc_svm.training.prepare import open_prepared
from ooc_svm.training.progress import Progress
from ooc_svm.training.text import stored_text


@checks(
    TrainOptions,
    data=ANY_DATA,
    labels=ARRAY,
    sample_weight=ARRAY,
    qid=ARRAY,
    feature_names=FEATURE_NAMES,
    progress=CALLBACK,
    store=PATH,
    **{name: CONVERT_KINDS[name] for name in READING if name != "labels"},
)
def train(
    data: Any,
    labels: Any = None,
    *,
    sample_weight: Any = None,
    qid: Any = None,
    feature_names: Any = None,
    store: str | os.PathLike[str] | None = None,
    index_base: int | None = None,
    features: int | None = None,
    dtype: str | None = None,
    bad_lines: str | None = None,
    max_bad_lines: int | None = None,
    progress: Callable[[Progress], None] | None = None,
    **options: Any,
) -> Model:
    """Train a support vector machine, linear or with a kernel, to a certified gap.

    What is minimised is one of ::

        P(w, b) = 1/2 |w|^2 + C sum_i omega_i loss(w.x_i + b)
        P(w)    = 1/2 |w|^2 + C/m sum_ij omega_ij max(0, 1 - w.(x_i - x_j))

    The loss is ``max(0, 1 - y_i s)`` or its square for classes, ``max(0, |z_i - s| - epsilon)`` or its square
    for values. ``omega_i`` is the weight of the row times that of its class; b is 0 (``bias="none"``), the
    weight of a constant feature, ``|w|^2 + b^2`` being penalised (``bias="penalized"``), or free of penalty
    (``bias="free"``). The second form is that of "ordinal", "roc-area" and "ranking": the sum is over the
    pairs of rows of which i has the higher label, for "ranking" inside groups of equal qid; m is the sum of
    their weights ``omega_ij``, the product of those of the rows or the weight of the group.

    With a kernel, ``w.x`` stands for the product of w with the row's image, and models have support vectors
    in place of weights.

    Parameters
    ----------
    data : path, paths, Store or matrix
        A store made by `ooc_svm.convert`, any AnnData Zarr file with a CSR ``X``, SVMlight text as
        `ooc_svm.convert` takes it (also several paths), or rows in memory: a sparse matrix or array of SciPy
        in any format, or what NumPy makes a 2-d array of real numbers of. A path is a store if it is a folder
        or ends in ``.zarr``, text otherwise.
    labels : array_like of shape (n_rows,) or (n_rows, n_labels), or {"numbers", "text", "sets"}, optional
        With a matrix its labels, numbers or text for the names of classes; or an indicator matrix of 0 and 1,
        dense or sparse, where rows have sets of labels: those are called by the numbers of their columns,
        from 0. Stores bring their own. With text, as `ooc_svm.convert` takes it: whether the labels in it
        are numbers, names or sets.
    sample_weight : array_like of shape (n_rows,), optional
        With a matrix only: weights of the rows' losses, not negative.
    qid : array_like of int of shape (n_rows,), optional
        With a matrix only: numbers of the groups of "ranking"; rows of a group follow one another.
    feature_names : path or sequence of str, optional
        Names of the features, for a matrix, text, or a store that has none: a file of UTF-8 text with a name
        on each line, or the names, all different. The model keeps the names, also those that the store has,
        and finds the columns of other data by them.
    store : path, optional
        With text only: where the store is kept that is made of it. By default it lies in a private folder in
        ``TMPDIR`` (``/var/tmp`` if that is not set) and is removed at the end, or is not written where all
        rows are kept in memory.
    index_base : {0, 1}, optional
        With text only, as the next four: as `ooc_svm.convert` takes it.
    features : int, optional
    dtype : {"float32", "float64"}, optional
    bad_lines : {"stop", "skip"}, optional
    max_bad_lines : int, optional
    progress : callable, optional
        Called with a `Progress` after each block and each pass, and after each part of text that is read.
        Without it the hints of the report are warnings (`HintWarning`).
    **options
        See `ooc_svm.options.TrainOptions`.

    Returns
    -------
    Model
        With the certificate of each decision function in ``report``, and in ``report["conversion_seconds"]``
        the time in which text was read, and written; ``report["seconds"]`` is without it.

    Raises
    ------
    UsageError
        Options that are not possible or contradict the data.
    InputError
        Labels that are no classes, fewer than two classes, negative weights, values that overflow.
    DamageError, StorageError
        The store or a checkpoint is damaged, reading or writing failed.
    MemoryBudgetError
        What is needed does not fit ``memory``; nothing was run.
    Interrupted
        By a signal, after a checkpoint if one was asked for.
    """
    wanted = TrainOptions(**options)
    given = (index_base, features, dtype, labels, bad_lines, max_bad_lines)
    reading = dict(zip(READING, given, strict=True))
    inputs = text_inputs(data)
    if inputs is None:
        kind = labels if isinstance(labels, str) else None
        refuse_text_options({"store": store, **reading, "labels": kind})
        with compiling(wanted):
            return execute(open_prepared(data, labels, sample_weight, qid, wanted, feature_names), progress)
    refuse_columns("text brings its labels and qids", None, sample_weight, qid)
    reading["feature_names"] = feature_names
    with compiling(wanted), stored_text(inputs, store, reading, wanted, progress) as stored:
        made = open_prepared(stored.store, None, None, None, wanted, conversion_seconds=stored.seconds)
        return execute(made, progress)

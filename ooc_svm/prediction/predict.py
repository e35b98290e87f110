"""Predictions for any data: labels or values, as an array or as lines of text."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, BinaryIO, overload

import numpy as np
import numpy.typing as npt

from ooc_svm.errors import UsageError, parameter
from ooc_svm.model.decision import require_probabilities
from ooc_svm.model.file import ModelOrPath, check_output, opened_model
from ooc_svm.parameters import FLAG, OUTPUT, TEXT, MissingFeatures, checks
from ooc_svm.prediction.rows import Ignored
from ooc_svm.prediction.scores import SCORING, ScoreStream, decision_scores
from ooc_svm.prediction.tables import Details, PredictionWriter, writer_for
from ooc_svm.prediction.to_obs import write_to_obs
from ooc_svm.system.files import atomic_write, check_writable


@dataclass(frozen=True, slots=True)
class Predicted:
    """Result of `predict` with an output: rows written, and what the model has no columns for.

    ``missing`` is the number of features that the data lack, ``extra`` that of columns that are no features,
    where the data have names or state their number of columns.
    """

    rows: int
    ignored: Ignored
    missing: int = 0
    extra: int = 0


@overload
def predict(
    model: ModelOrPath,
    data: Any,
    *,
    output: None = None,
    scores: bool = False,
    probabilities: bool = False,
    threads: int | None = None,
    memory: str | int | None = None,
    index_base: int | None = None,
    label: str | None = None,
    layer: str | None = None,
    C: float | None = None,
    feature_names: Any = None,
    missing_features: MissingFeatures = "error",
    cache: str | os.PathLike[str] | None = None,
    cache_size: str | int | None = None,
) -> npt.NDArray[Any]: ...


@overload
def predict(
    model: ModelOrPath,
    data: Any,
    *,
    output: str | os.PathLike[str] | BinaryIO,
    scores: bool = False,
    probabilities: bool = False,
    threads: int | None = None,
    memory: str | int | None = None,
    index_base: int | None = None,
    label: str | None = None,
    layer: str | None = None,
    C: float | None = None,
    feature_names: Any = None,
    missing_features: MissingFeatures = "error",
    cache: str | os.PathLike[str] | None = None,
    cache_size: str | int | None = None,
) -> Predicted: ...


@overload
def predict(
    model: ModelOrPath,
    data: Any,
    *,
    to_obs: str,
    overwrite: bool = False,
    scores: bool = False,
    probabilities: bool = False,
    threads: int | None = None,
    memory: str | int | None = None,
    label: str | None = None,
    layer: str | None = None,
    C: float | None = None,
) -> Predicted: ...


@checks(**SCORING, output=OUTPUT, scores=FLAG, probabilities=FLAG, to_obs=TEXT, overwrite=FLAG)
def predict(
    model: ModelOrPath,
    data: Any,
    *,
    output: str | os.PathLike[str] | BinaryIO | None = None,
    scores: bool = False,
    probabilities: bool = False,
    to_obs: str | None = None,
    overwrite: bool = False,
    threads: int | None = None,
    memory: str | int | None = None,
    index_base: int | None = None,
    label: str | None = None,
    layer: str | None = None,
    C: float | None = None,
    feature_names: Any = None,
    missing_features: MissingFeatures = "error",
    cache: str | os.PathLike[str] | None = None,
    cache_size: str | int | None = None,
) -> npt.NDArray[Any] | Predicted:
    """Predict the label of every row, or of a regressor the value.

    A score above 0 stands for the positive label, any other score for the negative one. A one-vs-rest model
    predicts the class with the largest score, the first of equals; a model of sets of labels all labels with
    a score above 0.

    Parameters
    ----------
    model, data, threads, memory, index_base, label, layer, C, feature_names, missing_features
        See `ooc_svm.decision_scores`.
    cache, cache_size
        See `ooc_svm.decision_scores`.
    output : path or binary stream, optional
        One line is written for each row: the label as in text (``1``, ``-1``), the name of the
        class where the training data had names, or the value in the fewest digits that are read back as the
        same float64. Of sets of labels, the line has the labels with commas between them, and is empty where
        a row has none. A path that ends in ``.csv``, ``.tsv`` or ``.parquet`` (which needs pyarrow) becomes a
        table with named columns, in which names of classes are quoted where they need it. A file appears
        whole or not at all.
    scores : bool
        Whether the scores follow on the line, in columns separated by tabs, after a line with the names of
        the columns. Only with `output` or `to_obs`; `decision_scores` gives them as arrays.
    probabilities : bool
        Likewise the probabilities of the labels, behind the scores; `Model.predict_proba` gives them as an
        array. Of calibrated models, and of those with the loss logistic.
    to_obs : str, optional
        Name of a column of ``obs`` that the predictions become, in the AnnData store that they are for,
        instead of an output; scores become ``<to_obs>_score``, of several classes
        ``<to_obs>_score_<class>``, and probabilities ``<to_obs>_probability_<class>``. The columns appear
        whole or not at all. A store with a manifest takes none.
    overwrite : bool
        With `to_obs`: replace columns of these names.

    Returns
    -------
    ndarray of float64 or str, shape (n_rows,)
        Without `output`: labels, names of classes, or values. Of sets of labels int8 of shape (n_rows, K): 1
        where a row has the label of the column, see `Model.classes_`.
    Predicted
        With `output` or `to_obs`.

    Raises
    ------
    UsageError
        Also if `output` is part of the data, or a model, or lies in a Zarr store, the data take no column
        `to_obs`, or pyarrow is missing.
    StorageError
        Also if `output` cannot be written.
    """
    if to_obs is not None and output is not None:
        raise UsageError(f"{parameter('to_obs')} and {parameter('output')} are two places: choose one")
    if overwrite and to_obs is None:
        raise UsageError(f"{parameter('overwrite', True)} is for {parameter('to_obs')}; leave it out")
    for name, wanted, other in (
        ("scores", scores, "decision_scores gives them as arrays"),
        ("probabilities", probabilities, "predict_proba of the model gives them as an array"),
    ):
        if wanted and output is None and to_obs is None:
            raise UsageError(
                f"{parameter(name, True)} needs {parameter('output')}, to which they are written; {other}"
            )
    model = opened_model(model)
    if probabilities:
        require_probabilities(model)
    stream = decision_scores(
        model,
        data,
        threads=threads,
        memory=memory,
        index_base=index_base,
        label=label,
        layer=layer,
        C=C,
        feature_names=feature_names,
        missing_features=missing_features,
        cache=cache,
        cache_size=cache_size,
    )
    with stream:
        details = Details(stream.decision, scores, probabilities)
        if to_obs is not None:
            named = model.label_names is not None
            n_rows = write_to_obs(stream, to_obs, details, named=named, overwrite=overwrite)
            stream.tell_ignored()
            return _predicted(stream, n_rows)
        if output is None:
            parts = [stream.decision.predictions(block.scores) for block in stream]
            stream.tell_ignored()
            none = np.empty((0, stream.decision.scorer.n_scores))
            return np.concatenate(parts) if parts else stream.decision.predictions(none)
        writer = writer_for(details, output)
        if not isinstance(output, str | os.PathLike):
            found = _write(stream, writer, output)
            stream.tell_ignored()
            return found
        if stream.rows.holds(output):
            raise UsageError(f"{os.fspath(output)}: is part of the data; choose another name to write to")
        check_output(output)
        check_writable(output)  # an object is written when all is predicted
        written: list[Predicted] = []
        atomic_write(output, lambda file: written.append(_write(stream, writer, file)))
        stream.tell_ignored()
        return written[0]


def _write(stream: ScoreStream, writer: PredictionWriter, file: BinaryIO) -> Predicted:
    n_rows = 0
    try:
        writer.begin(file)
        for block in stream:
            writer.add(block.scores)
            n_rows += len(block.scores)
        writer.end()
    except BaseException:
        writer.abandon()
        raise
    return _predicted(stream, n_rows)


def _predicted(stream: ScoreStream, n_rows: int) -> Predicted:
    """What is told of a stream that was written to its end."""
    return Predicted(n_rows, stream.ignored, stream.columns.missing, stream.columns.extra)

"""Predictions as columns of ``obs`` of the AnnData store that they are for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ooc_svm.errors import UsageError, parameter, shown
from ooc_svm.model.decision import LABEL_SETS
from ooc_svm.prediction.scores import ScoreStream
from ooc_svm.prediction.tables import Details
from ooc_svm.store.obs_columns import MAX_NAME_BYTES, ObsColumns
from ooc_svm.system.signals import entered


def write_to_obs(stream: ScoreStream, column: str, details: Details, *, named: bool, overwrite: bool) -> int:
    """Write predictions to a column, and details to columns named after it; returns the number of rows.

    Names of classes become categories, labels and values numbers. Nothing appears unless all is written.
    """
    folder, n_rows = stream.rows.anndata_folder, stream.rows.n_rows
    if folder is None or n_rows is None:
        raise UsageError(
            f"{parameter('to_obs')} writes to the obs of an AnnData store, and {stream.rows.name} is none; "
            f"write to a file ({parameter('output')})"
        )
    if not isinstance(folder, Path):
        raise UsageError(
            f"{parameter('to_obs')} writes to the obs of a store on a local disk, and {folder} is none; "
            f"write to a file ({parameter('output')})"
        )
    decision = stream.decision
    if decision.predicted == LABEL_SETS:
        raise UsageError(
            f"{parameter('to_obs')} writes one label a row, and the model predicts sets of labels; write to "
            f"a file ({parameter('output')})"
        )
    categories = decision.texts if named and len(decision.labels) else None
    columns: dict[str, Sequence[str] | None] = {column: categories}
    kinds = f"{column}_score", f"{column}_probability"
    names = details.names(kinds[0], "_", kinds[1])
    _check_classes(details, decision.texts)
    columns |= dict.fromkeys(names)
    make = partial(ObsColumns, folder, n_rows, columns, overwrite=overwrite, kinds=kinds)
    with entered(make) as writer:
        for block in stream:
            predicted = decision.predictions if categories is None else decision.choices
            entries = {column: predicted(block.scores)}
            if details:
                entries |= dict(zip(names, details.of(block.scores).T, strict=True))
            writer.append(entries)
        writer.commit()
    return n_rows


def _check_classes(details: Details, texts: Sequence[str]) -> None:
    """Refuse classes that no column of details can be named after, whatever the name of the first column."""
    one_each = len(details.names()) >= len(texts) > 0  # not the single score of two classes
    for text in texts if one_each else ():
        if "/" in text or len(text.encode()) >= MAX_NAME_BYTES:
            what = "has a / in its name" if "/" in text else "has a name that is too long"
            raise UsageError(
                f"the class {shown(text)} {what}, which no column of obs can have; write the scores and "
                f"probabilities to a table ({parameter('output')} with the ending .csv)"
            )

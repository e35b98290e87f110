"""`store_info`: what is known of a store."""

from __future__ import annotations

import os
from typing import Any

from ooc_svm.data.classes import label_name
from ooc_svm.data.label_sets import LabelSets
from ooc_svm.parameters import checks
from ooc_svm.store.open import STORE, opened
from ooc_svm.store.reader import Store


@checks(store=STORE)
def store_info(store: Store | str | os.PathLike[str]) -> dict[str, Any]:
    """What is known of a store, ready for JSON.

    Parameters
    ----------
    store : Store or path

    Returns
    -------
    dict
        ``n_rows``, ``n_features``, ``n_nonzeros``; ``labels`` (rows of each label, or ``min``, ``max``,
        ``mean`` where there are more than 1000 labels); ``label_sets`` (number of different sets of labels,
        if rows have sets); ``unlabelled`` (rows without a label, if any);
        ``qid_groups``; ``bytes`` (of all chunk files); ``chunks`` (number of them); ``format_version`` (None
        without a manifest).

    Raises
    ------
    UsageError, InputError, DamageError, StorageError
        See `ooc_svm.open_store`.
    """
    store = opened(store, "keep")
    summary = store.labels
    labels: dict[str, Any]
    if store.label_sets:
        sets = LabelSets.of(store.label_names or (), str(store.path))
        rows = sets.rows(summary.counts or {}).tolist()
        labels = dict(zip(sets.labels, rows, strict=True))
    elif summary.counts is None:
        labels = {"min": summary.minimum, "max": summary.maximum, "mean": summary.mean}
    else:
        names = store.label_names
        labels = {label_name(label, names): count for label, count in summary.counts.items()}
    return {
        "n_rows": store.n_rows,
        "n_features": store.n_features,
        "n_nonzeros": store.n_nonzeros,
        "labels": labels,
        **({"label_sets": len(store.label_names or ())} if store.label_sets else {}),
        **({"unlabelled": store.n_unlabelled} if store.n_unlabelled else {}),
        "qid_groups": store.qid_groups,
        "bytes": store.n_bytes,
        "chunks": store.n_chunks,
        "format_version": store.format_version,
    }

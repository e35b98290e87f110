"""What is known of a store, as ``info`` prints it."""

from __future__ import annotations

from typing import Any

from ooc_svm.store.reader import Store


def _label_text(label: float, names: tuple[str, ...] | None) -> str:
    if names is not None:
        return names[int(label)]
    return str(int(label)) if label.is_integer() and abs(label) < 2**53 else repr(label)


def store_info(store: Store) -> dict[str, Any]:
    """What is known of a store, ready for JSON.

    Parameters
    ----------
    store : Store

    Returns
    -------
    dict
        ``n_rows``, ``n_features``, ``n_nonzeros``; ``labels`` (rows of each label, or ``min``, ``max``,
        ``mean`` where there are more than 1000 labels); ``qid_groups``; ``bytes`` (of all chunk files);
        ``chunks`` (number of them); ``format_version`` (None without a manifest).
    """
    summary = store.labels
    labels: dict[str, Any]
    if summary.counts is None:
        labels = {"min": summary.minimum, "max": summary.maximum, "mean": summary.mean}
    else:
        labels = {_label_text(label, store.label_names): count for label, count in summary.counts.items()}
    return {
        "n_rows": store.n_rows,
        "n_features": store.n_features,
        "n_nonzeros": store.n_nonzeros,
        "labels": labels,
        "qid_groups": store.qid_groups,
        "bytes": store.n_bytes,
        "chunks": store.n_chunks,
        "format_version": store.format_version,
    }

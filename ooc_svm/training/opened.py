"""How a store was opened: its column of labels and its layer, to open it or another one the same way."""

from __future__ import annotations

from typing import Any

from ooc_svm.data.source import Source
from ooc_svm.options import TrainOptions
from ooc_svm.store import Store
from ooc_svm.store.labelled import LabelledStore


def opening_options(source: Source, options: TrainOptions) -> dict[str, Any]:
    """Arguments of `ooc_svm.open_store` that open other data as what is trained on was opened.

    ``options`` tell them of data that are not an AnnData store.
    """
    unlabelled = "skip" if isinstance(source, LabelledStore) else options.unlabelled
    label, layer = options.label, options.layer
    if isinstance(source, Store) and source.format_version is None:
        label, layer = _label_of(source), layer_of(source)
    return {"label": label, "layer": layer, "unlabelled": unlabelled}


def _label_of(store: Store) -> str | None:
    array = getattr(store.parts.label, "array", None)
    location: str | None = getattr(array, "location", None)
    start = f"{store.parts.storage.location}/obs/"
    if location is None or not location.startswith(start):
        return None
    # Of categories the codes lie one level deeper.
    return location.removeprefix(start).partition("/")[0]


def layer_of(store: Store) -> str | None:
    """The layer of an AnnData store that its rows are; None for its matrix X."""
    info, _ = store.parts.chunk_sizes["X/data"]
    folder, _, rest = info.name.partition("/")
    return rest.partition("/")[0] if folder == "layers" else None

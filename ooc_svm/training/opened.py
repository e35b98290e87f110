"""How a store was opened: its column of labels and its layer, to open it or another one the same way."""

from __future__ import annotations

import os
from typing import Any

from ooc_svm.data.annotated import DEFAULT_LABEL
from ooc_svm.data.source import Source
from ooc_svm.errors import UsageError, parameter, shown
from ooc_svm.options import TrainOptions
from ooc_svm.store import Store, open_store
from ooc_svm.store.labelled import LabelledStore
from ooc_svm.store.layout import X
from ooc_svm.system.malloc import share_freed_memory


def opened(data: str | os.PathLike[str] | Store, options: TrainOptions) -> Store:
    """The store to train on; UsageError where an open one has another column or layer than the options."""
    share_freed_memory()
    if not isinstance(data, Store):
        label, layer, unlabelled = options.label, options.layer, options.unlabelled
        return open_store(data, label=label, layer=layer, unlabelled=unlabelled)
    for name, present in (("label", data.label or DEFAULT_LABEL), ("layer", data.layer or X)):
        if (wanted := getattr(options, name)) not in (None, present):
            raise UsageError(
                f"{parameter(name)} is {shown(wanted)}, but the store was opened with {shown(present)}; open "
                "it with the one that is wanted (open_store)"
            )
    return data


def opening_options(source: Source, options: TrainOptions) -> dict[str, Any]:
    """Arguments of `ooc_svm.open_store` that open other data as what is trained on was opened.

    ``options`` tell them of data that are not an AnnData store.
    """
    unlabelled = "skip" if isinstance(source, LabelledStore) else options.unlabelled
    label, layer = options.label, options.layer
    if isinstance(source, Store) and source.format_version is None:
        label, layer = source.label, source.layer
    return {"label": label, "layer": layer, "unlabelled": unlabelled}

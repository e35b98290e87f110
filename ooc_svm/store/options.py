"""How a store is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ooc_svm.data.limits import LARGEST_FEATURE_COUNT
from ooc_svm.parameters import (
    DTYPE,
    FEATURE_NAMES,
    FLAG,
    INDEX_BASE,
    JSON,
    THREADS,
    Kind,
    at_least,
    checked_fields,
)
from ooc_svm.store import layout

N_FEATURES = at_least(0, LARGEST_FEATURE_COUNT)
_SIZE = at_least(1, 2**31 - 1)


def _option(kind: Kind, default: Any) -> Any:
    return field(default=default, metadata={"kind": kind})


@checked_fields
@dataclass(frozen=True)
class StoreOptions:
    """How a store is written; raises UsageError for a value that is not possible.

    Where every value is 1 no values are kept, whatever `dtype`. `index_base` is kept as information: column
    ids here count from 0. `n_features` is by default the number of `feature_names` (a sequence of str, or a
    file with one a line), without these one more than the largest column id. `overwrite` allows to replace a
    store of ours. `threads` is the number of chunks compressed at once. A store that is not `durable` may be
    incomplete after a crash of the machine: it is for the process that writes it. `provenance` is anything
    that JSON can hold: sources, options, versions. With `named_labels` the labels are places in names that
    `commit` is given, with `label_sets` in names of sets of labels (`ooc_svm.data.label_sets`). For
    `block_chunks` and `block_rows` see `ooc_svm.store.blocks.BlockCutter`.
    """

    dtype: str = _option(DTYPE, "float32")
    index_base: int = _option(INDEX_BASE, 1)
    n_features: int | None = _option(N_FEATURES, None)
    feature_names: Any = _option(FEATURE_NAMES, None)  # noqa: RUF009
    named_labels: bool = _option(FLAG, False)
    label_sets: bool = _option(FLAG, False)
    overwrite: bool = _option(FLAG, False)
    threads: int = _option(THREADS, 1)
    durable: bool = _option(FLAG, True)
    provenance: dict[str, Any] = field(default_factory=dict, metadata={"kind": JSON})
    chunk_elements: int = _option(_SIZE, layout.CHUNK_ELEMENTS)
    chunk_rows: int = _option(_SIZE, layout.CHUNK_ROWS)
    block_chunks: int = _option(_SIZE, layout.BLOCK_CHUNKS)
    block_rows: int = _option(_SIZE, layout.BLOCK_ROWS)

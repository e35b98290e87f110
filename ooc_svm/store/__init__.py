"""CSR rows on disk: an AnnData-readable Zarr store with a manifest, read block by block.

The names are loaded on first use, so that importing the package does not import Zarr or Numba.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ooc_svm.store.blocks import BlockBuffers, BlockSpan
    from ooc_svm.store.info import store_info
    from ooc_svm.store.label_summary import LabelSummary
    from ooc_svm.store.object_building import sweep_store
    from ooc_svm.store.open import open_store
    from ooc_svm.store.reader import Store
    from ooc_svm.store.verify import VerifyReport, verify_store
    from ooc_svm.store.writer import StoreWriter

_HOMES = {
    "BlockBuffers": "blocks",
    "BlockSpan": "blocks",
    "LabelSummary": "label_summary",
    "Store": "reader",
    "StoreWriter": "writer",
    "VerifyReport": "verify",
    "open_store": "open",
    "store_info": "info",
    "sweep_store": "object_building",
    "verify_store": "verify",
}

__all__ = [
    "BlockBuffers",
    "BlockSpan",
    "LabelSummary",
    "Store",
    "StoreWriter",
    "VerifyReport",
    "open_store",
    "store_info",
    "sweep_store",
    "verify_store",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

"""Out-of-core streaming trainer for support vector machines over huge sparse files.

The names are loaded on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ooc_svm.conversion import ConvertReport, convert, convert_matrix
    from ooc_svm.errors import (
        DamageError,
        InputError,
        Interrupted,
        MemoryBudgetError,
        OocSvmError,
        StorageError,
        UsageError,
    )
    from ooc_svm.evaluation import evaluate
    from ooc_svm.exchange import export_model
    from ooc_svm.history import Progress
    from ooc_svm.model import Model, load_model, save_model
    from ooc_svm.options import TrainOptions
    from ooc_svm.planning import Plan, plan
    from ooc_svm.prediction import decision_scores, predict
    from ooc_svm.store import Store, StoreWriter, open_store, store_info, verify_store
    from ooc_svm.training import train

_HOMES = {
    "ConvertReport": "conversion",
    "DamageError": "errors",
    "InputError": "errors",
    "Interrupted": "errors",
    "MemoryBudgetError": "errors",
    "Model": "model",
    "OocSvmError": "errors",
    "Plan": "planning",
    "Progress": "history",
    "StorageError": "errors",
    "Store": "store",
    "StoreWriter": "store",
    "TrainOptions": "options",
    "UsageError": "errors",
    "convert": "conversion",
    "convert_matrix": "conversion",
    "decision_scores": "prediction",
    "evaluate": "evaluation",
    "export_model": "exchange",
    "load_model": "model",
    "open_store": "store",
    "plan": "planning",
    "predict": "prediction",
    "save_model": "model",
    "store_info": "store",
    "train": "training",
    "verify_store": "store",
}

__all__ = [
    "ConvertReport",
    "DamageError",
    "InputError",
    "Interrupted",
    "MemoryBudgetError",
    "Model",
    "OocSvmError",
    "Plan",
    "Progress",
    "StorageError",
    "Store",
    "StoreWriter",
    "TrainOptions",
    "UsageError",
    "convert",
    "convert_matrix",
    "decision_scores",
    "evaluate",
    "export_model",
    "load_model",
    "open_store",
    "plan",
    "predict",
    "save_model",
    "store_info",
    "train",
    "verify_store",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return metadata.version("ooc-svm")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__

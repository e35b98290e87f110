"""Out-of-core streaming trainer for support vector machines over huge sparse files.

The names are loaded on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ooc_svm.conversion.convert import ConvertReport, convert, convert_matrix
    from ooc_svm.errors import (
        DamageError,
        InputError,
        Interrupted,
        MemoryBudgetError,
        OocSvmError,
        StorageError,
        UsageError,
    )
    from ooc_svm.evaluation.evaluate import evaluate
    from ooc_svm.model.export import export_model
    from ooc_svm.model.file import load_model, save_model
    from ooc_svm.model.model import Model
    from ooc_svm.options import TrainOptions
    from ooc_svm.prediction.predict import predict
    from ooc_svm.prediction.scores import decision_scores
    from ooc_svm.store import Store, StoreWriter, open_store, store_info, verify_store
    from ooc_svm.training.plan import Plan, plan
    from ooc_svm.training.progress import Progress
    from ooc_svm.training.train import train

_HOMES = {
    "ConvertReport": "conversion.convert",
    "DamageError": "errors",
    "InputError": "errors",
    "Interrupted": "errors",
    "MemoryBudgetError": "errors",
    "Model": "model.model",
    "OocSvmError": "errors",
    "Plan": "training.plan",
    "Progress": "training.progress",
    "StorageError": "errors",
    "Store": "store",
    "StoreWriter": "store",
    "TrainOptions": "options",
    "UsageError": "errors",
    "convert": "conversion.convert",
    "convert_matrix": "conversion.convert",
    "decision_scores": "prediction.scores",
    "evaluate": "evaluation.evaluate",
    "export_model": "model.export",
    "load_model": "model.file",
    "open_store": "store",
    "plan": "training.plan",
    "predict": "prediction.predict",
    "save_model": "model.file",
    "store_info": "store",
    "train": "training.train",
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

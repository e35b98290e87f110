"""Out-of-core streaming trainer for support vector machines over huge sparse files.

The names are loaded on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

# As of `typing`, which takes longer to import than all of this.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ooc_svm.conversion.convert import ConvertReport, convert, convert_matrix
    from ooc_svm.errors import (
        DamageError,
        HintWarning,
        InputError,
        InternalError,
        Interrupted,
        MemoryBudgetError,
        OocSvmError,
        StorageError,
        UsageError,
    )
    from ooc_svm.estimators.svm import OocLogisticRegression as OocLogisticRegression
    from ooc_svm.estimators.svm import OocNuSVC as OocNuSVC
    from ooc_svm.estimators.svm import OocNuSVR as OocNuSVR
    from ooc_svm.estimators.svm import OocRanker as OocRanker
    from ooc_svm.estimators.svm import OocSVC as OocSVC
    from ooc_svm.estimators.svm import OocSVR as OocSVR
    from ooc_svm.evaluation.evaluate import evaluate, evaluation_report
    from ooc_svm.evaluation.report import EvaluationReport
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
    from ooc_svm.training.tune import tune

_HOMES = {
    "ConvertReport": "conversion.convert",
    "DamageError": "errors",
    "EvaluationReport": "evaluation.report",
    "HintWarning": "errors",
    "InputError": "errors",
    "InternalError": "errors",
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
    "evaluation_report": "evaluation.evaluate",
    "export_model": "model.export",
    "load_model": "model.file",
    "open_store": "store",
    "plan": "training.plan",
    "predict": "prediction.predict",
    "save_model": "model.file",
    "store_info": "store",
    "train": "training.train",
    "tune": "training.tune",
    "verify_store": "store",
}

__all__ = [
    "ConvertReport",
    "DamageError",
    "EvaluationReport",
    "HintWarning",
    "InputError",
    "InternalError",
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
    "evaluation_report",
    "export_model",
    "load_model",
    "open_store",
    "plan",
    "predict",
    "save_model",
    "store_info",
    "train",
    "tune",
    "verify_store",
]


# They need scikit-learn, without which `from ooc_svm import *` has to work.
_ESTIMATORS = ("OocLogisticRegression", "OocNuSVC", "OocNuSVR", "OocRanker", "OocSVC", "OocSVR")


def __getattr__(name: str) -> Any:
    if name in _ESTIMATORS:
        return _estimator(name)
    if name == "__version__":
        from importlib import metadata

        return metadata.version("ooc-svm")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def _estimator(name: str) -> Any:
    """A class of estimators; ImportError in one sentence without scikit-learn."""
    from importlib import import_module

    try:
        return getattr(import_module(f"{__name__}.estimators.svm"), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "sklearn":
            raise
        advice = "pip install 'ooc-svm[sklearn]'"
        raise ImportError(f"ooc_svm.{name} needs scikit-learn; install it: {advice}") from None


def __dir__() -> list[str]:
    return [*__all__, *_ESTIMATORS]

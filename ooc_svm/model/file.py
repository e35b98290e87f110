"""The file of a model: a JSON header and the arrays of its decision functions."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from ooc_svm.catalog import KERNELS, LINEAR
from ooc_svm.data.feature_names import FeatureNames
from ooc_svm.errors import DamageError, MemoryBudgetError, UsageError, parameter
from ooc_svm.model.calibration import Calibration
from ooc_svm.model.kernel import KernelFunctions
from ooc_svm.model.linear import LinearFunctions
from ooc_svm.model.model import Model
from ooc_svm.parameters import FLAG, PATH, Kind, checks
from ooc_svm.system.arrayfile import FileKind, has_magic, read_arrays, write_arrays
from ooc_svm.system.files import IrregularFileError, atomic_write, exists
from ooc_svm.system.recognition import MODEL as MODEL_MAGIC
from ooc_svm.system.recognition import check_outside_stores

# A model is written in the oldest version that can hold it: version 2 is of models that predict sets of
# labels, which an older program would take for classes, version 3 of calibrated ones, and version 4 of those
# that have temperatures.
MODEL_FILE = FileKind(magic=MODEL_MAGIC, name="model", version=4)
_PLAIN_FILE, _LABEL_SETS_FILE, _CALIBRATED_FILE = (
    replace(MODEL_FILE, version=version) for version in (1, 2, 3)
)

# The names of the features: their text in UTF-8, and the bytes of each name.
_NAMES_TEXT, _NAMES_LENGTHS = "feature_names", "feature_name_lengths"


# Names in the header, and the types that JSON gives their values.
_CONTENT_TYPES: dict[str, tuple[type, ...]] = {
    "problem": (str,),
    "loss": (str,),
    "solver": (str,),
    "kernel": (str,),
    "positive": (list,),
    "negative": (float, int, type(None)),
    "classes": (list,),
    "label_names": (list, type(None)),
    "C": (list,),
    "selected": (int,),
    "index_base": (int,),
    "options": (dict,),
    "report": (dict,),
    "n_models": (int,),
    "n_features": (int,),
}


def json_ready(value: Any) -> Any:
    """`value` in terms of JSON: NumPy scalars as numbers, tuples as lists, NaN and infinity as None.

    TypeError for anything that JSON has no form for.
    """
    if isinstance(value, Mapping):
        return {str(key): json_ready(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [json_ready(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def check_model_target(path: str | os.PathLike[str], *, overwrite: bool = True) -> None:
    """Refuse a path at which :func:`save_model` would destroy something other than a model.

    UsageError if something is there that is no model, or anything at all without `overwrite`, or if the path
    lies in a Zarr store.
    """
    check_outside_stores(path)
    if not exists(path, follow=False):
        return
    if not overwrite:
        raise UsageError(
            f"{os.fspath(path)}: exists; choose another name, or give {parameter('overwrite', True)}"
        )
    if exists(path) and not has_magic(path, MODEL_FILE):
        raise UsageError(
            f"{os.fspath(path)}: is no model of ooc-svm, so it is not replaced; choose another name"
        )


def check_no_model(path: str | os.PathLike[str]) -> None:
    """Refuse to write something other than a model over a model; raises UsageError."""
    if has_magic(path, MODEL_FILE):
        raise UsageError(f"{os.fspath(path)}: is a model of ooc-svm; choose another name to write to")


def check_output(path: str | os.PathLike[str]) -> None:
    """Refuse a path at which a file of results would replace a model or lie in a Zarr store: UsageError.

    Whether another file is replaced is the choice of the caller.
    """
    check_outside_stores(path)
    check_no_model(path)


def _read_model(model: Any) -> Any:
    return model if isinstance(model, Model) else PATH.convert(model)


MODEL = Kind("Model or path", "a Model, or the path of a model file", _read_model)


ModelOrPath = Model | str | os.PathLike[str]


def opened_model(model: ModelOrPath) -> Model:
    """A model that was given as such, or by its path."""
    return model if isinstance(model, Model) else load_model(model)


@checks(model=MODEL, path=PATH, overwrite=FLAG)
def save_model(model: ModelOrPath, path: str | os.PathLike[str], *, overwrite: bool = True) -> None:
    """Write a model file; `path` is never seen half-written.

    Parameters
    ----------
    model : Model or path
    path : path
    overwrite : bool
        Whether a model at the path is replaced. Anything else there never is.

    Raises
    ------
    UsageError
        See :func:`check_model_target`. Also if the parts of the model do not fit each other (it may have been
        changed after it was made).
    StorageError
        If the file cannot be written.
    InputError, DamageError
        See `load_model`.
    """
    check_model_target(path, overwrite=overwrite)
    model = opened_model(model)
    model.check()
    try:
        content = {name: json_ready(getattr(model, name)) for name in _CONTENT_TYPES}
    except TypeError as error:
        raise UsageError(f"the options and the report of a model go into JSON: {error}") from error
    arrays = model.functions.to_arrays() | _arrays_of_names(model.feature_names)
    if model.multilabel:
        content["multilabel"] = True
    if model.calibration is not None:
        content["calibration"] = model.calibration.method
        arrays |= model.calibration.to_arrays()
    atomic_write(path, lambda file: write_arrays(file, _kind_of(model), content, arrays))


def _kind_of(model: Model) -> FileKind:
    """The kind of file that a model is written to."""
    if model.calibration is not None:
        return _CALIBRATED_FILE if model.calibration.temperatures is None else MODEL_FILE
    return _LABEL_SETS_FILE if model.multilabel else _PLAIN_FILE


def _arrays_of_names(names: FeatureNames | None) -> dict[str, npt.NDArray[Any]]:
    if names is None:
        return {}
    lengths = names.lengths
    width = np.uint8 if lengths.max(initial=0) < 256 else np.int32
    return {_NAMES_TEXT: names.text, _NAMES_LENGTHS: lengths.astype(width)}


def _restored_names(arrays: dict[str, npt.NDArray[Any]]) -> FeatureNames | None:
    """The names in the arrays of a file, which are as long as the file: ValueError if they are none."""
    if _NAMES_TEXT not in arrays:
        return None
    text, lengths = arrays[_NAMES_TEXT], arrays[_NAMES_LENGTHS]
    if text.dtype != np.uint8 or text.ndim != 1 or lengths.dtype.kind not in "iu" or lengths.ndim != 1:
        raise ValueError("the names of the features are no text")
    return FeatureNames.from_lengths(text, lengths)


@checks(path=PATH)
def load_model(path: str | os.PathLike[str]) -> Model:
    """Read and check a model file.

    Parameters
    ----------
    path : path

    Returns
    -------
    Model

    Raises
    ------
    UsageError
        If the path is none.
    InputError
        If there is no such file.
    DamageError
        If it is damaged, no model, or of a newer version.
    MemoryBudgetError
        If its weights do not fit the memory of this process.
    StorageError
        If reading fails.
    """
    try:
        content, arrays = read_arrays(path, MODEL_FILE)
    except IrregularFileError as error:
        raise DamageError(f"{os.fspath(path)} is {error.kind}; give the file of a model") from None
    try:
        return _build(content, arrays)
    except MemoryBudgetError as error:
        raise MemoryBudgetError(f"{os.fspath(path)}: {error}", error.needed) from error
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        detail = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise DamageError(
            f"{os.fspath(path)}: damaged model: {detail}; use another copy or train again"
        ) from error


def _build(content: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> Model:
    for name, types in _CONTENT_TYPES.items():
        if not isinstance(content[name], types) or isinstance(content[name], bool):
            raise ValueError(f"{name} is {str(content[name])[:80]!r}")
    facts = {name: content[name] for name in _CONTENT_TYPES}
    kernel, n_models, n_features = (facts.pop(name) for name in ("kernel", "n_models", "n_features"))
    names = facts["label_names"]
    if names is not None and not all(isinstance(name, str) for name in names):
        raise ValueError("a name of a label is no text")
    if kernel not in KERNELS:
        raise ValueError(f"the kernel is {kernel[:80]!r}, this release knows {', '.join(KERNELS)}")
    multilabel = content.get("multilabel", False)
    kind = LinearFunctions if kernel == LINEAR else KernelFunctions
    functions = kind.from_arrays(kernel, arrays, n_models, n_features)
    names_of_features = _restored_names(arrays)
    calibration = None
    if (method := content.get("calibration")) is not None:
        calibration = Calibration.from_arrays(str(method), arrays)
    return Model(
        functions=functions,
        feature_names=names_of_features,
        multilabel=multilabel,
        calibration=calibration,
        **facts,
    )


def model_info(model: Model) -> dict[str, Any]:
    """What ``info MODEL --json`` prints: facts and the report, in terms of JSON."""
    facts = {
        "kind": MODEL_FILE.name,
        "format_version": _kind_of(model).version,
        "n_models": model.n_models,
        "n_features": model.n_features,
        **model.functions.info(),
        "has_feature_names": model.feature_names is not None,
        "epsilon": model.epsilon,
        "multilabel": model.multilabel,
        "calibration": None if model.calibration is None else model.calibration.method,
    }
    for name in _CONTENT_TYPES:
        facts.setdefault(name, getattr(model, name))
    return cast(dict[str, Any], json_ready(facts))

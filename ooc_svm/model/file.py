"""The file of a model: a JSON header and the arrays of its decision functions."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from ooc_svm.errors import DamageError, MemoryBudgetError, UsageError
from ooc_svm.model.linear import LinearFunctions
from ooc_svm.model.model import Model
from ooc_svm.system.arrayfile import FileKind, has_magic, read_arrays, write_arrays
from ooc_svm.system.files import atomic_write

MODEL_FILE = FileKind(magic=b"OOCSVM1\n", name="model", version=1)

# Decision functions by the kernel that the header names.
_FUNCTIONS = {LinearFunctions.kernel: LinearFunctions}

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

    UsageError if something is there that is no model, or anything at all without `overwrite`.
    """
    if not os.path.lexists(path):
        return
    if not overwrite:
        raise UsageError(f"{os.fspath(path)}: exists already; choose another name or allow overwriting")
    if os.path.exists(path) and not has_magic(path, MODEL_FILE):
        raise UsageError(
            f"{os.fspath(path)}: is no model of ooc-svm, so it is not replaced; choose another name"
        )


def check_no_model(path: str | os.PathLike[str]) -> None:
    """Refuse to write something other than a model over a model; raises UsageError."""
    if has_magic(path, MODEL_FILE):
        raise UsageError(f"{os.fspath(path)}: is a model of ooc-svm; choose another name to write to")


def save_model(model: Model, path: str | os.PathLike[str], *, overwrite: bool = True) -> None:
    """Write a model file; `path` is never seen half-written.

    Parameters
    ----------
    model : Model
    path : path
    overwrite : bool
        Whether a model at the path is replaced. Anything else there never is.

    Raises
    ------
    UsageError
        See :func:`check_model_target`.
    ValueError
        If the parts of the model do not fit each other (it may have been changed after it was made).
    StorageError
        If the file cannot be written.
    """
    model.check()
    check_model_target(path, overwrite=overwrite)
    content = {name: json_ready(getattr(model, name)) for name in _CONTENT_TYPES}
    atomic_write(path, lambda file: write_arrays(file, MODEL_FILE, content, model.functions.to_arrays()))


def load_model(path: str | os.PathLike[str]) -> Model:
    """Read and check a model file.

    Raises
    ------
    InputError
        If there is no such file.
    DamageError
        If it is damaged, no model, or of a newer version.
    MemoryBudgetError
        If its weights do not fit the memory of this process.
    StorageError
        If reading fails.
    """
    content, arrays = read_arrays(path, MODEL_FILE)
    try:
        return _build(content, arrays)
    except MemoryBudgetError as error:
        raise MemoryBudgetError(f"{os.fspath(path)}: {error}") from error
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
    if kernel not in _FUNCTIONS:
        raise ValueError(f"the kernel is {kernel[:80]!r}, this release knows {', '.join(_FUNCTIONS)}")
    return Model(functions=_FUNCTIONS[kernel].from_arrays(arrays, n_models, n_features), **facts)


def model_info(model: Model) -> dict[str, Any]:
    """What ``info MODEL --json`` prints: facts and the report, in terms of JSON."""
    facts = {
        "kind": MODEL_FILE.name,
        "format_version": MODEL_FILE.version,
        "n_models": model.n_models,
        "n_features": model.n_features,
        **model.functions.info(),
        "epsilon": model.epsilon,
    }
    for name in _CONTENT_TYPES:
        facts.setdefault(name, getattr(model, name))
    return cast(dict[str, Any], json_ready(facts))

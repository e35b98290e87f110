"""The trained model: weights, what they mean, how they came about; and its file."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from ooc_svm.catalog import PROBLEMS
from ooc_svm.errors import DamageError, MemoryBudgetError, UsageError
from ooc_svm.system.arrayfile import FileKind, has_magic, read_arrays, write_arrays
from ooc_svm.system.files import atomic_write
from ooc_svm.system.memory import available_memory, format_size

Float64Array = npt.NDArray[np.float64]

MODEL_FILE = FileKind(magic=b"OOCSVM1\n", name="model", version=1)

# The problems that this release has models of, and their losses.
# Below this share of non-zeros, column ids and values take less than all weights (12 or 16 bytes against 8).
_SPARSE_SHARE = 1 / 3


@dataclass(eq=False, kw_only=True)
class Model:
    """One or more linear decision functions ``f_k(x) = weights[k] . x + bias[k]``.

    Attributes
    ----------
    problem, loss, solver : str
        As on the command line: ``"svc"`` with ``"hinge"`` or ``"squared-hinge"``, ``"svr"`` with
        ``"epsilon-insensitive"`` or ``"squared-epsilon-insensitive"``, ``"ordinal"``, ``"roc-area"`` and
        ``"ranking"`` with ``"hinge"``; ``"streamed-smo"`` ...
    kernel : str
        ``"linear"``.
    weights : ndarray of float64, shape (K, d)
        In the units of the data: a scale of the columns is folded in.
    bias : ndarray of float64, shape (K,)
    positive : list of float
        The label that a positive score of model k stands for; empty but for classifiers: scores are values
        then, or an order of rows.
    negative : float or None
        The other label of a binary classifier; None for one-vs-rest and all but classifiers.
    classes : tuple of float
        All labels, ascending; empty but for classifiers.
    label_names : tuple of str or None
        Names of `classes`, where the data had them.
    C : tuple of float
        Of each model; empty where it is not known.
    selected : int
        The model that predicts when several values of C were trained; for one-vs-rest any model of its C.
        The last one by default.
    index_base : int
        0 or 1, how the text numbered the features.
    scale : ndarray of float64, shape (d,), or None
        The scale that was folded into `weights`, to tell of.
    options : dict
        What the run was asked for, in terms of JSON; ``"epsilon"`` of a regressor is here.
    report : dict
        How the run went, in terms of JSON.

    Raises
    ------
    ValueError
        If the parts do not fit each other, or a number is not finite.
    """

    problem: str
    loss: str
    solver: str
    weights: Float64Array
    bias: Float64Array
    kernel: str = "linear"
    positive: list[float] = field(default_factory=list)
    negative: float | None = None
    classes: tuple[float, ...] = ()
    label_names: tuple[str, ...] | None = None
    C: tuple[float, ...] = ()
    selected: int = -1
    index_base: int = 1
    scale: Float64Array | None = None
    options: dict[str, Any] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.weights = np.ascontiguousarray(self.weights, np.float64)
        self.bias = np.ascontiguousarray(self.bias, np.float64)
        self.positive = _numbers("positive", self.positive)
        self.classes = tuple(_numbers("classes", self.classes))
        self.C = tuple(_numbers("C", self.C))
        if self.negative is not None:
            (self.negative,) = _numbers("negative", [self.negative])
        if self.label_names is not None:
            self.label_names = tuple(self.label_names)
        if self.scale is not None:
            self.scale = np.ascontiguousarray(self.scale, np.float64)
        self._check()
        self.selected %= self.n_models

    def _check(self) -> None:
        self._check_arrays()
        self._check_problem()
        for name, numbers in (("positive", self.positive), ("C", self.C)):
            if len(numbers) not in (0, self.n_models):
                raise ValueError(f"{name} has {len(numbers)} entries for {self.n_models} models")
        if self.label_names is not None and len(self.label_names) != len(self.classes):
            raise ValueError(f"{len(self.label_names)} names for {len(self.classes)} classes")
        if not -self.n_models <= self.selected < self.n_models:
            raise ValueError(f"model {self.selected} is selected of {self.n_models}")
        if self.index_base not in (0, 1):
            raise ValueError(f"the index base is {self.index_base}, not 0 or 1")

    def _check_arrays(self) -> None:
        if self.weights.ndim != 2 or len(self.weights) == 0:
            raise ValueError(f"weights have the shape {self.weights.shape}, not (models, features)")
        n_models, n_features = self.weights.shape
        arrays = [("weights", self.weights, (n_models, n_features)), ("bias", self.bias, (n_models,))]
        if self.scale is not None:
            arrays.append(("scale", self.scale, (n_features,)))
        for name, array, shape in arrays:
            if array.shape != shape:
                raise ValueError(f"{name} has the shape {array.shape} instead of {shape}")
            # The sum of finite numbers may overflow, the smallest and largest tell for certain.
            if array.size and not (math.isfinite(array.min()) and math.isfinite(array.max())):
                raise ValueError(f"{name} holds a number that is not finite")

    def _check_problem(self) -> None:
        """Refuse a loss, labels or an epsilon that do not go with the problem."""
        if self.problem not in PROBLEMS:
            known = ", ".join(PROBLEMS)
            raise ValueError(f"the problem is {self.problem[:80]!r}, this release knows {known}")
        if self.loss not in PROBLEMS[self.problem].losses:
            raise ValueError(f"the loss is {self.loss[:80]!r}, which {self.problem} does not have")
        if self.is_classifier:
            if not self.positive:
                raise ValueError(f"{self.problem} has no positive labels")
            return
        for name, given in (
            ("positive labels", bool(self.positive)),
            ("a negative label", self.negative is not None),
            ("classes", bool(self.classes)),
            ("names of classes", self.label_names is not None),
        ):
            if given:
                raise ValueError(f"{self.problem} gives scores, and the model has {name}")
        if self.epsilon is not None and _numbers("epsilon", [self.epsilon])[0] < 0:
            raise ValueError(f"epsilon is {self.epsilon!r}, less than 0")

    @property
    def n_models(self) -> int:
        """Number of decision functions, K."""
        return len(self.weights)

    @property
    def n_features(self) -> int:
        """Number of features, d."""
        return int(self.weights.shape[1])

    @property
    def is_classifier(self) -> bool:
        """Whether scores stand for labels; else they are what is predicted: values, or an order of rows."""
        return self.problem == "svc"

    @property
    def is_regressor(self) -> bool:
        """Whether scores are the values predicted, and labels are values."""
        return self.problem == "svr"

    @property
    def epsilon(self) -> float | None:
        """Errors of a regressor up to this size cost nothing; None for classifiers, or if not known."""
        epsilon: float | None = self.options.get("epsilon")
        return epsilon if self.is_regressor else None

    @property
    def is_one_vs_rest(self) -> bool:
        """Whether there is a model for each of several classes."""
        return self.is_classifier and self.negative is None

    @property
    def active(self) -> tuple[int, ...]:
        """The models that predict together: the selected one, or one-vs-rest all that share its C."""
        if not self.is_one_vs_rest:
            return (self.selected,)
        if not self.C:
            return tuple(range(self.n_models))
        return tuple(k for k in range(self.n_models) if self.C[k] == self.C[self.selected])


def _numbers(name: str, values: Sequence[float]) -> list[float]:
    """Python floats; a label or a C is finite. Text is refused rather than parsed."""
    numbers = []
    for value in values:
        if isinstance(value, bool | str | bytes) or not math.isfinite(value):
            raise ValueError(f"{name} holds {str(value)[:80]!r}, which is not a finite number")
        numbers.append(float(value))
    return numbers


def json_ready(value: Any) -> Any:
    """`value` in terms of JSON: NumPy scalars as numbers, tuples as lists, NaN and infinity as None.

    Raises
    ------
    TypeError
        For anything that JSON has no form for.
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
    """Refuse a path at which :func:`save_model` would destroy something else than a model.

    Raises
    ------
    UsageError
        If something is there that is no model, or anything at all without `overwrite`.
    """
    if not os.path.lexists(path):
        return
    if not overwrite:
        raise UsageError(f"{os.fspath(path)}: exists already; choose another name or allow overwriting")
    if os.path.exists(path) and not has_magic(path, MODEL_FILE):
        raise UsageError(
            f"{os.fspath(path)}: is no model of ooc-svm, so it is not replaced; choose another name"
        )


def save_model(model: Model, path: str | os.PathLike[str], *, overwrite: bool = True) -> None:
    """Write a model file; `path` is never seen half-written.

    Parameters
    ----------
    model : Model
    path : path
    overwrite : bool
        Whether a model that is there is replaced. Anything else that is there never is.

    Raises
    ------
    UsageError
        See :func:`check_model_target`.
    ValueError
        If the model does not fit itself (it may have been changed after it was made).
    StorageError
        If the file cannot be written.
    """
    model._check()
    check_model_target(path, overwrite=overwrite)
    content = {
        item.name: json_ready(getattr(model, item.name))
        for item in fields(model)
        if item.name not in ("weights", "bias", "scale")
    }
    content["n_models"], content["n_features"] = model.n_models, model.n_features
    arrays: dict[str, npt.NDArray[Any]] = {"bias": model.bias, **_stored_weights(model.weights)}
    if model.scale is not None:
        arrays["scale"] = model.scale
    atomic_write(path, lambda file: write_arrays(file, MODEL_FILE, content, arrays))


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


# What the header may hold, and what JSON makes of it.
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


def _build(content: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> Model:
    for name, types in _CONTENT_TYPES.items():
        if not isinstance(content[name], types) or isinstance(content[name], bool):
            raise ValueError(f"{name} is {str(content[name])[:80]!r}")
    names = content["label_names"]
    if names is not None and not all(isinstance(name, str) for name in names):
        raise ValueError("a name of a label is no text")
    if content["kernel"] != "linear":
        raise ValueError(f"the kernel is {content['kernel'][:80]!r}, this release knows linear alone")
    facts = {name: content[name] for name in _CONTENT_TYPES if name not in ("n_models", "n_features")}
    return Model(
        weights=_restored_weights(arrays, content["n_models"], content["n_features"]),
        bias=_float64(arrays, "bias"),
        scale=_float64(arrays, "scale") if "scale" in arrays else None,
        **facts,
    )


def _float64(arrays: dict[str, npt.NDArray[Any]], name: str) -> Float64Array:
    if arrays[name].dtype != np.float64:
        raise ValueError(f"array {name!r} holds {arrays[name].dtype}, not float64")
    return cast(Float64Array, arrays[name])


def _stored_weights(weights: Float64Array) -> dict[str, npt.NDArray[Any]]:
    """All weights, or the places and values of those that are not +0.0 where that is shorter."""
    flat = weights.reshape(-1)
    is_set = flat.view(np.int64) != 0  # keeps -0.0: the file gives the same bits back
    if np.count_nonzero(is_set) >= _SPARSE_SHARE * len(flat):
        return {"weights": weights}
    places = np.flatnonzero(is_set)
    narrow = len(flat) <= np.iinfo(np.int32).max
    return {"weight_ids": places.astype(np.int32 if narrow else np.int64), "weight_values": flat[places]}


def _restored_weights(arrays: dict[str, npt.NDArray[Any]], n_models: int, n_features: int) -> Float64Array:
    if "weights" in arrays:
        weights = _float64(arrays, "weights")
        if weights.shape != (n_models, n_features):
            raise ValueError(f"weights have the shape {weights.shape} instead of {(n_models, n_features)}")
        return weights
    ids, values = arrays["weight_ids"], _float64(arrays, "weight_values")
    if ids.dtype.kind != "i" or ids.ndim != 1 or values.shape != ids.shape:
        raise ValueError("ids and values of the weights do not fit each other")
    if n_models < 1 or n_features < 0:
        raise ValueError(f"it has {n_models} models of {n_features} features")
    total = n_models * n_features
    # The file is short, the weights need not be: this is the one size that the file does not bound.
    if total * 8 > available_memory():
        raise MemoryBudgetError(
            f"{n_models} models of {n_features} features take {format_size(total * 8)}, "
            f"this process may use {format_size(available_memory())}; use a machine with more memory"
        )
    if len(ids) and (ids[0] < 0 or ids[-1] >= total or not (ids[1:] > ids[:-1]).all()):
        raise ValueError("the ids of the weights are not ascending or not below the number of weights")
    flat = np.zeros(total)
    flat[ids] = values
    return flat.reshape(n_models, n_features)


def model_info(model: Model) -> dict[str, Any]:
    """What ``info MODEL --json`` prints: facts and the report, in terms of JSON."""
    facts = {
        "kind": MODEL_FILE.name,
        "format_version": MODEL_FILE.version,
        "n_models": model.n_models,
        "n_features": model.n_features,
        "n_nonzero_weights": int(np.count_nonzero(model.weights)),
        "scaled": model.scale is not None,
        "bias": model.bias.tolist(),
        "epsilon": model.epsilon,
    }
    for name in _CONTENT_TYPES:
        facts.setdefault(name, getattr(model, name))
    return cast(dict[str, Any], json_ready(facts))

"""Models in the text formats of other programs: LIBLINEAR, LIBSVM and SVMlight."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from typing import BinaryIO

import numpy as np

from ooc_svm.catalog import LINEAR
from ooc_svm.errors import UsageError, parameter
from ooc_svm.model.exported_labels import integer_label, labels_of
from ooc_svm.model.file import MODEL, ModelOrPath, check_output, opened_model
from ooc_svm.model.libsvm import libsvm_parts
from ooc_svm.model.model import Model
from ooc_svm.parameters import EXPORT_FORMAT, OUTPUT, checks
from ooc_svm.system import delimited
from ooc_svm.system.files import atomic_writes

LABELS_SUFFIX = ".labels"
"""Ending of the file with the names of classes, next to one of LIBLINEAR."""
OTHERS = "all others"
"""In that file, what stands for the classes that are not positive, where these are several."""

# Features written at a time.
_SLICE_FEATURES = 1 << 14
# Formats whose labels are numbers.
_NUMBERED = {"liblinear": "LIBLINEAR", "libsvm": "LIBSVM"}

# LIBLINEAR's names of the solvers for the same objectives (-s 3, 1, 7, 13, 12).
_LIBLINEAR_SOLVERS = {
    "hinge": "L2R_L1LOSS_SVC_DUAL",
    "squared-hinge": "L2R_L2LOSS_SVC_DUAL",
    "lp": "L2R_L2LOSS_SVC_DUAL",
    "logistic": "L2R_LR_DUAL",
    "epsilon-insensitive": "L2R_L1LOSS_SVR_DUAL",
    "squared-epsilon-insensitive": "L2R_L2LOSS_SVR_DUAL",
}


@checks(model=MODEL, path=OUTPUT, to=EXPORT_FORMAT)
def export_model(model: ModelOrPath, path: str | os.PathLike[str] | BinaryIO, to: str) -> None:
    """Write a model in the text format of another program; an existing file is replaced in one step.

    Features are numbered from 1, as both programs require: column j of the weights is feature j + 1,
    whatever the index base of the training text was. Every number has 17 digits, so that it is read back as
    the same float64.

    Parameters
    ----------
    model : Model or path
        Its active functions are written, see :attr:`ooc_svm.model.model.Model.active`.
    path : path or binary stream
    to : {"liblinear", "libsvm", "svmlight"}
        LIBLINEAR: classifiers, one-vs-rest with three labels or more included, and regressors. Its labels are
        numbers: where classes have names, a file with the ending ``.labels`` is written before it, with
        a line for each class: the number, a tab, the name. LIBSVM: one decision function, with a kernel or
        linear, for two labels or values; names of classes as for LIBLINEAR. SVMlight: one decision function
        that is linear, as a kernel with a single support vector. The file has no labels and does not say what
        the function is for: a positive score stands for the positive label, and of a regressor the score is
        the value. None has a form for the probabilities of a calibrated model: a warning says that they are
        left out.

    Raises
    ------
    UsageError
        If the format is unknown or cannot express the model, `path` is a model of ours, lies in a Zarr store,
        or is a stream where names of classes are written.
    InputError
        If a label is not one that LIBLINEAR and LIBSVM can read (an integer of 32 bits).
    StorageError
        If the file cannot be written.
    """
    writers: dict[str, Callable[[Model], Iterator[str]]] = {
        "liblinear": _liblinear,
        "libsvm": libsvm_parts,
        "svmlight": _svmlight,
    }
    model = opened_model(model)
    named = has_names_file(model, to)
    _check_place(path, named)
    if model.kernel != LINEAR and to != "libsvm":
        raise UsageError(
            f"the model has the kernel {model.kernel}, and {to} here stands for weights; export to libsvm, "
            f"or train one with {parameter('kernel', LINEAR)}"
        )
    parts = writers[to](model)
    start = next(parts)  # fails before a file is touched where the format cannot express the model
    if model.calibration is not None:
        warnings.warn(
            f"the format of {to} has scores alone: the probabilities that the model was calibrated to give "
            "are left out",
            stacklevel=3,
        )

    def write(file: BinaryIO) -> None:
        file.write(start.encode("ascii"))
        for part in parts:
            file.write(part.encode("ascii"))

    if not isinstance(path, str | os.PathLike):
        write(path)
        return
    writes: list[tuple[str | os.PathLike[str], Callable[[BinaryIO], object]]] = [(path, write)]
    if named:
        labels = _names_of_labels(model, _NUMBERED[to]).encode()
        writes.insert(0, (f"{os.fspath(path)}{LABELS_SUFFIX}", lambda file: file.write(labels)))
    atomic_writes(writes)


def has_names_file(model: Model, to: str) -> bool:
    """Whether the names of classes are written to a second file, whose name ends in `LABELS_SUFFIX`."""
    return to in _NUMBERED and model.label_names is not None


def _check_place(path: str | os.PathLike[str] | BinaryIO, named: bool) -> None:
    """Refuse to write over a model or into a store, and names of classes where no second file can be."""
    if isinstance(path, str | os.PathLike):
        check_output(path)
        if named:
            check_output(f"{os.fspath(path)}{LABELS_SUFFIX}")
    elif named:
        raise UsageError(
            "the names of the classes go to a second file next to the model; name a file to write"
        )


def _names_of_labels(model: Model, program: str) -> str:
    """A line for each label of the format: the number, a tab, and its name, in quotes where it needs them."""
    names = dict(zip(model.classes, model.label_names or (), strict=True))
    rows = [(integer_label(label, program), names.get(label, OTHERS)) for label in labels_of(model)]
    return "".join(delimited.line(row, "\t") for row in rows)


def _liblinear(model: Model) -> Iterator[str]:
    """The text in parts: the header, then the weights, one feature a line and one function a column."""
    active = list(model.active)
    weights, bias = model.weights, model.bias[active]
    has_bias = bool(np.any(bias != 0))
    yield (_liblinear_classes(model) + f"nr_feature {model.n_features}\nbias {1 if has_bias else -1}\nw\n")
    line = "%.17g " * len(active) + "\n"
    for start in range(0, model.n_features, _SLICE_FEATURES):
        columns = weights[active, start : start + _SLICE_FEATURES].T.tolist()
        yield "".join([line % tuple(column) for column in columns])
    if has_bias:
        yield line % tuple(bias.tolist())


def _liblinear_classes(model: Model) -> str:
    """The lines of the solver and the labels."""
    solver = _LIBLINEAR_SOLVERS[model.loss]
    if model.is_regressor:
        return f"solver_type {solver}\nnr_class 2\n"
    if not model.is_classifier:
        raise UsageError(
            f"LIBLINEAR's format has no models of problem {model.problem!r}; export to svmlight instead"
        )
    if model.multilabel:
        raise UsageError(
            "LIBLINEAR predicts one label a row, and this model sets of labels; train one label as "
            f"{parameter('positive')}, and export to svmlight"
        )
    labels = labels_of(model)
    if model.negative is None and len(labels) < 3:
        raise UsageError(
            "LIBLINEAR's format has one-vs-rest models for three labels or more, "
            f"this model has {len(labels)}; train on two labels, or export to svmlight one at a time"
        )
    names = " ".join(integer_label(label, "LIBLINEAR") for label in labels)
    return f"solver_type {solver}\nnr_class {len(labels)}\nlabel {names}\n"


def _svmlight(model: Model) -> Iterator[str]:
    """The text in parts: the header, then one support vector of coefficient 1 that holds the weights."""
    if len(model.active) != 1:
        raise UsageError(
            f"SVMlight's format holds one decision function, this model has {len(model.active)}; "
            f"{'' if model.multilabel else 'export to liblinear, or '}train with one label as "
            f"{parameter('positive')}"
        )
    (selected,) = model.active
    n_rows = model.report.get("n_rows")
    yield (
        "SVM-light Version V6.02\n"
        "0 # kernel type\n"
        "3 # kernel parameter -d \n"
        "1 # kernel parameter -g \n"
        "1 # kernel parameter -s \n"
        "1 # kernel parameter -r \n"
        "empty# kernel parameter -u \n"
        f"{model.n_features} # highest feature index \n"
        f"{n_rows if isinstance(n_rows, int) else 0} # number of training documents \n"
        "2 # number of support vectors plus 1 \n"
        # SVMlight decides by w.x - b; 0 minus, because the negative of 0 would be written -0.
        f"{0.0 - float(model.bias[selected]):.17g} "
        "# threshold b, each following line is a SV (starting with alpha*y)\n"
        "1 "
    )
    weights = model.weights[selected]
    for start in range(0, model.n_features, _SLICE_FEATURES):
        part = weights[start : start + _SLICE_FEATURES]
        places = np.flatnonzero(part)
        pairs = zip((places + (start + 1)).tolist(), part[places].tolist(), strict=True)
        yield "".join([f"{index}:{weight:.17g} " for index, weight in pairs])
    yield "#\n"

"""Models in the text format of LIBSVM: support vectors with coefficients, or one that holds the weights."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ooc_svm.data.blocks import Float64Array, RowBlock
from ooc_svm.errors import UsageError, parameter
from ooc_svm.model.exported_labels import integer_label, labels_of
from ooc_svm.model.kernel import KernelFunctions
from ooc_svm.model.model import Model

_TYPES = {"svc": "c_svc", "nu-svc": "nu_svc", "svr": "epsilon_svr", "nu-svr": "nu_svr"}
_KERNELS = {"linear": "linear", "rbf": "rbf", "poly": "polynomial", "sigmoid": "sigmoid"}


def libsvm_parts(model: Model) -> Iterator[str]:
    """The text in parts: the header, then a line for each support vector.

    Every number has 17 digits. Of classes, the support vectors with a positive coefficient come first.

    UsageError if the format cannot express the model, InputError if a label is not one that LIBSVM reads.
    """
    if model.problem not in _TYPES:
        raise UsageError(
            f"LIBSVM's format has no models of problem {model.problem!r}; export to svmlight instead"
        )
    if model.multilabel:
        raise UsageError(
            "LIBSVM predicts one label a row, and this model sets of labels; train one label as "
            f"{parameter('positive')}, and export to svmlight"
        )
    if len(model.active) != 1:
        raise UsageError(
            "LIBSVM's format has a function for each pair of classes, and this model has "
            f"{len(model.active)}, each of one class against the rest; train with one label as "
            f"{parameter('positive')}"
        )
    rows, coefficients = _expansion(model)
    first, others = np.flatnonzero(coefficients > 0.0), np.flatnonzero(coefficients < 0.0)
    # LIBSVM subtracts rho; 0 minus, because the negative of 0 would be written -0.
    rho = 0.0 - float(model.bias[model.active[0]])
    header = f"svm_type {_TYPES[model.problem]}\nkernel_type {_KERNELS[model.kernel]}\n"
    if isinstance(model.functions, KernelFunctions):
        numbers = model.functions.function._asdict().items()
        header += "".join(f"{name} {number:.17g}\n" for name, number in numbers)
    header += f"nr_class 2\ntotal_sv {len(first) + len(others)}\nrho {rho:.17g}\n"
    if model.is_classifier:
        names = " ".join(integer_label(label, "LIBSVM") for label in labels_of(model))
        header += f"label {names}\nnr_sv {len(first)} {len(others)}\n"
    yield header + "SV\n"
    for j in np.concatenate([first, others]).tolist():
        yield f"{coefficients[j]:.17g} {_row_text(rows, j)}\n"


def _expansion(model: Model) -> tuple[RowBlock, Float64Array]:
    """Support vectors and coefficients; of a linear function one of coefficient 1 that holds the weights."""
    (selected,) = model.active
    functions = model.functions
    if not isinstance(functions, KernelFunctions):
        weights = model.weights[selected]
        places = np.flatnonzero(weights)
        ends = np.array([0, len(places)], np.int64)
        return RowBlock(0, ends, places.astype(np.int32), weights[places]), np.ones(1)
    if functions.scale is not None:
        raise UsageError(
            "LIBSVM's format has no scale of the columns, and the kernel of this model is that of scaled "
            f"ones; scale the data first, and train with {parameter('scale', 'none')}"
        )
    return functions.vectors, functions.coefficients[selected]


def _row_text(rows: RowBlock, j: int) -> str:
    """The nonzeros of a row, features numbered from 1."""
    own = slice(*rows.indptr[j : j + 2])
    ids = (rows.indices[own] + 1).tolist()
    values = np.ones(len(ids)) if rows.values is None else rows.values[own]
    return "".join(f"{index}:{value:.17g} " for index, value in zip(ids, values.tolist(), strict=True))

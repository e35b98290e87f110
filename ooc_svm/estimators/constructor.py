"""The parameters of an estimator: those options of training that its problem takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from inspect import Parameter, Signature
from typing import Any, TypeVar

from ooc_svm.catalog import KINDS, LINEAR, LOSSES, PROBLEMS, SOLVERS, owners
from ooc_svm.options import OPTIONS, described

E = TypeVar("E", bound=type)

# Attributes of every fitted estimator, as docstrings have them.
_FITTED = """\
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, where the data had names that are all text.
    n_iter_ : int
        Reads of the data.
    report_ : dict
        How training went.
    model_ : Model
        What `ooc_svm.train` returned.
"""

_FITTED_KERNEL = """\
    support_vectors_ : csr_array of shape (n_SV, n_features)
        Support vectors of all decision functions, of a kernel other than the linear one, as the next two.
    dual_coef_ : ndarray of shape (n_functions, n_SV)
        Their coefficients in each decision function.
    n_support_ : ndarray of shape (n_functions,)
        Number of the support vectors of each decision function (in scikit-learn of each class).
"""


@cache
def _choices(problem: str, loss: str | None) -> dict[str, set[str]]:
    """The losses, kernels and solvers that a problem takes, of one loss if it is given."""
    entry = PROBLEMS[problem]
    losses = entry.losses if loss is None else (loss,)
    offered = {each for loss in losses for each in LOSSES[loss].properties}
    solvers = {n for n, each in SOLVERS.items() if entry.form in each.forms and each.needs in offered}
    kernels = {kernel for solver in solvers for kernel in SOLVERS[solver].kernels}
    return {"problem": {problem}, "loss": set(losses), "kernel": kernels, "solver": solvers}


@cache
def options_of(problem: str, loss: str | None = None) -> tuple[str, ...]:
    """Names of the options that a problem takes, besides its own name and that of its loss if it is given."""
    entry, chosen = PROBLEMS[problem], _choices(problem, loss)
    known = {"problem"} if loss is None else {"problem", "loss"}
    return tuple(
        name
        for name in OPTIONS
        if name not in {*known, *entry.without}
        and all(chosen[kind] & set(names) for kind, names in owners(name).items())
    )


def default_of(name: str) -> Any:
    """The default of an option; of one that takes several values the only one by itself."""
    default = OPTIONS[name].default
    return default[0] if isinstance(default, tuple) and len(default) == 1 else default


def _documented(name: str, chosen: Mapping[str, set[str]]) -> str:
    """The entry of an option in a docstring; of names those alone that are ``chosen``."""
    default, kind = default_of(name), OPTIONS[name].kind.doc
    for entry in KINDS.get(name, {}).keys() - chosen.get(name, set()):
        kind = kind.replace(f', "{entry}"', "").replace(f'{{"{entry}", ', "{")
    return f"    {name} : {kind}, default={default!r}\n        {described(name)}\n"


def takes_options(problem: str, loss: str | None = None) -> Callable[[E], E]:
    """Decorate a class of estimators so that its constructor takes the options of a problem, as keywords.

    Those of a loss alone, if one is given. Values are kept as they are, and checked where they are used: so
    scikit-learn wants it. In the docstring, OPTIONS and FITTED stand for these options and for the attributes
    that all fitted estimators have.
    """
    names = options_of(problem, loss)
    keywords = [Parameter(name, Parameter.KEYWORD_ONLY, default=default_of(name)) for name in names]

    def decorate(cls: E) -> E:
        def __init__(self: Any, **parameters: Any) -> None:  # noqa: N807
            try:
                bound = signature.bind(self, **parameters)
            except TypeError as error:
                raise TypeError(f"{cls.__name__}() {error}") from None
            bound.apply_defaults()
            for name in names:
                setattr(self, name, bound.arguments[name])

        signature = Signature([Parameter("self", Parameter.POSITIONAL_OR_KEYWORD), *keywords])
        __init__.__signature__ = signature  # type: ignore[attr-defined]
        __init__.__qualname__ = f"{cls.__qualname__}.__init__"
        cls.__init__ = __init__  # type: ignore[misc]
        if cls.__doc__:  # python -OO leaves it out
            entries = [_documented(name, _choices(problem, loss)) for name in names]
            text = cls.__doc__.replace("    OPTIONS\n", "".join(entries))
            has_kernels = bool(_choices(problem, loss)["kernel"] - {LINEAR})
            cls.__doc__ = text.replace("    FITTED\n", _FITTED_KERNEL * has_kernels + _FITTED)
        return cls

    return decorate

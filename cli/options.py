"""The options of training, generated from their list, and the parameters that commands share."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, get_args, get_type_hints

import typer

from ooc_svm.errors import UsageError
from ooc_svm.options import OPTIONS, TrainOptions, default_text, described, flag
from ooc_svm.system.memory import parse_size

_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)


def choice(*names: str, help: str) -> Any:
    """A Typer option that takes one of a few names."""

    def check(value: str | None) -> str | None:
        if value is not None and value not in names:
            raise typer.BadParameter(f"{value[:80]!r} is not one of {', '.join(names)}")
        return value

    return typer.Option(metavar="|".join(names), callback=check, help=help)


def _read_number(text: str, option: str) -> float:
    """A decimal number: no hexadecimal, no ``nan``, no ``1_000``."""
    if _NUMBER.fullmatch(text) is None:
        raise UsageError(f"{option}: {text[:80]!r} is not a number")
    return float(text)


def _read_numbers(text: str, option: str) -> tuple[float, ...]:
    return tuple(_read_number(part.strip(), option) for part in text.split(","))


def _read_labels(text: str, option: str) -> tuple[str, ...]:
    """Labels as they were typed: only the data can tell whether they are numbers or names."""
    labels = tuple(part.strip() for part in text.split(","))
    if not all(labels):
        raise UsageError(f"{option}: {text[:80]!r} has an empty label; write for example {option} 1,3")
    return labels


def _read_class_weight(text: str, option: str) -> str | dict[float | str, float]:
    if text == "balanced":
        return text
    weights: dict[float | str, float] = {}
    for part in text.split(","):
        label, colon, weight = part.rpartition(":")
        label = label.strip()
        if not colon or not label:
            raise UsageError(
                f"{option}: {part[:80]!r} is not LABEL:WEIGHT; write balanced, or for example 1:10,-1:0.5"
            )
        if label in weights:
            raise UsageError(f"{option}: the label {label[:80]!r} is given twice")
        weights[label] = _read_number(weight.strip(), option)
    return weights


def _read_size(text: str, option: str) -> str:
    try:
        parse_size(text)
    except UsageError as error:
        raise UsageError(f"{option}: {error}") from error
    return text


# Readers of the options of training whose text is more than a name or a number.
_READERS: dict[str, Callable[[str, str], Any]] = {
    "C": _read_numbers,
    "class_weight": _read_class_weight,
    "positive": _read_labels,
    "memory": _read_size,
}


def train_option(name: str) -> Any:
    """The Typer option for an option of training; its callback reads and checks what was typed."""
    option, typed = OPTIONS[name], flag(name)

    def read(value: Any) -> Any:
        if value is None:
            return option.default
        if name in _READERS:
            value = _READERS[name](value, typed)
        complaint = option.complaint(value)
        if complaint is not None:
            raise UsageError(f"{typed} {complaint}")
        return value

    checked = name in _READERS or option.choices or option.check
    return typer.Option(
        typed, metavar=option.metavar or None, callback=read if checked else None, help=described(name)
    )


def _parameter(name: str, hint: Any) -> inspect.Parameter:
    """The parameter of a command for an option of training of a type."""
    default = default_text(name) or None if name in _READERS else OPTIONS[name].default
    kinds = [str] if name in _READERS else get_args(hint) or [hint]
    kind: Any = next(each for each in (bool, int, float, str) if each in kinds)
    typed = kind if default is not None else kind | None
    annotation: Any = Annotated[typed, train_option(name)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


_PARAMETERS = [_parameter(name, hint) for name, hint in get_type_hints(TrainOptions).items()]


def takes_training(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command all options of training in place of its parameter ``options``, a dict of them.

    Typer reads the options of a command from its signature; this writes that signature. Options that
    contradict each other are refused by a `UsageError` before the command begins.
    """

    @wraps(command)
    def with_training(**values: Any) -> None:
        options = {name: values.pop(name) for name in OPTIONS}
        TrainOptions(**options)
        command(options=options, **values)

    own = inspect.signature(command, eval_str=True).parameters.values()
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own if p.name != "options"]
    parameters += _PARAMETERS
    with_training.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_training.__annotations__ = {p.name: p.annotation for p in parameters}
    return with_training


Label = Annotated[str | None, train_option("label")]
Memory = Annotated[str | None, train_option("memory")]
Threads = Annotated[int | None, train_option("threads")]
Scheduler = Annotated[str | None, train_option("scheduler")]
InsecureCluster = Annotated[bool, train_option("insecure_cluster")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress on standard error.")]
SelectedC = Annotated[
    float | None,
    typer.Option("--C", metavar="FLOAT", help="Which model, of one trained with several values of C."),
]

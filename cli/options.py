"""The options of training, generated from their list, and the parameters that commands share."""

from __future__ import annotations

import csv
import inspect
import math
import re
from collections.abc import Callable, Mapping
from functools import wraps
from types import MappingProxyType
from typing import Annotated, Any

import typer

from ooc_svm.errors import UsageError, flag, parameter, shown
from ooc_svm.options import (
    OPTIONS,
    TrainOptions,
    default_text,
    described,
)
from ooc_svm.parameters import (
    CLASS_WEIGHT,
    COST,
    COSTS,
    COUNT,
    DEGREE,
    FLAG,
    GAMMA,
    GAP,
    INDEX_BASE,
    LABELS,
    PATH,
    VALIDATION,
    Kind,
)

_INTEGER = re.compile(r"[+-]?[0-9]{1,400}", re.ASCII)
NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
"""A decimal number, as an option takes it."""


def _integer(text: str) -> int | str:
    """An integer in decimal digits; other text as it is, for its kind to refuse."""
    return int(text) if _INTEGER.fullmatch(text) else text


def _number(text: str) -> float | str:
    """A decimal number in the range of float64: no hexadecimal, no ``1_000``; other text as it is."""
    return float(text) if NUMBER.fullmatch(text) and math.isfinite(float(text)) else text


def _numbers(text: str, parse: Callable[[str], Any] = _number) -> Any:
    """One number, or several with commas between them; other text as it is."""
    numbers = [parse(part.strip()) for part in text.split(",")]
    if any(isinstance(number, str) for number in numbers):
        return text
    return numbers if len(numbers) > 1 else numbers[0]


def _items(name: str, texts: list[str]) -> list[str]:
    """What stands between commas, outside of quotes; of an option given several times, each text whole."""
    if len(texts) != 1:
        return texts
    try:
        parts = next(csv.reader(texts, skipinitialspace=True), [])
    except csv.Error:
        raise UsageError(
            f"{parameter(name)}: {shown(texts[0])} has a line break outside of double quotes; put the label "
            "that it is part of in double quotes, or take the line break out"
        ) from None
    return [part.strip() for part in parts or [""]]


def _labels(texts: list[str]) -> tuple[str, ...]:
    """Labels as they were typed: only the data can tell whether they are numbers or names."""
    labels = tuple(_items("positive", texts))
    if not all(labels):
        raise UsageError(
            f"{parameter('positive')}: {shown(','.join(texts))} has an empty label; "
            f"write for example {parameter('positive', '1,3')}"
        )
    return labels


def _class_weight(texts: list[str]) -> str | dict[str, float | str]:
    if texts == ["balanced"]:
        return "balanced"
    weights: dict[str, float | str] = {}
    for part in _items("class_weight", texts):
        label, colon, weight = part.rpartition(":")
        label = label.strip()
        if not colon or not label:
            raise UsageError(
                f"{parameter('class_weight')}: {shown(part)} is not LABEL:WEIGHT; "
                "write balanced, or for example 1:10,-1:0.5"
            )
        if label in weights:
            raise UsageError(f"{parameter('class_weight')}: the label {shown(label)} is given twice")
        weights[label] = _number(weight.strip())
    return weights


def grid_of(texts: list[str] | None) -> dict[str, Any]:
    """The values of each name of a grid, from ``nu=0.1,0.2``."""
    grid: dict[str, Any] = {}
    for text in texts or ():
        name, equals, values = text.partition("=")
        whole = name in OPTIONS and OPTIONS[name].kind is DEGREE
        numbers = _numbers(values, _integer if whole else _number)
        if not equals or isinstance(numbers, str):
            kind, example = ("WHOLE NUMBERS", f"{name}=2,3") if whole else ("NUMBERS", "nu=0.1,0.2")
            raise UsageError(
                f"{parameter('grid')}: {shown(text)} is not NAME={kind}; write for example {example}"
            )
        if name in grid:
            raise UsageError(f"{parameter('grid')}: {name!r:.82} is given twice; give all of its values once")
        grid[name] = numbers
    return grid


# How text becomes a value of a kind, by the type in docstrings; of other kinds it is the value.
_FROM_TEXT: dict[str, Callable[[Any], Any]] = {
    COUNT.doc: _integer,
    GAP.doc: _number,
    INDEX_BASE.doc: _integer,
    COSTS.doc: _numbers,
    LABELS.doc: _labels,
    CLASS_WEIGHT.doc: _class_weight,
    VALIDATION.doc: _number,
    GAMMA.doc: _number,
}

# Kinds of options that may be given several times.
_REPEATED = (LABELS, CLASS_WEIGHT)


def _reader(kind: Kind, default: Any = None) -> Callable[[typer.CallbackParam, Any], Any]:
    """A callback of Typer that reads what was typed as a value of a kind."""

    def read(typed: typer.CallbackParam, value: Any) -> Any:
        if value is None:
            return default
        assert typed.name is not None
        from_text = _FROM_TEXT.get(kind.doc)
        return kind.read(typed.name, value if from_text is None else from_text(value))

    return read


def option(kind: Kind, *flags: str, metavar: str, help: str, heading: str | None = None) -> Any:
    """A Typer option, text for Typer, whose values are of a kind; the help lists it under a heading."""
    read, complete = _reader(kind), _completion(metavar)
    return typer.Option(
        *flags, metavar=metavar, callback=read, help=help, rich_help_panel=heading, autocompletion=complete
    )


def _completion(metavar: str) -> Callable[[str], list[str]] | None:
    """What a shell completes the value of an option by, where it is one of a few names: ``svc|svr``."""
    names = metavar.split("|")
    if len(names) == 1 or metavar != metavar.lower():
        return None

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return complete


def argument(kind: Kind, *, metavar: str, help: str) -> Any:
    """A Typer argument whose values are of a kind."""
    return typer.Argument(metavar=metavar, callback=_reader(kind), help=help)


def train_option(name: str, metavar: str | None = None, help: str | None = None) -> Any:
    """The Typer option for an option of training; its callback reads and checks what was typed.

    ``metavar``, ``help``: of a command for which the option means something else.
    """
    known, text = OPTIONS[name], described(name, help)
    metavar = metavar or known.metavar
    if known.kind is FLAG:
        return typer.Option(flag(name), help=text, rich_help_panel=known.heading)
    # Typer makes a list of what the callback of a repeated option returns.
    read = None if known.kind in _REPEATED else _reader(known.kind, known.default)
    return typer.Option(
        flag(name),
        metavar=metavar,
        callback=read,
        help=text,
        rich_help_panel=known.heading,
        autocompletion=_completion(metavar),
    )


def _parameter(name: str, *own: str) -> inspect.Parameter:
    """The parameter of a command for an option of training; ``own``: as for `train_option`."""
    is_flag = OPTIONS[name].kind is FLAG
    default = False if is_flag else default_text(name) or None
    typed: Any = list[str] | None if OPTIONS[name].kind in _REPEATED else str | None
    annotation: Any = Annotated[bool if is_flag else typed, train_option(name, *own)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def training_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """The options of training as the library takes them: what was given several times is read here."""
    options = {name: values[name] for name in OPTIONS}
    for name, known in OPTIONS.items():
        if known.kind in _REPEATED:
            texts, read = options[name], _FROM_TEXT[known.kind.doc]
            options[name] = known.kind.read(name, read(texts)) if texts else known.default
    return options


def takes_training(
    command: Callable[..., None], own_texts: Mapping[str, tuple[str, str]] = MappingProxyType({})
) -> Callable[..., None]:
    """Give a command all options of training in place of its parameter ``options``, a dict of them.

    Typer reads the options of a command from its signature; this writes that signature. Options that
    contradict each other are refused by a `UsageError` before the command begins.

    ``own_texts``: metavar and help of options that mean something else for this command.
    """

    @wraps(command)
    def with_training(**values: Any) -> None:
        options = training_options({name: values.pop(name) for name in OPTIONS})
        TrainOptions(**options)
        command(options=options, **values)

    own = inspect.signature(command, eval_str=True).parameters.values()
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own if p.name != "options"]
    parameters += [_parameter(name, *own_texts.get(name, ())) for name in OPTIONS]
    with_training.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_training.__annotations__ = {p.name: p.annotation for p in parameters}
    return with_training


# Options of several commands. Typer sees text; callbacks make it what the library takes.
Label = Annotated[str | None, train_option("label")]
Layer = Annotated[str | None, train_option("layer")]
Unlabelled = Annotated[str, train_option("unlabelled")]
Cache = Annotated[str | None, train_option("cache")]
CacheSize = Annotated[str | None, train_option("cache_size")]
Memory = Annotated[str | None, train_option("memory")]
Threads = Annotated[Any, train_option("threads")]
Scheduler = Annotated[str | None, train_option("scheduler")]
InsecureCluster = Annotated[bool, train_option("insecure_cluster")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress on standard error.")]
ModelPath = Annotated[str, argument(PATH, metavar="MODEL", help="A model file.")]
FeatureNames = Annotated[
    str | None,
    option(
        PATH,
        metavar="FILE",
        help="Names of the features, one a line, for data that have no names themselves.",
    ),
]
SelectedC = Annotated[
    Any,
    option(COST, "--C", metavar="FLOAT", help="Which model, of one trained with several values of C."),
]

"""The options of training, for the commands that take them all."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from ooc_svm.cli.parameters import (
    InsecureCluster,
    Label,
    Memory,
    Scheduler,
    Threads,
    choice,
    parse_number,
    parse_numbers,
)
from ooc_svm.errors import UsageError
from ooc_svm.options import BIASES, ENGINES, KERNELS, LOSSES, PROBLEMS, SCALES, SOLVERS, TrainOptions


@dataclass(frozen=True)
class TrainArguments:
    """What was typed; `options` makes of it what `ooc_svm.train` takes."""

    problem: Annotated[str, choice(*PROBLEMS, help="What is trained.")] = "svc"
    loss: Annotated[
        str | None,
        choice(
            *LOSSES, help="Loss of a row or a pair of rows; by default hinge, epsilon-insensitive for svr."
        ),
    ] = None
    epsilon: Annotated[
        float | None, typer.Option(metavar="FLOAT", help="Half width of the tube of svr; by default 0.1.")
    ] = None
    solver: Annotated[
        str, choice(*SOLVERS, help="Algorithm; auto is streamed-smo, for pairs of rows ocas.")
    ] = "auto"
    kernel: Annotated[str, choice(*KERNELS, help="Kernel function.")] = "linear"
    bias: Annotated[str, choice(*BIASES, help="Penalized: the weight of a constant feature 1.")] = "none"
    C: Annotated[
        str,
        typer.Option(
            "--C",
            metavar="FLOAT[,FLOAT...]",
            help="Weight of the sum of the losses, for pairs of rows of their mean; a model for each value, "
            "all on the same reads.",
        ),
    ] = "1"
    class_weight: Annotated[
        str | None,
        typer.Option(metavar="balanced|LABEL:W,...", help="Weights of the losses of classes; others have 1."),
    ] = None
    positive: Annotated[
        str | None,
        typer.Option(
            metavar="LABEL[,LABEL...]",
            help="Labels against all others. By default the larger of two; svc: of more each in turn.",
        ),
    ] = None
    label: Label = None
    scale: Annotated[
        str, choice(*SCALES, help="Divide columns by their largest magnitude or standard deviation.")
    ] = "none"
    tol: Annotated[float, typer.Option(metavar="FLOAT", help="Relative gap (P - D) / P to certify.")] = 1e-3
    max_passes: Annotated[int | None, typer.Option(metavar="N", help="Reads of the data at most.")] = None
    time_limit: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="No read is begun after this time.")
    ] = None
    memory: Memory = None
    resident: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE", help="Share of the data held in memory (streamed-smo); by default what fits."
        ),
    ] = None
    lanes: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Parts of a round worked on together (streamed-smo); by default 1, from 1e9 nonzeros 2.",
        ),
    ] = None
    cut_groups: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Groups of rows with a slack each; by default what fits for ocas on svc, else 1.",
        ),
    ] = None
    threads: Threads = None
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of whatever is drawn at random.")] = 0
    checkpoint: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Save the state there now and then.")
    ] = None
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest state in that folder.")] = (
        False
    )
    warm_start: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL|FOLDER",
            help="Begin with a model, or with the saved state of a run with another C (streamed-smo).",
        ),
    ] = None
    engine: Annotated[str, choice(*ENGINES, help="On threads, or on processes of a dask cluster.")] = "local"
    scheduler: Scheduler = None
    insecure_cluster: InsecureCluster = False

    def options(self) -> dict[str, Any]:
        """Keyword arguments for `ooc_svm.training.train.train`, checked.

        Raises
        ------
        UsageError
            A value that is not possible, or options that contradict each other.
        """
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        values["C"] = parse_numbers(self.C, "--C")
        values["positive"] = () if self.positive is None else _labels(self.positive)
        values["class_weight"] = _class_weight(self.class_weight)
        TrainOptions(**values)
        return values


def _labels(text: str) -> tuple[str, ...]:
    """Labels as they were typed: whether they are numbers or names only the data can tell."""
    labels = tuple(part.strip() for part in text.split(","))
    if not all(labels):
        raise UsageError(f"--positive: {text[:80]!r} has an empty label; write for example --positive 1,3")
    return labels


def _class_weight(text: str | None) -> str | dict[float | str, float] | None:
    if text is None or text == "balanced":
        return text
    weights: dict[float | str, float] = {}
    for part in text.split(","):
        label, colon, weight = part.rpartition(":")
        label = label.strip()
        if not colon or not label:
            raise UsageError(
                f"--class-weight: {part[:80]!r} is no LABEL:WEIGHT; write balanced, or such as 1:10,-1:0.5"
            )
        if label in weights:
            raise UsageError(f"--class-weight: the label {label[:80]!r} is given twice")
        weights[label] = parse_number(weight.strip(), "--class-weight")
    return weights


def takes_training(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command all options of training in the place of its parameter ``training``.

    Typer reads the options of a command from its signature; this writes that signature, so that two commands
    share one list of options.
    """
    hints = get_type_hints(TrainArguments, include_extras=True)
    names = [field.name for field in fields(TrainArguments)]

    @wraps(command)
    def with_training(**values: Any) -> None:
        training = TrainArguments(**{name: values.pop(name) for name in names})
        command(training=training, **values)

    own = inspect.signature(command, eval_str=True).parameters.values()
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [p.replace(kind=keyword) for p in own if p.name != "training"]
    parameters += [
        inspect.Parameter(field.name, keyword, default=field.default, annotation=hints[field.name])
        for field in fields(TrainArguments)
    ]
    with_training.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_training.__annotations__ = {p.name: p.annotation for p in parameters}
    return with_training

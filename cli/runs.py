"""``ooc-svm report``: the course of runs side by side, as a table or as a picture."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import typer

from ooc_svm.cli.format import bound, count, table
from ooc_svm.cli.options import argument, option
from ooc_svm.conversion.options import INPUTS
from ooc_svm.errors import InputError
from ooc_svm.parameters import PATH
from ooc_svm.system.amounts import format_seconds
from ooc_svm.system.memory import format_size

MOST_BYTES = 1 << 28  # Of a report
# What tells runs apart, in the order in which it is named: entries of a report.
TELLING = ("problem", "loss", "solver", "resident", "lanes", "cut_groups", "n_rows", "n_features", "tol")


@dataclass(frozen=True, slots=True)
class Course:
    """How the gap of all models of a run fell: a point for each pass with a gap above 0.

    Of a run in batches that begins with the last one: before it, some models had no gap.
    """

    passes: list[int]
    bytes_read: list[int]
    seconds: list[float]
    gaps: list[float]


@dataclass(frozen=True, slots=True)
class RunReport:
    """The report of a run, checked."""

    name: str  # What tells it from others
    facts: Mapping[str, Any]
    course: Course
    tol: float | None  # The relative gap that was asked for, where the report says so


def report(
    reports: Annotated[
        list[str],
        argument(
            INPUTS, metavar="REPORT", help="A report (train --report), or a model, which has one inside."
        ),
    ],
    output: Annotated[
        str | None,
        option(
            PATH,
            "--output",
            "-o",
            metavar="FILE.png|FILE.svg|FILE.html",
            help="Draw a picture; by default a table is printed.",
        ),
    ] = None,
    reliability: Annotated[
        bool,
        typer.Option(
            "--reliability",
            help="Of runs with --calibrate: how often rows have the class, against its probability.",
        ),
    ] = False,
) -> None:
    """Compare runs: the gap against reads, bytes and seconds, or how far probabilities are right."""
    from ooc_svm.cli import reliability as diagrams

    if output is None:
        found = diagrams.curves_table(diagrams.read_curves(reports)) if reliability else None
        typer.echo(runs_table(read_reports(reports)) if found is None else found)
        return

    from ooc_svm.cli.pictures import Picture, check_picture_target, draw, write_picture

    check_picture_target(output)
    if reliability:
        curves = diagrams.read_curves(reports)
        rows = diagrams.table_rows(curves)
        picture = Picture(diagrams.TITLE, partial(diagrams.draw_curves, curves), diagrams.HEAD, rows)
    else:
        runs = read_reports(reports)
        picture = Picture("Training runs", partial(draw, runs), HEAD, table_rows(runs))
    write_picture(picture, output)


def read_reports(paths: Sequence[str]) -> list[RunReport]:
    """The runs of some reports, with names that tell them apart.

    InputError if a file is no report; also as `load_model` and reading do.
    """
    named = named_reports(paths)
    return [
        RunReport(name, facts, _course(path, facts), _number(facts, "tol"))
        for path, (name, facts) in zip(paths, named, strict=True)
    ]


def named_reports(paths: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """What some reports hold, with names that tell them apart; InputError if a file is no JSON."""
    found = [_read(path) for path in paths]
    names = zip(_names(paths), _differences(found), strict=True)
    return [(f"{name}{differs}", facts) for (name, differs), facts in zip(names, found, strict=True)]


def _read(path: str) -> dict[str, Any]:
    """The report in a file of JSON or in a model."""
    from ooc_svm.model.file import MODEL_FILE, load_model
    from ooc_svm.system.arrayfile import has_magic
    from ooc_svm.system.files import exists, open_to_read

    if not exists(path):
        raise InputError(f"{path} does not exist; check the path")
    if os.path.isdir(path):
        raise _no_report(path)
    if has_magic(path, MODEL_FILE):
        return load_model(path).report
    with open_to_read(path) as file:
        content = file.read(MOST_BYTES + 1)
    try:
        found = json.loads(content) if len(content) <= MOST_BYTES else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise _no_report(path)
    return found


def _no_report(path: str) -> InputError:
    return InputError(f"{path} is no report of a training; make one with train --report FILE.json")


def _course(path: str, facts: Mapping[str, Any]) -> Course:
    history = facts.get("history")
    if not isinstance(history, list) or not all(isinstance(row, dict) for row in history):
        raise _no_report(path)
    names = ("pass", "bytes_read", "seconds", "relative_gap")
    points: list[list[Any]] = [[_number(row, name) for name in names] for row in history]
    whole = [point for point in _of_all_models(history, points) if None not in point and point[-1] > 0]
    if not history or any(None in point[:3] for point in points) or _number(facts, "passes") is None:
        raise _no_report(path)
    columns: Any = list(zip(*whole, strict=True)) or [()] * 4
    return Course(*map(list, columns))


def _of_all_models(history: Sequence[Mapping[str, Any]], points: Sequence[list[Any]]) -> list[list[Any]]:
    """The points of the last batch, with the gap of the worst model, those of the batches before included."""
    batches = [row.get("batch") for row in history]
    last = [point for point, batch in zip(points, batches, strict=True) if batch == batches[-1]]
    ends = [
        gap
        for (*_, gap), batch, following in zip(points, batches, batches[1:], strict=False)
        if batch != following
    ]
    worst = None if None in ends else max(ends, default=0)
    return [[*costs, None if None in (gap, worst) else max(gap, worst)] for *costs, gap in last]


def _final_gap(run: RunReport) -> str:
    """That of the worst model as it was left, those of folds included; the last of the course without any."""
    owners = (run.facts, run.facts.get("tuning"), run.facts.get("calibration"))
    lists = [owner.get("models") for owner in owners if isinstance(owner, dict)]
    models = [model for each in lists if isinstance(each, list) for model in each if isinstance(model, dict)]
    gaps = [_number(model, "relative_gap") for model in models if model.get("absolute") is not True]
    if models and not gaps:
        return "P is 0"
    gaps = gaps or run.course.gaps[-1:]
    return bound(None if None in gaps else max(gaps, default=None))


def number_of(facts: Mapping[str, Any], name: str) -> float:
    """A finite number that is not negative; ValueError where there is none."""
    if (value := _number(facts, name)) is None:
        raise ValueError(f"{name} is no number")
    return float(value)


def _number(facts: Mapping[str, Any], name: str) -> Any:
    """A finite number that is not negative; None where there is none."""
    value: Any = facts.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and 0 <= value <= sys.float_info.max else None


def _names(paths: Sequence[str]) -> list[str]:
    """Names of files without folders and endings, if they differ, else the paths."""
    short_names = [os.path.splitext(os.path.basename(path))[0] for path in paths]
    names = short_names if len(set(short_names)) == len(short_names) else paths
    return [name.encode(errors="backslashreplace").decode() for name in names]  # Of bytes that are no text


def _differences(reports: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is not the same in all reports: `` (ocas, C 0.1)``."""
    told: list[list[str]] = [[] for _ in reports]
    for name in TELLING:
        values = [facts.get(name) for facts in reports]
        if len({str(value) for value in values if value is not None}) > 1:
            for own, value in zip(told, values, strict=True):
                own += (
                    [] if value is None else [value if isinstance(value, str) else f"{name} {_shown(value)}"]
                )
    costs = [_costs(facts) for facts in reports]
    if len(set(costs)) > 1:
        for own, C in zip(told, costs, strict=True):
            own += [f"C {C}"] if C else []
    return [f" ({', '.join(own)})" if own else "" for own in told]


def _shown(value: Any) -> str:
    return (
        f"{value:,}" if isinstance(value, int) else f"{value:.3g}" if isinstance(value, float) else str(value)
    )


def _costs(facts: Mapping[str, Any]) -> str:
    models = facts.get("models")
    listed = (
        [_number(model, "C") for model in models if isinstance(model, dict)]
        if isinstance(models, list)
        else []
    )
    return ", ".join(f"{C:g}" for C in dict.fromkeys(listed) if C is not None)


HEAD = ("run", "passes", "read", "time", "to 1e-1", "to 1e-2", "to 1e-3", "gap", "certified")


def table_rows(runs: Sequence[RunReport]) -> list[tuple[str, ...]]:
    """What each run took: in all, and passes and time until gaps of some sizes."""
    return [_table_row(run) for run in runs]


def _table_row(run: RunReport) -> tuple[str, ...]:
    facts, course = run.facts, run.course
    read, time = _number(facts, "bytes_read"), _number(facts, "seconds")
    return (
        run.name,
        str(facts["passes"]),
        "-" if read is None else format_size(read),
        "-" if time is None else format_seconds(time),
        *(_until(course, gap) for gap in (1e-1, 1e-2, 1e-3)),
        _final_gap(run),
        "yes" if facts.get("converged") is True else "no",
    )


def _until(course: Course, gap: float) -> str:
    """The pass and the time at which the gap was this small; a dash if it never was."""
    for passes, time, found in zip(course.passes, course.seconds, course.gaps, strict=True):
        if found <= gap:
            return f"{count(passes, 'pass')}, {format_seconds(time)}"
    return "-"


def runs_table(runs: Sequence[RunReport]) -> str:
    """The table for people."""
    return table(HEAD, table_rows(runs))

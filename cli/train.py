"""``ooc-svm train`` and ``ooc-svm plan``."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ooc_svm.cli.json_output import check_json_target, write_json
from ooc_svm.cli.options import FeatureNames, Quiet, argument, grid_of, option, takes_training
from ooc_svm.cli.paths import check_data, check_no_folder, check_store, check_target, file_kind, place_of
from ooc_svm.cli.reading import (
    TEXT,
    BadLines,
    Dtype,
    Features,
    IndexBase,
    Labels,
    MaxBadLines,
    MultiLabel,
    label_kind,
)
from ooc_svm.cli.report import certificate
from ooc_svm.conversion.options import INPUTS
from ooc_svm.errors import Interrupted, UsageError, parameter, shown
from ooc_svm.parameters import FOLDS, LOCAL_PATH, PATH, PRICE
from ooc_svm.system.address import address_of
from ooc_svm.system.signals import handle_signals

if TYPE_CHECKING:
    from ooc_svm.training.progress import Progress

StorePath = Annotated[
    str, argument(PATH, metavar="STORE", help="A store, or an AnnData Zarr store with a CSR X.")
]
TrainData = Annotated[
    list[str],
    argument(
        INPUTS,
        metavar="DATA",
        help="A store, an AnnData Zarr store with a CSR X, or SVMlight text: files, plain or as .gz, .bz2, "
        ".xz or .zst; - for standard input.",
    ),
]

Folds = Annotated[
    Any,
    option(
        FOLDS,
        metavar="N",
        help="Folds that the rows are shared out into, classes evenly, of ranking whole queries; by default "
        "5, or none with --validation.",
    ),
]
ReportFile = Annotated[
    str | None,
    option(file_kind(PATH), metavar="FILE.json", help="Also write the report of the run to this file."),
]
GridOption = Annotated[
    list[str] | None,
    typer.Option(
        "--grid",
        metavar="NAME=FLOAT[,FLOAT...]",
        help="Values of nu, p, epsilon, gamma, degree or coef0 that tune compares, in all combinations with "
        "those of --C; may be repeated.",
    ),
]
LogFile = Annotated[
    str | None,
    option(
        file_kind(LOCAL_PATH),
        metavar="FILE.jsonl",
        help="Also append a line of JSON to this file after each pass.",
    ),
]


@takes_training
def train(
    options: dict[str, Any],
    data: TrainData,
    output: Annotated[
        str | None,
        option(
            file_kind(PATH),
            "--output",
            "-o",
            metavar="MODEL",
            help="The model file to write; by default the name of DATA with .model, in this folder.",
        ),
    ] = None,
    store: Annotated[
        str | None,
        option(
            file_kind(PATH),
            metavar="STORE",
            help="Keep the store that is made of text; by default it is removed.",
            heading=TEXT,
        ),
    ] = None,
    index_base: IndexBase = None,
    features: Features = None,
    dtype: Dtype = None,
    labels: Labels = None,
    multilabel: MultiLabel = False,
    bad_lines: BadLines = None,
    max_bad_lines: MaxBadLines = None,
    report: ReportFile = None,
    log: LogFile = None,
    feature_names: FeatureNames = None,
    quiet: Quiet = False,
) -> None:
    """Train to a certified gap.

    Text is made into a store first; the options --store, --index-base, --features, --dtype, --labels,
    --multilabel, --bad-lines and --max-bad-lines are for text only. A model of this program at the place of
    MODEL is replaced.
    """
    if len(data) > 1 and data[-1] != "-" and address_of(data[-1]) is None and not os.path.lexists(data[-1]):
        raise UsageError(f"{data[-1]} does not exist; if it is to be the model, name it by -o {data[-1]}")
    output = default_model(data) if output is None else output
    checkpoint = options["checkpoint"]
    check_names(
        {"-o": output, "--report": report, "--log": log, "--store": store, "--checkpoint": checkpoint}
    )

    from ooc_svm.cli.progress import Hints, train_progress
    from ooc_svm.cli.progress_log import pass_log
    from ooc_svm.model.file import save_model
    from ooc_svm.training.train import train as run

    check_data([*data, options["validation"]])
    check_results(output, report, log, checkpoint)
    hints = Hints(quiet)
    with pass_log(log) as lines, handle_signals(announced=True):
        stopped: Interrupted | None = None
        try:
            with train_progress(quiet) as show:
                model = run(
                    data if len(data) > 1 else data[0],
                    feature_names=feature_names,
                    store=store,
                    index_base=index_base,
                    features=features,
                    dtype=dtype,
                    labels=label_kind(labels, multilabel),
                    bad_lines=bad_lines,
                    max_bad_lines=max_bad_lines,
                    progress=to_all(hints, show, None if lines is None else lines.write),
                    **options,
                )
        except Interrupted as stop:
            if stop.model is None:
                raise
            stopped, model = stop, stop.model
        save_model(model, output)  # a signal that comes now waits for it
        if report is not None:
            write_json(report, model.report)
    from ooc_svm.system.files import file_size

    typer.echo(certificate(model.report, options["tol"], output, file_size(output)))
    hints.rest(model.report)
    if stopped is not None:
        raise stopped


def check_results(model: str, report: str | None, log: str | None, checkpoint: Any) -> None:
    """Refuse files that could not be written at the end, and any place in a store."""
    from ooc_svm.model.file import check_model_target
    from ooc_svm.system.files import check_writable
    from ooc_svm.training.checkpoint import check_folder

    if checkpoint == "-":
        raise UsageError(f"{parameter('checkpoint')} cannot be -, standard output: name a folder")
    if checkpoint is not None:
        check_folder(checkpoint)
        place = os.fspath(checkpoint)
        if address_of(place) is None and os.path.lexists(place) and not os.path.isdir(place):
            raise UsageError(
                f"{place}: is not a folder, so nothing is saved in it; give {parameter('checkpoint')} "
                "another name"
            )
    check_target(log)
    if log is not None:
        check_no_folder(log)
    check_target(model)
    check_model_target(model)
    check_writable(model)
    if report is not None:
        check_json_target(report)


def check_names(targets: dict[str, Any]) -> None:
    """Refuse two files, or a file and a folder, of one name."""
    named: dict[str, str] = {}
    for option_name, path in targets.items():
        if path is None:
            continue
        other = named.setdefault(place_of(path), option_name)
        if other != option_name:
            raise UsageError(
                f"{option_name} and {other} name the same file or folder {str(path)!r}; give two names"
            )


def to_all(*functions: Callable[[Progress], None] | None) -> Callable[[Progress], None]:
    """A function that gives an event to all of the functions that are there."""
    wanted = [function for function in functions if function is not None]

    def tell(event: Progress) -> None:
        for function in wanted:
            function(event)

    return tell


def default_model(data: list[str]) -> str:
    """The name of the model where none was given: as LIBLINEAR has it."""
    name = os.path.basename(data[0].rstrip("/"))
    if len(data) > 1 or data[0] == "-" or not name:
        what = "several files" if len(data) > 1 else "standard input" if data[0] == "-" else shown(data[0])
        raise UsageError(f"a model of {what} has no name of its own; name the file to write by -o")
    return f"{name}.model"


@takes_training
def plan(
    options: dict[str, Any],
    data: StorePath,
    folds: Annotated[
        Any,
        option(FOLDS, metavar="N", help="Show what tune with so many folds will need; by default train."),
    ] = None,
    grid: GridOption = None,
    price_get: Annotated[
        Any,
        option(PRICE, metavar="FLOAT", help="Of a store in a bucket: the price of 1,000 requests that read."),
    ] = None,
    price_gb: Annotated[
        Any,
        option(PRICE, metavar="FLOAT", help="Of a store in a bucket: the price of a gigabyte that is read."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Show what training or tuning will need, and run nothing."""
    check_store(data)

    from ooc_svm.training.plan import plan as run

    planned = run(
        data, folds=folds, grid=grid_of(grid), price_get=price_get or 0.0, price_gb=price_gb or 0.0, **options
    )
    typer.echo(json.dumps(planned.to_json(), indent=2) if as_json else "\n".join(planned.lines()))

"""``ooc-svm train`` and ``ooc-svm plan``."""

from __future__ import annotations

import json
import os
from typing import Annotated, Any

import typer

from ooc_svm.cli.json_output import check_json_target, write_json
from ooc_svm.cli.options import Quiet, takes_training
from ooc_svm.cli.report import certificate
from ooc_svm.errors import Interrupted, UsageError
from ooc_svm.system.signals import handle_signals

StorePath = Annotated[
    str, typer.Argument(metavar="STORE", help="A store, or an AnnData Zarr store with a CSR X.")
]


@takes_training
def train(
    options: dict[str, Any],
    store: StorePath,
    output: Annotated[str, typer.Option("--output", "-o", metavar="MODEL", help="The model file to write.")],
    report: Annotated[
        str | None, typer.Option(metavar="FILE.json", help="Also write the report of the run to this file.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Train to a certified gap."""
    if report is not None and os.path.realpath(report) == os.path.realpath(output):
        raise UsageError(f"--report and -o name the same file {report!r}; give two names")

    from ooc_svm.cli.progress import train_progress
    from ooc_svm.model.file import check_model_target, save_model
    from ooc_svm.system.files import check_writable
    from ooc_svm.training.train import train as run

    check_model_target(output)
    check_writable(output)
    if report is not None:
        check_json_target(report)
    with handle_signals():
        stopped: Interrupted | None = None
        try:
            with train_progress(quiet) as progress:
                model = run(store, progress=progress, **options)
        except Interrupted as stop:
            if stop.model is None:
                raise
            stopped, model = stop, stop.model
        save_model(model, output)  # a signal that comes now waits for it
        if report is not None:
            write_json(report, model.report)
    typer.echo(certificate(model.report, options["tol"], output, os.path.getsize(output)))
    if stopped is not None:
        raise stopped


@takes_training
def plan(
    options: dict[str, Any],
    store: StorePath,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Show what training will need, and run nothing."""
    from ooc_svm.training.plan import plan as run

    planned = run(store, **options)
    typer.echo(json.dumps(planned.to_json(), indent=2) if as_json else "\n".join(planned.lines()))

"""``ooc-svm predict`` and ``ooc-svm evaluate``."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from ooc_svm.cli.exit_codes import complain
from ooc_svm.cli.format import block, count
from ooc_svm.cli.json_output import check_json_target, write_json
from ooc_svm.cli.options import Label, Memory, SelectedC, Threads

ModelPath = Annotated[str, typer.Argument(metavar="MODEL", help="A model file.")]
DataPath = Annotated[
    str,
    typer.Argument(metavar="DATA", help="A store, or SVMlight text as for convert; - for standard input."),
]


def predict(
    model: ModelPath,
    data: DataPath,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="The file to write; by default standard output."),
    ] = None,
    scores: Annotated[
        bool, typer.Option("--scores", help="Write the decision scores after each label or value.")
    ] = False,
    C: SelectedC = None,
    label: Label = None,
    threads: Threads = None,
    memory: Memory = None,
) -> None:
    """Predict the label or the value of each row.

    Writes one line for each row: the label or value, with --scores also the decision scores.
    """
    from ooc_svm.model.file import load_model
    from ooc_svm.prediction.predict import predict as run

    target = sys.stdout.buffer if output is None else output
    written = run(
        load_model(model),
        data,
        output=target,
        scores=scores,
        threads=threads,
        memory=memory,
        label=label,
        C=C,
    )
    ignored = written.ignored
    if ignored.entries:
        complain(
            "warning",
            f"{count(ignored.rows, 'row')} of {written.rows:,} have features that the model does not have; "
            f"{count(ignored.entries, 'value')} ignored",
        )


class EvaluateCommand(TyperCommand):
    """The command, with a list of the metrics at the end of its help."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the metrics that fit what a model predicts."""
        from ooc_svm.evaluation.metrics import COUNTS_OF, fitting_metrics

        with formatter.section("Metrics, by what the model predicts"):
            formatter.write_dl([(each, ", ".join(fitting_metrics(each))) for each in COUNTS_OF])


def evaluate(
    model: ModelPath,
    data: DataPath,
    metric: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A metric of the list below; may be given several times."),
    ] = None,
    json_file: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE|-", help="Write the metrics as JSON; - to standard output."),
    ] = None,
    C: SelectedC = None,
    label: Label = None,
    threads: Threads = None,
    memory: Memory = None,
) -> None:
    """Compare predictions with the labels of the data."""
    if json_file not in (None, "-"):
        check_json_target(json_file)

    from ooc_svm.evaluation.evaluate import evaluate as run
    from ooc_svm.model.file import json_ready, load_model

    found = run(load_model(model), data, metric or None, threads=threads, memory=memory, label=label, C=C)
    if json_file == "-":
        typer.echo(json.dumps(json_ready(found), indent=2, allow_nan=False))
        return
    if json_file is not None:
        write_json(json_file, found)
    typer.echo(block((name, f"{value:.6g}") for name, value in found.items()))

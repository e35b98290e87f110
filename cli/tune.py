"""``ooc-svm tune``."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from ooc_svm.cli.json_output import write_json
from ooc_svm.cli.options import FeatureNames, Quiet, grid_of, option, takes_training
from ooc_svm.cli.paths import check_data, check_store, file_kind
from ooc_svm.cli.report import certificate, comparison
from ooc_svm.cli.train import (
    Folds,
    GridOption,
    LogFile,
    ReportFile,
    StorePath,
    check_names,
    check_results,
    default_model,
    to_all,
)
from ooc_svm.options import OPTIONS
from ooc_svm.parameters import PATH, RULE, TEXT
from ooc_svm.system.signals import handle_signals

# Metavar and help of the options of training that mean something else here than for ``train``.
OWN_TEXTS = {
    "validation": (
        "STORE",
        "Another store to compare on, in place of folds: the models of all rows are measured on it once, at "
        "the end. By default folds are compared.",
    ),
    "calibrate": (
        OPTIONS["calibrate"].metavar,
        "Give probabilities, by default none, fitted to scores of rows that models were trained without: of "
        "the folds that are compared, or with --validation of five folds of their own.",
    ),
    "seed": (
        OPTIONS["seed"].metavar,
        "Seed of the order of steps of streamed-smo and smo, of the rows that block-smo draws, and of folds.",
    ),
}


@partial(takes_training, own_texts=OWN_TEXTS)
def tune(
    options: dict[str, Any],
    data: StorePath,
    output: Annotated[
        str | None,
        option(
            file_kind(PATH),
            "--output",
            "-o",
            metavar="MODEL",
            help="The model file to write; by default the name of STORE with .model, in this folder.",
        ),
    ] = None,
    folds: Folds = None,
    metric: Annotated[
        str | None,
        option(
            TEXT,
            metavar="NAME",
            help="Metric to compare by, one of evaluate that fits the problem; by default accuracy for "
            "svc and nu-svc, micro-f1 for sets of labels, r2 for svr and nu-svr, kendall-tau for ordinal, "
            "auc for roc-area, ndcg@10 for ranking.",
        ),
    ] = None,
    rule: Annotated[
        str,
        option(
            RULE,
            metavar="best|one-standard-error",
            help="Choose the C of the best mean, or the least C at most one standard error worse.",
        ),
    ] = "best",
    grid: GridOption = None,
    report: ReportFile = None,
    log: LogFile = None,
    feature_names: FeatureNames = None,
    quiet: Quiet = False,
) -> None:
    """Choose C, and other numbers, by cross-validation, and train with them.

    For each C of --C, and each combination of the values of --grid, a model is trained without each fold and
    measured on it, and one is trained on all rows. All of them share each read of the data. MODEL has those
    of all rows for each C, and predicts with the C that is chosen; the report has the comparison.
    --validation names a store to measure on in place of folds.
    """
    output = default_model([data]) if output is None else output
    checkpoint = options["checkpoint"]
    check_names({"-o": output, "--report": report, "--log": log, "--checkpoint": checkpoint})

    from ooc_svm.cli.progress import Hints, train_progress
    from ooc_svm.cli.progress_log import pass_log
    from ooc_svm.model.file import save_model
    from ooc_svm.training.tune import tune as run

    check_store(data)
    check_data([options["validation"]])
    check_results(output, report, log, checkpoint)
    hints = Hints(quiet)
    with pass_log(log) as lines, handle_signals(announced=True):
        with train_progress(quiet) as show:
            model = run(
                data,
                feature_names=feature_names,
                folds=folds,
                metric=metric,
                rule=rule,
                grid=grid_of(grid),
                progress=to_all(hints, show, None if lines is None else lines.write),
                **options,
            )
        save_model(model, output)  # a signal that comes now waits for it
        if report is not None:
            write_json(report, model.report)
    from ooc_svm.system.files import file_size

    typer.echo(certificate(model.report, options["tol"], output, file_size(output)))
    typer.echo(f"\n{comparison(model.report['tuning'])}")
    hints.rest(model.report)

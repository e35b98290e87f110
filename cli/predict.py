"""``ooc-svm predict`` and ``ooc-svm evaluate``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from ooc_svm.cli.format import block, count, printable, shortened, table
from ooc_svm.cli.habits import PredictsWithHabits
from ooc_svm.cli.json_output import check_csv_target, check_json_target, write_json
from ooc_svm.cli.options import (
    Cache,
    CacheSize,
    FeatureNames,
    Label,
    Layer,
    Memory,
    ModelPath,
    SelectedC,
    Threads,
    Unlabelled,
    argument,
    option,
)
from ooc_svm.cli.paths import check_model, check_no_folder, check_target, check_text_target, file_kind
from ooc_svm.cli.report import MOST_MODELS
from ooc_svm.parameters import INDEX_BASE, MISSING_FEATURES, PATH, TEXT

if TYPE_CHECKING:
    from ooc_svm.evaluation.report import ClassScores, EvaluationReport

DataPath = Annotated[
    str,
    argument(PATH, metavar="DATA", help="A store, or SVMlight text as for convert; - for standard input."),
]

MissingFeatures = Annotated[
    str,
    option(
        MISSING_FEATURES,
        metavar="error|zero",
        help="Refuse data that lack features of the model, or take them as 0.",
    ),
]

IndexBase = Annotated[
    Any,
    option(
        INDEX_BASE,
        metavar="1|0",
        help="Number of the first feature in text; by default as in the text of training, or 1.",
    ),
]


def predict(
    model: ModelPath,
    data: DataPath,
    output: Annotated[
        str | None,
        option(
            PATH,
            "--output",
            "-o",
            metavar="FILE",
            help="The file to write, by default and with - standard output; .csv, .tsv or .parquet makes a "
            "table.",
        ),
    ] = None,
    scores: Annotated[
        bool, typer.Option("--scores", help="Write the decision scores after each label or value.")
    ] = False,
    probabilities: Annotated[
        bool,
        typer.Option(
            "--probabilities",
            help="Write the probabilities of the labels; with --calibrate or --loss logistic.",
        ),
    ] = False,
    to_obs: Annotated[
        str | None,
        option(
            TEXT,
            "--to-obs",
            metavar="COLUMN",
            help="Write into a new column of obs of the AnnData store instead, scores into COLUMN_score.",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the columns of --to-obs.")] = False,
    C: SelectedC = None,
    label: Label = None,
    layer: Layer = None,
    feature_names: FeatureNames = None,
    missing_features: MissingFeatures = "error",
    index_base: IndexBase = None,
    threads: Threads = None,
    memory: Memory = None,
    cache: Cache = None,
    cache_size: CacheSize = None,
) -> None:
    """Predict the label or the value of each row.

    Writes one line for each row: the label, the labels with commas between them, or the value; with --scores
    or --probabilities columns separated by tabs, their names in the first line: the labels or value, and the
    numbers. A file whose name ends in .csv, .tsv or .parquet is a table with named columns.
    """
    check_model("predict", model, data)
    if to_file := output not in (None, "-"):
        check_target(output, [feature_names])
        check_no_folder(str(output))
        check_text_target(str(output))

    from ooc_svm.model.file import load_model
    from ooc_svm.prediction.predict import predict as run

    place: dict[str, Any] = {"to_obs": to_obs, "overwrite": overwrite}
    if to_obs is None or output is not None:
        place["output"] = output if to_file else sys.stdout.buffer
    run(
        load_model(model),
        data,
        **place,
        scores=scores,
        probabilities=probabilities,
        threads=threads,
        memory=memory,
        label=label,
        layer=layer,
        C=C,
        feature_names=feature_names,
        missing_features=cast(Literal["error", "zero"], missing_features),
        index_base=index_base,
        cache=cache,
        cache_size=cache_size,
    )


class EvaluateCommand(PredictsWithHabits):
    """The command, with a list of the metrics at the end of its help."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the example, and the metrics that fit what a model predicts."""
        super().format_epilog(ctx, formatter)
        from ooc_svm.evaluation.metrics import COUNTS_OF, fitting_metrics

        with formatter.section("Metrics, by what the model predicts"):
            fitting = {each: fitting_metrics(each, probabilities=True) for each in COUNTS_OF}
            formatter.write_dl([(each, ", ".join(names)) for each, names in fitting.items()])


def evaluate(
    model: ModelPath,
    data: DataPath,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            metavar="NAME[,NAME...]",
            help="Metrics of the list below; may be given several times.",
        ),
    ] = None,
    json_file: Annotated[
        str | None,
        option(PATH, "--json", metavar="FILE|-", help="Write the metrics as JSON; - to standard output."),
    ] = None,
    confusion: Annotated[
        str | None,
        option(
            file_kind(PATH),
            metavar="FILE.csv",
            help="Write the rows of each class by what they are predicted as, a line for each such pair.",
        ),
    ] = None,
    C: SelectedC = None,
    label: Label = None,
    layer: Layer = None,
    unlabelled: Unlabelled = "error",
    feature_names: FeatureNames = None,
    missing_features: MissingFeatures = "error",
    index_base: IndexBase = None,
    threads: Threads = None,
    memory: Memory = None,
    cache: Cache = None,
    cache_size: CacheSize = None,
) -> None:
    """Compare predictions with the labels of the data.

    Of several classes, or of sets of labels, a table follows the metrics, with a line for each.
    """
    check_model("evaluate", model, data)
    if json_file not in (None, "-"):
        check_json_target(json_file)
    if confusion is not None:
        check_csv_target(confusion, {model, data, json_file, feature_names})

    from ooc_svm.evaluation.evaluate import evaluation_report
    from ooc_svm.model.file import json_ready, load_model

    found = evaluation_report(
        load_model(model),
        data,
        [name.strip() for names in metrics or () for name in names.split(",")] or None,
        confusion=confusion is not None,
        threads=threads,
        memory=memory,
        label=label,
        layer=layer,
        unlabelled=unlabelled,
        C=C,
        feature_names=feature_names,
        missing_features=cast(Literal["error", "zero"], missing_features),
        index_base=index_base,
        cache=cache,
        cache_size=cache_size,
    )
    if confusion is not None:
        found.write_confusion(confusion)
    if json_file == "-":
        typer.echo(json.dumps(json_ready(found.to_json()), indent=2, allow_nan=False))
        return
    if json_file is not None:
        write_json(json_file, found.to_json())
    typer.echo(_evaluated(found))


def _evaluated(found: EvaluationReport) -> str:
    """The metrics, what was left out, and a table of the classes."""
    facts = [(name, f"{value:.6g}") for name, value in found.metrics.items()]
    if found.n_unlabelled:
        facts.append(("left out", f"{count(found.n_unlabelled, 'row')} without a label"))
    if found.n_unknown:
        facts.append(("left out", f"{count(found.n_unknown, 'row')} of classes that the model does not know"))
    if found.unknown_labels:
        named = shortened([f"{printable(text)}: {rows:,}" for text, rows in found.unknown_labels.items()])
        facts.append(("not predicted", f"labels that the model does not know, in rows: {named}"))
    return block(facts) + (f"\n\n{_class_table(found.classes)}" if found.classes else "")


def _class_table(classes: Sequence[ClassScores]) -> str:
    """A line for each class; of many classes those of the smallest F1."""
    listed = classes
    if len(classes) > MOST_MODELS:
        listed = sorted((each for each in classes if each.support), key=lambda each: each.f1)[:MOST_MODELS]
    rows = [
        (each.label, f"{each.precision:.4f}", f"{each.recall:.4f}", f"{each.f1:.4f}", f"{each.support:,}")
        for each in listed
    ]
    text, rest = table(("class", "precision", "recall", "f1", "rows"), rows), len(classes) - len(listed)
    others = "one more class" if rest == 1 else f"{rest:,} more classes"
    more = f"\nand {others}, with a larger f1 or without rows; --json has all" if rest else ""
    return text + more

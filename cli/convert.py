"""``ooc-svm convert``: text into a store."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from ooc_svm.cli.exit_codes import complain
from ooc_svm.cli.format import block, count, describe_labels, describe_values
from ooc_svm.cli.help import Command
from ooc_svm.cli.options import InsecureCluster, Layer, Memory, Quiet, Scheduler, Threads, argument, option
from ooc_svm.cli.paths import check_data, check_target, file_kind
from ooc_svm.cli.reading import (
    BadLines,
    Dtype,
    Features,
    IndexBase,
    Labels,
    MaxBadLines,
    MultiLabel,
    label_kind,
)
from ooc_svm.conversion.options import CONVERT_KINDS as KINDS
from ooc_svm.conversion.options import INPUTS
from ooc_svm.errors import InputError, UsageError
from ooc_svm.options import ENGINES
from ooc_svm.options.option import CLUSTER_HEADING
from ooc_svm.parameters import PATH
from ooc_svm.system.address import address_of
from ooc_svm.system.amounts import format_seconds
from ooc_svm.system.memory import format_size
from ooc_svm.system.recognition import is_zarr

if TYPE_CHECKING:
    from ooc_svm.conversion.convert import ConvertReport

DEFAULT_SEED = 0
ORDER = "Order of the rows"  # Heading of the help


class ConvertCommand(Command):
    """The command, with an option whose value may be left out: ``--shuffle [SEED]``."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Put in the default seed where none follows, then parse as ever."""
        end = args.index("--") if "--" in args else len(args)
        for place in range(end):
            if args[place] == "--shuffle" and not re.fullmatch("[0-9]+", (args[place + 1 : end] or [""])[0]):
                args = [*args[:place], f"--shuffle={DEFAULT_SEED}", *args[place + 1 :]]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What follows the name of the command, with the option that only --sweep does without."""
        return [*super().collect_usage_pieces(ctx), "-o STORE"]


def convert(
    inputs: Annotated[
        list[str],
        argument(
            INPUTS,
            metavar="INPUT",
            help="SVMlight text, plain or as .gz, .bz2, .xz or .zst, - for standard input; or one file of "
            "AnnData (.h5ad, .zarr) or SciPy (.npz), or Parquet.",
        ),
    ],
    output: Annotated[
        str | None,
        option(
            file_kind(KINDS["output"]),
            "--output",
            "-o",
            metavar="STORE",
            help="The store to make; always needed, but for --sweep.",
        ),
    ] = None,
    index_base: IndexBase = "1",
    features: Features = None,
    feature_names: Annotated[
        str | None,
        option(PATH, metavar="FILE", help="Names of the features, one a line; the store keeps them."),
    ] = None,
    dtype: Dtype = "float32",
    labels: Labels = "numbers",
    multilabel: MultiLabel = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a store that is there.")] = False,
    bad_lines: BadLines = "stop",
    max_bad_lines: MaxBadLines = None,
    shuffle: Annotated[
        Any,
        option(
            KINDS["shuffle"],
            metavar="[SEED]",
            help="Rows in random order; the same seed gives the same order.",
            heading=ORDER,
        ),
    ] = None,
    group: Annotated[
        bool,
        typer.Option(
            "--group",
            help="Rows of equal qid together, groups in the order of their first rows.",
            rich_help_panel=ORDER,
        ),
    ] = False,
    threads: Threads = None,
    memory: Memory = None,
    engine: Annotated[
        str,
        option(
            KINDS["engine"],
            metavar="|".join(ENGINES),
            help="In threads, or in processes of a dask cluster.",
            heading=CLUSTER_HEADING,
        ),
    ] = "local",
    scheduler: Scheduler = None,
    insecure_cluster: InsecureCluster = False,
    layer: Layer = None,
    labels_file: Annotated[
        str | None,
        option(
            KINDS["labels_file"],
            metavar="FILE",
            help="Labels for a matrix of SciPy (.npz): a .npy file, or a number on each line.",
        ),
    ] = None,
    sweep: Annotated[
        bool,
        typer.Option(
            "--sweep",
            help="Convert nothing: remove what killed runs have left of these stores in a bucket.",
        ),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Convert SVMlight text, AnnData, .npz or Parquet into a store, once."""
    if sweep:
        _sweep(inputs)
        return
    if output is None:
        raise UsageError("name the store to make by -o STORE")
    _check_inputs(inputs)
    check_target(output)

    from ooc_svm.cli.progress import byte_progress
    from ooc_svm.conversion.convert import convert as run

    with byte_progress("convert", quiet) as progress:
        report = run(
            inputs,
            output,
            index_base=index_base,
            features=features,
            feature_names=feature_names,
            dtype=dtype,
            labels=label_kind(labels, multilabel) or "numbers",
            overwrite=overwrite,
            bad_lines=bad_lines,
            max_bad_lines=max_bad_lines,
            shuffle=shuffle,
            group=group,
            threads=threads,
            memory=memory,
            engine=cast(Literal["local", "dask"], engine),
            scheduler=scheduler,
            insecure_cluster=insecure_cluster,
            layer=layer,
            labels_file=labels_file,
            progress=progress,
        )
    typer.echo(_summary(report, output))
    for warning in report.warnings:
        complain("warning", warning)


def _check_inputs(inputs: list[str]) -> None:
    """Refuse files and folders that are no data."""
    check_data(inputs)
    for path in inputs:
        if address_of(path) is None and os.path.isdir(path) and not is_zarr(path):
            raise InputError(f"{path} is a folder, and no Zarr store; give files, or a store of AnnData")


def _sweep(stores: list[str]) -> None:
    """Remove leftovers."""
    from ooc_svm.store import sweep_store

    for path in stores:
        typer.echo(f"{path}: {count(sweep_store(path), 'object')} removed")


def _summary(report: ConvertReport, output: str) -> str:
    """What was converted, some lines for people."""
    facts = [
        ("store", output),
        ("rows", f"{report.rows:,}"),
        ("features", f"{report.features:,}"),
        ("nonzeros", f"{report.nonzeros:,} ({report.nonzeros / max(report.rows, 1):.4g} a row)"),
        ("values", describe_values(report.value_type)),
    ]
    if report.columns:
        facts.append(("columns of cells", ", ".join(report.columns)))
    else:
        facts.append(("labels", describe_labels(report.labels, report.label_names, report.label_sets)))
    if report.blank_lines + report.comment_lines:
        lines = f"{report.blank_lines:,} blank, {report.comment_lines:,} of comment"
        facts.append(("lines without a row", lines))
    if report.bad_lines:
        facts.append(("bad lines", f"{report.bad_lines:,}, see {report.rejected}"))
    if report.explicit_zeros:
        facts.append(("explicit zeros", f"{report.explicit_zeros:,}, not stored"))
    speed = f"{format_size(report.bytes_in / max(report.seconds, 1e-3))}/s of input"
    facts += [
        ("size", f"{format_size(report.bytes_in)} of input to {format_size(report.bytes_out)} in the store"),
        ("time", f"{format_seconds(report.seconds)} ({speed})"),
    ]
    return block(facts)

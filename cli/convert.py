"""``ooc-svm convert``: text into a store."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer
from typer.core import TyperCommand

from ooc_svm.cli.exit_codes import complain
from ooc_svm.cli.format import block, describe_labels, describe_values, seconds
from ooc_svm.cli.options import InsecureCluster, Memory, Quiet, Scheduler, Threads, choice
from ooc_svm.options import ENGINES
from ooc_svm.system.memory import format_size

if TYPE_CHECKING:
    from ooc_svm.conversion.convert import ConvertReport

DEFAULT_SEED = 0


class ConvertCommand(TyperCommand):
    """The command, with an option whose value may be left out: ``--shuffle [SEED]``."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Put in the default seed where none follows, then parse as ever."""
        end = args.index("--") if "--" in args else len(args)
        for place in range(end):
            if args[place] == "--shuffle" and not re.fullmatch("[0-9]+", (args[place + 1 : end] or [""])[0]):
                args = [*args[:place], f"--shuffle={DEFAULT_SEED}", *args[place + 1 :]]
        return super().parse_args(ctx, args)


def convert(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT", help="SVMlight text, plain or as .gz, .bz2, .xz or .zst; - for standard input."
        ),
    ],
    output: Annotated[str, typer.Option("--output", "-o", metavar="STORE", help="The store to make.")],
    index_base: Annotated[str, choice("1", "0", help="Number of the first feature in the text.")] = "1",
    features: Annotated[
        int | None,
        typer.Option(
            metavar="D", min=1, help="Number of features; by default up to the last one in the text."
        ),
    ] = None,
    dtype: Annotated[
        str, choice("float32", "float64", help="Precision of the values in the store.")
    ] = "float32",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a store that is there.")] = False,
    bad_lines: Annotated[
        str, choice("stop", "skip", help="Stop at a malformed line, or put it into STORE.rejected and go on.")
    ] = "stop",
    max_bad_lines: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Stop when more lines than this were skipped.")
    ] = None,
    shuffle: Annotated[
        int | None,
        typer.Option(
            metavar="[SEED]",
            min=0,
            max=2**64 - 1,
            help="Rows in random order; the same seed gives the same order.",
        ),
    ] = None,
    group: Annotated[
        bool,
        typer.Option("--group", help="Rows of equal qid together, groups in the order of their first rows."),
    ] = False,
    threads: Threads = None,
    memory: Memory = None,
    engine: Annotated[str, choice(*ENGINES, help="In threads, or in processes of a dask cluster.")] = "local",
    scheduler: Scheduler = None,
    insecure_cluster: InsecureCluster = False,
    quiet: Quiet = False,
) -> None:
    """Convert SVMlight text into a store, once."""
    from ooc_svm.cli.progress import byte_progress
    from ooc_svm.conversion.convert import convert as run

    with byte_progress("convert", quiet) as progress:
        report = run(
            inputs,
            output,
            index_base=int(index_base),
            features=features,
            dtype=dtype,
            overwrite=overwrite,
            bad_lines=cast(Literal["stop", "skip"], bad_lines),
            max_bad_lines=max_bad_lines,
            shuffle=shuffle,
            group=group,
            threads=threads,
            memory=memory,
            engine=cast(Literal["local", "dask"], engine),
            scheduler=scheduler,
            insecure_cluster=insecure_cluster,
            progress=progress,
        )
    typer.echo(_summary(report, output))
    for warning in report.warnings:
        complain("warning", warning)


def _summary(report: ConvertReport, output: str) -> str:
    """What was converted, some lines for people."""
    facts = [
        ("store", output),
        ("rows", f"{report.rows:,}"),
        ("features", f"{report.features:,}"),
        ("nonzeros", f"{report.nonzeros:,} ({report.nonzeros / max(report.rows, 1):.4g} a row)"),
        ("values", describe_values(report.value_type)),
        ("labels", describe_labels(report.labels)),
    ]
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
        ("time", f"{seconds(report.seconds)} ({speed})"),
    ]
    return block(facts)

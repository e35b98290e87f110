"""The options of reading text, for the commands that do."""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

import typer

from ooc_svm.cli.options import option
from ooc_svm.conversion.options import CONVERT_KINDS as KINDS
from ooc_svm.errors import UsageError

TEXT = "Text"  # Heading of the help

IndexBase = Annotated[
    Any,
    option(
        KINDS["index_base"],
        metavar="1|0",
        help="Number of the first feature in the text, by default 1.",
        heading=TEXT,
    ),
]
Features = Annotated[
    Any,
    option(
        KINDS["features"],
        metavar="D",
        help="Number of features; by default up to the last one in the text.",
        heading=TEXT,
    ),
]
Dtype = Annotated[
    Any,
    option(
        KINDS["dtype"],
        metavar="float32|float64",
        help="Precision of the values in the store, by default float32.",
        heading=TEXT,
    ),
]
BadLines = Annotated[
    Any,
    option(
        KINDS["bad_lines"],
        metavar="stop|skip",
        help="Stop at a malformed line (by default), or put it into STORE.rejected (of train: only with "
        "--store) and go on.",
        heading=TEXT,
    ),
]
MaxBadLines = Annotated[
    Any,
    option(
        KINDS["max_bad_lines"], metavar="N", help="Stop when more lines than this were skipped.", heading=TEXT
    ),
]
Labels = Annotated[
    Any,
    option(
        KINDS["labels"],
        metavar="numbers|text|sets",
        help="What the labels in the text are: numbers (by default), names of classes (spam 1:0.5 7:2), or "
        "sets of labels (1,3 1:0.5 7:2), none where a line begins with a blank.",
        heading=TEXT,
    ),
]
MultiLabel = Annotated[
    bool,
    typer.Option("--multilabel", help="The same as --labels sets.", rich_help_panel=TEXT),
]


def label_kind(labels: Any, multilabel: bool) -> Literal["numbers", "text", "sets"] | None:
    """What the labels are, by both options."""
    if multilabel and labels not in (None, "numbers", "sets"):
        raise UsageError(f"--multilabel and --labels {labels} contradict each other; leave one out")
    return "sets" if multilabel else cast(Literal["numbers", "text", "sets"] | None, labels)

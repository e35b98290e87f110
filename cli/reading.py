"""The options of reading text, for the commands that do."""

from __future__ import annotations

from typing import Annotated, Any

from ooc_svm.cli.options import option
from ooc_svm.conversion.options import CONVERT_KINDS as KINDS

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
        help="Stop at a malformed line (by default), or put it into STORE.rejected and go on.",
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
        metavar="numbers|text",
        help="What the labels in the text are: numbers (by default), or names of classes (spam 1:0.5 7:2).",
        heading=TEXT,
    ),
]

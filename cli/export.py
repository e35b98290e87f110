"""``ooc-svm export``."""

from __future__ import annotations

from typing import Annotated

import typer

from ooc_svm.cli.options import SelectedC, choice


def export(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model file.")],
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="The file to write.")],
    to: Annotated[str, choice("liblinear", "svmlight", help="The program that will read the file.")],
    C: SelectedC = None,
) -> None:
    """Write a model in the text format of another program."""
    from ooc_svm.model.decision import select_C
    from ooc_svm.model.export import export_model
    from ooc_svm.model.file import load_model

    export_model(select_C(load_model(model), C), output, to)

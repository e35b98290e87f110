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
    from ooc_svm.model.export import export_model
    from ooc_svm.model.model import load_model

    chosen = load_model(model)
    if C is not None:
        from ooc_svm.model.decision import select_C

        chosen = select_C(chosen, C)
    export_model(chosen, output, to)

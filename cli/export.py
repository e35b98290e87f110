"""``ooc-svm export``."""

from __future__ import annotations

from typing import Annotated

from ooc_svm.cli.options import ModelPath, SelectedC, option
from ooc_svm.parameters import EXPORT_FORMAT, PATH


def export(
    model: ModelPath,
    path: Annotated[str, option(PATH, "--output", "-o", metavar="FILE", help="The file to write.")],
    to: Annotated[
        str,
        option(
            EXPORT_FORMAT, metavar="liblinear|libsvm|svmlight", help="The program that will read the file."
        ),
    ],
    C: SelectedC = None,
) -> None:
    """Write a model in the text format of another program."""
    from ooc_svm.model.decision import select_C
    from ooc_svm.model.export import export_model
    from ooc_svm.model.file import load_model

    export_model(select_C(load_model(model), C), path, to)

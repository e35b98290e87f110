"""``ooc-svm export``."""

from __future__ import annotations

import sys
from typing import Annotated

from ooc_svm.cli.options import ModelPath, SelectedC, option
from ooc_svm.cli.paths import check_no_folder, check_target, check_text_target, refuse_no_model
from ooc_svm.parameters import EXPORT_FORMAT, PATH


def export(
    model: ModelPath,
    path: Annotated[
        str,
        option(PATH, "--output", "-o", metavar="FILE", help="The file to write; - for standard output."),
    ],
    to: Annotated[
        str,
        option(
            EXPORT_FORMAT, metavar="liblinear|libsvm|svmlight", help="The program that will read the file."
        ),
    ],
    C: SelectedC = None,
) -> None:
    """Write a model in the text format of another program."""
    refuse_no_model(model)
    if path != "-":
        check_target(path, [model])
        check_no_folder(path)
        check_text_target(path)

    from ooc_svm.model.decision import select_C
    from ooc_svm.model.export import LABELS_SUFFIX, export_model, has_names_file
    from ooc_svm.model.file import load_model

    selected = select_C(load_model(model), C)
    if path != "-" and has_names_file(selected, to):
        check_target(path + LABELS_SUFFIX, [model])
        check_text_target(path + LABELS_SUFFIX)
    export_model(selected, sys.stdout.buffer if path == "-" else path, to)

"""A user of LIBLINEAR: text straight into training, by habit with LIBLINEAR's options."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from trials.checks import lines, makes, near, says, value_of
from trials.data import (
    abalone_values,
    arxiv_documents,
    generated_documents,
    generated_values,
    tf_idf,
    write_rows,
)
from trials.session import Session

MARGIN = 0.02
CLASSES = ("sports", "trade", "weather", "arts")


def play(session: Session, size: float, real: Path | None) -> None:
    """All steps."""
    n_test, accuracy, r2 = session.prepare(_prepare, size, real)
    session.shell("ooc-svm train -s 3 -c 1 train.svm", says("--loss hinge", "--C 1"), code=2)
    session.shell("ooc-svm train -v 5 train.svm", says("-v 5"), code=2)
    session.shell("ooc-svm train --loss hinge --C 1 train.svm", says("certified"), makes("train.svm.model"))
    session.shell("ooc-svm predict test.svm train.svm.model predicted", says("ooc-svm predict"), code=2)
    session.shell("ooc-svm predict train.svm.model test.svm -o predicted; cat predicted", lines(n_test))
    evaluated = session.shell("ooc-svm evaluate train.svm.model test.svm", near("accuracy", accuracy, MARGIN))
    session.shell(
        "ooc-svm train train.svm -o grid.model --C 0.01,0.1,1 --validation 0.2 --quiet",
        says("is the best of 3, and what predict takes"),
    )
    session.shell("ooc-svm evaluate grid.model test.svm", near("accuracy", accuracy, 2 * MARGIN))

    # Names of classes.
    names = (session.folder / "names").read_text().split()
    session.shell(
        "ooc-svm train named.svm --labels text --quiet", says("certified"), makes("named.svm.model")
    )
    session.shell("ooc-svm predict named.svm.model named.t.svm | sort | uniq -c", says(*names))
    session.shell(
        "ooc-svm evaluate named.svm.model named.t.svm --confusion confusion.csv",
        says("precision", *names),
        near("accuracy", accuracy, MARGIN),
        makes("confusion.csv"),
    )
    session.shell("ooc-svm info named.svm.model --top 3", says("largest weights", *names))

    # The way back.
    session.shell(
        "ooc-svm export named.svm.model -o named.liblinear --to liblinear; cat named.liblinear.labels",
        lines(len(names)),
        says(*names),
    )
    session.shell(
        "ooc-svm export train.svm.model -o train.liblinear --to liblinear", makes("train.liblinear")
    )
    session.python(
        """
from liblinear.liblinearutil import load_model, predict, svm_read_problem
y, x = svm_read_problem("test.svm")
print("accuracy", predict(y, x, load_model("train.liblinear"), "-q")[1][0] / 100)
""",
        near("accuracy", value_of("accuracy", evaluated), 1e-6),
    )

    # Values, with the bias of -B 1.
    session.shell(
        "ooc-svm train -s 11 -p 0.1 -B 1 values.svm", says("--problem svr", "--epsilon 0.1"), code=2
    )
    session.shell(
        "ooc-svm train --problem svr --loss squared-epsilon-insensitive --bias penalized values.svm --quiet",
        says("certified", "r2"),
    )
    session.shell("ooc-svm evaluate values.svm.model values.t.svm", near("r2", r2, MARGIN))
    session.shell("ooc-svm train broken.svm", says("broken.svm:2:3"), code=3)


def _prepare(size: float, real: Path | None) -> tuple[int, float, float]:
    """Write the texts; number of rows to predict, accuracy and R2 of scikit-learn."""
    from sklearn.svm import LinearSVC, LinearSVR

    documents = arxiv_documents(real, int(20_000 * size), 8) if real else None
    if documents is None:
        documents = generated_documents(int(4000 * size), 4000, CLASSES, "word")
    train, test = documents.parts()
    weighed, tested = tf_idf(documents)
    names = sorted(set(train.classes))
    Path("names").write_text("\n".join(names))
    write_rows("train.svm", weighed, np.searchsorted(names, train.classes) + 1)
    write_rows("test.svm", tested, np.searchsorted(names, test.classes) + 1)
    write_rows("named.svm", weighed, train.classes)
    write_rows("named.t.svm", tested, test.classes)
    Path("broken.svm").write_text("1 1:0.5\n2 3:half\n")
    accuracy = (
        LinearSVC(loss="hinge", max_iter=10_000).fit(weighed, train.classes).score(tested, test.classes)
    )

    found = abalone_values(real) if real else None
    x, z = found or generated_values(int(5000 * size))
    part = np.arange(len(z)) % 5 == 0
    write_rows("values.svm", x[~part], z[~part])
    write_rows("values.t.svm", x[part], z[part])
    regressor = LinearSVR(loss="squared_epsilon_insensitive", epsilon=0.1, dual=False)
    return test.counts.shape[0], accuracy, regressor.fit(x[~part], z[~part]).score(x[part], z[part])

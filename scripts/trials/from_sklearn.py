"""A user of scikit-learn: text in a pipeline, a search, strings as labels, named columns, joblib."""

from __future__ import annotations

import json
from pathlib import Path

from trials.checks import makes, near, says, value_of
from trials.data import arxiv_documents, generated_documents
from trials.session import Session

MARGIN = 0.02
CLASSES = ("sports", "trade", "weather", "arts")


def play(session: Session, size: float, real: Path | None) -> None:
    """All steps."""
    accuracy = session.prepare(_prepare, size, real)
    names = (session.folder / "names").read_text().split()
    session.python("""
import json
data = json.load(open("documents.json"))
X_train, y_train, X_test, y_test = (data[name] for name in ("X_train", "y_train", "X_test", "y_test"))
""")
    session.python(
        """
from ooc_svm import OocSVC
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
pipeline = make_pipeline(TfidfVectorizer(), OocSVC()).fit(X_train, y_train)
print("accuracy", pipeline.score(X_test, y_test))
""",
        near("accuracy", accuracy, MARGIN),
    )
    session.python("print(*pipeline.classes_, *pipeline.predict(X_test[:3]))", says(*names))
    session.python(
        """
svc = pipeline[-1]
print(svc.coef_.shape == (len(svc.classes_), svc.n_features_in_))
print((svc.dual_gap_ > 0).all(), svc.report_["converged"])
""",
        says("True\nTrue True"),
    )
    session.python(
        """
from sklearn.model_selection import GridSearchCV
grid = {"oocsvc__C": [0.1, 1.0, 10.0], "oocsvc__loss": ["hinge", "squared-hinge"]}
search = GridSearchCV(pipeline, grid, cv=3, n_jobs=2).fit(X_train, y_train)
print(search.best_params_)
print("accuracy", search.score(X_test, y_test))
""",
        near("accuracy", accuracy, 2 * MARGIN),
    )
    kept = session.python(
        """
import joblib
joblib.dump(search.best_estimator_, "topics.joblib")
print("accuracy", search.best_estimator_.score(X_test, y_test))
""",
        makes("topics.joblib"),
    )
    session.shell(
        "python -c 'import joblib, json\n"
        'data = json.load(open("documents.json"))\n'
        'print("accuracy", joblib.load("topics.joblib").score(data["X_test"], data["y_test"]))\'',
        near("accuracy", value_of("accuracy", kept), 1e-12),
    )

    # Columns with names.
    session.python(
        """
import pandas as pd
words = pipeline[0].get_feature_names_out()
frame = pd.DataFrame.sparse.from_spmatrix(pipeline[0].transform(X_train), columns=words)
named = OocSVC(bias="penalized").fit(frame, y_train)
print((named.feature_names_in_ == words).all())
""",
        says("True"),
    )
    session.python(
        """
try:
    named.predict(frame.iloc[:10, ::-1])
except ValueError as error:
    print(error)
""",
        says("feature names", "order"),
    )
    session.python(
        """
import ooc_svm
ooc_svm.save_model(named.model_, "topics.model")
word = words[abs(named.coef_[0]).argmax()]
print(ooc_svm.load_model("topics.model").score_one({word: 1.0}))
""",
        says(*names),
    )
    session.shell("ooc-svm info topics.model --top 3", says("largest weights", *names))

    # Data beyond the memory, and what LIBLINEAR calls its own.
    session.python(
        """
ooc_svm.convert_matrix(pipeline[0].transform(X_train), y_train, "train.zarr")
streamed = OocSVC(memory="600MB").fit("train.zarr")
print("accuracy", streamed.score(pipeline[0].transform(X_test), y_test))
""",
        near("accuracy", accuracy, MARGIN),
    )
    session.python(
        """
from sklearn.svm import LinearSVC
import numpy as np
A = pipeline[0].transform(X_train)
ours = OocSVC(loss="squared-hinge", bias="penalized", tol=1e-6).fit(A, y_train)
theirs = LinearSVC(tol=1e-8, max_iter=100_000).fit(A, y_train)
print(np.abs(ours.coef_ - theirs.coef_).max() < 0.01)
""",
        says("True"),
    )
    session.prepare(_end_joblib)


def _end_joblib() -> None:
    """End the processes of the search, which would wait some minutes for another one."""
    from joblib.externals.loky import get_reusable_executor

    get_reusable_executor().shutdown()


def _prepare(size: float, real: Path | None) -> float:
    """Write the documents; the accuracy of scikit-learn."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import LinearSVC

    documents = arxiv_documents(real, int(10_000 * size), 8) if real else None
    if documents is None:
        documents = generated_documents(int(3000 * size), 4000, CLASSES, "word")
    data = {}
    for name, part in zip(("train", "test"), documents.parts(), strict=True):
        data[f"X_{name}"] = part.texts()
        data[f"y_{name}"] = part.classes.tolist()
    Path("documents.json").write_text(json.dumps(data))
    Path("names").write_text("\n".join(sorted(set(data["y_train"]))))
    reference = make_pipeline(TfidfVectorizer(), LinearSVC(loss="hinge", max_iter=10_000))
    return reference.fit(data["X_train"], data["y_train"]).score(data["X_test"], data["y_test"])

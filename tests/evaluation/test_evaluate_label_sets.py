"""Metrics of sets of labels against scikit-learn, and data that do not fit the model."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.label_data import LABELS, make_labels
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import (
    accuracy_score,
    f1_score,
    hamming_loss,
    jaccard_score,
    precision_recall_fscore_support,
)

import ooc_svm
from ooc_svm.errors import InputError, UsageError
from ooc_svm.evaluation.label_metrics import LabelCounts
from ooc_svm.evaluation.metrics import METRICS

SETS = ["micro-f1", "macro-f1", "jaccard", "subset-accuracy", "hamming-loss"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model, other rows, and a store and a text of these."""
    folder = tmp_path_factory.mktemp("labels")
    model = ooc_svm.train(make_labels().write(folder / "a.svm"), labels="sets", C=0.3)
    other = make_labels(400, seed=9)
    ooc_svm.convert(other.write(folder / "b.svm"), folder / "b.zarr", labels="sets")
    return model, other, folder / "b.zarr", folder / "b.svm"


def expected(Y, P):
    both, either = (Y & P).sum(axis=1), (Y | P).sum(axis=1)
    return {
        "micro-f1": f1_score(Y, P, average="micro", zero_division=0),
        "macro-f1": f1_score(Y, P, average="macro", zero_division=0),
        "jaccard": np.mean(np.where(either == 0, 1.0, both / np.maximum(either, 1))),
        "subset-accuracy": accuracy_score(Y, P),
        "hamming-loss": hamming_loss(Y, P),
    }


@settings(max_examples=100, deadline=None, database=None)
@given(st.data())
def test_metrics_of_any_sets(data):
    shape = data.draw(st.integers(1, 12)), data.draw(st.integers(2, 5))
    Y, P = (data.draw(arrays(np.bool_, shape)) for _ in range(2))
    counts, cut = LabelCounts(shape[1]), data.draw(st.integers(0, shape[0]))
    for part in (slice(0, cut), slice(cut, None)):
        counts.add(Y[part], P[part], np.zeros(len(Y[part]), np.int64))
    found = {name: METRICS[name].function(counts) for name in SETS}
    occurs = (Y | P).any(axis=0)
    wanted = expected(Y, P) | {"macro-f1": 0.0}
    if occurs.any():
        own = f1_score(Y, P, average=None, zero_division=0)
        wanted["macro-f1"] = own[occurs].mean()
    assert found == pytest.approx(wanted, abs=1e-12)
    empty = ~(Y | P).any(axis=1)
    samples = jaccard_score(Y, P, average="samples", zero_division=1)
    assert found["jaccard"] == pytest.approx(samples if not empty.all() else 1.0)


def test_the_same_as_scikit_learn_on_stores_and_text(trained):
    model, other, store, text = trained
    P = model.predict(other.X).astype(bool)
    wanted = expected(other.Y, P)
    for data in (store, text):
        assert ooc_svm.evaluate(model, data) == pytest.approx(wanted, abs=1e-12)
        assert list(ooc_svm.evaluate(model, data)) == SETS
    assert ooc_svm.evaluate(model, store, memory="320MB", threads=1) == ooc_svm.evaluate(model, text)
    assert model.score(store) == pytest.approx(wanted["micro-f1"])
    report = ooc_svm.evaluation_report(model, store, "jaccard")
    columns = precision_recall_fscore_support(other.Y, P, zero_division=0)
    for each, label, *numbers in zip(report.classes, LABELS, *columns, strict=True):
        assert each.label == label
        assert (each.precision, each.recall, each.f1, each.support) == pytest.approx(numbers)
    assert "unknown_labels" not in report.to_json()


def write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines))
    ooc_svm.convert(path, path.with_suffix(".zarr"), labels="sets")
    return path.with_suffix(".zarr")


def test_unknown_labels_count_as_not_predicted(trained, tmp_path):
    model, other, store, _ = trained
    lines = trained[3].read_text().splitlines()
    changed = [
        ("new" if line.startswith(" ") else "new,") * (i % 3 == 0) + line for i, line in enumerate(lines)
    ]
    data = write(tmp_path / "c.svm", changed)
    report = ooc_svm.evaluation_report(model, data)
    n_rows = sum(i % 3 == 0 for i in range(len(lines)))
    assert report.unknown_labels == {"new": n_rows}
    assert report.to_json()["unknown_labels"] == {"new": n_rows}
    new = np.arange(len(lines))[:, None] % 3 == 0
    P = model.predict(other.X).astype(bool)
    wanted = expected(np.hstack([other.Y, new]), np.hstack([P, np.zeros_like(new)]))
    assert report.metrics == pytest.approx(wanted, abs=1e-12)
    assert report.n_unknown == 0
    assert report.classes == ooc_svm.evaluation_report(model, store).classes
    left = ooc_svm.evaluation_report(model, data, unlabelled="skip")
    assert (left.n_unknown, left.unknown_labels) == (n_rows, {})
    kept = ~new[:, 0]
    assert left.metrics == pytest.approx(expected(other.Y[kept], P[kept]), abs=1e-12)


def test_no_row_has_known_labels_alone(trained, tmp_path):
    data = write(tmp_path / "c.svm", ["new 1:1", "new,1 2:1"])
    assert ooc_svm.evaluate(trained[0], data, "subset-accuracy") == {"subset-accuracy": 0.0}
    with pytest.raises(InputError, match="no rows to evaluate"):
        ooc_svm.evaluate(trained[0], data, unlabelled="skip")


def test_labels_that_were_not_trained_are_left_out(trained, tmp_path):
    _, other, store, _ = trained
    model = ooc_svm.train(store, positive=["10", "cat"], C=0.3)
    P = model.predict(other.X).astype(bool)
    assert ooc_svm.evaluate(model, store) == pytest.approx(expected(other.Y[:, 2:4], P), abs=1e-12)
    assert [each.label for each in ooc_svm.evaluation_report(model, store).classes] == ["10", "cat"]


def test_other_kinds_of_labels(trained, tmp_path):
    model, other, store, _ = trained
    (tmp_path / "a.svm").write_text("1 1:1\n2 2:1\n3 3:1\n")
    for kind in ("numbers", "text"):
        ooc_svm.convert(tmp_path / "a.svm", tmp_path / f"{kind}.zarr", labels=kind)
        with pytest.raises(InputError, match=r"has no sets of labels.*\(labels='sets'\)|labels='sets'"):
            ooc_svm.evaluate(model, tmp_path / f"{kind}.zarr")
        classes = ooc_svm.train(tmp_path / f"{kind}.zarr")
        with pytest.raises(InputError, match="has sets of labels, and the model predicts none"):
            ooc_svm.evaluate(classes, store)
        with pytest.warns(match="features that the model does not have"):
            assert len(ooc_svm.predict(classes, store)) == len(other.X)
    with pytest.raises(InputError, match="the matrix has no sets of labels"):
        ooc_svm.evaluate(model, other.X, labels=np.ones(len(other.X)))
    ranks = ooc_svm.train(tmp_path / "numbers.zarr", problem="ordinal")
    with pytest.raises(InputError, match="has sets of labels, and the model predicts none"):
        ooc_svm.evaluate(ranks, store)


@pytest.mark.parametrize(
    ("metric", "advice"),
    [
        ("accuracy", "jaccard"),
        ("f1", "micro-f1 is that of all"),
        ("error", "hamming-loss"),
        ("auc", "choose from"),
    ],
)
def test_metrics_that_do_not_fit(trained, metric, advice):
    with pytest.raises(UsageError, match=f"{metric} is no metric for sets of labels.*{advice}"):
        ooc_svm.evaluate(trained[0], trained[2], metric)
    with pytest.raises(UsageError, match="jaccard is no metric for"):
        ooc_svm.evaluate(ooc_svm.train(np.eye(2), [1, 2]), np.eye(2), "jaccard", labels=[1, 2])


def test_no_confusions(trained):
    with pytest.raises(UsageError, match="confusion is for classes, and the model predicts sets of labels"):
        ooc_svm.evaluation_report(trained[0], trained[2], confusion=True)

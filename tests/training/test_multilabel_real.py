"""The scene data (2,407 rows, 6 labels) against scikit-learn; OOC_SVM_DATA names the folder of data sets."""

from __future__ import annotations

import bz2
import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_svmlight_file
from sklearn.metrics import f1_score, hamming_loss, jaccard_score
from sklearn.preprocessing import MultiLabelBinarizer
from sklearn.svm import LinearSVC

import ooc_svm


@pytest.mark.filterwarnings("ignore")
def test_scene(tmp_path):
    name = "multilabel/scene.mlabel.svm.bz2"
    packed = Path(os.environ.get("OOC_SVM_DATA", "")) / name
    if "OOC_SVM_DATA" not in os.environ or not packed.exists():
        pytest.skip(f"OOC_SVM_DATA names no folder with {name}")
    text = tmp_path / "scene.svm"
    text.write_bytes(bz2.decompress(packed.read_bytes()))
    X, sets = load_svmlight_file(str(text), multilabel=True)
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    Y = MultiLabelBinarizer().fit_transform(sets)
    ooc_svm.convert(packed, tmp_path / "scene.zarr", labels="sets", dtype="float64")
    model = ooc_svm.train(tmp_path / "scene.zarr", tol=1e-5, C=0.1)
    assert model.classes_.tolist() == [str(label) for label in range(1, 7)]
    scores = model.decision_function(tmp_path / "scene.zarr")
    for k, row in enumerate(model.report["models"]):
        other = LinearSVC(C=0.1, loss="hinge", tol=1e-8, max_iter=10**6).fit(X, Y[:, k])
        np.testing.assert_allclose(scores[:, k], other.decision_function(X), atol=2e-2)
        w = np.append(other.coef_[0], other.intercept_[0])
        losses = np.maximum(0.0, 1.0 - np.where(Y[:, k], 1, -1) * other.decision_function(X))
        best = 0.5 * w @ w + 0.1 * losses.sum()
        assert row["dual"] <= best * (1 + 1e-9)
        assert row["primal"] <= best * (1 + 1e-5)
    P, found = (scores > 0).astype(int), ooc_svm.evaluate(model, packed)
    empty = ~(Y | P).any(axis=1)
    assert found["micro-f1"] == pytest.approx(f1_score(Y, P, average="micro"))
    assert found["macro-f1"] == pytest.approx(f1_score(Y, P, average="macro"))
    assert found["jaccard"] == pytest.approx(
        jaccard_score(Y, P, average="samples", zero_division=0) + empty.mean()
    )
    assert found["hamming-loss"] == pytest.approx(hamming_loss(Y, P))

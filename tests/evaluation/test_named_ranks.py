"""Models of the ROC area on labels that are names: which rank is the higher one."""

from __future__ import annotations

import anndata
import numpy as np
import pandas as pd
import pytest
import sklearn.metrics

import ooc_svm

RNG = np.random.default_rng(3)
X = RNG.standard_normal((120, 3)).astype(np.float32)
SCORES = X @ [1.0, -1.0, 0.5]
IS_HIGHER = SCORES + 0.3 * RNG.standard_normal(120) > 0.0


def cells(names, categories):
    label = pd.Categorical(np.array(names)[IS_HIGHER.astype(int)], categories=categories)
    obs = pd.DataFrame({"label": label}, index=[str(i) for i in range(len(X))])
    return anndata.AnnData(X.copy(), obs=obs)


def area(model, higher=True):
    return sklearn.metrics.roc_auc_score(higher == IS_HIGHER, model.decision_function(X))


@pytest.mark.parametrize("names", [("ctrl", "stim"), ("1", "2"), ("2", "1"), ("0", "1")])
@pytest.mark.parametrize("named", [0, 1, None])
def test_the_same_names_in_another_order(names, named):
    """Each category of the two may come first, and labels may be text: the higher rank keeps its name."""
    data = [cells(names, list(order)) for order in (names, names[::-1])]
    text = np.array(names)[IS_HIGHER.astype(int)]
    for k, trained in enumerate(data):
        positive = () if named is None else (names[named],)
        model = ooc_svm.train(trained, problem="roc-area", positive=positive)
        higher = names[named] if named is not None else names[1 - k]
        assert model.options["positive"] == [higher]
        expected = area(model, higher=higher == names[1])
        assert expected > 0.9
        for rows, labels in ((data[0], None), (data[1], None), (X, text)):
            found = ooc_svm.evaluate(model, rows, "auc", labels=labels)
            assert found["auc"] == pytest.approx(expected, abs=1e-12)


def test_values_of_c_are_compared_by_the_higher_rank():
    data = cells(("ctrl", "stim"), ["stim", "ctrl"])
    model = ooc_svm.tune(data, problem="roc-area", positive="stim", C=[0.1, 1.0], folds=3)
    assert ooc_svm.evaluate(model, data, "auc")["auc"] == pytest.approx(area(model), abs=1e-12)
    assert area(model) > 0.9

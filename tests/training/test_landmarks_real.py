"""Landmarks on rows of covtype: how near the optimum of the kernel they come.

``OOC_SVM_DATA`` names a folder with covtype/covtype.multiclass.bz2 (the LIBSVM collection).
"""

from __future__ import annotations

import bz2
import os
from itertools import islice
from pathlib import Path

import pytest

import ooc_svm

pytestmark = [pytest.mark.realdata, pytest.mark.timeout(600)]

COVTYPE = "covtype/covtype.multiclass.bz2"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Every 29th row of covtype, about 20,000."""
    source = Path(os.environ.get("OOC_SVM_DATA", "")) / COVTYPE
    if "OOC_SVM_DATA" not in os.environ or not source.exists():
        pytest.skip(f"OOC_SVM_DATA names no folder with {COVTYPE}")
    folder = tmp_path_factory.mktemp("covtype")
    with bz2.open(source) as lines:
        (folder / "part.svm").write_bytes(b"".join(islice(lines, 0, None, 29)))
    ooc_svm.convert(folder / "part.svm", folder / "part.zarr", shuffle=0)
    return folder / "part.zarr"


def test_two_thousand_landmarks_come_within_two_percent(store):
    options = {"kernel": "rbf", "gamma": 1.0, "scale": "maxabs", "positive": 1.0}
    best = ooc_svm.train(store, **options).report["models"][0]
    found = ooc_svm.train(store, **options, landmarks=2048).report["models"][0]
    assert best["dual"] <= found["primal"] <= 1.02 * best["primal"]
    assert found["dual"] <= best["primal"]
    assert found["relative_gap"] <= 0.05

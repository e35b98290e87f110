"""Files that version 0.1.0 wrote open: a store, a model, and checkpoints that runs go on from."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

from ooc_svm import load_model, predict, train, verify_store
from ooc_svm.store import open_store

ARCHIVE = Path(__file__).parent.parent / "archives" / "formats-1.tar.xz"
RUNS = ("cutting-plane", "ocas", "roc-area", "smo-auto", "smo-free", "smo-squared", "svr")


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    folder = tmp_path_factory.mktemp("archive")
    with tarfile.open(ARCHIVE) as file:
        # Python 3.11 has filters from its fourth release on.
        file.extraction_filter = getattr(tarfile, "data_filter", None)
        file.extractall(folder)
    return folder / "formats"


def test_the_store_opens_and_is_whole(archive):
    verify_store(archive / "rows.zarr")
    store = open_store(archive / "rows.zarr")
    assert (store.n_rows, store.n_features, store.has_weight) == (160, 20, True)
    assert len(store.blocks) == 2
    assert (store.feature_names, store.format_version) == (None, 1)


def test_the_model_opens_and_predicts(archive):
    model = load_model(archive / "two.model")
    assert model.C == (0.5, 4.0)
    assert model.feature_names is None
    assert model.report["converged"]
    found = predict(model, archive / "rows.zarr", C=4.0)
    labels = open_store(archive / "rows.zarr").read_labels(0, 160)
    assert np.mean(np.asarray(found) == labels) > 0.8
    model.selected = 1
    assert model.predict_one({}) == predict(model, np.zeros((1, model.n_features)))[0]


@pytest.mark.parametrize("name", RUNS)
def test_a_run_goes_on_from_its_checkpoint(archive, tmp_path, name):
    run = json.loads((archive / "runs.json").read_text())[name]
    notes = []
    model = train(
        archive / "rows.zarr",
        checkpoint=archive / f"{name}.checkpoint",
        resume=True,
        progress=lambda event: notes.append(event.message),
        **({"bias": "none"} | run["options"]),  # Its default then
    )
    assert any(note.startswith("going on after ") for note in notes)
    # On another processor a product may be rounded in another way, and a later release may need fewer reads.
    assert model.report["passes"] <= 1.1 * run["passes"] + 1
    assert [row["primal"] for row in model.report["models"]] == pytest.approx(run["primal"], rel=1e-5)
    assert [row["dual"] for row in model.report["models"]] == pytest.approx(run["dual"], rel=1e-4)

"""What a command imports: nothing that it does not use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import SmallData

from ooc_svm import convert, predict, save_model, train

RUN = """
import gc, sys
def collections():
    return sum(each["collections"] for each in gc.get_stats())
before = collections()
from ooc_svm.cli import main
try:
    main()
finally:
    print(collections() - before, *sys.modules, file=sys.stderr)
"""

LIBRARIES = {"numpy", "numba", "zarr", "scipy.sparse", "scipy.linalg", "sklearn", "dask", "pydantic", "rich"}
OWN = {
    *("ooc_svm.conversion.convert", "ooc_svm.text.reader", "ooc_svm.training.train"),
    *("ooc_svm.evaluation.evaluate", "ooc_svm.prediction.predict", "ooc_svm.solvers.cutting_plane.bundle"),
    *("ooc_svm.cluster.connection", "ooc_svm.solvers.streamed_smo.by_nu", "ooc_svm.solvers.smo.solver"),
    *("ooc_svm.evaluation.rankings", "ooc_svm.pairs.request", "ooc_svm.pairs.active"),
    *("ooc_svm.training.calibration", "ooc_svm.training.score_bins", "ooc_svm.training.temperature"),
    *("ooc_svm.training.tuning", "ooc_svm.data.folds"),
    *("ooc_svm.training.validation", "ooc_svm.training.label_quality", "ooc_svm.training.comparison"),
    *("ooc_svm.conversion.matrix", "ooc_svm.conversion.reorder", "ooc_svm.conversion.from_anndata"),
    *("ooc_svm.store.anndata", "ooc_svm.store.dense", "ooc_svm.store.trees"),
}
TRAINS = {"numpy", "numba", "ooc_svm.training.train"}
CONVERTS = {"numpy", "numba", "ooc_svm.conversion.convert", "ooc_svm.text.reader"}


@pytest.fixture(scope="module")
def compiled(small: SmallData, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What commands are given; the functions that they call are in the cache."""
    folder = tmp_path_factory.mktemp("imports")
    convert(small.text, folder / "made.zarr")
    save_model(model := train(small.store), folder / "model")
    predict(model, small.store)
    names = {"TEXT": small.text, "STORE": small.store, "MODEL": folder / "model"}
    return {name: str(path) for name, path in names.items()}


@pytest.mark.parametrize(
    ("command", "uses"),
    [
        ("--version", set()),
        ("train --help", set()),
        ("info STORE", {"numpy"}),
        ("report MODEL", {"numpy"}),
        ("convert TEXT -o OUT", CONVERTS),
        (
            "predict MODEL STORE -o OUT",
            {"numpy", "numba", "ooc_svm.prediction.predict", "ooc_svm.text.reader"},
        ),
        ("train STORE -o OUT", TRAINS),
        ("train TEXT -o OUT", TRAINS | CONVERTS),
    ],
)
def test_imports(command: str, uses: set[str], compiled: dict[str, str], tmp_path: Path) -> None:
    given = compiled | {"OUT": str(tmp_path / "out")}
    arguments = [given.get(word, word) for word in command.split()]
    done = subprocess.run(
        [sys.executable, "-c", RUN, *arguments], capture_output=True, text=True, timeout=120, check=True
    )
    collections, *modules = done.stderr.splitlines()[-1].split()
    assert set(modules) & (LIBRARIES | OWN) == uses
    # Code from the cache runs without what it was compiled from.
    assert "numba.np.arraymath" not in modules
    assert "typer" in modules or command == "--version"
    # Looking through what was imported for garbage, of which there is none, takes time.
    assert int(collections) < 12

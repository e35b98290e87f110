"""What a message says of the options of another run: those that differ, as they are given."""

from __future__ import annotations

import json

import numpy as np
import pytest
from helpers.train_data import make_store, store_rows

from ooc_svm import train, tune
from ooc_svm.errors import DamageError, spell_parameters
from ooc_svm.options import TrainOptions
from ooc_svm.system.arrayfile import read_arrays, write_arrays
from ooc_svm.training.checkpoint import CHECKPOINT_FILE
from ooc_svm.training.keys import run_key

ORDINARY = "with other options"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("store") / "s", *store_rows())


@pytest.fixture
def command_line():
    spell_parameters({})
    yield
    spell_parameters(None)


def difference(one, other, part=None):
    """What the second run says of the first."""
    saved, key = (run_key("data", "their name", TrainOptions(**each), part) for each in (one, other))
    content = json.loads(json.dumps({"data": saved.data, "options": saved.options}))
    return key.difference(content)


def test_in_a_library():
    found = difference({"C": 10.0, "bias": "none"}, {"C": (1.0, 2.0), "scale": "std"})
    assert found == (
        "with other options (bias='none' instead of bias='penalized', C=10.0 instead of C=[1.0, 2.0], "
        "scale='none' instead of scale='std')"
    )


@pytest.mark.usefixtures("command_line")
def test_on_a_command_line():
    weights = {1.0: 2.0, -1.0: 3.0}
    found = difference({"C": 10.0, "class_weight": weights}, {"C": (1.0, 2.0), "resident": 0.5})
    assert found == (
        "with other options (--C 10.0 instead of --C 1.0,2.0, --class-weight 1.0:2.0,-1.0:3.0 instead of no "
        "--class-weight, no --resident instead of --resident 0.5)"
    )
    kernel = {"kernel": "rbf", "solver": "kernel-cutting-plane", "bias": "free"}
    assert difference(kernel | {"sparse_cuts": True}, kernel) == (
        "with other options (--sparse-cuts instead of no --sparse-cuts)"
    )


@pytest.mark.usefixtures("command_line")
def test_the_value_of_a_long_one_is_left_out():
    weights = {float(label): 2.0 for label in range(50)}
    assert difference({"class_weight": weights}, {}) == "with other options (another --class-weight)"


def test_the_same_options_and_an_older_release():
    key = run_key("data", "their name", TrainOptions())
    assert key.difference({"data": "data"}) == ORDINARY
    assert key.difference({"data": "data", "options": key.options}) == ORDINARY
    assert key.difference({"data": "data", "options": ["C"]}) == ORDINARY
    assert key.difference({}).endswith(f"or {ORDINARY}")
    assert key.difference({"data": "other", "options": {}}).startswith("on other data")


def test_values_that_no_run_wrote():
    nested = []
    for _ in range(10_000):
        nested = [nested]
    for value in (nested, "x" * 1000, {"a": 1}, "\x1b[2J\n"):
        key = run_key("data", "their name", TrainOptions())
        found = key.difference({"data": "data", "options": key.options | {"C": value}})
        assert found.startswith("with other options (")
        assert len(found) < 200
        assert found.isprintable()


def test_folds_and_what_a_seed_draws(store, tmp_path):
    options = {"checkpoint": tmp_path / "c", "resume": True}
    tune(store, C=[0.1, 1.0], folds=3, **options)
    with pytest.raises(DamageError, match=r"\(folds=3 instead of folds=4\)"):
        tune(store, C=[0.1, 1.0], folds=4, **options)
    with pytest.raises(DamageError, match=r"\(folds=3 instead of no folds\)"):
        train(store, C=[0.1, 1.0], **options)
    held = {"checkpoint": tmp_path / "d", "validation": 0.2}
    train(store, **held)
    with pytest.raises(DamageError, match=r"\(validation=0.2 instead of validation=0.3\)"):
        train(store, resume=True, **held | {"validation": 0.3})
    with pytest.raises(DamageError, match=r"apart from C and nu \(seed=0 instead of seed=1\)"):
        train(store, validation=0.2, seed=1, warm_start=tmp_path / "d")


def test_folds_of_a_calibration(store, tmp_path):
    """They are named by the option that asks for them; `train` has no other one."""
    options = {"C": 0.1, "resume": True, "max_passes": 2}
    plain, calibrated = {"checkpoint": tmp_path / "c"}, {"checkpoint": tmp_path / "d", "calibrate": "sigmoid"}
    train(store, **options, **plain)
    with pytest.raises(DamageError, match=r"options \(no calibrate instead of calibrate='sigmoid'\);"):
        train(store, **options, **calibrated | plain)
    train(store, **options, **calibrated)
    with pytest.raises(DamageError, match=r"options \(calibrate='sigmoid' instead of no calibrate\);"):
        train(store, **options, checkpoint=tmp_path / "d")
    with pytest.raises(DamageError, match=r"options \(C=0.1 instead of C=1.0\);"):
        train(store, **calibrated | options | {"calibrate": "isotonic", "C": 1.0})
    train(store, **calibrated | options | {"calibrate": "isotonic"})


def test_points_of_a_grid(store, tmp_path):
    options = {"checkpoint": tmp_path / "c", "resume": True, "folds": 2, "kernel": "rbf", "max_passes": 2}
    tune(store, grid={"gamma": [0.1, 0.01]}, **options)
    with pytest.raises(DamageError, match=r"\(gamma=\[0.01, 0.1\] instead of gamma=\[0.01, 0.2\]\)"):
        tune(store, grid={"gamma": [0.2, 0.01]}, **options)


def test_a_state_without_options_is_gone_on_from(store, tmp_path):
    """Releases up to 0.2.0 did not save them."""
    train(store, checkpoint=tmp_path, max_passes=2)
    for path in tmp_path.glob("checkpoint-*.state"):
        content, arrays = read_arrays(path, CHECKPOINT_FILE)
        del content["options"]
        with path.open("wb") as file:
            write_arrays(file, CHECKPOINT_FILE, content, arrays)
    with pytest.raises(DamageError, match="was saved by a run with other options; give data and"):
        train(store, checkpoint=tmp_path, resume=True, C=2.0)
    resumed = train(store, checkpoint=tmp_path, resume=True)
    assert np.array_equal(resumed.weights, train(store).weights)

"""A model keeps the names of its features, in its file too."""

from __future__ import annotations

import sys
import tracemalloc

import numpy as np
import pytest
from helpers.scored_data import linear_model

from ooc_svm import load_model, save_model
from ooc_svm.errors import DamageError, UsageError
from ooc_svm.model import file as model_file
from ooc_svm.model.file import model_info


@pytest.mark.parametrize("names", [["a", "b é", "c"], ["", "same", "same"], ["x" * 300, "y", "z"]])
def test_names_survive_the_file(tmp_path, names):
    from ooc_svm.data.feature_names import FeatureNames

    kept = FeatureNames.joined([name.encode() for name in names])
    save_model(linear_model([1.0, 0.0, 2.0], feature_names=kept), tmp_path / "m")
    found = load_model(tmp_path / "m")
    assert list(found.feature_names) == names
    assert model_info(found)["has_feature_names"]


def test_names_are_a_sequence_of_one_for_each_feature():
    assert list(linear_model([1.0, 2.0], feature_names=np.array(["a", "b"])).feature_names) == ["a", "b"]
    assert linear_model([1.0, 2.0]).feature_names is None
    for names, words in ((["a"], "1 names for 2 features"), ([1, 2], "feature 0, from 0, is 1")):
        with pytest.raises(UsageError, match=words):
            linear_model([1.0, 2.0], feature_names=names)


def test_a_model_without_names_has_the_bytes_that_it_had(tmp_path):
    save_model(linear_model([1.0, 2.0]), tmp_path / "m")
    assert b"feature_name" not in (tmp_path / "m").read_bytes()


HOSTILE = {
    "lengths": lambda arrays: arrays.update(feature_name_lengths=np.array([1, 1, 9], np.uint8)),
    "negative lengths": lambda arrays: arrays.update(feature_name_lengths=np.array([-1, 2, 3], np.int32)),
    "real lengths": lambda arrays: arrays.update(feature_name_lengths=np.ones(3)),
    "fewer": lambda arrays: arrays.update(feature_name_lengths=np.array([1, 3], np.uint8)),
    "no lengths": lambda arrays: arrays.pop("feature_name_lengths"),
    "no text": lambda arrays: arrays.update(feature_names=np.array([255, 1, 2, 3], np.uint8)),
    "parts of characters": lambda arrays: arrays.update(
        feature_names=np.array([0xC3, 0xA9, 65, 65], np.uint8)
    ),
    "numbers": lambda arrays: arrays.update(feature_names=np.ones(4)),
    "a table": lambda arrays: arrays.update(feature_names=np.ones((2, 2), np.uint8)),
}


@pytest.mark.fault
@pytest.mark.parametrize("name", HOSTILE)
def test_names_made_with_intent_are_damage(tmp_path, monkeypatch, name):
    model = linear_model([1.0, 0.0, 2.0], feature_names=["a", "b", "cd"])
    save_model(model, tmp_path / "whole")
    assert list(load_model(tmp_path / "whole").feature_names) == ["a", "b", "cd"]
    arrays = model_file._arrays_of_names(model.feature_names)
    HOSTILE[name](arrays)
    monkeypatch.setattr(model_file, "_arrays_of_names", lambda names: arrays)
    save_model(model, tmp_path / "m")
    with pytest.raises(DamageError, match="damaged model"):
        load_model(tmp_path / "m")


def test_many_names_take_little_memory_and_room(tmp_path):
    names = [f"feature {j}" for j in range(200_000)]
    size = sum(map(len, names))
    save_model(linear_model(np.ones(len(names)), feature_names=names), tmp_path / "m")
    assert (tmp_path / "m").stat().st_size < 8 * len(names) + size + len(names) + 4096
    del names
    tracemalloc.start()
    model = load_model(tmp_path / "m")
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    arrays = model.weights.nbytes + model.feature_names.nbytes
    assert held < 1.1 * arrays + len(model.feature_names) + 1e5
    assert peak < 2.5 * arrays + 4e6, (peak, arrays)
    assert sys.getsizeof(model.feature_names) < 200

"""Names of features on the command line: kept, found in other data, listed with their weights."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from helpers import anndata_data
from helpers.scored_data import Data, linear_model, one_vs_rest, random_data, regressor

from ooc_svm import convert_matrix, load_model, save_model
from ooc_svm.cli.compiling import NOTICE
from ooc_svm.model.top_features import top_features

N = 30
NAMES = [f"gene {j}" for j in range(N)]


def ooc_svm(*arguments: object, code: int = 0) -> tuple[str, str]:
    """Run a command in a process of its own, where warnings are lines on standard error."""
    command = [sys.executable, "-m", "ooc_svm.cli", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr.replace(f"{NOTICE}\n", "")  # Of functions that are compiled now


def test_from_named_text_to_predictions_of_other_columns(tmp_path: Path) -> None:
    data = random_data(80, N)
    data.text(tmp_path / "train.svm")
    (tmp_path / "names.txt").write_text("\n".join(NAMES))
    store, model = tmp_path / "train.zarr", tmp_path / "m"
    ooc_svm(
        "convert", tmp_path / "train.svm", "-o", store, "--feature-names", tmp_path / "names.txt", "--quiet"
    )
    assert "30 (gene 0, gene 1, gene 2, ...)" in ooc_svm("info", store)[0]
    ooc_svm("train", store, "-o", model, "--quiet")
    out, _ = ooc_svm("info", model, "--top", 2)
    assert "30 (gene 0, gene 1, gene 2, ...)" in out
    expected = ooc_svm("predict", model, store, "--scores")[0]
    order = np.random.default_rng(1).permutation(N)
    other = sp.csr_array(data.matrix[:, order])
    convert_matrix(other, data.labels, tmp_path / "o.zarr", feature_names=[NAMES[j] for j in order])
    assert ooc_svm("predict", model, tmp_path / "o.zarr", "--scores") == (expected, "")
    (tmp_path / "other.txt").write_text("\n".join(NAMES[j] for j in order))
    other.sort_indices()
    Data(other, data.labels).text(tmp_path / "o.svm")
    named = ("--feature-names", tmp_path / "other.txt")
    assert ooc_svm("predict", model, tmp_path / "o.svm", "--scores", *named)[0] == expected
    assert ooc_svm("evaluate", model, tmp_path / "o.svm", *named) == ooc_svm("evaluate", model, store)


def test_missing_and_other_features_are_one_sentence(tmp_path: Path) -> None:
    save_model(linear_model(np.arange(N) - 9.5, feature_names=NAMES), tmp_path / "m")
    matrix = random_data(anndata_data.N_ROWS, N).matrix
    names = [*(f"other {j}" for j in range(3)), *NAMES[3:]]
    anndata_data.write(tmp_path / "a.zarr", sp.csr_matrix(matrix), features=names)
    for command in ("predict", "evaluate"):
        _, err = ooc_svm(command, tmp_path / "m", tmp_path / "a.zarr", code=3)
        assert err == (
            f"ooc-svm: error: {tmp_path}/a.zarr lacks 3 of the model's 30 features (10 %), 'gene 0', "
            "'gene 1', 'gene 2'; add them, or predict and evaluate with --missing-features zero, "
            "which takes them as 0\n"
        )
        _, err = ooc_svm(command, tmp_path / "m", tmp_path / "a.zarr", "--missing-features", "zero")
        assert err == (
            f"ooc-svm: warning: {tmp_path}/a.zarr lacks 3 of the model's 30 features (10 %), which are "
            "taken as 0, and has 3 columns that are no features of the model and are ignored\n"
        )
    assert (
        "must be 'error' or 'zero'"
        in ooc_svm("predict", tmp_path / "m", tmp_path / "a.zarr", "--missing-features", "none", code=2)[1]
    )


def test_unknown_features_are_counted(tmp_path: Path) -> None:
    save_model(linear_model(np.arange(25.0)), tmp_path / "m")
    text = tmp_path / "wide.svm"
    text.write_text("1 1:1 99:2\n-1 2:1\n1 26:1 27:1\n")
    told = "2 rows of 3 have features that the model does not have; 3 values ignored"
    for command in ("predict", "evaluate"):
        assert ooc_svm(command, tmp_path / "m", text)[1] == f"ooc-svm: warning: {told}\n"


def test_text_may_number_features_from_0(tmp_path: Path) -> None:
    save_model(linear_model([1.0, 2.0, -4.0]), tmp_path / "m")
    text = tmp_path / "zero.svm"
    text.write_text("1 0:1 1:1\n-1 2:1\n")
    for command in ("predict", "evaluate"):
        assert "--index-base 0" in ooc_svm(command, tmp_path / "m", text, code=3)[1]
        ooc_svm(command, tmp_path / "m", text, "--index-base", 2, code=2)
    assert ooc_svm("predict", tmp_path / "m", text, "--index-base", 0) == ("1\n-1\n", "")
    out, err = ooc_svm("evaluate", tmp_path / "m", text, "--index-base", 0, "--metric", "accuracy")
    assert (out, err) == ("accuracy  1\n", "")


def test_a_bad_file_of_names_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "t.svm").write_text("1 1:1\n-1 2:1\n")
    (tmp_path / "n.txt").write_text("a\nb\na\n")
    _, err = ooc_svm(
        "convert",
        tmp_path / "t.svm",
        "-o",
        tmp_path / "s.zarr",
        "--feature-names",
        tmp_path / "n.txt",
        code=3,
    )
    assert err == (
        f"ooc-svm: error: {tmp_path}/n.txt:3: the name 'a' stands on line 1 already; features need different "
        "names\n"
    )
    assert not (tmp_path / "s.zarr").exists()


class TestTop:
    def test_the_largest_magnitudes_of_each_class(self, tmp_path: Path) -> None:
        weights = [[0.5, -2.0, 0.0, 2.0], [0.0, 0.0, 0.0, 0.0], [1.0, 1.0, -1.0, 0.25]]
        facts = {"label_names": ("T", "B\x1b", "NK"), "C": (1.0, 1.0, 1.0)}
        model = one_vs_rest(weights, 0.0, (0.0, 1.0, 2.0), feature_names=["a", "b", "c", "d"], **facts)
        save_model(model, tmp_path / "m")
        out = ooc_svm("info", tmp_path / "m", "--top", 2)[0]
        assert out.endswith(
            "\n\nlargest weights, label T, C 1\nfeature  weight\n      b      -2\n      d       2\n"
            "\nlargest weights, label B\\x1b, C 1: all are 0\n"
            "\nlargest weights, label NK, C 1\nfeature  weight\n      a       1\n      b       1\n"
        )
        found = json.loads(ooc_svm("info", tmp_path / "m", "--top", 3, "--json")[0])
        assert found["top_features"] == top_features(load_model(tmp_path / "m"), 3)
        assert [each["label"] for each in found["top_features"]] == ["T", "B\x1b", "NK"]
        first, _, last = found["top_features"]
        assert first["features"] == [
            {"name": "b", "number": 2, "weight": -2.0},
            {"name": "d", "number": 4, "weight": 2.0},
            {"name": "a", "number": 1, "weight": 0.5},
        ]
        assert [each["name"] for each in last["features"]] == ["a", "b", "c"]
        assert "top_features" not in json.loads(ooc_svm("info", tmp_path / "m", "--json")[0])

    @pytest.mark.parametrize("index_base", [0, 1])
    def test_columns_without_names_have_numbers(self, index_base: int) -> None:
        (found,) = top_features(regressor([0.0, 3.0, -4.0], index_base=index_base), 9)
        assert (found["label"], found["C"]) == (None, None)
        expected = [(None, 2 + index_base, -4.0), (None, 1 + index_base, 3.0)]
        assert [tuple(each.values()) for each in found["features"]] == expected

    def test_many_weights(self) -> None:
        weights = np.round(np.random.default_rng(0).normal(size=1000), 1)
        (found,) = top_features(linear_model(weights), 50)
        order = sorted(range(1000), key=lambda j: (-abs(weights[j]), j))[:50]
        assert [each["number"] - 1 for each in found["features"]] == order

    def test_it_is_for_models(self, tmp_path: Path) -> None:
        random_data(20, 5).store(tmp_path / "s.zarr")
        assert "--top lists weights" in ooc_svm("info", tmp_path / "s.zarr", "--top", 3, code=2)[1]
        assert "--top must be an integer of at least 1" in ooc_svm("info", "m", "--top", 0, code=2)[1]

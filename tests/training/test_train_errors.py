"""What training refuses, and what ends it: bad input, options, and stores damaged meanwhile."""

from __future__ import annotations

import math
import os
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from helpers.train_data import bits, make_anndata, make_store, store_rows

from ooc_svm import train
from ooc_svm.errors import DamageError, InputError, MemoryBudgetError, UsageError
from ooc_svm.model.file import load_model, save_model
from ooc_svm.store import open_store
from ooc_svm.training import engines

SOLVERS = ["ocas", "cutting-plane", "streamed-smo", "smo"]


@pytest.fixture(scope="module")
def rows():
    return store_rows()


@pytest.fixture(scope="module")
def store(tmp_path_factory, rows):
    return make_store(tmp_path_factory.mktemp("rows") / "s", *rows)


class TestRefused:
    def test_labels(self, rows):
        matrix, labels = rows
        cases = [
            (np.ones(300), r"at least two classes, found \{1\}"),
            (np.where(labels > 0, 0.5, 0.7), r"values, not classes \(for example 0\.5\).*problem='svr'"),
            (np.where(labels > 0, 1.0, np.nan), "labels are missing"),
            (np.where(labels > 0, 1.0, np.inf), "labels have values that are not finite"),
            (
                ["yes", 1.0] * 150,
                "labels are not numbers: 'yes'|labels are text, but that of row 1, from 0, is 1",
            ),
            (labels[:-1], r"300 rows but labels of shape \(299,\)"),
            (labels[:, None], r"300 rows but labels of shape \(300, 1\)"),
        ]
        for given, message in cases:
            with pytest.raises(InputError, match=message):
                train(matrix, given)

    def test_too_many_labels(self):
        with pytest.raises(InputError, match=r"more than 1000 different labels.*problem='svr'"):
            train(np.ones((1500, 1)), np.arange(1500.0))

    def test_positive_and_class_weight(self, rows):
        for options in ({"positive": 3}, {"class_weight": {3: 1.0}}, {"positive": "3"}):
            with pytest.raises(InputError, match=r"no row has the label 3; the labels are -1, 1"):
                train(*rows, **options)
        with pytest.raises(InputError, match="all labels are named as positive"):
            train(*rows, positive=(1, -1))
        for options in ({"positive": "yes"}, {"class_weight": {"yes": 1.0}}):
            with pytest.raises(UsageError, match=r"label 'yes' is not a number"):
                train(*rows, **options)
        with pytest.raises(UsageError, match="label 1 is given two weights"):
            train(*rows, class_weight={1: 2.0, "+1": 3.0})

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"gama": 1}, "there is no parameter 'gama'; did you mean gamma?"),
            ({"C": 0}, "C must be positive and finite: a number, or several of them, not 0"),
            ({"C": (1.0, -1.0)}, "C must be positive"),
            ({"C": ()}, r"C must be positive and finite: .*, not \(\)"),
            ({"C": math.nan}, "C must be positive and finite: .*, not nan"),
            ({"C": math.inf}, "C must be positive and finite: .*, not inf"),
            ({"C": (1, 1.0)}, r"C holds the same value twice: \(1, 1\.0\)"),
            ({"C": "1"}, "C must be"),
            (
                {"problem": "nu-svm"},
                "problem must be one of 'svc', 'svr', 'nu-svc', 'nu-svr', 'ordinal', 'roc-area', 'ranking', "
                "not 'nu-svm'",
            ),
            ({"loss": "log"}, "loss must be one of 'hinge', 'squared-hinge', .*, not 'log'"),
            ({"solver": "sgd"}, "solver must be one of 'auto', .*, not 'sgd'"),
            ({"bias": "fixed"}, "bias must be one of 'none', 'penalized', 'free', not 'fixed'"),
            ({"resident": 0.0}, "resident must be a share of the data above 0 and at most 1, not 0"),
            ({"resident": 1.1}, "resident must be a share"),
            ({"resident": -0.1}, "resident must be a share"),
            ({"resident": math.nan}, "resident must be a share"),
            ({"tol": 0.0}, "tol must be a relative gap between 0 and 1, not 0"),
            ({"tol": 1.0}, "tol"),
            ({"tol": math.nan}, "tol"),
            ({"max_passes": 0}, "max_passes must be an integer of at least 1, not 0"),
            ({"threads": 0}, "threads must be an integer from 1 to 4096, not 0"),
            ({"cut_groups": -1}, "cut_groups must be an integer of at least 1, not -1"),
            ({"time_limit": 0.0}, "time_limit must be a positive number"),
            ({"time_limit": math.nan}, "time_limit must be a positive number"),
            ({"memory": "much"}, "memory must be a size: .*, not 'much'"),
            (
                {"class_weight": "even"},
                "class_weight must be 'balanced' or a dict .*, not 'even'",
            ),
            ({"class_weight": {1: -1.0}}, "class_weight of label 1 must be finite and not negative, not -1"),
            ({"class_weight": {1: math.nan}}, "class_weight of label 1 must be finite"),
            ({"resume": True}, "resume needs checkpoint, the folder to go on from"),
        ],
    )
    def test_options(self, rows, options, message):
        with pytest.raises(UsageError, match=message):
            train(*rows, **options)

    def test_numbers_of_numpy_are_numbers(self, rows, tmp_path):
        options = {
            "C": np.float32(0.5),
            "max_passes": np.int64(3),
            "class_weight": {np.float64(1): np.int8(2)},
        }
        model = train(*rows, checkpoint=tmp_path / "c", seed=np.int32(4), positive=np.int64(1), **options)
        save_model(model, tmp_path / "m")
        assert load_model(tmp_path / "m").C == (0.5,)
        assert bits(train(*rows, C=np.array([0.5, 1.0]))) == bits(train(*rows, C=[0.5, 1.0]))

    def test_matrices(self, rows):
        matrix, labels = rows
        bad = matrix.copy()
        bad.data = bad.data.copy()
        bad.data[3] = np.nan
        wild = matrix.copy()
        wild.indices = wild.indices.copy()
        wild.indices[-1] = 10**6
        cases = [
            (bad, "not finite"),
            (wild, "not a valid matrix"),
            ([1.0] * 300, r"its shape is \(300,\), not of two dimensions"),
            (np.array([["a"]] * 300), "numbers"),
            (np.ones((300, 2), dtype=complex), "numbers"),
        ]
        for given, message in cases:
            with pytest.raises(InputError, match=message):
                train(given, labels)
        with pytest.raises(UsageError, match=r"data must be the path of a store or of text, .*, not array"):
            train(np.ones(300), labels)
        with pytest.raises(InputError, match="no rows"):
            train(matrix[:0], labels[:0])
        with pytest.raises(UsageError, match="a matrix needs labels"):
            train(matrix)
        with pytest.raises(UsageError, match="label"):
            train(matrix, labels, label="cell_type")

    def test_weights(self, rows, tmp_path):
        matrix, labels = rows
        weights = np.ones(300)
        weights[33] = -0.5
        path = make_store(tmp_path / "s", matrix, labels)
        with pytest.raises(InputError, match=r"row 33 has the negative weight -0\.5"):
            train(matrix, labels, sample_weight=weights)
        foreign = make_anndata(tmp_path / "a", matrix, label=labels, weight=weights)
        with pytest.raises(InputError, match=r"row 33 has the negative weight -0\.5 in obs/weight;"):
            train(foreign)
        weights[33] = np.nan
        with pytest.raises(InputError, match="sample_weight have values that are not finite: nan in row 33"):
            train(matrix, labels, sample_weight=weights)
        foreign = make_anndata(tmp_path / "b", matrix, label=labels, weight=weights)
        with pytest.raises(InputError, match=r"row 33, from 0, of .* has the weight nan in obs/weight"):
            train(foreign)
        with pytest.raises(InputError, match=r"300 rows but sample_weight of shape \(3,\)"):
            train(matrix, labels, sample_weight=[1, 2, 3])
        with pytest.raises(UsageError, match="a store brings its labels, weights and qids"):
            train(path, sample_weight=weights)
        with pytest.raises(UsageError, match="a store brings its labels, weights and qids"):
            train(open_store(path), labels)

    def test_stores(self, tmp_path, rows):
        with pytest.raises(InputError, match="nothing: there is no such file; check the path"):
            train(tmp_path / "nothing")
        with pytest.raises(InputError, match="does not exist"):
            train(tmp_path / "nothing.zarr")
        one = make_store(tmp_path / "one", rows[0], np.ones(300))
        with pytest.raises(InputError, match=r"found \{1\}"):
            train(one)

    @pytest.mark.parametrize("solver", SOLVERS)
    def test_products_that_overflow(self, rows, solver):
        matrix, labels = rows
        with pytest.raises(InputError, match=r"non-finite objective in pass \d+.*scale='maxabs'"):
            train(matrix * 1e200, labels, C=1e200, solver=solver)
        assert train(matrix * 1e120, labels, scale="maxabs", solver=solver, max_passes=3).weights.any()

    @pytest.mark.parametrize(
        ("scale", "factor"), [("std", 1e200), ("maxabs", 1e200), ("maxabs", 1e-200), ("maxabs", 1e-320)]
    )
    def test_columns_that_cannot_be_scaled(self, rows, scale, factor):
        matrix, labels = rows[0].toarray(), rows[1]
        matrix[:, 7] *= factor
        with pytest.raises(InputError, match=r"the feature 7 has values too large or too small"):
            train(matrix, labels, scale=scale)

    @pytest.mark.parametrize("solver", SOLVERS)
    def test_too_little_memory(self, rows, store, solver):
        with pytest.raises(MemoryBudgetError, match=r"training needs .* allowed are 100 MB"):
            train(store, memory="100MB", solver=solver)


@pytest.mark.fault
class TestDamage:
    """The store is damaged behind the back of a running training: it ends, and names the chunk."""

    @pytest.fixture
    def copy(self, store, tmp_path):
        return shutil.copytree(store, tmp_path / "s")

    def damage(self, kind, path):
        content = path.read_bytes()
        if kind == "flipped":
            path.write_bytes(content[:20] + bytes([content[20] ^ 8]) + content[21:])
        elif kind == "cut":
            os.truncate(path, len(content) // 2)
        elif kind == "missing":
            path.unlink()
        else:
            other = path.with_name("1")
            assert other.read_bytes() != content
            shutil.copy(other, path)

    @pytest.mark.parametrize("solver", SOLVERS)
    @pytest.mark.parametrize("kind", ["flipped", "cut", "missing", "swapped"])
    @pytest.mark.parametrize("threads", [1, 3])
    def test_during_training(self, copy, kind, threads, solver, monkeypatch):
        divide = engines.divide
        monkeypatch.setattr(engines, "divide", lambda *a, **k: replace(divide(*a, **k), cache_bytes=0))
        fired = []

        def progress(event):
            if event.kind == "pass" and not fired:
                self.damage(kind, copy / "X/indices/c/5")
                fired.append(event.passes)

        with pytest.raises(DamageError, match=re.escape("X/indices/c/5")):
            train(copy, solver=solver, threads=threads, progress=progress, tol=1e-9, max_passes=6)
        assert fired == [1]

    def test_before_training(self, copy):
        self.damage("flipped", copy / "X/data/c/3")
        with pytest.raises(DamageError, match=re.escape("X/data/c/3")):
            train(copy)

    def test_labels(self, copy):
        self.damage("flipped", copy / "obs/label/c/1")
        with pytest.raises(DamageError, match=re.escape("obs/label/c/1")):
            train(copy)

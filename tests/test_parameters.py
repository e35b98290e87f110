"""Every public function with every parameter set to what it cannot be: refused by name, before any work."""

from __future__ import annotations

import inspect
import math
import re
from dataclasses import fields
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from helpers.store_data import labelled, random_rows, write_store
from numpydoc.docscrape import ClassDoc, FunctionDoc

import ooc_svm
from ooc_svm.conversion.options import ConvertOptions
from ooc_svm.errors import OocSvmError, UsageError, shown
from ooc_svm.options import OPTIONS, TrainOptions
from ooc_svm.store.options import StoreOptions


class Broken:
    """An object that cannot even be shown."""

    def __repr__(self):
        raise RuntimeError("no")


HOSTILE = {
    "None": None,
    "True": True,
    "0": 0,
    "-1": -1,
    "1.5": 1.5,
    "2.0": 2.0,
    "huge": 10**400,
    "more digits than are printed": 10**5000,
    "nan": math.nan,
    "inf": math.inf,
    "complex": 1j,
    "text": "no",
    "digits": "1",
    "long": "x" * 5000,
    "slashes": "//",
    "dots": "..",
    "dot": Path("."),
    "folder that is none": "tests/missing/a",
    "empty": "",
    "NUL": "a\0b",
    "surrogate": "\ud800",
    "bytes": b"bytes",
    "list": [],
    "twice": [1, 1],
    "of None": [None],
    "nested": [[1], [1, 2]],
    "dict": {},
    "dict of text": {"a": "b"},
    "set": {1},
    "object": Broken(),
    "type": int,
    "no numbers": np.array(["a", "b"]),
    "objects": np.array([1, None], dtype=object),
    "flags": np.array([True, False]),
    "float64 nan": np.float64("nan"),
    "bool_": np.bool_(True),
    "complex64": np.complex64(1),
    "datetime64": np.datetime64("2020-01-01"),
    "cube": np.ones((2, 2, 2)),
}

# Which of these values a parameter may have. Names of parameters with one meaning everywhere.
FLAG = {"True", "bool_"}
NAMES = {"text", "digits", "long", "slashes", "dots", "folder that is none"}
TEXT = {*NAMES, "dot"}  # of paths
ALLOWED = {
    "C": {"1.5", "2.0"},
    "bad_lines": set(),
    "bias": set(),
    "block_chunks": set(),
    "block_rows": set(),
    "buffers": set(),
    "cache": TEXT,
    "cache_size": {"0", "digits"},
    "calibrate": set(),
    "checkpoint": TEXT,
    "chunk_elements": set(),
    "chunk_rows": set(),
    "class_weight": {"dict"},
    "confusion": FLAG,
    "cut_groups": set(),
    "data": TEXT | {"twice", "of None", "nested"},  # refused as matrices, see `TestMatrices`
    "dtype": set(),
    "engine": set(),
    "durable": FLAG,
    "epsilon": {"0", "1.5", "2.0"},
    "nu": set(),
    "gamma": {"1.5", "2.0"},
    "grid": {"dict"},
    "degree": set(),
    "coef0": {"0", "-1", "1.5", "2.0"},
    "p": {"1.5", "2.0"},
    "named_labels": FLAG,
    "label_sets": FLAG,
    "label_names": {"no numbers"},
    "feature_names": TEXT | {"list", "no numbers"},
    "features": set(),
    "folds": set(),
    "group": FLAG,
    "index": {"0"},
    "index_base": {"0"},
    "inputs": TEXT | {"no numbers"},
    "insecure_cluster": FLAG,
    "kernel": set(),
    "label": NAMES,
    "labels_file": TEXT,
    "landmarks": set(),
    "lanes": set(),
    "layer": NAMES,
    "loss": set(),
    "max_bad_lines": {"0"},
    "max_passes": set(),
    "memory": {"0", "digits"},
    "metric": NAMES,
    "metrics": NAMES | {"list", "no numbers"},
    "missing_features": set(),
    "model": TEXT,
    "n_features": {"0"},
    "output": TEXT,
    "overwrite": FLAG,
    "path": TEXT,
    "positive": NAMES | FLAG | {"flags", "0", "-1", "1.5", "2.0", "list", "twice", "no numbers"},
    "price_gb": {"0", "1.5", "2.0"},
    "price_get": {"0", "1.5", "2.0"},
    "problem": set(),
    "progress": {"type"},
    "provenance": {"dict", "dict of text"},
    "resident": set(),
    "prune": set(),
    "probabilities": FLAG,
    "resume": FLAG,
    "sparse_cuts": FLAG,
    "polish": FLAG,
    "rule": set(),
    "scale": set(),
    "scheduler": NAMES,
    "scores": FLAG,
    "seed": {"0", "-1"},
    "shuffle": {"0"},
    "solver": set(),
    "spare_share": {"0"},
    "start": {"0"},
    "stop": {"0"},
    "store": TEXT,
    "threads": set(),
    "time_limit": {"1.5", "2.0", "inf"},
    "to": set(),
    "to_obs": NAMES,
    "tol": set(),
    "unlabelled": set(),
    "validation": TEXT,
    "warm_start": TEXT,
}
# Where None is not the default.
NOT_NONE = {
    *("confusion", "data", "durable", "engine", "group", "index", "inputs", "insecure_cluster"),
    *("kernel", "label_sets", "missing_features", "model", "named_labels", "overwrite", "path"),
    "positive",
    *("price_gb", "price_get"),
    *("probabilities", "problem", "resume", "scale", "scores", "seed", "solver", "spare_share", "start"),
    *("stop", "to", "tol"),
    "unlabelled",
    *("block_chunks", "block_rows", "chunk_elements", "chunk_rows"),
    "grid",
}
NOT_NONE_IN = {
    *((name, "C") for name in ("train", "tune", "plan", "TrainOptions")),
    ("convert", "bad_lines"),
    *((name, "dtype") for name in ("convert", "convert_matrix", "StoreWriter")),
    *((name, "store") for name in ("store_info", "verify_store")),
    ("convert", "index_base"),
    ("convert", "output"),
    ("convert_matrix", "index_base"),
    ("convert_matrix", "output"),
    ("StoreWriter", "index_base"),
    ("StoreWriter", "provenance"),
    ("StoreWriter", "threads"),
    ("Store.read_labels", "stop"),
}
# Entries of rows, which are read with the matrix: see `TestMatrices`.
ARRAYS = {"labels", "sample_weight", "qid", "weight", "matrix"}

MISSING = "missing.zarr"


@pytest.fixture(scope="module")
def matrix():
    return random_rows(1)


@pytest.fixture(scope="module")
def store(tmp_path_factory, matrix):
    path = tmp_path_factory.mktemp("parameters") / "small.zarr"
    write_store(path, *matrix, qids=np.arange(30), weights=np.ones(30))
    return ooc_svm.open_store(path)


# Arguments with which each function would begin to work; data and models that are not there.
ARGUMENTS = {
    "StoreWriter": {"path": "new.zarr"},
    "TrainOptions": {},
    "convert": {"inputs": "missing.svm", "output": "new.zarr"},
    "convert_matrix": {"matrix": np.eye(2), "labels": [1, 2], "output": "new.zarr"},
    "decision_scores": {"model": "missing", "data": MISSING},
    "evaluate": {"model": "missing", "data": MISSING},
    "evaluation_report": {"model": "missing", "data": MISSING},
    "export_model": {"model": "missing", "path": "new", "to": "liblinear"},
    "load_model": {"path": "missing"},
    "open_store": {"path": MISSING},
    "plan": {"data": MISSING},
    "predict": {"model": "missing", "data": MISSING, "output": "new"},
    "save_model": {"model": "missing", "path": "new"},
    "store_info": {"store": MISSING},
    "train": {"data": MISSING},
    "tune": {"data": MISSING},
    "verify_store": {"store": MISSING},
}
OPTIONS_OF = {
    "StoreWriter": StoreOptions,
    "plan": TrainOptions,
    "train": TrainOptions,
    "tune": TrainOptions,
    "TrainOptions": TrainOptions,
}
METHODS = {
    "Store.read_block": {"index": 0},
    "Store.block_stored_bytes": {"index": 0},
    "Store.read_labels": {"start": 0, "stop": 1},
    "Store.read_qids": {"start": 0, "stop": 1},
    "Store.read_weights": {"start": 0, "stop": 1},
    "StoreWriter.append": {"matrix": labelled(*random_rows(1))},
    "StoreWriter.commit": {},
}
# What users do not make, but get from functions.
GIVEN = {"ConvertReport", "EvaluationReport", "Model", "Plan", "Progress", "Store"}


def parameters_of(name):
    """All parameters of a public function, options included."""
    function = ooc_svm
    for part in name.split("."):
        function = getattr(function, part)
    own = [
        each.name
        for each in inspect.signature(function).parameters.values()
        if each.kind is not inspect.Parameter.VAR_KEYWORD and each.name != "self"
    ]
    options = [item.name for item in fields(OPTIONS_OF[name])] if name in OPTIONS_OF else []
    return list(dict.fromkeys(own + options))


def refused(function, parameter):
    """Names of the hostile values that are refused."""
    allowed = set(ALLOWED[parameter])
    if parameter not in NOT_NONE and (function, parameter) not in NOT_NONE_IN:
        allowed.add("None")
    return [name for name in HOSTILE if name not in allowed]


CALLS = [
    (function, parameter)
    for function in (*ARGUMENTS, *METHODS)
    for parameter in parameters_of(function)
    if parameter not in ARRAYS
]


def test_the_table_has_every_public_name():
    endings = "Error", "Warning", "Interrupted"
    errors = {name for name in ooc_svm.__all__ if name.endswith(endings)}
    assert set(ooc_svm.__all__) == {*ARGUMENTS, *GIVEN, *errors}
    assert {parameter for _, parameter in CALLS} == set(ALLOWED)


def called(name, store, arguments):
    if name in METHODS:
        owner, method = name.split(".")
        if owner == "Store":
            return getattr(store, method)(**arguments)
        writer = ooc_svm.StoreWriter("new.zarr")
        with writer:
            return getattr(writer, method)(**arguments)
    return getattr(ooc_svm, name)(**arguments)


@pytest.mark.parametrize(("function", "parameter"), CALLS)
def test_what_cannot_be_is_refused(function, parameter, store, nothing_done):
    base = ARGUMENTS.get(function) or METHODS.get(function, {})
    for name in refused(function, parameter):
        value = HOSTILE[name]
        with pytest.raises(UsageError) as error:
            called(function, store, base | {parameter: value})
        message = str(error.value)
        assert re.match(rf"{parameter}\b", message), (name, message)
        # Of a collection perhaps the item that is wrong.
        assert shown(value) in message or isinstance(value, dict), (name, message)
        assert "\n" not in message
        assert len(message) < 300


# Calls that find nothing of what they need.
FRUITLESS = [call for call in CALLS if call[0] in ARGUMENTS and "missing" in str(ARGUMENTS[call[0]])]


@pytest.mark.parametrize(("function", "parameter"), FRUITLESS)
def test_what_can_be_is_not(function, parameter, nothing_done):
    """Errors of other kinds come: there are no data, or a path leads nowhere."""
    kinds = getattr(ooc_svm, function).kinds | {name: option.kind for name, option in OPTIONS.items()}
    refusal = f"{parameter} must be {kinds[parameter].allowed}"
    for name in ALLOWED[parameter]:
        with pytest.raises(OocSvmError) as error:
            called(function, None, ARGUMENTS[function] | {parameter: HOSTILE[name]})
        assert not str(error.value).startswith(refusal), name


class TestNumbers:
    """Numbers of NumPy are as good as Python's; an option has the same value for both."""

    @pytest.mark.parametrize(
        ("name", "value", "plain"),
        [
            ("max_passes", np.int64(3), 3),
            ("threads", np.uint8(2), 2),
            ("lanes", np.array(4), 4),
            ("seed", np.int32(-7), -7),
            ("tol", np.float32(0.25), 0.25),
            ("tol", np.float64(0.01), 0.01),
            ("tol", np.longdouble(0.5), 0.5),
            ("tol", Fraction(1, 4), 0.25),
            ("time_limit", np.int16(60), 60),
            ("memory", np.int64(10**9), 10**9),
            ("memory", np.str_("1GB"), "1GB"),
            ("resident", np.float16(0.5), 0.5),
            ("C", np.float32(2), (2.0,)),
            ("C", np.array([1, 2]), (1, 2)),
            ("C", [np.float64(0.5), 2], (0.5, 2)),
            ("C", range(1, 3), (1, 2)),
            ("positive", np.int64(1), (1,)),
            ("positive", np.array(["a", "b"]), ("a", "b")),
            ("class_weight", {np.int64(1): np.float32(2)}, {1: 2.0}),
            ("problem", np.str_("svc"), "svc"),
            ("label", np.str_("cell_type"), "cell_type"),
        ],
    )
    def test_numbers_of_numpy(self, name, value, plain):
        found = getattr(TrainOptions(**{name: value}), name)
        assert found == plain
        items = found.items() if isinstance(found, dict) else found if isinstance(found, tuple) else [found]
        for item in items:
            assert type(item).__module__ == "builtins"

    def test_options_of_conversions(self):
        options = ConvertOptions(Path("a"), index_base=np.int8(0), features=np.uint64(7), shuffle=np.int64(3))
        assert (options.index_base, options.features, options.shuffle) == (0, 7, 3)
        assert type(options.shuffle) is int

    def test_flags(self):
        assert TrainOptions(resume=np.True_, checkpoint="a").resume is True


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_pases": 3}, "there is no parameter 'max_pases'; did you mean max_passes?"),
        ({"sample_weights": [1]}, "there is no parameter 'sample_weights'; did you mean sample_weight?"),
        ({"c": 3}, "there is no parameter 'c'; did you mean C?"),
        (
            {"kappa": 3},
            "there is no parameter 'kappa'; there are: data, labels, sample_weight, qid, feature_names, ",
        ),
    ],
)
def test_unknown_parameters(options, message):
    with pytest.raises(UsageError) as error:
        ooc_svm.train(MISSING, **options)
    assert str(error.value).startswith(message)


def test_missing_and_superfluous_arguments():
    with pytest.raises(UsageError, match=r"^train: missing a required argument: 'data'"):
        ooc_svm.train()
    with pytest.raises(UsageError, match=r"^TrainOptions: too many positional arguments"):
        TrainOptions("svc")
    with pytest.raises(UsageError, match=r"no parameter 'thread'; did you mean threads\?"):
        ooc_svm.predict("model", "data", thread=2)


class TestDocumentation:
    @pytest.mark.parametrize("function", [name for name in ARGUMENTS if name != "TrainOptions"])
    def test_types_are_those_that_are_accepted(self, function):
        target = getattr(ooc_svm, function)
        kinds = (target.__init__ if isinstance(target, type) else target).kinds
        doc = (ClassDoc if isinstance(target, type) else FunctionDoc)(target)
        documented = {
            name: entry.type for entry in doc["Parameters"] for name in entry.name.split(", ") if entry.type
        }
        listed = {name for entry in doc["Parameters"] for name in entry.name.split(", ")}
        own = [each for each in parameters_of(function) if each in kinds]
        if function not in OPTIONS_OF:
            assert set(own) <= listed | {"labels", "qid"}
        for name in set(own) & set(documented):
            assert documented[name].startswith(kinds[name].doc), (name, documented[name], kinds[name].doc)

    def test_options_of_training_have_the_types_of_their_kinds(self):
        for name, option in OPTIONS.items():
            assert f"\n    {name} : {option.kind.doc}, default {option.default!r}\n" in TrainOptions.__doc__

"""Model files: the same bits back, nothing damaged believed, nothing half-written or foreign replaced."""

from __future__ import annotations

import errno
import json
import math
import os
import resource
import shutil
import signal
import stat
import struct
import time
from pathlib import Path
from typing import Any, BinaryIO

import google_crc32c
import numpy as np
import pytest
from faults.calls import CallFault
from faults.server import ForkServer
from helpers.scored_data import model_of
from helpers.thinning import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import ooc_svm
from ooc_svm.errors import DamageError, InputError, MemoryBudgetError, StorageError, UsageError
from ooc_svm.model import file as model_file
from ooc_svm.model import linear
from ooc_svm.model.file import MODEL_FILE, json_ready, load_model, model_info, save_model
from ooc_svm.model.model import Model
from ooc_svm.system import arrayfile, files, private_folders
from ooc_svm.system.arrayfile import FileKind, read_arrays, write_arrays
from ooc_svm.system.files import atomic_write, check_writable


def binary_model(n_features: int = 40, dense: bool = True, **facts: Any) -> Model:
    random = np.random.default_rng(5)
    weights = random.normal(size=(1, n_features))
    if not dense:
        weights[random.random(weights.shape) < 0.9] = 0
    given_facts: dict[str, Any] = {
        "positive": [1.0],
        "negative": -1.0,
        "classes": (-1.0, 1.0),
        "C": (0.5,),
        "options": {"tol": 1e-3, "seed": 7},
        "report": {"passes": 12, "converged": True, "models": [{"label": 1.0, "gap": 1e-4}]},
        "weights": weights,
        "bias": np.array([0.25]),
    } | facts
    return model_of(problem="svc", loss="hinge", solver="cutting-plane", **given_facts)


def assert_same(one: Model, other: Model) -> None:
    assert one.weights.tobytes() == other.weights.tobytes()
    assert one.weights.shape == other.weights.shape
    assert one.bias.tobytes() == other.bias.tobytes()
    assert (one.scale is None) == (other.scale is None)
    if one.scale is not None and other.scale is not None:
        assert one.scale.tobytes() == other.scale.tobytes()
    for name in model_file._CONTENT_TYPES:
        assert getattr(one, name) == getattr(other, name), name
        assert type(getattr(one, name)) is type(getattr(other, name)), name


def rewrite_header(path: Path, change: Any) -> None:
    """Change the JSON header as an adversary would: with a right checksum."""
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data, 8)
    header = json.loads(data[16 : 16 + length])
    arrays = data[-(-(16 + length + 4) // 64) * 64 :]
    text = change(header)
    text = json.dumps(header).encode() if text is None else text
    start = data[:8] + struct.pack("<Q", len(text)) + text + struct.pack("<I", google_crc32c.value(text))
    path.write_bytes(start + bytes(-len(start) % 64) + arrays)


# ---------------------------------------------------------------- round trips

finite = st.floats(allow_nan=False, allow_infinity=False)
labels = finite.map(lambda x: x + 0.0)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | finite | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def models(draw: st.DrawFn) -> Model:
    n_models, n_features = draw(st.integers(1, 4)), draw(st.integers(0, 30))
    elements = draw(st.sampled_from([finite, st.sampled_from([0.0, 0.0, 0.0, 0.0, -0.0, 1.5, 5e-324])]))
    classes = draw(st.lists(labels, min_size=n_models, max_size=n_models, unique=True))
    facts: dict[str, Any] = {
        "problem": "svr",
        "loss": draw(st.sampled_from(["epsilon-insensitive", "squared-epsilon-insensitive"])),
    }
    if draw(st.booleans()):
        facts = {
            "problem": "svc",
            "loss": draw(st.sampled_from(["hinge", "squared-hinge"])),
            "positive": classes,
            "negative": draw(st.none() | labels),
            "classes": tuple(classes),
            "label_names": draw(st.none() | st.tuples(*[st.text(max_size=5)] * n_models)),
        }
    return model_of(
        **facts,
        solver=draw(st.text(max_size=10)),
        weights=draw(npst.arrays(np.float64, (n_models, n_features), elements=elements)),
        bias=draw(npst.arrays(np.float64, n_models, elements=finite)),
        C=tuple(draw(st.lists(finite, min_size=n_models, max_size=n_models))),
        selected=draw(st.integers(-n_models, n_models - 1)),
        index_base=draw(st.integers(0, 1)),
        scale=draw(st.none() | npst.arrays(np.float64, n_features, elements=finite)),
        options=draw(st.dictionaries(st.text(max_size=8), json_values, max_size=3)),
        report={"passes": draw(st.integers(0, 2**70))},
    )


@given(models())
@settings(
    max_examples=examples(120), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_what_is_loaded_is_what_was_saved_bit_for_bit(tmp_path, trained):
    save_model(trained, tmp_path / "m")
    assert_same(load_model(tmp_path / "m"), trained)
    assert list(tmp_path.iterdir()) == [tmp_path / "m"]


def test_the_same_model_gives_the_same_bytes(tmp_path):
    save_model(binary_model(), tmp_path / "a")
    save_model(load_model(tmp_path / "a"), tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_layout_is_the_documented_one(tmp_path):
    trained = binary_model()
    save_model(trained, tmp_path / "m")
    data = (tmp_path / "m").read_bytes()
    (length,) = struct.unpack_from("<Q", data, 8)
    text = data[16 : 16 + length]
    header = json.loads(text)
    assert data[:8] == b"OOCSVM1\n"
    assert struct.unpack_from("<I", data, 16 + length) == (google_crc32c.value(text),)
    assert text == json.dumps(header, sort_keys=True).encode()
    base = -(-(16 + length + 4) // 64) * 64
    for item in header["arrays"]:
        begin = base + item["offset"]
        assert begin % 64 == 0
        part = np.frombuffer(data, item["dtype"], math.prod(item["shape"]), begin)
        np.testing.assert_array_equal(part.reshape(item["shape"]), getattr(trained, item["name"]))
        assert google_crc32c.value(part.tobytes()) == item["crc32c"]


def test_sparse_weights_take_less_room(tmp_path):
    save_model(binary_model(50_000, dense=False), tmp_path / "sparse")
    save_model(binary_model(50_000), tmp_path / "dense")
    assert (tmp_path / "dense").stat().st_size > 400_000
    assert (tmp_path / "sparse").stat().st_size < 80_000
    assert_same(load_model(tmp_path / "sparse"), binary_model(50_000, dense=False))


def test_arrays_longer_than_a_slice(tmp_path):
    trained = binary_model(arrayfile._SLICE_BYTES // 8 + 3)
    save_model(trained, tmp_path / "m")
    assert_same(load_model(tmp_path / "m"), trained)


# ---------------------------------------------------------------- what a model is


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"weights": np.zeros(3)}, "shape"),
        ({"weights": np.zeros((0, 3)), "bias": np.zeros(0)}, "shape"),
        ({"bias": np.zeros(2)}, "bias has the shape"),
        ({"bias": np.array([np.nan])}, "bias holds a number that is not finite"),
        ({"weights": np.array([[1.0, np.inf]])}, "weights holds"),
        ({"scale": np.ones(4)}, "scale has the shape"),
        ({"C": (1.0, 2.0)}, "C has 2 entries for 1 models"),
        ({"positive": [1.0, 2.0]}, "positive has 2 entries"),
        ({"positive": []}, "svc has no positive labels"),
        ({"problem": "log" * 99}, r"the problem is '(log){26}lo', this release knows svc, svr"),
        ({"loss": "epsilon-insensitive"}, "the loss is 'epsilon-insensitive', which svc does not have"),
        ({"classes": (0.0, math.nan)}, "classes holds nan"),
        ({"classes": ("1",)}, "classes holds '1'"),
        ({"label_names": ("a",), "classes": (0.0, 1.0)}, "1 names for 2 classes"),
        ({"selected": 1}, "model 1 is selected of 1"),
        ({"index_base": 2}, "index base"),
        ({"index_base": True}, "index_base of a model is True, not int"),
        ({"selected": 0.0}, r"selected of a model is 0\.0, not int"),
        ({"problem": None}, "problem of a model is None, not str"),
        ({"loss": ["hinge"]}, "loss of a model is"),
        ({"solver": 3}, "solver of a model is 3, not str"),
        ({"options": None}, "options of a model is None, not dict"),
        ({"report": []}, r"report of a model is \[\], not dict"),
        ({"positive": 1.0}, r"positive of a model is 1\.0, not a sequence"),
        ({"positive": "1"}, "positive of a model is '1', not a sequence"),
        ({"positive": [None]}, "positive holds None, which is not a finite number"),
        ({"C": [10**400]}, "C holds 1000"),
        ({"C": [True]}, "C holds True"),
        ({"negative": "-1"}, "negative holds '-1'"),
        ({"label_names": "ab", "classes": (0.0, 1.0)}, "label_names of a model is 'ab', not a sequence"),
        ({"label_names": (1, 2), "classes": (0.0, 1.0)}, "label_names holds 1, which is no text"),
    ],
)
def test_parts_that_do_not_fit_are_refused(facts, message):
    parts = {
        "problem": "svc",
        "loss": "hinge",
        "solver": "ocas",
        "weights": np.zeros((1, 3)),
        "bias": np.zeros(1),
        "positive": [1.0],
    }
    model_of(**parts)
    of_functions = {"weights", "bias", "scale"} & set(facts)
    with pytest.raises(ValueError if of_functions else UsageError, match=message):
        model_of(**parts | facts)


def test_large_finite_weights_are_finite():
    binary_model(positive=[1], C=[1])
    huge = np.full((1, 4), np.finfo(float).max)
    assert binary_model(4, weights=huge).weights.max() == np.finfo(float).max


def test_which_models_predict():
    common: dict[str, Any] = {"problem": "svc", "loss": "hinge", "solver": "ocas", "bias": np.zeros(4)}
    grid = model_of(weights=np.zeros((4, 2)), positive=[1] * 4, negative=-1, C=(1, 2, 3, 4), **common)
    assert (grid.selected, grid.active, grid.is_one_vs_rest) == (3, (3,), False)
    grid.selected = 1
    assert grid.active == (1,)
    one_vs_rest = model_of(weights=np.zeros((4, 2)), positive=[3, 5, 7, 9], C=(1,) * 4, **common)
    assert (one_vs_rest.active, one_vs_rest.is_one_vs_rest) == ((0, 1, 2, 3), True)
    several = model_of(weights=np.zeros((4, 2)), positive=[3, 5, 3, 5], C=(1, 1, 2, 2), selected=0, **common)
    assert several.active == (0, 1)
    without_c = model_of(weights=np.zeros((4, 2)), positive=[3, 5, 7, 9], **common)
    assert without_c.active == (0, 1, 2, 3)
    common |= {"problem": "svr", "loss": "epsilon-insensitive"}
    values = model_of(weights=np.zeros((4, 2)), C=(1, 2, 3, 4), **common)
    assert (values.active, values.is_one_vs_rest) == ((3,), False)


def test_json_ready_leaves_numbers_and_no_nan():
    value = {
        "a": np.float64(0.5),
        2: (np.int64(3), np.nan, np.bool_(True)),
        "c": [math.inf, -math.inf, None, "text", 10**30],
        "d": np.arange(3),
        "e": np.float32(1.5),
    }
    plain = json_ready(value)
    text = json.dumps(plain, allow_nan=False, sort_keys=True)
    assert json.loads(text) == {
        "a": 0.5,
        "2": [3, None, True],
        "c": [None, None, None, "text", 10**30],
        "d": [0, 1, 2],
        "e": 1.5,
    }
    with pytest.raises(TypeError, match="object"):
        json_ready(object())


def test_model_info_is_json_and_tells_the_facts():
    trained = binary_model(dense=False, report={"gap": math.nan}, label_names=("no", "yes"))
    info = model_info(trained)
    json.dumps(info, allow_nan=False)
    assert info["n_features"] == 40
    assert info["n_models"] == 1
    assert info["n_nonzero_weights"] == np.count_nonzero(trained.weights) < 40
    assert (info["classes"], info["label_names"]) == ([-1.0, 1.0], ["no", "yes"])
    assert (info["bias"], info["C"], info["report"]) == ([0.25], [0.5], {"gap": None})
    assert (info["kind"], info["problem"], info["index_base"]) == ("model", "svc", 1)


# ---------------------------------------------------------------- damage


@pytest.mark.fault
@pytest.mark.parametrize("dense", [True, False])
def test_a_flipped_bit_anywhere_is_found(tmp_path, dense):
    path = tmp_path / "m"
    save_model(binary_model(100, dense=dense, scale=np.ones(100)), path)
    data = path.read_bytes()
    for position in [*range(0, len(data), 3), len(data) - 1]:
        broken = bytearray(data)
        broken[position] ^= 1 << (position % 8)
        path.write_bytes(broken)
        with pytest.raises(DamageError, match="m: "):
            load_model(path)
    path.write_bytes(data)
    load_model(path)


@pytest.mark.fault
def test_a_file_cut_anywhere_or_grown_is_found(tmp_path):
    path = tmp_path / "m"
    save_model(binary_model(20), path)
    data = path.read_bytes()
    for length in range(0, len(data), 5):
        path.write_bytes(data[:length])
        with pytest.raises(DamageError):
            load_model(path)
    path.write_bytes(data + b"\0")
    with pytest.raises(DamageError, match="bytes where"):
        load_model(path)


@given(st.binary(max_size=300))
@settings(
    max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_random_bytes_after_the_magic_are_damage(tmp_path, tail):
    (tmp_path / "m").write_bytes(MODEL_FILE.magic + tail)
    with pytest.raises(DamageError):
        load_model(tmp_path / "m")


def changed(**items: Any) -> Any:
    return lambda header: header["content"].update(items)


def changed_array(number: int, **items: Any) -> Any:
    return lambda header: header["arrays"][number].update(items)


HOSTILE_HEADERS = {
    "nan": lambda header: json.dumps(header).replace("0.5", "NaN", 1).encode(),
    "infinity": lambda header: json.dumps(header).replace("0.5", "1e999", 1).encode(),
    "many digits": lambda header: json.dumps(header).replace("0.5", "9" * 5000, 1).encode(),
    "deep": lambda header: b"[" * 200_000,
    "not JSON": lambda header: b"{",
    "not text": lambda header: b"\xff\xfe",
    "list": lambda header: b"[]",
    "no content": lambda header: header.pop("content") and None,
    "content is text": lambda header: header.update(content="x"),
    "no arrays": lambda header: header.pop("arrays") and None,
    "no array": lambda header: header.update(arrays=[]),
    "array is text": lambda header: header.update(arrays=["bias"]),
    "no version": lambda header: header.pop("format_version") and None,
    "version 0": lambda header: header.update(format_version=0),
    "version true": lambda header: header.update(format_version=True),
    "missing fact": lambda header: header["content"].pop("classes") and None,
    "facts of wrong type": changed(problem=3),
    "flag for number": changed(selected=True),
    "selected": changed(selected=9),
    "models": changed(n_models=2),
    "no models": changed(n_models=0),
    "features": changed(n_features=10**30),
    "nested labels": changed(classes=[[1.0], 2.0]),
    "text labels": changed(classes=["1", "2"]),
    "huge label": changed(classes=[10**400, 1.0]),
    "names": changed(label_names=[1, 2]),
    "kernel": changed(kernel="rbf"),
    "dtype": changed_array(0, dtype="|O"),
    "dtype object": changed_array(0, dtype=["<f8"]),
    "other dtype": changed_array(0, dtype="<i8"),
    "negative shape": changed_array(0, shape=[-1]),
    "huge shape": changed_array(0, shape=[2**62]),
    "shape beyond printing": changed_array(-1, shape=[10**4000] * 3),
    "huge empty shape": changed_array(0, shape=[0, 2**62, 2**62]),
    "many dimensions": changed_array(0, shape=[1] * 80),
    "offset": changed_array(1, offset=0),
    "twice": changed_array(1, name="bias"),
    "other name": changed_array(0, name="beta"),
    "no checksum": changed_array(0, crc32c=None),
}


@pytest.mark.fault
@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("name", HOSTILE_HEADERS)
def test_headers_made_with_intent_are_refused(tmp_path, name, dense):
    path = tmp_path / "m"
    save_model(binary_model(30, dense=dense), path)
    rewrite_header(path, lambda header: None)
    load_model(path)  # the rewriting itself does no harm
    rewrite_header(path, HOSTILE_HEADERS[name])
    with pytest.raises((DamageError, MemoryBudgetError)) as caught:
        load_model(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 500
    assert isinstance(caught.value, MemoryBudgetError) == (name == "features" and not dense)


# What does not go with the problem, and a part of what the message says.
HOSTILE_REGRESSORS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown problem": ({"problem": "svm"}, "'svm', this release knows svc, svr"),
    "a classifier's problem": ({"problem": "svc"}, "'epsilon-insensitive', which svc does not have"),
    "a classifier": ({"problem": "svc", "loss": "hinge"}, "svc has no positive labels"),
    "a classifier's loss": ({"loss": "hinge"}, "'hinge', which svr does not have"),
    "unknown loss": ({"loss": "x" * 999}, "which svr does not have"),
    "positive labels": ({"positive": [1.0, 2.0]}, "has positive labels"),
    "a negative label": ({"negative": 0}, "has a negative label"),
    "classes": ({"classes": [0.0, 1.0]}, "has classes"),
    "names": ({"label_names": []}, "has names of classes"),
    "another number of C": ({"C": [1.0]}, "C has 1 entries for 2 models"),
    "negative epsilon": ({"options": {"epsilon": -0.5}}, "epsilon is -0.5, less than 0"),
    "huge epsilon": ({"options": {"epsilon": 10**400}}, "epsilon holds 1000"),
    "epsilon is text": ({"options": {"epsilon": "0.1"}}, "epsilon holds '0.1'"),
    "epsilon is a flag": ({"options": {"epsilon": True}}, "epsilon holds True"),
    "epsilon is a list": ({"options": {"epsilon": [0.1]}}, "damaged model"),
}


@pytest.mark.fault
@pytest.mark.parametrize("name", HOSTILE_REGRESSORS)
def test_regressors_with_what_they_cannot_have_are_damage(tmp_path, name):
    path = tmp_path / "m"
    trained = model_of(
        problem="svr",
        loss="epsilon-insensitive",
        solver="streamed-smo",
        weights=np.ones((2, 3)),
        bias=np.zeros(2),
        C=(0.1, 1.0),
        options={"epsilon": 0},
    )
    save_model(trained, path)
    assert_same(load_model(path), trained)
    change, message = HOSTILE_REGRESSORS[name]
    rewrite_header(path, changed(**change))
    with pytest.raises(DamageError) as caught:
        load_model(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 500


def write_weights(path: Path, ids: Any, values: Any, dtype: str = "int32", total: int = 10) -> None:
    trained = binary_model(total)
    content = {name: json_ready(getattr(trained, name)) for name in model_file._CONTENT_TYPES}
    arrays = {
        "bias": trained.bias,
        "weight_ids": np.array(ids, dtype),
        "weight_values": np.array(values, np.float64),
    }
    with path.open("wb") as file:
        write_arrays(file, MODEL_FILE, content, arrays)


@pytest.mark.fault
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("ids", [[0, 10], [-1, 3], [3, 3], [4, 2], [1], [[1, 2]]])
def test_ids_of_sparse_weights_are_checked(tmp_path, ids, dtype):
    path = tmp_path / "m"
    write_weights(path, [0, 9], [1.0, 2.0], dtype)
    assert load_model(path).weights.tolist() == [[1, 0, 0, 0, 0, 0, 0, 0, 0, 2]]
    write_weights(path, ids, [1.0, 2.0], dtype)
    with pytest.raises(DamageError, match="ids"):
        load_model(path)


@pytest.mark.fault
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_damage(tmp_path, value):
    write_weights(tmp_path / "m", [0, 9], [1.0, value])
    with pytest.raises(DamageError, match="not finite"):
        load_model(tmp_path / "m")


@pytest.mark.fault
def test_weights_that_do_not_fit_memory_are_refused_with_the_sum(tmp_path, monkeypatch):
    save_model(binary_model(1000, dense=False), tmp_path / "sparse")
    save_model(binary_model(1000), tmp_path / "dense")
    for module in (linear, arrayfile):
        monkeypatch.setattr(module, "available_memory", lambda: 5000)
    with pytest.raises(MemoryBudgetError, match=r"sparse: 1 models of 1000 features take 8 kB"):
        load_model(tmp_path / "sparse")
    with pytest.raises(MemoryBudgetError, match=r"dense: its arrays take 8\.01 kB"):
        load_model(tmp_path / "dense")


def test_a_newer_version_says_so(tmp_path):
    path = tmp_path / "m"
    save_model(binary_model(), path)
    rewrite_header(path, lambda header: header.update(format_version=7))
    with pytest.raises(DamageError, match=r"format version 7, this release reads up to 4"):
        load_model(path)


def test_what_is_no_model(tmp_path):
    with pytest.raises(InputError, match="no such model"):
        load_model(tmp_path / "missing")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for name, kind in (("", "a folder"), ("pipe", "a named pipe"), ("link", "a device")):
        with pytest.raises(DamageError, match=f"^{tmp_path / name} is {kind}; give the file of a model$"):
            load_model(tmp_path / name)
    (tmp_path / "text").write_text("solver_type L2R_L2LOSS_SVC\n")
    with pytest.raises(DamageError, match="is not a model"):
        load_model(tmp_path / "text")


@pytest.mark.fault
def test_an_unreadable_disk_is_a_storage_error(tmp_path, monkeypatch):
    save_model(binary_model(), tmp_path / "m")
    fired = []

    def broken(self: object, n_bytes: int) -> bytes:
        fired.append(n_bytes)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(arrayfile._Reader, "_take", broken)
    with pytest.raises(StorageError, match="Input/output error"):
        load_model(tmp_path / "m")
    assert fired


def test_the_array_file_refuses_what_it_cannot_hold(tmp_path, monkeypatch):
    kind = FileKind(b"12345678", "thing", 1)
    with (tmp_path / "f").open("wb") as file:
        with pytest.raises(ValueError, match="type"):
            write_arrays(file, kind, {}, {"a": np.zeros(2, complex)})
        with pytest.raises(ValueError):
            write_arrays(file, kind, {"a": math.nan}, {})
        monkeypatch.setattr(arrayfile, "HEADER_LIMIT", 100)
        with pytest.raises(InputError, match="header of the thing takes"):
            write_arrays(file, kind, {"a": "x" * 100}, {})
        assert file.tell() == 0
        write_arrays(file, kind, {}, {})
    assert read_arrays(tmp_path / "f", kind) == ({}, {})


def test_the_time_to_read_grows_with_the_arrays_not_with_their_square(tmp_path):
    kind = FileKind(b"12345678", "thing", 1)
    arrays = {str(number): np.zeros(0) for number in range(40_000)}
    with (tmp_path / "f").open("wb") as file:
        write_arrays(file, kind, {}, arrays)
    start = time.process_time()
    assert read_arrays(tmp_path / "f", kind)[1].keys() == arrays.keys()
    assert (
        time.process_time() - start < 15
    )  # it takes less than 1; 40 if each name is compared with all others


def test_arrays_of_any_order_come_back_in_the_order_of_the_machine(tmp_path):
    kind = FileKind(b"12345678", "thing", 1)
    arrays = {
        "big": np.arange(6, dtype=">i4").reshape(2, 3),
        "strided": np.arange(10.0)[::3],
        "none": np.zeros((0, 5)),
        "scalar": np.array(3.0),
        "bytes": np.arange(5, dtype=np.int8),
    }
    with (tmp_path / "f").open("wb") as file:
        write_arrays(file, kind, {"x": 1}, arrays)
    content, found = read_arrays(tmp_path / "f", kind)
    assert content == {"x": 1}
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype.isnative
        assert found[name].flags.writeable


# ---------------------------------------------------------------- writing


def test_models_are_replaced_and_other_files_are_not(tmp_path):
    path = tmp_path / "m"
    save_model(binary_model(), path)
    save_model(binary_model(bogus := 7), path)
    assert load_model(path).n_features == bogus
    with pytest.raises(UsageError, match="m: exists; choose another name"):
        save_model(binary_model(), path, overwrite=False)
    for content in (b"", b"precious", b"OOCSVM"):
        path.write_bytes(content)
        with pytest.raises(UsageError, match="is no model"):
            save_model(binary_model(), path)
        assert path.read_bytes() == content
    with pytest.raises(UsageError, match="is no model"):
        save_model(binary_model(), tmp_path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_changed_model_that_does_not_fit_itself_is_not_saved(tmp_path):
    trained = binary_model()
    trained.bias[0] = np.nan
    with pytest.raises(UsageError, match="bias"):
        save_model(trained, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_modes_and_links(tmp_path):
    old = os.umask(0o027)
    try:
        atomic_write(tmp_path / "new", lambda file: file.write(b"1"))
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    (tmp_path / "new").chmod(0o604)
    (tmp_path / "link").symlink_to("new")
    atomic_write(tmp_path / "link", lambda file: file.write(b"22"))
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "new").read_bytes() == b"22"
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o604
    with pytest.raises(StorageError, match="not a regular file"):
        atomic_write("/dev/null", lambda file: None)


def test_the_temporary_file_is_private_while_it_is_written(tmp_path):
    def write(file: BinaryIO) -> None:
        (folder,) = tmp_path.iterdir()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert {stat.S_IMODE(entry.stat().st_mode) for entry in folder.iterdir()} == {0o600}

    atomic_write(tmp_path / "f", write)
    assert [entry.name for entry in tmp_path.iterdir()] == ["f"]


def test_leftovers_are_swept_and_live_writers_are_spared(tmp_path):
    leftover = tmp_path / ".f.0123456789abcdef.partial"
    os.close(private_folders.make(leftover))
    others = [tmp_path / ".g.0123456789abcdef.partial", tmp_path / ".f.x.partial", tmp_path / "f.partial"]
    others.append(tmp_path / ".f.00000123456789ab.partial")
    for path in others:
        path.write_bytes(b"x")

    def outer(file: BinaryIO) -> None:
        file.write(b"outer")
        atomic_write(tmp_path / "f", lambda inner: inner.write(b"inner"))
        assert (tmp_path / "f").read_bytes() == b"inner"

    atomic_write(tmp_path / "f", outer)
    assert (tmp_path / "f").read_bytes() == b"outer"
    assert sorted(tmp_path.iterdir()) == sorted([*others, tmp_path / "f"])


@pytest.mark.fault
def test_a_temporary_file_swept_too_early_is_made_again(tmp_path, monkeypatch):
    flock, fired = private_folders.fcntl.flock, []

    def swept_before_the_lock(descriptor: int, operation: int) -> None:
        if not fired:
            (temporary,) = tmp_path.glob(".f.*.partial")
            shutil.rmtree(temporary)
            fired.append(temporary)
        flock(descriptor, operation)

    monkeypatch.setattr(private_folders.fcntl, "flock", swept_before_the_lock)
    atomic_write(tmp_path / "f", lambda file: file.write(b"whole"))
    assert len(fired) == 1
    assert (tmp_path / "f").read_bytes() == b"whole"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.fault
@pytest.mark.parametrize("call", ["open", "fchmod", "fsync", "rename"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_a_failing_step_leaves_the_old_file(tmp_path, monkeypatch, call, code):
    path = tmp_path / "m"
    save_model(binary_model(5), path)
    before, fired = path.read_bytes(), []

    def broken(*_: object, **__: object) -> None:
        fired.append(call)
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(files.os, call, broken)
    with pytest.raises(StorageError, match=os.strerror(code)) as caught:
        save_model(binary_model(6), path)
    monkeypatch.undo()
    assert fired
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_file_rename_folder_reach_the_disk_in_this_order(tmp_path, monkeypatch):
    fsync, rename, seen = os.fsync, os.rename, []

    def recorded_fsync(descriptor: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        seen.append((kind, os.fstat(descriptor).st_size if kind == "file" else 0))
        fsync(descriptor)

    def recorded_rename(source: Path, target: Path) -> None:
        seen.append(("rename", 0))
        rename(source, target)

    monkeypatch.setattr(files.os, "fsync", recorded_fsync)
    monkeypatch.setattr(files.os, "rename", recorded_rename)
    atomic_write(tmp_path / "f", lambda file: file.write(bytes(12345)))
    assert seen == [("file", 12345), ("rename", 0), ("folder", 0)]


@pytest.mark.fault
def test_a_full_disk_leaves_the_old_file(tmp_path):
    """A limit on the size of files stands for the disk: the write itself fails, in the kernel."""
    path = tmp_path / "m"
    save_model(binary_model(5), path)
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(StorageError, match="File too large"):
            save_model(binary_model(300_000), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.fault
def test_what_the_writer_raises_passes_through(tmp_path):
    def write(file: BinaryIO) -> None:
        file.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        atomic_write(tmp_path / "f", write)
    assert list(tmp_path.iterdir()) == []


def test_check_writable(tmp_path):
    check_writable(tmp_path / "f")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StorageError, match="there is no folder"):
        check_writable(tmp_path / "nowhere" / "f")
    with pytest.raises(StorageError, match="not a regular file"):
        check_writable(tmp_path)


def save_larger(path: str) -> None:
    save_model(binary_model(9), path)


@pytest.mark.fault
def test_killed_at_any_step_the_file_is_the_old_or_the_new_one(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    path = tmp_path / "m"
    save_model(binary_model(5), path)
    seen: list[int] = []
    steps = ("open", "chmod", "fsync", "rename")
    for step in range(1, 50):
        fault = CallFault(steps, step, step, "s", signal.SIGKILL)
        ended = fork_server.call("model.test_model:save_larger", str(path), fault=fault, within=tmp_path)
        assert ended.code in (0, -signal.SIGKILL)
        seen.append(load_model(path).n_features)
        if ended.code == 0:
            break
    assert ended.code == 0
    assert len(seen) > 5
    assert seen == sorted(seen)
    assert set(seen) == {5, 9}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("degree", [2.5, 0.0, -1.0, 1001.0, 1e300, np.inf, np.nan])
def test_a_degree_that_no_option_has_is_damage(tmp_path, degree):
    rows, labels = np.arange(12.0).reshape(6, 2), [0, 1, 0, 1, 0, 1]
    save_model(ooc_svm.train(rows, labels, kernel="poly", degree=2), tmp_path / "m")
    content, arrays = read_arrays(tmp_path / "m", MODEL_FILE)
    own = dict(arrays)
    for value in (2.0, degree):
        numbers = own["kernel_numbers"].copy()
        numbers[numbers == 2.0] = value
        with open(tmp_path / "other", "wb") as file:
            write_arrays(file, MODEL_FILE, content, {**own, "kernel_numbers": numbers})
        if value == 2.0:
            assert load_model(tmp_path / "other").functions.function.degree == 2
    with pytest.raises(DamageError, match=r"damaged model: the (degree|numbers) of the kernel"):
        load_model(tmp_path / "other")

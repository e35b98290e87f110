"""Text in a bucket: many small objects, empty ones, and formats that are read from a disk alone."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers.object_places import Place
from helpers.object_server import Request
from typer.testing import CliRunner

import ooc_svm
from ooc_svm import load_model
from ooc_svm.cli.app import app
from ooc_svm.errors import DamageError, InputError
from ooc_svm.store import open_store
from ooc_svm.system.object_files import ObjectReader
from ooc_svm.text.ahead import OPENED_AT_ONCE
from ooc_svm.text.reader import TextRows


@contextmanager
def in_the_air(place: Place):
    """The largest number of requests for text that wait for an answer at a time, as a list of one."""
    most, lock, waiting = [0], threading.Lock(), [0]

    def fault(request: Request, number: int) -> None:
        with lock:
            waiting[0] += ".svm" in request.key
            most[0] = max(most[0], waiting[0])

        def answered() -> None:
            with lock:
                waiting[0] -= ".svm" in request.key

        threading.Timer(place.proxy.latency, answered).start()

    place.proxy.latency, place.proxy.fault = 0.02, fault
    yield most
    time.sleep(2 * place.proxy.latency)
    place.proxy.latency, place.proxy.fault = 0.0, None


def test_small_objects_are_opened_ahead(place: Place, text: bytes, local: Path, tmp_path: Path):
    lines = text.splitlines(keepends=True)
    names = [f"many/{number:03}.svm" for number in range(60)]
    for number, name in enumerate(names):
        place.put(name, b"".join(lines[25 * number : 25 * (number + 1)]))
    with place.proxy.counted() as found:
        ooc_svm.convert(place / "many/*.svm", tmp_path / "many.zarr")
    assert len([request for request in found if "many/0" in request.key]) <= 5 * len(names) + 1
    with in_the_air(place) as looking:
        rows = TextRows([place / name for name in names])
    with in_the_air(place) as reading:
        assert sum(block.rows.n_rows for block in rows) == len(lines)
    assert 4 < looking[0] <= OPENED_AT_ONCE
    assert 4 < reading[0] <= OPENED_AT_ONCE + 1
    ooc_svm.convert(local / "rows.svm", tmp_path / "one.zarr")
    assert open_store(tmp_path / "many.zarr").id == open_store(tmp_path / "one.zarr").id


def test_the_first_bad_object_is_named(place: Place, text: bytes, tmp_path: Path):
    for number in range(5):
        place.put(f"many/{number}.svm", b"" if number in (2, 4) else text)
    with pytest.raises(InputError, match=r"many/2\.svm: the file is empty; get it again"):
        ooc_svm.convert(place / "many/*.svm", tmp_path / "many.zarr")
    with pytest.raises(InputError, match=r"many/9\.svm: there is no such file; check the path"):
        ooc_svm.convert([place / "many/1.svm", place / "many/9.svm"], tmp_path / "many.zarr")


@pytest.mark.parametrize(
    ("name", "head", "kind"),
    [
        ("m.npz", b"PK\x03\x04", r"\(\.npz\)"),
        ("p.parquet", b"PAR1", "Parquet"),
        ("a.h5ad", b"\x89HDF\r\n\x1a\n", "HDF5"),
        ("a.other", b"\x89HDF\r\n\x1a\n", "HDF5"),
    ],
)
def test_other_files_are_read_from_a_disk_alone(place: Place, tmp_path: Path, name, head, kind):
    place.put(name, head + bytes(100))
    for call in (
        lambda: ooc_svm.convert(place / name, tmp_path / "new.zarr"),
        lambda: ooc_svm.train(place / name),
    ):
        with pytest.raises(InputError, match=f"{name}:? is .*{kind}.* copy it to one, and give its path"):
            call()


def test_no_memory_is_left_out_of_the_plan(place: Place, text: bytes, tmp_path: Path):
    from ooc_svm.conversion.options import ConvertOptions
    from ooc_svm.conversion.plan import plan_conversion
    from ooc_svm.errors import MemoryBudgetError
    from ooc_svm.system.address import located

    place.put("rows.svm", text)
    with pytest.raises(MemoryBudgetError, match=r"objects on their way 101 MB") as remote:
        plan_conversion(ConvertOptions(located(place / "new.zarr"), memory="200MB"), [place / "rows.svm"])
    with pytest.raises(MemoryBudgetError) as near:
        plan_conversion(ConvertOptions(tmp_path / "new.zarr", memory="200MB"), [])
    assert "objects" not in str(near.value)
    assert str(remote.value) != str(near.value)


def test_names_of_features_are_read_from_a_bucket(place: Place, local: Path, tmp_path: Path):
    place.put("names.txt", b"".join(b"word%d\n" % number for number in range(60)))
    ooc_svm.convert(local / "rows.svm", tmp_path / "n.zarr", feature_names=place / "names.txt")
    assert open_store(tmp_path / "n.zarr").feature_names[59] == "word59"
    with pytest.raises(InputError, match=r"^s3://.*none\.txt: there is no such file of names"):
        ooc_svm.convert(local / "rows.svm", tmp_path / "o.zarr", feature_names=place / "none.txt")


def test_a_web_server_is_not_asked_for_a_list(place: Place, tmp_path: Path):
    address = place.address("*.svm")
    with pytest.raises(InputError, match="cannot be asked for a list; name each file"):
        ooc_svm.convert(f"{place.proxy.url}/{address.bucket}/{address.key}", tmp_path / "n.zarr")


def test_an_object_that_is_replaced_while_it_is_read(place: Place, text: bytes, monkeypatch):
    place.put("rows.svm", text)
    reader = ObjectReader(place.address("rows.svm"), range_bytes=1000, ranges_ahead=1)
    assert reader.read(1000) == text[:1000]
    place.put("rows.svm", text[::-1])
    with pytest.raises(
        DamageError, match=r"rows\.svm failed: the object was replaced after it was opened"
    ) as raised:
        reader.read(1000)
    assert raised.value.exit_code == 4
    reader.close()


def test_the_command_trains_on_several_texts(place: Place, text: bytes, tmp_path: Path):
    lines = text.splitlines(keepends=True)
    for name, part in (("a.svm", lines[:700]), ("b.svm", lines[700:])):
        place.put(name, b"".join(part))
    command = ["train", place / "a.svm", place / "b.svm", "-o", str(tmp_path / "m"), "--quiet"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.stderr
    assert load_model(tmp_path / "m").report["n_rows"] == len(lines)

"""Pipes, links to devices, folders and sockets in the place of files are refused at once, by name."""

from __future__ import annotations

import math
import os
import shutil
import socket

import numpy as np
import pytest
from helpers.anndata_data import N_ROWS, write
from helpers.processes import assert_one_sentence, run
from helpers.store_data import random_rows, read_all, write_store

from ooc_svm import train
from ooc_svm.errors import DamageError
from ooc_svm.store import open_store, verify_store

pytestmark = [pytest.mark.fault, pytest.mark.timeout(120)]

KINDS = ["pipe", "zero", "link", "folder", "socket"]


def put(path, kind):
    """Put something else into the place of a file."""
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            folder = os.open(path.parent, os.O_RDONLY)
            server.bind(f"/proc/self/fd/{folder}/{path.name}")  # the name of a socket must be short
            os.close(folder)
    else:
        path.symlink_to("/dev/zero" if kind == "zero" else "/none")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    place = tmp_path_factory.mktemp("whole")
    matrix, labels = random_rows(1, n_rows=N_ROWS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        write_store(place / "ours", matrix, labels)
    write(place / "2", matrix, zarr_format=2)
    write(place / "3", matrix)
    return place


@pytest.fixture
def copied(whole, tmp_path):
    return lambda name: shutil.copytree(whole / name, tmp_path / name)


FILES = {
    "ours": ["zarr.json", "X/data/zarr.json", "X/data/c/0", "uns/ooc_svm/header/c/0", "obs/label/c/0"],
    "2": [".zgroup", ".zattrs", "X/.zattrs", "X/data/.zarray", "X/data/0", "obs/label/0", "obs/.zattrs"],
    "3": ["zarr.json", "X/zarr.json", "X/indptr/zarr.json", "X/indices/c/0", "obs/label/c/0", "X/data/c"],
}


@pytest.mark.parametrize(
    ("store", "name"), [(store, name) for store, names in FILES.items() for name in names]
)
def test_in_a_store(copied, store, name):
    path = copied(store)
    for kind in KINDS:
        if name == "X/data/c":
            shutil.rmtree(path / name, ignore_errors=True)
        put(path / name, kind)
        for check in (open_store, verify_store):
            with pytest.raises(DamageError, match=f"{path / name}"):
                check(path)
        (path / name).rmdir() if kind == "folder" else (path / name).unlink()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["X/data/c/0", "X/indices/c/0", "X/indptr/c/0"])
@pytest.mark.parametrize("store", ["ours", "3"])
def test_in_a_store_that_is_open(copied, store, name, kind):
    path = copied(store)
    opened = open_store(path)
    put(path / name, kind)
    with pytest.raises(DamageError, match=f"{path / name}"):
        read_all(opened)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A store, and the folder of checkpoints of a run on it that was not finished."""
    place = tmp_path_factory.mktemp("trained")
    matrix, _ = random_rows(3, n_rows=300)
    labels = np.where(np.random.default_rng(0).random(300) < 0.5, -1.0, 1.0)
    write_store(place / "s", matrix, labels, chunk_elements=200, chunk_rows=50)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ooc_svm.training.run.CHECKPOINT_SHARE", math.inf)  # after every pass
        train(place / "s", checkpoint=place / "checkpoints", **OPTIONS)
    return place


OPTIONS = {"max_passes": 3, "tol": 1e-12, "solver": "ocas"}


@pytest.mark.parametrize("kind", KINDS[:2])
@pytest.mark.parametrize("part", ["state", "vectors"])
def test_in_a_checkpoint(trained, tmp_path, part, kind):
    folder = shutil.copytree(trained / "checkpoints", tmp_path / "checkpoints")
    found = sorted(folder.glob(f"*.{part}"))
    assert found
    for path in found:
        put(path, kind)
    with pytest.raises(DamageError, match=rf"checkpoint-\d\.{part} is a .*, not a regular file"):
        train(trained / "s", checkpoint=folder, resume=True, **OPTIONS)


@pytest.mark.parametrize("kind", KINDS[:3])
def test_on_the_command_line(trained, tmp_path, kind):
    put(tmp_path / "model", kind)
    for command in (("info", tmp_path / "model"), ("predict", tmp_path / "model", trained / "s")):
        assert_one_sentence(run(*command), 3 if kind == "link" else 4)
    path = shutil.copytree(trained / "s", tmp_path / "s")
    put(path / "X/data/c/0", kind)
    for command in (("verify", path), ("train", path, "-o", tmp_path / "m"), ("info", path)):
        ended = run(*command)
        assert_one_sentence(ended, 4)
        assert "X/data/c/0" in ended.stderr

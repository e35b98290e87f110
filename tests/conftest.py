"""Small data sets that several test files share, made once a session."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from helpers.thinning import ALL, thin

if TYPE_CHECKING:
    from faults.server import ForkServer

    from ooc_svm.cluster.connection import Cluster


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="Run every combination of parameters.")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--all"):
        os.environ[ALL] = "1"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--all"):
        items[:], left_out = thin(items)
        config.hook.pytest_deselected(items=left_out)


@dataclass(frozen=True)
class SmallData:
    """A folder with ``train.svm``, ``test.svm`` and the store ``train.zarr`` made from the first."""

    folder: Path
    n_rows: int
    n_features: int

    @property
    def text(self) -> Path:
        return self.folder / "train.svm"

    @property
    def test(self) -> Path:
        return self.folder / "test.svm"

    @property
    def store(self) -> Path:
        return self.folder / "train.zarr"


def make_small_data(
    folder: Path, classes: tuple[str, ...], *, n_rows: int = 300, n_features: int = 25
) -> SmallData:
    """Rows in which each class has features of its own, with some noise."""
    from ooc_svm.conversion.convert import convert

    rng = np.random.default_rng(7)
    lines = []
    for _ in range(n_rows + 100):
        number = int(rng.integers(len(classes)))
        x = rng.random(n_features) * (rng.random(n_features) < 0.4)
        x[number :: len(classes)] += 0.5 * rng.random()
        x[n_features - 1] = 0.25  # every file names the last feature
        pairs = " ".join(f"{j + 1}:{value:.4g}" for j, value in enumerate(x) if value >= 1e-4)
        lines.append(f"{classes[number]} {pairs}\n")
    data = SmallData(folder, n_rows, n_features)
    data.text.write_text("".join(lines[:n_rows]))
    data.test.write_text("".join(lines[n_rows:]))
    convert(data.text, data.store)
    return data


@pytest.fixture(scope="session", autouse=True)
def patience() -> None:
    """Commands in this process do not say that they compile: whether they do depends on earlier runs."""
    from ooc_svm.cli import compiling

    compiling.PATIENCE = 600.0


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> SmallData:
    """Two classes, -1 and +1."""
    return make_small_data(tmp_path_factory.mktemp("small"), ("-1", "+1"))


@pytest.fixture(scope="session")
def small_classes(tmp_path_factory: pytest.TempPathFactory) -> SmallData:
    """Three classes: 1, 2 and 5."""
    return make_small_data(tmp_path_factory.mktemp("classes"), ("1", "2", "5"))


@pytest.fixture
def nothing_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The test writes no file and starts no thread."""
    monkeypatch.chdir(tmp_path)
    threads = set(threading.enumerate())
    yield
    assert os.listdir(tmp_path) == []
    assert set(threading.enumerate()) <= threads


@pytest.fixture
def keyboard() -> Iterator[None]:
    """Ctrl-C as Python handles it: a program in the background may ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def few_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little data is streamed as large data is: a tenth of it is resident, for several models a fifth."""
    from ooc_svm.solvers.streamed_smo import plan

    for name in ("ALL_ELEMENTS", "FEW_ELEMENTS"):
        monkeypatch.setattr(plan, name, 0)
    monkeypatch.setattr(plan, "SHARES", tuple(share for share in plan.SHARES if share <= 0.1))
    # A quarter for several models would be cut into few rounds.
    monkeypatch.setattr(plan, "MOST_TOGETHER", 2)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Four worker processes on this machine, for tests that leave them alive."""
    from ooc_svm.cluster.connection import connect

    with connect(None, workers=4, memory=None, preload="ooc_svm.training.on_cluster") as connection:
        yield connection


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """A warm process whose forks run commands and functions, with faults."""
    from faults.server import ForkServer

    with ForkServer() as server:
        yield server


@pytest.fixture
def scratch_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of this test alone in which it and its processes put scratch data."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)  # Python asks for the variable once
    return folder

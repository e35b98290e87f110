"""A bucket for each test, and a proxy before it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import numpy as np
import pytest
from helpers.object_places import Place, write_small
from helpers.object_server import ObjectServer, Proxy, environment


@pytest.fixture(scope="session")
def object_server() -> Iterator[ObjectServer]:
    pytest.importorskip("obstore")
    server = ObjectServer()
    yield server
    server.close()


@pytest.fixture
def place(object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    proxy = Proxy(object_server.url)
    for name in ("AWS_PROFILE", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment(proxy.url).items():
        monkeypatch.setenv(name, value)
    yield Place(proxy, f"s3://{object_server.bucket}/{secrets.token_hex(4)}")
    proxy.close()


@pytest.fixture
def brief_repeating(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that fail are repeated for a moment only."""
    monkeypatch.setattr("ooc_svm.system.objects.REPEATING_SECONDS", 1.0)


@pytest.fixture(scope="session")
def text() -> bytes:
    """1,500 rows of SVMlight text with long rows, short ones and an empty one."""
    rng = np.random.default_rng(7)
    truth = rng.normal(size=60)
    lines = []
    for _ in range(1500):
        ids = np.sort(rng.choice(60, size=int(rng.integers(0, 30)), replace=False))
        values = rng.normal(size=len(ids)).astype(np.float32)
        label = 1 if values @ truth[ids] + 0.3 * rng.normal() > 0 else -1
        lines.append(f"{label} " + " ".join(f"{i + 1}:{v:.4f}" for i, v in zip(ids, values, strict=True)))
    return ("\n".join(lines) + "\n").encode()


@pytest.fixture(scope="session")
def local(text: bytes, tmp_path_factory: pytest.TempPathFactory):
    """The text, and a store of it with many blocks."""
    folder = tmp_path_factory.mktemp("local")
    (folder / "rows.svm").write_bytes(text)
    write_small(folder / "rows.svm", folder / "rows.zarr")
    return folder

"""Folders of a bucket, small stores in them, and how models are trained on these."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from helpers.object_server import Proxy

import ooc_svm
from ooc_svm.store.writer import StoreWriter
from ooc_svm.system.address import Address, address_of
from ooc_svm.system.objects import Bucket
from ooc_svm.text.reader import TextRows

SMALL = {"chunk_elements": 512, "chunk_rows": 128, "block_chunks": 2}
"""Sizes of a store with tens of blocks."""


@dataclass
class Place:
    """A folder of a bucket that no other test has, behind a proxy of its own."""

    proxy: Proxy
    url: str

    def __truediv__(self, name: str) -> str:
        return f"{self.url}/{name}"

    def keys(self, name: str = "") -> list[str]:
        """Keys below the folder."""
        address = self.address(name)
        return sorted(key[len(address.key) + 1 :] for key in Bucket(address).walk(address.key))

    def address(self, name: str = "") -> Address:
        address = address_of(f"{self.url}/{name}".rstrip("/"))
        assert address is not None
        return address

    def put(self, name: str, content: bytes) -> None:
        Bucket(self.address()).write(self.address(name).key, content, len(content))

    def read(self, name: str) -> bytes:
        return bytes(Bucket(self.address()).read(self.address(name).key))


def write_small(rows, target) -> None:
    """Convert text with small chunks."""
    with StoreWriter(target, n_features=60, **SMALL) as writer:
        for block in TextRows(rows):
            writer.append(block)
        writer.commit()


def train(store, **options):
    return ooc_svm.train(store, C=0.5, memory="600MB", **options)


def same_models(one, other) -> None:
    """Two models have the same bits, and so have their certificates."""
    assert np.array_equal(one.weights, other.weights)
    assert np.array_equal(one.bias, other.bias)
    for name in ("primal", "dual", "gap", "passes"):
        own, others = ([each[name] for each in model.report["models"]] for model in (one, other))
        assert own == others

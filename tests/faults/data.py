"""Small data for the experiments, made once: text, stores of every kind, models, checkpoints."""

from __future__ import annotations

import gzip
import shutil
import warnings
from pathlib import Path

import numpy as np
from helpers.store_data import random_rows, write_store

N_ROWS, N_FEATURES = 240, 18
CUT = {"chunk_elements": 150, "chunk_rows": 60, "block_chunks": 2, "block_rows": 60, "batches": (70,)}

NATIVE = ("plain.zarr", "ones.zarr", "float64.zarr")
FOREIGN = ("v2.zarr", "v3.zarr", "sharded.zarr")

SETTINGS = {
    "ooc_svm.training.run:CHECKPOINT_SHARE": float("inf"),
    "ooc_svm.solvers.streamed_smo.plan:ALL_ELEMENTS": 0,
    "ooc_svm.solvers.streamed_smo.plan:FEW_ELEMENTS": 0,
    "ooc_svm.solvers.streamed_smo.plan:SHARES": (0.1, 0.05, 0.02, 0.01),
    "ooc_svm.solvers.streamed_smo.plan:MOST_TOGETHER": 2,
}
"""A checkpoint after every pass, and few rows resident, so that there are some passes."""


LIMITS = ("--threads", "2", "--memory", "600MB", "--quiet", "--tol", "1e-5")
SMO = ("--bias", "free", "--resident", "0.3")


def make_data(folder: Path) -> None:
    """Everything that an experiment may read, by the names that `experiments` uses."""
    matrix, labels = random_rows(1, N_ROWS, N_FEATURES)
    labels = np.where(np.asarray(matrix[:, :3].sum(axis=1)).ravel() > 0.4, 1.0, -1.0)
    qids = np.arange(N_ROWS) // 12
    weights = np.random.default_rng(2).integers(1, 4, N_ROWS) * 0.5
    ones = matrix.copy()
    ones.data[:] = 1
    write_store(folder / "plain.zarr", matrix, labels, **CUT)
    write_store(folder / "ones.zarr", ones, labels, **CUT)
    wide = matrix.astype(np.float64)
    wide.data += 1e-9
    write_store(folder / "float64.zarr", wide, labels, qids, weights=weights, dtype="float64", **CUT)
    write_store(folder / "old.zarr", matrix[:90] * 2, labels[:90], **CUT)
    _write_foreign(folder, matrix, labels)
    _write_texts(folder, matrix, labels)


def _write_texts(folder: Path, matrix, labels) -> None:
    lines = []
    for row, label in enumerate(labels):
        part = matrix[row]
        pairs = " ".join(f"{j + 1}:{v:.5g}" for j, v in zip(part.indices, part.data, strict=True))
        lines.append(f"{label:g} {pairs} # {row}\n")
    (folder / "text.svm").write_text("".join(lines))
    (folder / "other.svm").write_text("".join(lines[100:] + lines[:50]))
    with gzip.GzipFile(folder / "text.svm.gz", "wb", mtime=0) as file:
        file.write("".join(lines).encode())
    (folder / "bad.svm").write_text("".join([*lines[:50], "1 5:x\n", *lines[50:], "bad line\n"]))


def _write_foreign(folder: Path, matrix, labels) -> None:
    """AnnData stores of version 2 and 3, and one with shards and without checksums."""
    import anndata
    import pandas as pd
    import zarr

    frame = pd.DataFrame({"label": labels}, index=[f"r{i}" for i in range(N_ROWS)])
    with warnings.catch_warnings(action="ignore"):  # AnnData and Zarr on their own plans
        for version in (2, 3):
            anndata.settings.zarr_write_format = version
            anndata.AnnData(matrix, obs=frame).write_zarr(folder / f"v{version}.zarr")
        shutil.copytree(folder / "v3.zarr", folder / "sharded.zarr")
        for name in ("X/data", "X/indices"):
            content = zarr.open_array(folder / "v3.zarr", path=name, mode="r")
            shutil.rmtree(folder / "sharded.zarr" / name)
            array = zarr.create_array(
                folder / "sharded.zarr", name=name, shape=content.shape, dtype=content.dtype,
                attributes=dict(content.attrs), chunks=(64,), shards=(256,),
            )  # fmt: skip
            array[:] = content[:]


def make_models(folder: Path, run) -> None:
    """Models and a checkpoint of a run that ended before its last pass; `run` runs a command there."""
    train = ("train", "plain.zarr", *SMO, *LIMITS)
    run(*train, "-o", "model")
    run(*train, "-o", "old-model", "--C", "0.01")
    run(*train, "-o", "stopped", "--checkpoint", "saved", "--max-passes", "2")
    (folder / "stopped").unlink()

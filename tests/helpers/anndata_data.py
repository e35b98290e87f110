"""AnnData stores as others write them."""

from __future__ import annotations

import shutil
import warnings

import anndata
import numpy as np
import pandas as pd
import zarr

N_ROWS = 60


def write(path, matrix, zarr_format=3, drop=(), features=None, layers=None, **columns):
    """Write an AnnData store as AnnData does; `features` is the index of its columns."""
    rng = np.random.default_rng(0)
    obs = {
        "label": rng.choice([-1, 1], N_ROWS),
        "cell_type": pd.Categorical(rng.choice(["T", "B", "NK"], N_ROWS)),
        "grade": pd.Categorical(rng.choice([0.5, 2.0], N_ROWS)),
        "flag": rng.random(N_ROWS) < 0.5,
        "qid": np.arange(N_ROWS) // 7,
        "weight": rng.random(N_ROWS),
    }
    frame = pd.DataFrame(obs | columns, index=[f"r{i}" for i in range(N_ROWS)]).drop(columns=list(drop))
    var = None if features is None else pd.DataFrame(index=features)
    previous = anndata.settings.zarr_write_format
    anndata.settings.zarr_write_format = zarr_format
    try:
        with warnings.catch_warnings(action="ignore"):  # AnnData and Zarr on their own plans
            anndata.AnnData(matrix, obs=frame, var=var, layers=layers).write_zarr(path)
    finally:
        anndata.settings.zarr_write_format = previous
    return frame


def rewrite(path, name, content, **options):
    """Replace an array: other types, chunks, shards and codecs than AnnData chooses."""
    attributes = dict(zarr.open_array(path, path=name, mode="r").attrs)
    shutil.rmtree(path / name)
    with warnings.catch_warnings(action="ignore"):  # Zarr on codecs that are not in its specification
        array = zarr.create_array(
            path, name=name, shape=content.shape, dtype=content.dtype, attributes=attributes, **options
        )
        array[:] = content
    return path / name

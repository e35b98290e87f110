"""Stores and references for the tests of training as a whole."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from helpers.problems_data import noisy_rows
from helpers.store_data import write_store
from scipy import sparse
from sklearn.svm import LinearSVC

# Chunks so small that a few hundred rows make a dozen blocks or more.
CUT = {"chunk_elements": 100, "chunk_rows": 40, "block_chunks": 2, "block_rows": 30, "dtype": "float64"}


def store_rows(n_rows=300, n_features=40, **options):
    """Rows as a store takes them: ids ascending in every row."""
    matrix, labels = noisy_rows(n_rows, n_features, **options)
    matrix.sort_indices()
    return matrix, labels


def problem_rows(problem, n_rows, n_features, *, noise):
    """A matrix in which some features tell the labels of a problem, and the labels."""
    rng = np.random.default_rng(3)
    X = sparse.random_array((n_rows, n_features), density=0.3, format="csr", rng=rng)
    X.data = rng.standard_normal(X.nnz)
    X.sort_indices()
    value = X @ rng.standard_normal(n_features) + noise * rng.standard_normal(n_rows)
    labels = {
        "two classes": np.where(value > 1.0, 1.0, -1.0),
        "three classes": np.digitize(value, [-1.0, 1.5]) + 1.0,
        "svr": value,
        "ordinal": np.digitize(value, [-2.0, 0.0, 2.0]) + 0.0,
        "roc-area": np.where(value > 1.5, 1.0, -1.0),
        "ranking": np.digitize(value, [-1.0, 1.0]) + 0.0,
    }[problem]
    return X, labels


def make_store(path: Path, matrix, labels, **options) -> Path:
    """Write a store of many small blocks, without waiting for the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        write_store(path, matrix, labels, **(CUT | {"batches": (70,)} | options))
    return path


def make_anndata(path: Path, matrix, **columns) -> Path:
    """Write an AnnData store as AnnData does."""
    import anndata
    import pandas as pd

    frame = pd.DataFrame(columns, index=[f"r{i}" for i in range(matrix.shape[0])])
    with warnings.catch_warnings(action="ignore"):  # AnnData and Zarr on their own plans
        anndata.AnnData(matrix, obs=frame).write_zarr(path)
    return path


def linear_svc(matrix, labels, C=1.0, *, bias=False, weights=None):
    """Weights and intercept of LIBLINEAR, far closer to the optimum than any test asks for."""
    svm = LinearSVC(loss="hinge", C=C, fit_intercept=bias, tol=1e-10, max_iter=10**7, random_state=0)
    svm.fit(matrix, labels, sample_weight=weights)
    return svm.coef_.ravel(), float(np.ravel(svm.intercept_)[0]) if bias else 0.0


def bits(model) -> bytes:
    """The numbers of a model as they are in memory."""
    return model.weights.tobytes() + model.bias.tobytes()


def answers(report) -> list[tuple]:
    """What a report says of each model and of each pass, without the times.

    And without the quality: it is not known after a resume where a solver saves no scores.
    """
    models = [tuple(row[name] for name in row if name != "quality") for row in report["models"]]
    history = [(row["pass"], row["primal"], row["dual"], row["relative_gap"]) for row in report["history"]]
    return models + history

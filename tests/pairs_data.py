"""Small data of ranks, and what is true of all its pairs, listed one by one."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from sklearn.svm import LinearSVC


def ranked_rows(n_rows=120, n_features=15, n_ranks=3, seed=0):
    """Rows whose rank follows a noisy linear rule; ids ascending in every row."""
    rng = np.random.default_rng(seed)
    matrix = sparse.random_array((n_rows, n_features), density=0.4, rng=rng, format="csr")
    matrix.data = rng.normal(size=matrix.nnz)
    matrix.sort_indices()
    rule = matrix @ rng.normal(size=n_features) + 0.7 * rng.normal(size=n_rows)
    edges = np.quantile(rule, np.arange(1, n_ranks) / n_ranks)
    return matrix, np.searchsorted(edges, rule).astype(np.float64)


def group_numbers(n_rows, largest=9, seed=0):
    """Groups of 1 to ``largest`` rows that follow one another, numbered in no order."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, largest + 1, n_rows)
    return np.repeat(rng.permutation(n_rows), sizes)[:n_rows]


def all_pairs(labels, qid=None):
    """Row numbers i and j of all pairs with ``labels[i] > labels[j]``, in one group."""
    higher = labels[:, None] > labels[None, :]
    if qid is not None:
        higher &= qid[:, None] == qid[None, :]
    return np.nonzero(higher)


def pair_weights(pairs, weights, qid=None):
    """The weight of each pair: that of its group, or the product of its rows'."""
    if weights is None:
        return np.ones(len(pairs[0]))
    return weights[pairs[0]] if qid is not None else weights[pairs[0]] * weights[pairs[1]]


def pair_loss(scores, pairs, omega):
    """Weighted mean of the pairs' hinge losses."""
    losses = np.maximum(0.0, 1.0 - (scores[pairs[0]] - scores[pairs[1]]))
    return omega @ losses / omega.sum()


def optimum(matrix, pairs, omega, C):
    """Weights of LIBLINEAR on the differences of the pairs' rows, far closer than any test asks for."""
    matrix = sparse.csr_matrix(matrix)
    differences = matrix[pairs[0]] - matrix[pairs[1]]
    # It wants two classes: every second pair is turned round.
    sign = np.where(np.arange(len(omega)) % 2, 1.0, -1.0)
    svm = LinearSVC(loss="hinge", C=C, fit_intercept=False, tol=1e-9, max_iter=10**6, random_state=0)
    svm.fit(sparse.csr_matrix(sparse.diags(sign) @ differences), sign, sample_weight=omega / omega.sum())
    return svm.coef_.ravel()

"""Small ranking data, and properties of all its pairs, listed one by one."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
from helpers.problems_data import cut_rows
from scipy import sparse
from sklearn.svm import LinearSVC

from ooc_svm.data.matrix import MatrixSource
from ooc_svm.engine.serial import SerialEngine
from ooc_svm.pairs.active import sum_of_pairs
from ooc_svm.pairs.request import PairRows, Pairs
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.solvers.cutting_plane.joachims import CuttingPlane, CuttingPlaneState
from ooc_svm.solvers.cutting_plane.ocas import Ocas, OcasState
from ooc_svm.solvers.cutting_plane.pair_oracle import PairCutOracle
from ooc_svm.solvers.space import LinearSpace
from ooc_svm.solvers.stopping import CERTIFIED, Stopping

PLENTY = 1 << 40


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


class Setup:
    """An oracle of losses of pairs, its row vectors and an engine."""

    opened: ClassVar[list[RowVectors]] = []

    def __init__(
        self,
        matrix,
        labels,
        C=1.0,
        *,
        qid=None,
        weights=None,
        groups=1,
        scale=None,
        memory=PLENTY,
        trials=0,
        n_bins=0,
        blocks=6,
        precision=1e-9,
    ):
        n_rows = len(labels)
        self.vectors = vectors = RowVectors(n_rows, memory)
        self.opened.append(vectors)
        values = np.unique(labels)
        vectors.create("ranks", np.int32).write(0, np.searchsorted(values, labels).astype(np.int32))
        if weights is not None:
            vectors.create("weight", np.float64).write(0, weights)
        if qid is not None:
            heads = np.concatenate([[1], qid[1:] != qid[:-1]])
            vectors.create("heads", np.uint8).write(0, heads.astype(np.uint8))
        self.rows = PairRows(
            "ranks", len(values), None if weights is None else "weight", None if qid is None else "heads"
        )
        self.total = sum_of_pairs(self.rows, vectors, PLENTY)
        space = LinearSpace(matrix.shape[1], scale)
        self.oracle = PairCutOracle(
            Pairs(self.rows, self.total),
            C,
            space,
            groups,
            precision=precision,
            trials=trials,
            n_bins=n_bins,
        )
        for name in self.oracle.vectors:
            vectors.create(name, np.float64)
        for name in self.oracle.coefficients:
            vectors.create(name, np.int32 if weights is None else np.float64)
        self.engine = SerialEngine(MatrixSource(matrix, labels, spans=cut_rows(matrix, blocks)), vectors)

    def answer(self, generator):
        try:
            request = next(generator)
            while True:
                request = generator.send(self.engine.stream([request])[0])
        except StopIteration as stop:
            return stop.value

    def solve(self, solver="ocas", *, tol=1e-6, max_passes=2000):
        stopping, dimension = Stopping(tol, max_passes), self.oracle.space.dimension
        if solver == "ocas":
            run = Ocas(self.oracle, stopping, OcasState.fresh(self.oracle, 600), 1 + self.oracle.trials)
        else:
            run = CuttingPlane(self.oracle, stopping, CuttingPlaneState.fresh(dimension, 600))
        self.engine.run([run])
        return run


def data_of(kind, seed=0):
    """Rows, labels, groups and weights: of one group or of several, weighted or not."""
    matrix, labels = ranked_rows(n_ranks=2 if kind == "two ranks" else 4, seed=seed)
    rng = np.random.default_rng(seed)
    qid = group_numbers(len(labels), seed=seed) if "groups" in kind else None
    weights = None
    if "weighted" in kind:
        weights = rng.integers(0, 3, len(labels)) * 0.75
        if qid is not None:
            weights = weights[qid]
    return matrix, labels, qid, weights


KINDS = ["two ranks", "ranks", "weighted", "groups", "weighted groups"]


def assert_primal_of_all_pairs(setup, run, data, C):
    """Whether a run is certified, its primal value that of all pairs one by one, and the gap true."""
    matrix, labels, qid, weights = data
    certificate, w = run.state.certificate, run.solution()[0]
    pairs = all_pairs(labels, qid)
    omega = pair_weights(pairs, weights, qid)

    def primal(v):
        return 0.5 * v @ v + C * pair_loss(matrix @ v, pairs, omega)

    assert certificate.stop_reason == CERTIFIED
    assert primal(w) == pytest.approx(certificate.primal, rel=1e-10)
    best = primal(optimum(matrix, pairs, omega, C))
    assert certificate.dual <= best * (1 + 1e-7)
    assert best * (1 - 1e-7) <= certificate.primal <= best + certificate.gap + 1e-7 * best
    assert setup.engine.counters.passes == certificate.passes

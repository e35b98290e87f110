"""Rows made from a short description: a dict of plain values, so that a case can be printed and repeated."""

from __future__ import annotations

import numpy as np
from audit.objective import Rows
from scipy import sparse

DEFAULTS = {
    "n": 100, "d": 5, "seed": 0, "values": "normal", "density": 1.0, "spread": 0.0, "size": 1.0,
    "offset": 0.0, "empty_rows": 0.0, "duplicates": 0.0, "constant_columns": 0, "dtype": "float64",
    "noise": 0.3, "labels": "plain", "target_offset": 0.0, "target_size": 1.0, "ranks": 3, "queries": 5,
    "weights": "none",
}  # fmt: skip


def make_rows(problem: str, **given) -> Rows:
    """The rows of a description; what it leaves out is as in `DEFAULTS`."""
    spec = DEFAULTS | given
    rng = np.random.default_rng(spec["seed"])
    plain = _values(rng, spec)
    matrix = _columns(rng, plain, spec)
    rule = plain @ rng.normal(size=spec["d"]) / np.sqrt(max(spec["d"] * spec["density"], 1.0))
    rule = rule + spec["noise"] * rng.normal(size=spec["n"])
    labels = {"svc": _classes, "svr": _targets}.get(problem.removeprefix("nu-"), _ranks)(rng, rule, spec)
    qid = np.sort(rng.integers(0, spec["queries"], spec["n"])) if problem == "ranking" else None
    if spec["labels"] == "runs":
        order = np.argsort(labels, kind="stable")
        matrix, labels = matrix[order], labels[order]
    if qid is not None and not _has_pairs(labels, qid):
        labels[:2], qid[:2] = [0.0, 1.0], qid[0]
    return Rows(sparse.csr_array(matrix), labels, _weights(rng, qid, labels, spec), qid)


def _values(rng, spec):
    """The features as the rule sees them."""
    n, d = spec["n"], spec["d"]
    x = {
        "normal": lambda: rng.normal(size=(n, d)),
        "ones": lambda: np.ones((n, d)),
        "uniform": lambda: rng.random((n, d)),
        "whole": lambda: rng.integers(-3, 4, (n, d)).astype(np.float64),
        "heavy": lambda: rng.standard_cauchy((n, d)).clip(-1e3, 1e3),
    }[spec["values"]]()
    x *= rng.random((n, d)) < spec["density"]
    x[rng.random(n) < spec["empty_rows"]] = 0.0
    copies = np.flatnonzero(rng.random(n) < spec["duplicates"])
    x[copies] = x[rng.integers(0, n, len(copies))]
    return x


def _columns(rng, x, spec):
    """Columns as they are stored: of other sizes, far from 0, constant, of float32."""
    x = x * spec["size"] * 10.0 ** rng.uniform(-spec["spread"], spec["spread"], spec["d"])
    if spec["offset"]:
        # Entries that are not stored stay 0.
        x = np.where(x != 0.0, x + spec["offset"], 0.0)
    for column in range(min(spec["constant_columns"], spec["d"])):
        x[:, column] = 1.0 + column
    matrix = sparse.csr_array(x.astype(spec["dtype"]))
    matrix.sort_indices()
    return matrix


def _classes(rng, rule, spec):
    n, kind = spec["n"], spec["labels"]
    if kind == "several":
        edges = np.quantile(rule, np.linspace(0, 1, max(spec["ranks"], 3) + 1)[1:-1])
        labels = np.searchsorted(edges, rule).astype(np.float64)
    elif kind == "random":
        labels = rng.choice([-1.0, 1.0], n)
    elif kind == "one-sided":
        labels = np.where(np.arange(n) == rng.integers(n), -1.0, 1.0)
    else:
        cut = np.quantile(rule, 0.99) if kind == "imbalance" else np.median(rule)
        labels = np.where(rule >= cut, 1.0, -1.0)
    if len(np.unique(labels)) < 2:
        labels[0], labels[-1] = -1.0, 1.0
    return labels


def _targets(rng, rule, spec):
    if spec["labels"] == "constant":
        rule = np.ones_like(rule)
    elif spec["labels"] == "random":
        rule = rng.standard_cauchy(len(rule))
    return spec["target_size"] * rule + spec["target_offset"]


def _ranks(rng, rule, spec):
    if spec["labels"] == "random":
        rule = rng.normal(size=len(rule))
    if spec["ranks"] > 100:
        return rule.copy()  # As many ranks as rows
    edges = np.quantile(rule, np.linspace(0, 1, spec["ranks"] + 1)[1:-1])
    labels = np.searchsorted(edges, rule).astype(np.float64)
    if labels.min() > 0.0 or labels.max() < min(spec["ranks"], 3) - 1:
        labels[0], labels[-1] = 0.0, spec["ranks"] - 1.0
    return labels


def _has_pairs(labels, qid):
    return any(len(np.unique(labels[qid == query])) > 1 for query in np.unique(qid))


def _weights(rng, qid, labels, spec):
    kind, n = spec["weights"], spec["n"]
    if kind == "none":
        return None
    size = n if qid is None else int(qid.max()) + 1
    weights = {
        "uniform": lambda: 0.5 + rng.random(size),
        "far": lambda: 10.0 ** rng.uniform(-8, 4, size),
        "zeros": lambda: rng.random(size) * (rng.random(size) < 0.6),
        "tiny": lambda: np.full(size, 1e-9),
    }[kind]()
    if not weights.any():
        weights[:] = 1.0
    if qid is not None:
        weights[qid[0]] = max(weights[qid[0]], 0.5)
        return weights[qid]
    # Rows of both ends weigh something, so that a pair does.
    weights[[np.argmin(labels), np.argmax(labels)]] += 0.25
    return weights

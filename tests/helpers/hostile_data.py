"""Rows whose sums lose digits."""

from __future__ import annotations

N_COLUMNS = 9


def hostile_rows(kind, rng, n_rows):
    """Dense rows with zeros, of a kind; of one that is about something else they are plain."""
    dense = rng.normal(size=(n_rows, N_COLUMNS)) * (rng.random((n_rows, N_COLUMNS)) < 0.7)
    if kind in ("columns of many sizes", "scaled"):
        dense *= 10.0 ** rng.integers(-7, 8, N_COLUMNS)
    elif kind == "large":
        dense *= 1e7
    elif kind == "far from 0":
        dense += 1e4
    return dense

"""Limits that follow from how the data are held."""

from __future__ import annotations

LARGEST_FEATURE_COUNT = 2**31 - 1
"""Largest number of columns: column ids are int32."""

INEXACT = 1 << 53
"""From there on float64 leaves integers out."""

"""Vectors with one entry a row, in memory or on disk."""

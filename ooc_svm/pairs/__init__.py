"""Pairs of rows: which of them are active, counted from sorted scores."""

"""Engines on a dask cluster."""

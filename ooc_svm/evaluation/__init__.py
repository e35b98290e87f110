"""Metrics of predictions, streamed."""

"""Scores and labels of new rows, streamed."""

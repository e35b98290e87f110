"""Sequential minimal optimisation streamed from disk."""

"""Engines: they stream the data through the passes that solvers ask for."""

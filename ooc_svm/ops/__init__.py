"""Compiled loops: arrays in, arrays out; the caller owns every buffer."""

from __future__ import annotations

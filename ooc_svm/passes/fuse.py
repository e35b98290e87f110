"""Several models that share one read of the data also share its products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ooc_svm.passes.base import Pass
from ooc_svm.passes.columns import MagnitudeSums
from ooc_svm.passes.linear import LinearPass, LinearSums


def fuse(passes: Sequence[Pass]) -> list[tuple[Pass, list[int]]]:
    """Join the linear passes that can share one decode and one cache line, and the equal sums of magnitudes.

    Returns each pass to run with its members, the positions in ``passes`` that it serves; `split` undoes it.
    """
    linear: dict[tuple[int, str | None], list[int]] = {}
    equal: dict[MagnitudeSums, list[int]] = {}
    fused: list[tuple[Pass, list[int]]] = []
    for position, request in enumerate(passes):
        if isinstance(request, LinearPass):
            linear.setdefault((request.groups, request.query_starts), []).append(position)
        elif isinstance(request, MagnitudeSums):
            equal.setdefault(request, []).append(position)
        else:
            fused.append((request, [position]))
    fused += equal.items()
    for (groups, query_starts), members in linear.items():
        parts = [p for p in (passes[m] for m in members) if isinstance(p, LinearPass)]
        if len(parts) == 1:
            fused.append((parts[0], members))
            continue
        joined = LinearPass(
            np.concatenate([p.weights for p in parts], axis=1),
            np.concatenate([p.intercepts for p in parts]),
            tuple(rule for p in parts for rule in p.rules),
            groups,
            query_starts,
            next((p.position for p in parts if p.position.ends), parts[0].position),
        )
        fused.append((joined, members))
    return fused


def split(
    passes: Sequence[Pass], fused: Sequence[tuple[Pass, list[int]]], results: Sequence[Any]
) -> list[Any]:
    """The result of each pass, from those of the fused ones."""
    answers: list[Any] = [None] * len(passes)
    for (_, members), result in zip(fused, results, strict=True):
        if len(members) == 1 or not isinstance(result, LinearSums):
            for member in members:
                answers[member] = result
            continue
        model, column = 0, 0
        for member in members:
            part = passes[member]
            assert isinstance(part, LinearPass)
            vectors = result.vectors[:, column : column + part.width]
            own = slice(model, model + len(part.rules))
            answers[member] = LinearSums(vectors, result.sums[own], result.tables[own])
            model, column = own.stop, column + part.width
    return answers

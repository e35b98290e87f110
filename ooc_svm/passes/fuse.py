"""Several models that share one read of the data also share its products.

Other passes than linear ones say themselves how they are served as one (`ooc_svm.passes.base.Fusible`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from ooc_svm.passes.base import Pass
from ooc_svm.passes.columns import MagnitudeSums
from ooc_svm.passes.linear import LinearPass, LinearSums

# So many passes of a kind are served as one, at least and at most: fewer gain little, threads share the rest.
LEAST_FUSED, MOST_FUSED = 6, 32


def fuse(passes: Sequence[Pass]) -> list[tuple[Pass, list[int]]]:
    """Join the passes that can share one decode and one cache line, and the equal sums of magnitudes.

    Returns each pass to run with its members, the positions in ``passes`` that it serves; `split` undoes it.
    """
    linear: dict[tuple[int, str | None], list[int]] = {}
    equal: dict[MagnitudeSums, list[int]] = {}
    kinds: dict[Hashable, list[int]] = {}
    fused: list[tuple[Pass, list[int]]] = []
    for position, request in enumerate(passes):
        if isinstance(request, LinearPass):
            linear.setdefault((request.groups, request.query_starts), []).append(position)
        elif isinstance(request, MagnitudeSums):
            equal.setdefault(request, []).append(position)
        elif (kind := getattr(request, "kind", None)) is not None:
            kinds.setdefault((type(request), kind), []).append(position)
        else:
            fused.append((request, [position]))
    fused += equal.items()
    for members in kinds.values():
        fused += _of_a_kind(passes, members)
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


def _of_a_kind(passes: Sequence[Pass], members: list[int]) -> list[tuple[Pass, list[int]]]:
    """Passes of a kind as equal groups, each served as one."""
    if len(members) < LEAST_FUSED:
        return [(passes[member], [member]) for member in members]
    parts = [part.tolist() for part in np.array_split(members, -(-len(members) // MOST_FUSED))]
    return [(type(passes[part[0]]).fuse([passes[m] for m in part]), part) for part in parts]


def split(
    passes: Sequence[Pass], fused: Sequence[tuple[Pass, list[int]]], results: Sequence[Any]
) -> list[Any]:
    """The result of each pass, from those of the fused ones."""
    answers: list[Any] = [None] * len(passes)
    for (request, members), result in zip(fused, results, strict=True):
        if hasattr(request, "split"):
            for member, own in zip(members, request.split(result), strict=True):
                answers[member] = own
            continue
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

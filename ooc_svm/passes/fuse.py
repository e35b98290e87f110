"""Several models that share one read of the data also share its products."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, cast

import numpy as np

from ooc_svm.passes.base import Fused, Fusible, Pass


def fuse(passes: Sequence[Pass]) -> list[tuple[Fused, list[int]]]:
    """Join the passes of a kind, in equal groups where they are more than are served as one.

    Returns each pass to run with its members, the positions in ``passes`` that it serves; `split` undoes it.
    """
    kinds: dict[Hashable, list[int]] = {}
    for position, request in enumerate(passes):
        kind = getattr(request, "kind", None)
        kinds.setdefault(position if kind is None else (type(request), kind), []).append(position)
    fused: list[tuple[Fused, list[int]]] = []
    for members in kinds.values():
        if len(members) == 1 or len(members) < (first := cast("Fusible", passes[members[0]])).fewest:
            fused += [(Fused(passes[member], _alone), [member]) for member in members]
            continue
        for part in np.array_split(members, -(-len(members) // first.most)):
            fused.append((first.fuse([passes[member] for member in part]), part.tolist()))
    return fused


def split(fused: Sequence[tuple[Fused, list[int]]], results: list[Any]) -> list[Any]:
    """The result of each pass, from those of the fused ones, which are taken out of the list.

    So what belongs to many models together does not stay alive next to what has become of it.
    """
    found: dict[int, Any] = {}
    for each, members in reversed(fused):
        found.update(zip(members, each.split(results.pop()), strict=True))
    return [found[member] for member in range(len(found))]


def _alone(result: Any) -> list[Any]:
    return [result]

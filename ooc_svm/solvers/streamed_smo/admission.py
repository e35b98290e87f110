"""Which rows are held in memory: those that matter most to all models of a run together.

What a row is worth is the sum over the models of their shares in the decision times what the row is worth to
each: `ooc_svm.losses.functions.priority`. Rows that are not free count less, by the model's
share once more: most rows are near the margin of many models, and together that would outweigh being free for
one. (To keep the rows that are worth most to any one model takes more reads.) A row that is kept belongs to
the models that have it already or that offer it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ooc_svm.data.blocks import BoolArray, Float64Array, Int64Array
from ooc_svm.losses.functions import FREE_PRIORITY
from ooc_svm.solvers.streamed_smo.resident_rows import ResidentRows
from ooc_svm.solvers.streamed_smo.sweep import CandidateRows, by_falling_priority
from ooc_svm.solvers.streamed_smo.working_set import WorkingSet

Leaving = tuple[Int64Array, Float64Array]  # Row numbers, and their multipliers


@dataclass(frozen=True, slots=True)
class Claim:
    """What a model has and what it wants."""

    working_set: WorkingSet
    priority: Float64Array  # Of the rows that it has
    candidates: Sequence[CandidateRows]
    theta: float  # The share of the candidates' steps that was taken
    min_priority: float  # Rows of a lower priority are not kept for this model
    share: float = 1.0  # In the decision


def admit(rows: ResidentRows, claims: Sequence[Claim]) -> list[Leaving]:
    """Keep the best of the rows here and of the candidates; what leaves each of the models."""
    copies = [part for claim in claims for part in claim.candidates]
    if not len(rows.ids) and not any(part.n_copied for part in copies):
        # Candidates that are not copied were resident when they were offered, and have left.
        return [(np.empty(0, np.int64), np.empty(0)) for _ in claims]
    numbers, firsts = _number(rows, copies)
    sizes = np.concatenate([rows.sizes, *(np.diff(part.indptr)[own] + 1 for part, own in firsts)])
    worth, wanted = np.zeros(len(sizes)), np.zeros(len(sizes), dtype=np.bool_)
    asked: list[tuple[Int64Array, BoolArray]] = []
    at = 0
    for claim in claims:
        parts = numbers[at : at + len(claim.candidates)]
        at += len(parts)
        own = np.concatenate([claim.working_set.places, *parts])
        priority = np.concatenate([claim.priority, *(part.priority for part in claim.candidates)])
        is_wanted = (priority >= claim.min_priority) & (own >= 0)
        asked.append((own, is_wanted))
        weight = np.where(priority >= FREE_PRIORITY, claim.share, claim.share**2)
        worth[own[is_wanted]] += (weight * priority)[is_wanted]
        wanted[own[is_wanted]] = True
    kept = wanted & (sizes <= rows.capacity)
    if full := int(sizes[kept].sum()) > rows.capacity:
        order = by_falling_priority(worth)
        order = order[kept[order]]
        kept = np.zeros(len(kept), dtype=np.bool_)
        kept[order[np.cumsum(sizes[order]) <= rows.capacity]] = True
    if copies:
        rows.cutoff = float(worth[kept].min()) if full else 0.0
    places = np.cumsum(kept) - 1
    leaving = [
        _share_out(claim, own, is_wanted & kept[own], places)
        for claim, (own, is_wanted) in zip(claims, asked, strict=True)
    ]
    at = len(rows.ids)
    rows.drop(kept[:at])
    for part, own in firsts:
        rows.append(part, own[kept[at : at + len(own)]])
        at += len(own)
    return leaving


def _share_out(claim: Claim, own: Int64Array, kept: BoolArray, places: Int64Array) -> Leaving:
    """Give a model the rows of its own and of its candidates that are kept; what leaves it."""
    working_set = claim.working_set
    edges = np.cumsum([len(working_set.places), *(len(part.ids) for part in claim.candidates)]).tolist()
    before = edges[0]
    leaving = working_set.keep(kept[:before], places[own[:before]])
    for part, (first, last) in zip(claim.candidates, pairwise(edges), strict=True):
        chosen = np.flatnonzero(kept[first:last])
        working_set.append(part, chosen, places[own[first:last][chosen]], claim.theta)
    return leaving


def _number(
    rows: ResidentRows, copies: Sequence[CandidateRows]
) -> tuple[list[Int64Array], list[tuple[CandidateRows, Int64Array]]]:
    """Number the rows here, then the new ones as they come first.

    Returns the number of each candidate, -1 where it is a row that has left meanwhile; and of each list of
    candidates the new rows, those left out that an earlier one has.
    """
    ids = np.concatenate([np.empty(0, np.int64), *(part.ids[: part.n_copied] for part in copies)])
    _, first, which = np.unique(ids, return_index=True, return_inverse=True)
    is_first = np.zeros(len(ids), dtype=np.bool_)
    is_first[first] = True
    new = len(rows.ids) + np.cumsum(is_first)[first[which]] - 1
    numbers, firsts, at = [], [], 0
    for part in copies:
        own = slice(at, at + part.n_copied)
        at = own.stop
        numbers.append(np.concatenate([new[own], rows.find(part.ids[part.n_copied :])]))
        firsts.append((part, np.flatnonzero(is_first[own])))
    return numbers, firsts

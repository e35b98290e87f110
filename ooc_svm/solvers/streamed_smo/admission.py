"""Which rows are held in memory: those that matter most to all models of a run together.

What a row is worth is little more than the most that it is worth to any model: a norm of order 8, and 32 of
many models, of `ooc_svm.losses.functions.priority` times the model's weight, which is 1 for the one furthest
from its end. Rows that are not free count less, by the weight once more and the number of models: most rows
are near the margin of many. By the sum over the models, rows that are free for most of them would be kept
alone, and the models furthest from their end would miss those that are free for no other. A row that is kept
belongs to the models that have it already or that offer it; where these pairs of a row and a model would be
too many, to those that it is worth most to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ooc_svm.data.blocks import BoolArray, Float64Array, Int64Array
from ooc_svm.solvers.streamed_smo.choice_loops import best_that_fit, claim, kept_of
from ooc_svm.solvers.streamed_smo.resident_rows import NO_LIMIT, ResidentRows
from ooc_svm.solvers.streamed_smo.sweep import CandidateRows, CopiedRows, distinct
from ooc_svm.solvers.streamed_smo.working_set import WorkingSet

SEVERAL = 16  # Models; more are many

# Squarings that make a power of the order of the norm. Values of C know many rows together: with order 32, 16
# of them on a9a take 3.4 reads (mean of five seeds), and 3 with order 8. Of 168 classes of texts each has
# rows of its own: with order 8 they take as many reads as with order 32, and 7 % more steps.
SQUARINGS_OF_SEVERAL, SQUARINGS_OF_MANY = 3, 5

Leaving = tuple[Int64Array, Float64Array]  # Row numbers, and their multipliers
# Copies, those of them that no earlier list has, and their numbers
NewRows = tuple[CopiedRows, Int64Array, Int64Array]


@dataclass(frozen=True, slots=True)
class Claim:
    """What a model has and what it wants."""

    working_set: WorkingSet
    priority: Float64Array  # Of the rows that it has
    candidates: Sequence[CandidateRows]
    theta: float  # The share of the candidates' steps that was taken
    min_priority: float  # Rows of a lower priority are not kept for this model
    weight: float = 1.0  # In the decision, at most 1; 0: it has ended


def squarings_of(n_models: int) -> int:
    """Squarings that make a power of the order of the norm that rows of so many models are chosen by."""
    return SQUARINGS_OF_SEVERAL if n_models <= SEVERAL else SQUARINGS_OF_MANY


def admit(rows: ResidentRows, claims: Sequence[Claim]) -> list[Leaving]:
    """Keep the best of the rows here and of the candidates; what leaves each of the models."""
    candidates = [part for each in claims for part in each.candidates]
    copies = distinct(candidates)
    if not len(rows.ids) and not any(len(part.ids) for part in copies):
        # Candidates that are not copied were resident when they were offered, and have left.
        return [(np.empty(0, np.int64), np.empty(0)) for _ in claims]
    numbers, new = _number(rows, candidates, copies)
    sizes = np.concatenate([rows.sizes, np.empty(sum(len(own) for _, own, _ in new), np.int64)])
    for part, own, number in new:
        sizes[number] = np.diff(part.indptr)[own] + 1
    worth, wanted = np.zeros(len(sizes)), np.zeros(len(sizes), dtype=np.bool_)
    asked: list[tuple[Int64Array, BoolArray, Float64Array]] = []
    at, n_running = 0, sum(each.weight > 0.0 for each in claims)
    squarings = squarings_of(len(claims))
    for each in claims:
        parts = numbers[at : at + len(each.candidates)]
        at += len(parts)
        own = np.concatenate([each.working_set.places, *parts])
        priority = np.concatenate([each.priority, *(part.priority for part in each.candidates)])
        bound_weight = each.weight**2 / max(n_running, 1)
        found = claim(own, priority, each.min_priority, each.weight, bound_weight, squarings, worth, wanted)
        asked.append((own, *found))
    for _ in range(squarings):
        np.sqrt(worth, out=worth)
    kept = wanted & (sizes <= rows.capacity)
    if full := int(sizes @ kept) > rows.capacity:
        kept = best_that_fit(worth, sizes, kept, rows.capacity, NO_LIMIT)
    if candidates:
        rows.cutoff = float(worth.min(where=kept, initial=np.inf)) if full else 0.0
    taken = [kept_of(own, is_wanted, kept) for own, is_wanted, _ in asked]
    if sum(map(np.count_nonzero, taken)) > rows.most_pairs:
        taken = _best_pairs(taken, [of for _, _, of in asked], rows.most_pairs)
        kept[:] = False
        for (own, _, _), pairs in zip(asked, taken, strict=True):
            kept[own[pairs]] = True
    places = np.cumsum(kept) - 1
    leaving = [
        _share_out(each, own, pairs, places)
        for each, (own, _, _), pairs in zip(claims, asked, taken, strict=True)
    ]
    rows.drop(kept[: len(rows.ids)])
    rows.append([(part, own[kept[number]], places[number[kept[number]]]) for part, own, number in new])
    return leaving


def _best_pairs(wanted: Sequence[BoolArray], worth: Sequence[Float64Array], most: int) -> list[BoolArray]:
    """Of each model's rows those kept for it: the pairs that are worth most."""
    pairs, of = np.concatenate(wanted), np.concatenate(worth)
    kept = best_that_fit(of, np.ones(len(of), np.int64), pairs, NO_LIMIT, most)
    return np.split(kept, np.cumsum([len(each) for each in wanted])[:-1])


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
    rows: ResidentRows, candidates: Sequence[CandidateRows], copies: Sequence[CopiedRows]
) -> tuple[list[Int64Array], list[NewRows]]:
    """Number the rows here, then the new ones by their row numbers, whichever list has them.

    Returns the number of each candidate, -1 where it is a row that has left meanwhile; and the new rows.
    """
    ids = np.concatenate([np.empty(0, np.int64), *(part.ids for part in copies)])
    which, is_first = np.arange(len(ids)), np.ones(len(ids), np.bool_)
    if not (ids[1:] > ids[:-1]).all():
        _, first, which = np.unique(ids, return_index=True, return_inverse=True)
        is_first[:] = False
        is_first[first] = True
    new: list[NewRows] = []
    number_of: dict[int, Int64Array] = {}
    at = 0
    for part in copies:
        own = slice(at, at + len(part.ids))
        at, number, firsts = own.stop, len(rows.ids) + which[own], np.flatnonzero(is_first[own])
        new.append((part, firsts, number[firsts]))
        number_of[id(part)] = np.append(number, -1)  # the place -1 takes the last
    numbers = [number_of[id(part.copies)][part.places] for part in candidates]
    is_resident = [part.places < 0 for part in candidates]
    asked = [part.ids[own] for part, own in zip(candidates, is_resident, strict=True)]
    here, at = rows.find(np.concatenate([np.empty(0, np.int64), *asked])), 0
    for number, own_resident, ids_asked in zip(numbers, is_resident, asked, strict=True):
        number[own_resident] = here[at : at + len(ids_asked)]
        at += len(ids_asked)
    return numbers, new

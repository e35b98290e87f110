"""Which tests a short run leaves out: of a cross product of parameters, all but a cover of its pairs.

Faults nearly always show where two parameters meet. ``scripts/test --all`` runs every combination,
and more examples of hypothesis.
"""

from __future__ import annotations

import math
import os
from itertools import combinations

import pytest

# Combinations of a test up to which none is left out.
FEW = 8

# Examples of hypothesis for a test of a short run.
MAX_EXAMPLES = 100

ALL = "OOC_SVM_ALL_TESTS"


def examples(count: int) -> int:
    """How many examples hypothesis tries where ``count`` of them are wanted."""
    return count if os.environ.get(ALL) else min(count, MAX_EXAMPLES)


def covering(rows: list[tuple[object, ...]]) -> list[int]:
    """Positions of rows in which every pair of entries of two columns occurs that occurs in any row.

    Rows are taken greedily: always the first of those that have the most pairs not met yet.
    """
    pairs = [{(i, row[i], j, row[j]) for i, j in combinations(range(len(row)), 2)} for row in rows]
    missing = set().union(*pairs)
    taken: list[int] = []
    while missing:
        best = max(range(len(rows)), key=lambda k: (len(pairs[k] & missing), -k))
        taken.append(best)
        missing -= pairs[best]
    return sorted(taken)


def thin(items: list[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The tests of a short run, and those that it leaves out: lists that are no product stay whole."""
    families: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for number, item in enumerate(items):
        call = getattr(item, "callspec", None)
        if call is not None and len(call.params) > 2:
            name = item.nodeid.partition("[")[0]
            families.setdefault((name, tuple(call.params)), []).append(number)
    left_out: set[int] = set()
    for numbers in families.values():
        # The values of a product are the same objects in all of its combinations.
        rows = [tuple(map(id, items[number].callspec.params.values())) for number in numbers]
        sizes = [len(set(column)) for column in zip(*rows, strict=True)]
        is_product = math.prod(sizes) == len(set(rows)) == len(rows)
        if is_product and len(rows) > FEW:
            left_out.update(set(numbers) - {numbers[place] for place in covering(rows)})
    kept_items = [item for number, item in enumerate(items) if number not in left_out]
    return kept_items, [items[number] for number in sorted(left_out)]

"""Sets of labels, where a row may have any number of them: each different set has a name and a number.

The name of a set has its labels in order, with commas between them. The label of a row is the number of its
set, so that what is kept of a row, and read, is the same as for classes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Int64Array
from ooc_svm.data.classes import MAX_CLASSES
from ooc_svm.errors import DamageError

SEPARATOR = ","
"""What stands between the labels of a set; no label has it in its name."""

EMPTY_SET = ","
"""Name of the set without labels. An empty name would mean that nothing is known of a row."""

MAX_LABELS = MAX_CLASSES
"""Limit of the number of different labels."""

MAX_SETS = 500_000
"""Limit of the number of different sets of labels."""

SET_BYTES = 320
"""Bytes of a set in the tables of names and rows, but for the text of its name."""

# Sets whose members are found together.
_SETS_AT_ONCE = 1 << 14
# Most digits of a label that is ordered as a number.
_MOST_DIGITS = 18


def in_order(labels: Iterable[str]) -> list[str]:
    """Different labels: whole numbers by their size, then the others by their text."""
    return sorted(set(labels), key=_place)


def _place(label: str) -> tuple[bool, int, str]:
    digits = label.removeprefix("-")
    whole = digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS
    return (not whole, int(label) if whole else 0, label)


def name_of(labels: Iterable[str]) -> str:
    """The name of a set."""
    return SEPARATOR.join(in_order(labels)) or EMPTY_SET


def labels_of(name: str) -> list[str]:
    """The labels of the set with a name."""
    return [] if name == EMPTY_SET else name.split(SEPARATOR)


@dataclass(frozen=True, slots=True, eq=False)
class LabelSets:
    """The different sets of labels of the data, and which labels each of them has.

    Attributes
    ----------
    names : tuple of str
        The names of the sets; the label of a row is the place of the name of its set.
    labels : tuple of str
        All labels, in order.
    members : ndarray of uint8, shape (n_labels, ceil(n_sets / 8))
        For each label one bit a set, the first in the lowest bit: whether the set has the label.
    """

    names: tuple[str, ...]
    labels: tuple[str, ...]
    members: npt.NDArray[np.uint8] = field(repr=False)

    @classmethod
    def of(cls, names: Sequence[str], source: str, labels: Sequence[str] | None = None) -> LabelSets:
        """The sets with these names; DamageError, with the `source` of the names, if they cannot be such.

        ``labels``: all labels in their order, if some may be in no set.
        """
        names = tuple(names)
        if labels is None:
            labels = in_order({label for name in names for label in labels_of(name)})
        number = {label: place for place, label in enumerate(labels)}
        members = np.zeros((len(labels), -(-len(names) // 8)), np.uint8)
        for first in range(0, len(names), _SETS_AT_ONCE):
            own, sets = array("i"), array("i")
            for place, name in enumerate(names[first : first + _SETS_AT_ONCE], first):
                found = [number[label] for label in labels_of(name)]
                if any(k >= following for k, following in pairwise(found)):
                    raise DamageError(f"{source} has the set of labels {name!r:.80}, which is not in order")
                own.extend(found)
                sets.extend([place] * len(found))
            places = np.frombuffer(sets, np.int32) if sets else np.empty(0, np.int32)
            rows = np.frombuffer(own, np.int32) if own else np.empty(0, np.int32)
            np.bitwise_or.at(members, (rows, places >> 3), (1 << (places & 7)).astype(np.uint8))
        if "" in number or len(labels) > MAX_LABELS:
            raise DamageError(f"{source} has {len(labels)} labels in sets, or one without a name")
        return cls(names, tuple(labels), members)

    @property
    def nbytes(self) -> int:
        """Bytes of the names, their tables, and the members."""
        return self.members.nbytes + sum(map(len, self.names)) + SET_BYTES * len(self.names)

    def sets_with(self, label: int) -> npt.NDArray[np.bool_]:
        """Whether each set has a label."""
        found = np.unpackbits(self.members[label], count=len(self.names), bitorder="little")
        return found.astype(np.bool_)

    def rows(self, counts: Mapping[float, int]) -> Int64Array:
        """The rows of each label, from those of each set."""
        sizes = np.zeros(len(self.names), np.int64)
        for number, n_rows in counts.items():
            sizes[int(number)] = n_rows
        return np.array([sizes[self.sets_with(k)].sum() for k in range(len(self.labels))], np.int64)


def has_label(members: npt.NDArray[np.uint8], sets: Any) -> npt.NDArray[np.bool_]:
    """Whether each of some sets, given by their numbers, has the label whose bits are `members`."""
    found: npt.NDArray[np.bool_] = (members[sets >> 3] >> (sets & 7).astype(np.uint8)) & 1 != 0
    return found

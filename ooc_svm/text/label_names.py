"""Labels that are names of classes: their numbers, in the order in which they appear in the text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array
from ooc_svm.data.classes import MAX_CLASSES
from ooc_svm.errors import InputError
from ooc_svm.text.label_loops import TOKEN_LENGTHS, TOO_MANY, number_tokens

# Places of the table in which tokens are looked up, for each different one: a power of two, and at least.
_SLOTS_A_NAME, _FEWEST_SLOTS = 4, 4096


def number_names(
    buffer: npt.NDArray[np.uint8], labels: Float64Array, most: int = MAX_CLASSES
) -> tuple[list[bytes] | None, list[int]]:
    """Replace packed tokens by numbers.

    (the token of each number, or None for more than `most`; where the labels begin that are not readable).
    """
    packed = labels.copy()
    names = _number(buffer, labels, most)
    # All at once: a comma is in no character of several bytes, so none is made of two names.
    if names is not None and is_readable(b",".join(names)):
        return names, []
    return names, _find_unreadable(buffer, packed)


def _number(buffer: npt.NDArray[np.uint8], labels: Float64Array, most: int) -> list[bytes] | None:
    """Replace packed tokens by numbers; the token of each number, or None for more than `most`."""
    n_names = min(most, len(labels))
    n_slots = max(1 << (_SLOTS_A_NAME * n_names - 1).bit_length(), _FEWEST_SLOTS)
    firsts, slots = np.empty(n_names, np.int64), np.full(n_slots, -1, np.int32)
    n = number_tokens(buffer, labels, firsts, slots)
    if n == TOO_MANY:
        return None
    starts, lengths = np.divmod(firsts[:n], int(TOKEN_LENGTHS))
    return [
        buffer[start : start + length].tobytes()
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
    ]


def _find_unreadable(buffer: npt.NDArray[np.uint8], packed: Float64Array) -> list[int]:
    """Where the tokens begin that are not readable, in order."""
    numbers = packed.copy()
    names = _number(buffer, numbers, len(numbers)) or []
    wrong = np.array([not is_readable(name) for name in names], bool)
    tokens = packed[wrong[numbers.astype(np.int64)]]
    return [int(token) // int(TOKEN_LENGTHS) for token in tokens.tolist()]


def is_readable(token: bytes) -> bool:
    """Are these printable characters in UTF-8?"""
    try:
        return token.decode().isprintable()
    except UnicodeDecodeError:
        return False


class LabelNames(Sequence[str]):
    """The different names so far, in the order in which they appeared."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, number):  # type: ignore[no-untyped-def]
        return self._names[number]

    def clear(self) -> None:
        """Forget all names."""
        self._numbers, self._names = {}, []

    def renumber(
        self, labels: Float64Array, tokens: Sequence[bytes | str] | None, source: str
    ) -> Float64Array:
        """Labels that are places in `tokens` as places in these names, to which new ones are added.

        InputError, with the `source` of the text, for too many names and those that are no text.
        """
        if tokens is None:
            raise self._too_many(source)
        numbers = [self._number(token, source) for token in tokens]
        self._check(source)
        return np.array(numbers, np.float64)[labels.astype(np.int64)]

    def _number(self, token: bytes | str, source: str) -> int:
        name = readable_name(token, source)
        if name not in self._numbers:
            self._numbers[name] = len(self._names)
            self._names.append(name)
        return self._numbers[name]

    def _check(self, source: str) -> None:
        """Raise InputError for too many names."""
        if len(self) > MAX_CLASSES:
            raise self._too_many(source)

    def _too_many(self, source: str) -> InputError:
        return InputError(
            f"{source}: the labels are more than {MAX_CLASSES} different names; are they names of classes? "
            "Numbers are read as such without being names"
        )


def readable_name(token: bytes | str, source: str) -> str:
    """A name from a text; InputError if it is none of printable characters."""
    try:
        name = token if isinstance(token, str) else token.decode()
    except UnicodeDecodeError:
        name = ""
    if not name.isprintable() or not name:
        raise InputError(
            f"{source}: the label {token!r:.80} is no name of printable characters in UTF-8; rename it"
        )
    return name

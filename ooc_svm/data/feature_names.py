"""Names of features, kept compactly: a column of a matrix may have one."""

from __future__ import annotations

import codecs
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Int64Array
from ooc_svm.errors import InputError, shown

Bytes = npt.NDArray[np.uint8]

# Names and bytes that are Python objects at a time.
_BATCH, _SLICE_BYTES = 1 << 16, 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class FeatureNames(Sequence[str]):
    """The names of the features, a sequence of str that takes about as many bytes as the names have.

    ``text`` has all names in UTF-8, one after another; name j is ``text[starts[j] : starts[j + 1]]``.
    ValueError if that is not so. A name may stand twice until a column has to be found by it.
    """

    text: Bytes
    starts: Int64Array

    def __post_init__(self) -> None:
        starts, size = self.starts, len(self.text)
        if len(starts) < 1 or starts[0] != 0 or starts[-1] != size or (starts[1:] < starts[:-1]).any():
            raise ValueError("the lengths of the names do not fit their text")
        decoder = codecs.getincrementaldecoder("utf-8")()
        for start in range(0, size, _SLICE_BYTES):
            decoder.decode(self.text[start : start + _SLICE_BYTES].tobytes())
        decoder.decode(b"", final=True)
        inner = starts[starts < size]
        if ((self.text[inner] & 0xC0) == 0x80).any():
            raise ValueError("a name begins inside a character")

    @classmethod
    def of(cls, names: Any) -> FeatureNames:
        """The names in any sequence of str; InputError for anything else, and for a name without characters.

        `FeatureNames` are returned as they are.
        """
        if isinstance(names, FeatureNames):
            return names
        if isinstance(names, str | bytes) or not hasattr(names, "__iter__"):
            raise InputError(f"the names of the features are {shown(names)}; give a sequence of str")
        encoded = []
        for place, name in enumerate(names):
            if not isinstance(name, str) or not name:
                raise InputError(f"the name of feature {place}, from 0, is {shown(name)}; give text to each")
            try:
                encoded.append(name.encode())
            except UnicodeEncodeError:
                raise InputError(f"the name {shown(name)} of a feature is no valid text") from None
        return cls.joined(encoded)

    @classmethod
    def of_frame(cls, data: Any) -> FeatureNames | None:
        """The names of the columns of a data frame; None where none is text, and for other data.

        InputError where only some are text, or one stands twice.
        """
        columns = list(getattr(data, "columns", ())) if hasattr(data, "iloc") else []
        texts = [name for name in columns if isinstance(name, str)]
        if not texts:
            return None
        if len(texts) < len(columns):
            other = next(name for name in columns if not isinstance(name, str))
            raise InputError(
                f"the columns of the frame have names, but {shown(other)} is no text; give all of them names "
                "(frame.columns = frame.columns.astype(str)), or the numbers alone (frame.to_numpy())"
            )
        if len(set(texts)) < len(texts):
            [(twice, _)] = Counter(texts).most_common(1)
            raise InputError(
                f"the name {shown(twice)} stands twice in the columns of the frame; give each a name of its "
                "own, or the numbers alone (frame.to_numpy())"
            )
        return cls.of(columns)

    @classmethod
    def joined(cls, encoded: Sequence[bytes]) -> FeatureNames:
        """The names from their bytes in UTF-8."""
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        return cls.from_lengths(np.frombuffer(b"".join(encoded), np.uint8), lengths)

    @classmethod
    def from_lengths(cls, text: Bytes, lengths: npt.NDArray[Any]) -> FeatureNames:
        """The names from their text and the bytes of each."""
        starts = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, dtype=np.int64, out=starts[1:])
        return cls(text, starts)

    @property
    def lengths(self) -> Int64Array:
        """Bytes of each name."""
        return np.diff(self.starts)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.text.nbytes + self.starts.nbytes

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> list[str]: ...

    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [self[j] for j in range(*place.indices(len(self)))]
        j = range(len(self))[place]
        return self._bytes(j).decode()

    def __iter__(self) -> Iterator[str]:
        return (name.decode() for name in self.encoded())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FeatureNames):
            return NotImplemented
        return np.array_equal(self.starts, other.starts) and np.array_equal(self.text, other.text)

    __hash__ = None  # type: ignore[assignment]

    def _bytes(self, place: int) -> bytes:
        return self.text[self.starts[place] : self.starts[place + 1]].tobytes()

    def encoded(self) -> Iterator[bytes]:
        """Names in UTF-8, in order."""
        for first in range(0, len(self), _BATCH):
            starts = self.starts[first : first + _BATCH + 1].tolist()
            text = self.text[starts[0] : starts[-1]].tobytes()
            for begin, end in pairwise(starts):
                yield text[begin - starts[0] : end - starts[0]]

    def digest(self) -> str:
        """A hash of the names in their order."""
        found = hashlib.sha256(np.ascontiguousarray(self.starts, "<i8").data)
        found.update(np.ascontiguousarray(self.text).data)
        return found.hexdigest()

    def first_double(self) -> tuple[int, int] | None:
        """The first place where a name stands again, after its first place; None if all names differ."""
        hashes = self._hashes()
        order = np.argsort(hashes, kind="stable")
        equal = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
        found: list[tuple[int, int]] = []
        for value in np.unique(hashes[order[equal]]).tolist():
            seen: dict[bytes, int] = {}
            first = np.searchsorted(hashes, value, sorter=order)
            last = np.searchsorted(hashes, value, side="right", sorter=order)
            for place in order[first:last].tolist():
                name = self._bytes(place)
                if name in seen:
                    found.append((seen[name], place))
                    break
                seen[name] = place
        return min(found, key=itemgetter(1), default=None)

    def places_of(self, others: FeatureNames) -> Int64Array:
        """The place here of each of the other names, -1 for those that are not here.

        All names here must differ.
        """
        hashes, wanted = self._hashes(), others._hashes()
        order = np.argsort(hashes, kind="stable")
        ordered = hashes[order]
        if (
            ordered[1:] == ordered[:-1]
        ).any():  # different names of one hash, one in 10^7 times at 10^6 names
            table = {name: place for place, name in enumerate(self.encoded())}
            return np.array([table.get(name, -1) for name in others.encoded()], np.int64)
        if not len(self):
            return np.full(len(others), -1, np.int64)
        candidates = order[np.minimum(np.searchsorted(ordered, wanted), len(order) - 1)]
        places = np.where(hashes[candidates] == wanted, candidates, -1).astype(np.int64)
        for start in range(0, len(others), _BATCH):
            self._drop_different(others, start, places[start : start + _BATCH])
        return places

    def _drop_different(self, others: FeatureNames, start: int, places: Int64Array) -> None:
        """Set a place to -1 if the name there is not that of the others, from number `start` on."""
        numbers = np.flatnonzero(places >= 0)
        own, first = self.starts[places[numbers]], others.starts[start + numbers]
        lengths = others.starts[start + numbers + 1] - first
        different = self.starts[places[numbers] + 1] - own != lengths
        lengths[different] = 0
        inside = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        wrong = self.text[np.repeat(own, lengths) + inside] != others.text[np.repeat(first, lengths) + inside]
        different[np.repeat(np.arange(len(numbers)), lengths)[wrong]] = True
        places[numbers[different]] = -1

    def _hashes(self) -> Int64Array:
        """Python's hashes of the names: none can be made to be equal on purpose."""
        return np.fromiter(map(hash, self.encoded()), np.int64, len(self))

"""Messages between client and worker without what the other side has already.

The vectors of the features are most of a message: 8 MB each with a million of them. One that was sent before
goes as what has changed since; in an answer, as what has changed of the vectors asked about.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from distributed.protocol.serialize import deserialize, serialize

Bytes = npt.NDArray[np.uint8]
Slot = tuple[int, int]

LEAST_BYTES = 1 << 16
"""Shorter vectors are sent as they are."""

SAMPLED = 64
"""One in so many numbers is compared first."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What makes a vector of 64-bit numbers out of the one in a slot.

    Attributes
    ----------
    slot : (int, int)
        Its bytes, and which of the vectors of so many bytes it is.
    places : ndarray of uint32
    numbers : ndarray of uint64
        What stands there now.
    """

    slot: Slot
    places: npt.NDArray[np.uint32]
    numbers: npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Parcel:
    """A serialised message: a frame is bytes, or `Changes`."""

    header: dict[str, Any]
    frames: list[Any]


@dataclass(slots=True)
class _Kept:
    """The vector of a slot, how often it has changed, and what changed last if that was little."""

    content: Bytes
    version: int = 0
    changes: Changes | None = None


class Outbox:
    """Packs messages to several workers, most of which get the same vectors.

    Parameters
    ----------
    vector_bytes : int
        Frames of so many bytes, or several times as many, are vectors.
    """

    def __init__(self, vector_bytes: int) -> None:
        self._vector_bytes = vector_bytes
        self._kept: dict[Slot, _Kept] = {}

    def pack(self, message: Any, known: dict[Slot, int]) -> Parcel:
        """Pack a message.

        Parameters
        ----------
        message : object
        known : dict
            Of the worker: which versions it has; updated.
        """
        header, frames = _serialized(message)
        packed: list[Any] = []
        for slot, frame in zip(_slots(frames, self._vector_bytes), frames, strict=True):
            if slot is None:
                packed.append(frame)
                continue
            kept = self._keep(slot, frame)
            version = known.get(slot)
            known[slot] = kept.version
            if version == kept.version:
                packed.append(_nothing(slot))
            elif version == kept.version - 1 and kept.changes is not None:
                packed.append(kept.changes)
            else:
                packed.append(kept.content)
        return Parcel(header, packed)

    def unpack(self, parcel: Parcel) -> Any:
        """The answer to the last message; its arrays are the caller's own."""
        kept = {slot: own.content for slot, own in self._kept.items()}
        frames = [_whole(frame, kept) for frame in parcel.frames]
        return deserialize(parcel.header, frames)

    def _keep(self, slot: Slot, frame: Bytes) -> _Kept:
        kept = self._kept.get(slot)
        if kept is None:
            kept = self._kept[slot] = _Kept(frame.copy())
            return kept
        changes = _changes(slot, frame, kept.content)
        if changes is None or len(changes.places):
            # A new array: the old one may still be on its way to a worker.
            kept = self._kept[slot] = _Kept(frame.copy(), kept.version + 1, changes)
        return kept


class Inbox:
    """The worker's side.

    Parameters
    ----------
    vector_bytes : int
    """

    def __init__(self, vector_bytes: int) -> None:
        self._vector_bytes = vector_bytes
        self._kept: dict[Slot, Bytes] = {}
        self._asked: list[Slot] = []
        """What the last message had, and so both sides have alike."""

    def unpack(self, parcel: Parcel) -> Any:
        """A message; its vectors are kept, and must not be changed."""
        frames = [_whole(frame, self._kept, copy=False) for frame in parcel.frames]
        sent = {slot: f for slot, f in zip(_slots(frames, self._vector_bytes), frames, strict=True) if slot}
        self._kept |= sent
        self._asked = list(sent)
        return deserialize(parcel.header, frames)

    def pack(self, message: Any) -> Parcel:
        """Pack the answer to the last message."""
        header, frames = _serialized(message)
        packed: list[Any] = []
        for slot, frame in zip(_slots(frames, self._vector_bytes), frames, strict=True):
            alike = [] if slot is None else [own for own in self._asked if own[0] == slot[0]]
            found = (_changes(own, frame, self._kept[own]) for own in alike)
            packed.append(next((changes for changes in found if changes is not None), frame))
        return Parcel(header, packed)


def _serialized(message: Any) -> tuple[dict[str, Any], list[Bytes]]:
    header, frames = serialize(message, serializers=("pickle",), on_error="raise")
    return header, [np.frombuffer(frame, np.uint8) for frame in frames]


def _slots(frames: Sequence[Bytes], vector_bytes: int) -> list[Slot | None]:
    """The slot of each frame; None for those that are no vectors."""
    seen: Counter[int] = Counter()
    slots: list[Slot | None] = []
    for frame in frames:
        vector = frame.nbytes >= LEAST_BYTES and frame.nbytes % vector_bytes == 0
        slots.append((frame.nbytes, seen[frame.nbytes]) if vector else None)
        seen[frame.nbytes] += vector
    return slots


def _nothing(slot: Slot) -> Changes:
    return Changes(slot, np.empty(0, np.uint32), np.empty(0, np.uint64))


def _changes(slot: Slot, new: Bytes, old: Bytes) -> Changes | None:
    """What has changed; None where all of it is less to send, or not much more."""
    numbers, before = new.view(np.uint64), old.view(np.uint64)
    # A few of them tell nearly always.
    few = slice(None, None, SAMPLED)
    if 2 * int(np.count_nonzero(numbers[few] != before[few])) > len(numbers) // SAMPLED:
        return None
    changed = numbers != before
    if 12 * int(np.count_nonzero(changed)) > new.nbytes // 2:
        return None
    places = np.flatnonzero(changed).astype(np.uint32)
    return Changes(slot, places, numbers[places])


def _whole(frame: Any, kept: dict[Slot, Bytes], *, copy: bool = True) -> Bytes:
    if not isinstance(frame, Changes):
        return frame if isinstance(frame, np.ndarray) else np.frombuffer(frame, np.uint8)
    content = kept[frame.slot]
    if copy or len(frame.places):
        content = content.copy()
        content.view(np.uint64)[frame.places] = frame.numbers
    return content

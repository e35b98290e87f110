"""Messages between client and worker that leave out what the other side has already.

The vectors of the features are most of a message: 8 MB each with a million features. A vector that was sent
before is sent as what has changed since; one of an answer as its differences from a vector of the request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ooc_svm.cluster.dask_calls import deserialize, serialize

Bytes = npt.NDArray[np.uint8]
Slot = tuple[int, int]
"""Names a vector of a message: its bytes, and its number among the vectors of so many bytes."""

MIN_DELTA_BYTES = 1 << 16  # Size of a vector below which it is always sent whole, in bytes
SAMPLE_STEP = 64  # Two vectors are first compared in every `SAMPLE_STEP`-th number


@dataclass(frozen=True, slots=True)
class Changes:
    """Makes a vector of 64-bit numbers out of the one in a slot."""

    slot: Slot
    places: npt.NDArray[np.uint32]  # Positions of the numbers that differ
    numbers: npt.NDArray[np.uint64]  # Their new values


@dataclass(frozen=True, slots=True)
class Message:
    """A serialized value; each frame is bytes or `Changes`."""

    header: dict[str, Any]
    frames: list[Any]


@dataclass(slots=True)
class _Kept:
    """The vector of a slot, how often it has changed, and its last changes if they were few."""

    content: Bytes
    version: int = 0
    changes: Changes | None = None


class DeltaEncoder:
    """The client's side: encodes requests to several workers, most of which get the same vectors.

    ``vector_bytes``: frames whose size is a multiple of this are vectors.
    """

    def __init__(self, vector_bytes: int) -> None:
        self._vector_bytes = vector_bytes
        self._kept: dict[Slot, _Kept] = {}

    def encode(self, request: Any, known: dict[Slot, int]) -> Message:
        """Encode a request.

        ``known``: the versions of vectors that the worker has; updated.
        """
        header, frames = serialize(request)
        encoded: list[Any] = []
        for slot, frame in zip(_slots(frames, self._vector_bytes), frames, strict=True):
            if slot is None:
                encoded.append(frame)
                continue
            kept = self._keep(slot, frame)
            version = known.get(slot)
            known[slot] = kept.version
            if version == kept.version:
                encoded.append(Changes(slot, np.empty(0, np.uint32), np.empty(0, np.uint64)))
            elif version == kept.version - 1 and kept.changes is not None:
                encoded.append(kept.changes)
            else:
                encoded.append(kept.content)
        return Message(header, encoded)

    def decode_answer(self, message: Message) -> Any:
        """Decode the answer to the last request; the caller may change its arrays."""
        kept = {slot: own.content for slot, own in self._kept.items()}
        return deserialize(message.header, [_whole(frame, kept) for frame in message.frames])

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


class DeltaDecoder:
    """The worker's side."""

    def __init__(self, vector_bytes: int) -> None:
        self._vector_bytes = vector_bytes
        self._kept: dict[Slot, Bytes] = {}
        self._requested: list[Slot] = []  # Slots of the last request, which are the same on both sides

    def decode(self, message: Message) -> Any:
        """Decode a request; its vectors are kept, and must not be changed."""
        frames = [_whole(frame, self._kept, copy=False) for frame in message.frames]
        sent = {slot: f for slot, f in zip(_slots(frames, self._vector_bytes), frames, strict=True) if slot}
        self._kept |= sent
        self._requested = list(sent)
        return deserialize(message.header, frames)

    def encode_answer(self, answer: Any) -> Message:
        """Encode the answer to the last request."""
        header, frames = serialize(answer)
        encoded: list[Any] = []
        for slot, frame in zip(_slots(frames, self._vector_bytes), frames, strict=True):
            alike = [] if slot is None else [own for own in self._requested if own[0] == slot[0]]
            found = (_changes(own, frame, self._kept[own]) for own in alike)
            encoded.append(next((changes for changes in found if changes is not None), frame))
        return Message(header, encoded)


def _slots(frames: Sequence[Bytes], vector_bytes: int) -> list[Slot | None]:
    """The slot of each frame; None for those that are no vectors."""
    seen: Counter[int] = Counter()
    slots: list[Slot | None] = []
    for frame in frames:
        vector = frame.nbytes >= MIN_DELTA_BYTES and frame.nbytes % vector_bytes == 0
        slots.append((frame.nbytes, seen[frame.nbytes]) if vector else None)
        seen[frame.nbytes] += vector
    return slots


def _changes(slot: Slot, new: Bytes, old: Bytes) -> Changes | None:
    """The differences of two vectors; None where they take more than half its bytes."""
    numbers, before = new.view(np.uint64), old.view(np.uint64)
    # A sample decides nearly always.
    sample = slice(None, None, SAMPLE_STEP)
    if 2 * int(np.count_nonzero(numbers[sample] != before[sample])) > len(numbers) // SAMPLE_STEP:
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

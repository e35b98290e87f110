"""Saved states of a run: what every solver knows between two reads, and the row vectors.

A checkpoint is two files: the row vectors as they are, and then, as the commit, a file of named arrays with
the states and the checksum of the first. There are two places that take turns, so that the one before is
whole while a new one is written; a damaged newest one falls back to it.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, fields, is_dataclass
from typing import Any, BinaryIO

import google_crc32c
import numpy as np
import numpy.typing as npt

from ooc_svm.data.feature_names import FeatureNames
from ooc_svm.errors import DamageError, StorageError, UsageError, parameter
from ooc_svm.rowvectors.collection import RowVectors
from ooc_svm.system.address import AnyPath, located
from ooc_svm.system.arrayfile import FileKind, read_arrays, write_arrays
from ooc_svm.system.files import (
    atomic_write,
    changed_at,
    check_writable,
    exists,
    folders_in,
    make_folder,
    open_size,
    open_to_read,
    remove_file,
    storage_errors,
    sweep_leftovers,
)
from ooc_svm.system.recognition import STATE, zarr_around
from ooc_svm.training.batches import Batch
from ooc_svm.training.keys import RunKey

CHECKPOINT_FILE = FileKind(magic=STATE, name="checkpoint", version=2)
PLACES = (0, 1)
_BATCH_FOLDER = re.compile("batch-[1-9][0-9]*-of-([1-9][0-9]*)")


class _Summed:
    """A stream that keeps the checksum of what passes through it; ``name`` is that of its file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.name = file, file.name
        self.crc32c = 0

    def write(self, data: Any) -> int:
        self.crc32c = google_crc32c.extend(self.crc32c, bytes(data))
        return self._file.write(data)

    def read(self, n_bytes: int) -> bytes:
        data = self._file.read(n_bytes)
        self.crc32c = google_crc32c.extend(self.crc32c, data)
        return data


@dataclass(frozen=True, slots=True)
class Saved:
    """One whole checkpoint: its states, and the checksum of each of its row vectors, which are in a file."""

    folder: AnyPath
    place: int
    content: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]]
    vector_sums: list[int]

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata saved with it."""
        metadata: dict[str, Any] = self.content["facts"]
        return metadata

    @property
    def names(self) -> list[str]:
        """Names of its row vectors."""
        names: list[str] = self.content["vectors"]["names"]
        return names

    def fill(self, model: int, state: Any) -> None:
        """Put the state of a model into a fresh one of the same type; DamageError if it does not fit."""
        arrays = dict(self.arrays)
        _upgrade(f"{model}", state, arrays)
        _unflatten(f"{model}", state, arrays, self.content["texts"])

    def load(self, saved_name: str, name: str, vectors: RowVectors) -> None:
        """Set the row vector ``name`` from the one saved as ``saved_name``; all of them are float64.

        DamageError if there is no such row vector, or it has another length, or is no longer the one that was
            there when the checkpoint was found to be whole.
        """
        path = vectors_path(self.folder, self.place)
        size = 8 * vectors.n_rows
        with storage_errors("reading", path, "check the disk"), open_to_read(path) as file:
            if saved_name not in self.names or open_size(file) != size * len(self.names):
                raise DamageError(f"{path}: has other row vectors than this run; start without it")
            number = self.names.index(saved_name)
            file.seek(size * number)
            summed = _Summed(file)
            vectors.load(name, summed)  # type: ignore[arg-type]
            if summed.crc32c != self.vector_sums[number]:
                raise DamageError(f"{path}: was changed while it was read; run again")


class Checkpoints:
    """The checkpoints of one run in a folder.

    ``folder``: made if it is missing.
    ``key``: what the run is; the state of another one is refused.
    UsageError if the folder is a Zarr store or lies in one, StorageError if it cannot be made, or not be
        written to.
    """

    def __init__(self, folder: str | os.PathLike[str], key: RunKey) -> None:
        check_folder(folder)
        self.folder = located(folder)
        self._key = key
        self._next = 0
        self._found: Saved | None = None
        try:
            make_folder(self.folder)
        except OSError as error:
            raise StorageError(
                f"{self.folder}: cannot be made for checkpoints: {error.strerror}; give another folder"
            ) from error
        # Next to the checkpoints: what is wrong with one of these is said when it is read.
        check_writable(self.folder / "checkpoint")

    def inner(self, name: str, key: RunKey) -> Checkpoints:
        """Those of a part of the run, in a folder inside."""
        return Checkpoints(self.folder / name, key)

    def save(
        self,
        number: int,
        states: Sequence[Any],
        vectors: RowVectors,
        names: Sequence[str],
        metadata: dict[str, Any],
    ) -> None:
        """Write the checkpoint of pass ``number`` with the named row vectors, over the older one."""
        summed: list[_Summed] = []

        def write_vectors(file: BinaryIO) -> None:
            summed.append(_Summed(file))
            for name in names:
                vectors.save(name, summed[-1])  # type: ignore[arg-type]

        place, self._next = self._next, 1 - self._next
        self._discard(place)
        atomic_write(vectors_path(self.folder, place), write_vectors)
        arrays: dict[str, npt.NDArray[Any]] = {}
        texts: dict[str, str | None] = {}
        for model, state in enumerate(states):
            _flatten(f"{model}", state, arrays, texts)
        content = {
            "key": self._key.texts[0],
            "data": self._key.data,
            "options": self._key.options,
            "pass": number,
            "facts": metadata,
            "texts": texts,
            "vectors": {"names": list(names), "crc32c": summed[-1].crc32c},
        }
        path = state_path(self.folder, place)
        atomic_write(path, lambda file: write_arrays(file, CHECKPOINT_FILE, content, arrays))

    def newest_metadata(self) -> dict[str, Any] | None:
        """The metadata saved with the newest whole checkpoint, or None if there is none.

        DamageError if there are checkpoints and none is whole, or they are another run's.
        """
        self._found = newest_saved(self.folder, self._key)
        return None if self._found is None else self._found.metadata

    def restore(
        self, states: Sequence[Any], vectors: RowVectors, names: Callable[[], Sequence[str]]
    ) -> dict[str, Any]:
        """Put the checkpoint that `newest_metadata` found into fresh states and row vectors.

        ``names``: the row vectors that the states go on from, once they are filled.

        It is kept for one such call. Returns its metadata. DamageError if it does not fit them: arrays of
        other types, or other row vectors.
        """
        found, self._found = self._found, None
        if found is None:
            raise DamageError(f"{self.folder}: there is no checkpoint to go on from; run without resume")
        self._next = 1 - found.place
        for model, state in enumerate(states):
            found.fill(model, state)
        if found.names != list(names()):
            path = state_path(self.folder, found.place)
            raise DamageError(f"{path}: has other row vectors than this run; start it again")
        for name in found.names:
            found.load(name, name, vectors)
        return found.metadata

    def _discard(self, place: int) -> None:
        """Remove the older state, so that it is not seen next to the row vectors of the next one."""
        path = state_path(self.folder, place)
        try:
            remove_file(path)
        except StorageError:  # of an object
            raise
        except OSError as error:
            raise StorageError(
                f"{path}: cannot be removed: {error.strerror}; check its permissions"
            ) from error


def check_folder(folder: str | os.PathLike[str]) -> None:
    """Refuse a folder for checkpoints that is a Zarr store, or lies in one: UsageError."""
    if (store := zarr_around(folder)) is not None:
        raise UsageError(
            f"{os.fspath(folder)}: nothing is saved in the Zarr store {store}; give "
            f"{parameter('checkpoint')} another folder"
        )


def newest_saved(folder: AnyPath, key: RunKey | None = None) -> Saved | None:
    """The newest whole checkpoint in a folder, or None if there is none.

    ``key``: of the run that it must belong to; any run's by default.
    DamageError if there are checkpoints and none is whole, or they are another run's.
    """
    whole: list[Saved] = []
    damage: DamageError | None = None
    for place in PLACES:
        for path in (state_path(folder, place), vectors_path(folder, place)):
            sweep_leftovers(path)
        if not exists(state_path(folder, place)):
            continue
        try:
            whole.append(_read(folder, place))
        except DamageError as error:
            damage = error
    if not whole:
        if damage is not None:
            raise damage
        return None
    # A run that was not resumed leaves the states of an earlier one until it has written over both.
    own = [saved for saved in whole if key is None or saved.content["key"] in key.texts]
    if key is not None and not own:
        path, difference = state_path(folder, whole[0].place), key.difference(whole[0].content)
        raise DamageError(
            f"{path}: was saved by a run {difference}; give data and options of that run, or another folder"
        )
    newest = max(own, key=lambda saved: int(saved.content["pass"]))
    if damage is not None:
        warnings.warn(f"{damage}; going on from pass {newest.content['pass']}", stacklevel=2)
    return newest


def _read(folder: AnyPath, place: int) -> Saved:
    path = state_path(folder, place)
    content, arrays = read_arrays(path, CHECKPOINT_FILE)
    kinds = {"key": str, "pass": int, "facts": dict, "texts": dict, "vectors": dict}
    known = all(isinstance(content.get(name), kind) for name, kind in kinds.items())
    if not (known and isinstance(content["vectors"].get("names"), list)):
        raise DamageError(f"{path}: is not as this release writes it; start the run again")
    path = vectors_path(folder, place)
    try:
        with open_to_read(path) as file:
            checksum, vector_sums = _checksums(file, len(content["vectors"]["names"]))
    except StorageError:  # of an object, which may be whole
        raise
    except OSError as error:
        raise DamageError(f"{path}: a part of the checkpoint cannot be read: {error.strerror}") from error
    if checksum != content["vectors"].get("crc32c"):
        raise DamageError(f"{path}: damaged: the checksum of the row vectors is wrong")
    return Saved(folder, place, content, arrays, vector_sums)


def _checksums(file: BinaryIO, n_vectors: int) -> tuple[int, list[int]]:
    """Checksums of a whole file, and of each of the row vectors of equal length that are all of it."""
    whole, parts = _Summed(file), []
    length = open_size(file) // max(n_vectors, 1)
    for _ in range(n_vectors):
        part, missing = 0, length
        while missing and (data := whole.read(min(missing, 1 << 20))):
            part, missing = google_crc32c.extend(part, data), missing - len(data)
        parts.append(part)
    while whole.read(1 << 20):
        pass
    return whole.crc32c, parts


def saved_item(metadata: Mapping[str, Any], name: str, kind: type) -> Any:
    """A part of what was saved with a checkpoint, which may come from anywhere."""
    if type(metadata.get(name)) is not kind:
        raise DamageError(f"the checkpoint does not say {name}; start the run again")
    return metadata[name]


def check_feature_names(saved: Mapping[str, Any], names: FeatureNames | None, folder: AnyPath) -> None:
    """UsageError if the state was saved by a run whose features had other names, where both have names."""
    found = saved.get("feature_names")
    if found is not None and names is not None and found != names.digest():
        raise UsageError(
            f"{folder} holds the state of a run whose features have other names, or these in another "
            "order; give the data of that run, or another folder"
        )


def saved_parameters(saved: Mapping[str, Any]) -> dict[str, int]:
    """The solver's parameters that a checkpoint was made with."""
    found: dict[str, int] = saved_item(saved, "parameters", dict)
    if any(type(number) is not int for number in found.values()):
        raise DamageError("the checkpoint does not say its parameters; start the run again")
    # Other releases may have cut reads in another way where the other parameters are the same.
    cut = saved.get("cut")
    return {"rounds": cut[0]} | found if isinstance(cut, list) and cut and type(cut[0]) is int else found


def batch_folder(folder: str | os.PathLike[str], batch: Batch | None) -> AnyPath:
    """Where the states of a batch are saved, of those of a run in this folder."""
    outer = located(folder)
    return outer if batch is None else outer / batch.name.replace(" ", "-")


def saved_batches(folder: str | os.PathLike[str]) -> int | None:
    """The number of batches of the run that was last saved in a folder; None if there is none.

    Memory may be another now, and the models that were saved stay together.
    """
    newest: dict[int, float] = {}
    outer = located(folder)
    folders = [(outer, 1)]
    for name in folders_in(outer):
        if (found := _BATCH_FOLDER.fullmatch(name)) is not None:
            folders.append((outer / name, int(found[1])))
    for inner, total in folders:
        for changed in (changed_at(state_path(inner, place)) for place in PLACES):
            if changed is not None:
                newest[total] = max(newest.get(total, 0.0), changed)
    return max(newest, key=lambda total: newest[total]) if newest else None


def state_path(folder: AnyPath, place: int) -> AnyPath:
    """The file of states."""
    return folder / f"checkpoint-{place}.state"


def vectors_path(folder: AnyPath, place: int) -> AnyPath:
    """The file of row vectors."""
    return folder / f"checkpoint-{place}.vectors"


def _items(path: str, state: Any) -> Iterator[tuple[str, Field[Any], Any]]:
    """Path, field and value of each field of a dataclass that is saved.

    Private ones are left out, and those that follow from data and options: ``metadata={"saved": False}``.
    ``metadata={"saved_as": name}`` gives another name in the file, "" the place of the owner.
    ``metadata={"shared": True}``: the states of all models have it in common; it is saved with the first.
    """
    for item in fields(state):
        if not item.name.startswith("_") and item.metadata.get("saved", True):
            name = item.metadata.get("saved_as", item.name)
            yield f"{path}/{name}" if name else path, item, getattr(state, item.name)


def _leaves(path: str, state: Any, common: str | None = None) -> Iterator[tuple[str, str, Any, str, Any]]:
    """Path, path where it is saved, owner, name and value of each field of a dataclass and those inside it.

    ``common``: where the dataclass is saved, if it is part of what the states of all models have in common.
    """
    for inner, item, value in _items(path, state):
        saved = None if common is None else common + inner[len(path) :]
        if item.metadata.get("shared", False):
            saved = f"0/{inner.rpartition('/')[2]}"
        if is_dataclass(value):
            yield from _leaves(inner, value, saved)
        else:
            yield inner, inner if saved is None else saved, state, item.name, value


def _upgrade(path: str, state: Any, arrays: dict[str, npt.NDArray[Any]]) -> None:
    """Let each part of a state that has had other arrays (``upgrade``) turn them into today's."""
    for inner, _, value in _items(path, state):
        if is_dataclass(value):
            _upgrade(inner, value, arrays)
    if hasattr(state, "upgrade"):
        names = [name for name in arrays if name.startswith(f"{path}/")]
        own = {name[len(path) + 1 :]: arrays.pop(name) for name in names}
        state.upgrade(own)
        arrays.update({f"{path}/{name}": array for name, array in own.items()})


def _flatten(
    prefix: str, state: Any, arrays: dict[str, npt.NDArray[Any]], texts: dict[str, str | None]
) -> None:
    """Named arrays and texts of a state."""
    for _, path, _, _, value in _leaves(prefix, state):
        if value is None or isinstance(value, str):
            texts[path] = value
        else:
            arrays[path] = np.asarray(value)


def _unflatten(
    prefix: str, state: Any, arrays: dict[str, npt.NDArray[Any]], texts: dict[str, str | None]
) -> None:
    """Undo `_flatten` on a fresh state of the same type."""
    for own_path, saved, owner, name, value in _leaves(prefix, state):
        # Older releases saved everything with each model.
        path = own_path if own_path in arrays else saved
        if value is None or isinstance(value, str):
            text = texts.get(path)
            setattr(owner, name, text if isinstance(text, str) else None)
        elif not _fits(value, arrays.get(path)):
            raise DamageError(f"the checkpoint has no fitting {name}; start the run again")
        elif isinstance(value, np.ndarray):
            setattr(owner, name, arrays[path].copy())
        elif isinstance(value, list):
            setattr(owner, name, [tuple(row) for row in arrays[path].tolist()])
        else:
            setattr(owner, name, type(value)(arrays[path]))


def _fits(value: Any, stored: npt.NDArray[Any] | None) -> bool:
    """Whether a stored array can take the place of the value of a fresh state."""
    if stored is None:
        return False
    if isinstance(value, list):
        return stored.dtype == np.float64 and (stored.ndim == 2 or stored.shape == (0,))
    fresh = np.asarray(value)
    return stored.dtype == fresh.dtype and stored.ndim == fresh.ndim

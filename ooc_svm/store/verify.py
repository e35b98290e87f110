"""`verify_store`: checks every byte of every chunk against the manifest, every row against the rules."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from ooc_svm.data.label_sets import LabelSets
from ooc_svm.errors import DamageError
from ooc_svm.parameters import CALLBACK, TEXT, checks
from ooc_svm.store.blocks import BlockCutter
from ooc_svm.store.chunk_files import ChunkFiles, Elements
from ooc_svm.store.label_summary import RunCounter, label_collector
from ooc_svm.store.layout import CHECKSUM_BYTES, CODES, LABEL
from ooc_svm.store.manifest import Manifest
from ooc_svm.store.metadata import read_array
from ooc_svm.store.open import STORE, find_manifest, open_listed
from ooc_svm.store.reader import Store
from ooc_svm.store.storage import READ_ADVICE, Storage, open_storage
from ooc_svm.system.address import Address, AnyPath

MOST_NAMED = 20
"""Number of damaged chunks that a message names; more are counted."""

_CHUNKS_AHEAD = 16
"""Number of chunks of an array that are fetched ahead."""

Progress = Callable[[int, int], None]

_AGAIN = "make the store again from its source"


@dataclass(frozen=True)
class VerifyReport:
    """What was found to be whole.

    ``manifest`` is False for an AnnData store without one: its chunks were decoded. ``remark`` says
    which of its arrays have no checksums, if any.
    """

    path: AnyPath
    n_rows: int
    n_nonzeros: int
    n_blocks: int
    n_chunks: int
    n_bytes: int
    manifest: bool
    remark: str | None = None


@checks(store=STORE, label=TEXT, layer=TEXT, progress=CALLBACK)
def verify_store(
    store: Store | str | os.PathLike[str],
    *,
    label: str | None = None,
    layer: str | None = None,
    progress: Progress | None = None,
) -> VerifyReport:
    """Read all of a store and check it against its manifest and the rules.

    Parameters
    ----------
    store : Store or path
    label : str, optional
        Column of ``obs`` to check with the rows, "label" by default, if there is such a column; not all rows
        need a label.
    layer : str, optional
        As for `open_store`.
    progress : callable, optional
        Called with the bytes done and the bytes to do.

    Returns
    -------
    VerifyReport

    Raises
    ------
    DamageError
        Names what is damaged: up to 20 chunks, then their number.
    UsageError, InputError, StorageError
        As `open_store` does.
    """
    path = store.path if isinstance(store, Store) else store
    storage = open_storage(path)
    storage.read_originals()
    manifest = find_manifest(storage)
    counter = _Counter(progress)
    if manifest is None:
        store = open_listed(storage, None, label, "keep", layer)
        _read_all(store, counter)
    else:
        if not _sizes_are_right(storage, manifest):
            _check_bytes(storage, manifest)
        try:
            store = open_listed(storage, manifest, label, "keep", layer)
            _check_all(store, manifest, counter)
        except DamageError:
            _check_bytes(storage, manifest)  # to name all chunks that are damaged, if that is the reason
            raise
    return VerifyReport(
        path=store.path,
        n_rows=store.n_rows,
        n_nonzeros=store.n_nonzeros,
        n_blocks=len(store.blocks),
        n_chunks=store.n_chunks,
        n_bytes=store.n_bytes,
        manifest=manifest is not None,
        remark=store.remark,
    )


class _Counter:
    def __init__(self, progress: Progress | None) -> None:
        self.done = self.total = 0
        self._progress = progress

    def add(self, n_bytes: int) -> None:
        self.done += n_bytes
        if self._progress is not None:
            self._progress(self.done, self.total)


def _read_all(store: Store, counter: _Counter) -> None:
    """Decode all of a store without a manifest."""
    counter.total = sum(store.block_stored_bytes(span.index) for span in store.blocks)
    if store.parts.feature_names is not None:
        store.parts.feature_names()  # checks each name
    for span in store.blocks:
        store.read_block(span.index)
        _read_columns(store, span.start, span.stop)
        counter.add(store.block_stored_bytes(span.index))


def _check_all(store: Store, manifest: Manifest, counter: _Counter) -> None:
    """Read every chunk, which is checked against the manifest then, and check all that they hold."""
    counter.total = sum(store.block_stored_bytes(span.index) for span in store.blocks)
    if store.parts.feature_names is not None:
        store.parts.feature_names()  # checks each name
    _check_rows(store, manifest, counter)
    _check_labels(store, manifest)
    _check_numbering(store, manifest)


def _sizes_are_right(storage: Storage, manifest: Manifest) -> bool:
    """Whether all chunk files have the sizes that they must have: reading one stops at its size.

    DamageError where there is a link on the way to them.
    """
    place = storage.path
    for array, first, last in manifest.chunks():
        info = read_array(storage, array.name)
        keys = [info.key(index) for index in range(last - first)]
        if isinstance(place, Address) and place.is_read_only:  # a web server has no lists
            sizes = [storage.describe(key) for key in keys]
        else:
            found = storage.list(info.key_prefix.rstrip("/"))
            versions = [found.get(key.removeprefix(info.key_prefix)) for key in keys]
            sizes = [None if version is None else version.size for version in versions]
        if sizes != manifest.sizes[first:last].tolist():
            return False
    return True


def _check_bytes(storage: Storage, manifest: Manifest) -> None:
    """Raise DamageError with the names of damaged chunks, if there are any."""
    damaged = list(_damaged_chunks(storage, manifest))
    if damaged:
        more = f"; and {len(damaged) - MOST_NAMED} more" if len(damaged) > MOST_NAMED else ""
        raise DamageError(
            f"{len(damaged)} of {len(manifest.sizes)} chunks of {storage.location} are damaged: "
            f"{'; '.join(damaged[:MOST_NAMED])}{more}; {READ_ADVICE}"
        )


def _damaged_chunks(storage: Storage, manifest: Manifest) -> Iterator[str]:
    for array, first, last in manifest.chunks():
        info = read_array(storage, array.name)
        for index in range(last - first):
            key = info.key(index)
            size, checksum = int(manifest.sizes[first + index]), int(manifest.checksums[first + index])
            found = storage.describe(key)
            if found is None:
                yield f"{key} (missing)"
                continue
            if found != size:
                yield f"{key} ({found} bytes instead of {size})"
                continue
            content = storage.read(key, 0, size)
            if int.from_bytes(content[-CHECKSUM_BYTES:], "little") != checksum:
                yield f"{key} (not the chunk that was written there)"
            elif google_crc32c.value(content[:-CHECKSUM_BYTES]) != checksum:
                yield f"{key} (checksum)"


def _check_rows(store: Store, manifest: Manifest, counter: _Counter) -> None:
    """Every block against the rules, the table of blocks against the row pointers, tails against the data."""
    parts = store.parts
    listed = {array.name: array for array in manifest.arrays}
    cutter = BlockCutter(listed["X/indices"].chunk, manifest.block_chunks, manifest.block_rows)
    buffers = store.new_buffers()
    tails = [0]
    for span in store.blocks:
        if span.index + 1 < len(store.blocks):
            store.announce_block(span.index + 1)
        block = store.read_block(span.index, buffers)
        first = int(parts.block_nonzeros[span.index])
        ended = cutter.add(block.indptr[:-1] + first, first + span.n_nonzeros)
        tails += [end - start for start, end in ended]
        if parts.tails is not None:
            length = int(parts.tails.pointers[span.index + 1] - parts.tails.pointers[span.index])
            _check_tail(store, parts.indices, "indices", first, block.indices, length)
            if parts.data is not None and block.values is not None:
                _check_tail(store, parts.data, "data", first, block.values, length)
        counter.add(store.block_stored_bytes(span.index))
    rows, nonzeros = cutter.finish()
    pointers = np.cumsum([*tails, 0])
    whole = np.array_equal(rows, parts.block_rows) and np.array_equal(nonzeros, parts.block_nonzeros)
    if not whole or (parts.tails is not None and not np.array_equal(pointers, parts.tails.pointers)):
        raise DamageError(f"the block tables of {store.path} do not follow from its rows; {_AGAIN}")


def _check_tail(
    store: Store, array: Elements, name: str, first: int, block: npt.NDArray[Any], length: int
) -> None:
    kept = block[len(block) - length :]
    stop = first + len(block)
    stored = np.empty(length, block.dtype)
    array.read_into(stop - length, stop, stored)
    if not np.array_equal(kept, stored):
        place = f"element {stop} of {store.path / 'X' / name}"
        raise DamageError(f"the tail of the block before {place} is not what stands there; {_AGAIN}")


def _read_columns(store: Store, start: int, stop: int) -> None:
    """Read the columns of some rows that there are, which checks them as far as reading does."""
    if store.has_labels:
        store.read_labels(start, stop)
    if store.has_weight:
        store.read_weights(start, stop)
    if store.has_qid:
        store.read_qids(start, stop)


def _check_labels(store: Store, manifest: Manifest) -> None:
    """Labels, qids and weights: allowed values, and the summary of the manifest."""
    step = next(array.chunk for array in manifest.arrays if array.name in (LABEL, CODES))
    labels, label_runs, groups = label_collector(step, store.label_sets), RunCounter(), RunCounter()
    if store.label_sets:
        LabelSets.of(store.label_names or (), str(store.path))  # checks each name
    for start in range(0, store.n_rows, step):
        stop = min(start + step, store.n_rows)
        entries = store.read_labels(start, stop)
        labels.add(entries)
        label_runs.add(entries)
        if store.has_weight and (store.read_weights(start, stop) < 0).any():
            raise DamageError(f"{store.path} has negative weights after row {start}; {_AGAIN}")
        if store.has_qid:
            qids = store.read_qids(start, stop)
            if (qids < 0).any():
                raise DamageError(f"{store.path} has negative qids after row {start}; {_AGAIN}")
            groups.add(qids)
    found = (labels.summary(), label_runs.n_runs, groups.n_runs)
    if found != (manifest.labels, manifest.label_runs, manifest.qid_groups):
        raise DamageError(f"the labels of {store.path} are not those of its manifest; {_AGAIN}")


def _check_numbering(store: Store, manifest: Manifest) -> None:
    """Arrays that no computation reads."""
    expected: dict[str, int | None] = {"obs/_index": 0, "var/_index": manifest.index_base, "X/data": None}
    storage = store.parts.storage
    for listed, first, last in manifest.chunks():
        if listed.name not in manifest.unread:
            continue
        base, info = expected[listed.name], read_array(storage, listed.name)
        array = ChunkFiles(storage, info, manifest.sizes[first:last], manifest.checksums[first:last])
        for start in range(0, info.length, info.chunk):
            stop = min(start + info.chunk, info.length)
            array.announce(start, min(start + _CHUNKS_AHEAD * info.chunk, info.length))
            found = np.empty(stop - start, info.dtype)
            array.read_into(start, stop, found)
            wanted = 1 if base is None else np.arange(start, stop) + base
            if not (found == wanted).all():
                chunk = f"{storage.location}/{info.key(start // info.chunk)}"
                raise DamageError(f"the chunk {chunk} does not hold what it must; {_AGAIN}")

"""Folds: which rows are held out of training, from their numbers, labels and queries alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int64Array
from ooc_svm.data.fold_loops import draw
from ooc_svm.data.source import Source
from ooc_svm.errors import DamageError
from ooc_svm.ops.hashing import mix_keys, row_keys

_SALT = 0x9E6C63D0876A46B5  # So that rows shuffled by a seed are not held out by their new places


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A share of the rows, chosen by a hash; with `by_query` all rows of a query (of equal qid) or none."""

    share: float
    seed: int
    by_query: bool = False

    def mask(self, source: Source, start: int, stop: int) -> npt.NDArray[np.bool_]:
        """Which of the rows ``start <= i < stop`` are held out."""
        keys = np.empty(stop - start, np.uint64)
        seed = np.uint64((self.seed ^ _SALT) & (2**64 - 1))
        if self.by_query:
            mix_keys(source.read_qids(start, stop).view(np.uint64) ^ seed, keys)
        else:
            row_keys(seed, np.uint64(start), keys)
        return keys < np.uint64(self.share * 2.0**64)


@dataclass(frozen=True, slots=True, eq=False)
class Folds:
    """Every row in one of several folds, drawn with a seed.

    The rows of each stratum are shared out evenly, and the rows of all: each number of rows differs by one at
    most between two folds. Rows are taken in their order, so that nothing of the length of the data is held.

    Attributes
    ----------
    sizes : ndarray of int64, shape (strata, n_folds)
        Rows of each stratum in each fold; with `by_query` queries.
    labels : ndarray of float64, shape (strata,)
        The label of the rows of each stratum, ascending; empty where all rows are one stratum.
    seed : int
    by_query : bool
        Whether all rows of a query (of equal qid, one after another) are in the same fold.
    """

    sizes: Int64Array
    labels: Float64Array
    seed: int
    by_query: bool = False

    @classmethod
    def of_rows(cls, n_rows: int, n_folds: int, seed: int) -> Folds:
        """Of rows without strata."""
        return cls(_shared([n_rows], n_folds), np.empty(0), seed)

    @classmethod
    def of_queries(cls, n_queries: int, n_folds: int, seed: int) -> Folds:
        """Of whole queries."""
        return cls(_shared([n_queries], n_folds), np.empty(0), seed, by_query=True)

    @classmethod
    def of_labels(
        cls, counts: Mapping[float, int], classes: Sequence[Sequence[float]], n_folds: int, seed: int
    ) -> Folds:
        """Of rows by their labels, ``counts`` of each; labels of one of the ``classes`` are shared together.

        So a class has rows in every fold if it has as many as there are folds, whatever its labels have.
        """
        ordered = np.array([label for own in classes for label in own if counts[label]])
        sizes = _shared([counts[label] for label in ordered.tolist()], n_folds)
        ascending = np.argsort(ordered)
        return cls(sizes[ascending], ordered[ascending], seed)

    @property
    def n_folds(self) -> int:
        """How many there are."""
        return int(self.sizes.shape[1])

    def rows_without(self, fold: int) -> dict[float, int]:
        """Rows of each label that are not in a fold."""
        rows = self.sizes.sum(axis=1) - self.sizes[:, fold]
        return dict(zip(self.labels.tolist(), rows.tolist(), strict=True))

    def numbers(self, source: Source) -> Iterator[tuple[int, npt.NDArray[np.uint8]]]:
        """The fold of each row, block by block: the first row of the block, and the numbers from 0."""
        left, seed, n_drawn = self.sizes.copy(), np.uint64((self.seed ^ _SALT) & (2**64 - 1)), 0
        last: tuple[int, int] | None = None  # The qid of the last row, and its fold
        for span in source.blocks:
            if not self.by_query:
                strata = self._strata(source, span.start, span.stop)
                yield span.start, _drawn(strata, seed, span.start, left)
            elif span.stop > span.start:
                qids = source.read_qids(span.start, span.stop)
                begins = _begins(qids, None if last is None else last[0])
                of_queries = _drawn(np.zeros(np.count_nonzero(begins), np.int64), seed, n_drawn, left)
                n_drawn += len(of_queries)
                before = of_queries[:0] if last is None else np.array([last[1]], np.uint8)
                folds = np.concatenate([before, of_queries])[np.cumsum(begins) - (last is None)]
                last = int(qids[-1]), int(folds[-1])
                yield span.start, folds

    def _strata(self, source: Source, start: int, stop: int) -> Int64Array:
        if not len(self.labels):
            return np.zeros(stop - start, np.int64)
        labels = source.read_labels(start, stop)
        strata = np.minimum(np.searchsorted(self.labels, labels), len(self.labels) - 1).astype(np.int64)
        if not np.array_equal(self.labels[strata], labels):
            raise _other_labels()
        return strata


def count_queries(source: Source) -> int:
    """Runs of rows of equal qid."""
    n_queries, last = 0, None
    for span in source.blocks:
        if span.stop > span.start:
            qids = source.read_qids(span.start, span.stop)
            n_queries += int(np.count_nonzero(_begins(qids, last)))
            last = int(qids[-1])
    return n_queries


def _begins(qids: Int64Array, last: int | None) -> npt.NDArray[np.bool_]:
    """Which rows are the first of a query, after a row of the query ``last``."""
    begins = np.ones(len(qids), np.bool_)
    np.not_equal(qids[1:], qids[:-1], out=begins[1:])
    begins[0] = qids[0] != last
    return begins


def _drawn(strata: Int64Array, seed: np.uint64, first: int, left: Int64Array) -> npt.NDArray[np.uint8]:
    """Folds of the rows (or queries) from number ``first`` on."""
    keys, folds = np.empty(len(strata), np.uint64), np.empty(len(strata), np.uint8)
    row_keys(seed, np.uint64(first), keys)
    if draw(strata, keys, left, folds) < len(strata):
        raise _other_labels()
    return folds


def _other_labels() -> DamageError:
    return DamageError("labels or qids are not those that were counted before; verify the store")


def _shared(counts: Sequence[int], n_folds: int) -> Int64Array:
    """Each number divided among the folds; what is over goes to those that come next, in turn."""
    sizes, following = np.empty((len(counts), n_folds), np.int64), 0
    for stratum, n_rows in enumerate(counts):
        over = (np.arange(n_folds) - following) % n_folds < n_rows % n_folds
        sizes[stratum] = n_rows // n_folds + over
        following = (following + n_rows) % n_folds
    return sizes

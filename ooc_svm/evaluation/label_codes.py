"""Labels of rows, translated to the classes of a model by their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ooc_svm.data.blocks import Float64Array, Int64Array
from ooc_svm.data.classes import label_name
from ooc_svm.errors import InputError, parameter

# Number of unknown labels and of classes that a message names.
_NAMED_LABELS = 10


class LabelCodes:
    """Translates labels of rows to class numbers: positions in `texts`, the names of the classes.

    `source` names the data in messages. Labels are positions in `names`, unless it is None. `n_unknown`
    counts the rows so far whose label is of no class; they are an error, unless they are skipped.
    """

    def __init__(
        self, texts: Sequence[str], source: str, names: Sequence[str] | None, *, skip_unknown: bool = False
    ) -> None:
        self.skip_unknown = skip_unknown
        self._classes = {text: code for code, text in enumerate(texts)}
        self._source, self._names = source, names
        self._labels: Float64Array = np.empty(0)  # seen and known, ascending, and their classes
        self._codes: Int64Array = np.empty(0, np.int64)
        self._unknown: dict[str, int] = {}
        self.n_unknown = 0

    def codes(self, labels: Float64Array) -> Int64Array:
        """Class numbers of labels, -1 where there is none."""
        codes = self._find(labels)
        new = codes < 0
        if new.any():
            distinct, n_rows = np.unique(labels[new], return_counts=True)
            self._learn(dict(zip(distinct.tolist(), n_rows.tolist(), strict=True)))
            codes = self._find(labels)
        return codes

    def check(self, counts: Mapping[float, int] | None = None) -> None:
        """Raise InputError for labels of no class, among those seen or given with their rows."""
        if counts is not None:
            self._learn(counts)
        if not self.n_unknown or self.skip_unknown:
            return
        named = [f"{text!r:.80} ({_rows(rows)})" for text, rows in self._unknown.items()]
        more = self.n_unknown - sum(self._unknown.values())
        known = list(self._classes)[:_NAMED_LABELS]
        rest = len(self._classes) - len(known)
        raise InputError(
            f"{self._source}: {_rows(self.n_unknown)} with labels that the model was not trained on: "
            f"{', '.join(named)}{f' and others ({_rows(more)})' if more else ''}; it knows "
            f"{', '.join(known)}{f' and {rest} more' if rest else ''}: leave such rows out "
            f"({parameter('unlabelled', 'skip')}) or train on them"
        )

    def _find(self, labels: Float64Array) -> Int64Array:
        if not len(self._labels):
            return np.full(len(labels), -1)
        places = np.minimum(np.searchsorted(self._labels, labels), len(self._labels) - 1)
        return np.where(self._labels[places] == labels, self._codes[places], -1)

    def _learn(self, counts: Mapping[float, int]) -> None:
        """Look up new labels, and count the rows of those that are of no class."""
        found: dict[float, int] = dict(zip(self._labels.tolist(), self._codes.tolist(), strict=True))
        for label, n_rows in counts.items():
            text = label_name(label, self._names)
            if text in self._classes:
                found[label] = self._classes[text]
                continue
            self.n_unknown += n_rows
            if text in self._unknown or len(self._unknown) < _NAMED_LABELS:
                self._unknown[text] = self._unknown.get(text, 0) + n_rows
        self._labels = np.array(sorted(found))
        self._codes = np.array([found[label] for label in self._labels.tolist()], np.int64)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"

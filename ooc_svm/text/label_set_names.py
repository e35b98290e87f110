"""Labels of text that are sets: the names of the sets, numbered in the order in which they appear."""

from __future__ import annotations

from ooc_svm.data.label_sets import MAX_LABELS, MAX_SETS, SEPARATOR, SET_BYTES, labels_of, name_of
from ooc_svm.errors import InputError, MemoryBudgetError, parameter
from ooc_svm.system.memory import format_size
from ooc_svm.text.label_names import LabelNames, readable_name


class LabelSetNames(LabelNames):
    """The names of the different sets so far; tokens of the same labels in another order are one set.

    ``max_bytes`` is what names and tables may take, if there is a limit: MemoryBudgetError if they take more.
    """

    def __init__(self, max_bytes: int | None = None) -> None:
        super().__init__()
        self.max_bytes = max_bytes
        self._labels: set[str] = set()
        self._bytes = 0

    def clear(self) -> None:
        """Forget all names."""
        super().clear()
        self._labels, self._bytes = set(), 0

    def _number(self, token: bytes | str, source: str) -> int:
        if isinstance(token, str):
            name = token
        elif token:
            name = name_of(readable_name(label, source) for label in token.split(SEPARATOR.encode()))
        else:
            name = name_of(())
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self._names)
            self._names.append(name)
            self._bytes += SET_BYTES + len(name)
            self._labels.update(labels_of(name))
        return number

    def _check(self, source: str) -> None:
        if len(self._labels) > MAX_LABELS:
            raise InputError(
                f"{source}: the sets of labels have more than {MAX_LABELS} different labels; leave out those "
                "of few rows, or make data of a part of the labels"
            )
        if len(self) > MAX_SETS:
            raise self._too_many(source)
        if self.max_bytes is not None and self._bytes > self.max_bytes:
            raise MemoryBudgetError(
                f"{source}: the first {len(self)} different sets of labels take {format_size(self._bytes)}, "
                f"and {format_size(self.max_bytes)} of the memory are for them; allow more "
                f"({parameter('memory')})"
            )

    def _too_many(self, source: str) -> InputError:
        return InputError(
            f"{source}: there are more than {MAX_SETS} different sets of labels; leave out labels of few rows"
        )

"""The options of a conversion, checked, and handed on whole."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

from ooc_svm.data.limits import LARGEST_FEATURE_COUNT
from ooc_svm.errors import InputError, UsageError, parameter
from ooc_svm.options import ENGINES
from ooc_svm.parameters import (
    DTYPE,
    FEATURE_NAMES,
    FLAG,
    INDEX_BASE,
    LOCAL_PATH,
    PATH,
    SIZE,
    TEXT,
    THREADS,
    Kind,
    at_least,
    check_engine,
    checked_fields,
    choice,
    read_items,
)
from ooc_svm.system.address import AnyPath

if TYPE_CHECKING:
    from ooc_svm.data.feature_names import FeatureNames


def _read_inputs(value: Any) -> list[Any]:
    names = (
        [PATH.convert(value)]
        if isinstance(value, str | PathLike)
        else [*map(PATH.convert, read_items(value))]
    )
    if not names:
        raise ValueError
    return names


INPUTS = Kind("path or sequence of paths", "a path or a sequence of paths, at least one", _read_inputs)


def _option(kind: Kind, default: Any) -> Any:
    return field(default=default, metadata={"kind": kind})


@checked_fields
@dataclass(frozen=True)
class ConvertOptions:
    """The options that `ooc_svm.conversion.convert.convert` documents, and `durable`: plain data.

    Raises UsageError for a value that is not possible, or options that contradict each other.
    """

    output: AnyPath = field(metadata={"kind": PATH})
    index_base: int = _option(INDEX_BASE, 1)
    features: int | None = _option(at_least(1, LARGEST_FEATURE_COUNT), None)
    feature_names: FeatureNames | None = _option(FEATURE_NAMES, None)  # noqa: RUF009
    dtype: str = _option(DTYPE, "float32")
    labels: Literal["numbers", "text", "sets"] = _option(choice("numbers", "text", "sets"), "numbers")
    overwrite: bool = _option(FLAG, False)
    bad_lines: Literal["stop", "skip"] = _option(choice("stop", "skip"), "stop")
    max_bad_lines: int | None = _option(at_least(0), None)
    shuffle: int | None = _option(at_least(0, 2**64 - 1), None)
    group: bool = _option(FLAG, False)
    threads: int | None = _option(THREADS, None)
    memory: str | int | None = _option(SIZE, None)
    engine: str = _option(choice(*ENGINES), "local")
    scheduler: str | None = _option(TEXT, None)
    insecure_cluster: bool = _option(FLAG, False)
    layer: str | None = _option(TEXT, None)
    durable: bool = _option(FLAG, True)  # Whether the store is to outlive this process
    labels_file: str | PathLike[str] | None = _option(LOCAL_PATH, None)  # noqa: RUF009

    def __post_init__(self) -> None:
        if not self.output.name:
            raise UsageError(
                f"{parameter('output')} must be the path of a new folder, not {str(self.output)!r}"
            )
        if self.shuffle is not None and self.group:
            raise UsageError(
                f"{parameter('shuffle')} and {parameter('group')} are two orders of the rows: choose one"
            )
        if self.max_bad_lines is not None and self.bad_lines == "stop":
            raise UsageError(f"{parameter('max_bad_lines')} needs {parameter('bad_lines', 'skip')}: add it")
        if self.feature_names is not None:
            if self.features is not None:
                from ooc_svm.store.feature_names import check_count

                check_count(self.feature_names, self.features, f"{parameter('features', self.features)}")
            object.__setattr__(self, "features", len(self.feature_names))
        check_engine(self.engine, self.scheduler, self.insecure_cluster)
        if self.engine == "dask" and self.reorders:
            order = parameter("group" if self.group else "shuffle")
            raise UsageError(
                f"{order} needs all rows in one process: leave it out, or leave out "
                f"{parameter('engine', 'dask')}"
            )

    def check_width(self, what: str, n_columns: int) -> None:
        """Raise InputError if a matrix has more columns than there are `features`, or names."""
        if self.features is None or self.features >= n_columns:
            return
        if self.feature_names is not None:
            raise InputError(
                f"{parameter('feature_names')} has {self.features} names, and {what} has {n_columns} "
                "columns; give one name to each"
            )
        raise InputError(
            f"{what} has {n_columns} columns, but {parameter('features')} is {self.features}: give as many "
            "or more, or leave it out"
        )

    @property
    def reorders(self) -> bool:
        """Whether rows are written in another order than they are read."""
        return self.group or self.shuffle is not None

    @property
    def thread_count(self) -> int:
        """Number of threads, by default as many as processors may be used."""
        return self.threads or len(os.sched_getaffinity(0))

    @property
    def rejected(self) -> AnyPath:
        """File for the bad lines that are skipped."""
        return self.output.with_name(f"{self.output.name}.rejected")


READING = ("index_base", "features", "dtype", "labels", "bad_lines", "max_bad_lines")
"""Names of the options that say how text is read."""

CONVERT_KINDS: dict[str, Kind] = {
    name: item.metadata["kind"] for name, item in ConvertOptions.__dataclass_fields__.items()
}
"""The kinds of the options by name."""

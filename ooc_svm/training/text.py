"""Text as what is trained on: it is made into a store first, in the same process.

Blocks of the store are held as they were parsed, as many as memory allows: the first read of them is none. A
store that is not kept and whose blocks are all held is not written.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ooc_svm.errors import StorageError, UsageError, parameter
from ooc_svm.options import OPTIONS, TrainOptions
from ooc_svm.system.address import Address, AnyPath, located
from ooc_svm.system.amounts import format_seconds
from ooc_svm.system.files import exists, is_folder
from ooc_svm.system.folders import default_scratch_folder, private_folder
from ooc_svm.system.malloc import trim_freed_memory
from ooc_svm.system.memory import format_size
from ooc_svm.system.signals import ending_at_once
from ooc_svm.training.progress import Progress

if TYPE_CHECKING:
    from ooc_svm.conversion.report import ConvertReport
    from ooc_svm.store import Store

_SCRATCH = "ooc-svm-text"


class TextStore(NamedTuple):
    """The store that was made from text, and the time that the text took to be read."""

    store: Store
    reading_seconds: float

    def seconds(self) -> float:
        """The time that both took so far: where not all rows stay in memory the store is written later."""
        return self.reading_seconds + self.store.writing_seconds


@contextmanager
def stored_text(
    inputs: list[str],
    store: str | os.PathLike[str] | None,
    reading: Mapping[str, Any],
    options: TrainOptions,
    progress: Callable[[Progress], None] | None,
) -> Iterator[TextStore]:
    """Make a store of text, by those of the options of reading that are not None.

    It is kept at the path ``store``, or is gone at the end. What may spoil training is said by warnings.
    """
    from ooc_svm.conversion.formats import refuse_other_formats
    from ooc_svm.conversion.report import find_warnings

    refuse_other_formats(inputs)
    _check(store, options)
    with _place(store) as path:
        with ending_at_once():
            report, made = _convert(inputs, path, reading, options, progress, kept=store is not None)
        trim_freed_memory()
        for warning in find_warnings(report if store is not None else replace(report, rejected=None)):
            warnings.warn(warning, stacklevel=5)
        yield TextStore(made, report.seconds)


def _check(store: str | os.PathLike[str] | None, options: TrainOptions) -> None:
    """Refuse what cannot be done, before any work."""
    if options.engine == "dask":
        engine = parameter("engine", "dask")
        raise UsageError(f"{engine} reads a store; convert the text first, or leave {engine} out")
    for name, what in (("label", "column"), ("layer", "layer")):
        if getattr(options, name) is not None:
            raise UsageError(f"{parameter(name)} names a {what} of a store; text has none: leave it out")
    if options.unlabelled != OPTIONS["unlabelled"].default:
        raise UsageError(
            f"{parameter('unlabelled')} is for rows of AnnData without a label; rows of text have one: leave "
            "it out"
        )
    if options.cache is not None and not (store is not None and isinstance(located(store), Address)):
        raise UsageError(
            f"{parameter('cache')} keeps chunks of a store in a bucket; the text is made into a store on a "
            "local disk: leave it out"
        )
    if store is not None and (is_folder(store) or exists(store, follow=False)):
        raise UsageError(
            f"{os.fspath(store)} exists; train on it if it is the store of this text, or give "
            f"{parameter('store')} another name"
        )


@contextmanager
def _place(store: str | os.PathLike[str] | None) -> Iterator[AnyPath]:
    """Where the store is made; without a path, with the other scratch data of a training."""
    if store is not None:
        yield located(store)
        return
    advice = f"name another folder in TMPDIR, or keep the store of the text by {parameter('store')}"
    with private_folder(default_scratch_folder(), _SCRATCH, advice) as folder:
        try:
            yield folder / "text.zarr"
        except StorageError as error:
            if str(folder) not in str(error):
                raise
            raise StorageError(f"{error}; or {advice}") from error


def _convert(
    inputs: list[str],
    path: AnyPath,
    reading: Mapping[str, Any],
    options: TrainOptions,
    progress: Callable[[Progress], None] | None,
    *,
    kept: bool,
) -> tuple[ConvertReport, Store]:
    """Convert; a part of the progress of the training. ``kept``: whether the store is."""
    from ooc_svm.conversion.convert import convert_for_reading

    began = time.monotonic()

    def tell(kind: Literal["conversion", "note"], done: int, **details: Any) -> None:
        if progress is not None:
            event = Progress(
                kind=kind,
                passes=0,
                bytes_read=done,
                blocks_done=0,
                n_blocks=0,
                primal=None,
                dual=None,
                relative_gap=None,
                tol=options.tol,
                seconds=time.monotonic() - began,
                models_running=0,
                **details,
            )
            progress(event)

    def read(done: int, total: int | None, rows: int) -> None:
        tell("conversion", done, n_bytes=total, n_rows=rows)

    given = {name: value for name, value in reading.items() if value is not None}
    given |= {"threads": options.threads, "memory": options.memory, "durable": kept}
    # With landmarks each read computes the features of the rows again: the plan has no room for the rows.
    hold, write = options.landmarks is None, kept or _needs_id(options)
    report, made = convert_for_reading(inputs, path, read, hold=hold, write_always=write, **given)
    size, seconds = format_size(report.bytes_in), format_seconds(report.seconds)
    tell("note", report.bytes_in, message=f"converted {size} of text to {report.rows:,} rows in {seconds}")
    return report, made


def _needs_id(options: TrainOptions) -> bool:
    """Whether the run saves states or begins with one: these are known by the id of the data."""
    start = options.warm_start
    return options.checkpoint is not None or (start is not None and is_folder(start))

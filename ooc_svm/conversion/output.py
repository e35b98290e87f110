"""The store of a conversion: held while it is written, committed with its provenance, reported."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from ooc_svm.conversion.options import ConvertOptions
from ooc_svm.conversion.report import ConvertReport, Meter, make_report
from ooc_svm.errors import UsageError
from ooc_svm.store.held_store import HeldRows
from ooc_svm.store.parallel_writer import ParallelWriter
from ooc_svm.store.storage import WRITE_ADVICE
from ooc_svm.store.writer import StoreWriter
from ooc_svm.system.address import Address, AnyPath
from ooc_svm.system.files import is_same_file, put_file, remove_file, status_of, storage_errors
from ooc_svm.system.folders import Scratch
from ooc_svm.system.signals import entered
from ooc_svm.text.inputs import InputMetadata
from ooc_svm.text.reader import REJECTED, InputPath, TextCounts

# Bytes of the first line of a file that tell whether it has bad lines: the name of an input is in it.
_LONGEST_NOTE = 1 << 13

_RECORDED_OPTIONS = ("index_base", "features", "dtype", "labels", "shuffle", "group")

Writer = TypeVar("Writer", StoreWriter, HeldRows, ParallelWriter)


@contextmanager
def writing(
    kind: Callable[..., Writer], options: ConvertOptions, scratch: Scratch, threads: int
) -> Iterator[Writer]:
    """Hold the output and the scratch folder; what is not committed is removed."""
    make = partial(
        kind,
        options.output,
        dtype=options.dtype,
        index_base=options.index_base,
        n_features=options.features,
        feature_names=options.feature_names,
        named_labels=options.labels != "numbers",
        label_sets=options.labels == "sets",
        overwrite=options.overwrite,
        threads=threads,
        durable=options.durable,
    )
    errors = storage_errors("writing", options.output, WRITE_ADVICE)
    with entered(make) as writer, errors, entered(lambda: scratch):
        yield writer


def commit(
    writer: StoreWriter | HeldRows | ParallelWriter,
    options: ConvertOptions,
    counts: TextCounts,
    inputs: Sequence[InputMetadata],
    reject_file: Path | None,
    meter: Meter,
    label_names: Sequence[str] | None = None,
) -> ConvertReport:
    """Put the store, and the bad lines of `reject_file`, in their places.

    `label_names` are those of labels that are names. The manifest keeps where the rows came from; only
    `created` differs between two runs.
    """
    rejected: AnyPath | None = None
    before = None if reject_file is None else _set_aside(options.rejected, reject_file)
    try:
        if reject_file is not None:
            rejected = _publish(reject_file, options.rejected, counts.bad_lines)
        provenance = {
            "sources": [asdict(each) for each in inputs],
            "options": {name: getattr(options, name) for name in _RECORDED_OPTIONS},
            "counts": asdict(counts),
            "version": version("ooc-svm"),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        written = writer.commit(n_features=counts.n_features, provenance=provenance, label_names=label_names)
    except BaseException:
        if before is not None:
            os.replace(before, options.rejected)
        elif rejected is not None:
            remove_file(rejected)
        raise
    return make_report(written, counts, meter, rejected)


def check_rejected(target: AnyPath, inputs: Sequence[InputPath]) -> None:
    """Raise UsageError where the bad lines cannot go to their place, before anything is read."""
    status = None if isinstance(target, Address) else status_of(target, follow=False)
    if status is not None and not stat.S_ISREG(status.st_mode):
        raise UsageError(f"{target} is no regular file, but the bad lines go there: move it away")
    if any(is_same_file(name, target) for name in inputs):
        raise UsageError(f"{target} is an input, but the bad lines go there: rename it")
    if status is not None and not _is_rejected(target):
        raise UsageError(f"{target} is a file of something else, but the bad lines go there: move it away")


def _is_rejected(target: AnyPath) -> bool:
    """Whether a file has the bad lines of another run, or nothing."""
    with storage_errors("reading", target, "check permissions"), open(target, "rb") as file:
        line = file.readline(_LONGEST_NOTE)
    return not line or REJECTED.match(line) is not None


def _set_aside(target: AnyPath, reject_file: Path) -> Path | None:
    """Move the bad lines of the store that is replaced to the scratch folder; None if there are none."""
    if isinstance(target, Address) or status_of(target) is None:
        return None
    return target.rename(reject_file.with_name("rejected-before"))


def _publish(reject_file: Path, target: AnyPath, n_lines: int) -> AnyPath | None:
    """Put the bad lines next to the store that is about to be committed; None if there are none."""
    if n_lines == 0:
        remove_file(target)
        return None
    if isinstance(target, Address):
        put_file(reject_file, target)
        return target
    with open(reject_file, "rb") as file:
        os.fsync(file.fileno())
    os.replace(reject_file, target)
    return target

"""The options of a conversion, checked, and handed on whole."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ooc_svm.errors import UsageError
from ooc_svm.options import ENGINES


@dataclass(frozen=True)
class ConvertOptions:
    """The options that `ooc_svm.conversion.convert.convert` documents: plain data, for any process.

    Raises UsageError for a value that is not possible, or options that contradict each other.
    """

    output: Path
    index_base: int = 1
    features: int | None = None
    dtype: str = "float32"
    overwrite: bool = False
    bad_lines: Literal["stop", "skip"] = "stop"
    max_bad_lines: int | None = None
    shuffle: int | None = None
    group: bool = False
    threads: int | None = None
    memory: str | int | None = None
    engine: str = "local"
    scheduler: str | None = None
    insecure_cluster: bool = False

    def __post_init__(self) -> None:
        if self.shuffle is not None and not 0 <= self.shuffle < 2**64:
            raise UsageError(f"the seed of the shuffle is {self.shuffle}: from 0 to 2^64 - 1")
        if self.shuffle is not None and self.group:
            raise UsageError("--shuffle and --group are two orders of the rows: choose one")
        if self.dtype not in ("float32", "float64"):
            raise UsageError(f"dtype is {self.dtype!r:.80}: float32 or float64")
        if self.engine not in ENGINES:
            raise UsageError(f"engine {self.engine!r:.80} is not known; choose from: {', '.join(ENGINES)}")
        if self.engine != "dask" and (self.scheduler is not None or self.insecure_cluster):
            raise UsageError("a scheduler is for the engine 'dask'; choose it as well")
        if self.engine == "dask" and self.reorders:
            option = "--group" if self.group else "--shuffle"
            raise UsageError(
                f"{option} needs all rows in one process: leave it out, or leave out --engine dask"
            )
        if self.threads is not None and self.threads < 1:
            raise UsageError(f"threads is {self.threads}: at least 1")

    @property
    def reorders(self) -> bool:
        """Whether rows are written in another order than they are read."""
        return self.group or self.shuffle is not None

    @property
    def thread_count(self) -> int:
        """Number of threads, by default as many as processors may be used."""
        return self.threads or len(os.sched_getaffinity(0))

    @property
    def rejected(self) -> Path:
        """File for the bad lines that are skipped."""
        return self.output.with_name(f"{self.output.name}.rejected")

"""Conversion of AnnData files: ``.h5ad``, or a Zarr store as another program wrote it.

The result is an AnnData store as well: its X is the chosen matrix as CSR rows, and the names and the columns
of cells and genes are kept. What cannot be kept is told.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from ooc_svm.conversion.anndata_frames import FrameCopies
from ooc_svm.conversion.anndata_rows import Layout, MatrixBlocks, matrix_layout
from ooc_svm.conversion.options import ConvertOptions
from ooc_svm.conversion.plan import ConversionPlan, plan_conversion
from ooc_svm.conversion.report import ConvertReport, Progress, dropped_zeros
from ooc_svm.errors import DamageError, UsageError, parameter
from ooc_svm.store.anndata_writer import AnnDataWriter
from ooc_svm.store.label_summary import LabelSummary
from ooc_svm.store.open import has_manifest
from ooc_svm.store.storage import is_hdf5, open_storage
from ooc_svm.store.trees import Hdf5Tree, Tree, ZarrTree
from ooc_svm.system.address import AnyPath, located
from ooc_svm.system.folders import Scratch
from ooc_svm.system.signals import entered
from ooc_svm.text.inputs import require_local

_FRAMES = ("obs", "var")

_OF_TEXT = {
    "index_base": 1,
    "bad_lines": "stop",
    "shuffle": None,
    "group": False,
    "labels_file": None,
    "labels": "numbers",
    "feature_names": None,
    "features": None,
}


def convert_anndata(
    inputs: Sequence[str | os.PathLike[str]], options: ConvertOptions, progress: Progress | None
) -> ConvertReport:
    """Convert an AnnData file to a store of CSR rows; see `ooc_svm.conversion.convert.convert`."""
    if len(inputs) != 1:
        raise UsageError(
            f"{os.fspath(inputs[0])} and {len(inputs) - 1} more: AnnData is converted one file at a time"
        )
    for name, default in _OF_TEXT.items():
        if getattr(options, name) != default:
            raise UsageError(f"{parameter(name)} is not for AnnData ({os.fspath(inputs[0])}); leave it out")
    started = time.monotonic()
    with closing(_opened(located(inputs[0]))) as tree:
        _check_root(tree)
        if options.engine == "dask":
            engine = parameter("engine", "dask")
            raise UsageError(f"AnnData is converted in this process; leave {engine} out")
        layout = matrix_layout(tree, options.layer)
        return _Conversion(tree, layout, options, progress).run(started)


def _opened(path: AnyPath) -> Tree:
    if path.suffix == ".h5ad":
        require_local(path, "HDF5 (AnnData)")
    if isinstance(path, Path) and path.is_file() and (path.suffix == ".h5ad" or is_hdf5(path)):
        return Hdf5Tree(path)
    storage = open_storage(path)
    if has_manifest(path):
        raise UsageError(f"{path} is a store of this program; there is nothing to convert")
    return ZarrTree(storage)


def _check_root(tree: Tree) -> None:
    for name in ("", *_FRAMES):
        attributes = tree.attributes(name)
        expected = "dataframe" if name else "anndata"
        if attributes is None or attributes.get("encoding-type") != expected:
            where = f"{name} of {tree.location}" if name else tree.location
            raise DamageError(
                f"{where} is not written as AnnData 0.8 and later write it (encoding-type {expected!r}); "
                "read it and write it again with a current version of AnnData"
            )


class _Conversion:
    """One conversion."""

    def __init__(
        self, tree: Tree, layout: Layout, options: ConvertOptions, progress: Progress | None
    ) -> None:
        self._tree, self._layout, self._options, self._progress = tree, layout, options, progress

    def run(self, started: float) -> ConvertReport:
        options, layout = self._options, self._layout
        plan = self._plan()
        blocks = MatrixBlocks(self._tree, layout, options.dtype, plan.block_elements, plan.held_bytes)
        scratch = Scratch(options.output)
        make = partial(
            AnnDataWriter,
            options.output,
            options.dtype,
            overwrite=options.overwrite,
            threads=plan.write_threads,
        )
        with entered(make) as writer, entered(lambda: scratch):
            if plan.reorder_bytes:
                scratch.make()
            self._copy_rows(blocks, writer, scratch.path, plan.reorder_bytes)
            frames = FrameCopies(self._tree, writer, blocks.check_step)
            columns = frames.copy("obs", layout.n_rows)
            frames.copy("var", layout.n_features)
            n_bytes = writer.commit(layout.n_features, self._source())
        report = self._report(writer, blocks, n_bytes, started, tuple(columns))
        report.warnings.extend(self._warnings(blocks, frames.left_out))
        return report

    def _plan(self) -> ConversionPlan:
        return plan_conversion(self._options, sorts=self._layout.encoding == "csc_matrix")

    def _copy_rows(self, blocks: MatrixBlocks, writer: AnnDataWriter, scratch: Path, sort_bytes: int) -> None:
        for block in blocks.blocks(scratch, sort_bytes):
            writer.append(block)
            if self._progress is not None:
                self._progress(blocks.bytes_done, blocks.total_bytes, writer.n_rows)

    def _source(self) -> dict[str, Any]:
        """What the root says of the conversion."""
        return {
            "file": os.path.basename(self._tree.location),
            "matrix": self._layout.name,
            "version": version("ooc-svm"),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }

    def _warnings(self, blocks: MatrixBlocks, left_out: list[str]) -> list[str]:
        found = []
        if blocks.zeros:
            found.append(dropped_zeros(blocks.zeros, self._options.dtype))
        if left_out:
            more = f" and {len(left_out) - 20} more" if len(left_out) > 20 else ""
            found.append(
                f"columns of a kind that is not kept were left out: {', '.join(left_out[:20])}{more}"
            )
        return found

    def _report(
        self,
        writer: AnnDataWriter,
        blocks: MatrixBlocks,
        n_bytes: int,
        started: float,
        columns: tuple[str, ...],
    ) -> ConvertReport:
        return ConvertReport(
            path=writer.path,
            id="",
            rows=writer.n_rows,
            features=self._layout.n_features,
            nonzeros=writer.n_nonzeros,
            value_type="float64" if np.dtype(self._options.dtype).itemsize == 8 else "float32",
            labels=LabelSummary({}, np.nan, np.nan, np.nan),
            label_runs=0,
            lines=0,
            blank_lines=0,
            comment_lines=0,
            bad_lines=0,
            explicit_zeros=blocks.zeros,
            bytes_in=blocks.bytes_done,
            bytes_out=n_bytes,
            seconds=time.monotonic() - started,
            columns=columns,
        )

"""`StoreWriter`: labelled rows in, a committed store out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ooc_svm.data.blocks import LabelledRows, RowBlock
from ooc_svm.errors import shown
from ooc_svm.parameters import ARRAY, JSON, PATH, TEXT, Complaint, Kind, checks, read_items
from ooc_svm.store.manifest import StoreMetadata
from ooc_svm.store.matrix_rows import refuse_own, rows_of_matrix
from ooc_svm.store.options import N_FEATURES, StoreOptions
from ooc_svm.store.row_writer import RowWriter
from ooc_svm.system.address import AnyPath


def _read_rows(labelled: Any) -> Any:
    """A matrix as it is, or LabelledRows whose arrays have the types that compiled functions expect."""
    if not isinstance(labelled, LabelledRows):
        return labelled
    if not isinstance(labelled.rows, RowBlock):
        raise TypeError
    rows = labelled.rows
    arrays = [("rows.indptr", rows.indptr, "int64"), ("rows.indices", rows.indices, "int32")]
    arrays += [("rows.values", rows.values, "float32 float64")] if rows.values is not None else []
    arrays += [("labels", labelled.labels, "float64")]
    arrays += [("qids", labelled.qids, "int64")] if labelled.qids is not None else []
    for name, array, types in arrays:
        _check_array(f"has {name}", array, types)
    if not len(rows.indptr):
        raise Complaint("has rows.indptr without entries; there is one more than rows")
    return labelled


def _read_weights(weights: Any) -> Any:
    _check_array("is", weights, "float64")
    return weights


def _check_array(subject: str, array: Any, types: str) -> None:
    if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.name not in types.split():
        allowed = types.replace(" ", " or ")
        raise Complaint(f"{subject} {shown(array)}; a 1-d array of {allowed} is needed")


ROWS = Kind("matrix", "a matrix of rows, or LabelledRows with a RowBlock", _read_rows)


def _read_label_names(names: Any) -> list[str]:
    found = [TEXT.convert(name) for name in read_items(names)]
    if not found or len(set(found)) != len(found):
        raise ValueError
    return found


LABEL_NAMES = Kind("sequence of str", "a sequence of different names", _read_label_names)
WEIGHTS = Kind("ndarray of float64", "a 1-d array of float64", _read_weights)


class StoreWriter:
    """Writes a store; it appears at its path complete, by `commit`, or not at all.

    Use it as a context manager: leaving without `commit` removes everything. That holds after a crash of the
    machine as well if the store is ``durable``. Memory is bounded by a few chunks whatever is written. The
    bytes of a store follow from the rows and the options alone: not from how the rows were passed in nor
    from the number of threads.

    Parameters
    ----------
    path : path
        Where the store will be; its parent folder must exist.
    **options
        The fields of `ooc_svm.store.options.StoreOptions`: ``dtype``, ``index_base``, ``n_features``,
        ``overwrite``, ``threads``, ``durable``, ``provenance``, the sizes of chunks and blocks, and these:

        ``feature_names`` : the names of the columns, a sequence of str or a file with one on each line. By
        default those of data frames that are appended, unless ``n_features`` is given.

        ``named_labels`` : whether the labels of the rows are places, from 0, in the ``label_names`` that
        `commit` is given: the names of classes.

        ``label_sets`` : whether they are places of sets of labels, whose names in ``label_names`` have commas
        between the labels: ``"1,3"``, and ``","`` for none.

    Raises
    ------
    UsageError
        A value that is not possible, or the path exists and may not be replaced.
    StorageError
        Another run is writing there, or the folder cannot be written.

    Examples
    --------
    >>> import numpy as np
    >>> import ooc_svm
    >>> rng = np.random.default_rng(0)
    >>> with ooc_svm.StoreWriter("parts.zarr", named_labels=True) as writer:
    ...     for part in range(3):  # as they come
    ...         matrix = rng.standard_normal((100, 5))
    ...         writer.append(matrix, matrix[:, 0] > 0)
    ...     written = writer.commit(label_names=["low", "high"])
    >>> written.n_rows, ooc_svm.open_store("parts.zarr").label_names
    (300, ('high', 'low'))
    """

    @checks(StoreOptions, path=PATH)
    def __init__(self, path: str | os.PathLike[str], **options: Any) -> None:
        self._options = StoreOptions(**options)
        self._writer = RowWriter(path, self._options)

    @property
    def path(self) -> AnyPath:
        """Where the store will be."""
        return self._writer.path

    @property
    def n_rows(self) -> int:
        """Rows appended so far."""
        return self._writer.facts.n_rows

    @property
    def n_nonzeros(self) -> int:
        """Elements of the rows appended so far."""
        return self._writer.facts.n_nonzeros

    @checks(matrix=ROWS, labels=ARRAY, qid=ARRAY, weight=ARRAY)
    def append(self, matrix: Any, labels: Any = None, *, qid: Any = None, weight: Any = None) -> None:
        """Append rows: all of them, or none where an error is raised.

        Parameters
        ----------
        matrix : matrix of shape (n_rows, n_columns)
            Any number of rows, as `ooc_svm.convert_matrix` takes them but for AnnData: a sparse matrix or
            array of SciPy in any format, or what NumPy makes a 2-d array of real numbers of. Explicit zeros
            are dropped, duplicates summed, the arrays copied. The store has the columns of the widest matrix,
            unless it was given their number or names; the columns of all data frames have the same names. (Or
            rows as the package has them itself, ``LabelledRows`` with their labels and qids; their weights
            are an array of float64.)
        labels : array_like, shape (n_rows,), optional
            Numbers; 0 without them.
        qid : array_like of int, shape (n_rows,), optional
            Groups, not negative; given for all rows of a store or for none.
        weight : array_like of float, shape (n_rows,), optional
            Weights of the rows, not negative; given for all rows of a store or for none.

        Raises
        ------
        UsageError
            Labels or qids that are given with rows that have them.
        InputError
            A matrix that is none, values beyond the range of ``dtype``, more columns than the store has or
            other names of them, rows that break the rules of a block, or a label, qid or weight that is no
            finite number.
        StorageError
            Writing failed.
        """
        facts = self._writer.facts
        if isinstance(matrix, LabelledRows):
            refuse_own(labels=labels, qid=qid)
            labelled, weights = matrix, None if weight is None else WEIGHTS.read("weight", weight)
        else:
            given = rows_of_matrix(matrix, labels, qid, weight, self._options.dtype)
            labelled, weights = given.labelled, given.weights
            facts.check_features(given.n_columns, given.names)
        if labelled.rows.n_rows:
            self._writer.append(labelled, facts.check(labelled, weights), weights)
        if not isinstance(matrix, LabelledRows):
            facts.add_features(given.n_columns, given.names)

    @checks(n_features=N_FEATURES, provenance=JSON, label_names=LABEL_NAMES)
    def commit(
        self,
        *,
        n_features: int | None = None,
        provenance: dict[str, Any] | None = None,
        label_names: Sequence[str] | None = None,
    ) -> StoreMetadata:
        """Write what is left, the manifest last, and put the store in its place.

        Parameters
        ----------
        n_features : int, optional
            Least number of columns, for a writer that was not given their number or names.
        provenance : dict, optional
            Added to what the writer was given.
        label_names : sequence of str, optional
            For a writer with ``named_labels``, which needs them: the names that the labels are places of.

        Returns
        -------
        StoreMetadata
            What is known of the store, as of one that is opened.

        Raises
        ------
        InputError
            There are no rows.
        StorageError
            Writing failed; nothing is left behind.
        """
        return self._writer.commit(n_features, provenance, label_names)

    def close(self) -> None:
        """Release everything; what was not committed is removed."""
        self._writer.close()

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

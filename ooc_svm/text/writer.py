"""Rows to SVMlight text that `ooc_svm.text.svmlight.parse_lines` reads back as they were."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int64Array, LabelledRows, Values
from ooc_svm.errors import InputError
from ooc_svm.ops.compiled import compiled
from ooc_svm.text.decimals import ZERO, shortest_decimal
from ooc_svm.text.simd import ONE, TEN, ByteArray

_LF, _SPACE, _COLON, _MINUS, _POINT, _DIGIT_ZERO, _EXPONENT = (ord(character) for character in "\n :-.0e")
_QID = np.frombuffer(b" qid:", np.uint8).copy()
# Bytes of the longest decimal and of the longest integer.
_LONGEST_DECIMAL, _LONGEST_INTEGER = 25, 20
# Digits before the point of what has no exponent. More of them, and labels would be whole numbers that are
# refused, since float64 does not tell all of them apart.
_LARGEST_POINT, _SMALLEST_POINT = 15, -4


@compiled
def _put_integer(out: ByteArray, p: int, number: np.uint64) -> int:
    """Write digits; the position after them."""
    end = p + 1
    rest = number // TEN
    while rest > ZERO:
        rest //= TEN
        end += 1
    for i in range(end - 1, p - 1, -1):
        out[i] = np.uint8(48) + np.uint8(number % TEN)
        number //= TEN
    return end


@compiled
def _put_bytes(out: ByteArray, p: int, text: ByteArray) -> int:
    for i in range(len(text)):
        out[p + i] = text[i]
    return p + len(text)


@compiled
def _put_decimal(out: ByteArray, p: int, value: float, single: bool) -> int:
    """Write a finite number with the fewest digits that read back as the same one; the position after it."""
    if value < 0:
        out[p] = _MINUS
        p += 1
        value = -value
    if value == 0:
        return int(_put_integer(out, p, ZERO))
    mantissa, exponent = shortest_decimal(value, single)
    start, p = p, _put_integer(out, p, mantissa)
    point = p - start + exponent  # digits before the decimal point
    if exponent >= 0 and point <= _LARGEST_POINT:
        out[p : p + exponent] = _DIGIT_ZERO
        return int(p + exponent)
    if _SMALLEST_POINT <= point <= 0:
        shift = 2 - point
        for i in range(p - 1, start - 1, -1):
            out[i + shift] = out[i]
        out[start : start + shift] = _DIGIT_ZERO
        out[start + 1] = _POINT
        return int(p + shift)
    n_whole = point if 0 < point <= _LARGEST_POINT else 1
    if p - start > n_whole:
        for i in range(p - 1, start + n_whole - 1, -1):
            out[i + 1] = out[i]
        out[start + n_whole] = _POINT
        p += 1
    if n_whole == point:
        return int(p)
    out[p] = _EXPONENT
    p += 1
    if point < 1:
        out[p] = _MINUS
        p += 1
    return int(_put_integer(out, p, np.uint64(abs(point - 1))))


@compiled
def _put_rows(
    out: ByteArray,
    labels: Float64Array,
    qids: Int64Array,
    indptr: Int64Array,
    indices: npt.NDArray[np.uint32],
    values: Values,
    single: bool,
) -> int:
    """Write rows (`qids` or `values` empty: there are none, all are 1); the number of bytes written."""
    p = 0
    for row in range(len(labels)):
        p = _put_decimal(out, p, labels[row], False)
        if len(qids) > 0:
            p = _put_bytes(out, p, _QID)
            p = _put_integer(out, p, np.uint64(qids[row]))
        for k in range(indptr[row], indptr[row + 1]):
            out[p] = _SPACE
            p = _put_integer(out, p + 1, np.uint64(indices[k]) + ONE)
            out[p] = _COLON
            p = _put_decimal(out, p + 1, np.float64(values[k]) if len(values) > 0 else 1.0, single)
        out[p] = _LF
        p += 1
    return p


def format_rows(block: LabelledRows) -> bytes:
    """Rows as SVMlight text: every number with the fewest digits that read back as the same number.

    The first column is 1. A label or value that is not finite is an InputError.
    """
    rows = block.rows
    values = np.empty(0, np.float32) if rows.values is None else rows.values
    if not (np.isfinite(values).all() and np.isfinite(block.labels).all()):
        raise InputError(
            "labels and values written as SVMlight text must be finite: drop the rows that are not"
        )
    n_features, n_rows = len(rows.indices), rows.n_rows
    longest_row = _LONGEST_DECIMAL + len(_QID) + _LONGEST_INTEGER + 1
    out = np.empty(n_features * (_LONGEST_INTEGER + 2 + _LONGEST_DECIMAL) + n_rows * longest_row, np.uint8)
    n_bytes = _put_rows(
        out,
        block.labels,
        np.empty(0, np.int64) if block.qids is None else block.qids,
        rows.indptr,
        rows.indices.view(np.uint32),
        values,
        values.dtype == np.float32,
    )
    return out[:n_bytes].tobytes()

"""SVMlight text to rows.

A line is ``label [qid:number] (index:value)* [# comment]``; blanks and tabs separate, a line feed with or
without a carriage return before it ends the line. Labels may be names, or sets ``label,label,...``, of which
the empty one is a blank at the start of the line; a ``#`` right after one is an error and begins no comment.
`parse_lines` is a compiled state machine over whole lines: it fills arrays and stops before the first line
that breaks a rule, with this line's row taken back.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ooc_svm.data.blocks import Float64Array, Int32Array, Int64Array, Values
from ooc_svm.data.limits import INEXACT
from ooc_svm.ops.compiled import compiled, inlined
from ooc_svm.ops.intrinsics import count_trailing_zeros
from ooc_svm.text.decimals import MALFORMED, OK, ZERO, read_decimal, short_decimal
from ooc_svm.text.label_loops import LONGEST_NAME, LONGEST_SET, TOKEN_LENGTHS
from ooc_svm.text.simd import (
    EIGHT,
    ONE,
    TEN,
    ByteArray,
    join_digits,
    load_digits,
    mask_other_than_digits,
    mask_separators,
)

# What `parse_lines` answers. Codes above FULL name the rule that a line breaks.
DONE, FULL = 0, 1
BAD_LABEL, LABEL_TOO_LARGE = 2, 3
BAD_QID, QID_MISSING, QID_UNEXPECTED = 4, 5, 6
BAD_FEATURE, INDEX_ZERO, INDEX_TOO_LARGE, INDEX_REPEATED, INDEX_UNSORTED = 7, 8, 9, 10, 11
BAD_VALUE, VALUE_TOO_LARGE, BAD_BYTE = 12, 13, 14
BAD_NAME, NAME_TOO_LONG = 15, 16
BAD_SET, EMPTY_LABEL, SET_TOO_LONG = 17, 18, 19
LABEL_INEXACT = 20

# Entries of the state that `parse_lines` takes and leaves.
POSITION, ROWS, NONZEROS, LINES, BLANK_LINES, COMMENT_LINES, EXPLICIT_ZEROS = 0, 1, 2, 3, 4, 5, 6
N_FEATURES, OTHER_THAN_ONE, QID_RULE, ERROR_OFFSET, LABEL_KIND, N_STATE = 7, 8, 9, 10, 11, 12

# LABEL_KIND: what the labels are, numbers, names of classes, or sets of labels with commas between them.
NUMBERS, NAMES, SETS = 0, 1, 2

# QID_RULE: not known before the first row, then what every row has to keep.
QID_UNKNOWN, QID_ON_ALL, QID_ON_NONE = 0, 1, 2

LARGEST_ID = 2**31 - 2
_LARGEST_QID = np.uint64(2**63 - 1)
_LAST_SAFE_QID = np.uint64((2**63 - 1) // 10)
_LARGEST_LONG_INDEX = np.uint64(10**12)
_PLUS, _MINUS, _POINT, _ONE = (ord(character) for character in "+-.1")
_ASCII_ZERO = np.uint64(ord("0"))
_LONGEST_FRACTION, _LONGEST_WHOLE, _63 = (np.uint64(k) for k in (16, 7, 63))
_NUL, _TAB, _LF, _VT, _FF, _CR, _SPACE, _HASH, _COMMA, _COLON = 0, 9, 10, 11, 12, 13, 32, 35, 44, 58


@dataclass
class RowArrays:
    """Arrays that `parse_lines` fills, and its state."""

    labels: Float64Array
    qids: Int64Array
    indptr: Int64Array
    indices: Int32Array
    values: Values
    state: Int64Array = field(default_factory=lambda: np.zeros(N_STATE, np.int64))

    @classmethod
    def for_text(cls, n_bytes: int, dtype: npt.DTypeLike) -> RowArrays:
        """Room for all features that fit in `n_bytes` of text, and for rows of 16 bytes and more."""
        max_rows = n_bytes // 16 + 1
        max_nonzeros = n_bytes // 4 + 1  # the shortest feature: "1:1 "
        return cls(
            labels=np.empty(max_rows),
            qids=np.empty(max_rows, np.int64),
            indptr=np.empty(max_rows + 1, np.int64),
            indices=np.empty(max_nonzeros, np.int32),
            values=np.empty(max_nonzeros, dtype),
        )

    def clear(self, position: int, qid_rule: int, label_kind: int = NUMBERS) -> None:
        """Forget all rows; the next parse starts at `position`."""
        self.state[:] = 0
        self.state[POSITION] = position
        self.state[QID_RULE] = qid_rule
        self.state[LABEL_KIND] = label_kind


@inlined
def _skip_blanks(buffer: ByteArray, p: np.uint64) -> np.uint64:
    while buffer[p] == _SPACE or buffer[p] == _TAB:
        p += ONE
    return p


@inlined
def _ends_token(buffer: ByteArray, p: np.uint64) -> bool:
    """Can a token end before this byte: blank, tab, end of line, comment?"""
    byte = buffer[p]
    if byte in (_SPACE, _LF, _TAB, _HASH):
        return True
    return bool(byte == _CR and buffer[p + ONE] == _LF)


@inlined
def _is_digit(byte: np.uint8) -> bool:
    return bool(48 <= byte <= 57)


@compiled
def _end_of_line(buffer: ByteArray, p: np.uint64) -> tuple[bool, np.uint64]:
    """From the end of the last token: (is all well, position after the line feed or of the bad byte)."""
    if buffer[p] == _HASH:
        while True:
            byte = buffer[p]
            if byte < 14:
                if byte == _LF or (byte == _CR and buffer[p + ONE] == _LF):
                    break
                if byte in (_CR, _VT, _FF, _NUL):
                    return False, p
            p += ONE
    if buffer[p] == _CR:
        p += ONE
    return True, p + ONE


@compiled
def _read_qid(buffer: ByteArray, p: np.uint64) -> tuple[bool, np.uint64, np.uint64]:
    """Digits after ``qid:``: (is it a number below 2^63, the number, end)."""
    start = p
    qid = ZERO
    fits = True
    while 48 <= buffer[p] <= 57:
        digit = np.uint64(buffer[p] - 48)
        if qid > _LAST_SAFE_QID or qid * TEN + digit > _LARGEST_QID:
            fits = False
        else:
            qid = qid * TEN + digit
        p += ONE
    return bool(fits and p > start and _ends_token(buffer, p)), qid, p


@compiled
def _read_index(buffer: ByteArray, p: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Digits before a colon, cut at a number that is too large anyway: (index, end)."""
    index = ZERO
    while 48 <= buffer[p] <= 57:
        if index < _LARGEST_LONG_INDEX:
            index = index * TEN + np.uint64(buffer[p] - 48)
        p += ONE
    return index, p


@compiled
def _index_error(index: np.uint64, width: np.uint64, largest: np.uint64) -> int:
    """Why an index is refused, counted from 1; `width` is the one before it in the row."""
    if index == ZERO:
        return INDEX_ZERO
    if index > largest:
        return INDEX_TOO_LARGE
    return INDEX_REPEATED if index == width else INDEX_UNSORTED


@compiled
def _read_any_feature(buffer: ByteArray, p: np.uint64) -> tuple[int, np.uint64, float, np.uint64]:
    """A feature of any shape that starts with a digit: (code, index, value, end)."""
    index, p = _read_index(buffer, p)
    if buffer[p] != _COLON:
        return BAD_FEATURE, index, 0.0, p
    status, value, p = read_decimal(buffer, p + ONE)
    if status == MALFORMED or not _ends_token(buffer, p):
        return BAD_VALUE, index, value, p
    # What else is wrong is said of the index first.
    return DONE, index, value if status == OK else np.inf, p


@compiled
def _bad_end(buffer: ByteArray, p: np.uint64) -> tuple[int, np.uint64]:
    """Which rule is broken by a byte that starts no feature: (code, start of its token)."""
    token = p
    while buffer[token - ONE] != _SPACE and buffer[token - ONE] != _TAB:
        token -= ONE
    return BAD_FEATURE if token == p else BAD_VALUE, token


@inlined
def _read_short(
    buffer: ByteArray, token: np.uint64, start: np.uint64, others: np.uint64, end: np.uint64, plain: bool
) -> tuple[bool, float]:
    """The value from ``token + start`` to ``token + end``: (is it digits, point and minus at most, value).

    ``others`` has the bytes from the token on that are no digits, the first of them the colon. Of a token
    that is not ``plain`` up to there, nothing is read.
    """
    negative = np.uint64(buffer[token + start] == _MINUS)
    others &= (others - ONE) & ~(negative << (start & _63))
    start += negative
    whole_end = count_trailing_zeros(others)
    point = np.uint64(buffer[token + whole_end] == _POINT)
    n_fraction = (count_trailing_zeros(others & (others - ONE)) - whole_end - ONE) * point
    plain = (
        plain
        and whole_end - start - ONE < _LONGEST_WHOLE
        and n_fraction <= _LONGEST_FRACTION
        and whole_end + point + n_fraction == end
    )
    if not plain:
        return False, 0.0
    whole = np.uint64(buffer[token + start]) - _ASCII_ZERO
    if whole_end - start > ONE:
        whole = join_digits(load_digits(buffer, token + start), whole_end - start)
    digits = token + whole_end + ONE
    first, second = load_digits(buffer, digits), load_digits(buffer, digits + EIGHT)
    exact, value = short_decimal(whole, n_fraction, first, second, negative)
    return exact, value


@compiled
def _read_features(
    buffer: ByteArray,
    p: np.uint64,
    base: np.uint64,
    largest: np.uint64,
    indices: npt.NDArray[np.uint32],
    values: Values,
    n: np.uint64,
) -> tuple[int, np.uint64, np.uint64, np.uint64, np.uint64, bool]:
    """Features of a line, from the end of a token to the end of the line or a comment.

    Returns (code, position of the end or of the bad token, nonzeros so far, explicit zeros of the row, 1 more
    than the largest id, is a value other than 1).
    """
    width = n_zeros = ZERO
    other_than_one = False
    while True:
        # Where the parts of the token end, if it is index:value of digits, a point and a minus at most. The
        # end of the token follows from nothing else: the processor begins the next one before this is done.
        token = p + ONE
        separator = count_trailing_zeros(mask_separators(buffer, token))
        others = mask_other_than_digits(buffer, token)
        n_index = count_trailing_zeros(others)
        start = n_index + ONE
        blank = buffer[p] == _SPACE or buffer[p] == _TAB
        index, value, end = ZERO, 1.0, token + separator
        plain = (
            separator == start + ONE
            and buffer[token + start] == _ONE
            and buffer[token + n_index] == _COLON
            and n_index - ONE < EIGHT
            and blank
        )
        if not plain:
            plain = blank and n_index - ONE < EIGHT and buffer[token + n_index] == _COLON
            plain, value = _read_short(buffer, token, start, others, separator, plain)
        if plain:
            index = join_digits(load_digits(buffer, token), n_index)
        if not plain:
            p = token = _skip_blanks(buffer, p)
            if not _is_digit(buffer[p]):
                code = DONE
                if not _ends_token(buffer, p):
                    code, p = _bad_end(buffer, p)
                return code, p, n, n_zeros, width, other_than_one
            code, index, value, end = _read_any_feature(buffer, token)
            if code != DONE:
                return code, token, n, n_zeros, width, other_than_one
        index += ONE - base
        if index <= width or index > largest:
            return _index_error(index, width, largest), token, n, n_zeros, width, other_than_one
        width = index
        indices[n] = index - ONE
        values[n] = value
        if not plain and np.isinf(values[n]):
            return VALUE_TOO_LARGE, token, n, n_zeros, width, other_than_one
        p = end
        if values[n] == 0:
            n_zeros += ONE
        else:
            other_than_one |= values[n] != 1
            n += ONE


@compiled
def _read_name(buffer: ByteArray, p: np.uint64) -> tuple[int, np.uint64, float]:
    """The name of a class: (code, end, its token packed: see `ooc_svm.text.label_loops`)."""
    start = p
    while not _ends_token(buffer, p):
        if buffer[p] in (_NUL, _VT, _FF, _CR, _COLON):
            return BAD_NAME, p, 0.0
        p += ONE
    if buffer[p] == _HASH:  # part of a name such as C#: what follows must not be lost as a comment
        return BAD_NAME, p, 0.0
    length = p - start
    return NAME_TOO_LONG if length > LONGEST_NAME else DONE, p, float(start * TOKEN_LENGTHS + length)


@compiled
def _read_set(buffer: ByteArray, p: np.uint64, line: np.uint64) -> tuple[int, np.uint64, float]:
    """A set of labels, with commas between them, of the row that begins at `line`.

    (code, end, its token packed). The empty set ends where the line begins, before a blank.
    """
    if p > line:
        return DONE, line, float(line * TOKEN_LENGTHS)
    start = member = p
    while True:
        byte = buffer[p]
        ended = _ends_token(buffer, p)
        if ended or byte == _COMMA:
            if p == member:
                return EMPTY_LABEL, p, 0.0
            if p - member > LONGEST_NAME:
                return NAME_TOO_LONG, p, 0.0
            if ended:
                break
            member = p + ONE
        elif byte in (_NUL, _VT, _FF, _CR, _COLON):
            return BAD_SET, p, 0.0
        p += ONE
    if buffer[p] == _HASH:  # as in a name
        return BAD_SET, p, 0.0
    length = p - start
    return SET_TOO_LONG if length > LONGEST_SET else DONE, p, float(start * TOKEN_LENGTHS + length)


@compiled
def _read_number(buffer: ByteArray, p: np.uint64) -> tuple[int, np.uint64, float]:
    """A label that is a number: (code, end, label)."""
    status, label, end = read_decimal(buffer, p)
    if status == MALFORMED or not _ends_token(buffer, end):
        return BAD_LABEL, end, label
    if abs(label) >= INEXACT and _is_whole(buffer, p, end):
        return LABEL_INEXACT, end, label
    return DONE if status == OK else LABEL_TOO_LARGE, end, label


@compiled
def _is_whole(buffer: ByteArray, p: np.uint64, end: np.uint64) -> bool:
    """Is the number from `p` to `end` a sign, if any, and digits?"""
    p += ONE if buffer[p] == _MINUS or buffer[p] == _PLUS else ZERO
    while p < end and _is_digit(buffer[p]):
        p += ONE
    return bool(p == end)


@compiled
def _read_head(
    buffer: ByteArray, p: np.uint64, line: np.uint64, rule: int, kind: int
) -> tuple[int, np.uint64, float, np.uint64, int]:
    """Label and group of a line, from its first token on.

    (code, end or position of the bad token, label, qid, rule).
    """
    if kind == SETS:
        code, end, label = _read_set(buffer, p, line)
    elif kind == NAMES:
        code, end, label = _read_name(buffer, p)
    else:
        code, end, label = _read_number(buffer, p)
    if code != DONE:
        return code, p, label, ZERO, rule
    p = _skip_blanks(buffer, end)
    if buffer[p] == ord("q") and buffer[p + ONE] == ord("i"):
        fits, qid, end = False, ZERO, p
        if buffer[p + np.uint64(2)] == ord("d") and buffer[p + np.uint64(3)] == _COLON:
            fits, qid, end = _read_qid(buffer, p + np.uint64(4))
        if not fits:
            return BAD_QID, p, label, qid, rule
        if rule == QID_ON_NONE:
            return QID_UNEXPECTED, p, label, qid, rule
        return DONE, end, label, qid, QID_ON_ALL
    if rule == QID_ON_ALL:
        return QID_MISSING, p, label, ZERO, rule
    return DONE, end, label, ZERO, QID_ON_NONE


@inlined
def _head(
    buffer: ByteArray, p: np.uint64, line: np.uint64, rule: int, kind: int
) -> tuple[int, np.uint64, float, np.uint64, int]:
    """What `_read_head` gives, without a call where a label of a few digits stands before a feature."""
    negative = buffer[p] == _MINUS
    start = p + (ONE if negative or buffer[p] == _PLUS else ZERO)
    n_digits = count_trailing_zeros(mask_other_than_digits(buffer, start))
    end = start + n_digits
    if (
        kind == NUMBERS
        and rule != QID_ON_ALL
        and n_digits - ONE < EIGHT
        and buffer[end] == _SPACE
        and _is_digit(buffer[end + ONE])
    ):
        label = np.float64(np.int64(join_digits(load_digits(buffer, start), n_digits)))
        return DONE, end, -label if negative else label, ZERO, QID_ON_NONE
    code, end, label, qid, rule = _read_head(buffer, p, line, rule, kind)
    return code, end, label, qid, rule


@inlined
def _line_end(buffer: ByteArray, p: np.uint64) -> tuple[bool, np.uint64]:
    """What `_end_of_line` gives, without a call where the line ends at once."""
    if buffer[p] == _LF:
        return True, p + ONE
    well, p = _end_of_line(buffer, p)
    return well, p


@compiled
def parse_lines(
    buffer: ByteArray,
    stop: int,
    index_base: int,
    most_features: int,
    labels: Float64Array,
    qids: Int64Array,
    indptr: Int64Array,
    indices: npt.NDArray[np.uint32],
    values: Values,
    state: Int64Array,
) -> int:
    """Parse whole lines until the text ends, the arrays are full, or a line breaks a rule.

    Returns DONE, FULL or the code of the rule. The text goes from ``state[POSITION]`` to `stop`; the last
    byte before `stop` is a line feed, and ``decimals.PADDING`` bytes follow it. An index beyond
    `most_features` columns breaks a rule. The arrays are those of `RowArrays` (`indices` seen as uint32),
    with room for a value for every 4 bytes of text. The state says where to go on and what was counted so
    far; it holds the same afterwards. At a bad line ``state[POSITION]`` is the start of this line, which is
    not counted, and ``state[ERROR_OFFSET]`` the start of the bad token. Where ``state[LABEL_KIND]`` is not
    NUMBERS, the labels are tokens, packed as in `ooc_svm.text.label_loops`.
    """
    p = np.uint64(state[POSITION])
    end = np.uint64(stop)
    base = np.uint64(index_base)
    largest = np.uint64(most_features)
    n = np.uint64(state[NONZEROS])
    indptr[0] = 0
    code = DONE
    while p < end:
        line = p
        p = _skip_blanks(buffer, p)
        first = buffer[p]
        if not _ends_token(buffer, p):
            row = state[ROWS]
            if row == len(labels):
                code, p = FULL, line
                break
            code, p, label, qid, rule = _head(buffer, p, line, state[QID_RULE], state[LABEL_KIND])
            kept, n_zeros, width, other_than_one = n, ZERO, ZERO, False
            if code == DONE:
                code, p, kept, n_zeros, width, other_than_one = _read_features(
                    buffer, p, base, largest, indices, values, n
                )
        if code == DONE:
            well, p = _line_end(buffer, p)
            code = DONE if well else BAD_BYTE
        if code != DONE:
            state[ERROR_OFFSET] = p
            p = line
            break
        state[LINES] += 1
        if first == _HASH:
            state[COMMENT_LINES] += 1
        elif first <= _CR:
            state[BLANK_LINES] += 1
        else:
            labels[row] = label
            qids[row] = qid
            state[EXPLICIT_ZEROS] += np.int64(n_zeros)
            n = kept
            indptr[row + 1] = n
            state[ROWS] += 1
            state[QID_RULE] = rule
            state[N_FEATURES] = max(state[N_FEATURES], np.int64(width))
            state[OTHER_THAN_ONE] |= other_than_one
    state[POSITION] = p
    state[NONZEROS] = n
    return code

"""The grammar of SVMlight text once more, in plain, slow Python: the oracle of the parser's tests."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

NUMBER = re.compile(rb"([+-]?)(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))(?:[eE]([+-]?)([0-9]+))?")
WHOLE = re.compile(rb"[+-]?[0-9]+")
FORBIDDEN = re.compile(rb"[\x00\x0b\x0c\r]")
DIGITS = {byte: k for k, byte in enumerate(b"0123456789")}


@dataclass
class Row:
    label: float
    qid: int | None
    ids: list[int]
    values: list[float]


@dataclass
class Verdict:
    """Rows, and where bad lines are wrong: (line, column), both from 1."""

    rows: list[Row] = field(default_factory=list)
    n_features: int = 0
    errors: list[tuple[int, int]] = field(default_factory=list)


class BadToken(Exception):
    def __init__(self, column: int) -> None:
        self.column = column


def whole_number(digits: bytes) -> int:
    number = 0
    for byte in digits:
        number = number * 10 + DIGITS[byte]
    return number


def decimal(token: bytes) -> float | None:
    """The nearest float64 of a token; None if it is not a number or beyond the range."""
    match = NUMBER.fullmatch(token)
    if match is None:
        return None
    sign, whole, fraction, bare, exponent_sign, exponent_digits = (part or b"" for part in match.groups())
    fraction += bare
    digits = (whole + fraction).lstrip(b"0")
    exponent = whole_number(exponent_digits) * (-1 if exponent_sign == b"-" else 1) - len(fraction)
    if not digits or len(digits) + exponent < -400:
        magnitude = 0.0
    elif len(digits) + exponent > 400:
        return None
    else:
        exact = Fraction(whole_number(digits)) * Fraction(10) ** exponent
        try:
            magnitude = exact.numerator / exact.denominator  # of integers: correctly rounded
        except OverflowError:
            return None
    return -magnitude if sign == b"-" else magnitude


def parse(
    text: bytes, index_base: int = 1, dtype: str = "float32", *, skip: bool = False, features: int = 2**31 - 1
) -> Verdict:
    """Rows of a text as far as its first bad line, or those of all other lines."""
    verdict = Verdict()
    with_qid: bool | None = None
    lines = text.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines, 1):
        try:
            row, n_features = parse_line(line.removesuffix(b"\r"), with_qid, index_base, dtype, features)
        except BadToken as bad:
            verdict.errors.append((number, bad.column))
            if skip:
                continue
            break
        if row is not None:
            verdict.rows.append(row)
            verdict.n_features = max(verdict.n_features, n_features)
            with_qid = row.qid is not None
    return verdict


def parse_line(
    line: bytes, with_qid: bool | None, index_base: int, dtype: str, features: int
) -> tuple[Row | None, int]:
    """The row of a line, None for a blank or comment line, and the columns it names."""
    body, _, comment = line.partition(b"#")
    tokens = [(match.start() + 1, match[0]) for match in re.finditer(rb"[^ \t]+", body)]
    row, n_features = None, 0
    if tokens:
        (column, token), *tokens = tokens
        label = decimal(token)
        if label is None or (WHOLE.fullmatch(token) and whole_number(token.lstrip(b"+-")) >= 2**53):
            raise BadToken(column)
        qid, tokens = parse_qid(tokens, with_qid, len(body) + 1)
        row = Row(label, qid, [], [])
        n_features = parse_features(tokens, row, index_base, dtype, features)
    bad = FORBIDDEN.search(comment)
    if bad:
        raise BadToken(len(body) + 1 + bad.start() + 1)
    return row, n_features


def parse_qid(
    tokens: list[tuple[int, bytes]], with_qid: bool | None, end: int
) -> tuple[int | None, list[tuple[int, bytes]]]:
    column, token = tokens[0] if tokens else (end, b"")
    if not token.startswith(b"qi"):
        if with_qid is True:
            raise BadToken(column)
        return None, tokens
    if not re.fullmatch(rb"qid:[0-9]+", token) or whole_number(token[4:]) >= 2**63 or with_qid is False:
        raise BadToken(column)
    return whole_number(token[4:]), tokens[1:]


def parse_features(
    tokens: list[tuple[int, bytes]], row: Row, index_base: int, dtype: str, features: int
) -> int:
    last = -1
    for column, token in tokens:
        index, colon, number = token.partition(b":")
        value = decimal(number)
        if not re.fullmatch(rb"[0-9]+", index) or not colon or value is None:
            raise BadToken(column)
        if dtype == "float32":
            with np.errstate(over="ignore"):
                value = float(np.float32(value))
        id_ = whole_number(index) - index_base
        if not last < id_ < features or np.isinf(value):
            raise BadToken(column)
        last = id_
        if value != 0:
            row.ids.append(id_)
            row.values.append(value)
    return last + 1

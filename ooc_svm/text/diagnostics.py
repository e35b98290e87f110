"""What is wrong with a line of SVMlight text, in words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ooc_svm.data.limits import INEXACT
from ooc_svm.errors import parameter, parameter_spelling
from ooc_svm.text import svmlight as codes
from ooc_svm.text.decimals import OK, parse_decimal
from ooc_svm.text.label_loops import LONGEST_NAME, LONGEST_SET
from ooc_svm.text.label_names import is_readable
from ooc_svm.text.svmlight import LARGEST_ID

_NUL, _VT, _FF, _CR = 0, 11, 12, 13
_NUMBER = rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_TOKEN_END = re.compile(rb"[ \t#]|\r?\Z")
_LABEL = re.compile(rb"(?:[^ \t\r]|\r(?!\Z))*")
_CONTROL_NAMES = {
    _NUL: "a NUL byte",
    _VT: "a vertical tab",
    _FF: "a form feed",
    _CR: "a lone carriage return",
}
_CONTROL_HINTS = {
    _NUL: "this looks like UTF-16 or a binary file; SVMlight text is ASCII",
    _CR: "end lines with a line feed",
}


@dataclass(frozen=True)
class FeatureLimit:
    """How many features rows may have: as many as can be stored, as an option says, or as have names."""

    count: int = LARGEST_ID + 1
    named: bool = False

    def explain(self, index_base: int) -> str:
        """Why there are no more, and what to do."""
        if self.named:
            return f"{parameter('feature_names')} has {self.count} names; give one name to each feature"
        largest = f"the largest is {self.count - 1 + index_base}"
        if self.count > LARGEST_ID:
            return largest
        return f"{largest} ({parameter('features', self.count)}); give more, or leave it out"


NO_LIMIT = FeatureLimit()


def show(token: bytes) -> str:
    """A token from a file for a message: its repr, cut at 80 bytes."""
    return repr(token)[1:] if len(token) <= 80 else repr(token[:80])[1:] + "..."


def token_at(line: bytes, offset: int) -> bytes:
    """The token that starts at an offset of a line without its line feed: a byte at least, if one is left."""
    end = _TOKEN_END.search(line, offset)
    return line[offset : end.start() if end else len(line)] or line[offset : offset + 1]


def label_at(line: bytes, offset: int) -> bytes:
    """What stands in place of a label that is a name or a set: only a blank ends it, not a comment."""
    found = _LABEL.match(line, offset)
    return found.group() if found else b""


def explain(code: int, token: bytes, index_base: int, dtype: str, limit: FeatureLimit) -> str:
    """What rule a token breaks, and what to do: one clause without a full stop.

    `code` is from `parse_lines`, and `token` from `token_at` or, for BAD_NAME and BAD_SET, `label_at`.
    """
    control = next((byte for byte in token if byte in _CONTROL_NAMES), None)
    if control is not None and code != codes.VALUE_TOO_LARGE:
        hint = _CONTROL_HINTS.get(control, "separate with blanks or tabs")
        return f"{_CONTROL_NAMES[control]} in {show(token)}: {hint}"
    if code == codes.BAD_LABEL:
        return _explain_label(token)
    if code == codes.BAD_NAME:
        return _explain_name(token, "the name of a class, without a colon")
    if code == codes.BAD_SET:
        wrong = next((name for name in token.split(b",") if _is_no_name(name)), token)
        return _explain_name(
            wrong, "labels, commas between them and no blanks, and a row without labels with a blank"
        )
    if code == codes.BAD_FEATURE:
        return _explain_feature(token)
    if code == codes.BAD_VALUE:
        return _explain_value(token)
    number = show(token)
    index = show(token.split(b":")[0])
    return {
        codes.NAME_TOO_LONG: f"label {number} is longer than {LONGEST_NAME} bytes: shorten the name",
        codes.EMPTY_LABEL: f"labels {number} have nothing before, after or between commas: write commas "
        "between labels only",
        codes.SET_TOO_LONG: f"the labels of the row are longer than {LONGEST_SET} bytes: shorten the names",
        codes.LABEL_TOO_LARGE: f"label {number} is beyond the range of float64: scale the labels",
        codes.LABEL_INEXACT: f"label {number} is a whole number of {INEXACT:,} or more, where float64 does "
        "not tell them apart: "
        + _advice("labels", "text", "give smaller ones, or read them as names ({})", "give smaller ones"),
        codes.BAD_QID: f"{number} is not a group: write qid: and digits, less than 2^63",
        codes.QID_MISSING: "no qid on this row, but on the rows before it: give all rows a qid or none",
        codes.QID_UNEXPECTED: f"{number}, but the rows before it have no qid: give all rows a qid or none",
        codes.INDEX_ZERO: f"index 0 in {number}, but indices start at {index_base}: "
        f"if 0 is the first column here, use {parameter('index_base', 0)}",
        codes.INDEX_TOO_LARGE: f"index {index} is too large: {limit.explain(index_base)}",
        codes.INDEX_REPEATED: f"index {index} twice in a row: keep one of them",
        codes.INDEX_UNSORTED: f"index {index} after a larger one: sort the indices of every row",
        codes.VALUE_TOO_LARGE: f"the value of {number} is beyond the range of {dtype}: "
        + (
            _advice("dtype", "float64", "use {}", "scale the values")
            if _fits_float64(token)
            else "scale the values"
        ),
    }[code]


def _advice(name: str, value: Any, advice: str, otherwise: str) -> str:
    """Advice to give an option, or other advice where the command that runs does not have it."""
    spelling = parameter_spelling()
    return (
        otherwise if spelling is not None and name not in spelling else advice.format(parameter(name, value))
    )


def _fits_float64(token: bytes) -> bool:
    return parse_decimal(token.partition(b":")[2])[0] == OK


def _explain_label(token: bytes) -> str:
    label = f"label {show(token)}"
    if re.fullmatch(rb"[0-9]+:.*", token, re.DOTALL):
        return f"{show(token)} stands where the label should be: begin rows with a label, without a weight"
    if re.fullmatch(_NUMBER + rb":.*", token, re.DOTALL):
        return f"{label} seems to carry a weight: write the label alone"
    if re.fullmatch(_NUMBER + rb"(?:,(?:" + _NUMBER + rb")?)+", token):
        one = "write one label a row, with a decimal point"
        advice = _advice("labels", "sets", f"{one}, or give {{}} for sets of labels", one)
        return f"{label} is a list or has a decimal comma: {advice}"
    numbers = "write class names as numbers"
    names = _advice("labels", "text", f"{numbers}, or read them as names ({{}})", numbers)
    return f"{label} {_not_a_number(token, names)}"


def _is_no_name(name: bytes) -> bool:
    return b":" in name or b"#" in name or not is_readable(name)


def _explain_name(name: bytes, beginning: str) -> str:
    """Why a label is no name; `beginning` is what rows should begin with."""
    label = f"label {show(name)}"
    mark = re.search(rb"[:#]", name)
    if mark is None:
        return f"{label} is no name of printable characters in UTF-8; rename it"
    if mark.group() == b":":
        return f"{label} has a colon: begin rows with {beginning}"
    return f"{label} has a '#', and names have no '#': rename it, or put a blank before a comment"


def _explain_feature(token: bytes) -> str:
    if token.startswith(b"qid:"):
        return f"{show(token)} after the features, or twice: write qid once, right after the label"
    index, colon, _ = token.partition(b":")
    if not colon:
        return f"{show(token)} is not a feature: write index:value"
    if not index:
        return f"{show(token)} has no index: write index:value without blanks"
    return f"index {show(index)} is not a whole number written in digits"


def _explain_value(token: bytes) -> str:
    value = token.partition(b":")[2]
    if not value:
        return f"{show(token)} has no value: write index:value without blanks"
    if b":" in value:
        return f"{show(token)} has two colons: separate features with blanks"
    return f"value {show(value)} of {show(token)} {_not_a_number(value, 'write digits with a decimal point')}"


def _not_a_number(token: bytes, otherwise: str) -> str:
    if re.fullmatch(rb"[+-]?(?:nan(?:\(.*\))?|inf|infinity)", token, re.IGNORECASE):
        return "is not finite: drop the row or write a number"
    if re.match(rb"[+-]?0[xX]", token):
        return "is hexadecimal: write it in decimal"
    if re.fullmatch(_NUMBER.replace(rb"\.", rb",", 2), token):
        return "has a decimal comma: write a decimal point"
    if any(byte > 126 for byte in token):
        return "has bytes outside ASCII: write ASCII digits"
    return f"is not a number: {otherwise}"

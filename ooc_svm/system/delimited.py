"""Lines of delimited text: CSV, and with tabs TSV."""

from __future__ import annotations

from collections.abc import Iterable


def quoted(field: str, delimiter: str) -> str:
    """A field as it stands in a line: in quotes where it has the delimiter, quotes or line breaks in it.

    The `csv` module leaves a carriage return without quotes, and other programs take it for the end.
    """
    if any(character in field for character in (delimiter, '"', "\n", "\r")):
        return '"' + field.replace('"', '""') + '"'
    return field


def line(fields: Iterable[object], delimiter: str = ",") -> str:
    """A line with its end."""
    return delimiter.join(quoted(str(field), delimiter) for field in fields) + "\n"

"""Numbers and small tables for people."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import ROUND_CEILING, Context
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ooc_svm.store import LabelSummary


def short(number: float | None) -> str:
    """A number with two digits and an exponent: ``3.4e-3``; a dash where there is none."""
    if number is None or not math.isfinite(number):
        return "-"
    mantissa, exponent = f"{number:.1e}".split("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"


def bound(number: float | None) -> str:
    """An upper bound with two digits, rounded up, so that none looks smaller than it is."""
    if number is None or not math.isfinite(number):
        return "-"
    # The shortest decimal of the number: 1e-3 is a little more than a thousandth, and is not 1.1e-3.
    rounded = Context(prec=2, rounding=ROUND_CEILING).create_decimal(repr(float(number)))
    return short(float(rounded))


def objective(number: float | None, digits: int = 6) -> str:
    """A value of an objective; a dash where there is none."""
    return "-" if number is None or not math.isfinite(number) else f"{number:.{digits}g}"


def count(number: int, noun: str) -> str:
    """A number with its noun: ``1 pass``, ``1,234 rows``."""
    plural = noun + ("es" if noun.endswith("ss") else "s")
    return f"{number:,} {noun if number == 1 else plural}"


def printable(text: str) -> str:
    """Text with the characters escaped that control a terminal; names of files and labels may hold them."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def shortened(items: Sequence[str], most: int = 20) -> str:
    """Items with blanks between them; those beyond the first ``most`` are only counted."""
    more = f"   and {len(items) - most:,} more" if len(items) > most else ""
    return "   ".join(items[:most]) + more


def block(facts: Iterable[tuple[str, str]]) -> str:
    """Names and their texts in two aligned columns, one pair a line."""
    pairs = [(name, printable(value)) for name, value in facts]
    width = max(len(name) for name, _ in pairs) + 2
    return "\n".join(f"{name:<{width}}{value}".rstrip() for name, value in pairs)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns aligned to the right, two blanks between them."""
    lines = [[printable(cell) for cell in line] for line in (head, *rows)]
    widths = [max(len(line[k]) for line in lines) for k in range(len(head))]
    return "\n".join(
        "  ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def describe_labels(summary: LabelSummary, names: Sequence[str] | None, sets: bool) -> str:
    """Labels (names, where label k is ``names[k]``) with their numbers of rows, or the range of values.

    Labels that are not all whole are values: they cannot be classes.

    Names of ``sets`` of labels give the rows with each label.
    """
    from ooc_svm.data.classes import label_name
    from ooc_svm.data.label_sets import LabelSets

    if sets:
        own = LabelSets.of(names or (), "the store")
        rows = own.rows(summary.counts or {}).tolist()
        listed = shortened([f"{name}: {n:,}" for name, n in zip(own.labels, rows, strict=True)])
        mean = sum(rows) / max(sum((summary.counts or {}).values()), 1)
        found = f"{count(len(own.labels), 'label')} in {count(len(own.names), 'set')}, {mean:.3g} a row"
        return f"{found}: {listed}" if rows else found

    values = f"{summary.minimum:g} to {summary.maximum:g}, mean {summary.mean:g}"
    if summary.counts is None:
        return values
    if not all(map(float.is_integer, summary.counts)):  # no classes
        return f"{values}, {count(len(summary.counts), 'different value')}"
    named = (label_name(label, names) for label in summary.counts)
    counted = [f"{name}: {rows:,}" for name, rows in zip(named, summary.counts.values(), strict=True)]
    return shortened(counted) if counted else "none"


def describe_values(value_type: str) -> str:
    """The type of the stored values."""
    return "all 1" if value_type == "ones" else value_type

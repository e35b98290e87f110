"""Reliability diagrams: how often rows have the class that a calibrated model gives a probability to.

The bins are in the report of a run: those of the scores that the probabilities were fitted to, of rows that
the models were trained without. Several functions (classes, labels) of a model are put together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ooc_svm.cli.format import table
from ooc_svm.cli.report import chosen_functions
from ooc_svm.cli.runs import named_reports, number_of
from ooc_svm.errors import InputError, parameter

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Reliability of probabilities"
HEAD = ("run", "from", "to", "rows", "probability", "share of the class")
ERRORS = 2.0  # Standard errors of a share that a bar shows on either side


@dataclass(frozen=True, slots=True)
class Bin:
    """Rows whose probability lies in a range, by weight; their mean probability, the share of the class."""

    low: float
    high: float
    rows: float
    probability: float
    share: float

    @property
    def error(self) -> float:
        """The standard error of the share, were the probability right."""
        p = min(max(self.probability, 0.0), 1.0)
        return math.sqrt(p * (1.0 - p) / self.rows)


@dataclass(frozen=True, slots=True)
class Curve:
    """The bins of a run that have rows, ascending."""

    name: str
    bins: Sequence[Bin]


def read_curves(paths: Sequence[str]) -> list[Curve]:
    """The curves of some reports, of the C that predicts; InputError for a run that was not calibrated."""
    named = zip(paths, named_reports(paths), strict=True)
    return [Curve(name, _bins(path, facts)) for path, (name, facts) in named]


def _bins(path: str, facts: Mapping[str, Any]) -> list[Bin]:
    calibration = facts.get("calibration")
    if not isinstance(calibration, dict):
        raise InputError(
            f"{path} has no calibration to show; make a report of a run with {parameter('calibrate')}"
        )
    sums: dict[tuple[float, float], list[float]] = {}
    try:
        for function in chosen_functions(facts):
            for each in function["bins"]:
                low, high, rows, p, share = (
                    number_of(each, name) for name in ("low", "high", "rows", "probability", "share")
                )
                known = sums.setdefault((low, high), [0.0, 0.0, 0.0])
                for place, part in enumerate((rows, rows * p, rows * share)):
                    known[place] += part
        return [Bin(*ends, n, p / n, hits / n) for ends, (n, p, hits) in sorted(sums.items())]
    except (AttributeError, LookupError, TypeError, ValueError, ZeroDivisionError) as error:
        raise InputError(f"the calibration in {path} is malformed; make the report again") from error


def table_rows(curves: Sequence[Curve]) -> list[tuple[str, ...]]:
    """A line for each bin."""
    return [
        (
            *(curve.name, f"{each.low:g}", f"{each.high:g}", f"{each.rows:,.6g}"),
            *(f"{each.probability:.4f}", f"{each.share:.4f}"),
        )
        for curve in curves
        for each in curve.bins
    ]


def curves_table(curves: Sequence[Curve]) -> str:
    """The table for people."""
    return table(HEAD, table_rows(curves))


def draw_curves(curves: Sequence[Curve]) -> Figure:
    """The share of the class against the probability, and below how many rows have such probabilities."""
    from matplotlib.figure import Figure

    from ooc_svm.cli.pictures import COLOURS, LINES, literal

    figure = Figure(figsize=(5.4, 7.0), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    upper.plot([0, 1], [0, 1], color="#555555", linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    for number, curve in enumerate(curves):
        colour = COLOURS[number % len(COLOURS)]
        x = [each.probability for each in curve.bins]
        upper.errorbar(
            x, [each.share for each in curve.bins], [ERRORS * each.error for each in curve.bins],
            color=colour, linestyle=LINES[number // len(COLOURS) % len(LINES)], linewidth=1.6, marker="o",
            markersize=3.5, elinewidth=0.8, label=literal(curve.name),
        )  # fmt: skip
        lows, widths = [each.low for each in curve.bins], [each.high - each.low for each in curve.bins]
        heights = [each.rows for each in curve.bins]
        lower.bar(lows, heights, widths, align="edge", color=(colour, 0.2), edgecolor=colour)
    upper.set(ylabel="share of the class", ylim=(-0.03, 1.03), xlim=(-0.03, 1.03))
    lower.set(ylabel="rows", xlabel="probability of the class", yscale="log")
    for place in (upper, lower):
        place.grid(True, which="major", color="#e5e5e5", linewidth=0.8)
        place.set_axisbelow(True)
        place.spines[["top", "right"]].set_visible(False)
    figure.legend(*upper.get_legend_handles_labels(), loc="outside lower center", frameon=False)
    return figure

"""Pictures of the experiments: panels with a logarithmic horizontal axis, as SVG of a few kilobytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

WIDTH, HEIGHT = 250, 200  # Of the field of a panel, in pixels
LEFT, TOP, RIGHT, BOTTOM = 62, 30, 18, 46  # Around it
LEGEND_HEIGHT, LEGEND_WIDTH = 26, 150  # Of the names of the curves, and of one of them
MARGIN = 0.04  # Free share of an axis at each of its ends
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
MARKERS = (
    "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z",
    "M-3-3h6v6h-6z",
    "M0-4L4 3H-4z",
    "M0-4L4 0L0 4L-4 0z",
    "M0 4L4-3H-4z",
    "M-3-1h2v-2h2v2h2v2h-2v2h-2v-2h-2z",
)
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
Curve = tuple[Sequence[float], Sequence[float | None]]


@dataclass(frozen=True)
class Panel:
    """One diagram: curves by name, and a straight line of a power for comparison."""

    title: str
    x_label: str
    y_label: str
    curves: Mapping[str, Curve]
    power: float | None = None  # A dashed line of this slope, which the horizontal axis names
    linear: bool = False  # The vertical axis is linear

    def points(self, name: str) -> list[tuple[float, float]]:
        """The points of a curve that are known."""
        return [(x, y) for x, y in zip(*self.curves[name], strict=True) if y is not None]


@dataclass(frozen=True)
class Axis:
    """From values to pixels, and the values that have a label."""

    place: Callable[[float], float]
    ticks: list[tuple[float, str]]


def draw(path: Path, panels: Sequence[Panel], columns: int = 3) -> None:
    """Write panels to an SVG file; the same name has the same colour and marker in all of them."""
    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    columns = min(columns, len(panels))
    full = (LEFT + WIDTH + RIGHT, TOP + HEIGHT + BOTTOM)
    across = max(1, columns * full[0] // LEGEND_WIDTH)
    width = columns * full[0]
    body = math.ceil(len(panels) / columns) * full[1]
    height = body + math.ceil(len(names) / across) * LEGEND_HEIGHT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
        ' font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for number, panel in enumerate(panels):
        row, column = divmod(number, columns)
        lines.append(f'<g transform="translate({column * full[0] + LEFT} {row * full[1] + TOP})">')
        lines += [*_panel(panel, names), "</g>"]
    for number, name in enumerate(names):
        row, column = divmod(number, across)
        lines.append(
            f'<g transform="translate({column * LEGEND_WIDTH + 20} {body + row * LEGEND_HEIGHT + 10})">'
        )
        lines.append(f'<path d="M-10 0H10" {_stroke(number)}/>{_marker(number, 0.0, 0.0)}')
        lines += [f'<text x="16" y="4">{escape(name)}</text>', "</g>"]
    path.write_text("\n".join([*lines, "</svg>", ""]))


def _panel(panel: Panel, names: Sequence[str]) -> list[str]:
    """The lines of a panel, whose field begins at 0, 0."""
    points = [point for name in panel.curves for point in panel.points(name)]
    below = panel.x_label if panel.power is None else f"{panel.x_label}   (dashed: slope {panel.power:g})"
    lines = [f'<rect width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#888"/>']
    lines.append(
        f'<text x="{WIDTH / 2}" y="-10" text-anchor="middle" font-weight="bold">{escape(panel.title)}</text>'
    )
    lines.append(f'<text x="{WIDTH / 2}" y="{HEIGHT + 38}" text-anchor="middle">{escape(below)}</text>')
    side = f'transform="translate(-46 {HEIGHT / 2}) rotate(-90)" text-anchor="middle"'
    lines.append(f"<text {side}>{escape(panel.y_label)}</text>")
    if not points:
        return lines
    x_axis = _logarithmic([x for x, _ in points], 0.0, WIDTH)
    scale = _linear if panel.linear else _logarithmic
    y_axis = scale([y for _, y in points], HEIGHT, 0.0)
    for value, label in x_axis.ticks:
        x = f"{x_axis.place(value):.1f}"
        lines.append(f'<path d="M{x} 0V{HEIGHT}" stroke="#ddd"/>')
        lines.append(f'<text x="{x}" y="{HEIGHT + 17}" text-anchor="middle">{label}</text>')
    for value, label in y_axis.ticks:
        y = y_axis.place(value)
        lines.append(f'<path d="M0 {y:.1f}H{WIDTH}" stroke="#ddd"/>')
        lines.append(f'<text x="-6" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    if panel.power is not None:
        lines.append(_power_line(points, panel.power, x_axis, y_axis))
    for name in panel.curves:
        number = names.index(name)
        places = [(x_axis.place(x), y_axis.place(y)) for x, y in panel.points(name)]
        if places:
            track = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
            lines.append(f'<path d="M{track}" {_stroke(number)}/>')
            lines += [_marker(number, x, y) for x, y in places]
    return lines


def _logarithmic(values: Sequence[float], start: float, end: float) -> Axis:
    """An axis with labels at powers of ten; also at twice and five times those where there are few."""
    low, high = math.log10(min(values)), math.log10(max(values))
    low, high = (low, high) if high > low else (low - 0.5, high + 0.5)
    place = _between(low, high, start, end)
    first, last = math.floor(low), math.ceil(high)
    factors = (1, 2, 5) if high - low < 2.0 else (1,)
    step = math.ceil((last - first) / 7)
    marks = [factor * 10.0**k for k in range(first, last + 1, step) for factor in factors]
    inside = [mark for mark in marks if 0.0 <= (place(math.log10(mark)) - start) / (end - start) <= 1.0]
    return Axis(lambda value: place(math.log10(value)), [(mark, _power_label(mark)) for mark in inside])


def _power_label(value: float) -> str:
    """A number, far from 1 as a power of ten."""
    exponent = round(math.log10(value))
    if -4 < exponent < 4 or value != 10.0**exponent:
        return f"{value:g}"
    return "10" + str(exponent).translate(RAISED)


def _linear(values: Sequence[float], start: float, end: float) -> Axis:
    """An axis with labels at about five round values."""
    low, high = min(values), max(values)
    low, high = (low, high) if high > low else (low - 1.0, high + 1.0)
    rough = (high - low) / 5
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * unit for factor in (1, 2, 5, 10) if factor * unit >= rough)
    place = _between(low, high, start, end)
    counts = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return Axis(place, [(k * step, f"{k * step:g}") for k in counts])


def _between(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """Linear, with a margin at each end."""
    margin = MARGIN * (high - low)
    low, high = low - margin, high + margin
    return lambda value: start + (value - low) / (high - low) * (end - start)


def _power_line(points: Sequence[tuple[float, float]], power: float, x_axis: Axis, y_axis: Axis) -> str:
    """A dashed line of the given slope through the middle of all points, as far as the field reaches."""
    x_middle, y_middle = (sum(map(math.log, values)) / len(points) for values in zip(*points, strict=True))
    lows, highs = ([math.log(end(values)) for values in zip(*points, strict=True)] for end in (min, max))
    reach = [(lows[1] - y_middle) / power, (highs[1] - y_middle) / power] if power else [-math.inf, math.inf]
    ends = [max(lows[0], x_middle + min(reach)), min(highs[0], x_middle + max(reach))]
    places = [
        (x_axis.place(math.exp(x)), y_axis.place(math.exp(y_middle + power * (x - x_middle)))) for x in ends
    ]
    (x0, y0), (x1, y1) = places
    return f'<path d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}" stroke="#555" stroke-dasharray="4 3"/>'


def _stroke(number: int) -> str:
    return f'fill="none" stroke="{COLOURS[number % len(COLOURS)]}" stroke-width="1.3"'


def _marker(number: int, x: float, y: float) -> str:
    colour = COLOURS[number % len(COLOURS)]
    shape = MARKERS[number % len(MARKERS)]
    return f'<path transform="translate({x:.1f} {y:.1f})" d="{shape}" fill="{colour}"/>'

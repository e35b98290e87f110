"""Pictures of the experiments: a row of panels with logarithmic axes, as SVG with text as text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot
from matplotlib.axes import Axes

PANEL_WIDTH, PANEL_HEIGHT = 3.2, 3.0  # Inches
MARKERS = "os^Dv*XP"
Curve = tuple[Sequence[float], Sequence[float | None]]


@dataclass(frozen=True)
class Panel:
    """One diagram: curves by name, and a straight line of a power for comparison."""

    title: str
    x_label: str
    y_label: str
    curves: Mapping[str, Curve]
    power: float | None = None  # A dotted line of this slope
    linear: bool = False  # The vertical axis is linear


def draw(path: Path, panels: Sequence[Panel], columns: int = 3) -> None:
    """Write panels to an SVG file; the same name has the same colour and marker in all of them."""
    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    columns = min(columns, len(panels))
    rows = math.ceil(len(panels) / columns)
    fixed = {"svg.fonttype": "none", "svg.hashsalt": path.name, "font.size": 8}
    with mpl.rc_context(fixed):
        size = (columns * PANEL_WIDTH, rows * PANEL_HEIGHT + 0.5)
        figure, grid = pyplot.subplots(rows, columns, figsize=size, squeeze=False)
        for axes in grid.flat[len(panels) :]:
            axes.set_axis_off()
        for axes, panel in zip(grid.flat, panels, strict=False):
            _draw_panel(axes, panel, names)
        styles = [pyplot.Line2D([], [], **_style(number)) for number in range(len(names))]
        figure.legend(styles, names, loc="lower center", ncols=min(len(names), 6), frameon=False)
        figure.tight_layout(rect=(0.0, 0.4 / size[1], 1.0, 1.0))
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)


def _draw_panel(axes: Axes, panel: Panel, names: Sequence[str]) -> None:
    axes.set_xscale("log")
    if not panel.linear:
        axes.set_yscale("log")
    for name, (x, y) in panel.curves.items():
        values = [math.nan if value is None else value for value in y]
        axes.plot(x, values, **_style(names.index(name)))
    if panel.power is not None:
        _draw_power(axes, panel)
    axes.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
    axes.minorticks_off()
    axes.grid(color="#dddddd", linewidth=0.5)


def _draw_power(axes: Axes, panel: Panel) -> None:
    """A dotted line of the given slope through the middle of the curves."""
    points = [
        (math.log(x), math.log(y))
        for xs, ys in panel.curves.values()
        for x, y in zip(xs, ys, strict=True)
        if y is not None and y > 0.0
    ]
    if not points:
        return
    middle = [sum(values) / len(points) for values in zip(*points, strict=True)]
    ends = [min(x for x, _ in points), max(x for x, _ in points)]
    heights = [math.exp(middle[1] + panel.power * (x - middle[0])) for x in ends]
    axes.plot([math.exp(x) for x in ends], heights, ":", color="#555555", linewidth=1.0)
    axes.annotate(
        f"slope {panel.power:g}", (math.exp(ends[1]), heights[1]), ha="right", va="bottom", color="#555555"
    )


def _style(number: int) -> dict[str, object]:
    return {
        "color": f"C{number}",
        "marker": MARKERS[number % len(MARKERS)],
        "markersize": 3.5,
        "linewidth": 1.0,
    }

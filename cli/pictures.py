"""Pictures in files, and that of runs: the gap against reads, bytes and seconds. Matplotlib is an extra."""

from __future__ import annotations

import html
import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from ooc_svm.cli.format import short
from ooc_svm.cli.paths import check_file_target
from ooc_svm.cli.runs import RunReport
from ooc_svm.errors import UsageError, parameter

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# What a file of each kind begins with.
STARTS = {".png": b"\x89PNG", ".svg": b"<?xml", ".html": b"<!DOCTYPE html>"}

# Colours that people who are colour-blind can tell apart (Okabe and Ito), and lines once they are used up.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINES = ("-", "--", ":", "-.")
MOST_MARKED = 40  # Passes of a run up to which each has a mark
# Factor between the shortest and the longest run from which their lengths are drawn on a log scale.
LOG_FROM = 15.0
MOST_BESIDE = 60  # Characters of names of which two stand next to each other in the legend
UNITS = {"TB": 10**12, "GB": 10**9, "MB": 10**6, "kB": 10**3, "bytes": 1}

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font-family: sans-serif; margin: 2em; color: #222; }}
svg {{ max-width: 100%; height: auto; }}
table {{ border-collapse: collapse; }}
th, td {{ padding: 0.3em 0.8em; text-align: right; border-bottom: 1px solid #ddd; }}
th:first-child, td:first-child {{ text-align: left; }}
</style>
</head>
<body>
{picture}
<table>
{rows}
</table>
</body>
</html>
"""


@dataclass(frozen=True, slots=True)
class Picture:
    """What a picture shows; a page has the table as well."""

    title: str
    draw: Callable[[], Figure]
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def check_picture_target(path: str) -> None:
    """Refuse, before any work, a path where no picture can be written or another file would be lost.

    UsageError if the ending is of no kind of picture, Matplotlib is missing, or the path is a folder, lies in
    a store or is a file that is no picture of this kind. StorageError if nothing can be written there.
    """
    start = STARTS.get(_ending(path))
    if start is None:
        raise UsageError(f"{parameter('output')} must end with .png, .svg or .html, not {path!r:.82}")
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        raise UsageError(
            "pictures are drawn by Matplotlib, which is missing: pip install 'ooc-svm[plot]', or leave "
            f"{parameter('output')} out for a table"
        ) from None
    check_file_target(path, _ending(path)[1:], start)


def write_picture(picture: Picture, path: str) -> None:
    """Draw a picture and write it atomically; the same numbers give the same bytes."""
    from ooc_svm.system.files import atomic_write

    content = _content(picture, _ending(path))

    def write(file: BinaryIO) -> None:
        file.write(content)

    atomic_write(path, write)


def _ending(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def _content(picture: Picture, ending: str) -> bytes:
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "ooc-svm", "font.size": 10, "axes.unicode_minus": False}):
        kind = "png" if ending == ".png" else "svg"
        metadata = {"Software": None} if kind == "png" else {"Date": None}
        picture.draw().savefig(buffer, format=kind, dpi=150, metadata=metadata)
    if ending != ".html":
        return buffer.getvalue()
    drawing = buffer.getvalue().decode()
    cells = [_html_row(picture.head, "th"), *(_html_row(row, "td") for row in picture.rows)]
    drawing, rows = drawing[drawing.index("<svg") :], "\n".join(cells)
    return PAGE.format(title=picture.title, picture=drawing, rows=rows).encode()


def _html_row(cells: Sequence[str], kind: str) -> str:
    return "<tr>" + "".join(f"<{kind}>{html.escape(cell)}</{kind}>" for cell in cells) + "</tr>"


def draw(runs: Sequence[RunReport]) -> Figure:
    """The gap of each run against reads, bytes and seconds, side by side."""
    from matplotlib.figure import Figure

    largest = max((max(run.course.bytes_read, default=0) for run in runs), default=0)
    unit, size = next((unit, size) for unit, size in UNITS.items() if largest >= size or size == 1)
    panels: list[tuple[str, list[list[float]]]] = [
        ("reads of the data", [[float(number) for number in run.course.passes] for run in runs]),
        (f"{unit} read", [[number / size for number in run.course.bytes_read] for run in runs]),
        ("seconds", [list(run.course.seconds) for run in runs]),
    ]
    if not largest:  # data in memory
        del panels[1]
    columns = min(2 if max(len(run.name) for run in runs) <= MOST_BESIDE else 1, len(runs))
    height = 3.6 + 0.22 * (1 - (-len(runs) // columns))
    figure = Figure(figsize=(4.0 * len(panels), height), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for place, (label, values) in zip(axes, panels, strict=True):
        _panel(place, label, values, runs)
    axes[0].set_ylabel("relative gap, (P - D) / P")
    for tol in {run.tol for run in runs if run.tol}:
        # At the left end of the seconds nothing has been read yet.
        axes[-1].annotate(
            f"asked for {short(tol)}", (0, tol), (5, 3), xycoords=("axes fraction", "data"),
            textcoords="offset points", fontsize=8, color="#555555",
        )  # fmt: skip
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
    return figure


def _panel(place: Axes, label: str, values: Sequence[Sequence[float]], runs: Sequence[RunReport]) -> None:
    """One panel: a line for each run, and one at the gap that was asked for."""
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    for number, (run, own) in enumerate(zip(runs, values, strict=True)):
        style: dict[str, Any] = {
            "color": COLOURS[number % len(COLOURS)],
            "linestyle": LINES[number // len(COLOURS) % len(LINES)],
            "marker": "o" if len(own) <= MOST_MARKED else None,
        }
        place.plot(own, run.course.gaps, markersize=3.5, linewidth=1.6, label=literal(run.name), **style)
    for tol in {run.tol for run in runs if run.tol}:
        place.axhline(tol, color="#555555", linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    place.set_yscale("log")
    ends = [own[-1] for own in values if own and own[-1] > 0]
    starts = [own[0] for own in values if own]
    if ends and min(starts) > 0 and max(ends) > LOG_FROM * min(ends):
        place.set_xscale("log")
        place.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    else:
        place.set_xlim(left=0)
        if label.startswith("reads"):
            place.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))
    place.set_xlabel(label)
    place.grid(True, which="major", color="#e5e5e5", linewidth=0.8)
    place.set_axisbelow(True)
    place.spines[["top", "right"]].set_visible(False)


def literal(name: str) -> str:
    """A name as it is: dollars would begin a formula, and an underscore in front would hide it."""
    escaped = name.replace("$", r"\$")
    return f" {escaped}" if escaped.startswith("_") else escaped

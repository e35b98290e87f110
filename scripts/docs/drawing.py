"""A drawing of boxes on floors, with arrows to boxes on lower floors, as SVG.

All arrows to a box share one trunk through the floors between, so that none runs behind another box.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

BOX_WIDTH, TRUNK_WIDTH, BOX_HEIGHT, FLOOR_HEIGHT = 116, 14, 28, 84
SWEEPS = 20

# A floor and a name: a box where that is the floor of its name, else a point of the trunk to it.
Cell = tuple[int, str]


def drawing(floors: Sequence[Sequence[str]], arrows: Mapping[str, set[str]]) -> str:
    """The picture; floors are given lowest first."""
    home = {name: number for number, floor in enumerate(floors) for name in floor}
    links = _links(home, arrows)
    layers = [[(number, name) for name in floor] for number, floor in enumerate(floors)]
    for number, name in sorted({cell for pair in links for cell in pair}):
        if home[name] != number:
            layers[number].append((number, name))
    _order(layers, links)
    place, width = _places(layers, home)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{FLOOR_HEIGHT * len(floors)}"'
        ' font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        '<marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#556"/></marker>',
    ]
    for (above, source), (under, target) in links:
        (x1, y1), (x2, y2) = place[above, source], place[under, target]
        y1 += BOX_HEIGHT if home[source] == above else BOX_HEIGHT // 2
        y2 += 0 if home[target] == under else BOX_HEIGHT // 2
        tip = ' marker-end="url(#tip)"' if home[target] == under else ""
        middle = (y1 + y2) // 2
        path = f"M{x1} {y1}C{x1} {middle} {x2} {middle} {x2} {y2}"
        lines.append(f'<path d="{path}" fill="none" stroke="#89a"{tip}/>')
    for name, number in home.items():
        x, y = place[number, name]
        box = f'x="{x - BOX_WIDTH // 2 + 8}" y="{y}" width="{BOX_WIDTH - 16}" height="{BOX_HEIGHT}" rx="5"'
        lines.append(f'<rect {box} fill="#eef3fb" stroke="#557"/>')
        lines.append(f'<text x="{x}" y="{y + 19}" text-anchor="middle">{name}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _links(home: Mapping[str, int], arrows: Mapping[str, set[str]]) -> list[tuple[Cell, Cell]]:
    """The pieces of the arrows from one floor to the next lower one, each once."""
    found = set()
    for source, targets in arrows.items():
        for target in targets:
            above = (home[source], source)
            for number in range(home[source] - 1, home[target] - 1, -1):
                found.add((above, (number, target)))
                above = (number, target)
    return sorted(found)


def _order(layers: list[list[Cell]], links: Sequence[tuple[Cell, Cell]]) -> None:
    """Sort each floor by the mean place of its neighbours above and below, again and again."""
    near: dict[Cell, list[Cell]] = defaultdict(list)
    for above, under in links:
        near[above].append(under)
        near[under].append(above)
    for sweep in range(SWEEPS):
        place = {cell: (2 * i + 1) / len(layer) for layer in layers for i, cell in enumerate(layer)}
        for layer in layers if sweep % 2 else reversed(layers):
            mean = {
                cell: sum(place[other] for other in near[cell]) / len(near[cell]) if near[cell] else 0.0
                for cell in layer
            }
            layer.sort(key=lambda cell, mean=mean: (mean[cell], cell))  # type: ignore[misc]
            place |= {cell: (2 * i + 1) / len(layer) for i, cell in enumerate(layer)}


def _places(
    layers: Sequence[Sequence[Cell]], home: Mapping[str, int]
) -> tuple[dict[Cell, tuple[int, int]], int]:
    """The middle and the top of every cell, and the width of the picture."""
    sizes = {
        cell: BOX_WIDTH if home[cell[1]] == cell[0] else TRUNK_WIDTH for layer in layers for cell in layer
    }
    width = max(sum(sizes[cell] for cell in layer) for layer in layers) + 2 * TRUNK_WIDTH
    place = {}
    for number, layer in enumerate(layers):
        x = (width - sum(sizes[cell] for cell in layer)) // 2
        y = (len(layers) - 1 - number) * FLOOR_HEIGHT + (FLOOR_HEIGHT - BOX_HEIGHT) // 2
        for cell in layer:
            place[cell] = (x + sizes[cell] // 2, y)
            x += sizes[cell]
    return place, width

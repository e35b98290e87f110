"""The structure of the package, read off its imports: rooms, the floors that they stand on, who imports whom.

A room is a package, or a module that lies directly in ``ooc_svm/``; it stands a floor above whatever it
imports. ``python scripts/docs/structure.py`` writes the pictures of it: the table and the drawing of
``docs/develop/architecture.md`` and the floors of ``README.md``.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE, COMMANDS = ROOT / "ooc_svm", ROOT / "cli"


def modules() -> dict[str, Path]:
    """The file of every module of the package, by its full name."""
    files = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in PACKAGE.rglob("*.py")}
    files |= {f"ooc_svm.cli.{path.stem}": path for path in COMMANDS.glob("*.py")}
    return {name.removesuffix(".__init__"): path for name, path in sorted(files.items())}


MODULES = modules()


def imports(path: Path, *, top: bool = False) -> Iterator[str]:
    """Full names of all that a file imports; with ``top`` only of what is imported with the file itself."""
    nodes: list[ast.AST] = [ast.parse(path.read_text())]
    while nodes:
        node = nodes.pop()
        if top and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if top and isinstance(node, ast.If) and getattr(node.test, "id", None) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else str(node.module)
        nodes.extend(ast.iter_child_nodes(node))


def own_imports(name: str) -> set[str]:
    """The modules of the package that a module imports anywhere."""
    return {found for found in imports(MODULES[name]) if found in MODULES and found != name}


def room_of(module: str) -> str:
    """The room that a module lies in; the package itself is a room of its own, its face."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "ooc_svm"


def arrows() -> Counter[tuple[str, str]]:
    """Which room imports which other one, and by how many imports."""
    found: Counter[tuple[str, str]] = Counter()
    for name in MODULES:
        found.update((room_of(name), room_of(other)) for other in own_imports(name))
    return Counter({(room, other): count for (room, other), count in found.items() if room != other})


def below(found: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """What each room imports of other rooms."""
    imported: dict[str, set[str]] = {room_of(name): set() for name in MODULES}
    for room, other in found:
        imported[room].add(other)
    return imported


def rooms() -> dict[str, set[str]]:
    """What each room imports of other rooms."""
    return below(arrows())


def stacked(imported: dict[str, set[str]]) -> list[list[str]]:
    """The rooms of each floor, the lowest first.

    Raises
    ------
    ValueError
        Rooms import each other in a circle.
    """
    waiting = dict(imported)
    built: list[list[str]] = []
    placed: set[str] = set()
    while waiting:
        floor = sorted(room for room, others in waiting.items() if others <= placed)
        if not floor:
            raise ValueError(f"these rooms import each other in a circle: {', '.join(sorted(waiting))}")
        built.append(floor)
        placed.update(floor)
        for room in floor:
            del waiting[room]
    return built


def floors() -> list[list[str]]:
    """The rooms of each floor, the lowest first; ValueError where rooms import each other in a circle."""
    return stacked(rooms())


def upward() -> set[tuple[str, str]]:
    """The lightest arrows without which no room imports another in a circle: those that lead up a floor."""
    found, dropped = arrows(), set[tuple[str, str]]()
    while True:
        imported = below(set(found) - dropped)
        circling = [
            arrow for arrow in found if arrow not in dropped and arrow[0] in reached(arrow[1], imported)
        ]
        if not circling:
            return dropped
        dropped.add(min(circling, key=lambda arrow: (found[arrow], arrow)))


def reached(room: str, imported: dict[str, set[str]]) -> set[str]:
    """All rooms that a room imports, and those that they import."""
    seen: set[str] = set()
    waiting = [room]
    while waiting:
        fresh = imported[waiting.pop()] - seen
        seen |= fresh
        waiting += fresh
    return seen


def summary(room: str) -> str:
    """The first sentence of a room's docstring."""
    path = MODULES[f"ooc_svm.{room}" if room != "ooc_svm" else room]
    text = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n\n")[0]
    return " ".join(text.split())


def table() -> str:
    """The rooms, highest floor first, as a table of Markdown."""
    against = upward()
    imported = below(set(arrows()) - against)
    lines = ["| floor | package | what it is | imports |", "|--:|---|---|---|"]
    for number, floor in reversed(list(enumerate(stacked(imported), 1))):
        for room in floor:
            names = ", ".join(f"`{other}`" for other in sorted(imported[room]))
            lines.append(f"| {number} | `{room}` | {summary(room)} | {names} |")
    if against:
        shown = ", ".join(f"`{room}` → `{other}`" for room, other in sorted(against))
        lines += ["", f"Arrows that lead up a floor, and have to go: {shown}."]
    return "\n".join(lines)


def overview() -> str:
    """The rooms, a line a floor, highest first."""
    built = stacked(below(set(arrows()) - upward()))
    lines = [f"{number:>2}  {'  '.join(floor)}" for number, floor in reversed(list(enumerate(built, 1)))]
    return "\n".join(["```text", *lines, "```"])


WIDTH, HEIGHT, GAP_X, GAP_Y = 104, 30, 26, 52


def drawing() -> str:
    """The rooms as boxes on their floors, as SVG; an arrow that others imply is left out."""
    imported = below(set(arrows()) - upward())
    built = stacked(imported)
    widest = max(map(len, built)) * (WIDTH + GAP_X)
    place = {
        room: (
            GAP_X + (widest - len(floor) * (WIDTH + GAP_X)) // 2 + column * (WIDTH + GAP_X),
            GAP_X + (len(built) - 1 - number) * (HEIGHT + GAP_Y),
        )
        for number, floor in enumerate(built)
        for column, room in enumerate(floor)
    }
    size = f'{widest + GAP_X}" height="{2 * GAP_X + len(built) * (HEIGHT + GAP_Y) - GAP_Y}'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{size}" font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
        '<marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#667"/></marker>',
    ]
    for room, (x, y) in place.items():
        implied = set().union(*(reached(other, imported) for other in imported[room]))
        for other in sorted(imported[room] - implied):
            x2, y2 = place[other]
            ends = f'x1="{x + WIDTH // 2}" y1="{y + HEIGHT}" x2="{x2 + WIDTH // 2}" y2="{y2}"'
            lines.append(f'<line {ends} stroke="#99a" marker-end="url(#tip)"/>')
    for room, (x, y) in place.items():
        box = f'x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="5"'
        lines.append(f'<rect {box} fill="#eef3fb" stroke="#557"/>')
        middle = f'x="{x + WIDTH // 2}" y="{y + HEIGHT // 2 + 5}" text-anchor="middle"'
        lines.append(f"<text {middle}>{room}</text>")
    return "\n".join([*lines, "</svg>", ""])


def replaced(text: str, name: str, part: str) -> str:
    """A page with what lies between its two markers of this name replaced."""
    first, last = f"<!-- {name}: made by scripts/docs/structure.py -->\n", f"<!-- end of {name} -->"
    before, rest = text.split(first)
    return f"{before}{first}\n{part}\n\n{last}{rest.split(last)[1]}"


def pages() -> dict[Path, str]:
    """The files with pictures of the structure, as they should be."""
    page, readme = ROOT / "docs/develop/architecture.md", ROOT / "README.md"
    return {
        page: replaced(page.read_text(), "packages", table()),
        readme: replaced(readme.read_text(), "floors", overview()),
        ROOT / "docs/develop/packages.svg": drawing(),
    }


def main() -> None:
    """Write the pages."""
    for path, text in pages().items():
        path.write_text(text)


if __name__ == "__main__":
    main()

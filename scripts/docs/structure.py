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

from drawing import drawing

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
        kept = [arrow for arrow in found if arrow not in dropped]
        circling = [(room, other) for room, other in kept if room in reached(other, imported)]
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


def picture() -> str:
    """The drawing of the rooms and their arrows."""
    imported = below(set(arrows()) - upward())
    return drawing(stacked(imported), {room: needed(room, imported) for room in imported})


def needed(room: str, imported: dict[str, set[str]]) -> set[str]:
    """What a room imports without what these rooms import themselves."""
    return imported[room] - set[str]().union(*(reached(other, imported) for other in imported[room]))


def replaced(text: str, name: str, part: str, script: str = "scripts/docs/structure.py") -> str:
    """A page with what lies between its two markers of this name and script replaced."""
    first, last = f"<!-- {name}: made by {script} -->\n", f"<!-- end of {name} -->"
    before, rest = text.split(first)
    return f"{before}{first}\n{part}\n\n{last}{rest.split(last)[1]}"


def pages() -> dict[Path, str]:
    """The files with pictures of the structure, as they should be."""
    page, readme = ROOT / "docs/develop/architecture.md", ROOT / "README.md"
    return {
        page: replaced(page.read_text(), "packages", table()),
        readme: replaced(readme.read_text(), "floors", overview()),
        ROOT / "docs/develop/packages.svg": picture(),
    }


def main() -> None:
    """Write the pages."""
    for path, text in pages().items():
        path.write_text(text)


if __name__ == "__main__":
    main()

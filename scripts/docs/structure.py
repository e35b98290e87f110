"""The structure of the package, read off its imports: rooms, the floors that they stand on, who imports whom.

A room is a package, or a module that lies directly in ``ooc_svm/``; it stands a floor above whatever it
imports. ``python scripts/docs/structure.py`` prints the floors as a table.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
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


def rooms() -> dict[str, set[str]]:
    """What each room imports of other rooms."""
    found: dict[str, set[str]] = {room_of(name): set() for name in MODULES}
    for name in MODULES:
        found[room_of(name)] |= {room_of(other) for other in own_imports(name)} - {room_of(name)}
    return found


def floors() -> list[list[str]]:
    """The rooms of each floor, the lowest first.

    Raises
    ------
    ValueError
        Rooms import each other in a circle.
    """
    waiting = rooms()
    built: list[list[str]] = []
    placed: set[str] = set()
    while waiting:
        floor = sorted(room for room, below in waiting.items() if below <= placed)
        if not floor:
            raise ValueError(f"these rooms import each other in a circle: {', '.join(sorted(waiting))}")
        built.append(floor)
        placed.update(floor)
        for room in floor:
            del waiting[room]
    return built


def main() -> None:
    """Print the floors, the highest first."""
    arrows = rooms()
    for number, floor in reversed(list(enumerate(floors(), 1))):
        for room in floor:
            print(f"{number:>2}  {room:<12} imports {', '.join(sorted(arrows[room])) or 'nothing of ours'}")


if __name__ == "__main__":
    main()

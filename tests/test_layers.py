"""The walls between the rooms of the package, read off the imports; and what an import may cost."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE, COMMANDS = ROOT / "ooc_svm", ROOT / "cli"
FILES = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in PACKAGE.rglob("*.py")}
FILES |= {f"ooc_svm.cli.{path.stem}": path for path in COMMANDS.glob("*.py")}
MODULES = {name.removesuffix(".__init__"): path for name, path in FILES.items()}

MOST_LINES = 550
MOST_LINES_OF_A_FUNCTION = 70

# What the modules of a room may import; a name stands for what is inside it as well. Other modules of the
# standard library than these few are for those who deal with files, threads and processes.
PLAIN = {"__future__", "collections", "dataclasses", "functools", "itertools", "math", "typing"}
WALLS = {
    "ooc_svm.errors": set(),
    "ooc_svm.rows": {"numpy"},
    "ooc_svm.ops": {"numpy", "numba", "llvmlite", "ooc_svm.ops"},
    "ooc_svm.passes": {"numpy", "ooc_svm.ops", "ooc_svm.rows"},
    "ooc_svm.qp": {"numpy", "ooc_svm.ops", "ooc_svm.rows"},
    "ooc_svm.stopping": {"time"},
    "ooc_svm.problems": {"numpy", "ooc_svm.ops", "ooc_svm.passes", "ooc_svm.problems", "ooc_svm.rows"},
    "ooc_svm.solvers": {
        "numpy",
        "ooc_svm.errors",
        "ooc_svm.ops",
        "ooc_svm.passes",
        "ooc_svm.problems",
        "ooc_svm.qp",
        "ooc_svm.rows",
        "ooc_svm.solvers",
        "ooc_svm.stopping",
        "ooc_svm.sweeps",
    },
    # The passes of dual solvers: what solvers may import, they may not know more than.
    "ooc_svm.sweeps": {
        "numpy",
        "ooc_svm.ops",
        "ooc_svm.passes",
        "ooc_svm.problems",
        "ooc_svm.rows",
        "ooc_svm.source",
    },
    "ooc_svm.classes": {"numpy", "ooc_svm.errors", "ooc_svm.rows"},
    "ooc_svm.words": {"numpy", "numba", "llvmlite"},
    "ooc_svm.decimals": {"numpy", "numba", "ooc_svm.ops", "ooc_svm.words"},
    "ooc_svm.svmlight": {
        "numpy",
        "numba",
        "ooc_svm.ops",
        "ooc_svm.decimals",
        "ooc_svm.errors",
        "ooc_svm.rows",
        "ooc_svm.words",
    },
}

# What the modules of a room must not import, where they may import much.
KEPT_OUT = {
    "ooc_svm.engine": {"zarr", "ooc_svm.store", "ooc_svm.problems", "ooc_svm.solvers", "ooc_svm.training"},
    "ooc_svm.rowvectors": {"zarr", "numba", "ooc_svm.ops", "ooc_svm.passes", "ooc_svm.problems"},
    "ooc_svm.metrics": {"zarr", "ooc_svm.store", "ooc_svm.model", "ooc_svm.engine", "ooc_svm.problems"},
    "ooc_svm.source": {"zarr", "ooc_svm.store", "ooc_svm.passes", "ooc_svm.problems", "ooc_svm.solvers"},
    "ooc_svm.store": {
        "ooc_svm.engine",
        "ooc_svm.model",
        "ooc_svm.passes",
        "ooc_svm.problems",
        "ooc_svm.solvers",
        "ooc_svm.sources",
        "ooc_svm.svmlight",
        "ooc_svm.textrows",
        "ooc_svm.training",
    },
    "ooc_svm.textrows": {"zarr", "ooc_svm.store", "ooc_svm.passes", "ooc_svm.problems", "ooc_svm.solvers"},
    "ooc_svm.sources": {"zarr", "numba", "ooc_svm.store", "ooc_svm.problems", "ooc_svm.solvers"},
    "ooc_svm.conversion": {"ooc_svm.passes", "ooc_svm.problems", "ooc_svm.solvers", "ooc_svm.engine"},
    "ooc_svm.model": {"zarr", "numba", "ooc_svm.store", "ooc_svm.problems", "ooc_svm.solvers"},
    "ooc_svm": {"ooc_svm.cli", "sklearn", "anndata", "pandas"},
}

NEVER = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "joblib", "dill", "cloudpickle"}
NEVER_CALLED = {"eval", "exec", "compile", "__import__"}
HEAVY = ("numpy", "numba", "zarr", "scipy", "sklearn", "dask", "distributed", "pandas", "anndata")
# Who talks to dask, or is one of its workers; all others are given the connection.
CLUSTERS = {
    "ooc_svm.cluster",
    "ooc_svm.clustercalls",
    "ooc_svm.engine.links",
    "ooc_svm.engine.parcels",
    "ooc_svm.localworkers",
}


def imports(path: Path, *, top: bool = False) -> Iterator[str]:
    """Full names of all that a file imports; with ``top`` only of what is imported with the file itself."""
    nodes = [ast.parse(path.read_text())]
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


def inside(name: str, rooms: set[str]) -> bool:
    """Whether a module is one of these, or inside one of them."""
    return any(name == room or name.startswith(f"{room}.") for room in rooms)


def of_room(room: str) -> dict[str, Path]:
    found = {name: path for name, path in MODULES.items() if inside(name, {room})}
    assert found, f"there is no {room}"
    return found


@pytest.mark.parametrize("room", WALLS)
def test_a_room_imports_only_what_it_may(room):
    for name, path in of_room(room).items():
        others = [found for found in imports(path) if not inside(found, WALLS[room] | PLAIN)]
        assert not others, f"{name} imports {others}"


@pytest.mark.parametrize("room", KEPT_OUT)
def test_a_room_keeps_others_out(room):
    for name, path in of_room(room).items():
        if room == "ooc_svm" and inside(name, {"ooc_svm.cli"}):
            continue
        others = [found for found in imports(path) if inside(found, KEPT_OUT[room])]
        assert not others, f"{name} imports {others}"


def test_few_know_of_dask():
    for name, path in MODULES.items():
        if not inside(name, CLUSTERS):
            assert not [found for found in imports(path) if inside(found, {"dask", "distributed"})], name


def test_the_walls_would_be_felt(tmp_path):
    path = tmp_path / "module.py"
    lines = ["import os.path", "from ooc_svm import interrupt", "from ooc_svm.engine import local"]
    path.write_text("\n".join([*lines, "def f():", "    import zarr"]))
    assert sorted(imports(path)) == ["ooc_svm.engine.local", "ooc_svm.interrupt", "os.path", "zarr"]
    assert "zarr" not in imports(path, top=True)


def test_commands_import_nothing_heavy_with_themselves():
    for name, path in of_room("ooc_svm.cli").items():
        others = [found for found in imports(path, top=True) if inside(found, set(HEAVY))]
        assert not others, f"{name} imports {others}"


def test_imports_have_no_cycles():
    graph = {}
    for name, path in MODULES.items():
        graph[name] = {found for found in imports(path, top=True) if found in MODULES and found != name}
    TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("name", MODULES)
def test_nothing_is_executed_that_comes_from_a_file(name):
    path = MODULES[name]
    assert not [found for found in imports(path) if inside(found, NEVER)]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            assert getattr(node.func, "id", None) not in NEVER_CALLED, f"{path}:{node.lineno}"
            assert all(keyword.arg != "allow_pickle" for keyword in node.keywords), f"{path}:{node.lineno}"


@pytest.mark.parametrize("name", MODULES)
def test_files_and_functions_are_short_and_documented(name):
    tree = ast.parse(MODULES[name].read_text())
    assert ast.get_docstring(tree)
    assert len(MODULES[name].read_text().splitlines()) <= MOST_LINES
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and not _is_compiled(node):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            lines = node.end_lineno - body[0].lineno + 1 if body else 0
            assert lines <= MOST_LINES_OF_A_FUNCTION, f"{node.name} has {lines} lines"


def _is_compiled(node: ast.FunctionDef) -> bool:
    return any(getattr(decorator, "id", None) == "compiled" for decorator in node.decorator_list)


@pytest.mark.parametrize("module", ["ooc_svm", "ooc_svm.cli", "ooc_svm.errors", "ooc_svm.options"])
def test_an_import_loads_nothing_heavy(module):
    script = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert module in loaded
    assert not loaded.intersection(HEAVY)


def test_every_public_name_is_what_it_says_each_time():
    import ooc_svm

    assert sorted(ooc_svm.__all__) == list(ooc_svm.__all__) == sorted(ooc_svm._HOMES)
    for name in ooc_svm.__all__:
        first = getattr(ooc_svm, name)
        assert callable(first), f"{name} is hidden by a module"
        assert getattr(ooc_svm, name) is first
        assert first.__name__ == name
        assert first.__doc__
    with pytest.raises(AttributeError, match="no attribute 'tarin'"):
        ooc_svm.tarin  # noqa: B018

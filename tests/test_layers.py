"""The walls between the rooms of the package, read off the imports; and what an import may cost."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from structure import COMMANDS, MODULES, ROOT, floors, imports, own_imports, room_of, rooms

from ooc_svm.ops.compiled import compiled_files

MAX_ROOMS, MAX_FLOORS = 25, 11
MAX_LINES, MAX_FUNCTION_LINES = 500, 60
MAX_OWN_IMPORTS = 15

# What the modules of a room may import of the package, besides `errors`.
WALLS = {
    "errors": "",
    "catalog": "",
    "options": "catalog parameters",
    "parameters": "system",
    "system": "",
    "ops": "",
    "data": "ops",
    "losses": "ops",
    "rowvectors": "data ops system",
    "pairs": "data ops rowvectors system",
    "passes": "data ops",
    "problems": "catalog data losses options pairs rowvectors",
    "solvers": "catalog data losses ops options pairs passes problems",
    "engine": "data passes rowvectors system",
    "cluster": "data engine passes rowvectors system",
    "text": "data ops system",
    "store": "data ops parameters system",
    "conversion": "catalog cluster data ops options parameters store system text",
    "model": "catalog data ops options parameters system",
    "prediction": "data model ops parameters store system text",
    "evaluation": "data model ops pairs parameters prediction rowvectors system",
    "estimators": "catalog data evaluation model options parameters prediction training",
    "training": "catalog cluster conversion data engine evaluation model ops options pairs parameters passes "
    "problems rowvectors solvers store system",
}
# Of a room that may be imported, the modules that may not.
INSIDE = {
    ("solvers", "pairs"): {"ooc_svm.pairs.request", "ooc_svm.pairs.sweep_loops"},
    ("solvers", "data"): {"ooc_svm.data.blocks", "ooc_svm.data.pages", "ooc_svm.data.source"},
    ("training", "pairs"): {"ooc_svm.pairs.active", "ooc_svm.pairs.request"},
    ("training", "evaluation"): {
        *("ooc_svm.evaluation.evaluate", "ooc_svm.evaluation.label_metrics", "ooc_svm.evaluation.metrics"),
    },
}
# Loops are compiled: they see arrays, and no classes.
LOOPS_MAY = {"ops", "losses"}

# Other modules of the standard library than these are for rooms that deal with files, threads and processes.
PLAIN = {"__future__", "abc", "collections", "dataclasses", "functools", "itertools", "math", "typing"}
# What the modules of a room may import besides: the package, the standard library's plain ones, and these.
PURE = {
    "errors": set(),
    "catalog": {"importlib"},
    "options": {"enum", "numbers", "os"},
    "parameters": {"difflib", "inspect", "json", "numbers", "os", "re", "sys"},
    # With the cache of compiled functions.
    "ops": {
        "contextlib",
        "io",
        "llvmlite",
        "numba",
        "numpy",
        "os",
        "pathlib",
        "shutil",
        "sys",
        "warnings",
        "zlib",
    },
    "losses": {"numpy", "numba"},
    "passes": {"numpy"},
    "solvers": {"numpy", "numba", "time"},
}
# What the modules of a room must not import, where they may import much.
KEPT_OUT = {
    "rowvectors": {"zarr", "numba"},
    "engine": {"zarr", "numba", "dask", "distributed"},
    "model": {"zarr", "numba", "dask"},
    "text": {"zarr", "dask"},
    "store": {"dask", "distributed"},
    "evaluation": {"zarr", "dask"},
}

NEVER = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "joblib", "dill", "cloudpickle"}
NEVER_CALLED = {"eval", "exec", "compile", "__import__"}
HEAVY = ("numpy", "numba", "zarr", "scipy", "sklearn", "dask", "distributed", "pandas", "anndata")


def inside(name: str, packages: set[str]) -> bool:
    """Whether a module is one of these, or inside one of them."""
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def of_room(room: str) -> dict[str, Path]:
    return {name: path for name, path in MODULES.items() if room_of(name) == room}


def test_every_room_has_walls():
    assert set(rooms()) == {*WALLS, "cli", "ooc_svm"}


def test_the_house_has_so_many_rooms_and_floors():
    assert len(rooms()) <= MAX_ROOMS
    assert len(floors()) <= MAX_FLOORS, floors()


@pytest.mark.parametrize("room", WALLS)
def test_a_room_imports_only_what_it_may(room):
    allowed = {*WALLS[room].split(), room} | ({"errors"} if room != "catalog" else set())
    for name in of_room(room):
        found = own_imports(name)
        assert {room_of(other) for other in found} <= allowed, f"{name} imports {sorted(found)}"
        for (own, other_room), modules in INSIDE.items():
            if own == room:
                others = {other for other in found if room_of(other) == other_room}
                assert others <= modules, f"{name} imports {sorted(others - modules)}"


@pytest.mark.parametrize("room", PURE)
def test_a_pure_room_imports_little_of_others(room):
    for name, path in of_room(room).items():
        others = [found for found in imports(path) if not inside(found, PURE[room] | PLAIN | {"ooc_svm"})]
        assert not others, f"{name} imports {others}"


@pytest.mark.parametrize("room", KEPT_OUT)
def test_a_room_keeps_others_out(room):
    for name, path in of_room(room).items():
        others = [found for found in imports(path) if inside(found, KEPT_OUT[room])]
        assert not others, f"{name} imports {others}"


def test_loops_import_arrays_and_compiled_functions_alone():
    loops = [name for name in MODULES if name.endswith("_loops")]
    assert len(loops) > 5
    for name in loops:
        for found in imports(MODULES[name]):
            own = found in MODULES and (room_of(found) in LOOPS_MAY or found.endswith("_loops"))
            assert own or inside(found, {"numpy", "numba", *PLAIN}), f"{name} imports {found}"


def test_compiled_functions_are_in_files_that_their_cache_knows():
    known = {Path(path) for path in compiled_files()}
    found = {path for path in MODULES.values() if re.search("^@(compiled|inlined)", path.read_text(), re.M)}
    assert len(found) > 20
    assert found <= known, f"no file of the cache: {found - known}"


def test_one_module_knows_of_dask():
    for name, path in MODULES.items():
        if name != "ooc_svm.cluster.dask_calls":
            assert not [found for found in imports(path) if inside(found, {"dask", "distributed"})], name


def test_no_module_imports_very_many():
    for name in MODULES:
        if room_of(name) not in ("ooc_svm", "cli"):
            assert len(own_imports(name)) <= MAX_OWN_IMPORTS, f"{name}: {sorted(own_imports(name))}"


def test_the_packages_that_are_installed_are_those_of_the_tree():
    """An editable install hides one that is forgotten."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    there = {name for name, path in MODULES.items() if path.name == "__init__.py"}
    assert listed == sorted(there, key=lambda name: (name not in ("ooc_svm", "ooc_svm.cli"), name))


def test_the_walls_would_be_felt(tmp_path):
    path = tmp_path / "module.py"
    lines = ["import os.path", "from ooc_svm.system import signals", "from ooc_svm.engine import local"]
    path.write_text("\n".join([*lines, "def f():", "    import zarr"]))
    assert sorted(imports(path)) == ["ooc_svm.engine.local", "ooc_svm.system.signals", "os.path", "zarr"]
    assert "zarr" not in imports(path, top=True)


def test_commands_import_nothing_heavy_with_themselves():
    for path in COMMANDS.glob("*.py"):
        others = [found for found in imports(path, top=True) if inside(found, set(HEAVY))]
        assert not others, f"{path} imports {others}"


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
    assert len(MODULES[name].read_text().splitlines()) <= MAX_LINES
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and not _is_compiled(node):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            lines = node.end_lineno - body[0].lineno + 1 if body else 0
            assert lines <= MAX_FUNCTION_LINES, f"{node.name} has {lines} lines"


def _is_compiled(node: ast.FunctionDef) -> bool:
    return any(getattr(decorator, "id", None) in ("compiled", "inlined") for decorator in node.decorator_list)


@pytest.mark.parametrize("module", ["ooc_svm", "ooc_svm.cli", "ooc_svm.errors", "ooc_svm.options"])
def test_an_import_loads_nothing_heavy(module):
    script = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert module in loaded
    assert not loaded.intersection(HEAVY)

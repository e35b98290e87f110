"""The page of promises names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/reference/promises.md").read_text()
ROWS = [row.split(" | ") for row in re.findall(r"^\| ([A-Z].*) \|$", PAGE, re.MULTILINE)]
NAMED = sorted({name for _, tests in ROWS for name in re.findall("`([^`]+)`", tests)})


def test_every_promise_has_a_test():
    assert len(ROWS) > 20
    assert all(re.fullmatch(r"`tests/\S+::test_\w+`(, `tests/\S+::test_\w+`)*", tests) for _, tests in ROWS)


@pytest.mark.parametrize("name", NAMED)
def test_the_tests_exist(name):
    path, *names = name.split("::")
    inside = ast.parse((ROOT / path).read_text()).body
    for each in names:
        found = {node.name: node for node in inside if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        assert each in found, f"{path} has no {each}"
        inside = found[each].body

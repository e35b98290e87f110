"""The tutorials work as written."""

from __future__ import annotations

from pathlib import Path

import examples
import pytest

TUTORIALS = sorted((examples.ROOT / "docs" / "tutorials").glob("*.md"))


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_the_examples_of_a_tutorial_run(page, tmp_path):
    done = examples.run_page(page, tmp_path)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_blocks_are_run_in_order_in_the_folder(tmp_path):
    page, folder = tmp_path / "page.md", tmp_path / "folder"
    folder.mkdir()
    page.write_text(
        "```sh\necho 3 > number\n```\n```python\nn = int(open('number').read())\n```\n"
        "```bash\nexit 1\n```\n```python\nprint('n is', n)\n```\n\n```output\nn ... 3\n```\n"
    )
    done = examples.run_page(page, folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "n is 3\n", "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\n```python\n1 / 0\n```\n", "line 3"),
        ("```sh\nexit 7\n```\n", "exit code 7"),
        ("```sh\ncat missing | tail\n```\n", "exit code 1"),
        ("```sh\necho 2\n```\n```output\n3\n```\n", "instead of\n3"),
        ("```output\n3\n```\n", "follows no code block"),
    ],
)
def test_what_fails_is_found(text, said, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(text)
    done = examples.run_page(page, tmp_path)
    assert done.returncode == 1
    assert said in done.stderr
    assert examples.main([str(page)]) == 1


def test_every_tutorial_is_listed():
    index = Path(TUTORIALS[0].parent, "index.md").read_text().split()
    assert {page.stem for page in TUTORIALS} - {"index"} <= set(index)

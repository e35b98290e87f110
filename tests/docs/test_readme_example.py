"""The output of training that README.md shows is that of its commands."""

from __future__ import annotations

import pytest
import readme

PAGE = readme.README.read_text()


def test_the_example_prints_what_is_shown():
    found = readme.current()
    assert readme.compared(found) == readme.compared(PAGE), "run python scripts/docs/readme.py --write"


@pytest.mark.parametrize(
    "line", ["pass 1 ", "objective P ", "lower bound D ", "passes ", "model  ", "No weight"]
)
def test_its_numbers_are_compared(line):
    before, after = PAGE.split(f"\n{line}", 1)
    shown, _, rest = after.partition("\n")
    digit = next(digit for digit in readme.compared(shown) if digit.isdigit())
    other = shown.replace(digit, str((int(digit) + 1) % 10), 1)
    assert readme.compared(f"{before}\n{line}{other}\n{rest}") != readme.compared(PAGE)


def test_times_are_not_compared():
    shown = (
        "pass 1  P 5  2 MB read  8 MB/s  1.2 s\ntime  2 min 3 s (1 % of it waiting)\npeak memory    1 MB\n"
    )
    again = "pass 1  P 5  2 MB read  9.5 kB/s  40 s\ntime  2.2 s (0 % of it waiting)\npeak memory    24 kB\n"
    assert readme.compared(shown) == readme.compared(again)
    assert readme.compared(shown) != readme.compared(again.replace("P 5", "P 6"))

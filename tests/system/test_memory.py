"""Sizes as text, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ooc_svm.system.memory import format_size, parse_size, size_available, size_needed

sizes = st.one_of(st.integers(0, 10**4), st.integers(0, 10**14))


@given(sizes)
def test_a_size_needed_is_enough_as_text_and_hardly_more(n_bytes: int) -> None:
    assert n_bytes <= parse_size(size_needed(n_bytes)) <= 1.01 * n_bytes


@given(sizes)
def test_a_size_available_is_not_too_much_as_text(n_bytes: int) -> None:
    assert 0.99 * n_bytes <= parse_size(size_available(n_bytes)) <= n_bytes


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (12_301, "12.4 kB"), (999_999, "1 MB"), (10**9, "1 GB")],
)
def test_sizes_are_rounded_up(n_bytes: int, text: str) -> None:
    assert size_needed(n_bytes) == text


def test_a_size_has_three_digits() -> None:
    assert [format_size(n) for n in (12, 12_345, 999_400_000)] == ["12 bytes", "12.3 kB", "999 MB"]


@pytest.mark.parametrize("text", ["8.29MB", "8.29 mb", "8290000 bytes", "8290 kB"])
def test_a_decimal_is_the_number_that_it_says(text: str) -> None:
    assert parse_size(text) == 8_290_000

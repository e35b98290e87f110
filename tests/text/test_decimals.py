"""Decimals to float64 and back, against Python's own conversions."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest

from ooc_svm.ops.compiled import compiled
from ooc_svm.ops.intrinsics import count_trailing_zeros
from ooc_svm.text.decimals import (
    MALFORMED,
    OK,
    PADDING,
    TOO_LARGE,
    parse_decimal,
    read_decimal,
    short_decimal,
    shortest_decimal,
)
from ooc_svm.text.simd import join_digits, load_digits, mask_other_than_digits


def float_of(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<Q", bits))[0])


def digits(rng: random.Random, longest: int, shortest: int = 1) -> str:
    return "".join(rng.choices("0123456789", k=rng.randint(shortest, longest)))


def short(rng: random.Random) -> str:
    return rng.choice(["", "-", "+"]) + digits(rng, 9) + rng.choice(["", ".", "." + digits(rng, 9)])


def bare_fraction(rng: random.Random) -> str:
    return "." + "0" * rng.randint(0, 20) + digits(rng, 20)


def any_bits(rng: random.Random) -> str:
    value = float_of(rng.getrandbits(64))
    return repr(value) if math.isfinite(value) else "1"


def seventeen(rng: random.Random) -> str:
    return f"{rng.uniform(-10, 10):.17g}"


def long(rng: random.Random) -> str:
    return digits(rng, 30) + "." + digits(rng, 30) + f"e{rng.randint(-40, 40)}"


def wild_exponent(rng: random.Random) -> str:
    return digits(rng, 25) + rng.choice(["e", "E", "e+", "E-", "e-"]) + str(rng.randint(0, 345))


def subnormal(rng: random.Random) -> str:
    return repr(float_of(rng.getrandbits(rng.randint(1, 53))))


def half_way(rng: random.Random) -> str:
    """A number half way between two neighbours, or as near to it as 19 to 800 digits get."""
    bits = rng.getrandbits(63) % (0x7FE << 52)
    below, above = Fraction(float_of(bits)), Fraction(float_of(bits + 1))
    middle = (below + above) / 2 + rng.choice([-1, 0, 0, 1]) * (above - below) / 10 ** rng.choice([3, 12, 30])
    with localcontext() as context:
        context.prec = rng.choice([17, 19, 20, 25, 800])
        return str(Decimal(middle.numerator) / Decimal(middle.denominator))


WRONG_SHORT_CUT = -1

SHAPES = {
    short: 400_000,
    bare_fraction: 100_000,
    any_bits: 150_000,
    seventeen: 100_000,
    long: 100_000,
    wild_exponent: 100_000,
    subnormal: 40_000,
    half_way: 10_000,
}


@compiled
def short_value(buffer: npt.NDArray[np.uint8], start: np.uint64, end: np.uint64) -> tuple[bool, float]:
    """What the short cut makes of an unsigned token up to its end, if it is of the shape that it takes."""
    others = mask_other_than_digits(buffer, start)
    n_whole = count_trailing_zeros(others)
    point = start + n_whole
    n_fraction = np.uint64(0)
    if buffer[point] == ord("."):
        n_fraction = count_trailing_zeros(others & (others - np.uint64(1))) - n_whole - np.uint64(1)
    after = point + n_fraction + np.uint64(buffer[point] == ord("."))
    if not 1 <= n_whole <= 7 or n_fraction > 16 or after != end:
        return False, 0.0
    whole = join_digits(load_digits(buffer, start), n_whole)
    first = load_digits(buffer, point + np.uint64(1))
    second = load_digits(buffer, point + np.uint64(9))
    exact, value = short_decimal(whole, n_fraction, first, second, np.uint64(0))
    _, negated = short_decimal(whole, n_fraction, first, second, np.uint64(1))
    return exact, value if negated == -value else np.nan


@compiled
def read_all(
    buffer: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.uint64],
    statuses: npt.NDArray[np.int64],
    values: npt.NDArray[np.float64],
    ends: npt.NDArray[np.uint64],
) -> int:
    """Reads every token in both ways; the number of those that the short cut takes."""
    n_exact = 0
    for i in range(len(starts)):
        statuses[i], values[i], ends[i] = read_decimal(buffer, starts[i])
        exact, value = short_value(buffer, starts[i], ends[i])
        if exact and value != values[i]:
            statuses[i] = WRONG_SHORT_CUT
        n_exact += exact
    return n_exact


def check(tokens: list[str]) -> int:
    """All tokens read as Python reads them: value, sign of zero and end included.

    Returns the number of tokens that the short cut takes.
    """
    encoded = [token.encode() for token in tokens]
    buffer = np.frombuffer(b"\n".join(encoded) + b"\n" + bytes(PADDING), np.uint8).copy()
    lengths = np.array([len(token) for token in encoded], np.uint64)
    starts = np.concatenate(([np.uint64(0)], np.cumsum(lengths + np.uint64(1))[:-1]))
    statuses, values, ends = np.empty(len(tokens), np.int64), np.empty(len(tokens)), np.empty_like(starts)
    n_exact = int(read_all(buffer, starts, statuses, values, ends))
    expected = np.array([float(token) for token in tokens])
    overflow = np.isinf(expected)
    wrong = np.where(
        overflow, statuses != TOO_LARGE, (statuses != OK) | (values.view("u8") != expected.view("u8"))
    )
    wrong |= ends != starts + lengths
    assert [tokens[i] for i in np.flatnonzero(wrong)[:5]] == []
    return n_exact


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_random_tokens_read_as_python_reads_them(shape: Callable[[random.Random], str]) -> None:
    rng = random.Random(shape.__name__)
    n_exact = check([shape(rng) for _ in range(SHAPES[shape])])
    if shape is short:
        assert n_exact > SHAPES[short] // 5


CORNER_CASES = """
0 -0 +0.0 1. .5 00000000000000000000001 0e99999999999999999999 1e22 1e23 1e-22
9007199254740992 9007199254740993 9007199254740993.0 9007199254740993.0000000000000000000000000001
12345678 1234567. 12345678.12345678 1234567.1234567 12345678e0 1.12345678e5 10000000000000000000001
1e-400 1e400 -1e400 1e999999999999999999999999 1e-999999999999999999999999 1e309
4.9406564584124654e-324 2.4703282292062327208e-324 2.4703282292062327209e-324 2.47e-324
2.2250738585072011e-308 2.2250738585072012e-308 2.2250738585072014e-308
1.7976931348623157e308 1.7976931348623158e308 1.7976931348623159e308
"""


def test_corner_cases() -> None:
    zeros = "0" * 400
    check([*CORNER_CASES.split(), "1" * 400, f"0.{zeros}1e401", f"1{zeros}e-400", "3" * 5000 + "e-5000"])
    check([f"1.{zeros}e5", zeros + "1" * 25, f"0.{zeros[:320]}" + "1" * 900, f"{zeros}.{zeros}1e380"])


def test_half_way_is_decided_by_the_last_of_many_digits() -> None:
    half = str(2**53 + 1)
    zeros = "0" * 3000
    assert parse_decimal(f"{half}.{zeros}".encode())[1] == 2.0**53
    assert parse_decimal(f"{half}.{zeros}1".encode())[1] == 2.0**53 + 2
    largest_half = str(2**1024 - 2**970)
    assert parse_decimal(largest_half.encode())[0] == TOO_LARGE
    below = str(2**1024 - 2**970 - 1)
    assert parse_decimal(f"{below}.{'9' * 900}".encode())[1] == float_of((0x7FF << 52) - 1)


@pytest.mark.parametrize(
    "token", ["", "+", "-", ".", "+.", "e5", ".e5", "1e", "1e+", "1.5e-", "nan", "inf", "--1", "+-1"]
)
def test_malformed(token: str) -> None:
    assert parse_decimal(token.encode())[0] == MALFORMED


@pytest.mark.parametrize(
    ("token", "value", "end"),
    [
        ("1_0", 1.0, 1),
        ("0x10", 0.0, 1),
        ("1.5.2", 1.5, 3),
        ("1,5", 1.0, 1),
        ("1d5", 1.0, 1),
        ("1e5e5", 1e5, 3),
    ],
)
def test_stops_at_what_no_number_holds(token: str, value: float, end: int) -> None:
    assert parse_decimal(token.encode()) == (OK, value, end)


def digits_of(text: str) -> str:
    """Significant digits of a number as Python or NumPy writes it."""
    return text.lower().split("e")[0].replace(".", "").strip("0")


def written(mantissa: int, exponent: int) -> float:
    return float(f"{mantissa}e{exponent}")


def test_shortest_float64() -> None:
    rng = random.Random(4)
    sample = [float_of(rng.getrandbits(63)) for _ in range(20_000)]
    sample += [float_of(rng.getrandbits(rng.randint(1, 53))) for _ in range(5_000)]
    sample += [round(rng.uniform(0, 10**k), 10 - k) for k in range(10) for _ in range(2_000)]
    sample += [2.0**k for k in range(-1074, 1024)]
    for value in sample:
        if 0 < value < math.inf:
            mantissa, exponent = shortest_decimal(value, False)
            assert written(mantissa, exponent) == value
            assert mantissa % 10 != 0
            assert len(str(mantissa)) <= len(digits_of(repr(value)))


def test_shortest_float32() -> None:
    rng = np.random.default_rng(5)
    sample = rng.integers(1, 0x7F800000, 30_000).astype(np.uint32).view(np.float32)
    sample = np.concatenate(
        [sample, rng.random(10_000).astype(np.float32), np.float32(2.0) ** np.arange(-149, 128)]
    )
    for value in sample.astype(np.float32):
        mantissa, exponent = shortest_decimal(float(value), True)
        assert np.float32(written(mantissa, exponent)) == value
        assert len(str(mantissa)) <= len(digits_of(np.format_float_scientific(value, unique=True)))

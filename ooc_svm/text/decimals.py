"""Decimal numbers to floats and back: compiled, correctly rounded, no Python objects.

Reading takes the cheapest exact way a token allows:

1. at most 2^53 as digits and a power of ten up to 10^22: one exact operation on doubles (Clinger 1990);
2. up to 19 digits: a 64-bit mantissa times a 128-bit power of five, which always suffices
   (Lemire, "Number parsing at a gigabyte per second", 2021; Mushtak and Lemire, "Fast number parsing without
   fallback", 2023);
3. more digits: the way of 2 for the first 19 digits, cut and rounded up; where the two differ, the token is
   compared with the number half way between them in exact integer arithmetic.

Functions may look at bytes after a token: buffers end in ``PADDING`` spare bytes, and every token is
followed by a byte that no number holds (a line feed at the latest).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ooc_svm.ops.compiled import compiled, inlined
from ooc_svm.text.simd import EIGHT, ONE, TEN, TWO, ByteArray, join_digits

PADDING = 96
"""Readable bytes that must follow the text in every buffer: masks of bytes and words reach beyond its end."""

OK, MALFORMED, TOO_LARGE = 0, 1, 2
"""What `read_decimal` says of a token: a number, not a number, beyond the largest float64."""

# Unsigned constants: mixed with signed integers they would turn into doubles.
ZERO = np.uint64(0)
_THREE, _FIVE = np.uint64(3), np.uint64(5)
_32, _63, _64 = (np.uint64(k) for k in (32, 63, 64))
_LOW_HALF = np.uint64(0xFFFFFFFF)
_ALL_ONES = np.uint64(0xFFFFFFFFFFFFFFFF)
_MANTISSA = np.uint64((1 << 52) - 1)
_IMPLICIT_BIT = np.uint64(1 << 52)
_TWO_TO_53 = np.uint64(1 << 53)
_INFINITY = np.uint64(0x7FF << 52)

_SMALLEST_POWER, _LARGEST_POWER = -342, 342
_LARGEST_READ_POWER = 308
_EXACT_POWER = 22
_KEPT_DIGITS = 19
# No double, and no half way between two, has more significant digits than 767.
_DECISIVE_DIGITS = 768
_EXPONENT_LIMIT = 10**12

_MINUS, _PLUS, _NIL = (ord(character) for character in "-+0")
_THOUSAND = np.uint64(1000)  # 3 digits and 16 more fit in a word
_SMALLEST_SINGLE, _SMALLEST_DOUBLE = 2.0**-126, 2.0**-1022

POWERS_OF_TEN = np.array([10.0**k for k in range(_EXACT_POWER + 1)])
_INTEGER_POWERS_OF_TEN = np.array([10**k for k in range(20)], dtype=np.uint64)


def _powers_of_five() -> npt.NDArray[np.uint64]:
    """Leading 128 bits of 5^q, as (high, low): cut for q >= 0, rounded up for the reciprocals."""
    rows = []
    for q in range(_SMALLEST_POWER, _LARGEST_POWER + 1):
        power: int = 5 ** abs(q)
        bits = power.bit_length()
        if q >= 0:
            leading = power << (128 - bits) if bits <= 128 else power >> (bits - 128)
        else:
            leading = (1 << (bits + 127)) // power + 1
            leading >>= leading.bit_length() - 128
        rows.append((leading >> 64, leading & (2**64 - 1)))
    return np.array(rows, dtype=np.uint64)


POWERS_OF_FIVE = _powers_of_five()


# Short numbers


@inlined(error_model="numpy")
def short_decimal(
    whole: np.uint64, n_fraction: np.uint64, first: np.uint64, second: np.uint64, negative: np.uint64
) -> tuple[bool, float]:
    """Value of a number as most are: up to 7 digits, then perhaps a point and up to 16 digits.

    `whole` is the number before the point, `n_fraction` the digits after it; `first` and `second` are the
    words of `ooc_svm.text.simd.load_digits` with these digits; `negative` is 1 or 0. Returns (exact, value):
    where one exact step does not do, exact is False, and the number is to be read with `read_decimal`. Else
    the value is the nearest float64; zero has no sign.
    """
    # Up to 15 digits: below 2^53.
    exact = True
    mantissa = whole * _INTEGER_POWERS_OF_TEN[n_fraction]
    if n_fraction <= EIGHT:
        mantissa += join_digits(first, n_fraction)
    else:
        rest = n_fraction - EIGHT
        mantissa += join_digits(first, EIGHT) * _INTEGER_POWERS_OF_TEN[rest] + join_digits(second, rest)
        exact = bool(whole < _THOUSAND and mantissa <= _TWO_TO_53)
    signed = np.int64((mantissa ^ (ZERO - negative)) + negative)
    return exact, np.float64(signed) / POWERS_OF_TEN[n_fraction]


# Mantissa and exponent to float64


@inlined
def _from_bits(bits: np.uint64) -> float:
    """The float64 with these bits."""
    return np.uint64(bits).view(np.float64)


@inlined
def _to_bits(value: float) -> np.uint64:
    """The bits of a float64."""
    return np.float64(value).view(np.uint64)


@compiled
def _leading_zeros(word: np.uint64) -> np.uint64:
    """Zero bits above the highest set bit of a word that is not 0."""
    zeros = ZERO
    for step in (32, 16, 8, 4, 2, 1):
        shift = np.uint64(step)
        if word >> (_64 - shift) == ZERO:
            word = word << shift
            zeros += shift
    return zeros


@compiled
def _multiply(a: np.uint64, b: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Product of two words as (high, low)."""
    a_high, a_low = a >> _32, a & _LOW_HALF
    b_high, b_low = b >> _32, b & _LOW_HALF
    low = a_low * b_low
    middle = a_high * b_low + (low >> _32)
    middle_low = (middle & _LOW_HALF) + a_low * b_high
    high = a_high * b_high + (middle >> _32) + (middle_low >> _32)
    return high, (middle_low << _32) | (low & _LOW_HALF)


@compiled
def _times_power_of_five(word: np.uint64, q: int, refine_mask: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Leading 128 bits of `word` times 5^q; refined where all bits of the mask are set."""
    row = np.uint64(q - _SMALLEST_POWER)
    high, low = _multiply(word, POWERS_OF_FIVE[row, 0])
    if high & refine_mask == refine_mask:
        carry, _ = _multiply(word, POWERS_OF_FIVE[row, 1])
        low += carry
        if low < carry:
            high += ONE
    return high, low


@compiled
def _binary_exponent(q: int) -> int:
    """Floor of log2(10^q), plus 63."""
    return ((152170 + 65536) * q >> 16) + 63


@compiled
def float_bits(mantissa: np.uint64, q: int) -> np.uint64:
    """Bits of the float64 nearest to `mantissa` times 10^q, ties to even; infinity beyond the range."""
    if mantissa == ZERO or q < _SMALLEST_POWER:
        return ZERO
    if q > _LARGEST_READ_POWER:
        return _INFINITY
    zeros = _leading_zeros(mantissa)
    high, low = _times_power_of_five(mantissa << zeros, q, _ALL_ONES >> np.uint64(55))
    upper = high >> _63
    shift = upper + np.uint64(9)
    bits = high >> shift  # 54 bits: the 53 of a double and one to round by
    exponent = _binary_exponent(q) + np.int64(upper) - np.int64(zeros) + 1023
    if exponent <= 0:
        if exponent <= -63:
            return ZERO
        bits >>= np.uint64(1 - exponent)
        # A subnormal that rounds up to 2^52 carries into the exponent field: the smallest normal number.
        return np.uint64((bits + (bits & ONE)) >> ONE)
    if low <= ONE and -4 <= q <= 23 and bits & _THREE == ONE and bits << shift == high:
        bits &= ~ONE  # exactly half way: to even
    bits = (bits + (bits & ONE)) >> ONE
    if bits >= _TWO_TO_53:
        bits = _IMPLICIT_BIT
        exponent += 1
    if exponent >= 0x7FF:
        return _INFINITY
    return np.uint64((bits & _MANTISSA) | (np.uint64(exponent) << np.uint64(52)))


# More than 19 digits: exact comparison


@compiled
def _multiply_add(limbs: npt.NDArray[np.uint64], n_limbs: int, factor: np.uint64, term: np.uint64) -> int:
    """Big integer (32 bits a limb, lowest first) times `factor` plus `term`, in place; its new length."""
    carry = term
    for i in range(n_limbs):
        carry += limbs[i] * factor
        limbs[i] = carry & _LOW_HALF
        carry >>= _32
    if carry != ZERO:
        limbs[n_limbs] = carry
        n_limbs += 1
    return n_limbs


@compiled
def _multiply_by_power(limbs: npt.NDArray[np.uint64], n_limbs: int, base: np.uint64, exponent: int) -> int:
    """Big integer times base^exponent (base at most 5), in place; its new length."""
    while exponent > 0:
        factor = ONE
        for _ in range(min(exponent, 13)):
            factor *= base
        n_limbs = _multiply_add(limbs, n_limbs, factor, ZERO)
        exponent -= 13
    return n_limbs


@compiled
def _load_digits(
    buffer: ByteArray, start: np.uint64, exponent: int, limbs: npt.NDArray[np.uint64]
) -> tuple[int, int]:
    """Digits of a token as a big integer and its power of ten, what follows the decisive ones as a last 1.

    `exponent` is the power of ten written in the token.
    """
    n_limbs = n_digits = 0
    point = tail = False
    i = start
    while True:
        byte = buffer[i]
        i += ONE
        if byte == ord("."):
            point = True
            continue
        if byte < ord("0") or byte > ord("9"):
            break
        digit = np.uint64(byte - ord("0"))
        if n_digits >= _DECISIVE_DIGITS:
            tail |= digit != ZERO
            exponent += 0 if point else 1
            continue
        exponent -= 1 if point else 0
        if n_digits > 0 or digit != ZERO:
            n_limbs = _multiply_add(limbs, n_limbs, TEN, digit)
            n_digits += 1
    if tail:
        n_limbs = _multiply_add(limbs, n_limbs, TEN, ONE)
        exponent -= 1
    return n_limbs, exponent


@compiled
def _compare_half_way(buffer: ByteArray, start: np.uint64, exponent: int, below: np.uint64) -> int:
    """Sign of the token minus the number half way between the float64 with bits `below` and the next one."""
    token = np.zeros(160, np.uint64)
    half_way = np.zeros(160, np.uint64)
    n_token, power = _load_digits(buffer, start, exponent, token)
    biased = int(np.int64(below >> np.uint64(52)))
    mantissa = below & _MANTISSA
    if biased == 0:
        biased = 1
    else:
        mantissa |= _IMPLICIT_BIT
    mantissa = mantissa * TWO + ONE
    half_way[0], half_way[1] = mantissa & _LOW_HALF, mantissa >> _32
    n_half_way = 2 if half_way[1] != ZERO else 1
    n_token = _multiply_by_power(token, n_token, _FIVE, power)
    n_half_way = _multiply_by_power(half_way, n_half_way, _FIVE, -power)
    shift = power - (biased - 1076)
    n_token = _multiply_by_power(token, n_token, TWO, shift)
    n_half_way = _multiply_by_power(half_way, n_half_way, TWO, -shift)
    if n_token != n_half_way:
        return 1 if n_token > n_half_way else -1
    for i in range(n_token - 1, -1, -1):
        if token[i] != half_way[i]:
            return 1 if token[i] > half_way[i] else -1
    return 0


# Tokens


@compiled
def _read_exponent(buffer: ByteArray, position: np.uint64) -> tuple[bool, int, np.uint64]:
    """Digits after an ``e``, with their sign: (are there any, the number cut at a harmless limit, end)."""
    negative = buffer[position] == ord("-")
    if negative or buffer[position] == ord("+"):
        position += ONE
    start = position
    exponent = 0
    while ord("0") <= buffer[position] <= ord("9"):
        if exponent < _EXPONENT_LIMIT:
            exponent = exponent * 10 + int(np.int64(buffer[position])) - _NIL
        position += ONE
    return bool(position > start), -exponent if negative else exponent, position


@compiled
def _read_any(buffer: ByteArray, position: np.uint64) -> tuple[int, float, np.uint64]:
    """Unsigned decimal of any shape: (status, value, end)."""
    start = position
    mantissa = ZERO
    n_kept = n_digits = scale = 0
    point = cut = False
    while True:
        byte = buffer[position]
        if byte == ord(".") and not point:
            point = True
        elif ord("0") <= byte <= ord("9"):
            n_digits += 1
            if n_kept < _KEPT_DIGITS:
                mantissa = mantissa * TEN + np.uint64(byte - ord("0"))
                n_kept += 1 if mantissa != ZERO else 0
                scale -= 1 if point else 0
            else:
                cut |= byte != ord("0")
                scale += 0 if point else 1
        else:
            break
        position += ONE
    if n_digits == 0:
        return MALFORMED, 0.0, position
    exponent = 0
    if buffer[position] == ord("e") or buffer[position] == ord("E"):
        written, exponent, position = _read_exponent(buffer, position + ONE)
        if not written:
            return MALFORMED, 0.0, position
    bits = float_bits(mantissa, scale + exponent)
    if cut and bits != float_bits(mantissa + ONE, scale + exponent):
        side = _compare_half_way(buffer, start, exponent, bits)
        if side > 0 or (side == 0 and bits & ONE == ONE):
            bits += ONE
    if bits >= _INFINITY:
        return TOO_LARGE, 0.0, position
    return OK, _from_bits(bits), position


@compiled
def read_decimal(buffer: ByteArray, position: np.uint64) -> tuple[int, float, np.uint64]:
    """Read the number ``[+-]?(d+(.d*)?|.d+)([eE][+-]?d+)?`` that starts at a position: (status, value, end).

    At least ``PADDING`` bytes follow the token. The status is ``OK``, ``MALFORMED`` or ``TOO_LARGE``, the
    value the nearest float64, ties to even, 0 below half the smallest one. The end is the first byte after
    the number: whether it may stand there is for the caller to say.
    """
    byte = buffer[position]
    negative = byte == _MINUS
    if negative or byte == _PLUS:
        position += ONE
    status, value, end = _read_any(buffer, position)
    return status, -value if negative else value, end


def parse_decimal(token: bytes) -> tuple[int, float, int]:
    """Read a number at the start of a token, as `read_decimal` does."""
    buffer = np.frombuffer(token + b"\n" + bytes(PADDING), dtype=np.uint8).copy()
    status, value, end = read_decimal(buffer, ZERO)
    return int(status), float(value), int(end)


# Shortest decimals


@compiled
def _round_to_digits(bits: np.uint64, n_digits: int) -> tuple[np.uint64, int]:
    """Positive float64 rounded to `n_digits` (1 to 17) digits: an integer and its power of ten."""
    biased = int(np.int64(bits >> np.uint64(52)))
    mantissa = bits & _MANTISSA
    if biased == 0:
        biased = 1
    else:
        mantissa |= _IMPLICIT_BIT
    zeros = _leading_zeros(mantissa)
    leading = 63 - int(np.int64(zeros)) + biased - 1075  # power of two of the highest bit
    # Floor of leading * log10(2): the decade of the number, or the one below.
    decade = leading * 1292913986 >> 32
    limit = _INTEGER_POWERS_OF_TEN[n_digits]
    q = n_digits - 1 - decade
    while True:
        high, low = _times_power_of_five(mantissa << zeros, q, ZERO)
        # The number times 10^q is high times 2^-drop; its decimal digits fit in 60 bits.
        drop = np.uint64(125 - _binary_exponent(q) - leading)
        rounded = high >> drop
        rest = high & ((ONE << drop) - ONE)
        half = ONE << (drop - ONE)
        if rest > half or (rest == half and (low > ZERO or rounded & ONE == ONE)):
            rounded += ONE
        if rounded < limit:
            return rounded, -q
        q -= 1


@compiled
def _reads_as(mantissa: np.uint64, exponent: int, value: float, single: bool) -> bool:
    """Does ``mantissa * 10**exponent`` read back as this float64, or float32?"""
    again = _from_bits(float_bits(mantissa, exponent))
    return again == value or (single and np.float32(again) == np.float32(value))


@compiled
def shortest_decimal(value: float, single: bool) -> tuple[np.uint64, int]:
    """Fewest digits that read back as the same number, finite and positive, as mantissa and power of ten.

    If `single`, the number is a float32, and need only read back as this float32 (through the nearest
    float64). The last digit of the mantissa is not 0.
    """
    bits = _to_bits(value)
    first, last = (6, 9) if single else (15, 17)
    if value < (_SMALLEST_SINGLE if single else _SMALLEST_DOUBLE):
        first = 1  # subnormal: fewer digits tell them apart
    mantissa, exponent = ZERO, 0
    for n_digits in range(first, last + 1):
        mantissa, exponent = _round_to_digits(bits, n_digits)
        if _reads_as(mantissa, exponent, value, single):
            break
        # Above a power of two the floats lie twice as far apart as below it.
        if _reads_as(mantissa + ONE, exponent, value, single):
            mantissa += ONE
            break
    while mantissa % TEN == ZERO:
        mantissa //= TEN
        exponent += 1
    return mantissa, exponent

"""Kernel values against their formulas in float64, for all kernels, types of values and shapes of sets."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.kernel_data import KERNELS, Rows, make_rows, plain_values
from helpers.thinning import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from ooc_svm.ops import gram
from ooc_svm.ops.compiled import compiled
from ooc_svm.ops.kernel_values import EXP_ULPS, power_of_two, tangent
from ooc_svm.ops.kernels import (
    Gaussian,
    GaussianOfFullRows,
    Linear,
    OfWholeNumbers,
    Polynomial,
    Sigmoid,
    for_rows,
    in_precision,
)

PRECISIONS = (np.float32, np.float64)


@compiled
def _each_power(x, out):
    for i in range(len(x)):
        out[i] = power_of_two(x[i])


@compiled
def _each_tangent(x, out):
    for i in range(len(x)):
        out[i] = tangent(x[i])


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize(
    ("function", "exact", "ulps", "least", "most"),
    [
        (_each_power, np.exp2, EXP_ULPS, -115.0, 115.0),
        (_each_power, np.exp2, EXP_ULPS, -1e-3, 1e-3),
        (_each_tangent, np.tanh, 2.0 * EXP_ULPS, -12.0, 12.0),
        (_each_tangent, np.tanh, 2.0 * EXP_ULPS, -1e-3, 1e-3),
    ],
)
def test_functions_are_right_to_the_last_places(function, exact, ulps, least, most, dtype):
    x = np.linspace(least, most, 200_001).astype(dtype)
    found = np.empty_like(x)
    function(x, found)
    expected = exact(x.astype(np.longdouble))
    error = np.abs(found - expected) / np.spacing(np.abs(expected).astype(dtype))
    assert error.max() <= ulps


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_functions_keep_inside_their_ranges(dtype):
    x = np.array([-1e30, -1000.0, -0.0, 0.0, 1000.0, 1e30]).astype(dtype)
    powers, tangents = np.empty_like(x), np.empty_like(x)
    _each_power(x, powers)
    _each_tangent(x, tangents)
    assert (powers[:2] >= 0.0).all()
    assert (powers[:2] < 1e-37).all()
    assert (powers[2:4] == 1.0).all()
    assert (powers[4:] > 1e38).all()
    assert tangents.tolist() == [-1.0, -1.0, 0.0, 0.0, 1.0, 1.0]


def sums_of(kernel, rows: Rows, of: Rows, coefficients, scale, dtype, first=0, last=None):
    """`add_values` for some rows; rows are those of a block, ``of`` those of the set."""
    last = rows.n_rows if last is None else last
    scale2 = None if scale is None else scale**2
    buffers = gram.new_buffers(of.block.indptr, rows.n_features, dtype)
    out = np.zeros((len(coefficients), last - first))
    gram.add_values(
        in_precision(kernel, dtype), *rows.block.arrays, np.arange(first, last, dtype=np.uint64),
        rows.squares(scale)[first:last],
        *of.block.arrays, of.squares(scale), scale2, coefficients, *buffers, out,
    )  # fmt: skip
    assert not buffers[0].any()
    return out


def values_of(kernel, rows: Rows, of: Rows, scale, dtype):
    scale2 = None if scale is None else scale**2
    buffers = gram.new_buffers(of.block.indptr, rows.n_features, dtype)
    out = np.empty((rows.n_rows, of.n_rows), dtype)
    gram.fill_values(
        in_precision(kernel, dtype), *rows.block.arrays, np.arange(rows.n_rows, dtype=np.uint64),
        rows.squares(scale),
        *of.block.arrays, of.squares(scale), scale2, *buffers, out,
    )  # fmt: skip
    return out


# Each is compiled apart: kernel, precision, values of the rows, whether columns are scaled.
COMPILED = [
    *((kernel, np.float32, "float32", False) for kernel in KERNELS),
    *((Gaussian(0.3), dtype, "ones", False) for dtype in PRECISIONS),
    (Gaussian(0.3), np.float64, "float64", True),
    *((GaussianOfFullRows(0.3), dtype, "float32", False) for dtype in PRECISIONS),
    (Polynomial(0.2, 0.5, 3), np.float32, "float32", True),
    (Sigmoid(0.1, -0.2), np.float64, "float32", False),
]


@pytest.mark.parametrize(("kernel", "dtype", "kind", "scaled"), COMPILED)
@given(
    n_rows=st.integers(1, 40),
    n_features=st.integers(1, 30),
    density=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    n_of=st.sampled_from([0, 1, 127, 128, 129, 300]),
    seed=st.integers(0, 1000),
)
@settings(deadline=None, max_examples=examples(40))
def test_values_are_those_of_the_formula(
    kernel, dtype, kind, scaled, n_rows, n_features, density, n_of, seed
):
    rows = make_rows(n_rows, n_features, density, kind, seed)
    of = make_rows(n_of, rows.n_features, 0.4, rows.kind, 7)
    scale = np.linspace(0.5, 1.5, rows.n_features) if scaled else None
    expected = plain_values(kernel, rows, of, scale)
    tolerance = 1e-6 if dtype == np.float32 else 1e-14
    sizes = plain_values(kernel, rows, of, scale, magnitudes=True)
    found = values_of(kernel, rows, of, scale, dtype)
    assert (np.abs(found - expected) <= tolerance * (1.0 + sizes)).all()
    coefficients = np.random.default_rng(3).normal(size=(2, n_of))
    sums = sums_of(kernel, rows, of, coefficients, scale, dtype)
    bound = np.abs(coefficients) @ (tolerance * (1.0 + sizes)).T + 1e-13
    assert (np.abs(sums - coefficients @ expected.T) <= bound).all()


def looked_up(kernel, rows: Rows, of: Rows):
    """Values of `fill_values` from a table."""
    near, far = rows.squares(None), of.squares(None)
    buffers = gram.new_buffers(of.block.indptr, rows.n_features, np.uint8)
    places, out = np.arange(rows.n_rows, dtype=np.uint64), np.empty((rows.n_rows, of.n_rows))
    gram.fill_values(kernel, *rows.block.arrays, places, near, *of.block.arrays, far, None, *buffers, out)
    assert not buffers[0].any()
    return out


@pytest.mark.parametrize("kernel", [*KERNELS, Linear()], ids=lambda each: type(each).__name__)
@pytest.mark.parametrize(("n_features", "density"), [(30, 0.4), (30, 0.0), (700, 0.9), (3000, 0.3)])
def test_values_of_rows_of_ones_are_looked_up(kernel, n_features, density):
    rows, of = (make_rows(n, n_features, density, "ones", n) for n in (40, 150))
    most = float(rows.squares(None).max() + of.squares(None).max())
    table = gram.table_of(kernel, most)
    assert isinstance(table, OfWholeNumbers)
    found = looked_up(table, rows, of)
    np.testing.assert_allclose(found, plain_values(kernel, rows, of), rtol=1e-13, atol=1e-300)
    if density == 0.9:
        assert plain_values(Linear(), rows, of).min() > 2 * gram.MOST_COUNTED


def test_rows_too_long_for_a_table_are_computed():
    assert gram.table_of(Gaussian(0.1), gram.LONGEST_TABLE) is None
    assert len(gram.table_of(Gaussian(0.1), gram.LONGEST_TABLE - 1).table) == gram.LONGEST_TABLE


def test_rows_that_are_none_of_ones_are_kept_inside_the_table():
    rows = make_rows(40, 30, 0.9, "ones", 3)
    found = looked_up(gram.table_of(Gaussian(0.1), 3.0), rows, rows)
    assert (found <= 1.0).all()
    assert (found >= np.exp(-0.3)).all()


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda each: type(each).__name__)
def test_tiles_and_company_change_no_bit(kernel):
    rows, of = make_rows(90, 25, 0.3, "float32", 1), make_rows(200, 25, 0.3, "float32", 2)
    coefficients = np.random.default_rng(0).normal(size=(3, 200))
    whole = sums_of(kernel, rows, of, coefficients, None, np.float32)
    parts = [sums_of(kernel, rows, of, coefficients, None, np.float32, *part) for part in ((0, 17), (17, 90))]
    assert np.array_equal(whole, np.hstack(parts))
    for k in range(3):
        assert np.array_equal(
            whole[k], sums_of(kernel, rows, of, coefficients[k : k + 1], None, np.float32)[0]
        )


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda each: type(each).__name__)
def test_one_row_and_the_diagonal(kernel):
    scaled = isinstance(kernel, Gaussian)
    rows = make_rows(50, 12, 0.5, "float64", 4)
    scale = np.linspace(0.5, 1.5, 12) if scaled else None
    expected, squares = plain_values(kernel, rows, rows, scale), rows.squares(scale)
    z = rows.dense[3] * (1.0 if scale is None else scale**2)
    out, base = np.empty((2, 50))
    gram.row_values(kernel, *rows.block.arrays, squares, z, squares[3], base, out)
    np.testing.assert_allclose(out, expected[:, 3], rtol=1e-13, atol=1e-13)
    gram.own_values(kernel, squares, base, out)
    np.testing.assert_allclose(out, np.diag(expected), rtol=1e-13)


def test_columns_that_only_others_have_count_for_the_distance():
    rows, of = make_rows(20, 1000, 0.02, "ones", 5), make_rows(3, 1000, 0.02, "ones", 6)
    found = values_of(Gaussian(0.1), rows, of, None, np.float64)
    np.testing.assert_allclose(found, plain_values(Gaussian(0.1), rows, of), rtol=1e-14)


def test_overflow_is_infinite_and_no_error():
    rows = make_rows(4, 3, 1.0, "float32", 8)
    found = values_of(Polynomial(1e30, 0.0, 40), rows, rows, None, np.float32)
    assert not np.isfinite(found).all()


def test_distances_of_full_rows_keep_their_digits_far_from_0():
    rows, of = (
        Rows(
            sparse.csr_array((make_rows(n, 9, 1.0, "float32", n).dense + 1000.0).astype("float32")), "float32"
        )
        for n in (40, 150)
    )
    expected = plain_values(Gaussian(0.5), rows, of)
    assert np.abs(values_of(GaussianOfFullRows(0.5), rows, of, None, np.float32) - expected).max() < 1e-6
    assert np.abs(values_of(Gaussian(0.5), rows, of, None, np.float32) - expected).max() > 1e-3


@pytest.mark.parametrize(
    "kernel", [Gaussian(0.3), GaussianOfFullRows(0.3)], ids=lambda each: type(each).__name__
)
@pytest.mark.parametrize("n_rows", [1, 127, 128, 129, 300])
@pytest.mark.parametrize("blocks", [1, 2, 3])
def test_each_value_of_a_set_with_itself_serves_two_rows(kernel, n_rows, blocks):
    rows, coefficients = (
        make_rows(n_rows, 9, 0.8, "float32", 11),
        np.random.default_rng(1).normal(size=n_rows),
    )
    sums, mirrored, width = np.zeros(n_rows), np.zeros(n_rows), blocks * gram.BLOCK
    for first in range(0, n_rows, width):
        last = min(first + width, n_rows)
        for part in range(2):
            own = np.arange(part, n_rows, 2)
            own = own[own >= first]
            out = sums[own]
            gram.add_symmetric_values(
                kernel, *rows.block.arrays, rows.squares(), None, coefficients, own.astype(np.uint64),
                first, last, *gram.new_buffers(rows.block.indptr, 9, np.float64), out, mirrored[first:last],
            )  # fmt: skip
            sums[own] = out
    expected = plain_values(kernel, rows, rows) @ coefficients
    np.testing.assert_allclose(sums + mirrored, expected, rtol=1e-12, atol=1e-12)
    assert not mirrored[-(n_rows % gram.BLOCK or gram.BLOCK) :].any()


@pytest.mark.parametrize(
    ("n_nonzeros", "value_type", "scaled", "full"),
    [
        (75, "float32", False, True),
        (74, "float32", False, False),
        (100, "float64", False, False),
        (100, "ones", False, False),
        (100, "float32", True, False),
    ],
)
def test_differences_are_for_full_rows_of_float32(n_nonzeros, value_type, scaled, full):
    found = for_rows(Gaussian(0.5), n_nonzeros, 100, value_type, scaled)
    assert isinstance(found, GaussianOfFullRows) == full
    assert type(for_rows(Sigmoid(0.5, 0.0), 100, 100, "float32", False)) is Sigmoid

"""What is certified: the upper end of P against the lower end of D, whatever rounding has done."""

from __future__ import annotations

import numpy as np
import pytest

from ooc_svm.errors import InputError, InternalError
from ooc_svm.solvers.certificate import Certificate
from ooc_svm.solvers.stopping import CERTIFIED, MAX_PASSES, Stopping


def certificate(primal, dual, primal_rounding=0.0, dual_rounding=0.0):
    found = Certificate()
    found.offer_primal(primal, primal_rounding)
    found.offer_dual(dual, dual_rounding)
    return found


def test_the_pair_with_the_smaller_upper_end_is_kept():
    found = certificate(1.0, 0.0, 0.5)
    assert not found.offer_primal(0.9, 0.7)
    assert (found.primal, found.primal_rounding, found.upper) == (1.0, 0.5, 1.5)
    assert found.offer_primal(1.1, 0.2)
    assert (found.primal, found.primal_rounding, found.upper) == (1.1, 0.2, pytest.approx(1.3))
    assert not found.offer_primal(np.nan, 0.0)
    assert not found.offer_primal(1.0, np.inf)


def test_the_pair_with_the_larger_lower_end_is_kept():
    found = certificate(9.0, 1.0, 0.0, 0.5)
    assert not found.offer_dual(1.1, 0.7)
    assert found.offer_dual(0.9, 0.1)
    assert (found.dual, found.dual_rounding, found.lower) == (0.9, 0.1, pytest.approx(0.8))


def test_a_value_of_the_moment_takes_the_place_of_a_larger_one():
    found = certificate(9.0, 1.0)
    found.set_dual(0.5, 0.25)
    assert (found.dual, found.dual_rounding) == (0.5, 0.25)
    with pytest.raises(InputError, match="non-finite"):
        found.set_dual(np.nan, 0.0)


def test_the_gaps_are_those_of_the_ends():
    found = certificate(10.0, 9.0, 0.5, 0.25)
    assert (found.gap, found.rounding) == (1.75, 0.75)
    assert found.relative_gap == 1.75 / 10.5
    found.record(Stopping(0.16, max_passes=1))
    assert found.stop_reason == MAX_PASSES
    assert not found.absolute


def test_rounding_keeps_a_run_from_its_tolerance():
    """The values agree to the last bit, and the truth may still be further off than was asked for."""
    found = certificate(1.0, 1.0, 1e-5, 0.0)
    found.record(Stopping(1e-6))
    assert found.stop_reason is None
    found = certificate(1.0, 1.0, 1e-7, 0.0)
    found.record(Stopping(1e-6))
    assert found.stop_reason == CERTIFIED


@pytest.mark.parametrize("ends", [(1.0, -np.inf), (np.inf, 0.0), (np.inf, -np.inf)])
def test_a_gap_without_end_is_not_certified(ends):
    assert not Stopping(0.5).certifies(*ends)


def test_a_gap_below_zero_within_rounding_is_certified():
    found = certificate(1.0, 1.0 + 1e-12, 1e-12, 1e-12)
    found.record(Stopping(1e-9))
    assert found.stop_reason == CERTIFIED
    assert found.gap >= 0.0


def test_a_gap_below_zero_beyond_rounding_is_our_mistake():
    found = certificate(1.0, 1.5, 0.1, 0.1)
    with pytest.raises(InternalError, match=r"D = 1\.5 is above .* P = 1\.0 .*pass 1.*report") as error:
        found.record(Stopping(1e-3))
    assert error.value.exit_code == 1
    assert (found.stop_reason, found.history) == (None, [])


@pytest.mark.parametrize(
    ("values", "absolute"),
    [
        ((0.0, 0.0), True),
        ((1e-18, 0.0, 1e-16), True),
        ((1e-18, 1e-17, 1e-16, 1e-16), True),
        ((0.0, -1.0), False),
        ((1e-15, 0.0, 1e-16), False),
        ((1.0, 1.0), False),
    ],
)
def test_a_value_of_zero_within_rounding_ends_the_run(values, absolute):
    found = certificate(*values)
    assert found.absolute is (absolute and found.rounding == 0.0)  # The losses are not known
    found.scale = 1.0
    assert found.absolute is absolute
    found.record(Stopping(0.0))
    assert (found.stop_reason == CERTIFIED) is (absolute or found.gap == 0.0)


def test_a_value_that_rounding_hides_is_not_called_zero():
    found = certificate(1e-3, 0.0, 1e-2)
    found.scale = 1e5
    assert not found.absolute
    found.scale = 1e8
    assert found.absolute


def test_values_are_plain_floats():
    found = certificate(np.float64(2.0), np.float64(1.0), np.float64(0.1), np.float64(0.1))
    found.record(Stopping())
    assert {type(x) for row in found.history for x in row[1:]} == {float}
    assert type(found.primal) is type(found.dual_rounding) is float


@pytest.mark.parametrize(
    "values", [(np.inf, 0.0), (np.nan, 0.0), (1.0, -np.inf), (1.0, np.inf), (1.0, 0.0, np.inf)]
)
def test_values_that_overflow_are_said(values):
    with pytest.raises(InputError, match="non-finite objective in pass 1"):
        certificate(*values).record(Stopping())


def test_a_bound_that_is_no_number_is_said():
    with pytest.raises(InputError, match="non-finite objective in pass 1"):
        certificate(1.0, np.nan)

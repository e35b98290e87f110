"""The largest number of an array, found by comparing whole vectors.

Numba compares one number at a time, and a processor waits for each comparison. The answer is the same: the
first of the largest numbers.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from ooc_svm.ops.intrinsics import address_of_vector, repeated

LANES = 16  # Numbers that are compared at a time; lengths of arrays are multiples of it

_INDEX, _LANE = ir.IntType(64), ir.IntType(32)


def _first_largest(_: Any, numbers: Any) -> Any:
    """Place of the first of the largest numbers; 0 where none is above minus infinity.

    ``numbers``: float32 or float64, contiguous, of a length that is a multiple of `LANES`.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        memory = context.make_array(numbers)(context, builder, arguments[0])
        number = context.get_value_type(numbers.dtype)
        vector, align = ir.VectorType(number, LANES), numbers.dtype.bitwidth // 8
        places = ir.VectorType(_INDEX, LANES)
        begin = builder.block
        test, body, end = (builder.append_basic_block(name) for name in ("test", "body", "end"))
        builder.branch(test)
        builder.position_at_end(test)
        t, best, at = builder.phi(_INDEX), builder.phi(vector), builder.phi(places)
        builder.cbranch(builder.icmp_unsigned("<", t, memory.nitems), body, end)
        builder.position_at_end(body)
        own = builder.load(address_of_vector(builder, memory.data, t, vector), align=align)
        here = repeated(builder, t, places)
        larger = builder.fcmp_ordered(">", own, best)
        t.add_incoming(_INDEX(0), begin)
        t.add_incoming(builder.add(t, _INDEX(LANES)), body)
        best.add_incoming(ir.Constant(vector, [float("-inf")] * LANES), begin)
        best.add_incoming(builder.select(larger, own, best), body)
        at.add_incoming(ir.Constant(places, [0] * LANES), begin)
        at.add_incoming(builder.select(larger, here, at), body)
        builder.branch(test)
        builder.position_at_end(end)
        return _first_of_lanes(builder, best, at)

    return types.uint64(numbers), generate


def _first_of_lanes(builder: Any, best: Any, at: Any) -> Any:
    """The smallest place among those of the lanes that have the largest number."""
    value = builder.extract_element(best, _LANE(0))
    place = builder.extract_element(at, _LANE(0))
    for lane in range(1, LANES):
        other = builder.extract_element(best, _LANE(lane))
        there = builder.add(builder.extract_element(at, _LANE(lane)), _INDEX(lane))
        equal = builder.fcmp_ordered("==", other, value)
        earlier = builder.and_(equal, builder.icmp_unsigned("<", there, place))
        taken = builder.or_(builder.fcmp_ordered(">", other, value), earlier)
        value, place = builder.select(taken, other, value), builder.select(taken, there, place)
    return place


first_largest: Any = intrinsic(_first_largest)

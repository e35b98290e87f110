"""Products of a sparse row with a dense block, and weighted sums, with whole vectors in registers.

Numba would keep the partial sums of such loops in memory, and read and write them at each step. Here they are
values of LLVM's vector types, which stay in registers for the length of a row; a block is worked on in parts
that fit. Every multiplication is fused with its addition (`llvm.fma`), in one fixed order, so the bits are
the same on every processor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from ooc_svm.ops.intrinsics import address_of_vector, repeated

WIDTH = 128  # Numbers in a row of a block
PART_BYTES = 256  # Of a row of a block, that are worked on together: they fit the registers of a processor
LANES = 16  # Interleaved partial sums of a weighted sum
SUM_ROUNDINGS = WIDTH // LANES + LANES.bit_length() - 1  # That a term of a weighted sum goes through

_INDEX, _LANE = ir.IntType(64), ir.IntType(32)


def _array(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """Address of the first element of an array."""
    return context.make_array(kind)(context, builder, value).data


def _fused(builder: Any, factors: Any, others: Any, added: Any) -> Any:
    """``factors * others + added``, rounded once; llvmlite has this function for scalars alone."""
    vector = factors.type
    bits = 32 if isinstance(vector.element, ir.FloatType) else 64
    name = f"llvm.fma.v{vector.count}f{bits}"
    function = builder.module.globals.get(name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(vector, [vector] * 3), name)
    return builder.call(function, [factors, others, added])


def _sum(builder: Any, vector: Any, count: Any, add: Callable[[Any, Any], Any]) -> Any:
    """Vector of sums over ``t < count``, where ``add(t, sums)`` makes the next sums of those so far."""
    begin = builder.block
    test, body, end = (builder.append_basic_block(name) for name in ("test", "body", "end"))
    builder.branch(test)
    builder.position_at_end(test)
    t, sums = builder.phi(_INDEX), builder.phi(vector)
    builder.cbranch(builder.icmp_unsigned("<", t, count), body, end)
    builder.position_at_end(body)
    added = add(t, sums)
    t.add_incoming(_INDEX(0), begin)
    t.add_incoming(builder.add(t, _INDEX(1)), body)
    sums.add_incoming(ir.Constant(vector, None), begin)
    sums.add_incoming(added, body)
    builder.branch(test)
    builder.position_at_end(end)
    return sums


def _part(context: Any, Z: Any) -> tuple[Any, int]:
    """Type of a part of a row of a block, and the alignment of its numbers."""
    align = Z.dtype.bitwidth // 8
    return ir.VectorType(context.get_value_type(Z.dtype), PART_BYTES // align), align


def _row_products(_: Any, places: Any, factors: Any, count: Any, Z: Any, out: Any) -> Any:
    """``out = sum_t factors[t] Z[places[t]]`` over ``t < count``; factors that are None are all 1.

    ``places``: of uint32.
    ``factors``, ``Z`` of shape (rows, WIDTH), ``out`` of shape (WIDTH,): of one type.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector, align = _part(context, Z)
        has_factors = isinstance(factors, types.Array)
        rows, block, result = (_array(context, builder, signature.args[k], arguments[k]) for k in (0, 3, 4))
        x = _array(context, builder, factors, arguments[1]) if has_factors else None

        def add(t: Any, sums: Any) -> Any:
            place = builder.zext(builder.load(builder.gep(rows, [t])), _INDEX)
            place = builder.add(builder.mul(place, _INDEX(WIDTH)), _INDEX(first))
            own = builder.load(address_of_vector(builder, block, place, vector), align=align)
            if x is None:
                return builder.fadd(sums, own)
            return _fused(builder, repeated(builder, builder.load(builder.gep(x, [t])), vector), own, sums)

        for first in range(0, WIDTH, vector.count):
            sums = _sum(builder, vector, arguments[2], add)
            builder.store(sums, address_of_vector(builder, result, _INDEX(first), vector), align=align)
        return context.get_dummy_value()

    return types.void(places, factors, types.uint64, Z, out), generate


def _row_distances(_: Any, x: Any, count: Any, Z: Any, out: Any) -> Any:
    """``out = sum_t (x[t] - Z[t + 1])^2`` over ``t < count``; the arguments are those of `row_products`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector, align = _part(context, Z)
        own, block, result = (_array(context, builder, signature.args[k], arguments[k]) for k in (0, 2, 3))

        def add(t: Any, sums: Any) -> Any:
            place = builder.add(builder.mul(t, _INDEX(WIDTH)), _INDEX(WIDTH + first))
            other = builder.load(address_of_vector(builder, block, place, vector), align=align)
            number = repeated(builder, builder.load(builder.gep(own, [t])), vector)
            difference = builder.fsub(number, other)
            return _fused(builder, difference, difference, sums)

        for first in range(0, WIDTH, vector.count):
            sums = _sum(builder, vector, arguments[1], add)
            builder.store(sums, address_of_vector(builder, result, _INDEX(first), vector), align=align)
        return context.get_dummy_value()

    return types.void(x, types.uint64, Z, out), generate


def _row_counts(_: Any, places: Any, first: Any, last: Any, Z: Any, out: Any) -> Any:
    """``out = sum_t Z[places[t]]`` over ``first <= t < last``, in bytes, which hold 255 ones.

    ``places``: of uint32. ``Z`` of shape (rows, WIDTH), ``out`` of shape (WIDTH,): of uint8.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        vector = ir.VectorType(ir.IntType(8), WIDTH)
        rows, block, result = (_array(context, builder, signature.args[k], arguments[k]) for k in (0, 3, 4))
        rows = builder.gep(rows, [arguments[1]])

        def add(t: Any, sums: Any) -> Any:
            place = builder.zext(builder.load(builder.gep(rows, [t])), _INDEX)
            place = builder.mul(place, _INDEX(WIDTH))
            return builder.add(sums, builder.load(address_of_vector(builder, block, place, vector), align=1))

        sums = _sum(builder, vector, builder.sub(arguments[2], arguments[1]), add)
        builder.store(sums, address_of_vector(builder, result, _INDEX(0), vector), align=1)
        return context.get_dummy_value()

    return types.void(places, types.uint64, types.uint64, Z, out), generate


def _weighted_sum(_: Any, values: Any, weights: Any, row: Any) -> Any:
    """``sum_k values[k] weights[row, k]`` over ``k < WIDTH``, in float64: `LANES` partial sums, then halves.

    ``values``: float32 or float64 of shape (WIDTH,). ``weights``: float64 of shape (rows, WIDTH).
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        narrow = ir.VectorType(context.get_value_type(values.dtype), LANES)
        wide, align = ir.VectorType(ir.DoubleType(), LANES), values.dtype.bitwidth // 8
        own = _array(context, builder, values, arguments[0])
        factors = _array(context, builder, weights, arguments[1])
        factors = builder.gep(factors, [builder.mul(arguments[2], _INDEX(WIDTH))])
        sums = ir.Constant(wide, [0.0] * LANES)
        for k in range(0, WIDTH, LANES):
            value = builder.load(address_of_vector(builder, own, _INDEX(k), narrow), align=align)
            weight = builder.load(address_of_vector(builder, factors, _INDEX(k), wide), align=8)
            value = value if narrow == wide else builder.fpext(value, wide)
            sums = _fused(builder, value, weight, sums)
        while sums.type.count > 1:
            half = sums.type.count // 2
            unknown, kind = ir.Constant(sums.type, ir.Undefined), ir.VectorType(_LANE, half)
            low, high = ([*range(half)], [*range(half, 2 * half)])
            sums = builder.fadd(
                *(builder.shuffle_vector(sums, unknown, ir.Constant(kind, part)) for part in (low, high))
            )
        return builder.extract_element(sums, _LANE(0))

    return types.float64(values, weights, types.uint64), generate


row_products: Any = intrinsic(_row_products)
row_distances: Any = intrinsic(_row_distances)
row_counts: Any = intrinsic(_row_counts)
weighted_sum: Any = intrinsic(_weighted_sum)

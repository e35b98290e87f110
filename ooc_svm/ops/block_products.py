"""Products of a sparse row with a dense block, and weighted sums, with whole vectors in registers.

Numba would keep the partial sums of such loops in memory, and read and write them at each step. Here they are
values of LLVM's vector types, which stay in registers for the length of a row, a part of the block at a time. Every multiplication is fused
with its addition (`llvm.fma`), in one fixed order, so the bits are the same on every processor.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from ooc_svm.ops.intrinsics import address_of_vector, repeated

WIDTH = 128  # Numbers in a row of a block
REGISTER_BYTES = 256  # Of partial sums that are added up together: they fit the registers of every processor
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


def _row_products(_: Any, places: Any, factors: Any, count: Any, Z: Any, out: Any) -> Any:
    """``out = sum_t factors[t] Z[places[t]]`` over ``t < count``; factors that are None are all 1.

    ``places``: of uint32.
    ``factors``, ``Z`` of shape (rows, WIDTH), ``out`` of shape (WIDTH,): of one type.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = context.get_value_type(Z.dtype)
        align = Z.dtype.bitwidth // 8
        vector = ir.VectorType(number, REGISTER_BYTES // align)
        has_factors = isinstance(factors, types.Array)
        rows, block, result = (_array(context, builder, signature.args[k], arguments[k]) for k in (0, 3, 4))
        x = _array(context, builder, factors, arguments[1]) if has_factors else None
        for first in range(0, WIDTH, vector.count):
            begin = builder.block
            test, body, end = (builder.append_basic_block(name) for name in ("test", "body", "end"))
            builder.branch(test)
            builder.position_at_end(test)
            t, sums = builder.phi(_INDEX), builder.phi(vector)
            builder.cbranch(builder.icmp_unsigned("<", t, arguments[2]), body, end)
            builder.position_at_end(body)
            place = builder.mul(builder.zext(builder.load(builder.gep(rows, [t])), _INDEX), _INDEX(WIDTH))
            address = address_of_vector(builder, block, builder.add(place, _INDEX(first)), vector)
            own = builder.load(address, align=align)
            if x is None:
                added = builder.fadd(sums, own)
            else:
                factor = repeated(builder, builder.load(builder.gep(x, [t])), vector)
                added = _fused(builder, factor, own, sums)
            t.add_incoming(_INDEX(0), begin)
            t.add_incoming(builder.add(t, _INDEX(1)), body)
            sums.add_incoming(ir.Constant(vector, [0.0] * vector.count), begin)
            sums.add_incoming(added, body)
            builder.branch(test)
            builder.position_at_end(end)
            builder.store(sums, address_of_vector(builder, result, _INDEX(first), vector), align=align)
        return context.get_dummy_value()

    return types.void(places, factors, types.uint64, Z, out), generate


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
weighted_sum: Any = intrinsic(_weighted_sum)

"""Instructions of the processor that Numba has no function for."""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

MASK_BYTES = 32
"""Bytes that a mask of `byte_mask` covers."""

_INT = ir.IntType(32)
# Arguments of llvm.prefetch: a read, kept in all caches, data.
_PREFETCH = (_INT(0), _INT(3), _INT(1))


def _prefetch(_: Any, array: Any, position: Any) -> Any:
    """Bring the cache line of an element nearer; ``position`` counts along the memory, by the first stride.

    Nothing waits for it, and nothing fails where there is no such element. It serves rows that come in an
    order that no processor can guess.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind, place = signature.args[0], arguments[1]
        memory = context.make_array(kind)(context, builder, arguments[0])
        if kind.layout != "C":
            stride = builder.sdiv(builder.extract_value(memory.strides, 0), memory.itemsize)
            place = builder.mul(place, stride)
        address = builder.bitcast(builder.gep(memory.data, [place]), ir.IntType(8).as_pointer())
        of = ir.FunctionType(ir.VoidType(), [address.type, _INT, _INT, _INT])
        function = builder.module.declare_intrinsic("llvm.prefetch", [address.type], of)
        builder.call(function, [address, *_PREFETCH])
        return context.get_dummy_value()

    return types.void(array, position), generate


def _load(context: Any, builder: Any, signature: Any, arguments: Any, kind: Any) -> Any:
    """Load a value of an LLVM type from a position of a buffer, aligned or not; nothing is tested."""
    buffer = context.make_array(signature.args[0])(context, builder, arguments[0])
    address = builder.gep(buffer.data, [arguments[1]])
    return builder.load(builder.bitcast(address, kind.as_pointer()), align=1)


def _load_bytes(_: Any, buffer: Any, position: Any) -> Any:
    """Eight bytes from a position as one word, the first one lowest."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _load(context, builder, signature, arguments, ir.IntType(64))

    return types.uint64(buffer, types.uint64), generate


def _count_trailing_zeros(_: Any, word: Any) -> Any:
    """Zero bits below the lowest set bit; 64 where there is none."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), generate


def _reinterpreted(value: Any, result: Any) -> Any:
    """The same bits as a number of another type of the same width."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(signature.return_type))

    return result(value), generate


def _bits_of(_: Any, number: Any) -> Any:
    """The bits of a float32 or float64 as an integer."""
    return _reinterpreted(number, types.int32 if number == types.float32 else types.int64)


def _number_of_bits(_: Any, bits: Any) -> Any:
    """The float32 or float64 with the bits of an int32 or int64."""
    return _reinterpreted(bits, types.float32 if bits == types.int32 else types.float64)


def _fused(_: Any, factor: Any, other: Any, added: Any) -> Any:
    """``factor * other + added``, rounded once; all are float32 or all are float64."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return factor(factor, factor, factor), generate


def address_of_vector(builder: Any, start: Any, position: Any, vector: Any) -> Any:
    """Address of a vector of elements; loads and stores of it are told the alignment of one."""
    return builder.bitcast(builder.gep(start, [position]), vector.as_pointer())


def repeated(builder: Any, number: Any, vector: Any) -> Any:
    """A vector with one number in all places."""
    unknown = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(unknown, number, _INT(0))
    places = ir.Constant(ir.VectorType(_INT, vector.count), [0] * vector.count)
    return builder.shuffle_vector(first, unknown, places)


def byte_mask(first: int, last: int, *, outside: bool = False) -> Any:
    """An intrinsic that finds bytes among the `MASK_BYTES` bytes from a position: ``mask(buffer, position)``.

    Bit k is set where byte k is in the range ``first .. last``, the last one included; with `outside` where
    it is not.
    """

    def mask(_: Any, buffer: Any, position: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = ir.VectorType(ir.IntType(8), MASK_BYTES)
            window = _load(context, builder, signature, arguments, kind)
            distance = builder.sub(window, ir.Constant(kind, [first] * MASK_BYTES))
            width = ir.Constant(kind, [last - first] * MASK_BYTES)
            found = builder.icmp_unsigned(">" if outside else "<=", distance, width)
            return builder.zext(builder.bitcast(found, ir.IntType(MASK_BYTES)), ir.IntType(64))

        return types.uint64(buffer, types.uint64), generate

    return intrinsic(mask)


prefetch: Any = intrinsic(_prefetch)
load_bytes: Any = intrinsic(_load_bytes)
count_trailing_zeros: Any = intrinsic(_count_trailing_zeros)
bits_of: Any = intrinsic(_bits_of)
number_of_bits: Any = intrinsic(_number_of_bits)
fused: Any = intrinsic(_fused)

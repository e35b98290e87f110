"""Asking for memory before it is needed: rows come in an order that no processor can guess."""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

_INT = ir.IntType(32)
# To be read, kept in all caches, data.
_HOW = (_INT(0), _INT(3), _INT(1))


def _prefetch(_: Any, array: Any, position: Any) -> Any:
    """Bring the cache line of an element nearer; ``position`` counts along the memory, by the first stride.

    Nothing waits for it, and nothing fails where there is no such element.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind, place = signature.args[0], arguments[1]
        memory = context.make_array(kind)(context, builder, arguments[0])
        if kind.layout != "C":
            stride = builder.sdiv(builder.extract_value(memory.strides, 0), memory.itemsize)
            place = builder.mul(place, stride)
        address = builder.bitcast(builder.gep(memory.data, [place]), ir.IntType(8).as_pointer())
        of = ir.FunctionType(ir.VoidType(), [address.type, _INT, _INT, _INT])
        builder.call(builder.module.declare_intrinsic("llvm.prefetch", [address.type], of), [address, *_HOW])
        return context.get_dummy_value()

    return types.void(array, position), generate


prefetch: Any = intrinsic(_prefetch)

"""What threads need to meet inside compiled code: atomic loads and stores, and ways to wait.

All arrays are int64, and positions count from 0. What a thread has written before a `store_release` is seen
by one that has loaded the stored value by `load_acquire`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import binding, ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from ooc_svm.ops.compiled import inlined

SPINS = 1000  # Looks at a value until a waiting thread lets others run: some 30 microseconds
YIELDS = 1200  # Looks until it sleeps
NAP_MICROSECONDS = 50

_BYTES = 8
# How a processor is told that a loop only waits, by its name.
_PAUSES: dict[str, tuple[str, tuple[int, ...]]] = {
    "x86_64": ("llvm.x86.sse2.pause", ()),
    "aarch64": ("llvm.aarch64.hint", (1,)),
    "arm64": ("llvm.aarch64.hint", (1,)),
}

_yield: Any = types.ExternalFunction("sched_yield", types.int32())
_sleep: Any = types.ExternalFunction("usleep", types.int32(types.uint32))


def _address(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    return builder.gep(array.data, [arguments[1]])


def _load_acquire(_: Any, array: Any, position: Any) -> Any:
    """The value at a position; what was written before it was stored there is seen from now on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(_address(context, builder, signature, arguments), "acquire", _BYTES)

    return types.int64(array, types.int64), generate


def _store_release(_: Any, array: Any, position: Any, value: Any) -> Any:
    """Store a value for `load_acquire`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _address(context, builder, signature, arguments)
        builder.store_atomic(arguments[2], place, "release", _BYTES)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64), generate


def _add_release(_: Any, array: Any, position: Any, value: Any) -> Any:
    """Add to a value that several threads add to."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _address(context, builder, signature, arguments)
        builder.atomic_rmw("add", place, arguments[2], "acq_rel")
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64), generate


def _pause(_: Any) -> Any:
    """Tell the processor that this loop waits, if it can be told."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        name, hints = _PAUSES.get(binding.get_default_triple().split("-")[0], ("", ()))
        if name:
            number = ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [number] * len(hints))
            function = builder.module.declare_intrinsic(name, (), kind)
            builder.call(function, [number(hint) for hint in hints])
        return context.get_dummy_value()

    return types.void(), generate


load_acquire: Any = intrinsic(_load_acquire)
store_release: Any = intrinsic(_store_release)
add_release: Any = intrinsic(_add_release)
pause: Any = intrinsic(_pause)


@inlined
def wait_a_moment(looks):  # type: ignore[no-untyped-def]
    """Wait, having looked so many times: the longer the less of the processor it takes."""
    if looks < SPINS:
        pause()
    elif looks < YIELDS:
        _yield()
    else:
        _sleep(np.uint32(NAP_MICROSECONDS))

"""Settings of glibc that return freed memory to the system, or let other threads use it.

By default glibc has a heap for each thread and keeps freed blocks of up to 32 MiB there. Other threads cannot
use them, so with several threads the peak grows with the time of a run. These functions have no effect with
another C library.
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def return_freed_memory() -> None:
    """Return blocks of 1 MiB and more to the system when they are freed, and the free ends of heaps."""
    _set({_M_MMAP_THRESHOLD: 1 << 20, _M_TRIM_THRESHOLD: 128 << 10})


def trim_freed_memory() -> None:
    """Return all that is free at the moment."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)


def share_freed_memory() -> None:
    """Keep one heap for all threads, with all blocks below 16 MiB in it.

    For work that needs blocks of the same sizes repeatedly: new memory from the system comes page by page,
    which made training take up to a third longer. Up to 64 MiB at the end of the heap may stay free: that
    halves the number of new pages compared with 16 MiB, at the same peak.

    Call this before any thread is started: existing threads keep heaps of their own, which later ones share.
    """
    _set({_M_ARENA_MAX: 1, _M_MMAP_THRESHOLD: 16 << 20, _M_TRIM_THRESHOLD: 64 << 20})


def _set(parameters: dict[int, int]) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, value in parameters.items():
            mallopt(parameter, value)

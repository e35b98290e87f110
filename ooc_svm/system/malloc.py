"""Memory that was freed goes back to the system or is used again: a process holds little more than it uses.

By itself glibc has a heap for each thread, and keeps blocks of up to 32 MiB there once it has seen them
freed: what one thread frees is of no use to the others, and with several threads the peak grows with the time
of a run. Under another C library nothing is done here.
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def return_freed_memory() -> None:
    """Have the C library give blocks of 1 MiB and more back to the system as soon as they are freed."""
    _set({_M_MMAP_THRESHOLD: 1 << 20})


def share_freed_memory() -> None:
    """Have the C library keep one heap for all threads, with all blocks below 16 MiB in it.

    For work that needs blocks of the same sizes again and again: memory that comes from the system anew comes
    page by page, which made training take up to a third longer. Up to 64 MiB may be left free at the heap's
    end: half as many pages come anew as with 16, at the same peak.

    To be called before there are threads: those keep heaps of their own, which later ones share.
    """
    _set({_M_ARENA_MAX: 1, _M_MMAP_THRESHOLD: 16 << 20, _M_TRIM_THRESHOLD: 64 << 20})


def _set(parameters: dict[int, int]) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, value in parameters.items():
            mallopt(parameter, value)

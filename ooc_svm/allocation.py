"""Memory that was freed is used again by all threads, or goes back to the system."""

from __future__ import annotations

import ctypes

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
_LARGE = 16 << 20


def return_freed_memory() -> None:
    """Have the C library keep one heap for all threads, and blocks of 16 MiB and more out of it.

    glibc otherwise has a heap for each thread, and raises that size to that of the blocks it sees freed, up
    to 32 MiB: what one thread frees is of no use to the others, and the peak grows with the time of a run.
    With blocks of 1 MiB out of it (each then comes from the system anew, page by page) training takes up to
    a third longer. Does nothing under another C library.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, _LARGE)

"""Memory that was freed goes back to the system: what a process holds then follows what it uses."""

from __future__ import annotations

import ctypes

_M_MMAP_THRESHOLD = -3
_LARGE = 1 << 20


def return_freed_memory() -> None:
    """Have the C library give blocks of 1 MiB and more back to the system as soon as they are freed.

    glibc otherwise raises that size to that of the blocks it sees freed, up to 32 MiB, and keeps blocks
    below it for the thread that freed them: with several threads the peak grows with the time of a run. Does
    nothing under another C library.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE)

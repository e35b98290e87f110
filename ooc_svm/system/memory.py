"""Sizes in bytes: the memory this process may use, its peak, and the text form of sizes."""

from __future__ import annotations

import os
import re
import resource
from pathlib import Path

from ooc_svm.errors import UsageError

_UNITS = {"": 1, "B": 1, "K": 10**3, "KB": 10**3, "KIB": 2**10, "M": 10**6, "MB": 10**6, "MIB": 2**20}
_UNITS |= {"BYTES": 1, "G": 10**9, "GB": 10**9, "GIB": 2**30, "T": 10**12, "TB": 10**12, "TIB": 2**40}

# Memory of Python, NumPy, Zarr and Numba, in bytes. Measured in the run that compiles: 278 MB for `convert`.
INTERPRETER_BYTES = 290 * 10**6
# Of `train`, where functions are compiled in a process of their own: 131 to 142 MB. And of a process that
# converts first: 35 MB more.
TRAINER_BYTES = 170 * 10**6
CONVERTED_TRAINER_BYTES = 205 * 10**6
# The other process takes 310 MB for all that a run needs, before that has any data. With less than this a run
# compiles by itself, and these are planned: 247 MB were measured for the hinge, and 75 MB more where a
# conversion is compiled as well.
APART_BYTES = 450 * 10**6
COMPILING_BYTES, COMPILING_BOTH_BYTES = 260 * 10**6, 335 * 10**6


def parse_size(text: str | int) -> int:
    """Bytes of a size such as ``600MB``, ``4GiB``, ``1.5G`` or ``1000000``."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", str(text))
    if match is None or match[2].upper() not in _UNITS:
        raise UsageError(f"not a size: {str(text)[:80]!r}; write for example 600MB, 4GiB or 1000000 (bytes)")
    return round(float(match[1]) * _UNITS[match[2].upper()])


def format_size(n_bytes: float) -> str:
    """A size as text, with about three digits: ``12.3 MB``."""
    for unit, factor in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if n_bytes >= factor:
            count = n_bytes / factor
            return f"{count:.3g} {unit}" if count < 999.5 else f"{count:.0f} {unit}"
    return f"{n_bytes:.0f} bytes"


def size_needed(n_bytes: int) -> str:
    """A size as text, rounded up: `parse_size` of it is enough."""
    step = 10 ** max(len(str(n_bytes)) - 3, 0)
    return format_size(-(-n_bytes // step) * step)


def size_available(n_bytes: int) -> str:
    """A size as text, rounded down: `parse_size` of it is not too much."""
    step = 10 ** max(len(str(n_bytes)) - 3, 0)
    return format_size(n_bytes // step * step)


def _cgroup_limits() -> list[int]:
    """Memory limits of the control groups (versions 1 and 2) of this process, ancestors included."""
    limits = []
    try:
        entries = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    for entry in entries:
        _, controllers, group = entry.split(":", 2)
        if controllers == "":
            root, name = Path("/sys/fs/cgroup"), "memory.max"
        elif "memory" in controllers.split(","):
            root, name = Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"
        else:
            continue
        here = root / group.lstrip("/")
        for folder in (here, *here.parents):
            if not folder.is_relative_to(root):
                break
            try:
                text = (folder / name).read_text().strip()
            except OSError:
                continue
            if text != "max":
                limits.append(int(text))
    return limits


def available_memory() -> int:
    """Bytes this process may use: the machine's memory or the smallest limit set on it."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [machine, *_cgroup_limits()]
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        limits.append(soft)
    return min(limits)


def memory_budget(size: str | int | None) -> int:
    """Bytes a run may use: `size`, or half of the memory of the process."""
    return available_memory() // 2 if size is None else parse_size(size)


def peak_memory() -> int:
    """Largest resident size of this process so far, in bytes."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

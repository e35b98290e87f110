"""Faults in system calls: which calls are spoiled, and how; without a C compiler those of `os` alone are."""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import shutil
import struct
import subprocess
import sysconfig
import threading
import zlib
from dataclasses import dataclass
from pathlib import Path

# The kinds that are counted, in the order of the library, and the functions of `os` of each.
KINDS = {
    "read": ("read", "readv"),
    "pread": ("pread", "preadv"),
    "write": ("write", "writev"),
    "pwrite": ("pwrite",),
    "fsync": ("fsync", "fdatasync"),
    "rename": ("rename", "replace"),
    "mkdir": ("mkdir",),
    "unlink": ("unlink", "remove"),
    "rmdir": ("rmdir",),
    "mmap": (),
    "close": ("close",),
    "open": ("open",),
    "truncate": ("truncate", "ftruncate"),
    "fallocate": ("posix_fallocate",),
    "chmod": ("chmod", "fchmod"),
    "stat": ("stat", "lstat", "fstat"),
    "listdir": ("scandir", "listdir"),
}

FOREVER = 2**62
NEVER = FOREVER

# Calls of the kinds of a plan, how many were spoiled, and the calls of each kind.
_COUNTS = struct.Struct(f"@qq{len(KINDS)}q")
_SOURCE = Path(__file__).with_name("spoiled_calls.c")


@dataclass(frozen=True)
class CallFault:
    """The calls of some kinds, counted from 1, that are spoiled: those from ``first`` to ``last``.

    ``action``: "e" fails with the error `number`, "s" sends the signal `number`, "h" moves half of the bytes.
    """

    kinds: tuple[str, ...]
    first: int = NEVER
    last: int = NEVER
    action: str = "e"
    number: int = 0

    def plan(self, record: str, folder: str) -> str:
        """What the library follows; the counts go into the file `record`, the calls are those in `folder`."""
        mask = sum(1 << list(KINDS).index(kind) for kind in self.kinds)
        place = os.path.realpath(folder) if folder else ""
        return f"{mask} {self.first} {self.last} {self.action} {self.number}\n{record}\n{place}"


def counted(record: str | Path) -> tuple[int, int, dict[str, int]]:
    """How many calls there were of the kinds of a plan, how many were spoiled; and those of each kind."""
    content = Path(record).read_bytes() if Path(record).exists() else b""
    calls, spoiled, *each = _COUNTS.unpack(content.ljust(_COUNTS.size, b"\0"))
    return calls, spoiled, dict(zip(KINDS, each, strict=True))


@functools.cache
def library() -> Path | None:
    """The library that spoils calls, compiled where it is not yet; None without a C compiler."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None or sysconfig.get_platform().split("-")[0] != "linux":
        return None
    name = f"spoiled_calls-{zlib.crc32(_SOURCE.read_bytes()):08x}.so"
    built = _SOURCE.parent / "__pycache__" / name
    if not built.exists():
        built.parent.mkdir(exist_ok=True)
        mine = built.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", mine, _SOURCE, "-ldl"]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            return None
        mine.rename(built)
    return built


def follow(plan: str) -> None:
    """Follow a plan in this process from now on; the library is there if it was preloaded."""
    preloaded = ctypes.CDLL(None)
    if hasattr(preloaded, "follow_plan"):
        assert preloaded.follow_plan(os.fsencode(plan)) == 0, plan
    elif plan:
        _follow_in_python(plan)


def _follow_in_python(plan: str) -> None:
    numbers, record, _ = plan.split("\n")
    mask, first, last, action, number = numbers.split()
    with open(record, "wb+") as file:
        file.truncate(_COUNTS.size)
        counts = memoryview(mmap.mmap(file.fileno(), _COUNTS.size)).cast("q")

    def spoiled(function, place):
        @functools.wraps(function)
        def call(*arguments, **options):
            counts[2 + place] += 1
            if not int(mask) >> place & 1:
                return function(*arguments, **options)
            counts[0] += 1
            if int(first) <= counts[0] <= int(last):
                counts[1] += 1
                if action == "s":
                    os.kill(os.getpid(), int(number))
                elif action == "e":
                    raise OSError(int(number), os.strerror(int(number)))
            return function(*arguments, **options)

        return call

    for place, names in enumerate(KINDS.values()):
        for name in names:
            setattr(os, name, spoiled(getattr(os, name), place))

"""What a decompressor has to keep of the text behind it: its window, which the compressed file asks for."""

from __future__ import annotations

import lzma
import os

XZ_LIMIT = 256 << 20
"""What a decompressor of xz may use; a file that asks for more is refused."""

_HEAD_BYTES = 4096
_STEP = 1 << 20
_XZ_MAGIC = b"\xfd7zXZ\x00"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# The library refuses larger windows.
_LARGEST_ZSTD_WINDOW = 128 << 20


def window_bytes(path: str | os.PathLike[str]) -> int:
    """Memory that decompressing a file takes for its window.

    Parameters
    ----------
    path : path
        What cannot be read, and standard input (``-``), take none: who reads them says what is wrong.

    Returns
    -------
    int
        Bytes, a MiB too many at most, for the first member of an xz or zstd file; 0 where that is damaged
        or asks for more than is allowed, and for all other files: gzip and bzip2 take a few MB at most.
    """
    try:
        if not os.path.isfile(path):
            return 0
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return 0
    if head.startswith(_XZ_MAGIC):
        return _xz_window(head)
    if head.startswith(_ZSTD_MAGIC):
        return _zstd_window(head)
    return 0


def _xz_window(head: bytes) -> int:
    """Least memory limit under which liblzma begins to decompress, to a MiB."""
    if not _begins_within(head, XZ_LIMIT):
        return 0
    low, high = 0, XZ_LIMIT
    while high - low > _STEP:
        middle = (low + high) // 2
        if _begins_within(head, middle):
            high = middle
        else:
            low = middle
    return high


def _begins_within(head: bytes, limit: int) -> bool:
    try:
        lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=limit).decompress(head, max_length=1)
    except lzma.LZMAError:
        return False
    return True


def _zstd_window(head: bytes) -> int:
    """Window of a zstd frame: RFC 8878, section 3.1.1.1."""
    if len(head) < 18:
        return 0
    descriptor = head[4]
    if descriptor & 0x20:  # one segment: the window is the content
        id_bytes = (0, 1, 2, 4)[descriptor & 3]
        size_bytes = (1, 2, 4, 8)[descriptor >> 6]
        size = int.from_bytes(head[5 + id_bytes : 5 + id_bytes + size_bytes], "little")
        return min(size + (256 if size_bytes == 2 else 0), _LARGEST_ZSTD_WINDOW)
    base = 1 << (10 + (head[5] >> 3))
    return min(base + base // 8 * (head[5] & 7), _LARGEST_ZSTD_WINDOW)

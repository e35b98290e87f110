"""Compressed text: formats known by their magic bytes, members read one after another, memory for windows.

The file objects of the standard library are not used: those of bz2 and lzma end without an error where
garbage follows the last member, and that of lzma cannot limit its memory. The loop over members that these
two need serves all formats.
"""

from __future__ import annotations

import bz2
import lzma
import os
import re
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ooc_svm.errors import InputError, StorageError
from ooc_svm.system.files import IrregularFileError, read_head
from ooc_svm.system.recognition import ZSTD

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAGIC_BYTES = 6
"""Length of the longest magic bytes."""

XZ_LIMIT = 256 << 20
"""Memory that decompressing xz may use, in bytes; a file that asks for more is refused."""

# Bytes at the start of a file in which its window is declared.
_HEAD_BYTES = 4096
# Step in which the window of xz is searched, in bytes.
_XZ_STEP = 1 << 20
# Largest window that the zstd library accepts, in bytes.
_LARGEST_ZSTD_WINDOW = 128 << 20
# The 16 kinds of frames that are skipped, and the bytes of one before its content.
_ZSTD_SKIPPED_MAGICS = tuple(bytes([0x50 + k]) + b"\x2a\x4d\x18" for k in range(16))
_ZSTD_SKIPPED_HEAD = 8
# Compressed bytes that a decompressor takes at once: it gives back what follows its member, a copy.
_PIECE_BYTES = 1 << 14
_ZEROS = re.compile(rb"\0*")
# What the errors of the libraries say where a file asks for more memory than is allowed.
_TOO_MUCH_MEMORY = ("Memory usage limit exceeded", "requires too much memory")


class _GzipMember:
    """One gzip member, its checksum and length checked, with the interface of `bz2.BZ2Decompressor`."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(wbits=31)

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._inflate.decompress(self._inflate.unconsumed_tail + data, max_length)

    @property
    def eof(self) -> bool:
        return self._inflate.eof

    @property
    def needs_input(self) -> bool:
        return not self._inflate.eof and not self._inflate.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inflate.unused_data


def _xz_member(limit: int = XZ_LIMIT) -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=limit)


def _xz_window(head: bytes) -> int:
    """Smallest memory limit under which liblzma begins to decompress, to a MiB; 0 beyond `XZ_LIMIT`."""
    if not _begins_within(head, XZ_LIMIT):
        return 0
    low, high = 0, XZ_LIMIT
    while high - low > _XZ_STEP:
        middle = (low + high) // 2
        if _begins_within(head, middle):
            high = middle
        else:
            low = middle
    return high


def _begins_within(head: bytes, limit: int) -> bool:
    try:
        _xz_member(limit).decompress(head, max_length=1)
    except lzma.LZMAError:
        return False
    return True


def _zstd_window(head: bytes) -> int:
    """Window of the first zstd frame with data: RFC 8878, sections 3.1.1.1 and 3.1.2."""
    while head.startswith(_ZSTD_SKIPPED_MAGICS):  # pzstd begins with one
        head = head[_ZSTD_SKIPPED_HEAD + int.from_bytes(head[4:_ZSTD_SKIPPED_HEAD], "little") :]
    if len(head) < 18 or not head.startswith(ZSTD):
        return 0
    descriptor = head[4]
    if descriptor & 0x20:  # one segment: the window is the content
        id_bytes = (0, 1, 2, 4)[descriptor & 3]
        size_bytes = (1, 2, 4, 8)[descriptor >> 6]
        size = int.from_bytes(head[5 + id_bytes : 5 + id_bytes + size_bytes], "little")
        return min(size + (256 if size_bytes == 2 else 0), _LARGEST_ZSTD_WINDOW)
    base = 1 << (10 + (head[5] >> 3))
    return min(base + base // 8 * (head[5] & 7), _LARGEST_ZSTD_WINDOW)


@dataclass(frozen=True)
class Format:
    """A compression format; a member begins with one of ``magics``.

    ``suffixes`` are those of its files. With ``zero_padding``, zeros may follow a member. ``open`` makes a
    decompressor of one member, with the interface of `bz2.BZ2Decompressor`. ``window`` gives the bytes of
    text that a decompressor keeps, from the first bytes of a file; 0 where it is a few MB at most. ``remedy``
    says how to compress again what needs more memory than is allowed.
    """

    name: str
    suffixes: tuple[str, ...]
    magics: tuple[bytes, ...]
    zero_padding: bool
    open: Callable[[], Any]
    window: Callable[[bytes], int] = lambda head: 0
    remedy: str = ""


_FORMATS = (
    Format("gzip", (".gz",), (b"\x1f\x8b",), True, _GzipMember),
    Format("bzip2", (".bz2",), (b"BZh",), False, bz2.BZ2Decompressor),
    Format(
        "xz",
        (".xz",),
        (b"\xfd7zXZ\x00",),
        True,
        _xz_member,
        _xz_window,
        "a smaller dictionary (xz -9 at most)",
    ),
    Format(
        "zstd",
        (".zst", ".zstd"),
        (ZSTD, *_ZSTD_SKIPPED_MAGICS),
        False,
        zstd.ZstdDecompressor,
        _zstd_window,
        "a smaller window (zstd --long=27 at most)",
    ),
)


def _zeros_end(content: bytes, start: int) -> int:
    """Where the zeros from a place on end."""
    found = _ZEROS.match(content, start)
    assert found is not None
    return found.end()


def format_of_content(head: bytes) -> Format | None:
    """The format of a file from its first `MAGIC_BYTES` bytes; None if it is not compressed."""
    return next((each for each in _FORMATS if head.startswith(each.magics)), None)


def format_of_name(path: str) -> Format | None:
    """The format that the suffix of a file name claims; None if it claims none."""
    suffix = os.path.splitext(path)[1].lower()
    return next((each for each in _FORMATS if suffix in each.suffixes), None)


def window_bytes(path: str | os.PathLike[str]) -> int:
    """Memory that decompressing a file takes for its window, in bytes, a MiB too many at most.

    It is that of the first member of an xz or zstd file, and 0 where that is damaged or asks for more than is
    allowed, and for all other files: gzip and bzip2 take a few MB at most. Standard input (``-``) and what
    cannot be read take none; reading says what is wrong with it.
    """
    try:
        head = read_head(path, _HEAD_BYTES)
    except StorageError:  # of an object: a request that was repeated already
        raise
    except (OSError, IrregularFileError):
        return 0
    format_ = format_of_content(head)
    return 0 if format_ is None else format_.window(head)


class Members:
    """Decompresses a file, its members one after another.

    ``head`` are the first bytes of the file, and ``read`` gives the next ones, none at its end.
    """

    def __init__(self, name: str, format_: Format, head: bytes, read: Callable[[], bytes]) -> None:
        self._name, self._format, self._read = name, format_, read
        self._raw, self._place = head, 0  # what was read last, and where the part begins that is to be done
        self._bytes_read = len(head)
        self._member: Any = None

    def read(self, n_bytes: int) -> bytes:
        """Decompress at most so many bytes; none at the end of the last member.

        Raises InputError where the data are damaged or truncated, or something else follows them.
        """
        while self._member is not None or self._begin_member():
            piece = b""
            if self._member.needs_input:
                if self._place == len(self._raw) and not self._read_more():
                    raise self._truncated(f", at byte {self._bytes_read}")
                piece = self._raw[self._place : self._place + _PIECE_BYTES]
                self._place += len(piece)
            try:
                data: bytes = self._member.decompress(piece, n_bytes)
            except (zlib.error, OSError, EOFError, ValueError, lzma.LZMAError, zstd.ZstdError) as error:
                raise self._failure(error) from error
            if self._member.eof:
                self._place -= len(self._member.unused_data)
                self._member = None
            if data:
                return data
        return b""

    def _read_more(self) -> bool:
        """Read some more of the file; False at its end."""
        data = self._read()
        self._raw, self._place = self._raw[self._place :] + data, 0
        self._bytes_read += len(data)
        return len(data) > 0

    def _begin_member(self) -> bool:
        """Begin with the next member; False at the end of the file."""
        while True:
            if self._format.zero_padding:
                self._place = _zeros_end(self._raw, self._place)
            if len(self._raw) - self._place >= MAGIC_BYTES or not self._read_more():
                break
        rest = self._raw[self._place : self._place + MAGIC_BYTES]
        if not rest:
            return False
        if not rest.startswith(self._format.magics):
            if any(magic.startswith(rest) for magic in self._format.magics):
                raise self._truncated("")
            place = self._bytes_read - len(self._raw) + self._place
            raise InputError(
                f"{self._name}: what follows the compressed data at byte {place} "
                f"is not {self._format.name} data: remove it, or get the file again"
            )
        self._member = self._format.open()
        return True

    def _failure(self, error: Exception) -> InputError:
        """What it means that a decompressor failed."""
        if any(words in str(error) for words in _TOO_MUCH_MEMORY):
            return InputError(
                f"{self._name}: decompressing these {self._format.name} data needs more memory than is "
                f"allowed: compress the text again with {self._format.remedy}"
            )
        return InputError(
            f"{self._name}: damaged {self._format.name} data before byte {self._bytes_read} ({error}): "
            "get the file again"
        )

    def _truncated(self, where: str) -> InputError:
        return InputError(
            f"{self._name}: the {self._format.name} data end too early{where}: the file is truncated; "
            "get it again"
        )

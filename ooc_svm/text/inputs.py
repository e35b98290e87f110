"""Text inputs: plain or compressed files and standard input, read once, as blocks of whole lines."""

from __future__ import annotations

import bz2
import lzma
import os
import stat
import sys
import zlib
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Protocol

import numpy as np

from ooc_svm.errors import InputError, OocSvmError, StorageError
from ooc_svm.text.compression import XZ_LIMIT
from ooc_svm.text.decimals import PADDING
from ooc_svm.text.simd import ByteArray

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

READ_BYTES = 1 << 20
BLOCK_BYTES = 8 << 20
MAX_LINE_BYTES = 64 << 20

_LINE_FEED = 10
_STANDARD_INPUT = 0
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_SUFFIXES = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd", ".zstd": "zstd"}


class LineTooLongError(InputError):
    """A line longer than the limit; who counts the lines adds the number."""


class Decompressor(Protocol):
    """What the decompressors of the standard library have in common."""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Take more compressed bytes and give at most `max_length` bytes of what they hold."""
        ...

    @property
    def eof(self) -> bool:
        """Has the end of the member been seen?"""
        ...

    @property
    def needs_input(self) -> bool:
        """Can no more be given before more is taken?"""
        ...

    @property
    def unused_data(self) -> bytes:
        """Bytes taken from beyond the end of the member."""
        ...


class _GzipDecompressor:
    """One gzip member, its checksum and length checked, with the interface of the others."""

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


@dataclass(frozen=True)
class _Format:
    """A compression format: how it begins, what may follow a member, what to decompress with."""

    name: str
    magics: tuple[bytes, ...]
    zero_padding: bool
    open: Callable[[], Decompressor]

    def starts(self, data: bytes) -> bool:
        return data.startswith(self.magics)


_SKIPPABLE_FRAMES = tuple(bytes([0x50 + k]) + b"\x2a\x4d\x18" for k in range(16))
_FORMATS = (
    _Format("gzip", (b"\x1f\x8b",), True, _GzipDecompressor),
    _Format("bzip2", (b"BZh",), False, bz2.BZ2Decompressor),
    _Format("xz", (b"\xfd7zXZ\x00",), True, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_LIMIT)),
    _Format("zstd", (b"\x28\xb5\x2f\xfd", *_SKIPPABLE_FRAMES), False, zstd.ZstdDecompressor),
)
_MAGIC_BYTES = 6


@dataclass(frozen=True)
class TextBlock:
    """Whole lines of one source.

    Attributes
    ----------
    buffer : ndarray of uint8
        The text, then ``PADDING`` bytes or more of no meaning.
    n_bytes : int
        Length of the text; the last byte is a line feed.
    bytes_read : int
        Bytes of the file (compressed, if it is) that were read when the block was complete.
    """

    buffer: ByteArray
    n_bytes: int
    bytes_read: int


@dataclass(frozen=True)
class FileState:
    """What must not change while a file is read: device and inode, size in bytes, time of the last change."""

    device: int
    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileState:
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    def anywhere(self) -> FileState:
        """The same without what differs between the machines that share the file."""
        return replace(self, device=0, inode=0)


class TextSource:
    """A text input from its first to its last byte, or some of its lines; made by `open_source`.

    Attributes
    ----------
    name : str
        As it appears in messages.
    size : int or None
        Bytes of the file (compressed, if it is); None for standard input.
    mtime_ns : int or None
        Time of the last change in nanoseconds; None for standard input.
    compression : str or None
        ``gzip``, ``bzip2``, ``xz``, ``zstd`` or None.
    bytes_read : int
        Bytes of the file read so far, of these lines.
    state : FileState or None
        The file as it was when it was opened; None for standard input.
    """

    def __init__(
        self,
        path: str,
        descriptor: int,
        state: FileState | None,
        read_bytes: int,
        span: tuple[int, int] | None = None,
    ) -> None:
        self.name = display_name(path)
        self.size = None if state is None else state.size
        self.mtime_ns = None if state is None else state.mtime_ns
        self.bytes_read = 0
        self._path = path
        self._descriptor = descriptor
        self.state = state
        self._read_bytes = read_bytes
        self._span = span
        self._pending = b""  # raw bytes read ahead of the decoder
        self._ended = False
        self._format: _Format | None = None
        self._member: Decompressor | None = None
        self._head = b""  # decoded bytes looked at before the first block
        self._failure: OocSvmError | None = None  # what ended the text too early
        self._spare: deque[ByteArray] = deque()  # memory of blocks given back

    @property
    def compression(self) -> str | None:
        """Name of the compression, None for plain text."""
        return None if self._format is None else self._format.name

    def __enter__(self) -> TextSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; standard input stays open."""
        if self.state is not None and self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    # Raw bytes

    def _read_raw(self, n_bytes: int) -> bytes:
        """At most `n_bytes` raw bytes; none at the end of the file."""
        if self._pending:
            data, self._pending = self._pending[:n_bytes], self._pending[n_bytes:]
            return data
        if self._ended:
            return b""
        space = memoryview(bytearray(min(n_bytes, self._read_bytes)))
        return bytes(space[: self._read_file(space)])

    def _read_file(self, target: memoryview) -> int:
        """Fill a part of `target`, or all of it, with raw bytes of the file: how many; 0 at its end."""
        start, stop = self._span or (0, None)
        place = start + self.bytes_read
        most = self._read_bytes if stop is None else min(self._read_bytes, stop - place)
        try:
            n_bytes = os.readv(self._descriptor, [target[:most]])
        except OSError as error:
            raise StorageError(f"{self.name}: reading failed at byte {place}: {error.strerror}") from error
        self.bytes_read += n_bytes
        self._ended = n_bytes == 0
        return n_bytes

    def _peek_raw(self, n_bytes: int) -> bytes:
        """The next raw bytes, fewer than asked for only at the end of the file; they stay to be read."""
        pieces = [self._read_raw(n_bytes)]
        while pieces[-1] and sum(map(len, pieces)) < n_bytes:
            pieces.append(self._read_raw(n_bytes))
        self._pending = b"".join(pieces) + self._pending
        return self._pending[:n_bytes]

    # Decoded bytes

    def begin(self) -> None:
        """Find the compression, check the name against it, and look at the first bytes of the text.

        Lines from the middle of a file are plain text, and nothing stands before them.
        """
        if self._span is not None and self._span[0] > 0:
            os.lseek(self._descriptor, self._span[0], os.SEEK_SET)
            return
        magic = self._peek_raw(_MAGIC_BYTES)
        if not magic:
            raise InputError(
                f"{self.name}: the file is empty" if self.size is not None else "standard input is empty"
            )
        self._format = next((each for each in _FORMATS if each.starts(magic)), None)
        claimed = None if self.state is None else _SUFFIXES.get(os.path.splitext(self._path)[1].lower())
        if claimed is not None and claimed != self.compression:
            raise InputError(
                f"{self.name}: the name says {claimed}, but the content is "
                f"{self.compression or 'not compressed'}: rename the file, or get it again"
            )
        while len(self._head) < len(_BYTE_ORDER_MARK):
            data = self._decode(len(_BYTE_ORDER_MARK) - len(self._head))
            if not data:
                break
            self._head += data
        if not self._head:
            raise InputError(f"{self.name}: the compressed file holds no data")
        if self._head.startswith(_UTF_16_MARKS):
            raise InputError(f"{self.name}: the text is UTF-16: convert it to ASCII or UTF-8 first")
        self._head = self._head.removeprefix(_BYTE_ORDER_MARK)

    def _decode(self, n_bytes: int) -> bytes:
        """At most `n_bytes` bytes of text; none at the end."""
        if self._format is None:
            return self._read_raw(n_bytes)
        try:
            return self._decompress(self._format, n_bytes)
        except (InputError, StorageError):
            raise
        except (zlib.error, OSError, EOFError, ValueError, lzma.LZMAError, zstd.ZstdError) as error:
            raise InputError(
                f"{self.name}: damaged {self._format.name} data before byte {self.bytes_read} ({error}): "
                "get the file again"
            ) from error

    def _decompress(self, format_: _Format, n_bytes: int) -> bytes:
        """Run the members one after another until one gives some bytes."""
        while True:
            if self._member is None:
                if not self._next_member(format_):
                    return b""
                self._member = format_.open()
            raw = self._read_raw(self._read_bytes) if self._member.needs_input else b""
            if self._member.needs_input and not raw:
                raise InputError(
                    f"{self.name}: the {format_.name} data end too early, at byte {self.bytes_read}: "
                    "the file is truncated; get it again"
                )
            data = self._member.decompress(raw, n_bytes)
            if self._member.eof:
                self._pending = self._member.unused_data + self._pending
                self._member = None
            if data:
                return data

    def _next_member(self, format_: _Format) -> bool:
        """Stand at the start of another member; False at the end of the file."""
        magic = self._peek_raw(_MAGIC_BYTES)
        if format_.zero_padding:
            while magic.startswith(b"\0"):
                self._pending = self._pending.lstrip(b"\0")
                magic = self._peek_raw(_MAGIC_BYTES)
        if not magic:
            return False
        if not format_.starts(magic):
            at = self.bytes_read - len(self._pending)
            if any(each.startswith(magic) for each in format_.magics):
                raise InputError(
                    f"{self.name}: the {format_.name} data end too early: the file is truncated; get it again"
                )
            raise InputError(
                f"{self.name}: what follows the compressed data at byte {at} is not {format_.name} data: "
                "remove it, or get the file again"
            )
        return True

    # Blocks of lines

    def blocks(
        self, block_bytes: int = BLOCK_BYTES, max_line_bytes: int = MAX_LINE_BYTES
    ) -> Generator[TextBlock, None, None]:
        """The text as blocks of whole lines, in order.

        Parameters
        ----------
        block_bytes : int
            Size of a block; a longer line makes its block longer.
        max_line_bytes : int
            Longest line accepted, without its line feed.

        Yields
        ------
        TextBlock
            Never empty. The last line gets a line feed if it has none.

        Raises
        ------
        LineTooLongError
            After all the lines before the long one were given.
        InputError
            The compressed data are damaged or truncated (after all whole lines before that were given), or
            the file changed while it was read.
        StorageError
            Reading failed (likewise).
        """
        longest = max_line_bytes + 1
        smallest = min(block_bytes, longest)
        capacity = smallest
        buffer = self._new_buffer(capacity)
        filled, ended = self._fill(buffer, 0, capacity)
        while not ended:
            stop = _last_line_end(buffer, filled)
            if stop == 0 and capacity == longest:
                raise LineTooLongError(f"the line is longer than {max_line_bytes} bytes")
            if stop > 0:
                yield TextBlock(buffer, stop, self.bytes_read)
            rest = buffer[stop:filled]
            capacity = smallest if len(rest) < smallest else min(2 * len(rest), longest)
            buffer = self._new_buffer(capacity)
            buffer[: len(rest)] = rest  # perhaps to the start of the same memory, given back by now
            filled, ended = self._fill(buffer, len(rest), capacity)
        if self._failure is not None:
            stop = _last_line_end(buffer, filled)
            if stop > 0:
                yield TextBlock(buffer, stop, self.bytes_read)
            raise self._failure
        self._check_unchanged()
        if filled > 0:
            if buffer[filled - 1] != _LINE_FEED:
                buffer[filled] = _LINE_FEED
                filled += 1
            yield TextBlock(buffer, filled, self.bytes_read)

    def recycle(self, block: TextBlock) -> None:
        """Give back a block that is not needed any more: a later one is read into its memory."""
        self._spare.append(block.buffer)

    def _new_buffer(self, capacity: int) -> ByteArray:
        n_bytes = capacity + 1 + PADDING
        while self._spare:
            buffer = self._spare.pop()
            if len(buffer) == n_bytes:
                return buffer
        return np.empty(n_bytes, np.uint8)

    def _fill(self, buffer: ByteArray, filled: int, capacity: int) -> tuple[int, bool]:
        """Decode into the buffer up to its capacity: (bytes in it, has the text ended)."""
        view = memoryview(buffer.data)
        while filled < capacity:
            try:
                n_bytes = self._decode_into(view[filled:capacity])
            except (InputError, StorageError) as error:
                self._failure = error
                n_bytes = 0
            if n_bytes == 0:
                return filled, True
            filled += n_bytes
        return filled, False

    def _decode_into(self, target: memoryview) -> int:
        """Write some text to the start of `target`: how many bytes; 0 at the end of the text."""
        n_bytes = len(target)
        if self._format is None and not (self._head or self._pending or self._ended):
            return self._read_file(target)
        data, self._head = self._head[:n_bytes], self._head[n_bytes:]
        if not data:
            data = self._decode(n_bytes)
        target[: len(data)] = data
        return len(data)

    def _check_unchanged(self) -> None:
        """Raise InputError if the file is not the one that was opened, or not all of it was read."""
        if self.state is None:
            return
        try:
            states = [FileState.of(os.fstat(self._descriptor)), FileState.of(os.stat(self._path))]
        except OSError:
            states = []
        start, stop = self._span or (0, self.state.size)
        if states != [self.state, self.state] or self.bytes_read != stop - start:
            raise InputError(
                f"{self.name}: the file changed while it was read: start again when it is complete"
            )


def _last_line_end(buffer: ByteArray, filled: int) -> int:
    """Position after the last line feed; 0 when there is none."""
    step = 4096
    for stop in range(filled, 0, -step):
        start = max(stop - step, 0)
        found = np.flatnonzero(buffer[start:stop] == _LINE_FEED)
        if len(found):
            return start + int(found[-1]) + 1
    return 0


def display_name(path: str) -> str:
    """The name of an input as messages write it."""
    if path == "-":
        return "standard input"
    return path if path.isprintable() else repr(path)


def open_source(
    path: str | os.PathLike[str], read_bytes: int = READ_BYTES, span: tuple[int, int] | None = None
) -> TextSource:
    """Open a text file, compressed or not, or standard input.

    Parameters
    ----------
    path : str or path
        ``-`` is standard input.
    read_bytes : int
        Largest single read.
    span : (int, int), optional
        Of a plain file: read these bytes alone, which are whole lines.

    Returns
    -------
    TextSource
        Stands at the first byte of the text (after a byte order mark).

    Raises
    ------
    InputError
        There is no such file, it is not a regular one, it is empty, its suffix and its content disagree, or
        it is UTF-16.
    StorageError
        It cannot be opened or read.
    """
    name = os.fspath(path)
    if name == "-":
        source = TextSource(name, _STANDARD_INPUT, None, read_bytes)
    else:
        descriptor, state = _open_regular(name)
        source = TextSource(name, descriptor, state, read_bytes, span)
    try:
        source.begin()
    except BaseException:
        source.close()
        raise
    return source


def _open_regular(path: str) -> tuple[int, FileState]:
    """Descriptor and state of a regular file; anything else is refused without opening it."""
    name = display_name(path)
    try:
        _check_regular(name, os.stat(path).st_mode)
        # Should the file turn into a pipe just now, opening must not wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise InputError(f"{name}: there is no such file") from error
    except OSError as error:
        raise StorageError(f"{name}: cannot be opened: {error.strerror}") from error
    try:
        status = os.fstat(descriptor)
        _check_regular(name, status.st_mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, FileState.of(status)


def _check_regular(name: str, mode: int) -> None:
    kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a named pipe"), (stat.S_ISSOCK, "a socket"))
    if not stat.S_ISREG(mode):
        kind = next((kind for test, kind in kinds if test(mode)), "a device")
        raise InputError(f"{name} is {kind}, not a file: give regular files, or - for standard input")

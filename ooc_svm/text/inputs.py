"""Text inputs: plain or compressed files and standard input, read once, as chunks of whole lines."""

from __future__ import annotations

import os
import shlex
from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np

from ooc_svm.data.pages import row_room
from ooc_svm.errors import InputError, OocSvmError, StorageError
from ooc_svm.system.address import Address, address_of
from ooc_svm.system.descriptors import close_unwritten
from ooc_svm.system.files import IrregularFileError, file_status, open_regular, status_of
from ooc_svm.system.object_files import HEAD_BYTES, ObjectReader, matching
from ooc_svm.system.objects import Bucket, ObjectVersion
from ooc_svm.system.recognition import BYTE_ORDER_MARK, HDF5, PARQUET, ZIP
from ooc_svm.text.compression import MAGIC_BYTES, Members, format_of_content, format_of_name
from ooc_svm.text.decimals import PADDING
from ooc_svm.text.simd import ByteArray

READ_BYTES = 1 << 20
"""Largest single read of a file, in bytes."""

# Files that are converted, but are no text, by their first bytes.
_NO_TEXT = {HDF5[:4]: "HDF5 (AnnData)", ZIP: "an archive (.npz)", PARQUET: "Parquet"}

CHUNK_BYTES = 8 << 20
"""Size of a chunk of text, in bytes."""

MAX_LINE_BYTES = 64 << 20
"""Length of the longest line, in bytes."""

_LINE_FEED = 10
_STANDARD_INPUT = 0
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class LineTooLongError(InputError):
    """A line longer than the limit; the caller, which counts lines, adds the line number."""


@dataclass(frozen=True)
class TextChunk:
    """Whole lines of one input.

    ``buffer`` has ``n_bytes`` of text, of which the last is a line feed, then ``PADDING`` bytes or more of no
    meaning. ``bytes_read`` of the file (compressed, if it is) were read when the chunk was complete.
    """

    buffer: ByteArray
    n_bytes: int
    bytes_read: int


class ByteSource(Protocol):
    """The bytes of an input from its front."""

    def readinto(self, target: memoryview) -> int:
        """Fill the target or the first part of it: how many bytes; 0 at the end."""

    def seek(self, place: int) -> object:
        """Go on at a byte."""

    def close(self) -> None:
        """Release the file."""


class _Descriptor:
    """An open file of the operating system; standard input stays open."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def readinto(self, target: memoryview) -> int:
        """See `ByteSource`."""
        return os.readv(self._descriptor, [target])

    def seek(self, place: int) -> object:
        """See `ByteSource`."""
        return os.lseek(self._descriptor, place, os.SEEK_SET)

    def status(self) -> os.stat_result:
        """The status of the file."""
        return os.fstat(self._descriptor)

    def close(self) -> None:
        """See `ByteSource`."""
        if self._descriptor > _STANDARD_INPUT:
            close_unwritten(self._descriptor)
        self._descriptor = -1


@dataclass(frozen=True)
class FileState:
    """What must not change while a file is read: device and inode, size in bytes, time of the last change.

    Of an object the inode stands for its version.
    """

    device: int
    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileState:
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    @classmethod
    def of_object(cls, version: ObjectVersion) -> FileState:
        return cls(0, version.number, version.size, version.mtime_ns)

    def anywhere(self) -> FileState:
        """The same without what differs between the machines that share the file."""
        return replace(self, device=0, inode=0)


def current_state(path: str) -> FileState | None:
    """What lies under a name now, if anything does; StorageError if that cannot be known."""
    if (address := address_of(path)) is not None:
        version = Bucket(address).version(address.key)
        return None if version is None else FileState.of_object(version)
    try:
        status = status_of(path)
    except OSError as error:
        raise _unreadable(path, error) from error
    return None if status is None else FileState.of(status)


@dataclass(frozen=True)
class InputMetadata:
    """An input as the manifest of a store keeps it; size and time are None for standard input.

    ``name`` is as in messages, ``size`` in bytes of the file (compressed, if it is), ``mtime_ns`` the time of
    the last change; ``compression`` is ``gzip``, ``bzip2``, ``xz``, ``zstd`` or None.
    """

    name: str
    size: int | None
    mtime_ns: int | None
    compression: str | None


def require_local(path: str | os.PathLike[str], kind: str) -> None:
    """Raise InputError for an object of a kind that is read from a local disk alone."""
    if address_of(path) is not None:
        raise InputError(
            f"{os.fspath(path)} is {kind}, which is read from a local disk alone; copy it to one, and give "
            "its path"
        )


def check_text(head: bytes, name: str, path: str) -> None:
    """Raise InputError for the first bytes of a file that is converted, but is no text."""
    for magic, kind in _NO_TEXT.items():
        if head.startswith(magic):
            require_local(path, kind)
            raise InputError(
                f"{name}: is {kind}, no text; make a store: ooc-svm convert {shlex.quote(path)} -o NEW.zarr"
            )


class TextInput:
    """A text input from its first to its last byte, or some of its lines; made by `open_input`.

    ``state`` is the file as it was when it was opened, None for standard input; ``name`` and ``compression``
    are those of `InputMetadata`. ``bytes_read`` counts bytes of the file, of these lines.
    """

    def __init__(
        self,
        path: str,
        source: ByteSource,
        state: FileState | None,
        read_bytes: int,
        extent: tuple[int, int] | None = None,
    ) -> None:
        self.name = display_name(path)
        self.state = state
        self.compression: str | None = None
        self.bytes_read = 0
        self._path, self._source = path, source
        self._read_bytes, self._extent = read_bytes, extent
        self._ended = False
        self._members: Members | None = None
        self._head = b""  # text looked at before the first chunk
        self._failure: OocSvmError | None = None  # what ended the text too early
        self._spare: deque[ByteArray] = deque()  # memory of recycled chunks

    @property
    def metadata(self) -> InputMetadata:
        """Name, size, time and compression."""
        size, mtime_ns = (None, None) if self.state is None else (self.state.size, self.state.mtime_ns)
        return InputMetadata(self.name, size, mtime_ns, self.compression)

    def __enter__(self) -> TextInput:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; standard input stays open."""
        self._source.close()

    # Bytes of the file

    def _read_file(self, target: memoryview) -> int:
        """Fill `target` or the first part of it with bytes of the file: how many; 0 at its end."""
        if self._ended:
            return 0
        start, stop = self._extent or (0, None)
        place = start + self.bytes_read
        most = self._read_bytes if stop is None else min(self._read_bytes, stop - place)
        try:
            n_bytes = self._source.readinto(target[:most])
        except StorageError:
            raise
        except OSError as error:
            raise StorageError(
                f"{self.name}: reading failed at byte {place}: {error.strerror}; check the disk"
            ) from error
        self.bytes_read += n_bytes
        self._ended = n_bytes == 0
        return n_bytes

    def _read_raw(self, n_bytes: int | None = None) -> bytes:
        """At most `n_bytes` bytes of the file, by default as many as one read may have; none at its end."""
        space = memoryview(bytearray(n_bytes or self._read_bytes))
        return bytes(space[: self._read_file(space)])

    # Bytes of the text

    def begin(self) -> None:
        """Find the compression, check the name against it, and look at the first bytes of the text.

        Lines from the middle of a file are plain text, and nothing stands before them.
        """
        if self._extent is not None and self._extent[0] > 0:
            self._source.seek(self._extent[0])
            return
        head = b""
        while len(head) < MAGIC_BYTES and (data := self._read_raw(MAGIC_BYTES - len(head))):
            head += data
        if not head:
            if self.state is None:
                raise InputError("standard input is empty; check the command that writes it")
            raise InputError(f"{self.name}: the file is empty; get it again, or leave it out")
        format_ = format_of_content(head)
        check_text(head, self.name, self._path if self.state else "FILE")
        claimed = None if self.state is None else format_of_name(self._path)
        if claimed is not None and claimed != format_:
            raise InputError(
                f"{self.name}: the name says {claimed.name}, but the content is "
                f"{format_.name if format_ else 'not compressed'}: rename the file, or get it again"
            )
        if format_ is None:
            self._head = head
        else:
            self.compression = format_.name
            self._members = members = Members(self.name, format_, head, self._read_raw)
            while len(self._head) < len(BYTE_ORDER_MARK) and (data := members.read(len(BYTE_ORDER_MARK))):
                self._head += data
            if not self._head:
                raise InputError(
                    f"{self.name}: the compressed file holds no data; get it again, or leave it out"
                )
        if self._head.startswith(_UTF_16_MARKS):
            raise InputError(f"{self.name}: the text is UTF-16: convert it to ASCII or UTF-8 first")
        self._head = self._head.removeprefix(BYTE_ORDER_MARK)

    def _read_text(self, target: memoryview) -> int:
        """Fill `target` or the first part of it with text: how many bytes; 0 at the end."""
        n_bytes = len(target)
        if self._head:
            data, self._head = self._head[:n_bytes], self._head[n_bytes:]
        elif self._members is not None:
            data = self._members.read(n_bytes)
        else:
            return self._read_file(target)
        target[: len(data)] = data
        return len(data)

    # Chunks of lines

    def chunks(
        self, chunk_bytes: int = CHUNK_BYTES, max_line_bytes: int = MAX_LINE_BYTES
    ) -> Generator[TextChunk, None, None]:
        """The text as chunks of whole lines, in order, none empty.

        The last line gets a line feed if it has none. A line longer than `chunk_bytes` makes its chunk
        longer; `max_line_bytes` is the longest line accepted, without its line feed. After all whole lines
        before that were given, raises LineTooLongError, InputError where the compressed data are damaged or
        truncated, StorageError where reading failed; at the end, InputError if the file changed meanwhile.
        """
        longest = max_line_bytes + 1
        smallest = min(chunk_bytes, longest)
        capacity = smallest
        buffer = self._new_buffer(capacity)
        filled, ended = self._fill(buffer, 0, capacity)
        while not ended:
            stop = _last_line_end(buffer, filled)
            if stop == 0 and capacity == longest:
                raise LineTooLongError(f"the line is longer than {max_line_bytes} bytes")
            if stop > 0:
                yield TextChunk(buffer, stop, self.bytes_read)
            rest = buffer[stop:filled]
            capacity = smallest if len(rest) < smallest else min(2 * len(rest), longest)
            buffer = self._new_buffer(capacity)
            buffer[: len(rest)] = rest  # perhaps to the start of the same memory, recycled by now
            filled, ended = self._fill(buffer, len(rest), capacity)
        if self._failure is not None:
            stop = _last_line_end(buffer, filled)
            if stop > 0:
                yield TextChunk(buffer, stop, self.bytes_read)
            raise self._failure
        self._check_unchanged()
        if filled > 0:
            if buffer[filled - 1] != _LINE_FEED:
                buffer[filled] = _LINE_FEED
                filled += 1
            yield TextChunk(buffer, filled, self.bytes_read)

    def recycle(self, chunk: TextChunk) -> None:
        """Give back a chunk that is not needed any more: a later one is read into its memory."""
        self._spare.append(chunk.buffer)

    def _new_buffer(self, capacity: int) -> ByteArray:
        n_bytes = capacity + 1 + PADDING
        while self._spare:
            buffer = self._spare.pop()
            if len(buffer) == n_bytes:
                return buffer
        return row_room(n_bytes, np.uint8)

    def _fill(self, buffer: ByteArray, filled: int, capacity: int) -> tuple[int, bool]:
        """Read into the buffer up to its capacity: (bytes in it, has the text ended)."""
        view = memoryview(buffer.data)
        while filled < capacity:
            try:
                n_bytes = self._read_text(view[filled:capacity])
            except (InputError, StorageError) as error:
                self._failure = error
                n_bytes = 0
            if n_bytes == 0:
                return filled, True
            filled += n_bytes
        return filled, False

    def _check_unchanged(self) -> None:
        """Raise InputError if the file is not the one that was opened, or not all of it was read."""
        if self.state is None:
            return
        start, stop = self._extent or (0, self.state.size)
        if not self._is_the_same() or self.bytes_read != stop - start:
            raise InputError(
                f"{self.name}: the file changed while it was read: start again when it is complete"
            )

    def _is_the_same(self) -> bool:
        """Whether the open file, and what is under its name, are as they were; all of an object is."""
        if not isinstance(self._source, _Descriptor):
            return True
        try:
            status = self._source.status()
        except OSError as error:
            raise _unreadable(self._path, error) from error
        return FileState.of(status) == self.state == current_state(self._path)


def _last_line_end(buffer: ByteArray, filled: int) -> int:
    """Position after the last line feed; 0 when there is none."""
    step = 4096
    for stop in range(filled, 0, -step):
        start = max(stop - step, 0)
        found = np.flatnonzero(buffer[start:stop] == _LINE_FEED)
        if len(found):
            return start + int(found[-1]) + 1
    return 0


def _unreadable(path: str, error: OSError) -> StorageError:
    return StorageError(f"{display_name(path)}: cannot be looked at: {error.strerror}; check the disk")


def display_name(path: str) -> str:
    """The name of an input as messages write it."""
    if path == "-":
        return "standard input"
    return path if path.isprintable() else repr(path)


def expanded(paths: Iterable[str | os.PathLike[str]]) -> list[str | os.PathLike[str]]:
    """The paths, with the objects that an address with a pattern names in its place, by their keys.

    InputError if no object matches a pattern.
    """
    found: list[str | os.PathLike[str]] = []
    for path in paths:
        address = address_of(path)
        found += [path] if address is None else matching(address)
    return found


def open_input(
    path: str | os.PathLike[str], read_bytes: int = READ_BYTES, extent: tuple[int, int] | None = None
) -> TextInput:
    """Open a text file, compressed or not, or standard input (``-``), at the first byte of the text.

    `extent` has the start and the stop of whole lines of a plain file, in bytes: only these are read. Raises
    InputError where there is no such file, it is not a regular one, it is empty, its suffix and its content
    disagree, or it is UTF-16; StorageError where it cannot be opened or read.
    """
    name = os.fspath(path)
    if name == "-":
        return _begun(TextInput(name, _Descriptor(_STANDARD_INPUT), None, read_bytes))
    stop = None if extent is None else extent[1]
    source, state = _open_source(name, lambda address: ObjectReader(address, stop))
    return _begun(TextInput(name, source, state, read_bytes, extent))


def inspect_input(path: str, read_bytes: int = READ_BYTES) -> TextInput:
    """Open a file or an object as `open_input` does, with few bytes fetched, and close it."""
    head = partial(ObjectReader, range_bytes=HEAD_BYTES, ranges_ahead=1)
    source, state = _open_source(path, head)
    opened = _begun(TextInput(path, source, state, read_bytes))
    opened.close()
    return opened


def _begun(opened: TextInput) -> TextInput:
    try:
        opened.begin()
    except BaseException:
        opened.close()
        raise
    return opened


def _open_source(path: str, reader_of: Callable[[Address], ObjectReader]) -> tuple[ByteSource, FileState]:
    """Bytes and state of a regular file or an object; anything else is refused."""
    name = display_name(path)
    try:
        if (address := address_of(path)) is not None:
            reader = reader_of(address)
            return reader, FileState.of_object(reader.version)
        descriptor = open_regular(path)
        state = FileState.of(file_status(descriptor, path))
    except IrregularFileError as error:
        raise InputError(
            f"{name} is {error.kind}, not a file: give regular files, or - for standard input"
        ) from None
    except FileNotFoundError as error:
        raise InputError(f"{name}: there is no such file; check the path") from error
    except OocSvmError:
        raise
    except OSError as error:
        raise StorageError(f"{name}: cannot be opened: {error.strerror}; check its permissions") from error
    return _Descriptor(descriptor), state

"""Text inputs: compression, what is refused, chunks of whole lines."""

from __future__ import annotations

import bz2
import errno
import lzma
import os
import socket
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.compressors import COMPRESSORS, zstd

from ooc_svm.errors import InputError, StorageError
from ooc_svm.text import inputs
from ooc_svm.text.compression import Members, format_of_name, window_bytes
from ooc_svm.text.inputs import LineTooLongError, open_input

TEXT = b"".join(b"%d %d:0.%d\n" % (k % 2, k + 1, k * k) for k in range(400))
COMPRESSED = [suffix for suffix in COMPRESSORS if suffix]
NAMES = {"": None, ".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}


def read(
    path: Path, read_bytes: int = 1 << 20, chunk_bytes: int = 1000, max_line_bytes: int = 10_000
) -> bytes:
    """The whole text, put together from its chunks, each of which is checked to hold whole lines."""
    lines = []
    with open_input(path, read_bytes) as text:
        for chunk in text.chunks(chunk_bytes, max_line_bytes):
            assert len(chunk.buffer) >= chunk.n_bytes + 8
            whole = chunk.buffer[: chunk.n_bytes].tobytes()
            assert whole.endswith(b"\n")
            lines.append(whole)
        assert text.bytes_read == text.metadata.size == path.stat().st_size
    return b"".join(lines)


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("read_bytes", [1, 7, 4096])
@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_every_format_in_small_reads(tmp_path: Path, suffix: str, read_bytes: int) -> None:
    path = write(tmp_path / f"data.svm{suffix}", COMPRESSORS[suffix](TEXT))
    assert read(path, read_bytes) == TEXT
    with open_input(path) as text:
        assert text.compression == NAMES[suffix]
        assert text.metadata.mtime_ns == path.stat().st_mtime_ns


@pytest.mark.parametrize("read_bytes", [1, 7, 4096])
@pytest.mark.parametrize("suffix", COMPRESSED)
def test_all_members_are_read(tmp_path: Path, suffix: str, read_bytes: int) -> None:
    compress = COMPRESSORS[suffix]
    data = compress(TEXT[:1001]) + compress(b"") + compress(TEXT[1001:1002]) + compress(TEXT[1002:])
    assert read(write(tmp_path / f"data{suffix}", data), read_bytes) == TEXT


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_short_members_take_little_of_what_follows_them(suffix: str) -> None:
    """What follows a member was copied for each of them: a megabyte for every log line."""
    one, count, taken = COMPRESSORS[suffix](TEXT[:50]), 3000, 0
    format_ = format_of_name(f"data{suffix}")
    assert format_ is not None

    class Counted:
        def __init__(self) -> None:
            self._member = format_.open()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._member, name)

        def decompress(self, data: bytes, max_length: int) -> bytes:
            nonlocal taken
            taken += len(data)
            text: bytes = self._member.decompress(data, max_length)
            return text

    read = iter([(one * count)[6:], b""]).__next__
    members = Members("data", replace(format_, open=Counted), one[:6], read)
    assert b"".join(iter(lambda: members.read(1 << 20), b"")) == TEXT[:50] * count
    assert taken <= count * (1 << 14)


def test_zstd_skippable_frames_are_passed_over(tmp_path: Path) -> None:
    skippable = b"\x51\x2a\x4d\x18\x03\x00\x00\x00abc"
    data = skippable + zstd.compress(TEXT[:50]) + skippable + zstd.compress(TEXT[50:])
    assert read(write(tmp_path / "data.zst", data), 7) == TEXT


def skippable_frame(length: int) -> bytes:
    return b"\x50\x2a\x4d\x18" + length.to_bytes(4, "little") + bytes(length)


def test_window_behind_skippable_frames(tmp_path: Path) -> None:
    frame = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 23})
    data = frame.compress(TEXT) + frame.flush()
    for before in (b"", skippable_frame(4), skippable_frame(0) + skippable_frame(2000)):
        path = write(tmp_path / "data.zst", before + data)
        assert window_bytes(path) == 8 << 20
        assert read(path) == TEXT
    # Nothing is known of what lies behind the part of the file that is looked at.
    for before in (skippable_frame(5000), skippable_frame(4)[:6]):
        assert window_bytes(write(tmp_path / "data.zst", before)) == 0


@pytest.mark.parametrize("suffix", [".xz", ".zst"])
def test_window_larger_than_allowed(tmp_path: Path, suffix: str) -> None:
    if suffix == ".xz":
        data = lzma.compress(TEXT, filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 512 << 20}])
    else:
        frame = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 30})
        data = frame.compress(TEXT) + frame.flush()
    with pytest.raises(InputError, match=r"needs more memory than is allowed: compress .* smaller") as caught:
        read(write(tmp_path / f"data{suffix}", data))
    assert "damaged" not in str(caught.value)


@pytest.mark.fault
@pytest.mark.parametrize("suffix", COMPRESSED)
def test_truncated_at_every_tenth_byte(tmp_path: Path, suffix: str) -> None:
    whole = COMPRESSORS[suffix](TEXT)
    for length in range(len(whole) - 1, 0, -10):
        path = write(tmp_path / f"data{suffix}", whole[:length])
        with pytest.raises(InputError) as caught:
            read(path, 64)
        assert "truncated" in str(caught.value) or length < 6
    cut_member = whole + COMPRESSORS[suffix](TEXT)[:-1]
    with pytest.raises(InputError, match="truncated"):
        read(write(tmp_path / f"data{suffix}", cut_member))
    with pytest.raises(InputError, match="truncated"):
        read(write(tmp_path / f"data{suffix}", whole + whole[:2]))


@pytest.mark.fault
@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
def test_flipped_bit_is_damage(tmp_path: Path, suffix: str) -> None:
    # The zstd command adds a checksum; Python's compressor does not, so nothing would notice there.
    data = bytearray(COMPRESSORS[suffix](TEXT))
    for place in range(20, len(data) - 20, 97):
        data[place] ^= 4
        with pytest.raises(InputError, match=r"damaged|truncated|follows"):
            read(write(tmp_path / f"data{suffix}", bytes(data)))
        data[place] ^= 4


@pytest.mark.parametrize("read_bytes", [1, 4096])
@pytest.mark.parametrize("suffix", COMPRESSED)
def test_trailing_garbage(tmp_path: Path, suffix: str, read_bytes: int) -> None:
    data = COMPRESSORS[suffix](TEXT)
    for garbage in (b"x", b"1 1:2\n" * 5, b"\0\0\0\0x"):
        with pytest.raises(InputError, match=rf"what follows .* at byte {len(data)}|truncated"):
            read(write(tmp_path / f"data{suffix}", data + garbage.lstrip(b"\0") + garbage), read_bytes)


@pytest.mark.parametrize("read_bytes", [1, 4096])
def test_zero_padding(tmp_path: Path, read_bytes: int) -> None:
    for suffix in (".gz", ".xz"):
        data = COMPRESSORS[suffix](TEXT) + bytes(512)
        assert read(write(tmp_path / f"data{suffix}", data), read_bytes) == TEXT
        with pytest.raises(InputError, match="what follows"):
            read(write(tmp_path / f"data{suffix}", data + b"garbage"), read_bytes)
    with pytest.raises(InputError, match="what follows"):
        read(write(tmp_path / "data.bz2", bz2.compress(TEXT) + bytes(512)), read_bytes)


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_suffix_against_content(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(InputError, match=f"says {NAMES[suffix]}, but the content is not compressed"):
        open_input(write(tmp_path / f"plain{suffix}", TEXT))
    other = ".gz" if suffix != ".gz" else ".xz"
    with pytest.raises(InputError, match=f"but the content is {NAMES[suffix]}"):
        open_input(write(tmp_path / f"other{other}", COMPRESSORS[suffix](TEXT)))
    assert read(write(tmp_path / "nosuffix.svm", COMPRESSORS[suffix](TEXT))) == TEXT


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_empty_compressed_file(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(InputError, match="the compressed file holds no data; get it again, or leave it out"):
        open_input(write(tmp_path / f"empty{suffix}", COMPRESSORS[suffix](b"")))


def test_what_is_not_a_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    with pytest.raises(InputError, match="is a folder"):
        open_input(tmp_path)
    with pytest.raises(InputError, match="is a named pipe"):
        open_input(tmp_path / "pipe")
    with pytest.raises(InputError, match="is a device"):
        open_input("/dev/null")
    with pytest.raises(InputError, match="is empty"):
        open_input(tmp_path / "empty")
    with pytest.raises(InputError, match="there is no such file; check the path"):
        open_input(tmp_path / "missing")
    with socket.socket(socket.AF_UNIX) as server:
        folder = os.open(tmp_path, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{folder}/socket")  # the name of a socket must be short
        os.close(folder)
    with pytest.raises(InputError, match="is a socket"):
        open_input(tmp_path / "socket")


def test_names_that_cannot_be_printed_are_quoted(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"bad\\nname"):
        open_input(tmp_path / "bad\nname")


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_byte_order_marks(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"data{suffix}"
    mark = b"\xef\xbb\xbf"
    assert read(write(path, COMPRESSORS[suffix](mark + TEXT)), 1) == TEXT
    assert read(write(path, COMPRESSORS[suffix](mark + mark + TEXT)), 1) == mark + TEXT
    for encoding in ("utf-16", "utf-16-be", "utf-32"):
        text = ("\ufeff" if encoding.endswith("be") else "") + TEXT.decode()
        with pytest.raises(InputError, match="UTF-16"):
            open_input(write(path, COMPRESSORS[suffix](text.encode(encoding))))


@pytest.mark.parametrize("chunk_bytes", [1, 2, 5, 64, 1 << 16])
def test_chunks_hold_whole_lines(tmp_path: Path, chunk_bytes: int) -> None:
    text = b"\n\n1 1:1\n" + b"2 " + b" " * 300 + b"\n3\n" + b"4 " + b"7" * 100 + b"\n" + b"\n" * 50 + b"5 1:1"
    assert read(write(tmp_path / "data", text), 3, chunk_bytes) == text + b"\n"


@pytest.mark.parametrize("chunk_bytes", [1, 10, 100, 5000])
def test_longest_line(tmp_path: Path, chunk_bytes: int) -> None:
    line = b"1" + b" " * 99
    for end in (b"", b"\n", b"\n2 1:1\n"):
        text = b"1\n" + line + end
        assert read(write(tmp_path / "data", text), 9, chunk_bytes, 100).startswith(text)
        too_long = write(tmp_path / "long", b"1\n" + b" " + line + end)
        seen = []
        with open_input(too_long) as opened, pytest.raises(LineTooLongError, match="longer than 100 bytes"):
            seen.extend(chunk.n_bytes for chunk in opened.chunks(chunk_bytes, 100))
        assert sum(seen) == 2


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_memory_follows_the_block(tmp_path: Path, suffix: str) -> None:
    # The smallest preset of xz: the default keeps a dictionary of 8 MiB.
    compress = (lambda data: lzma.compress(data, preset=0)) if suffix == ".xz" else COMPRESSORS[suffix]
    path = write(tmp_path / f"data{suffix}", compress(b"1 1:1\n" * (1 << 19)))
    endless = write(tmp_path / f"endless{suffix}", compress(b"7" * (3 << 20)))
    tracemalloc.start()
    try:
        with open_input(path, 1 << 14) as text:
            assert sum(chunk.n_bytes for chunk in text.chunks(1 << 16)) == 3 << 20
        with open_input(endless, 1 << 14) as text, pytest.raises(LineTooLongError):
            list(text.chunks(1 << 16, 1 << 17))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.fault
@pytest.mark.parametrize("change", ["grown", "cut", "replaced", "touched", "removed"])
def test_file_that_changes_while_it_is_read(tmp_path: Path, change: str) -> None:
    path = write(tmp_path / "data", TEXT)
    with open_input(path, 16) as text:
        chunks = text.chunks(64)
        next(chunks)
        if change == "grown":
            with path.open("ab") as file:
                file.write(b"1 1:1\n")
        elif change == "cut":
            os.truncate(path, 1000)
        elif change == "replaced":
            os.replace(write(tmp_path / "other", TEXT), path)
        elif change == "touched":
            os.utime(path, ns=(0, 0))
        else:
            path.unlink()
        with pytest.raises(InputError, match="changed while it was read"):
            list(chunks)


def test_a_recycled_chunk_is_read_into_again(tmp_path: Path) -> None:
    with open_input(write(tmp_path / "data", TEXT)) as text:
        texts, addresses = [], set()
        for chunk in text.chunks(64):
            texts.append(chunk.buffer[: chunk.n_bytes].tobytes())
            addresses.add(chunk.buffer.ctypes.data)
            text.recycle(chunk)
    assert b"".join(texts) == TEXT
    assert len(texts) > 4
    assert len(addresses) == 1


@pytest.mark.fault
def test_read_error_is_a_storage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "data", TEXT)
    fired = []

    def failing_read(descriptor: int, buffers: list[memoryview]) -> int:
        if fired or os.lseek(descriptor, 0, os.SEEK_CUR) > 500:
            fired.append(descriptor)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real_read(descriptor, buffers)

    real_read = os.readv
    with open_input(path, 100) as text:
        monkeypatch.setattr(inputs.os, "readv", failing_read)
        with pytest.raises(StorageError, match=r"at byte 5[0-9][0-9]: Input/output error; check the disk"):
            list(text.chunks(64))
    assert len(fired) == 1


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with open_input(write(tmp_path / "data", TEXT)) as text:
        next(text.chunks(10))
    with pytest.raises(InputError):
        open_input(write(tmp_path / "data.gz", TEXT))
    assert len(os.listdir("/proc/self/fd")) == before

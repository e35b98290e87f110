"""Text inputs: compression, what is refused, blocks of whole lines."""

from __future__ import annotations

import bz2
import errno
import lzma
import os
import socket
import tracemalloc
from pathlib import Path

import pytest
from helpers.compressors import COMPRESSORS, zstd

from ooc_svm.errors import InputError, StorageError
from ooc_svm.text import inputs
from ooc_svm.text.inputs import LineTooLongError, open_source

TEXT = b"".join(b"%d %d:0.%d\n" % (k % 2, k + 1, k * k) for k in range(400))
COMPRESSED = [suffix for suffix in COMPRESSORS if suffix]
NAMES = {"": None, ".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}


def read(
    path: Path, read_bytes: int = 1 << 20, block_bytes: int = 1000, max_line_bytes: int = 10_000
) -> bytes:
    """The whole text, put together from its blocks, each of which is checked to hold whole lines."""
    pieces = []
    with open_source(path, read_bytes) as source:
        for block in source.blocks(block_bytes, max_line_bytes):
            assert len(block.buffer) >= block.n_bytes + 8
            piece = block.buffer[: block.n_bytes].tobytes()
            assert piece.endswith(b"\n")
            pieces.append(piece)
        assert source.bytes_read == source.size == path.stat().st_size
    return b"".join(pieces)


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("read_bytes", [1, 7, 4096])
@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_every_format_in_small_reads(tmp_path: Path, suffix: str, read_bytes: int) -> None:
    path = write(tmp_path / f"data.svm{suffix}", COMPRESSORS[suffix](TEXT))
    assert read(path, read_bytes) == TEXT
    with open_source(path) as source:
        assert source.compression == NAMES[suffix]
        assert source.mtime_ns == path.stat().st_mtime_ns


@pytest.mark.parametrize("read_bytes", [1, 7, 4096])
@pytest.mark.parametrize("suffix", COMPRESSED)
def test_all_members_are_read(tmp_path: Path, suffix: str, read_bytes: int) -> None:
    compress = COMPRESSORS[suffix]
    data = compress(TEXT[:1001]) + compress(b"") + compress(TEXT[1001:1002]) + compress(TEXT[1002:])
    assert read(write(tmp_path / f"data{suffix}", data), read_bytes) == TEXT


def test_zstd_skippable_frames_are_passed_over(tmp_path: Path) -> None:
    skippable = b"\x51\x2a\x4d\x18\x03\x00\x00\x00abc"
    data = skippable + zstd.compress(TEXT[:50]) + skippable + zstd.compress(TEXT[50:])
    assert read(write(tmp_path / "data.zst", data), 7) == TEXT


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
        open_source(write(tmp_path / f"plain{suffix}", TEXT))
    other = ".gz" if suffix != ".gz" else ".xz"
    with pytest.raises(InputError, match=f"but the content is {NAMES[suffix]}"):
        open_source(write(tmp_path / f"other{other}", COMPRESSORS[suffix](TEXT)))
    assert read(write(tmp_path / "nosuffix.svm", COMPRESSORS[suffix](TEXT))) == TEXT


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_empty_compressed_file(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(InputError, match="holds no data"):
        open_source(write(tmp_path / f"empty{suffix}", COMPRESSORS[suffix](b"")))


def test_what_is_not_a_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").touch()
    with pytest.raises(InputError, match="is a folder"):
        open_source(tmp_path)
    with pytest.raises(InputError, match="is a named pipe"):
        open_source(tmp_path / "pipe")
    with pytest.raises(InputError, match="is a device"):
        open_source("/dev/null")
    with pytest.raises(InputError, match="is empty"):
        open_source(tmp_path / "empty")
    with pytest.raises(InputError, match="no such file"):
        open_source(tmp_path / "missing")
    with socket.socket(socket.AF_UNIX) as server:
        folder = os.open(tmp_path, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{folder}/socket")  # the name of a socket must be short
        os.close(folder)
    with pytest.raises(InputError, match="is a socket"):
        open_source(tmp_path / "socket")


def test_names_that_cannot_be_printed_are_quoted(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"bad\\nname"):
        open_source(tmp_path / "bad\nname")


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_byte_order_marks(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"data{suffix}"
    mark = b"\xef\xbb\xbf"
    assert read(write(path, COMPRESSORS[suffix](mark + TEXT)), 1) == TEXT
    assert read(write(path, COMPRESSORS[suffix](mark + mark + TEXT)), 1) == mark + TEXT
    for encoding in ("utf-16", "utf-16-be", "utf-32"):
        text = ("\ufeff" if encoding.endswith("be") else "") + TEXT.decode()
        with pytest.raises(InputError, match="UTF-16"):
            open_source(write(path, COMPRESSORS[suffix](text.encode(encoding))))


@pytest.mark.parametrize("block_bytes", [1, 2, 5, 64, 1 << 16])
def test_blocks_hold_whole_lines(tmp_path: Path, block_bytes: int) -> None:
    text = b"\n\n1 1:1\n" + b"2 " + b" " * 300 + b"\n3\n" + b"4 " + b"7" * 100 + b"\n" + b"\n" * 50 + b"5 1:1"
    assert read(write(tmp_path / "data", text), 3, block_bytes) == text + b"\n"


@pytest.mark.parametrize("block_bytes", [1, 10, 100, 5000])
def test_longest_line(tmp_path: Path, block_bytes: int) -> None:
    line = b"1" + b" " * 99
    for end in (b"", b"\n", b"\n2 1:1\n"):
        text = b"1\n" + line + end
        assert read(write(tmp_path / "data", text), 9, block_bytes, 100).startswith(text)
        too_long = write(tmp_path / "long", b"1\n" + b" " + line + end)
        seen = []
        with open_source(too_long) as source, pytest.raises(LineTooLongError, match="longer than 100 bytes"):
            seen.extend(block.n_bytes for block in source.blocks(block_bytes, 100))
        assert sum(seen) == 2


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_memory_follows_the_block(tmp_path: Path, suffix: str) -> None:
    # The smallest preset of xz: the default keeps a dictionary of 8 MiB.
    compress = (lambda data: lzma.compress(data, preset=0)) if suffix == ".xz" else COMPRESSORS[suffix]
    path = write(tmp_path / f"data{suffix}", compress(b"1 1:1\n" * (1 << 19)))
    endless = write(tmp_path / f"endless{suffix}", compress(b"7" * (3 << 20)))
    tracemalloc.start()
    try:
        with open_source(path, 1 << 14) as source:
            assert sum(block.n_bytes for block in source.blocks(1 << 16)) == 3 << 20
        with open_source(endless, 1 << 14) as source, pytest.raises(LineTooLongError):
            list(source.blocks(1 << 16, 1 << 17))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.fault
@pytest.mark.parametrize("change", ["grown", "cut", "replaced", "touched", "removed"])
def test_file_that_changes_while_it_is_read(tmp_path: Path, change: str) -> None:
    path = write(tmp_path / "data", TEXT)
    with open_source(path, 16) as source:
        blocks = source.blocks(64)
        next(blocks)
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
            list(blocks)


def test_a_block_given_back_is_read_into_again(tmp_path: Path) -> None:
    with open_source(write(tmp_path / "data", TEXT)) as source:
        texts, addresses = [], set()
        for block in source.blocks(64):
            texts.append(block.buffer[: block.n_bytes].tobytes())
            addresses.add(block.buffer.ctypes.data)
            source.recycle(block)
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
    with open_source(path, 100) as source:
        monkeypatch.setattr(inputs.os, "readv", failing_read)
        with pytest.raises(StorageError, match=r"reading failed at byte 5[0-9][0-9]: Input/output error"):
            list(source.blocks(64))
    assert len(fired) == 1


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with open_source(write(tmp_path / "data", TEXT)) as source:
        next(source.blocks(10))
    with pytest.raises(InputError):
        open_source(write(tmp_path / "data.gz", TEXT))
    assert len(os.listdir("/proc/self/fd")) == before

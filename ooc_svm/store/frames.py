"""The size a compressed frame says it has, read before a decompressor allocates that much."""

from __future__ import annotations

from ooc_svm.store.metadata import ArrayInfo

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_DICTIONARY_BYTES = (0, 1, 2, 4)


def frame_codec(info: ArrayInfo) -> str | None:
    """Name of the codec, "blosc" or "zstd", where a chunk file is one such frame; else None."""
    if info.inner_chunk != info.chunk or info.dtype.kind == "O":
        return None
    codecs = [codec.removeprefix("numcodecs.") for codec in info.codecs]
    if codecs and codecs[-1] == "crc32c":
        codecs.pop()  # four bytes after the frame
    if codecs and codecs[-1] in ("blosc", "zstd") and set(codecs[:-1]) <= {"bytes", "shuffle"}:
        return codecs[-1]
    return None


def content_size(codec: str, frame: bytes) -> int | None:
    """Bytes a frame will decompress to.

    Parameters
    ----------
    codec : {"blosc", "zstd"}
    frame : bytes
        The first 18 bytes of it are enough.

    Returns
    -------
    int or None
        None where the header does not say it or is damaged.
    """
    if codec == "blosc":
        return int.from_bytes(frame[4:8], "little") if len(frame) >= 16 else None
    if len(frame) < 6 or frame[:4] != _ZSTD_MAGIC:
        return None
    descriptor = frame[4]
    single_segment = bool(descriptor & 0x20)
    width = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
    start = 5 + (0 if single_segment else 1) + _ZSTD_DICTIONARY_BYTES[descriptor & 3]
    if not width or len(frame) < start + width:
        return None
    size = int.from_bytes(frame[start : start + width], "little")
    return size + 256 if width == 2 else size

"""The codecs that are read: their settings are checked, and none writes more bytes than it may.

A chunk may come from anywhere, and two megabytes of gzip can hold two gigabytes. The metadata say what a
chunk decodes to, and from that follows for every codec how many bytes it may give and take. A decompressor
that writes as it reads is stopped there. One that allocates what the beginning of its frame says is started
only where that is as it must be.
"""

from __future__ import annotations

import bz2
import lzma
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import google_crc32c
import numpy as np
from numcodecs import blosc, lz4, zstd
from numcodecs.vlen import VLenUTF8

from ooc_svm.store.layout import BLOSC_HEADER_BYTES, CHECKSUM_BYTES
from ooc_svm.store.storage import Bytes
from ooc_svm.system.recognition import ZSTD

MOST_CODECS = 8
"""Limit of the number of codecs of an array: each lets the stored form be a little larger."""

MEAN_TEXT_BYTES = 2**16
"""Limit of the mean length of the strings of a chunk, in bytes: a small chunk takes no large one's memory."""

# Limit of all strings of a chunk, in bytes. Many of a usual length may take more, up to the last limit.
_TEXT_CHUNK_BYTES, _USUAL_TEXT_BYTES, _LARGEST_TEXT_CHUNK = 2**27, 256, 2**28

_LZMA_WINDOW = 2**27  # Bytes that the window of lzma may take in addition to those of the content

_ZSTD_DICTIONARY_BYTES = (0, 1, 2, 4)
_FRAME_START = 18  # Bytes at the beginning of a frame that are enough to find the size of its content

# Codecs whose format has a checksum of the content; for zstd it is an option.
_CHECKSUMMED = ("crc32", "crc32c", "gzip", "zlib", "bz2")

Settings = Mapping[str, Any]


class Size(NamedTuple):
    """Number of bytes; where it is not exact, the most that there may be."""

    most: int
    exact: bool = True

    def allows(self, n_bytes: int) -> bool:
        """Whether there may be this number of bytes."""
        return n_bytes == self.most if self.exact else n_bytes <= self.most

    def __str__(self) -> str:
        return f"{self.most} bytes" if self.exact else f"at most {self.most} bytes"


class _Kind(NamedTuple):
    """What is known of a codec.

    ``settings``: tests of the values in its configuration, which may have no others
    ``decode``: gives the decoded form of some bytes, of the size that is said
    ``encoded_size``: the size of the encoded form of content of some size
    """

    settings: Mapping[str, Callable[[Any], bool]]
    decode: Callable[[Bytes, Settings, Size], Any]
    encoded_size: Callable[[Size, Settings], Size]


@dataclass(frozen=True)
class Codec:
    """A codec of an array; ``name`` is without the prefix "numcodecs."."""

    name: str
    settings: Settings


def make_codec(name: str, settings: Any) -> Codec:
    """Check the settings of a codec in the list; raises ValueError."""
    known = _KINDS[name].settings
    if not isinstance(settings, dict):
        raise ValueError(f"the settings of {name} are {settings!r:.80}")
    for key, value in settings.items():
        if key not in known or not known[key](value):
            raise ValueError(f"{name} has the setting {key!r:.80}: {value!r:.80}")
    return Codec(name, settings)


def check_order(codecs: Sequence[Codec], dtype: np.dtype[Any]) -> None:
    """Raise ValueError where codecs cannot follow each other so, or do not fit the type of the elements."""
    names = [codec.name for codec in codecs]
    deltas = [codec for codec in codecs if codec.name == "delta"]
    whole = len(names) <= MOST_CODECS and names[: len(deltas)] == ["delta"] * len(deltas) and len(deltas) < 2
    whole &= names.count("bytes") == 0 or names.index("bytes") == len(deltas)
    whole &= names.count("bytes") + names.count("vlen-utf8") < 2
    # Strings are objects, and nothing else makes or takes objects.
    whole &= (dtype.kind == "O") == (names[:1] == ["vlen-utf8"]) and "vlen-utf8" not in names[1:]
    whole &= all("dtype" in each.settings and _delta_types(each.settings)[0] == dtype for each in deltas)
    if not whole:
        raise ValueError(f"elements of {dtype} cannot be encoded by {', '.join(names)}")


def has_checksum(codecs: Sequence[Codec]) -> bool:
    """Whether one of the codecs notices each damaged byte."""
    return any(_has_checksum(codec) for codec in codecs)


def _has_checksum(codec: Codec) -> bool:
    settings = codec.settings
    if codec.name == "lzma":
        return settings.get("format", lzma.FORMAT_XZ) == lzma.FORMAT_XZ and settings.get("check") != 0
    return codec.name in _CHECKSUMMED or settings.get("checksum") is True


def chunk_size(codecs: Sequence[Codec], n_elements: int, dtype: np.dtype[Any]) -> Size:
    """The size of a stored chunk."""
    return _sizes(codecs, n_elements, dtype)[-1]


def decode_chunk(
    codecs: Sequence[Codec], content: Bytes, n_elements: int, dtype: np.dtype[Any]
) -> np.ndarray[tuple[int], np.dtype[Any]]:
    """Decode a stored chunk; whatever a codec raises on damaged bytes is raised."""
    sizes = _sizes(codecs, n_elements, dtype)
    for codec, size, encoded in zip(reversed(codecs), sizes[-2::-1], sizes[:0:-1], strict=True):
        if not encoded.allows(len(content)):
            raise ValueError(f"{codec.name} gets {len(content)} bytes instead of {encoded}")
        decoded = _KINDS[codec.name].decode(content, codec.settings, size)
        content = decoded if isinstance(decoded, np.ndarray) else np.frombuffer(decoded, np.uint8)
    if not sizes[0].allows(len(content)):
        raise ValueError(f"{len(content)} bytes instead of {sizes[0]}")
    return _strings(content, n_elements) if dtype.kind == "O" else content.view(dtype)


def usual_text_bytes(n_strings: int) -> int:
    """Bytes that a chunk of strings of usual lengths takes at most as it is decoded."""
    return min(4 + n_strings * (4 + _USUAL_TEXT_BYTES), _LARGEST_TEXT_CHUNK)


def most_text_bytes(n_strings: int) -> int:
    """Most bytes that a chunk of strings takes as it is decoded; what is written is held to it as well."""
    limit = max(_TEXT_CHUNK_BYTES, usual_text_bytes(n_strings))
    return min(4 + n_strings * (4 + MEAN_TEXT_BYTES), limit)


def _sizes(codecs: Sequence[Codec], n_elements: int, dtype: np.dtype[Any]) -> list[Size]:
    """The size of a chunk before each codec, as it encodes, and after the last one."""
    size = Size(n_elements * dtype.itemsize)
    if dtype.kind == "O":
        size = Size(most_text_bytes(n_elements), exact=False)
    sizes = [size]
    for codec in codecs:
        sizes.append(_KINDS[codec.name].encoded_size(sizes[-1], codec.settings))
    return sizes


def _strings(content: Bytes, n_elements: int) -> Any:
    """Strings: their number, and each with its length before it (uint32) in UTF-8."""
    count = int.from_bytes(content[:4].tobytes(), "little")
    if count != n_elements or len(content) < 4 + 4 * count:  # before so many are allocated
        raise ValueError(f"{len(content)} bytes of {count} strings instead of {n_elements}")
    return VLenUTF8().decode(content)


def _stream(decompressor: Any, content: Bytes, size: Size) -> bytes:
    """Decompress one stream that writes as it reads, and must end with the content."""
    decoded: bytes = decompressor.decompress(content, size.most + 1)
    if len(decoded) > size.most:
        raise ValueError(f"it decodes to more than {size.most} bytes")
    if not decompressor.eof or decompressor.unused_data:
        raise ValueError("it is cut short" if not decompressor.eof else "something follows its end")
    return decoded


def _gzip(content: Bytes, settings: Settings, size: Size) -> bytes:
    return _stream(zlib.decompressobj(wbits=16 + zlib.MAX_WBITS), content, size)


def _zlib(content: Bytes, settings: Settings, size: Size) -> bytes:
    return _stream(zlib.decompressobj(), content, size)


def _bz2(content: Bytes, settings: Settings, size: Size) -> bytes:
    return _stream(bz2.BZ2Decompressor(), content, size)


def _lzma(content: Bytes, settings: Settings, size: Size) -> bytes:
    form = settings.get("format", lzma.FORMAT_XZ)
    return _stream(lzma.LZMADecompressor(form, memlimit=_LZMA_WINDOW + size.most), content, size)


def _room(name: str, n_bytes: int | None, size: Size) -> Bytes:
    """Memory for the content of a frame whose beginning says its size; None if it does not."""
    if n_bytes is None or not size.allows(n_bytes):
        raise ValueError(f"no {name} frame of {size}")
    return np.empty(n_bytes, np.uint8)


def _blosc(content: Bytes, settings: Settings, size: Size) -> Bytes:
    header = np.frombuffer(content[:BLOSC_HEADER_BYTES].tobytes(), "<u4")
    whole = len(header) == 4 and int(header[3]) == len(content)
    decoded = _room("blosc", int(header[1]) if whole else None, size)
    blosc.decompress(content, decoded)
    return decoded


def _zstd(content: Bytes, settings: Settings, size: Size) -> Bytes:
    decoded = _room("zstd", _zstd_content_size(content[:_FRAME_START].tobytes()), size)
    zstd.decompress(content, decoded)
    return decoded


def _lz4(content: Bytes, settings: Settings, size: Size) -> Bytes:
    head = content[:4].tobytes()
    decoded = _room("lz4", int.from_bytes(head, "little") if len(head) == 4 else None, size)
    lz4.decompress(content, decoded)
    return decoded


def _zstd_content_size(frame: bytes) -> int | None:
    """Bytes that a frame will decompress to; None where its beginning does not say it or is damaged."""
    if len(frame) < 6 or frame[:4] != ZSTD:
        return None
    descriptor = frame[4]
    single_segment = bool(descriptor & 0x20)
    width = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
    start = 5 + (0 if single_segment else 1) + _ZSTD_DICTIONARY_BYTES[descriptor & 3]
    if not width or len(frame) < start + width:
        return None
    size = int.from_bytes(frame[start : start + width], "little")
    return size + 256 if width == 2 else size


def _checked(content: Bytes, at_start: bool, checksum: Callable[[bytes], int]) -> Bytes:
    """Content without the checksum before or after it, which must be right."""
    rest = content[CHECKSUM_BYTES:] if at_start else content[:-CHECKSUM_BYTES]
    stored = content[:CHECKSUM_BYTES] if at_start else content[-CHECKSUM_BYTES:]
    expected = checksum(cast(bytes, rest)).to_bytes(CHECKSUM_BYTES, "little")
    if stored.tobytes() != expected:
        raise ValueError("its checksum is not that of its content")
    return rest


def _crc32(content: Bytes, settings: Settings, size: Size) -> Bytes:
    return _checked(content, settings.get("location", "start") == "start", zlib.crc32)


def _crc32c(content: Bytes, settings: Settings, size: Size) -> Bytes:
    return _checked(content, settings.get("location", "end") == "start", google_crc32c.value)


def _plain(content: Bytes, settings: Settings, size: Size) -> Bytes:
    """Bytes stay bytes: the type of the elements has their order, and strings are made at the end."""
    return content


def _shuffle(content: Bytes, settings: Settings, size: Size) -> Bytes:
    """Bytes of equal place in their elements were stored one after another."""
    width = settings.get("elementsize", 4)
    if len(content) % width:
        raise ValueError(f"{len(content)} bytes are no elements of {width}")
    return np.ascontiguousarray(content.reshape(width, -1).T).reshape(-1)


def _delta(content: Bytes, settings: Settings, size: Size) -> Bytes:
    decoded, encoded = _delta_types(settings)
    differences = content.view(encoded)
    out = np.empty(len(differences), decoded)
    with np.errstate(all="ignore"):  # what is not finite is found by the rules of blocks
        np.cumsum(differences, out=out)
    return out.view(np.uint8)


def _delta_types(settings: Settings) -> tuple[np.dtype[Any], np.dtype[Any]]:
    dtype = np.dtype(settings["dtype"])
    return dtype, np.dtype(settings.get("astype") or dtype)


def _same(size: Size, settings: Settings) -> Size:
    return size


def _with_checksum(size: Size, settings: Settings) -> Size:
    return Size(size.most + CHECKSUM_BYTES, size.exact)


def _compressed(size: Size, settings: Settings) -> Size:
    """What does not get smaller gets no more than this larger, by any of the compressors."""
    return Size(size.most + size.most // 32 + 1024, exact=False)


def _delta_size(size: Size, settings: Settings) -> Size:
    decoded, encoded = _delta_types(settings)
    return Size(size.most // decoded.itemsize * encoded.itemsize, size.exact)


def _integer(value: Any) -> bool:
    return type(value) is int


def _positive(value: Any) -> bool:
    return type(value) is int and 1 <= value < 256


def _one_of(*values: Any) -> Callable[[Any], bool]:
    return lambda value: any(type(value) is type(each) and value == each for each in values)


def _number_type(value: Any) -> bool:
    """Whether a text is a plain type of numbers: a name, or a kind and a size in any byte order."""
    return isinstance(value, str) and _NUMBER_TYPE.fullmatch(value) is not None


_NUMBER_TYPE = re.compile(r"[<>|=]?([iu][1248]|f[248])|u?int(8|16|32|64)|float(16|32|64)")

_BLOSC_SETTINGS = {
    "cname": _one_of("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd"),
    "clevel": _integer,
    "shuffle": _one_of(-1, 0, 1, 2, "noshuffle", "shuffle", "bitshuffle"),
    "typesize": lambda value: value is None or _positive(value),
    "blocksize": _integer,
}
_LZMA_SETTINGS = {
    "format": _one_of(lzma.FORMAT_XZ, lzma.FORMAT_ALONE),
    "check": _integer,
    "preset": lambda value: value is None or _integer(value),
    "filters": _one_of(None),
}
_LEVEL = {"level": _integer}
_LOCATION = {"location": _one_of("start", "end")}

_KINDS = {
    "bytes": _Kind({"endian": _one_of("little", "big")}, _plain, _same),
    "vlen-utf8": _Kind({}, _plain, _same),
    "delta": _Kind({"dtype": _number_type, "astype": _number_type}, _delta, _delta_size),
    "shuffle": _Kind({"elementsize": _positive}, _shuffle, _same),
    "crc32": _Kind(_LOCATION, _crc32, _with_checksum),
    "crc32c": _Kind(_LOCATION, _crc32c, _with_checksum),
    "blosc": _Kind(_BLOSC_SETTINGS, _blosc, _compressed),
    "zstd": _Kind(_LEVEL | {"checksum": _one_of(True, False)}, _zstd, _compressed),
    "lz4": _Kind({"acceleration": _integer}, _lz4, _compressed),
    "gzip": _Kind(_LEVEL, _gzip, _compressed),
    "zlib": _Kind(_LEVEL, _zlib, _compressed),
    "bz2": _Kind(_LEVEL, _bz2, _compressed),
    "lzma": _Kind(_LZMA_SETTINGS, _lzma, _compressed),
}

"""The cache of compiled functions: a file that is damaged is as good as none, and is compiled again.

Numba runs what its files hold: of a truncated one it raises what unpickling raises, and a flipped bit is a
flipped bit of machine code. Here each file ends with a checksum of its name and its content.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from typing import Any

from numba.core.caching import FunctionCache, IndexDataCacheFile

_CHECKSUM_BYTES = 4


def _checksum(path: str, content: bytes) -> bytes:
    return zlib.crc32(content, zlib.crc32(os.path.basename(path).encode())).to_bytes(
        _CHECKSUM_BYTES, "little"
    )


def _is_whole(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError:
        return False
    return content[-_CHECKSUM_BYTES:] == _checksum(path, content[:-_CHECKSUM_BYTES])


class _CheckedFiles(IndexDataCacheFile):
    """Numba's files with checksums. Unpickling ignores the bytes after the end."""

    def _load_index(self) -> dict[Any, str]:
        try:
            return super()._load_index() if _is_whole(self._index_path) else {}
        except OSError:
            return {}

    def _load_data(self, name: str) -> Any:
        return super()._load_data(name) if _is_whole(self._data_path(name)) else None

    @contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[BytesIO]:
        with super()._open_for_write(filepath) as file:
            content = BytesIO()
            yield content
            file.write(content.getvalue() + _checksum(filepath, content.getvalue()))


class CheckedCache(FunctionCache):
    """The cache of one function. Raises RuntimeError where no folder can be written."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        impl = self._impl
        self._cache_file = _CheckedFiles(
            self._cache_path, impl.filename_base, impl.locator.get_source_stamp()
        )

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save a function; where that fails, as on a full disk, the next process compiles it again."""
        with suppress(OSError):
            super().save_overload(sig, data)

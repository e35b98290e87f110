"""Addresses of objects: ``s3://bucket/key`` and the like, where a path of the file system may stand."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote

SCHEMES = ("s3", "gs", "az", "https", "http")
"""How addresses that are read begin; the last two are of servers that are only read."""

READ_ONLY = ("https", "http")
"""Schemes of servers that are read and never written or listed."""

# A `Path` of an address has lost a slash.
_ADDRESS = re.compile(r"([a-z][a-z0-9]{1,9}):/{1,2}(.*)", re.IGNORECASE | re.DOTALL)
_KNOWN = re.compile("(s3[an]?|gs|gcs|az|adl|abfss?|wasbs?|hdfs|https?|s?ftp|file|memory):/", re.IGNORECASE)


@dataclass(frozen=True)
class Address(os.PathLike[str]):
    """An object or a folder of objects, with what callers use of `pathlib.Path`.

    ``bucket`` is the name of a bucket or container, of a server its host and port; ``key`` has no slash at
    either end.
    """

    scheme: str
    bucket: str
    key: str

    def __fspath__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.key}".rstrip("/")

    def __str__(self) -> str:
        return self.__fspath__()

    def __truediv__(self, name: str | os.PathLike[str]) -> Address:
        return replace(self, key=f"{self.key}/{os.fspath(name)}".strip("/"))

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The end of the name from its last dot."""
        return Path(self.name).suffix

    @property
    def parent(self) -> Address:
        """The folder that it lies in."""
        return replace(self, key=self.key.rpartition("/")[0])

    @property
    def is_read_only(self) -> bool:
        """Whether nothing is written there."""
        return self.scheme in READ_ONLY

    def with_name(self, name: str) -> Address:
        """Another name in the same folder."""
        return self.parent / name

    def absolute(self) -> Address:
        """The address itself: it does not depend on the working directory."""
        return self

    def is_relative_to(self, other: object) -> bool:
        """Whether it is the other address or lies under it."""
        return isinstance(other, Address) and (
            self == other or os.fspath(self).startswith(f"{os.fspath(other)}/")
        )


def looks_like_address(text: str) -> bool:
    """Whether a path begins as the address of some service does."""
    return _KNOWN.match(text) is not None


def address_of(path: str | os.PathLike[str]) -> Address | None:
    """The address that a path is, None where it is a path of the file system."""
    if isinstance(path, Address):
        return path
    found = _ADDRESS.fullmatch(os.fspath(path))
    if found is None or found[1].lower() not in SCHEMES:
        return None
    bucket, _, key = found[2].partition("/")
    return Address(found[1].lower(), bucket, key.strip("/")) if bucket else None


AnyPath = Path | Address
"""Where something lies: in the file system or in an object store."""


def located(path: str | os.PathLike[str]) -> AnyPath:
    """A path of the file system, ``file://`` among them, or an address."""
    address = address_of(path)
    return Path(local_name(os.fspath(path))) if address is None else address


def local_name(path: str) -> str:
    """The path that ``file://`` names; other paths as they are."""
    if not path.lower().startswith("file://"):
        return path
    return unquote("/" + path[len("file://") :].removeprefix("localhost").lstrip("/"))


def complaint_about(path: str) -> str | None:
    """What is wrong with a path that looks like an address, as a message begins; None if nothing is."""
    if path.lower().startswith("file:/"):
        host = path[len("file://") :].partition("/")[0] if path.lower().startswith("file://") else ""
        return None if host in ("", "localhost") else f"{path!r:.80} is on another machine; give file:///path"
    address = address_of(path)
    if address is None and (scheme := path.partition(":")[0].lower()) in SCHEMES:
        what = "server" if scheme in READ_ONLY else "bucket"
        return f"{path!r:.80} names no {what}; give {scheme}://{what}/key"
    if address is None:
        known = ", ".join(f"{scheme}://" for scheme in SCHEMES[:-1])
        return f"{path!r:.80} is an address that is not read here; give one of {known}, file://, or a path"
    if "@" in address.bucket or (address.is_read_only and "?" in address.key):
        return (
            "may have a secret in it; give the address alone, and credentials as the cloud's own "
            "tools take them: in the environment, a profile or the role of the machine"
        )
    if re.search(r"\s", address.bucket):
        return f"{path!r:.80} names a bucket with a blank in it; check the name"
    if address.key and (re.search(r"(^|/)\.{0,2}(/|$)", address.key) or not address.key.isprintable()):
        return f"{path!r:.80} has an empty part, . or .., or a control character; give another key"
    return None

"""The client of object stores: obstore, with one rule for time, for repetition, and for what goes wrong.

Credentials are looked for where the clouds' own tools look: in the environment, in profiles, and at the
service of the machine's role. They never pass through this program.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from ooc_svm.errors import DamageError, InputError, OocSvmError, StorageError, UsageError
from ooc_svm.system.address import Address

if TYPE_CHECKING:
    from obstore.store import ObjectStore

Result = TypeVar("Result")

REQUEST_SECONDS = 15
"""Time of one request, its body included, after which it counts as failed."""

REPEATING_SECONDS = 30
"""Time after which a request that failed is not repeated any more."""

CONNECT_SECONDS = 5

# Bounds of the pause before a repetition, in seconds.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 4.0
# The client counts its repetitions as well, and draws each pause between the first one and a multiple of the
# one before. The count is never reached: time alone ends them. Pauses grow by half on average.
_MOST_REPETITIONS, _MOST_GROWTH = 1000, 3
# Bytes of a part of an upload; what is no longer goes up in one request.
_PART_BYTES = 16 << 20
# Keys removed in one call.
_REMOVED_AT_ONCE = 1000

_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "az": ("AZURE_ENDPOINT", "AZURE_STORAGE_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
}
# What services answer, and what to do; the first that is found counts.
_ADVICE = (
    ("PanicException", "check the variables of the environment that the tools of the cloud and proxies take"),
    ("InvalidCertificate",
     "give the certificates of its authority: SSL_CERT_FILE, or AWS_CA_BUNDLE for S3, names a file of them"),
    ("NoSuchBucket|NoSuchContainer|ContainerNotFound", "check the name of the bucket and its region"),
    ("RequestTimeTooSkewed|RequestExpired|ExpiredToken",
     "set the clock of this machine, or renew the credentials"),
    ("PermanentRedirect|AuthorizationHeaderMalformed|IllegalLocationConstraint|redirect without|"
     "\\b301\\b|\\b307\\b",
     "set the region of the bucket, for S3 in AWS_REGION"),
    ("InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken|failed to authenticate|\\b401\\b|Unauthenticated|"
     "credential|169\\.254\\.|metadata\\.google|missing.*(key|account|token)|must be specified",
     "give credentials as the cloud's own tools take them: in the environment, a profile (with the package "
     "boto3 installed) or the role of the machine"),
    ("AccessDenied|Forbidden|\\b403\\b", "see that these credentials may read, write and list there"),
    ("InsufficientStorage|QuotaExceeded|\\b507\\b", "make room in the bucket"),
)  # fmt: skip
# Why no whole answer came, by what the client's error says; the last one quotes the system's reason.
_UNANSWERED = (
    ("TimedOut|kind: Timeout", "no answer in time"),
    ("IncompleteMessage", "the connection was closed before the answer"),
    ("IncompleteBody", "the answer was cut"),
    ('(?:message|error): "([^"]+)"', r"\1"),
)
# How long a request took, as the client's errors say it: 401.2ms is not the status 401.
_ELAPSED = re.compile(r"(?: in |elapsed: )[\d.]+(?:ns|µs|ms|s)\b")
# Of a range that begins after the end of an object.
_BEYOND_END = re.compile("InvalidRange|status code: 416")
# Of a service that makes objects without a condition only.
_UNKNOWN_CONDITION = re.compile("NotImplemented|status code: 501")
_REFUSED = re.compile(r"status code: 4(?!08|25|29)\d\d")
# Of what failed for good: a refusal, or what the client has repeated itself.
_FINAL = re.compile(rf"{_REFUSED.pattern}|, after \d+ retries,|redirect without LOCATION")
# Variables that clients are made from.
_OF_CLIENTS = re.compile("AWS_|AZURE_|GOOGLE_|SSL_CERT_|HOME$|.*_PROXY$", re.IGNORECASE)
# Those that end up in a header or in the name of a server: a blank in one crashes the client.
_PLAIN = re.compile(
    "AWS_(ACCESS_KEY_ID|SECRET_ACCESS_KEY|SESSION_TOKEN|REGION|DEFAULT_REGION)|"
    "AZURE_STORAGE_ACCOUNT_(NAME|KEY)|GOOGLE_BEARER_TOKEN"
)
_MOST_CLIENTS = 8
_RUN_AGAIN = "see that the service can be reached from here, then run again"


class MissingObject(FileNotFoundError):
    """There is no object of this key, and the bucket is there."""


class ChangedObject(DamageError):
    """An object is another one than was found before."""


class ObjectVersion(NamedTuple):
    """What is known of an object: ``tag`` is its version as the service names it, ``mtime_ns`` its time."""

    size: int
    tag: str | None
    mtime_ns: int

    @property
    def number(self) -> int:
        """A number of 64 bits that stands for the tag, as the inode does for a file."""
        return int.from_bytes(hashlib.sha256((self.tag or "").encode()).digest()[:8], "little")


def library() -> Any:
    """The package obstore; InputError where it is not installed."""
    try:
        import obstore
    except ImportError:
        raise InputError(
            "the package obstore, which reads and writes object stores, is not installed; install it: "
            "pip install 'ooc-svm[cloud]'"
        ) from None
    return obstore


def _surroundings() -> tuple[tuple[str, str], ...]:
    """The variables of the environment that a client depends on."""
    return tuple(sorted((name, value) for name, value in os.environ.items() if _OF_CLIENTS.match(name)))


@lru_cache(_MOST_CLIENTS)
def _store_of(
    address: Address, surroundings: tuple[tuple[str, str], ...], repeating_seconds: float
) -> ObjectStore:
    """The store of a bucket, with what its service needs; nothing is asked of the service yet.

    All that read or write a bucket share its connections, until one fails for good.
    """
    library()
    from obstore.store import AzureStore, GCSStore, HTTPStore, S3Store

    retries: Any = {
        "max_retries": _MOST_REPETITIONS,
        "backoff": {
            "init_backoff": timedelta(seconds=_FIRST_PAUSE),
            "max_backoff": timedelta(seconds=_LONGEST_PAUSE),
            "base": _MOST_GROWTH,
        },
        "retry_timeout": timedelta(seconds=repeating_seconds),
    }
    endpoints = _endpoints(address.scheme)
    for name, value in surroundings:
        if _PLAIN.fullmatch(name) and re.search(r"\s", value):
            raise InputError(f"{name} has a blank or a line break in it; set it without")
    client: Any = {
        "timeout": timedelta(seconds=REQUEST_SECONDS),
        "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
        "allow_http": address.scheme == "http" or any(url.startswith("http:") for url in endpoints),
    }
    settings: dict[str, Any] = {"client_options": client, "retry_config": retries}
    if address.scheme == "s3":
        client |= _s3_authority()
        endpoint: Any = {"endpoint": endpoints[0]} if endpoints else {}
        return S3Store(
            address.bucket, checksum_algorithm="SHA256", **endpoint, **_s3_credentials(), **settings
        )
    if address.scheme == "gs":
        return GCSStore(address.bucket, **settings)
    if address.scheme == "az":
        return AzureStore(address.bucket, **settings)
    return HTTPStore.from_url(f"{address.scheme}://{address.bucket}", **settings)


def _endpoints(scheme: str) -> list[str]:
    """Addresses of servers in the environment, the one that counts first."""
    found = {name: os.environ[name] for name in _ENDPOINTS.get(scheme, ()) if os.environ.get(name)}
    for name, url in found.items():
        if re.fullmatch(r"https?://[^\s/@]+(/\S*)?", url) is None:
            raise InputError(
                f"{name} is no address of a server; give it as https://host or http://host, and no password"
            )
    return list(found.values())


def _s3_authority() -> dict[str, bytes]:
    """Certificates that are trusted in addition to those of the system."""
    name = os.environ.get("AWS_CA_BUNDLE")
    if not name:
        return {}
    try:
        return {"root_certificate": Path(name).read_bytes()}
    except OSError as error:
        raise InputError(
            f"{name!r:.200} of AWS_CA_BUNDLE cannot be read: {error.strerror}; name a file of certificates"
        ) from None


def _s3_credentials() -> Any:
    """Where keys are not in the environment: the profile, which boto3 reads, if there is one."""
    profile = os.environ.get("AWS_PROFILE")
    files = [os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials", "~/.aws/config"]
    if os.environ.get("AWS_ACCESS_KEY_ID") and not profile:
        return {}
    if not profile and not any(os.path.exists(os.path.expanduser(name)) for name in files):
        return {}
    try:
        import boto3
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        if profile is None:
            return {}
        raise InputError(
            f"the profile {profile!r:.80} of AWS_PROFILE is read by the package boto3, which is not "
            "installed; install it: pip install boto3, or give the keys in the environment"
        ) from None
    try:
        session = boto3.Session()
        region = {"region": session.region_name} if session.region_name else {}
        return region | {"credential_provider": Boto3CredentialProvider(session)}
    except Exception as error:  # what a malformed profile raises
        raise InputError(
            f"the profile of AWS cannot be read ({type(error).__name__}); see ~/.aws/config and AWS_PROFILE"
        ) from None


class Bucket:
    """The objects of one bucket or server; any thread may use it.

    Raises StorageError, with the address, what the service said and what to do, where a request fails for
    good; it was repeated then for up to `REPEATING_SECONDS` unless the service refused it.
    """

    def __init__(self, address: Address) -> None:
        self._root = Address(address.scheme, address.bucket, "")
        self._library = library()
        try:
            self._store = _store_of(self._root, _surroundings(), REPEATING_SECONDS)
        except OocSvmError:
            raise
        except Exception as error:  # of settings that are missing or cannot be
            raise _failure(f"opening {self._root}", error) from None

    def _ask(self, action: str, key: str, call: Callable[[], Result]) -> Result:
        return _call(f"{action} {self._root / key}", call)

    def read(self, key: str, start: int = 0, stop: int | None = None, tag: str | None = None) -> memoryview:
        """The bytes of an object, or some of them.

        Where an object ends before ``stop``, those that there are. MissingObject where there is none;
        ChangedObject where it has another tag than the one given.
        """
        if stop is not None and stop <= start:
            return memoryview(b"")
        options: dict[str, Any] = {} if tag is None else {"if_match": tag}
        if start or stop is not None:
            options["range"] = {"offset": start} if stop is None else (start, stop)

        def fetch() -> memoryview:
            try:
                found = self._library.get(self._store, key, options=options)
            except Exception as error:
                if _BEYOND_END.search(str(error)) is not None:
                    return memoryview(b"")
                raise
            content = memoryview(found.bytes()).cast("B")
            if len(content) != found.range[1] - found.range[0]:
                raise ConnectionError("the body was cut")
            return content

        return self._ask("reading", key, fetch)

    def version(self, key: str) -> ObjectVersion | None:
        """What is known of an object; None if there is none."""

        def look() -> Mapping[str, Any]:
            try:
                return cast("Mapping[str, Any]", self._library.head(self._store, key))
            except Exception as error:
                if not isinstance(error, FileNotFoundError) and _REFUSED.search(str(error)) is not None:
                    # An answer to HEAD has no body; that to GET has one, which says why.
                    self._library.get(self._store, key, options={"range": (0, 1)})
                raise

        try:
            return _version(self._ask("looking at", key, look))
        except MissingObject:
            return None

    def list(self, folder: str) -> tuple[dict[str, ObjectVersion], list[str]]:
        """The objects directly in a folder, and the folders in it, by the last part of their keys."""
        found = self._ask(
            "listing", folder, lambda: self._library.list_with_delimiter(self._store, folder or None)
        )
        objects = {each["path"].rpartition("/")[2]: _version(each) for each in found["objects"]}
        return objects, [prefix.rstrip("/").rpartition("/")[2] for prefix in found["common_prefixes"]]

    def walk(self, folder: str) -> Sequence[str]:
        """Keys of all objects in a folder and the folders in it."""

        def collect() -> Sequence[str]:
            batches = self._library.list(self._store, folder or None, chunk_size=_REMOVED_AT_ONCE)
            return [each["path"] for batch in batches for each in batch]

        return self._ask("listing", folder, collect)

    def write(self, key: str, content: bytes | memoryview | IO[bytes], size: int) -> None:
        """Make or replace an object of ``size`` bytes, in one step that the service checks."""
        self.refuse_read_only(key)

        def put() -> None:
            if not isinstance(content, bytes | memoryview):
                content.seek(0)
            several = size > _PART_BYTES
            self._library.put(self._store, key, content, use_multipart=several, chunk_size=_PART_BYTES)

        self._ask("writing", key, put)

    def create(self, key: str, content: bytes) -> bool:
        """Make a small object unless there is one of this key; whether it was made.

        False as well where it was made and the answer was lost, so that making it was asked for again.
        """
        self.refuse_read_only(key)

        def put() -> bool:
            try:
                self._library.put(self._store, key, content, mode="create")
            except Exception as error:
                if type(error).__name__ == "AlreadyExistsError":
                    return False
                if _UNKNOWN_CONDITION.search(str(error)) is None:
                    raise
                self._library.put(self._store, key, content)
            return True

        return self._ask("writing", key, put)

    def copy(self, key: str, to: str) -> None:
        """Copy an object inside the service."""
        self._ask("writing", to, lambda: self._library.copy(self._store, key, to))

    def remove(self, keys: Sequence[str]) -> None:
        """Remove objects; those that are not there count as removed."""
        for start in range(0, len(keys), _REMOVED_AT_ONCE):
            some = list(keys[start : start + _REMOVED_AT_ONCE])
            try:
                self._ask("removing", some[0], lambda some=some: self._library.delete(self._store, some))  # type: ignore[misc]
            except MissingObject:
                if len(some) > 1:  # some clients stop at the first one that is not there
                    for key in some:
                        self.remove([key])

    def check_writable(self, key: str) -> None:
        """Write and remove a small object next to a key, to fail now rather than after hours."""
        self.refuse_read_only(key)
        probe = f"{key}.probe-{secrets.token_hex(8)}"
        self.write(probe, b"probe", 5)
        self.remove([probe])

    def refuse_read_only(self, key: str) -> None:
        """UsageError where nothing can be written."""
        if self._root.is_read_only:
            raise UsageError(
                f"{self._root / key} is on a server that is only read; write to s3://, gs:// or az://"
            )


def _version(found: Mapping[str, Any]) -> ObjectVersion:
    modified = found["last_modified"]
    return ObjectVersion(int(found["size"]), found["e_tag"], int(modified.timestamp() * 10**6) * 1000)


def _pauses() -> Iterator[float]:
    """Pauses between repetitions, with jitter, for as long as is repeated."""
    deadline = time.monotonic() + REPEATING_SECONDS
    pause = _FIRST_PAUSE
    while time.monotonic() + pause <= deadline:
        yield pause * random.uniform(0.5, 1.0)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _call(action: str, call: Callable[[], Result]) -> Result:
    """Make a request. The client repeats what fails before a body comes, this what fails in the body."""
    pauses = _pauses()
    while True:
        try:
            return _interruptibly(call)
        except OocSvmError:
            raise
        except FileNotFoundError as error:
            if re.search("NoSuchBucket|ContainerNotFound", str(error)):
                raise _failure(action, error) from None
            raise MissingObject(f"{action} failed: there is no such object") from None
        except Exception as error:
            name = type(error).__name__
            if name in ("PreconditionError", "NotModifiedError"):
                raise ChangedObject(
                    f"{action} failed: the object was replaced after it was opened; run again on one that "
                    "nothing writes to"
                ) from None
            repeated = name in ("GenericError", "ConnectionError") and _FINAL.search(str(error)) is None
            pause = next(pauses, None) if repeated else None
            if pause is None:
                raise _failure(action, error) from None
            time.sleep(pause)
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # of a client that met a defect of its own
                raise
            raise _failure(action, error) from None


def _interruptibly(call: Callable[[], Result]) -> Result:
    """The result of a call that signals interrupt.

    Python handles signals in the main thread, and not while the client waits there: another thread makes the
    call then, and is left to end by itself if a signal comes first.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    result: Future[Result] = Future()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, daemon=True, name="object").start()
    return result.result()


def _failure(action: str, error: BaseException) -> StorageError:
    """What is raised for good. The next request has a new client: credentials may be renewed by then."""
    _store_of.cache_clear()
    text = _ELAPSED.sub("", f"{type(error).__name__} {error}")
    advice = next(
        (advice for pattern, advice in _ADVICE if re.search(pattern, text, re.IGNORECASE)), _RUN_AGAIN
    )
    return StorageError(f"{action} failed: {_said(str(error))}; {advice}")


def _said(text: str) -> str:
    """What a service said, in a few words: code and message of its answer, else what the client found."""
    found, text = text, text.partition("\n\nDebug source")[0]
    code, message = (re.search(f"<{name}>([^<]*)</{name}>", text) for name in ("Code", "Message"))
    if code is not None:
        words = f"{code[1]}{f': {message[1]}' if message and message[1] else ''}"
    elif (problem := re.search(r"InvalidCertificate\(\s*(\w+)", found)) is not None:
        words = f"the certificate of the service is not trusted here ({problem[1]})"
    elif (status := re.search(r"status code: (\d+[^:\n]*)", text)) is not None:
        words = f"the service answered {status[1].strip()}"
    elif (reason := _unanswered(found)) is not None:
        words = reason
    else:
        words = re.sub(r"^Generic \w+ error: ", "", text.rpartition(" - ")[2] or text)
    return " ".join(words.split())[:200].rstrip(".")


def _unanswered(text: str) -> str | None:
    """Why a server, which is named where that is known, gave no whole answer; None if that is not known."""
    if "HttpError {" not in text:
        return None
    matches = ((re.search(pattern, text), words) for pattern, words in _UNANSWERED)
    reason = next((match.expand(words) for match, words in matches if match is not None), None)
    server = re.search(r"uri: Some\(\s*\w+://(?:[^/\s@]*@)?([^/\s,@]+)", text)
    return reason if reason is None or server is None else f"{reason} ({server[1]})"

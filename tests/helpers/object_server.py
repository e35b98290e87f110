"""An S3 server on the loopback, and a proxy that counts requests, slows them down and spoils them."""

from __future__ import annotations

import http.client
import logging
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

PIECE = 1 << 16
HANGING_SECONDS = 60
# What the server takes for a signature, for requests of those who have none.
ANYBODY = "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=x"
ERROR_BODY = b"<Error><Code>InternalError</Code><Message>spoiled</Message></Error>"


class Request(NamedTuple):
    """A request as the proxy saw it; the key is that in the bucket."""

    method: str
    key: str
    query: str


# What is done to a request: a status to answer, "drop" before the answer, "cut" in the middle of its body,
# "hang" without one, "half": of what is listed, every second object is left out.
Fault = Callable[[Request, int], int | str | None]


@dataclass
class Proxy:
    """Passes requests on to a server; ``latency`` is in seconds, ``bandwidth`` in bytes a second.

    ``keeps``: answers to GET are kept, and the server is asked once. ``certificate``: a file with a key and a
    certificate, of a proxy that speaks https.
    """

    upstream: str
    latency: float = 0.0
    bandwidth: float | None = None
    fault: Fault | None = None
    keeps: bool = False
    certificate: Path | None = None
    requests: list[Request] = field(default_factory=list)
    n_bytes: int = 0
    fired: int = 0

    def __post_init__(self) -> None:
        self.closed = threading.Event()
        self._lock, self._free_at = threading.Lock(), 0.0
        self.kept: dict[tuple[str, str | None], tuple[int, list[tuple[str, str]], bytes]] = {}
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if self.certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"http{'s' if self.certificate else ''}://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.closed.set()
        self._server.shutdown()
        self._server.server_close()

    def note(self, request: Request) -> int | str | None:
        """Count a request; what is done to it."""
        with self._lock:
            self.requests.append(request)
            number = len(self.requests)
            found = None if self.fault is None else self.fault(request, number)
            self.fired += found is not None
        return found

    def pace(self, n_bytes: int) -> None:
        """Wait until so many bytes have passed the line, which all connections share."""
        with self._lock:
            self.n_bytes += n_bytes
            if self.bandwidth is None:
                return
            self._free_at = max(self._free_at, time.monotonic()) + n_bytes / self.bandwidth
            wait = self._free_at - time.monotonic()
        if wait > 0:
            time.sleep(wait)

    @contextmanager
    def counted(self) -> Iterator[list[Request]]:
        """The requests made inside."""
        first, found = len(self.requests), []
        yield found
        found += self.requests[first:]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # Which adds up to 40 ms to each answer
    owner: Proxy

    def log_message(self, *_: object) -> None:
        return

    def _pass_on(self) -> None:
        owner, parts = self.owner, urlsplit(self.path)
        self.path = urlunsplit(parts._replace(scheme="", netloc=""))  # of a client that takes it for a proxy
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        key = unquote(parts.path).strip("/").partition("/")[2]
        fault = owner.note(Request(self.command, key, parts.query))
        time.sleep(owner.latency)
        if fault == "drop":
            self.close_connection = True
            self.connection.close()
            return
        if fault == "hang":
            owner.closed.wait(HANGING_SECONDS)
            self.close_connection = True
            return
        if isinstance(fault, int):
            self._answer(fault, [], ERROR_BODY)
            return
        place = self.path, self.headers.get("Range")
        if owner.keeps and self.command == "GET" and place in owner.kept:
            self._answer(*owner.kept[place])
            return
        # The XML interface of Google Cloud Storage is that of S3 with other names of headers.
        headers = {
            re.sub("^x-goog-", "x-amz-", name, flags=re.IGNORECASE): value
            for name, value in self.headers.items()
            if name.lower() not in ("connection", "host", "authorization")
        }
        signature = self.headers.get("Authorization", ANYBODY)
        headers["Authorization"] = signature if signature.startswith("AWS4") else ANYBODY
        headers["Host"] = "127.0.0.1"
        upstream = http.client.HTTPConnection(urlsplit(owner.upstream).netloc)
        upstream.request(self.command, self.path, body, headers)
        answer = upstream.getresponse()
        content = answer.read()
        upstream.close()
        if fault == "half":
            listed = re.findall(rb"<Contents>.*?</Contents>", content, re.DOTALL)
            for each in listed[1::2]:
                content = content.replace(each, b"")
        if owner.keeps and self.command == "GET" and answer.status in (200, 206):
            owner.kept[place] = answer.status, answer.getheaders(), content
        self._answer(answer.status, answer.getheaders(), content, cut=fault == "cut")

    def _answer(
        self, status: int, headers: list[tuple[str, str]], content: bytes, *, cut: bool = False
    ) -> None:
        with suppress(OSError):
            self.send_response_only(status)
            for name, value in headers:
                if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                    self.send_header(name, value)
            length = dict(headers).get("Content-Length", "0") if self.command == "HEAD" else str(len(content))
            self.send_header("Content-Length", length)
            self.end_headers()
            if self.command == "HEAD":
                return
            sent = len(content) // 2 if cut else len(content)
            for start in range(0, sent, PIECE):
                piece = content[start : min(start + PIECE, sent)]
                self.owner.pace(len(piece))
                self.wfile.write(piece)
            if cut:
                self.wfile.flush()
                self.close_connection = True
                self.connection.close()

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on  # noqa: N815


class ObjectServer:
    """moto's S3 server, with one empty bucket."""

    bucket = "data"

    def __init__(self) -> None:
        from moto.server import ThreadedMotoServer

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        host, port = self._server.get_host_and_port()
        self.url = f"http://{host}:{port}"
        self.ask("PUT")

    def ask(self, method: str, path: str = "", body: bytes = b"") -> bytes:
        """The answer to a request for the bucket, or for an object of it by its path."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc)
        headers = {"Authorization": ANYBODY, "Host": "127.0.0.1"}
        connection.request(method, f"/{self.bucket}{path}", body, headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        assert answer.status < 300, content
        return content

    def close(self) -> None:
        self._server.stop()


def environment(url: str) -> dict[str, str]:
    """What a process needs to find a server: keys that say nothing, a region, and where it is."""
    return {
        "AWS_ACCESS_KEY_ID": "an-id-that-is-no-secret",
        "AWS_SECRET_ACCESS_KEY": "a-key-that-must-not-be-seen",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": url,
    }

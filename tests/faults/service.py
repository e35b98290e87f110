"""Experiments with an object store whose requests fail, are cut or are not answered."""

from __future__ import annotations

import functools
import random
import re
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from faults.data import LIMITS, SETTINGS, SMO
from faults.scenes import ABSENT, DAMAGED, Scene, read_output
from faults.world import Result, Skipped, World
from helpers.object_server import ObjectServer, Proxy, Request, environment

STORAGE = 5
WAYS = (500, 503, 429, "drop", "cut", "hang")
SHARES = (0.05, 0.2, 0.5)
BRIEF = {"ooc_svm.system.objects:REPEATING_SECONDS": 2.0, "ooc_svm.system.objects:REQUEST_SECONDS": 2}
"""What does not end within two seconds has failed."""

CONVERT = ("convert", "base/text.svm", "-o", "out.zarr", "--threads", "2", "--memory", "600MB", "--quiet")
COMMANDS = {
    "convert": CONVERT,
    "overwrite": (*CONVERT, "--overwrite"),
    "train": ("train", "base/plain.zarr", "-o", "out-model", "--checkpoint", "saves", *LIMITS, *SMO),
    "predict": ("predict", "base/model", "base/plain.zarr", "-o", "out-labels", "--memory", "600MB"),
}
"""Commands; names with ``base/`` are inputs, those with ``out`` outputs, in a folder of the bucket."""

KINDS = {"out.zarr": "store", "out-model": "model", "out-labels": "bytes"}


class Service:
    """A server with the inputs, asked past all proxies."""

    def __init__(self, base: Path) -> None:
        self._server = ObjectServer()
        self.url, self._lock = self._server.url, threading.Lock()
        self._expected: dict[str, tuple[str, int]] = {}
        self._own = secrets.token_hex(4)  # servers of one process share their buckets
        for name in ("text.svm", "plain.zarr", "model"):
            self.put_files(base / name, f"base/{name}")

    def put_files(self, path: Path, key: str) -> None:
        """Copy a file, or a folder with all that is in it."""
        for each in [path] if path.is_file() else path.rglob("*"):
            if each.is_file():
                inner = each.relative_to(path).as_posix() if each != path else ""
                self._server.ask("PUT", "/" + quote(f"{key}/{inner}".rstrip("/")), each.read_bytes())

    def keys(self, folder: str) -> list[str]:
        """Keys in a folder, from its name on."""
        listed = self._server.ask("GET", f"?list-type=2&prefix={quote(folder)}/").decode()
        return [key[len(folder) + 1 :] for key in re.findall("<Key>([^<]*)</Key>", listed)]

    def expected(self, world: World, name: str) -> tuple[str, int]:
        """What a command gives without a fault, and how many requests it makes."""
        with self._lock:
            if name not in self._expected:
                proxy, folder = Proxy(self.url), f"reference-{self._own}-{name}"
                ended = start(world, name, folder, proxy.url)
                assert ended.code == 0, ended.err
                self._expected[name] = outcome(world, self, name, folder), len(proxy.requests)
                proxy.close()
        return self._expected[name]


@functools.cache
def service_at(base: Path) -> Service:
    """The server with the inputs of a folder."""
    return Service(base)


def start(world: World, name: str, folder: str, url: str):
    """Run a command in a folder of the bucket."""
    there = [
        f"s3://data/{each}" if each.startswith("base/")
        else f"s3://data/{folder}/{each}" if each.startswith("out") or each == "saves" else each
        for each in COMMANDS[name]
    ]  # fmt: skip
    return world.server.command(*there, environment=environment(url), settings=SETTINGS | BRIEF)


def output_of(name: str) -> str:
    """The output of a command."""
    return next(each for each in COMMANDS[name] if each in KINDS)


def read_remote(address: str, kind: str) -> str:
    """As `read_output`, of an address; the text of it."""
    from ooc_svm.store import open_store, verify_store
    from ooc_svm.system.files import open_to_read

    if kind == "store":
        verify_store(address)
        return open_store(address).id
    local = Path("read")
    with open_to_read(address) as file:
        local.write_bytes(file.read())
    return str(read_output(local, kind))


def outcome(world: World, service: Service, name: str, folder: str) -> str:
    """What lies under the output of a command: its content, ABSENT, or DAMAGED with the reason."""
    output = output_of(name)
    marks = {output, f"{output}/zarr.json"}
    if not marks & set(service.keys(folder)):
        return ABSENT
    world.folder.mkdir(exist_ok=True)
    ended = world.server.call(
        "faults.service:read_remote",
        f"s3://data/{folder}/{output}",
        KINDS[output],
        cwd=world.folder,
        environment=environment(service.url),
    )
    return ended.answer if ended.error is None else f"{DAMAGED}: {ended.error}"


def drawn_fault(
    rng: random.Random, n_requests: int
) -> tuple[str, Callable[[Request, int], int | str | None]]:
    """Requests that fail at random, or all of a kind from one on; and what that is called."""
    first, method = rng.randint(1, n_requests), rng.choice(("", "GET", "PUT", "HEAD", "DELETE"))
    share, way = rng.choice(SHARES), rng.choice(WAYS)
    seed, for_ever = rng.random(), rng.random() < 0.4
    draw, lock = random.Random(seed), threading.Lock()

    def fault(request: Request, number: int) -> int | str | None:
        with lock:
            chosen = way if for_ever else draw.choice(WAYS[:-1])
            hit = number >= first and method in ("", request.method) if for_ever else draw.random() < share
        return None if (chosen == "cut" and request.method != "GET") or not hit else chosen

    if for_ever:
        return f"{way} to every {method or 'request'} from the {first}th on", fault
    return f"{share:.0%} of the requests spoiled", fault


def service(world: World, rng: random.Random) -> Result:
    """Requests to an object store that fail, now and then or from one on."""
    try:
        there = service_at(world.base)
    except ImportError as error:
        raise Skipped(f"{error.name} is not installed") from error
    name = rng.choice(list(COMMANDS))
    expected, n_requests = there.expected(world, name)
    what, fault = drawn_fault(rng, n_requests)
    folder, output = f"run-{rng.randrange(10**12)}", output_of(name)
    before = ABSENT
    if name == "overwrite":
        there.put_files(world.base / "old.zarr", f"{folder}/out.zarr")
        before = outcome(world, there, name, folder)
    proxy = Proxy(there.url, fault=fault)
    try:
        ended = start(world, name, folder, proxy.url)
        result = Result(f"{name}: {what}, {proxy.fired} fired", proxy.fired > 0, n_faults=proxy.fired)
    finally:
        proxy.close()
    scene = Scene(name, COMMANDS[name], ("s3://data/",), {output: KINDS[output]})
    result.findings += world.judge_end(scene, ended, {STORAGE})
    found = outcome(world, there, name, folder)
    if ended.code == 0 and found != expected:
        result.findings.append(f"exit code 0, but {output} is {found[:200]}")
    if found not in (expected, before, ABSENT):
        result.findings.append(f"{output} is neither the old one nor the new one but {found[:200]}")
    if ended.code == STORAGE:
        result.findings += judge_next(world, there, name, folder, expected)
    return result


def judge_next(world: World, there: Service, name: str, folder: str, expected: str) -> list[str]:
    """What is wrong with the next run, after leftovers are swept where that is needed."""
    if output_of(name) == "out.zarr":
        address = f"s3://data/{folder}/out.zarr"
        swept = world.server.command("convert", "--sweep", address, environment=environment(there.url))
        if swept.code != 0:
            return [f"sweeping ends with {swept.code}: {swept.err}"]
        if outcome(world, there, name, folder) != ABSENT:
            name = "overwrite"
    again = start(world, name, folder, there.url)
    if again.code != 0:
        return [f"the next run ends with {again.code}: {again.err}"]
    found = outcome(world, there, name, folder)
    return [] if found == expected else [f"after the next run the output is {found[:200]}"]

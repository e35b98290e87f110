"""Processes that try cases; one that dies or hangs is a finding, and another one takes its place."""

from __future__ import annotations

import signal
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

HANG_SECONDS = 120.0  # Of one case: it is ended and counted as a finding
SHRUNK, SHRINK_SECONDS = 3, 8.0  # Findings of a kind that a process makes smaller, and how long it may take


class Answer(NamedTuple):
    """What came of a case: findings, the report of its model, and a smaller case with the first finding."""

    number: int
    findings: list[str]
    report: Any = None
    smaller: Any = None


@dataclass
class _Worker:
    process: Any
    link: Connection
    number: int = -1  # Of the case that it tries; -1 without one
    since: float = 0.0

    def give(self, number: int) -> None:
        self.number, self.since = number, time.monotonic()
        self.link.send(number)

    def answer(self) -> Answer | None:
        """Its answer; None as long as there is none."""
        if wait([self.link], 0):
            try:
                found: Answer = self.link.recv()
                return found
            except (EOFError, ConnectionError):
                return Answer(self.number, ["crash: the process died"])
        if time.monotonic() - self.since > HANG_SECONDS:
            return Answer(self.number, [f"hang: no end after {HANG_SECONDS:g} s"])
        return None


def answers(seed: int, numbers: Iterator[int], n_workers: int, deadline: float) -> Iterator[Answer]:
    """The cases of these numbers, until the time is up, in the order in which they end."""
    workers = [_start(seed) for _ in range(n_workers)]
    try:
        while True:
            for worker in workers:
                if worker.number < 0 and time.monotonic() < deadline:
                    worker.give(next(numbers))
            busy = [place for place, worker in enumerate(workers) if worker.number >= 0]
            if not busy:
                return
            wait([workers[place].link for place in busy], timeout=1.0)
            for place in busy:
                found = workers[place].answer()
                if found is None:
                    continue
                if found.findings and found.findings[0].endswith(("the process died", f"{HANG_SECONDS:g} s")):
                    workers[place].process.kill()
                    workers[place] = _start(seed)
                workers[place].number = -1
                yield found
    finally:
        for worker in workers:
            worker.link.close()
            worker.process.join(2.0)
            worker.process.kill()


def _start(seed: int) -> _Worker:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, seed))
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _numbers(link: Connection) -> Iterator[int]:
    """Numbers of cases, until the other side is closed."""
    with suppress(EOFError, ConnectionError):
        while True:
            yield link.recv()


def _work(link: Connection, seed: int) -> None:
    """Try the cases that come."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    from audit.cases import draw
    from audit.shrink import shrink
    from audit.trial import try_case

    shrunk: Counter[str] = Counter()
    for number in _numbers(link):
        case = draw(seed, number)
        findings, report = try_case(case)
        texts, smaller = [str(finding) for finding in findings], None
        if findings and shrunk[findings[0].kind] < SHRUNK:
            shrunk[findings[0].kind] += 1
            smaller = shrink(case, findings[0].kind, SHRINK_SECONDS)
            texts += [f"  shrunk: {finding}" for finding in try_case(smaller)[0]]
        link.send(Answer(number, texts, report, smaller))

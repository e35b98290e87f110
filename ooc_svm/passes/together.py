"""Several generators of requests as one: all of them on the same reads of the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ooc_svm.passes.base import Overlap, Pass, Request, Steps, is_pass


def requests_of(request: Request | Overlap) -> tuple[Request, ...]:
    """The requests of what a generator waits for."""
    return request.requests if isinstance(request, Overlap) else (request,)


def passes_over_data(request: Request | Overlap) -> list[Pass]:
    """The passes of what a generator waits for that need blocks of the matrix."""
    return [each for each in requests_of(request) if is_pass(each) and each.needs_data]


def served_first(waiting: Mapping[int, Request | Overlap]) -> list[int]:
    """Which generators are to be served: all, once each of them waits for a read of the data.

    Before that those that need none, and of these the ones that do not wait for the others to come as far.
    """
    quick = [number for number, request in waiting.items() if not passes_over_data(request)]
    return [number for number in quick if not _waits_for_others(waiting[number])] or quick or list(waiting)


def together(generators: Sequence[Steps]) -> Steps:
    """Drive generators to their end as one, whose requests are theirs and whose work is theirs in turn."""
    running = dict(enumerate(generators))
    waiting: dict[int, Request | Overlap] = {}

    def advance(number: int, answer: Any) -> None:
        try:
            waiting[number] = running[number].send(answer)
        except StopIteration:
            del running[number]

    for number in list(running):
        advance(number, None)
    while waiting:
        served = served_first(waiting)
        requests = [waiting.pop(number) for number in served]
        answers = yield _joined(requests)
        for number, request in zip(served, requests, strict=True):
            # Answers may be large: each lives no longer than its generator needs it.
            own = [answers.pop(0) for _ in requests_of(request)]
            advance(number, own if isinstance(request, Overlap) else own[0])


def _joined(waiting: Sequence[Request | Overlap]) -> Overlap:
    overlaps = [each for each in waiting if isinstance(each, Overlap)]
    works = [each.work for each in overlaps if each.work is not None]
    stops = [each.stop for each in overlaps if each.stop is not None]
    helps = [each.help for each in overlaps if each.help is not None]
    return Overlap(
        tuple(request for each in waiting for request in requests_of(each)),
        partial(in_turn, works) if works else None,
        tuple(dict.fromkeys(block for each in overlaps for block in each.prefetch)),
        next((each.first for each in overlaps if each.first is not None), None),
        partial(in_turn, stops) if stops else None,
        partial(help_one, helps) if helps else None,
    )


def help_one(helps: Sequence[Callable[[], bool]]) -> bool:
    """Help the first work that can be helped at the moment; whether there is one."""
    return any(help_work() for help_work in helps)


def in_turn(tasks: Sequence[Callable[[], None]]) -> None:
    """Do tasks one after another."""
    for task in tasks:
        task()


def _waits_for_others(request: Request | Overlap) -> bool:
    return isinstance(request, Overlap) and request.first is not None

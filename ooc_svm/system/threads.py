"""The same work on many things, some of it at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")


def parallel_map(work: Callable[..., Result], tasks: Iterable[tuple[Any, ...]], threads: int) -> list[Result]:
    """What ``work(*task)`` gives for each task, in their order.

    Parameters
    ----------
    work : callable
        Does nothing that another task could notice.
    tasks : iterable of tuple
    threads : int
        Tasks that go on at a time; 1: all in the thread of the caller.
    """
    listed = list(tasks)
    if threads == 1 or len(listed) < 2:
        return [work(*task) for task in listed]
    with ThreadPoolExecutor(threads, thread_name_prefix="count") as pool:
        return list(pool.map(lambda task: work(*task), listed))

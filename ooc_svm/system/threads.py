"""The same function of many arguments, on several threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")


def parallel_map(work: Callable[..., Result], tasks: Iterable[tuple[Any, ...]], threads: int) -> list[Result]:
    """Results of ``work(*task)`` for each task, in their order; calls must not affect each other.

    At most `threads` tasks run at a time; with 1, all run in the thread of the caller.
    """
    listed = list(tasks)
    if threads == 1 or len(listed) < 2:
        return [work(*task) for task in listed]
    with ThreadPoolExecutor(threads, thread_name_prefix="count") as pool:
        return list(pool.map(lambda task: work(*task), listed))

"""Threads that help a crew."""

from __future__ import annotations

import threading
from contextlib import contextmanager

from ooc_svm.passes.crew import Crew

LONG = 60.0


@contextmanager
def helpers(crew: Crew, n: int):
    """So many threads that help whenever there is something to do; yields how often each did."""
    ended, counts = threading.Event(), [0] * n

    def help_on(number: int) -> None:
        while not ended.is_set():
            counts[number] += crew.help()

    threads = [threading.Thread(target=help_on, args=(number,)) for number in range(n)]
    for thread in threads:
        thread.start()
    try:
        yield counts
    finally:
        ended.set()
        for thread in threads:
            thread.join(LONG)
            assert not thread.is_alive()

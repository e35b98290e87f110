"""What a run fetches from a bucket, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ooc_svm.errors import UsageError, parameter
from ooc_svm.options import TrainOptions
from ooc_svm.store import Store
from ooc_svm.system.memory import format_size
from ooc_svm.training.memory_plan import Budget, Workload

# Requests to open a store.
_OPENING = 6


@dataclass(frozen=True, slots=True)
class Prices:
    """What a service takes for a thousand requests that read, and for a gigabyte that leaves it."""

    get: float = 0.0
    gb: float = 0.0

    @property
    def given(self) -> bool:
        """Whether there are any."""
        return self != Prices()


@dataclass(frozen=True, slots=True)
class Transfer:
    """Requests and bytes of a whole run, and what they cost, in the currency of the prices."""

    requests: int
    nbytes: int
    cost: float | None

    def line(self) -> str:
        """The transfer for people."""
        line = f"from the bucket: {self.requests:,} requests, {format_size(self.nbytes)}"
        if self.cost is None:
            return line
        return f"{line}, which cost {f'{self.cost:,.2f}' if self.cost >= 0.01 else 'less than 0.01'}"


def transfer_of(
    store: object, options: TrainOptions, work: Workload, budget: Budget, reads: int, prices: Prices
) -> Transfer | None:
    """What so many reads of a store fetch; None where it is on a local disk.

    The first read fetches all chunks, those after it what neither the memory nor the cache on disk keeps.

    UsageError if prices are given for data that are not fetched.
    """
    if not isinstance(store, Store) or store.parts.storage.is_local:
        if prices.given:
            names = f"{parameter('price_get')} and {parameter('price_gb')}"
            raise UsageError(f"{names} are for stores in a bucket; leave them out")
        return None
    sizes = [sizes for _, sizes in store.parts.chunk_sizes.values()]
    n_chunks, n_bytes = sum(map(len, sizes)), sum(int(each.sum()) for each in sizes)
    again = 1 - budget.cache_bytes / max(work.data_nbytes, 1)
    if options.cache is not None:
        from ooc_svm.store.chunk_cache import size_of

        most = size_of(Path(options.cache), options.cache_size)
        again *= max(1 - most / max(n_bytes, 1), 0)
    times = 1 + max(reads - 1, 0) * again
    requests, nbytes = _OPENING + round(n_chunks * times), round(n_bytes * times)
    cost = requests / 1000 * prices.get + nbytes / 10**9 * prices.gb if prices.given else None
    return Transfer(requests, nbytes, cost)

"""A smaller case with a finding of the same kind."""

from __future__ import annotations

import time

from audit.data import DEFAULTS
from audit.trial import size_of, try_case

PLAIN = {"C": 1.0, "tol": 1e-3, "seed": 0}  # Options that become these values; others are left out
NEEDED = (
    "problem", "loss", "p", "nu", "bias", "solver", "kernel", "gamma", "max_passes", "time_limit", *PLAIN,
)  # fmt: skip


def shrink(case, kind, seconds=20.0):
    """The smallest case found in so many seconds that still has a finding of this kind."""
    deadline = time.monotonic() + seconds
    again = True
    while again:
        again = False
        for smaller in _simpler(case):
            if time.monotonic() > deadline:
                return case
            if size_of(smaller) <= size_of(case) and _has(smaller, kind):
                case, again = smaller, True
                break
    return case


def _has(case, kind):
    return any(finding.kind == kind for finding in try_case(case)[0])


def _simpler(case):
    data, options, how = case["data"], case["options"], case["how"]
    for name in how:
        if name != "ratio":
            left = {key: value for key, value in how.items() if key != name}
            yield {**case, "how": left if name != "warm" else {k: v for k, v in left.items() if k != "ratio"}}
    for name, low in (("n", 2), ("d", 1)):
        for size in (low, data[name] // 4, data[name] // 2, data[name] - 1):
            if low <= size < data[name]:
                yield {**case, "data": {**data, name: size}}
    for name in data:
        if name not in ("n", "d", "seed") and data[name] != DEFAULTS[name]:
            yield {**case, "data": {key: value for key, value in data.items() if key != name}}
    for name in options:
        if name not in NEEDED:
            yield {**case, "options": {key: value for key, value in options.items() if key != name}}
    if isinstance(options.get("C"), list):
        for C in options["C"]:
            yield {**case, "options": {**options, "C": C}}
    for name, value in PLAIN.items():
        if options.get(name, value) != value:
            yield {**case, "options": {**options, name: value}}

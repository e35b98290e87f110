"""What a step must give: each check takes what was run, and returns what it found in a few words."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from processes import Usage

from ooc_svm.system.memory import format_size, parse_size

Check = Callable[[Usage, Path], str]


class Unmet(Exception):
    """A step did not give what it must."""


def ends_with(code: int) -> Check:
    """The exit code; an error is one sentence, which is what was found."""

    def check(usage: Usage, _: Path) -> str:
        last = (usage.errors.strip().splitlines() or [""])[-1]
        if usage.code != code:
            raise Unmet(f"exit code {usage.code} instead of {code}: {last}")
        if code == 0:
            return ""
        if usage.errors.count("ooc-svm: error:") != 1 or "Traceback" in usage.errors:
            raise Unmet(f"no error of one sentence: {last}")
        return f"exit code {code}, {last}"

    return check


def says(*words: str) -> Check:
    """Each of these words is printed, to standard output or standard error."""

    def check(usage: Usage, _: Path) -> str:
        printed = usage.output + usage.errors
        missing = [word for word in words if word not in printed]
        if missing:
            raise Unmet(f"{', '.join(missing)!r} is not printed")
        return f"says {', '.join(words)}" if usage.code == 0 else ""

    return check


def lines(count: int) -> Check:
    """So many lines on standard output."""

    def check(usage: Usage, _: Path) -> str:
        found = len(usage.output.splitlines())
        if found != count:
            raise Unmet(f"{found} lines instead of {count}")
        return f"{found} lines"

    return check


def value_of(name: str, usage: Usage) -> float:
    """The number after a name at the beginning of a printed line."""
    found = re.search(rf"^{re.escape(name)}\s+(-?[\d.]+(?:e[-+]?\d+)?)\b", usage.output, re.MULTILINE)
    if found is None:
        raise Unmet(f"no {name} is printed")
    return float(found[1])


def at_least(name: str, least: float) -> Check:
    """A printed number is this large."""

    def check(usage: Usage, _: Path) -> str:
        value = value_of(name, usage)
        if not value >= least:
            raise Unmet(f"{name} is {value:.4g}, below {least:.4g}")
        return f"{name} {value:.4g}, at least {least:.4g}"

    return check


def near(name: str, reference: float, margin: float) -> Check:
    """A printed number is that of a reference, or better, or worse by a margin at most."""

    def check(usage: Usage, _: Path) -> str:
        value = value_of(name, usage)
        if not value >= reference - margin:
            raise Unmet(f"{name} is {value:.4g}, that of the reference {reference:.4g}")
        return f"{name} {value:.4g}, reference {reference:.4g}"

    return check


def makes(*names: str) -> Check:
    """These files are there, and not empty."""

    def check(_: Usage, folder: Path) -> str:
        missing = [name for name in names if not (folder / name).exists()]
        empty = [name for name in names if not missing and (folder / name).stat().st_size == 0]
        if missing or empty:
            raise Unmet(f"missing or empty: {', '.join(missing + empty)}")
        return f"makes {', '.join(names)}"

    return check


def within(limit: str) -> Check:
    """The peak memory of the command is within what was allowed."""

    def check(usage: Usage, _: Path) -> str:
        if usage.peak > parse_size(limit):
            raise Unmet(f"peak memory {format_size(usage.peak)}, {limit} was allowed")
        return f"peak memory {format_size(usage.peak)} of {limit}"

    return check

"""The audit as a program: random cases on all processors, until the time is up."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterator

from audit.workers import Answer, answers


def main() -> int:
    """Run the audit; 1 if anything was found."""
    options = _options()
    if options.repeat is not None or options.case is not None:
        return _one(options)
    counts: Counter[str] = Counter()
    deadline = time.monotonic() + 60 * options.minutes
    for answer in answers(options.seed, _numbers(options), options.workers, deadline):
        _count(counts, answer)
        if answer.findings:
            _tell(options.seed, answer)
    for name, count in sorted(counts.items(), key=lambda item: (item[0].startswith("finding"), item[0])):
        _say(f"{name:32} {count:8}")
    return 1 if counts["findings"] else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/audit",
        description="Train random problems, and check P, D and the certificate of each in 80-bit floats. "
        "Ends with 1 if there are findings.",
    )
    parser.add_argument("--minutes", type=float, default=5.0, metavar="N", help="how long to search (5)")
    parser.add_argument("--seed", type=int, default=0, help="seed of all cases (0)")
    parser.add_argument("--first", type=int, default=0, metavar="K", help="number of the first case (0)")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases with this in their description")
    parser.add_argument("--case", type=int, metavar="K", help="this case alone, with all that is known of it")
    parser.add_argument("--repeat", metavar="JSON", help="a case by its description")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), metavar="N")
    return parser.parse_args()


def _numbers(options: argparse.Namespace) -> Iterator[int]:
    """Numbers of the cases to be tried."""
    from audit.cases import draw

    every = itertools.count(options.first)
    return (number for number in every if options.only in json.dumps(draw(options.seed, number)))


def _one(options: argparse.Namespace) -> int:
    from audit.cases import draw
    from audit.trial import try_case

    case = json.loads(options.repeat) if options.repeat else draw(options.seed, options.case)
    _say(json.dumps(case))
    findings, report = try_case(case)
    for row in (report or {}).get("models", []):
        _say(json.dumps(row))
    for finding in findings:
        _say(finding)
    _say(f"{len(findings)} findings")
    return 1 if findings else 0


def _say(text: object) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _count(counts: Counter[str], answer: Answer) -> None:
    counts["cases"] += 1
    models = (answer.report or {}).get("models", [])
    counts["models"] += len(models)
    for row in models:
        counts[f"models ended by {row['stop_reason']}"] += 1
    found = [text for text in answer.findings if not text.startswith(" ")]
    counts["findings"] += len(found)
    for kind in {text.partition(":")[0] for text in found}:
        counts[f"findings, cases of kind {kind}"] += 1


def _tell(seed: int, answer: Answer) -> None:
    _say(f"scripts/audit --seed {seed} --case {answer.number}")
    for text in answer.findings:
        _say(f"    {text}")
    if answer.smaller is not None:
        _say(f"    scripts/audit --repeat {shlex.quote(json.dumps(answer.smaller))}")


if __name__ == "__main__":
    sys.exit(main())

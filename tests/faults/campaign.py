"""Experiments drawn at random, on all cores: counts for each kind, and each finding with how to repeat it."""

from __future__ import annotations

import argparse
import os
import queue
import random
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent.parent)] * (__name__ == "__main__")

from faults.experiments import EXPERIMENTS, run  # noqa: E402
from faults.world import Skipped, World  # noqa: E402


def say(text: str) -> None:
    """Show a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Campaign:
    """Counts, findings and the draw of a campaign; its methods may be called from any thread."""

    def __init__(self, kinds: list[str], seed: int, deadline: float, count: int | None) -> None:
        self.counts = {kind: Counter() for kind in kinds}
        self.skipped: dict[str, str] = {}
        self.findings = 0
        self._weights = [EXPERIMENTS[kind][1] for kind in kinds]
        self._rng, self._seed = random.Random(seed), seed
        self._deadline, self._left = deadline, count
        self._lock = threading.Lock()

    def draw(self) -> tuple[str, int] | None:
        """The next experiment, None when time is up."""
        with self._lock:
            if time.monotonic() > self._deadline or self._left == 0:
                return None
            if self._left is not None:
                self._left -= 1
            (kind,) = self._rng.choices(list(self.counts), self._weights)
            return kind, self._rng.randrange(10**9)

    def make(self, world: World, kind: str, number: int) -> None:
        """Make an experiment and count it."""
        try:
            result = run(world, kind, number)
            what, fired, early, findings = result.what, result.fired, result.early, result.findings
            n_faults = result.n_faults if fired else 0
        except Skipped as skip:
            with self._lock:
                self.skipped[kind] = str(skip)
                self.counts[kind]["skipped"] += 1
            return
        except Exception:
            what, fired, early, findings = "the harness failed", False, False, [traceback.format_exc()]
            n_faults = 0
        with self._lock:
            counted = {"fired": fired, "early": early, "findings": bool(findings)}
            self.counts[kind].update(run=1, faults=n_faults, **{k: int(v) for k, v in counted.items()})
            if findings:
                self.findings += 1
                say(f"\nFINDING {what}\n  repeat: scripts/faults --repeat {kind}:{number}")
                for each in findings:
                    say("  - " + each.strip().replace("\n", "\n    "))

    def table(self) -> str:
        """The counts for each kind."""
        columns = ("run", "fired", "faults", "early", "findings", "skipped")
        rows = [(kind, *(counts[name] for name in columns)) for kind, counts in self.counts.items()]
        rows.append(("all", *(sum(row[i + 1] for row in rows) for i in range(len(columns)))))
        lines = [f"{'kind':12}" + "".join(f"{name:>10}" for name in columns)]
        lines += [f"{row[0]:12}" + "".join(f"{count:10,}" for count in row[1:]) for row in rows]
        return "\n".join([*lines, *(f"{kind}: skipped, {why}" for kind, why in self.skipped.items())])


def _work(campaign: Campaign, folder: Path, jobs: queue.SimpleQueue) -> None:
    folder.mkdir()
    with World(folder) as world:
        while (drawn := campaign.draw()) is not None:
            campaign.make(world, *drawn)
    jobs.put(None)


def main() -> int:
    """Run a campaign, or one experiment again; the exit code is 1 if there were findings."""
    parser = argparse.ArgumentParser(prog="scripts/faults", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default 10)")
    parser.add_argument("--seed", type=int, help="of the draw; by default another one every time")
    parser.add_argument(
        "--only", metavar="KIND", action="append", choices=EXPERIMENTS, help=", ".join(EXPERIMENTS)
    )
    parser.add_argument("--count", type=int, help="at most so many experiments")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="at a time (default: all cores)")
    parser.add_argument("--repeat", metavar="KIND:NUMBER", help="make this experiment again")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    deadline = time.monotonic() + 60 * options.minutes
    campaign = Campaign(options.only or list(EXPERIMENTS), seed, deadline, options.count)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ooc-svm-faults-") as folder:
        if options.repeat:
            kind, number = options.repeat.split(":")
            with World(Path(folder)) as world:
                campaign.make(world, kind, int(number))
        else:
            say(f"seed {seed}, {options.jobs} at a time")
            ended: queue.SimpleQueue = queue.SimpleQueue()
            threads = [
                threading.Thread(target=_work, args=(campaign, Path(folder, str(number)), ended))
                for number in range(options.jobs)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if ended.qsize() < len(threads):
                campaign.findings += 1
                say("a thread of the harness ended early")
    say(f"\n{campaign.table()}\n{time.monotonic() - begin:.0f} s")
    return int(campaign.findings > 0)


if __name__ == "__main__":
    sys.exit(main())

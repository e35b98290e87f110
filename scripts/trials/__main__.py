"""The trial as a program: a table with a line for each step, and 1 where a step is not what it must be."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from processes import Usage

from trials import from_anndata, from_liblinear, from_sklearn, sharded_text
from trials.session import Session, Step

USERS = {
    "liblinear": from_liblinear.play,
    "scikit-learn": from_sklearn.play,
    "anndata": from_anndata.play,
    "sharded-text": sharded_text.play,
}
COLUMNS = ("user", "step", "typed", "seconds", "result", "ok")


def main() -> int:
    """Play the users; 1 if a step is not what it must be."""
    options = _options()
    print(_line(COLUMNS), _line(["---"] * len(COLUMNS)), sep="\n", flush=True)
    real = os.environ.get("OOC_SVM_DATA")
    plays = [(user, None) for user in options.user]
    if real is not None:
        plays += [(user, Path(real).resolve()) for user in options.user]
    steps = [step for user, data in plays for step in _play(user, options.size, data)]
    wrong = sum(not step.ok for step in steps)
    seconds = sum(step.seconds for step in steps)
    print(f"\n{len(steps)} steps in {seconds:.0f} s (the first run compiles), {wrong} not what they must be")
    return 1 if wrong else 0


def _play(user: str, size: float, real: Path | None) -> list[Step]:
    """The steps of a user, in a fresh folder."""
    name = user if real is None else f"{user}, real data"
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, Session(name, Path(folder), _say) as session:
        USERS[user](session, size, real)
        return session.steps


def _say(step: Step, usage: Usage) -> None:
    """Show a step; of one that is wrong everything that was printed."""
    typed = step.typed.replace("\n", "; ")
    cells = (
        step.user,
        step.number,
        f"`{typed}`",
        f"{step.seconds:.1f}",
        step.result,
        "yes" if step.ok else "NO",
    )
    print(_line(cells), flush=True)
    if not step.ok:
        print(usage.output, usage.errors, sep="\n", file=sys.stderr, flush=True)


def _line(cells: Sequence[object]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/trial",
        description="Four users at their first commands, on generated data, and on real data where the "
        "variable OOC_SVM_DATA names a folder with them. Ends with 1 if a step is not what it must be.",
    )
    parser.add_argument("--size", type=float, default=1.0, metavar="X", help="times so many rows (1)")
    parser.add_argument("--user", action="append", choices=USERS, help="only this one; may be repeated")
    options = parser.parse_args()
    options.user = options.user or list(USERS)
    return options


if __name__ == "__main__":
    sys.exit(main())

"""The race: training from text and from a store, beside LIBLINEAR in memory and scikit-learn's SGD.

Run: python scripts/bench/train.py [--data FOLDER] [--keep FOLDER] [--solvers streamed-smo,ocas]
     python scripts/bench/train.py --scaling [--keep FOLDER]

Linear SVM, hinge loss, no bias, the same C for all. Every contender is a process of its own.

ours       `ooc-svm convert`, then `ooc-svm train --tol 1e-3`, both with --memory (and the limit of a control
           group, where one can be made) of Python and its libraries plus an eighth of the CSR: 8 bytes a
           nonzero and 8 a row. The store is dropped from the page cache before training. Where that memory
           is refused, what is on top of Python is doubled until it is enough: the column "allowed" tells.
           All processors unless --threads says otherwise; compiled functions come from their cache.
LIBLINEAR  its C program with -s 3 (dual, hinge; one thread): --liblinear, else liblinear-train or train on
           the PATH (Debian: liblinear-tools), else the package liblinear-official, whose reading in Python
           is slow and whose peak is Python's. The first tolerance of 0.1, 0.01, ... whose primal value is
           within 1e-3 of the optimum. Training alone is the time from closing the text to opening the model.
SGD        scikit-learn's SGDClassifier, partial_fit on the blocks of the same store, until its primal value
           is within 1e-3 of the optimum or 20 passes are done (the best value is listed); checks are taken
           out of its times. No limit of memory.

Primal values are computed by one function for all (SciPy, float64). The optimum is bounded from below by the
largest dual value that anybody reached; for a tight bound LIBLINEAR also runs at a smaller tolerance. Texts
are in the page cache. A pass is a read of the store, for LIBLINEAR a sweep over the rows in memory. A peak is
that of the larger process where there are two.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from memory import make_group
from race import LIBLINEAR, OURS, DataSet, Failed, Race, Result, median, note

from ooc_svm.system.memory import format_size, parse_size

# Targets of ours divided by LIBLINEAR's, and of ten times the rows divided by once (seconds, peak).
TARGETS = {"text to model": 1 / 3, "training alone": 1.0, "peak memory": 1 / 6}
SCALING, SCALING_TARGETS = 10, (11.0, 1.0)
SETS = ("generated", "large", "arxiv", "covtype")
SOURCES = {"arxiv": "arxiv/arxiv.svm.bz2", "covtype": "covtype/covtype.multiclass.bz2"}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown: the first column to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]

    def line(cells: Sequence[str]) -> str:
        first, *rest = cells
        padded = [
            first.ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)),
        ]
        return f"| {' | '.join(padded)} |"

    return "\n".join(map(line, (head, rule, *rows)))


def result_table(results: Sequence[Result], bound: float) -> str:
    """One line a contender; the last column is how far its primal value is above the bound, relatively."""
    for result in results:
        if result.primal < bound * (1.0 - 1e-9):
            raise SystemExit(
                f"{result.contender} has the primal value {result.primal!r}, below a dual value, {bound!r}"
            )
    head = (
        "contender",
        "text to model, s",
        "training, s",
        "peak",
        "allowed",
        "passes",
        "primal value",
        "above optimum",
    )
    rows = [
        (
            result.contender,
            f"{result.text_to_model:.2f}",
            f"{result.training:.2f}",
            format_size(result.peak),
            "-" if result.allowed is None else format_size(result.allowed),
            f"{result.passes:g}",
            f"{result.primal:.9g}",
            f"{result.primal / bound - 1.0:.1e}",
        )
        for result in results
    ]
    return table(head, rows)


def measures(result: Result) -> dict[str, float]:
    """The numbers that there are targets for."""
    return {
        "text to model": result.text_to_model,
        "training alone": result.training,
        "peak memory": result.peak,
    }


def ratio_table(results: Sequence[Result], names: Sequence[str]) -> str | None:
    """Ours divided by LIBLINEAR's; None where one of them is missing."""
    peer = next((result for result in results if result.contender.startswith(LIBLINEAR)), None)
    ours = [result for result in results if result.contender.startswith(OURS)]
    if peer is None or not ours:
        return None
    rows = [
        (
            name,
            f"{TARGETS[name]:.3g}",
            *(f"{measures(result)[name] / measures(peer)[name]:.3g}" for result in ours),
        )
        for name in names
    ]
    return table(("ours / LIBLINEAR", "target, at most", *(result.contender for result in ours)), rows)


def data_sets(options: argparse.Namespace, folder: Path) -> list[DataSet]:
    """Those that were asked for and can be had."""
    found = []
    for name in options.sets:
        if name in SOURCES:
            if options.data is None or not (options.data / SOURCES[name]).exists():
                note(f"{name} is left out: --data names no folder with {SOURCES[name]}")
                continue
            text, scaled = folder / f"{name}.svm", name == "covtype"
            peer = folder / f"{name}.scaled.svm" if scaled else text
            make = (name, text, "--data", options.data, *(("--scaled", peer) if scaled else ()))
            found.append(DataSet(name, text, text.with_suffix(".zarr"), peer, make, scaled))
        else:
            nonzeros = options.nonzeros if name == "generated" else options.large
            found.append(generated(folder, nonzeros, peak_only=name == "large"))
    return found


def generated(folder: Path, nonzeros: int, *, peak_only: bool = False) -> DataSet:
    """Text-like rows of 2^20 columns, about so many nonzeros."""
    text = folder / f"generated-{nonzeros}.svm"
    title = f"generated, {nonzeros / 1e6:g} M nonzeros"
    make = ("generated", text, "--nonzeros", str(nonzeros))
    return DataSet(title, text, text.with_suffix(".zarr"), text, make, peak_only=peak_only)


def race(options: argparse.Namespace, folder: Path, scratch: Path) -> None:
    """All data sets."""
    for data in data_sets(options, folder):
        try:
            contest = Race(data, options, scratch)
        except Failed as failure:
            print(f"\n## {data.title}\n{failure}", flush=True)
            continue
        results = contest.results()
        print(f"\n## {data.title}\n{describe(contest)}\n\n{result_table(results, contest.bound)}")
        ratios = ratio_table(results, ("peak memory",) if data.peak_only else tuple(TARGETS))
        if ratios is not None:
            print(f"\n{ratios}")
        for complaint in contest.failures:
            print(f"\n{complaint}")
        sys.stdout.flush()


def describe(contest: Race) -> str:
    """Sizes of the data, and what converting it took."""
    facts, converted = contest.facts, contest.converted
    return (
        f"{facts['n_rows']:,} rows, {facts['n_features']:,} columns, {facts['n_nonzeros']:,} nonzeros; "
        f"text {format_size(contest.data.text.stat().st_size)}, CSR {format_size(contest.csr)}, "
        f"store {format_size(facts['bytes'])}. Memory wanted {format_size(contest.memory)}; convert: "
        f"{converted.seconds:.2f} s, peak {format_size(converted.peak)}, "
        f"allowed {format_size(contest.convert_memory)}."
    )


def scaling(options: argparse.Namespace, folder: Path, scratch: Path) -> None:
    """Our solvers on ten times the rows with the same memory."""
    sizes = (options.nonzeros, options.nonzeros // SCALING)
    large, small = (Race(generated(folder, nonzeros), options, scratch) for nonzeros in sizes)
    print(f"\nOnce: {describe(small)}\n\nTen times: {describe(large)}")
    for solver in options.solvers:
        try:
            grown = median([large.ours(solver) for _ in range(options.repeat)])
            memory = int(grown.allowed or large.memory)
            base = median([small.ours(solver, memory) for _ in range(options.repeat)])
        except Failed as failure:
            print(f"\n{solver}: {failure}", flush=True)
            continue
        print(f"\n{scaling_table(f'{solver}, {format_size(memory)}', base, grown)}", flush=True)


def scaling_table(title: str, base: Result, grown: Result) -> str:
    """Ten times the rows beside once."""
    seconds, peak = SCALING_TARGETS
    rows = [
        (name, target, show(first), show(second), f"{second / first:.3g}")
        for name, target, show, first, second in (
            ("training, s", f"{seconds:g}", "{:.2f}".format, base.training, grown.training),
            ("peak memory", f"{peak:g}", format_size, base.peak, grown.peak),
            ("passes", "-", "{:g}".format, base.passes, grown.passes),
        )
    ]
    return table((title, "target, at most", "once", "ten times", "ratio"), rows)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, help="folder with arxiv/ and covtype/; missing sets are left out"
    )
    parser.add_argument("--keep", type=Path, help="folder for texts and stores, used again by the next run")
    parser.add_argument("--sets", default=",".join(SETS), help="which of them (%(default)s)")
    parser.add_argument("--solvers", default="streamed-smo,ocas", help="ours (%(default)s)")
    parser.add_argument("--nonzeros", type=parse_size, default="60M", help="of generated (%(default)s)")
    parser.add_argument(
        "--large", type=parse_size, default="150M", help="of large, for the peak (%(default)s)"
    )
    parser.add_argument("--C", type=float, default=1.0)
    parser.add_argument("--threads", type=int, help="of ours; by default one for each processor")
    parser.add_argument("--memory", type=parse_size, help="of ours; by default as said above")
    parser.add_argument("--repeat", type=int, default=1, help="runs; medians are printed")
    parser.add_argument("--liblinear", help="LIBLINEAR's program for training, or 'package'")
    parser.add_argument("--time-limit", type=float, default=3600.0, help="seconds of a process (%(default)s)")
    parser.add_argument("--scaling", action="store_true", help="ten times the rows instead of the race")
    options = parser.parse_args()
    options.sets, options.solvers = (
        [word for word in words.split(",") if word] for words in (options.sets, options.solvers)
    )
    unknown = set(options.sets) - set(SETS)
    if unknown:
        parser.error(f"there is no set {sorted(unknown)[0]!r}; choose from {', '.join(SETS)}")
    found = shutil.which("liblinear-train") or shutil.which("train")
    options.liblinear = None if options.liblinear == "package" else options.liblinear or found
    return options


def main() -> None:
    """Race, or scale."""
    options = parse_options()
    group = make_group(1 << 40)
    if group is not None:
        group.rmdir()
    print(
        f"{os.cpu_count()} processors; LIBLINEAR: {options.liblinear or 'the package liblinear-official'}; "
        f"memory {'enforced by a control group' if group else 'not enforced: no control group can be made'}; "
        f"C = {options.C:g}; medians of {options.repeat}",
        flush=True,
    )
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.keep or "/var/tmp") as name:
        scratch = Path(name)
        try:
            (scaling if options.scaling else race)(options, options.keep or scratch, scratch)
        except Failed as failure:
            raise SystemExit(str(failure)) from None


if __name__ == "__main__":
    main()

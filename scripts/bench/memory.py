"""Peak memory of converting and training under a hard limit, at full size and at a tenth of the rows.

Each run is a process of its own in a control group with the limit that ``--memory`` promises (version 1 or 2,
which takes root); without one the peak is measured all the same and nothing enforces it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from ooc_svm.system.memory import format_size, parse_size

MAKE_DATA = Path(__file__).parents[1] / "make_data.py"
GROUPS = ((Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"), (Path("/sys/fs/cgroup"), "memory.max"))


def make_group(limit: int) -> Path | None:
    """A control group with this limit, or None where that is not possible."""
    for root, name in GROUPS:
        folder = root / f"ooc-svm-bench-{os.getpid()}"
        try:
            folder.mkdir(exist_ok=True)
            (folder / name).write_text(str(limit))
        except OSError:
            continue
        return folder
    return None


def peak_of(command: list[str], group: Path | None) -> tuple[int, int]:
    """Peak resident size of a command in bytes, and its exit status."""

    def enter() -> None:
        if group is not None:
            (group / "cgroup.procs").write_text(str(os.getpid()))

    process = subprocess.Popen(command, preexec_fn=enter, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_maxrss * 1024, process.returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--copies", type=int, default=13, help="copies of the text; 13 make 3.1 GB of CSR")
    parser.add_argument("--text", default="500MB", help="size of one copy")
    parser.add_argument("--memory", default="600MB")
    parser.add_argument("--passes", type=int, default=5)
    options = parser.parse_args()
    command = [sys.executable, "-m", "ooc_svm.cli"]
    group = make_group(parse_size(options.memory))
    print("limit enforced by a control group" if group else "no control group: the limit is not enforced")
    print(f"{'run':<10}{'text':>10}{'peak':>10}{'exit':>6}")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        text = folder / "train.svm"
        subprocess.run(
            [sys.executable, MAKE_DATA, text, folder / "test.svm", "--size", options.text],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        for copies in (max(options.copies // 10, 1), options.copies):
            store, model = str(folder / f"{copies}.zarr"), str(folder / f"{copies}.model")
            limits = ["--memory", options.memory, "--quiet"]
            convert = [*command, "convert", *[str(text)] * copies, "-o", store, *limits]
            train = [*command, "train", store, "-o", model, "--max-passes", str(options.passes), *limits]
            size = format_size(copies * text.stat().st_size)
            for title, arguments in (("convert", convert), ("train", train)):
                peak, code = peak_of(arguments, group)
                print(f"{title:<10}{size:>10}{format_size(peak):>10}{code:>6}", flush=True)
    if group is not None:
        group.rmdir()


if __name__ == "__main__":
    main()

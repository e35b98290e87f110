"""What the command line says: numbers, tables, certificates, progress."""

from __future__ import annotations

import io
import os
import pty
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from ooc_svm.cli import progress
from ooc_svm.cli.exit_codes import exit_code, one_line
from ooc_svm.cli.format import block, bound, count, objective, printable, short, shortened, table
from ooc_svm.cli.report import certificate
from ooc_svm.errors import DamageError, InputError, Interrupted, MemoryBudgetError, StorageError, UsageError
from ooc_svm.system.amounts import format_seconds
from ooc_svm.training.progress import Progress

EVENT = Progress(
    kind="pass",
    passes=12,
    bytes_read=1_200_000_000,
    blocks_done=0,
    n_blocks=40,
    primal=577.8,
    dual=575.9,
    relative_gap=3.4e-3,
    tol=1e-3,
    seconds=8.1,
    models_running=1,
)


@pytest.mark.parametrize(
    ("number", "nearest", "from_above"),
    [
        (1e-3, "1e-3", "1e-3"),
        (0.0010000001, "1e-3", "1.1e-3"),
        (3.4e-3, "3.4e-3", "3.4e-3"),
        (3.41e-3, "3.4e-3", "3.5e-3"),
        (9.99e-4, "1e-3", "1e-3"),
        (1.0, "1e0", "1e0"),
        (0.0, "0e0", "0e0"),
        (-2e-17, "-2e-17", "-2e-17"),
        (123456.0, "1.2e5", "1.3e5"),
        (float("inf"), "-", "-"),
        (float("nan"), "-", "-"),
        (None, "-", "-"),
    ],
)
def test_short_numbers(number: float | None, nearest: str, from_above: str) -> None:
    assert short(number) == nearest
    assert bound(number) == from_above


def test_objectives() -> None:
    assert objective(577.8) == "577.8"
    assert objective(1 / 3, 10) == "0.3333333333"
    assert objective(None) == "-"


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (0.0, "0 s"),
        (0.0123, "0.01 s"),
        (0.04, "0.04 s"),
        (0.05, "0.1 s"),
        (8.12, "8.1 s"),
        (9.96, "10 s"),
        (99.4, "99 s"),
        (99.6, "1 min 40 s"),
        (200, "3 min 20 s"),
        (3599.7, "1 h 00 min"),
        (7500, "2 h 05 min"),
    ],
)
def test_durations(duration: float, text: str) -> None:
    assert format_seconds(duration) == text


def test_counts_and_tables() -> None:
    assert count(1, "pass") == "1 pass"
    assert count(2, "pass") == "2 passes"
    assert count(1234, "row") == "1,234 rows"
    assert shortened(["a", "b", "c"], most=2) == "a   b   and 1 more"
    assert block([("rows", "3"), ("features", "")]) == "rows      3\nfeatures"
    assert table(("a", "long"), [("12", "x")]) == " a  long\n12     x"


def test_names_do_nothing_to_a_terminal() -> None:
    assert printable("a\x1b[31mb\u202ec é") == "a\\x1b[31mb\\u202ec é"
    assert one_line("first\nsecond\t third") == "first second third"
    assert block([("name", "x\ny")]) == "name  x\\ny"


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (UsageError("no"), 2, "no"),
        (InputError("a.svm:3:7: bad"), 3, "a.svm:3:7: bad"),
        (DamageError("torn"), 4, "torn"),
        (StorageError("full"), 5, "full"),
        (OSError(28, "No space left on device", "x"), 5, "x: No space left on device; make room on the disk"),
        (OSError("odd"), 5, "odd; check the disk and the connections"),
        (MemoryBudgetError("1 + 1 MB"), 6, "1 + 1 MB"),
        (MemoryError(), 6, "memory ran out; give a smaller --memory, or use a machine with more"),
        (Interrupted(15, "interrupted"), 143, "interrupted"),
        (KeyboardInterrupt(), 130, "interrupted by SIGINT"),
        (KeyError("x"), 1, "KeyError: 'x'; this is a bug; set OOC_SVM_TRACEBACK=1 to see where it happened"),
    ],
)
def test_exceptions_become_exit_codes(
    error: BaseException, code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error

    assert exit_code(fail) == code
    assert capsys.readouterr().err == f"ooc-svm: error: {sentence}\n"


def test_the_end_of_a_command_that_works() -> None:
    assert exit_code(lambda: None) == 0
    assert exit_code(lambda: 3) == 3


@pytest.mark.filterwarnings("always")
def test_warnings_are_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    import warnings

    assert exit_code(lambda: warnings.warn("old\nstate", RuntimeWarning, stacklevel=1)) == 0
    assert capsys.readouterr().err == "ooc-svm: warning: old state\n"


def report(n_models: int) -> dict[str, Any]:
    models = [
        {
            "label": str(k),
            "C": 1.0,
            "primal": 10.0 + k,
            "dual": 9.99 + k,
            "gap": 0.01,
            "relative_gap": 0.01 / (10.0 + k),
            "passes": 7,
            "converged": True,
        }
        for k in range(n_models)
    ]
    return {
        "models": models,
        "converged": True,
        "stop_reason": "certified",
        "passes": 7,
        "bytes_read": 3_100_000_000,
        "seconds": 10.0,
        "peak_memory_bytes": 412_000_000,
        "n_features": 1000,
    }


def test_the_certificate_of_one_model() -> None:
    assert certificate(report(1), 1e-3, "m.model", 8000).splitlines() == [
        "certified      yes, relative gap 1e-3, asked for 1e-3",
        "objective P    10",
        "lower bound D  9.99",
        "gap P - D      0.01",
        "passes         7 (3.1 GB read)",
        "time           10 s",
        "peak memory    412 MB",
        "model          m.model (1 model of 1,000 features, 8 kB)",
    ]


def test_the_read_for_the_scale_is_no_pass() -> None:
    scaled = report(1) | {"history": [{"pass": passes} for passes in range(1, 7)]}
    assert "passes         6, and one for the scale of the columns (3.1 GB read)" in certificate(
        scaled, 1e-3, "m.model", 8000
    )


def test_a_value_of_zero_and_rounding_that_shows_are_said() -> None:
    one = report(1)
    one["models"][0].update(primal=0.0, dual=0.0, gap=2e-13, relative_gap=1.0, rounding=2e-13, absolute=True)
    assert certificate(one, 1e-3, "m.model", 8000).splitlines()[:4] == [
        "certified      yes, P is 0 within rounding, and at most 2e-13 above the optimum",
        "objective P    0",
        "lower bound D  0",
        "gap P - D      2e-13 (of which rounding 2e-13)",
    ]
    many = report(2)
    many["models"][0].update(relative_gap=1.0, absolute=True)
    lines = certificate(many, 1e-3, "m.model", 8000).splitlines()
    assert lines[0].split("yes, ")[1] == "relative gap 9.1e-4 of the worst model, asked for 1e-3"
    assert "P is 0" in lines[-2]


def test_the_certificate_of_many_models_names_the_worst() -> None:
    many = report(25)
    many["models"][13].update(relative_gap=0.5, converged=False)
    many.update(converged=False, stop_reason="certified, max-passes")
    text = certificate(many, 1e-3, "m.model", 8000)
    assert text.splitlines()[0] == (
        "certified    no, stopped by max-passes: relative gap 5e-1 of the worst model, asked for 1e-3; "
        "24 of 25 models are certified"
    )
    lines = text.split("\n\n")[1].splitlines()
    assert len(lines) == 22
    assert lines[1].split() == ["13", "1", "23", "22.99", "5e-1", "7", "no"]
    assert lines[-1] == "and 5 models with a smaller gap"


def test_the_line_of_a_pass(capsys: pytest.CaptureFixture[str]) -> None:
    lines = progress.PassLines()
    lines(replace(EVENT, passes=1, seconds=6.0, bytes_read=900_000_000, relative_gap=0.5))
    lines(EVENT)
    lines(replace(EVENT, kind="block", blocks_done=3))
    lines(replace(EVENT, kind="note", message="compiling ..."))
    lines(replace(EVENT, passes=13, seconds=9.1, relative_gap=None, models_running=3))
    # From 10 to 82 % of the way in 2.1 s.
    assert capsys.readouterr().err.splitlines() == [
        "pass 1  gap 5e-1 (target 1e-3)  P 577.8  D 575.9  900 MB read  150 MB/s  6.0 s",
        "pass 12  gap 3.4e-3 (target 1e-3)  P 577.8  D 575.9  1.2 GB read  143 MB/s  8.1 s  about 0.5 s left",
        "compiling ...",
        "pass 13  gap - (target 1e-3)  P 577.8  D 575.9  1.2 GB read  9.1 s  3 models to go",
    ]


def test_a_hint_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    """The batches of a run give those of the data again."""
    with progress.train_progress(quiet=False) as show:
        assert show is not None
        for message in ("rare class", "large columns", "rare class", "large columns"):
            show(replace(EVENT, kind="hint", message=message))
            show(replace(EVENT, kind="note", message="batch"))
    err = capsys.readouterr().err.splitlines()
    assert err == ["hint: rare class", "batch", "hint: large columns", "batch", "batch", "batch"]


def test_no_time_that_is_next_to_nothing_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    lines = progress.PassLines()
    lines(replace(EVENT, passes=1, seconds=6.0, relative_gap=0.5))
    lines(replace(EVENT, relative_gap=1.01e-3))
    assert " left" not in capsys.readouterr().err


def test_the_share_of_the_way_is_logarithmic() -> None:
    share = progress.GapShare()
    assert share(None, 1e-4) == 0.0
    assert share(0.5, 1e-4) == pytest.approx(0.0753, abs=1e-4)
    assert share(1e-2, 1e-4) == pytest.approx(0.5)
    assert share(1e-3, 1e-4) == pytest.approx(0.75)
    assert share(1e-4, 1e-4) == 1.0
    assert share(2.0, 1e-4) == 0.0


def test_lines_of_bytes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    lines = progress.ByteLines("convert", interval=10.0)
    for elapsed, total in ((4, None), (10, None), (15, None), (20, 4_000_000_000)):
        clock[0] = 100.0 + elapsed
        lines(elapsed * 10**8, total, 1000 * elapsed)
    assert capsys.readouterr().err.splitlines() == [
        "convert 1 GB  100 MB/s  10,000 rows",
        "convert 2 GB of 4 GB  100 MB/s  20,000 rows",
    ]


def test_progress_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    for stream in (Broken(), None):
        monkeypatch.setattr(sys, "stderr", stream)
        progress.PassLines()(EVENT)


def test_quiet_gives_nothing_to_call() -> None:
    with progress.train_progress(quiet=True) as train, progress.byte_progress("verify", quiet=True) as read:
        assert train is None
        assert read is None


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], str]]:
    """Standard error is a terminal; gives what reads all that was written to it."""
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    with open(theirs, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "120")

        def read() -> str:
            stream.flush()
            parts: list[bytes] = []
            try:
                while True:
                    parts.append(os.read(ours, 1 << 16))
            except BlockingIOError:
                return b"".join(parts).decode()

        yield read
    os.close(ours)


def test_the_bar_of_a_training(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as read:
        with progress.train_progress(quiet=False) as show:
            assert show is not None
            show(replace(EVENT, kind="note", message="compiling [once] ..."))
            show(replace(EVENT, kind="block", blocks_done=10))
            show(replace(EVENT, passes=1, seconds=6.0, relative_gap=0.5))
            show(EVENT)
        text = read()
    assert "compiling [once] ..." in text
    assert "pass 12" in text
    assert "scaling" not in text
    assert "gap 3.4e-3 (target 1e-3)" in text
    assert "left" in text


def test_the_bar_while_the_columns_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as read:
        with progress.train_progress(quiet=False) as show:
            assert show is not None
            values = dict.fromkeys(("primal", "dual", "relative_gap"))
            show(replace(EVENT, kind="block", passes=0, blocks_done=10, models_running=0, **values))
        text = read()
    assert "scaling" in text
    assert "pass" not in text


def test_the_bar_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as read:
        with progress.byte_progress("verify", quiet=False) as show:
            assert show is not None
            show(5_000_000, None)
            show(10_000_000, 10_000_000)
        assert "10.0/10.0 MB" in read()


def test_a_dumb_terminal_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch):
        monkeypatch.setenv("TERM", "dumb")
        with progress.train_progress(quiet=False) as show:
            assert isinstance(show, progress.PassLines)

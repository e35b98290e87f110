"""Signals: a first one asks, a second one or the time ends."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import subprocess
import sys
import threading
import time

import pytest

from ooc_svm.errors import Interrupted
from ooc_svm.system import signals


def test_nothing_is_requested_by_itself() -> None:
    assert signals.stop_requested() is None
    with signals.handle_signals():
        assert signals.stop_requested() is None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_raises(number: signal.Signals) -> None:
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)]

    def run() -> None:
        with signals.handle_signals():
            signal.raise_signal(number)
            assert signals.stop_requested() == number
            signal.raise_signal(number)

    with pytest.raises(Interrupted) as raised:
        run()
    assert raised.value.exit_code == 128 + number
    assert signals.stop_requested() is None
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)] == before


def test_without_grace_the_first_signal_raises() -> None:
    with pytest.raises(Interrupted), signals.handle_signals(grace=0):
        signal.raise_signal(signal.SIGTERM)


def test_it_raises_when_the_grace_is_over() -> None:
    def run() -> None:
        with signals.handle_signals(grace=0.05):
            signal.raise_signal(signal.SIGTERM)
            assert signals.stop_requested() == signal.SIGTERM
            threading.Event().wait(30)  # a main thread that waits for a worker

    with pytest.raises(Interrupted) as raised:
        run()
    assert raised.value.exit_code == 128 + signal.SIGTERM


def test_what_is_made_while_a_signal_arrives_is_left_before_it_raises() -> None:
    @contextlib.contextmanager
    def make():
        steps.append("made")
        signal.raise_signal(signal.SIGTERM)
        threading.Event().wait(0.05)
        steps.append("entered")
        yield
        steps.append("left")

    @contextlib.contextmanager
    def removed_at_the_end():
        try:
            with make():
                yield
        except BaseException:
            steps.append("removed")
            raise

    steps: list[str] = []
    with (
        pytest.raises(Interrupted) as raised,
        signals.handle_signals(grace=0),
        signals.entered(removed_at_the_end),
    ):
        steps.append("used")
    assert raised.value.exit_code == 128 + signal.SIGTERM
    assert steps == ["made", "entered", "removed"]


def test_what_is_left_while_a_signal_arrives_is_left_before_it_raises() -> None:
    @contextlib.contextmanager
    def make():
        yield
        signal.raise_signal(signal.SIGTERM)
        threading.Event().wait(0.05)
        steps.append("left")

    steps: list[str] = []
    with pytest.raises(Interrupted), signals.handle_signals(grace=0), signals.entered(make):
        steps.append("used")
    assert steps == ["used", "left"]


def test_what_a_signal_keeps_from_being_used_is_left() -> None:
    """It comes when all is made, and the statement that it is for does not have it yet."""
    steps: list[str] = []

    def run() -> None:
        context = signals.entered(lambda: contextlib.closing(Closed()))
        context.__enter__()
        kept.append(context)
        signal.raise_signal(signal.SIGTERM)

    class Closed:
        def close(self) -> None:
            steps.append("left")

    kept: list[object] = []  # as a traceback keeps it
    with pytest.raises(Interrupted), signals.handle_signals(grace=0):
        run()
    assert steps == ["left"]


@pytest.mark.usefixtures("keyboard")
def test_ctrl_c_waits_where_signals_are_not_handled() -> None:
    def run() -> None:
        with signals.uninterrupted(), signals.uninterrupted():
            signal.raise_signal(signal.SIGINT)
            steps.append("went on")
        steps.append("not reached")

    steps: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        run()
    assert steps == ["went on"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def insist() -> None:
        with signals.uninterrupted():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            steps.append("not reached")

    with pytest.raises(KeyboardInterrupt):
        insist()
    assert steps == ["went on"]


def test_a_handler_of_the_program_stays() -> None:
    received: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: received.append(number))
    try:
        with signals.uninterrupted():
            signal.raise_signal(signal.SIGINT)
            assert received == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


def test_without_a_signal_what_is_made_is_used() -> None:
    with signals.entered(lambda: contextlib.nullcontext(3)) as made:
        assert made == 3
    with signals.handle_signals(), signals.entered(lambda: contextlib.nullcontext(4)) as made:
        assert made == 4


@pytest.mark.parametrize("grace", [0, 0.05])
def test_it_raises_again_what_met_a_callback_that_lets_nothing_through(grace, capfd) -> None:
    class Closing:
        def __del__(self) -> None:
            entered.append(True)
            signal.raise_signal(signal.SIGTERM)
            if grace:
                threading.Event().wait(30)
                entered.append(False)  # not reached: it is raised here first

    def run() -> None:
        Closing()
        threading.Event().wait(30)

    entered: list[bool] = []
    before = sys.unraisablehook
    with pytest.raises(Interrupted) as raised, signals.handle_signals(grace):
        run()
    assert raised.value.exit_code == 128 + signal.SIGTERM
    assert entered == [True]
    assert sys.unraisablehook is before
    assert capfd.readouterr() == ("", "")


def test_it_raises_again_what_c_code_prints(capfd) -> None:
    """As extension modules do with what keeps them from importing NumPy."""

    def run() -> None:
        raising = f"import signal; signal.raise_signal({signal.SIGTERM:d})"
        printed.append(ctypes.pythonapi.PyRun_SimpleString(raising.encode()))
        threading.Event().wait(30)

    printed: list[int] = []
    before = sys.excepthook
    with pytest.raises(Interrupted) as raised, signals.handle_signals(grace=0):
        run()
    assert raised.value.exit_code == 128 + signal.SIGTERM
    assert printed == [-1]
    assert sys.excepthook is before
    assert capfd.readouterr() == ("", "")


def test_what_was_cut_short_inside_is_finalised_in_silence(capfd) -> None:
    class HalfMade:
        def __del__(self) -> None:
            raise AttributeError("made by half")

    kept = []
    with signals.handle_signals():
        try:
            with signals.handle_signals(0):
                kept.append(HalfMade())
                signal.raise_signal(signal.SIGTERM)
        except Interrupted:
            kept.pop()
    assert capfd.readouterr() == ("", "")


def test_what_others_raise_in_such_a_callback_is_still_reported(monkeypatch) -> None:
    class Closing:
        def __del__(self) -> None:
            raise ZeroDivisionError

    reported: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: reported.append(unraisable.exc_type))
    with signals.handle_signals(grace=0):
        Closing()
    assert reported == [ZeroDivisionError]


def test_an_inner_one_takes_over_and_gives_back() -> None:
    def run() -> None:
        with signals.handle_signals(grace=0):
            with signals.handle_signals(grace=60):
                signal.raise_signal(signal.SIGINT)
                assert signals.stop_requested() == signal.SIGINT
            assert signals.stop_requested() is None
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Interrupted):
        run()


def test_no_library_takes_it_for_a_failure_it_can_deal_with() -> None:
    def run() -> None:
        with signals.handle_signals(grace=0):
            with contextlib.suppress(Exception):
                signal.raise_signal(signal.SIGINT)
            went_on.append(True)

    went_on: list[bool] = []
    with pytest.raises(Interrupted):
        run()
    assert not went_on


def test_what_follows_from_a_signal_lost_in_a_callback_is_the_interruption() -> None:
    def run() -> None:
        with signals.handle_signals(grace=0):
            ctypes.CFUNCTYPE(None)(lambda: signal.raise_signal(signal.SIGINT))()
            raise RuntimeError("no compiled object yet")

    with pytest.raises(Interrupted) as raised:
        run()
    assert raised.value.exit_code == 130


def test_an_error_after_a_request_to_end_is_an_error() -> None:
    def run() -> None:
        with signals.handle_signals():
            signal.raise_signal(signal.SIGINT)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run()


def test_the_timer_of_others_is_put_back() -> None:
    rung: list[int] = []
    handler = signal.signal(signal.SIGALRM, lambda number, frame: rung.append(number))
    timer = signal.setitimer(signal.ITIMER_REAL, 30.0)
    try:
        with signals.handle_signals():
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGALRM) is not handler
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 30.0
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)
    assert rung == []


def test_other_threads_leave_the_handlers_alone() -> None:
    seen: list[object] = []

    def work() -> None:
        before = signal.getsignal(signal.SIGINT)
        with signals.handle_signals():
            seen.append(signal.getsignal(signal.SIGINT) is before)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True]


def python(program: str) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", program], text=True, **pipes)


@pytest.mark.fault
def test_a_process_that_cannot_tidy_up_ends_all_the_same() -> None:
    program = (
        "import time\n"
        "from ooc_svm.system import signals\n"
        "signals.TIDY_SECONDS = 0.3\n"
        "with signals.handle_signals(grace=0.2):\n"
        "    try:\n"
        "        print('ready', flush=True)\n"
        "        time.sleep(60)\n"
        "    finally:\n"
        "        print('tidying', flush=True)\n"
        "        time.sleep(60)\n"
    )
    with python(program) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        sent = time.monotonic()
        assert process.wait(20) == 128 + signal.SIGTERM
        assert time.monotonic() - sent < 10
        assert process.stdout.read() == "tidying\n"
        assert process.stderr is not None
        assert process.stderr.read() == (
            "ooc-svm: error: interrupted by SIGTERM; what was under way did not end in time\n"
        )


@pytest.mark.fault
def test_a_third_signal_does_what_it_does_to_other_programs() -> None:
    program = (
        "import time\n"
        "from ooc_svm.system import signals\n"
        "def stubborn(word):\n"
        "    try:\n"
        "        print(word, flush=True)\n"
        "        time.sleep(60)\n"
        "    except BaseException:\n"
        "        stubborn('tidying')\n"
        "signals.TIDY_SECONDS = 60\n"
        "with signals.handle_signals(grace=0):\n"
        "    stubborn('ready')\n"
    )
    with python(program) as process:
        assert process.stdout is not None
        for word in ("ready\n", "tidying\n", "tidying\n"):
            assert process.stdout.readline() == word
            process.send_signal(signal.SIGINT)
        assert process.wait(20) == -signal.SIGINT


@pytest.mark.fault
def test_a_signal_inside_the_handler_of_another_has_its_time_too() -> None:
    """The second one comes before the first has said what its timer does."""
    program = (
        "import signal, time\n"
        "from ooc_svm.system import signals\n"
        "install = signal.signal\n"
        "def interrupted(number, handler):\n"
        "    if number == signal.SIGALRM:\n"
        "        signal.signal = install\n"
        "        print('meets another', flush=True)\n"
        "        signal.raise_signal(signal.SIGTERM)\n"
        "    return install(number, handler)\n"
        "signals.TIDY_SECONDS = 0.2\n"
        "with signals.handle_signals(grace=0):\n"
        "    try:\n"
        "        signal.signal = interrupted\n"
        "        signal.raise_signal(signal.SIGINT)\n"
        "    finally:\n"
        "        time.sleep(60)\n"
    )
    with python(program) as process:
        assert process.wait(30) in (128 + signal.SIGINT, 128 + signal.SIGTERM)
        assert process.stdout is not None
        assert process.stdout.read() == "meets another\n"


@pytest.mark.fault
@pytest.mark.parametrize(("rest", "code"), [(0, 7), (60, 128 + signal.SIGINT)])
def test_after_the_last_one_a_process_only_ends(rest: int, code: int) -> None:
    program = (
        "import signal, sys, time\n"
        "from ooc_svm.system import signals\n"
        "signals.TIDY_SECONDS = 0.2\n"
        "with signals.handle_signals(grace=0, last=True):\n"
        "    pass\n"
        "signal.raise_signal(signal.SIGINT)\n"
        f"time.sleep({rest})\n"
        "print('ended by itself')\n"
        "sys.exit(7)\n"
    )
    with python(program) as process:
        out, err = process.communicate(timeout=30)
        assert (process.returncode, err) == (code, "")
        assert out == ("" if rest else "ended by itself\n")

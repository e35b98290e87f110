"""Functions that another process compiles: this one loads them, and compiles by itself where that fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ooc_svm.training import compile_process
from ooc_svm.training.compile_process import compiled_apart

# Each script begins with an empty cache; misses are functions that the process itself has compiled.
BEGIN = """
import sys
import numpy as np
from ooc_svm.ops import compile_events
from ooc_svm.training import compile_process
from ooc_svm.training.compile_process import compiled_apart, compiler
from ooc_svm.ops.rows import column_statistics, scores

rows = np.array([0, 1, 2]), np.zeros(2, np.int32), np.ones(2)

def score():
    found = np.zeros(2)
    scores(*rows, 0, 1, np.full(1, 2.0), found)
    assert found.tolist() == [2.0, 2.0]
    return sum(scores.stats.cache_misses.values())
"""


REFUSING = "compile_process._SERVE = \"while __import__('os').read(0, 9999): print(end=chr(45), flush=True)\""


def run(script: str, cache: Path) -> str:
    """What a script prints."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", BEGIN + script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_another_process_compiles_and_this_one_loads(tmp_path):
    script = """
heard = []
compile_events.listeners.append(heard.append)
with compiled_apart():
    print(score(), heard, compiler.process is not None, "numba.np.arraymath" in sys.modules)
print(compiler.process)
"""
    assert run(script, tmp_path) == "0 [True, False] True False\nNone"
    assert len(list(tmp_path.rglob("*.nbc"))) > 1
    # The next process finds it, and asks nobody.
    assert run("with compiled_apart(): print(score(), compiler.process)", tmp_path) == "0 None"


def test_without_a_run_that_wants_it_this_process_compiles(tmp_path):
    assert run("print(score(), compiler.process)", tmp_path) == "1 None"


@pytest.mark.parametrize(
    ("fault", "answers"),
    [
        ("compile_process._SERVE = 'import os; os._exit(3)'", [b"", b""]),
        ("sys.executable = '/nowhere/python'", [b"", b""]),
        (REFUSING, [b"-"]),
    ],
)
def test_where_the_other_process_fails_this_one_compiles(tmp_path, fault, answers):
    script = f"""
{fault}
asked, ask = [], compiler._ask
compiler._ask = lambda request: asked.append(ask(request)) or asked[-1]
with compiled_apart():
    print(score(), asked)
"""
    assert run(script, tmp_path) == f"1 {answers}"


@pytest.mark.parametrize("begin", ["sys.executable = '/usr/bin/program'", "sys.executable = None"])
def test_a_program_with_python_inside_compiles_by_itself(tmp_path, begin):
    script = """
from ooc_svm.options import TrainOptions
from ooc_svm.training.memory_plan import compiling, program_bytes
options = TrainOptions(memory="1GB")
with compiling(options):
    print(score(), compiler.process is not None, program_bytes(options, converted=False))
"""
    assert run(begin + script, tmp_path) == "1 False 260000000"
    assert run(script, tmp_path / "other") == "0 True 170000000"


def test_where_nothing_can_be_kept_this_process_compiles(tmp_path):
    script = """
from ooc_svm.ops import compiled
compiled.CheckedCache.__init__ = lambda *_: (_ for _ in ()).throw(RuntimeError)
from ooc_svm.training.compile_process import can_compile_apart
print(can_compile_apart())
"""
    assert run(script, tmp_path) == "False"


def test_what_the_other_process_cannot_keep_this_one_compiles(tmp_path):
    script = """
compile_process._SERVE = compile_process._SERVE.replace(
    "serve()", "from ooc_svm.ops.cache import CheckedCache; CheckedCache.save_overload = print; serve()"
)
with compiled_apart():
    print(score(), compiler.process is not None)
"""
    assert run(script, tmp_path) == "1 True"


def test_a_fork_has_none(tmp_path):
    script = """
import os
with compiled_apart():
    score()
    assert compile_events.helpers
    if not os.fork():
        os._exit(compiler.users + len(compile_events.helpers) + (compiler.process is not None))
    print(os.waitstatus_to_exitcode(os.wait()[1]), compiler.process is not None)
"""
    assert run(script, tmp_path) == "0 True"


def test_a_process_that_ended_idle_is_followed_by_another(tmp_path):
    script = """
compile_process._SERVE = compile_process._SERVE.replace("serve()", "serve(0.2)")
with compiled_apart():
    first = score(), compiler.process
    assert first[1].wait(30) == 0
    column_statistics(*rows, *np.zeros((3, 1)))
    print(first[0], sum(column_statistics.stats.cache_misses.values()), compiler.process is not first[1])
"""
    assert run(script, tmp_path) == "0 0 True"


def test_a_process_that_is_killed_is_followed_by_another(tmp_path):
    script = """
with compiled_apart():
    first = score(), compiler.process
    first[1].kill()
    column_statistics(*rows, *np.zeros((3, 1)))
    print(first[0], sum(column_statistics.stats.cache_misses.values()), first[1].returncode)
"""
    assert run(script, tmp_path) == "0 0 -9"


def test_what_cannot_be_compiled_is_an_error_of_this_process(tmp_path):
    script = """
from numba.core.errors import TypingError
with compiled_apart():
    try:
        scores("rows", 1, 2, 3, 4, 5, 6)
    except TypingError as error:
        print("scores" in str(error) or bool(str(error)), compiler.process is not None)
"""
    assert run(script, tmp_path) == "True True"


def test_an_interruption_leaves_no_answer_to_the_next_request(tmp_path):
    script = """
import os, signal, threading
start = compile_process._start

def interrupted():
    process = start()
    threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()
    compile_process._start = start
    return process

compile_process._start = interrupted
signal.signal(signal.SIGINT, signal.default_int_handler)  # It may be ignored in the background.
with compiled_apart():
    try:
        score()
    except KeyboardInterrupt:
        print("interrupted", compiler.process)
    print(score())
"""
    assert run(script, tmp_path) == "interrupted None\n0"


def test_the_process_ends_with_the_last_run_that_wants_it():
    started = compile_process.compiler
    with compiled_apart():
        with compiled_apart():
            assert started.users == 2
        assert started.users == 1
    assert started.users == 0


def test_it_ends_with_its_input():
    process = compile_process._start()
    try:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(30) == 0
    finally:
        process.kill()
        assert process.stdout is not None
        process.stdout.close()


def test_the_first_run_takes_hardly_more_memory_than_the_next(tmp_path):
    script = """
import ooc_svm
from ooc_svm.system.memory import peak_memory
rng = np.random.default_rng(0)
values = rng.normal(size=(500, 20))
few_functions = {"solver": "ocas", "bias": "none"}
ooc_svm.train(values, np.sign(values[:, 0]), progress=lambda _: None, memory=%r, **few_functions)
print(peak_memory() // 10**6)
"""
    first, second = (int(run(script % "500MB", tmp_path)) for _ in range(2))
    assert first < second + 12
    # With so little memory it compiles by itself.
    assert int(run(script % "440MB", tmp_path / "other")) > second + 50

"""The command line on a cluster: the models of one machine, and no process or file left behind."""

from __future__ import annotations

import os
import re
import signal

import pytest
from helpers.processes import LONG, assert_one_sentence, below, gone, run, started, wait_until
from helpers.train_data import bits

from ooc_svm import load_model


def test_train_has_the_bits_of_one_machine(tmp_path, small, scratch_folder):
    command = ("train", small.store, "--threads", "2", "--quiet", "-o")
    local = run(*command, tmp_path / "local")
    assert local.returncode == 0, local.stderr
    with started(*command, tmp_path / "dask", "--engine", "dask") as process:
        pids = wait_until(lambda: (found := below(process.pid)) and len(found) == 2 and found)
        said, errors = process.communicate(timeout=LONG)
    assert (process.returncode, errors) == (0, "")
    assert gone(pids)
    assert not list(scratch_folder.glob("ooc-svm-rows-*"))
    assert bits(load_model(tmp_path / "dask")) == bits(load_model(tmp_path / "local"))
    # What it says differs in times, memory and the file's name alone.
    answers = [[line for line in text.splitlines() if "gap" in line] for text in (said, local.stdout)]
    assert answers[0] == answers[1] != []


@pytest.mark.fault
def test_no_process_is_left_when_a_training_is_ended(tmp_path, small, scratch_folder):
    states = tmp_path / "states"
    endless = ("--tol", "1e-15", "--solver", "cutting-plane", "--C", "1e6", "--checkpoint", states)
    command = ("train", small.store, "-o", tmp_path / "m", "--engine", "dask", "--threads", "2", *endless)
    with started(*command, start_new_session=True) as process:
        pids = wait_until(lambda: (found := below(process.pid)) and len(found) == 2 and found)
        wait_until(lambda: list(states.glob("ooc-svm-rows-*/*")))
        os.killpg(process.pid, signal.SIGTERM)
        _, errors = process.communicate(timeout=LONG)
    assert process.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in errors
    wait_until(lambda: gone(pids))
    assert not list(scratch_folder.glob("ooc-svm-rows-*"))
    assert [path for path in states.iterdir() if not path.name.startswith("checkpoint-")] == []
    # Where the first read was complete the model so far is written, whole.
    read = re.search(r"interrupted after (\d+) pass(?:es)?;", errors)
    assert (tmp_path / "m").exists() == (read is not None and int(read[1]) > 0)
    if (tmp_path / "m").exists():
        report = load_model(tmp_path / "m").report
        assert (report["converged"], report["stop_reason"]) == (False, "signal")


def test_help_names_the_engines():
    for command in ("train", "convert"):
        words = run(command, "--help").stdout
        for word in ("--engine", "local|dask", "--scheduler", "tls://HOST:PORT", "--insecure-cluster"):
            assert word in words


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("convert", "-", "-o", "{folder}/a", "--engine", "dask"), "standard input"),
        (("convert", "{text}", "-o", "{folder}/a", "--engine", "dask", "--shuffle"), "--shuffle needs all"),
        (("plan", "{store}", "--engine", "dask"), "a plan is for one machine"),
        (("train", "{store}", "-o", "{folder}/a", "--scheduler", "tls://head:1"), "--engine dask"),
    ],
)
def test_what_a_cluster_does_not_take(tmp_path, small, arguments, message):
    names = {"folder": tmp_path, "text": small.text, "store": small.store}
    done = run(*(argument.format_map(names) for argument in arguments), input="")
    assert_one_sentence(done, 2)
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == []

"""Signals while a service does not answer."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers.object_places import Place, write_small

COMMAND = [sys.executable, "-c", "from ooc_svm.cli import main; main()"]
ENDED_SECONDS = 10 + 2  # and starting is slow where others compute


@pytest.mark.fault
def test_a_signal_ends_a_run_that_waits_for_an_answer(place: Place, local: Path, tmp_path: Path):
    write_small(local / "rows.svm", place / "rows.zarr")
    place.put("rows.svm", (local / "rows.svm").read_bytes())
    hanging = {
        ("GET", "rows.zarr/X/data"): ["train", place / "rows.zarr", "-o", place / "m"],
        ("PUT", "new.zarr/X/data"): ["convert", local / "rows.svm", "-o", place / "new.zarr"],
        ("HEAD", "rows.svm"): ["convert", place / "rows.svm", "-o", tmp_path / "o.zarr"],
        ("GET", "?list-type"): ["convert", place / "*.svm", "-o", tmp_path / "p.zarr"],
    }
    met = set()

    def fault(request, number):
        for method, part in hanging:
            if request.method == method and part in f"{request.key}?{request.query}":
                met.add((method, part))
                return "hang"
        return None

    place.proxy.fault = fault
    runs = [
        subprocess.Popen([*COMMAND, *map(str, arguments)], stderr=subprocess.PIPE, text=True)
        for arguments in hanging.values()
    ]
    try:
        deadline = time.monotonic() + 30
        while met != hanging.keys() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert met == hanging.keys()
        for number, run in enumerate(runs):
            run.send_signal((signal.SIGTERM, signal.SIGINT)[number % 2])
        for number, run in enumerate(runs):
            said = run.communicate(timeout=ENDED_SECONDS)[1]
            assert run.returncode == (143, 130)[number % 2], said
            *before, last = said.splitlines()
            assert before in (
                [],
                ["ooc-svm: ending with this pass, or in 8 s; another signal ends it at once"],
            )
            assert last.startswith("ooc-svm: error: interrupted by SIG"), said
    finally:
        for run in runs:
            run.kill()
            run.communicate()
    place.proxy.fault = None
    assert "zarr.json" not in place.keys("new.zarr")
    assert place.keys("m") == []

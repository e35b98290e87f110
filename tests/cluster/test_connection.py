"""Connecting to a cluster: addresses listened on, refusals and their words, no process left behind."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import warnings
from contextlib import contextmanager

import psutil
import pytest
from helpers.processes import LONG, assert_one_sentence, below, gone, run, started, wait_until

from ooc_svm.cluster import connection as module
from ooc_svm.cluster.connection import connect
from ooc_svm.errors import MemoryBudgetError, StorageError, UsageError

WORKER = "from distributed.cli.dask_worker import main; main()"
SCHEDULER = "from distributed.cli.dask_scheduler import main; main()"
# A worker with another release of one package.
OTHER_RELEASE = """
import importlib.metadata
version = importlib.metadata.version
importlib.metadata.version = lambda name: "0.1" if name == "numba" else version(name)
"""
# On this machine


def test_processes_of_this_machine():
    before = below(os.getpid())
    with connect(None, workers=2, threads_per_worker=3, memory=None) as cluster:
        workers = cluster.workers()
        assert below(os.getpid()) - before == {worker.pid for worker in workers}
        assert [worker.threads for worker in workers] == [3, 3]
        assert all(0 < worker.memory < 2**50 for worker in workers)
        for pid in (os.getpid(), *(worker.pid for worker in workers)):
            listening = [
                each for each in psutil.Process(pid).net_connections("inet") if each.status == "LISTEN"
            ]
            assert listening
            assert {each.laddr.ip for each in listening} == {"127.0.0.1"}
        # They can import what this process can, from wherever.
        assert [
            cluster.client.submit(os.getpid, workers=[worker.address]).result() for worker in workers
        ] == [worker.pid for worker in workers]
    assert gone(worker.pid for worker in workers)
    assert below(os.getpid()) == before


def test_workers_import_the_module_they_are_given_and_no_solver():
    with connect(None, workers=1, memory=None, preload="colorsys") as cluster:
        [worker] = cluster.workers()
        names = cluster.client.submit(lambda: set(sys.modules), workers=[worker.address]).result()
    assert "colorsys" in names
    assert not [name for name in names if name.startswith(("ooc_svm.solvers", "ooc_svm.training"))]


def test_no_process_is_left_after_an_error():
    pids = set()

    def fail():
        with connect(None, workers=2, memory=None) as cluster:
            pids.update(worker.pid for worker in cluster.workers())
            os.kill(min(pids), signal.SIGSTOP)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert len(pids) == 2
    assert gone(pids)


def test_what_dask_says_is_kept_from_the_user_for_as_long_as_it_lasts(capfd):
    logger = logging.getLogger("distributed")
    level, filters = logger.level, list(warnings.filters)
    with connect(None, workers=1, memory=10**9) as cluster:
        logger.error("words")
        [worker] = cluster.workers()
        assert worker.memory == 10**9
        os.kill(worker.pid, signal.SIGKILL)
        wait_until(lambda: not cluster.workers())
    assert logger.level == level
    assert list(warnings.filters) == filters
    assert capfd.readouterr() == ("", "")


def test_a_program_without_a_main_guard(tmp_path):
    text = tmp_path / "a.svm"
    text.write_text("1 1:1\n-1 2:0.5\n" * 9)
    program = (
        "import ooc_svm, sys; print(ooc_svm.convert(sys.argv[1], sys.argv[2], engine='dask', threads=1).rows)"
    )
    done = subprocess.run(
        [sys.executable, "-", text, tmp_path / "a.zarr"],
        input=program,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("18\n", "")


@pytest.mark.fault
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_no_process_is_left_after_a_signal(tmp_path, number):
    text = tmp_path / "a.svm"
    with open(text, "w") as file:
        for _ in range(60):
            file.write("1 1:1 2:0.123 7:9\n-1 2:0.5 5:0.777\n" * 10_000)
    command = ("convert", text, "-o", tmp_path / "a.zarr", "--engine", "dask", "--threads", "2", "--quiet")
    with started(*command, start_new_session=True) as process:
        pids = wait_until(lambda: (found := below(process.pid)) and len(found) == 2 and found)
        wait_until(lambda: list(tmp_path.glob("a.zarr.scratch-*/columns-*")))
        # As a terminal does it: to all of the group.
        os.killpg(process.pid, number)
        code = process.wait(LONG)
        assert process.stderr is not None
        said = process.stderr.read()
    wait_until(lambda: gone(pids))
    assert code == (-number if number == signal.SIGKILL else 128 + number)
    assert "Traceback" not in said
    assert not (tmp_path / "a.zarr").exists()
    left = {path.name.split("-")[0] for path in tmp_path.iterdir()}
    assert left == ({"a.svm", "a.zarr.lock", "a.zarr.building", "a.zarr.scratch"} if code < 0 else {"a.svm"})
    if code < 0:
        assert run(*command, "--features", "1").returncode == 3  # the next run removes what was left
        assert [path.name for path in tmp_path.iterdir()] == ["a.svm"]


# At an address


@contextmanager
def process(program, *arguments, prefix=()):
    command = [*prefix, sys.executable, "-c", program, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        try:
            yield child
        finally:
            child.send_signal(signal.SIGCONT)
            child.kill()


@contextmanager
def worker(address, *options, program=WORKER, prefix=()):
    """One more worker of a scheduler."""
    arguments = [address, "--no-nanny", "--no-dashboard", "--nthreads", 1, "--host", "127.0.0.1", *options]
    with process(program, *arguments, prefix=prefix) as child:
        yield child


@contextmanager
def scheduler_process(folder, *options):
    """The address of a scheduler in a process of its own."""
    file = folder / "scheduler.json"
    arguments = ["--host", "127.0.0.1", "--port", 0, "--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
    with process(SCHEDULER, *arguments, "--scheduler-file", file, *options):
        wait_until(lambda: file.exists() and '"address"' in file.read_text())
        yield file.read_text().split('"address": "')[1].split('"')[0]


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory):
    """A scheduler with one worker."""
    with scheduler_process(tmp_path_factory.mktemp("scheduler")) as address, worker(address):
        yield address


def insecure(address, **options):
    return connect(address, workers=1, insecure=True, **{"memory": None} | options)


def test_a_scheduler(scheduler):
    for _ in range(2):  # nothing of it is ours to end
        with insecure(scheduler) as cluster:
            [found] = cluster.workers()
            assert found.threads == 1
            assert psutil.pid_exists(found.pid)


def test_addresses_are_of_tls_or_allowed(scheduler):
    for address in (scheduler, scheduler.removeprefix("tcp://"), "ws://127.0.0.1:1"):
        with pytest.raises(UsageError, match=r"is not at a tls:// address.*insecure_cluster=True"):
            connect(address, workers=1, memory=None).__enter__()
    with pytest.raises(UsageError, match="is for a scheduler's address"):
        connect(None, workers=1, memory=None, insecure=True).__enter__()


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("tcp://127.0.0.1:1", "there is no scheduler at 'tcp://127.0.0.1:1'"),
        ("tls://127.0.0.1:1", "cannot be talked to.*certificates in dask's configuration"),
        ("spark://127.0.0.1:1", "cannot be talked to.*unknown address scheme 'spark'"),
        ("127.0.0.1", "cannot be talked to|there is no scheduler"),
    ],
)
def test_no_scheduler_at_the_address(monkeypatch, capfd, address, message):
    monkeypatch.setattr(module, "CONNECT_SECONDS", 0.5)
    with pytest.raises(StorageError, match=message), insecure(address):
        pass
    assert capfd.readouterr() == ("", "")


def test_no_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "JOIN_SECONDS", 0.2)
    with (
        scheduler_process(tmp_path) as address,
        pytest.raises(StorageError, match="has no workers; start some"),
        insecure(address),
    ):
        pass


def test_other_releases(tmp_path):
    message = r"the worker tcp://127.0.0.1:[0-9]+ has numba 0\.1, and this process has .*same release"
    with (
        scheduler_process(tmp_path) as address,
        worker(address, program=OTHER_RELEASE + WORKER),
        pytest.raises(StorageError, match=message),
        insecure(address),
    ):
        pass


@pytest.mark.fault
def test_a_worker_that_does_not_answer(scheduler, monkeypatch):
    monkeypatch.setattr(module, "ANSWER_SECONDS", 1.0)
    with insecure(scheduler) as cluster:
        [found] = cluster.workers()
    os.kill(found.pid, signal.SIGSTOP)
    try:
        with pytest.raises(StorageError, match=r"does not answer|has not answered"), insecure(scheduler):
            pass
        assert psutil.Process(found.pid).status() == psutil.STATUS_STOPPED
    finally:
        os.kill(found.pid, signal.SIGCONT)


def test_memory_of_a_worker(tmp_path):
    with scheduler_process(tmp_path) as address, worker(address, "--memory-limit", "1GB"):
        with insecure(address, memory=800 * 10**6) as cluster:
            assert [found.memory for found in cluster.workers()] == [800 * 10**6]
        with insecure(address) as cluster:
            assert [found.memory for found in cluster.workers()] == [400 * 10**6]
        message = r"the worker tcp://.* may use 800 MB of memory, and 900 MB are asked for"
        with pytest.raises(MemoryBudgetError, match=message), insecure(address, memory=900 * 10**6):
            pass


def test_workers_of_a_machine_share_its_memory(tmp_path):
    unlimited = ("--memory-limit", "0")
    with (
        scheduler_process(tmp_path) as address,
        worker(address, *unlimited),
        insecure(address) as cluster,
    ):
        [alone] = cluster.workers()
        with worker(address, *unlimited):
            wait_until(lambda: len(cluster.workers()) == 2)
            with insecure(address) as again:
                assert [found.memory for found in again.workers()] == 2 * [alone.memory // 2]
    with connect(None, workers=1, memory=None) as cluster:  # this process takes part as well
        assert cluster.workers()[0].memory == alone.memory // 2


@contextmanager
def hidden(folder):
    """A prefix of commands that see an empty folder in the place of a folder."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root to mount a file system of its own")
    script = 'mount -t tmpfs tmpfs "$0" && exec "$@"'
    probe = ["unshare", "-m", "sh", "-c", script, str(folder)]
    if subprocess.run([*probe, "true"], capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a file system here")
    yield probe


def test_what_a_worker_does_not_see(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    store = folder / "a.zarr"
    store.mkdir()
    with hidden(folder) as prefix, scheduler_process(tmp_path) as address:
        with worker(address, prefix=prefix):
            message = rf"the worker tcp://.* does not see {store}: put it on a file system that all"
            with pytest.raises(StorageError, match=message), insecure(address, visible=store):
                pass
            (store / "zarr.json").write_text("one store")
        with worker(address), insecure(address, visible=store) as cluster:
            with worker(address, prefix=prefix):
                # One that joins later and does not see it is not taken.
                wait_until(lambda: len(cluster.client.threads(LONG)) == 2)
                assert len(cluster.workers()) == 1
            with worker(address):
                wait_until(lambda: len(cluster.workers()) == 2)


def test_another_store_at_the_same_path(tmp_path, monkeypatch):
    with scheduler_process(tmp_path) as address, worker(address):
        (tmp_path / "zarr.json").write_text("a store")
        with insecure(address, visible=tmp_path) as cluster:
            cluster.require_visible(tmp_path / "zarr.json", tmp_path)
            monkeypatch.setattr(module, "_fingerprint", lambda path: "another store")
            with pytest.raises(StorageError, match=f"sees something else at {tmp_path}:"):
                cluster.require_visible(tmp_path)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """A certificate for 127.0.0.1, its own authority, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make certificates")
    folder = tmp_path_factory.mktemp("tls")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "key.pem"]
    subprocess.run([*command, "-out", folder / "cert.pem"], capture_output=True, check=True)
    return folder / "cert.pem", folder / "key.pem"


def test_tls(tmp_path, certificates, small, monkeypatch):
    certificate, key = certificates
    names = {"CA_FILE": certificate}
    names |= {
        f"{role}__{kind}": path
        for role in ("CLIENT", "WORKER", "SCHEDULER")
        for kind, path in (("CERT", certificate), ("KEY", key))
    }
    settings = {f"DASK_DISTRIBUTED__COMM__TLS__{name}": str(path) for name, path in names.items()}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    with scheduler_process(tmp_path, "--protocol", "tls") as address, worker(address):
        assert address.startswith("tls://")
        command = (
            "convert",
            small.text,
            "-o",
            tmp_path / "a.zarr",
            "--engine",
            "dask",
            "--scheduler",
            address,
        )
        done = run(*command)
        assert done.returncode == 0, done.stderr
        assert "rows" in done.stdout
        # A client without a certificate is refused.
        for name in settings:
            monkeypatch.delenv(name)
        assert_one_sentence(run(*command[:3], tmp_path / "b.zarr", *command[4:]), 5)
    assert not (tmp_path / "b.zarr").exists()


def test_exit_codes(tmp_path, small, scheduler):
    convert = ("convert", small.text, "-o", tmp_path / "a.zarr", "--engine", "dask")
    assert_one_sentence(run(*convert, "--scheduler", scheduler), 2)
    assert_one_sentence(run(*convert, "--scheduler", "tcp://127.0.0.1:1", "--insecure-cluster"), 5)
    insecure = ("--scheduler", scheduler, "--insecure-cluster")
    assert_one_sentence(run(*convert, *insecure, "--memory", "900TB"), 6)
    assert [path.name for path in tmp_path.iterdir()] == []

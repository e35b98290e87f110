"""Conversion on a cluster: the bytes of a local conversion, its messages, and workers that are lost."""

from __future__ import annotations

import gzip
import os
import signal
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from ooc_svm.cluster.connection import Cluster, Worker, connect
from ooc_svm.conversion import cluster_tasks, in_process, on_cluster
from ooc_svm.conversion import output as output_module
from ooc_svm.conversion.cluster_tasks import scan_segment, write_chunks
from ooc_svm.conversion.convert import convert
from ooc_svm.conversion.options import ConvertOptions
from ooc_svm.errors import InputError, MemoryBudgetError, OocSvmError, StorageError, UsageError
from ooc_svm.store import open_store, verify_store
from ooc_svm.store.parallel_writer import ParallelWriter
from ooc_svm.store.writer import StoreWriter
from ooc_svm.system.memory import parse_size
from ooc_svm.text import split

SEGMENT_BYTES = 300
CHUNKS = {"chunk_elements": 40, "chunk_rows": 16, "block_chunks": 2, "block_rows": 24}


@pytest.fixture(scope="module")
def running():
    """Two workers for all tests of the file."""
    with connect(None, workers=2, memory=None) as cluster:
        yield cluster


@pytest.fixture
def cluster(running, monkeypatch):
    """Conversions on these workers; small segments, small chunks, and a clock that stands still."""

    @contextmanager
    def connected(scheduler, *, workers, memory, insecure, preload):
        assert (scheduler, insecure) == (None, False)
        cluster = Cluster(running.client, "the local cluster", memory=memory, visible=None, own_host=None)
        cluster.admit_all()
        yield cluster

    class StoppedClock:
        @staticmethod
        def now(zone):
            return datetime(2020, 1, 1, tzinfo=UTC)

    monkeypatch.setattr(on_cluster, "connect", connected)
    monkeypatch.setattr(output_module, "datetime", StoppedClock)
    use_chunks(monkeypatch, **CHUNKS)
    use_segments(monkeypatch, SEGMENT_BYTES)
    return running


def use_chunks(monkeypatch, **sizes):
    monkeypatch.setattr(on_cluster, "ParallelWriter", partial(ParallelWriter, **sizes))
    monkeypatch.setattr(in_process, "StoreWriter", partial(StoreWriter, **sizes))


def use_segments(monkeypatch, n_bytes):
    monkeypatch.setattr(split, "_LEAST_BYTES", n_bytes)
    monkeypatch.setattr(split, "_MOST_BYTES", n_bytes)


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assert_same_store(tmp_path, inputs, **options):
    """Convert both ways: the same files with the same bytes, and the same report."""
    reports = []
    for engine in ("local", "dask"):
        reports.append(convert(inputs, tmp_path / f"{engine}.zarr", engine=engine, **options))
    local, dask = (contents(tmp_path / f"{engine}.zarr") for engine in ("local", "dask"))
    assert local.keys() == dask.keys()
    assert [name for name in local if local[name] != dask[name]] == []
    folders = [{str(path.relative_to(report.path)) for path in report.path.rglob("*")} for report in reports]
    assert folders[0] == folders[1]
    for name in ("id", "rows", "features", "nonzeros", "value_type", "labels", "label_runs", "lines"):
        assert getattr(reports[0], name) == getattr(reports[1], name)
    for name in ("blank_lines", "comment_lines", "bad_lines", "explicit_zeros", "bytes_in", "bytes_out"):
        assert getattr(reports[0], name) == getattr(reports[1], name)
    verify_store(tmp_path / "dask.zarr")
    assert not list(tmp_path.glob("*.zarr.*")) or options.get("bad_lines") == "skip"
    return reports[1]


def assert_same_error(tmp_path, inputs, **options):
    """Convert both ways: the same exception with the same message, and nothing left; the message."""
    before = sorted(tmp_path.iterdir())
    messages = []
    for engine in ("local", "dask"):
        with pytest.raises(OocSvmError) as caught:
            convert(inputs, tmp_path / "a.zarr", engine=engine, **options)
        messages.append((type(caught.value), str(caught.value)))
        assert sorted(tmp_path.iterdir()) == before
    assert messages[0] == messages[1]
    return messages[0][1]


def make_lines(seed=0, n_rows=80, *, qids=False, ones=False, longest=12):
    rng = np.random.default_rng(seed)
    lines = []
    for row in range(n_rows):
        count = int(rng.integers(0, longest))
        ids = np.cumsum(rng.integers(1, 9, count))
        features = "".join(f" {j}:{'1' if ones else f'{rng.random():.3f}'}" for j in ids)
        lines.append(f"{rng.integers(-1, 2)}{f' qid:{row // 7}' if qids else ''}{features}")
    return lines


def write(path, lines, end="\n"):
    path.write_text(end.join(lines) + end)
    return path


# The same store


def test_names_of_features(tmp_path, cluster):
    names = tmp_path / "names.txt"
    names.write_text("\n".join(f"word {j}" for j in range(110)))
    assert_same_store(tmp_path, [write(tmp_path / "rows.svm", make_lines(1))], feature_names=names)
    assert list(open_store(tmp_path / "dask.zarr").feature_names) == names.read_text().split("\n")


@pytest.mark.parametrize(
    "kind", ["values", "ones", "qids", "late values", "empty rows", "long rows", "labels"]
)
@pytest.mark.parametrize("segment_bytes", [100, 1000])
def test_kinds_of_rows(tmp_path, cluster, monkeypatch, kind, segment_bytes):
    lines = {
        "values": lambda: make_lines(1),
        "ones": lambda: make_lines(2, ones=True),
        "qids": lambda: make_lines(3, qids=True),
        "late values": lambda: [*make_lines(4, ones=True), "1 3:0.5", *make_lines(5, 20, ones=True)],
        "empty rows": lambda: ["1", "-1"] * 40,
        "long rows": lambda: make_lines(6, 20, longest=400),
        "labels": lambda: [f"{number / 7:.17g} 1:1" for number in range(200)],
    }[kind]()
    use_segments(monkeypatch, segment_bytes)
    report = assert_same_store(tmp_path, write(tmp_path / "a.svm", lines))
    assert report.value_type == ("ones" if kind in ("ones", "empty rows", "labels") else "float32")


@pytest.mark.parametrize("seed", range(4))
def test_any_sizes(tmp_path, cluster, monkeypatch, seed):
    rng = np.random.default_rng(seed)
    sizes = {"chunk_elements": int(rng.integers(2, 50)), "chunk_rows": int(rng.integers(2, 40))}
    sizes |= {"block_chunks": int(rng.integers(1, 5)), "block_rows": int(rng.integers(1, 30))}
    use_chunks(monkeypatch, **sizes)
    use_segments(monkeypatch, int(rng.integers(1, 400)))
    lines = make_lines(seed, 50, qids=seed % 2 == 0, ones=seed % 3 == 0, longest=int(rng.integers(1, 60)))
    assert_same_store(tmp_path, write(tmp_path / "a.svm", lines), dtype="float64")


def test_many_files_compressed_or_not(tmp_path, cluster):
    lines = make_lines(7, 90)
    inputs = [write(tmp_path / f"{start}.svm", lines[start : start + 30]) for start in (0, 30, 60)]
    packed = tmp_path / "1.svm.gz"
    packed.write_bytes(gzip.compress(inputs[1].read_bytes()))
    report = assert_same_store(tmp_path, [inputs[0], packed, inputs[2], inputs[0]])
    store = open_store(report.path)
    assert [source["compression"] for source in store.provenance["sources"]] == [None, "gzip", None, None]
    assert report.rows == 120


@pytest.mark.parametrize(
    "text",
    [
        b"\xef\xbb\xbf1 1:1\r\n-1 2:0.5\r\n" * 1 + b"1 1:2\r\n" * 30,
        b"# nothing\n\n" * 40 + b"1 qid:3 1:1 # tail\n" * 20 + b"\n" * 60,
        b"1 1:1\n" * 30 + b"-1 2:0.25",
        b"1 7:0\n-1 1:2\n" * 20 + b"1 9:0\n",
        b"3 1:1\n",
    ],
)
def test_forms_of_text(tmp_path, cluster, text):
    (tmp_path / "a.svm").write_bytes(text)
    assert_same_store(tmp_path, tmp_path / "a.svm")


def test_options(tmp_path, cluster):
    text = write(tmp_path / "a.svm", [line.replace(" 1:", " 0:") for line in make_lines(8)])
    report = assert_same_store(tmp_path, text, index_base=0, features=1000, dtype="float64")
    assert (report.features, report.value_type) == (1000, "float64")
    seen = []
    convert(
        text,
        tmp_path / "dask.zarr",
        index_base=0,
        engine="dask",
        overwrite=True,
        progress=lambda done, total, rows: seen.append((done, total, rows)),
    )
    size = text.stat().st_size
    assert seen == sorted(seen)
    assert seen[-1] == (size, size, 80)


# Bad lines


def test_bad_lines_go_to_their_file(tmp_path, cluster):
    lines = make_lines(9, qids=True)
    for place in range(0, 80, 9):
        lines[place] += " x"
    lines[50] = lines[50].replace(" qid:", " 5:")
    first, second = write(tmp_path / "a.svm", lines), write(tmp_path / "b.svm", lines[:40])
    report = assert_same_store(tmp_path, [first, second], bad_lines="skip")
    assert report.bad_lines == 15
    local, dask = (tmp_path / f"{engine}.zarr.rejected" for engine in ("local", "dask"))
    assert local.read_bytes() == dask.read_bytes()
    assert dask.read_text().count("# ") == 15
    local.unlink()
    dask.unlink()
    message = assert_same_error(tmp_path, [first, second], bad_lines="skip", max_bad_lines=12)
    assert "b.svm:" in message
    assert "more than 12 bad lines" in message


def test_no_bad_lines_no_file(tmp_path, cluster):
    text = write(tmp_path / "a.svm", make_lines(10))
    assert_same_store(tmp_path, text, bad_lines="skip")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.svm", "dask.zarr", "local.zarr"]


@pytest.mark.parametrize("place", [0, 1, 47, 79])
@pytest.mark.parametrize("bad", ["1 1:1 1:1", "1 qid:2 1:1", "nan 1:1", "1 1:1e99"])
def test_the_first_bad_line_is_named(tmp_path, cluster, bad, place):
    lines = make_lines(11)
    lines[60] = "later"
    lines[place] = bad
    before = write(tmp_path / "a.svm", make_lines(12, 20))
    message = assert_same_error(tmp_path, [before, write(tmp_path / "b.svm", lines)])
    assert f"b.svm:{min(place, 60) + 1}:" in message


def test_labels_that_are_names(tmp_path, cluster):
    names = ["spam", "ham", "été", "eggs"]
    lines = [line.replace(line.split()[0], names[i % 3 + i // 60], 1) for i, line in enumerate(make_lines())]
    text = write(tmp_path / "a.svm", lines)
    assert_same_store(tmp_path, text, labels="text")
    many = write(tmp_path / "many.svm", [f"name{i} 1:1" for i in range(1001)])
    assert_same_error(tmp_path, many, labels="text")
    assert_same_error(tmp_path, write(tmp_path / "bad.svm", [*lines, "1:1 2:1"]), labels="text")


def test_labels_that_are_sets(tmp_path, cluster):
    sets = ["1,3", "3,1", "cat,1", "", "10,9", "2"]
    lines = [line.replace(line.split()[0], sets[i % len(sets)], 1) for i, line in enumerate(make_lines())]
    assert_same_store(tmp_path, write(tmp_path / "a.svm", lines), labels="sets")
    assert open_store(tmp_path / "dask.zarr").label_names == (",", "1,3", "1,cat", "2", "9,10")
    assert_same_error(tmp_path, write(tmp_path / "bad.svm", [*lines, "1,,2 2:1"]), labels="sets")


def test_rows_that_end_to_have_a_qid(tmp_path, cluster):
    text = write(tmp_path / "a.svm", [*make_lines(13, 50, qids=True), *make_lines(14, 50)])
    assert "a.svm:51:" in assert_same_error(tmp_path, text)


def test_too_many_features(tmp_path, cluster):
    lines = make_lines(15)
    lines[70] += " 5000:1"
    text = write(tmp_path / "a.svm", lines)
    message = assert_same_error(tmp_path, text, features=4000)
    assert f":71:{len(lines[70]) - 5}: index '5000' is too large: the largest is 4000" in message


@pytest.mark.parametrize(
    "content", [b"", b"# only\n" * 99, b"\xff\xfe1\0", gzip.compress(b"1 1:1\n" * 99, mtime=0)[:-9]]
)
def test_files_that_are_none(tmp_path, cluster, content):
    (tmp_path / "a.svm").write_bytes(content)
    name = tmp_path / ("a.svm.gz" if content.startswith(b"\x1f") else "a.svm")
    (tmp_path / "a.svm").rename(name)
    assert_same_error(tmp_path, name)


def test_what_a_cluster_does_not_take(tmp_path, cluster):
    text = write(tmp_path / "a.svm", make_lines())
    for inputs, options, message in (
        ("-", {}, "one process alone"),
        (text, {"shuffle": 1}, "needs all rows in one process"),
        ([], {}, r"inputs must be a path .*, at least one, not \[\]"),
        (text, {"threads": 0}, "threads must be an integer from 1"),
    ):
        with pytest.raises(UsageError, match=message):
            convert(inputs, tmp_path / "a.zarr", engine="dask", **options)
    with pytest.raises(UsageError, match="scheduler needs engine='dask'"):
        convert(text, tmp_path / "a.zarr", scheduler="tls://somewhere:1")
    with pytest.raises(UsageError, match="engine must be 'local' or 'dask', not 'spark'"):
        convert(text, tmp_path / "a.zarr", engine="spark")
    assert_same_error(tmp_path, [text, tmp_path / "none.svm"])
    assert_same_error(tmp_path, tmp_path)
    with pytest.raises(MemoryBudgetError, match=r"1 thread.* of the worker tcp://"):
        convert(text, tmp_path / "a.zarr", engine="dask", memory="100MB")
    assert [path.name for path in tmp_path.iterdir()] == ["a.svm"]


@pytest.mark.parametrize("threads", [(1,), (2, 8), (16, 3)])
def test_the_memory_that_a_refusal_names_is_enough_for_every_worker(threads):
    options = ConvertOptions(Path("s.zarr"), engine="dask")

    def plan(memory):
        workers = [Worker(f"w{n}", "host", 1, n, memory) for n in threads]
        return on_cluster._plan(options, workers, [])

    with pytest.raises(MemoryBudgetError) as refused:
        plan(10**8)
    named = parse_size(str(refused.value).split(" at least ")[1].split(" of memory")[0])
    plan(named)
    with pytest.raises(MemoryBudgetError):
        plan(int(0.985 * named))


def test_a_line_that_is_too_long(tmp_path, cluster):
    lines = make_lines(16, 100)
    lines[60] = "1 " + " ".join(f"{j}:0.123456789" for j in range(1, 400_000))
    text = write(tmp_path / "a.svm", lines)
    message = assert_same_error(tmp_path, text, memory="335MB", threads=1)
    assert "a.svm:61: the line is longer than" in message
    assert "with more memory" in message


# Faults


def once(folder, number=signal.SIGKILL):
    """In a worker: end it the first time, and leave a note."""
    try:
        (folder / "ended").mkdir()
    except FileExistsError:
        return
    (folder / "ended" / str(os.getpid())).touch()
    os.kill(os.getpid(), number)


def scan_and_die(options, plan, segment, start, scratch, *, exact):
    if segment.extent[0] > 1000:
        once(scratch.parent)
    return scan_segment(options, plan, segment, start, scratch, exact=exact)


def write_and_die(options, plan, run, segments, position, qid_rule, scratch):
    """Die between the renames of two chunks."""
    replace = os.replace
    calls = 0

    def counted(*arguments):
        nonlocal calls
        calls += 1
        if calls == 2:
            once(scratch.parent)
        replace(*arguments)

    os.replace = counted
    try:
        return write_chunks(options, plan, run, segments, position, qid_rule, scratch)
    finally:
        os.replace = replace


def always_die(*arguments, **options):
    os.kill(os.getpid(), signal.SIGKILL)


def change_and_write(options, plan, run, segments, position, qid_rule, scratch):
    with open(segments[0].path, "ab") as file:
        file.write(b"1 1:1\n")
    return write_chunks(options, plan, run, segments, position, qid_rule, scratch)


def change_while_writing(options, plan, run, segments, position, qid_rule, scratch):
    """Write a byte of the text again when all elements of the chunks were read."""
    append = cluster_tasks.RunWriter.append

    def append_and_change(self, *elements):
        append(self, *elements)
        if self.missing <= 0:
            with open(segments[0].path, "r+b") as file:
                file.write(b"1")

    cluster_tasks.RunWriter.append = append_and_change
    try:
        return write_chunks(options, plan, run, segments, position, qid_rule, scratch)
    finally:
        cluster_tasks.RunWriter.append = append


@pytest.mark.fault
@pytest.mark.parametrize(
    ("name", "function"), [("scan_segment", scan_and_die), ("write_chunks", write_and_die)]
)
def test_a_worker_is_killed(tmp_path, cluster, monkeypatch, name, function):
    text = write(tmp_path / "a.svm", make_lines(17))
    with connect(None, workers=2, memory=None) as mortal:

        @contextmanager
        def connected(scheduler, **options):
            yield mortal

        pids = {worker.pid for worker in mortal.workers()}
        monkeypatch.setattr(on_cluster, "connect", connected)
        monkeypatch.setattr(on_cluster, name, function)
        assert_same_store(tmp_path, text)
        [killed] = (int(path.name) for path in (tmp_path / "ended").iterdir())
        assert killed in pids
        assert {worker.pid for worker in mortal.workers()} == pids - {killed}


@pytest.mark.fault
def test_all_workers_are_killed(tmp_path, cluster, monkeypatch):
    text = write(tmp_path / "a.svm", make_lines(18))
    monkeypatch.setattr("ooc_svm.cluster.tasks._LOST_SECONDS", 1.0)
    with connect(None, workers=2, memory=None) as mortal:

        @contextmanager
        def connected(scheduler, **options):
            yield mortal

        monkeypatch.setattr(on_cluster, "connect", connected)
        monkeypatch.setattr(on_cluster, "scan_segment", always_die)
        with pytest.raises(StorageError, match=r"all workers of the local cluster are lost|several workers"):
            convert(text, tmp_path / "a.zarr", engine="dask")
        assert mortal.workers() == ()
    assert [path.name for path in tmp_path.iterdir()] == ["a.svm"]


@pytest.mark.fault
@pytest.mark.parametrize("change", [change_and_write, change_while_writing])
def test_an_input_that_changes_after_the_first_reading(tmp_path, cluster, monkeypatch, change):
    text = write(tmp_path / "a.svm", make_lines(19))
    use_segments(monkeypatch, 1 << 20)  # one segment: no other reading would see it
    monkeypatch.setattr(on_cluster, "write_chunks", change)
    with pytest.raises(InputError, match=r"a\.svm: the file changed"):
        convert(text, tmp_path / "a.zarr", engine="dask")
    assert [path.name for path in tmp_path.iterdir()] == ["a.svm"]


@pytest.mark.fault
def test_a_failed_write_on_a_worker(tmp_path, cluster, monkeypatch):
    text = write(tmp_path / "a.svm", make_lines(20))
    begin = ParallelWriter.begin

    def begin_and_spoil(self, value_type):
        begin(self, value_type)
        place = self.folder / "X" / "data" / "c"
        place.rmdir()
        place.touch()

    monkeypatch.setattr(ParallelWriter, "begin", begin_and_spoil)
    with pytest.raises(StorageError, match=r"writing .* failed: Not a directory; free some space"):
        convert(text, tmp_path / "a.zarr", engine="dask")
    assert [path.name for path in tmp_path.iterdir()] == ["a.svm"]


def test_a_folder_that_workers_do_not_see(tmp_path, cluster, monkeypatch):
    text = write(tmp_path / "a.svm", make_lines(21))
    monkeypatch.setattr("ooc_svm.cluster.connection._fingerprint", lambda path: "another")
    with pytest.raises(StorageError, match=r"the worker tcp://.* sees something else at .*a\.zarr\.scratch-"):
        convert(text, tmp_path / "a.zarr", engine="dask")
    assert [path.name for path in tmp_path.iterdir()] == ["a.svm"]

"""Text inputs to row blocks: the table of bad lines, order, threads, rejected lines."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.compressors import COMPRESSORS
from helpers.reference_parser import parse
from helpers.text_lines import any_line, good_line, short_lines, tails
from helpers.thinning import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ooc_svm.data.blocks import LabelledRows
from ooc_svm.errors import InputError, StorageError, UsageError
from ooc_svm.text.reader import TextRows

READS = [1, 7, 4096]

# Row of the table in RELIABILITY.md, bad line, column, part of the message.
BAD_LINES: list[tuple[int, bytes, int, str]] = [
    (1, b"1 4294967297:1", 3, "the largest is 2147483647"),
    (1, b"1 18446744073709551617:1", 3, "the largest is 2147483647"),
    (1, b"1 2147483648:1", 3, "the largest is 2147483647"),
    (3, b"-1 0:1 3:1", 4, "index_base=0"),
    (4, b"1 3:1 2:1", 7, "sort the indices"),
    (4, b"1 3:1 3:1", 7, "twice in a row"),
    (5, b"1 1:nan", 3, "not finite"),
    (5, b"1 1:-inf", 3, "not finite"),
    (5, b"NaN 1:1", 1, "not finite"),
    (5, b"-Infinity 1:1", 1, "not finite"),
    (6, b"1 1:0x1p3", 3, "hexadecimal"),
    (6, b"0x1 1:1", 1, "hexadecimal"),
    (6, b"1 1_0:1", 3, "'1_0' is not a whole number"),
    (6, b"1 1:1_0", 3, "'1_0' of '1:1_0' is not a number"),
    (6, b"1 1:1d5", 3, "not a number"),
    (6, b"1 1:0,5", 3, "decimal comma"),
    (6, "1 1:\u0661".encode(), 3, "outside ASCII"),
    (6, "\uff11 1:1".encode(), 1, "outside ASCII"),
    (7, b"1 1:1e400", 3, "beyond the range"),
    (7, b"1e400 1:1", 1, "beyond the range of float64"),
    (7, b"9007199254740993 1:1", 1, "9,007,199,254,740,992 or more, where float64 does not tell"),
    (7, b"-9007199254740992 1:1", 1, "read them as names (labels='text')"),
    (7, b"+" + b"9" * 300, 1, "give smaller ones"),
    (7, b"1 1:1e39", 3, "dtype='float64'"),
    (7, b"1 1:" + b"9" * 400, 3, "beyond the range"),
    (8, b"+1 1 2:1", 4, "'1' is not a feature"),
    (8, b"1 1:", 3, "no value"),
    (8, b"1 :5", 3, "no index"),
    (8, b"1 1:2:3", 3, "two colons"),
    (8, b"1 1 : 5", 3, "'1' is not a feature"),
    (8, b"1 1:1 : 5", 7, "no index"),
    (8, b"1 1:1xyz", 3, "'1xyz' of '1:1xyz' is not a number"),
    (8, b"1 1.0:1", 3, "whole number"),
    (9, b"1 1:1\r2:1", 3, "lone carriage return"),
    (9, b"1 1:1 \x0b2:1", 7, "vertical tab"),
    (9, b"1 1:1\x0c", 3, "form feed"),
    (9, b"1 1:1 2:\x001", 7, "NUL byte"),
    (9, b"1 1:1 # a\rb", 10, "lone carriage return"),
    (10, b"1\x00 \x001\x00", 1, "UTF-16"),
    (12, b"1 qid:-1 1:1", 3, "not a group"),
    (12, b"1 qid:9223372036854775808 1:1", 3, "less than 2^63"),
    (12, b"1 qid: 1:1", 3, "not a group"),
    (12, b"1 qid:1 1:1", 3, "have no qid"),
    (12, b"1 1:1 qid:1", 7, "right after the label"),
    (14, b"1 2:1 37", 7, "'37' is not a feature"),
    (18, b"spam 1:1", 1, "write class names as numbers"),
    (18, b"1,3 1:1", 1, "one label a row"),
    (18, b"1:0.5 2:1", 1, "stands where the label should be"),
    (18, b"-1:0.5 2:1", 1, "weight"),
]

ACCEPTED: list[tuple[int, bytes, list[int], list[float]]] = [
    (2, b"1 2147483647:1", [2147483646], [1.0]),
    (7, b"1 1:1e-400 2:1e-50 3:2", [2], [2.0]),
    (11, b"1 1:2 # 3:4", [0], [2.0]),
    (11, b"1 1:2# 3:4 \xff\xfe", [0], [2.0]),
    (20, b"1" + b" " * 200_000 + b"1:2", [0], [2.0]),
    (20, b"1", [], []),
    (20, b" \t1\t1:0 2:-0.0 3:2 \t", [2], [2.0]),
    (20, b"1 1:" + b"0" * 4000 + b"1", [0], [1.0]),
]


LEADING_BLANKS = [
    (b"-1\n 1 qid\n", 2, 4, "'qid' is not a group"),
    (b"1\n\t x\n", 2, 3, "label 'x' is not a number"),
    (b"1 qid:1\n  1 qid:1\n\n \t 1 1:1\n", 4, 6, "no qid on this row"),
    (b"1\n 1\n  1\n   1 x\n", 4, 6, "'x' is not a feature"),
]


def write(folder: Path, text: bytes, suffix: str = "") -> Path:
    path = folder / f"data.svm{suffix}"
    path.write_bytes(COMPRESSORS[suffix](text))
    return path


def collect(rows: TextRows) -> tuple[list[float], list[int], list[int], list[float], list[int]]:
    """Labels, row lengths, ids, values and groups of all rows; the numbering of the blocks is checked."""
    parts: tuple[list[Any], ...] = ([], [], [], [], [])
    start = 0
    for block in rows:
        assert isinstance(block, LabelledRows)
        assert block.rows.start == start
        assert block.rows.n_rows > 0
        start = block.rows.stop
        values = np.ones(len(block.rows.indices)) if block.rows.values is None else block.rows.values
        qids = np.empty(0, np.int64) if block.qids is None else block.qids
        arrays = (block.labels, np.diff(block.rows.indptr), block.rows.indices, values, qids)
        for part, array in zip(parts, arrays, strict=True):
            part.extend(array.tolist())
    assert rows.counts.rows == start
    return parts[0], parts[1], parts[2], parts[3], parts[4]


@pytest.mark.parametrize("suffix", COMPRESSORS)
@pytest.mark.parametrize(("table_row", "line", "column", "message"), BAD_LINES)
def test_bad_lines(
    tmp_path: Path, table_row: int, line: bytes, column: int, message: str, suffix: str
) -> None:
    before = b"# comment\r\n\n1 1:1\r\n"
    for end in (b"\n", b"\r\n", b"", b"\n1 1:1\n"):
        path = write(tmp_path, before + line + end, suffix)
        for read_bytes in READS:
            with pytest.raises(InputError) as caught:
                collect(TextRows(path, read_bytes=read_bytes))
            assert str(caught.value).startswith(f"{path}:4:{column}: ")
            assert message in str(caught.value)
            assert str(caught.value).endswith("(row 2)")
            assert len(str(caught.value)) < len(str(path)) + 300


@pytest.mark.parametrize(("text", "line", "column", "message"), LEADING_BLANKS)
def test_columns_count_leading_blanks_however_short_the_rows_are(
    tmp_path: Path, text: bytes, line: int, column: int, message: str
) -> None:
    """There is room for one row in 16 bytes, so that the parser stops and goes on between these."""
    path = write(tmp_path, text)
    for read_bytes in READS:
        for chunk_bytes in READS:
            with pytest.raises(InputError) as caught:
                collect(TextRows(path, read_bytes=read_bytes, chunk_bytes=chunk_bytes))
            assert str(caught.value).startswith(f"{path}:{line}:{column}: ")
            assert message in str(caught.value)


@pytest.mark.parametrize("suffix", COMPRESSORS)
@pytest.mark.parametrize(("table_row", "line", "ids", "values"), ACCEPTED)
def test_accepted_lines(
    tmp_path: Path, table_row: int, line: bytes, ids: list[int], values: list[float], suffix: str
) -> None:
    for end in (b"\n", b"\r\n", b""):
        path = write(tmp_path, b"\xef\xbb\xbf" + line + end, suffix)
        for read_bytes in READS if len(line) < 10_000 else READS[2:]:
            rows = TextRows(path, read_bytes=read_bytes)
            assert collect(rows) == ([1.0], [len(ids)], ids, values, [])


def test_range_of_float64(tmp_path: Path) -> None:
    path = write(tmp_path, b"1 1:1e39 2:0.1\n")
    (block,) = TextRows(path, dtype="float64")
    assert block.rows.values is not None
    assert block.rows.values.tolist() == [1e39, 0.1]


def test_index_base_0(tmp_path: Path) -> None:
    path = write(tmp_path, b"1 0:1 2147483646:1\n")
    assert collect(TextRows(path, index_base=0))[2] == [0, 2147483646]
    with pytest.raises(InputError, match="the largest is 2147483646"):
        collect(TextRows(write(tmp_path, b"1 0:1 2147483647:1\n"), index_base=0))


def test_explicit_zeros_count_for_the_columns(tmp_path: Path) -> None:
    rows = TextRows(write(tmp_path, b"1 1:1 3:1\n2 1:0 9:0.0\n# c\n\n  \t\r\n"))
    (block,) = rows
    assert block.rows.values is None
    counts = rows.counts
    assert (counts.rows, counts.nonzeros, counts.explicit_zeros, counts.n_features) == (2, 2, 2, 9)
    assert (counts.lines, counts.comment_lines, counts.blank_lines, counts.bad_lines) == (5, 1, 2, 0)


@pytest.mark.parametrize("text", [b"\n", b"# only\n# comments", b"\xef\xbb\xbf\n \t\n"])
def test_no_rows(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(InputError, match="no rows"):
        collect(TextRows(write(tmp_path, text)))
    with pytest.raises(InputError, match="no rows"):
        collect(TextRows(write(tmp_path, text + b"\nbad\n"), bad_lines="skip"))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("chunk_bytes", [1, 64, 1 << 20])
def test_a_line_too_long_has_a_number(tmp_path: Path, chunk_bytes: int, threads: int) -> None:
    path = write(tmp_path, b"1 1:1\n" * 20 + b"1" + b" " * 100 + b"\n1 1:1\n")
    with pytest.raises(InputError, match=r"data.svm:21: the line is longer than 100 bytes"):
        collect(TextRows(path, chunk_bytes=chunk_bytes, max_line_bytes=100, threads=threads))


def random_text(n_lines: int, with_qid: bool = False, bad_share: float = 0.0) -> bytes:
    rng = np.random.default_rng(n_lines)
    lines = []
    for k in range(n_lines):
        if rng.random() < bad_share:
            lines.append(f"{k} 1:bad{k}")
            continue
        ids = np.unique(rng.integers(1, 1000, rng.integers(0, 12)))
        group = f" qid:{k // 7}" if with_qid else ""
        lines.append(f"{k}{group} " + " ".join(f"{id_}:{rng.random():.5g}" for id_ in ids))
        if rng.random() < 0.1:
            lines.append("# comment" if rng.random() < 0.5 else "")
    return "\n".join(lines).encode()


@pytest.mark.parametrize("with_qid", [False, True])
def test_same_rows_for_any_threads_and_blocks(tmp_path: Path, with_qid: bool) -> None:
    text = random_text(500, with_qid)
    path = write(tmp_path, text)
    expected = parse(text)
    reference = collect(TextRows(path))
    assert reference[0] == [row.label for row in expected.rows]
    assert reference[2] == [id_ for row in expected.rows for id_ in row.ids]
    assert reference[3] == [value for row in expected.rows for value in row.values]
    assert reference[4] == [row.qid for row in expected.rows if row.qid is not None]
    for threads in (1, 2, 5):
        for chunk_bytes in (1, 100, 5000):
            rows = TextRows(path, threads=threads, chunk_bytes=chunk_bytes, read_bytes=997)
            assert collect(rows) == reference
            assert rows.counts.lines == text.count(b"\n") + 1


@pytest.mark.parametrize("threads", [1, 3])
def test_many_inputs_in_order(tmp_path: Path, threads: int) -> None:
    paths, text = [], b""
    for k, suffix in enumerate([*COMPRESSORS, ""]):
        piece = random_text(40 + k)
        text += piece + b"\n"
        paths.append(tmp_path / f"{k}.svm{suffix}")
        paths[-1].write_bytes(COMPRESSORS[suffix](piece))
    seen: list[int] = []
    rows = TextRows(paths, threads=threads, chunk_bytes=300, progress=seen.append)
    joined = collect(TextRows(write(tmp_path, text)))
    assert collect(rows) == joined
    assert collect(rows) == joined  # a second reading gives the same
    sizes = [path.stat().st_size for path in paths]
    assert [(each.name, each.size) for each in rows.opened] == [
        (str(path), size) for path, size in zip(paths, sizes, strict=True)
    ]
    assert rows.total_bytes == seen[-1] == sum(sizes)
    assert [each.compression for each in rows.opened] == [None, "gzip", "bzip2", "xz", "zstd", None]


def test_lines_are_numbered_in_each_file_and_rows_over_all(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"1 1:1\n" * 10)
    second.write_bytes(b"1 1:1\n\n1 1:x\n")
    for threads in (1, 2):
        for chunk_bytes in (1, 15, 1000):
            with pytest.raises(InputError, match=rf"^{second}:3:3: .*\(row 12\)$"):
                collect(TextRows([first, second], threads=threads, chunk_bytes=chunk_bytes))


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("chunk_bytes", [1, 40, 1 << 20])
def test_first_error_in_the_order_of_the_input(tmp_path: Path, threads: int, chunk_bytes: int) -> None:
    text = b"1 1:1\n" * 30 + b"1 1:x\n" + b"1 1:1\n" * 30 + b"1 2:y\n"
    good = tmp_path / "good"
    good.write_bytes(b"1 1:1\n" * 5)
    damaged = write(tmp_path, text, ".gz")
    damaged.write_bytes(damaged.read_bytes()[:-4])
    for inputs in ([write(tmp_path, text)], [damaged], [good, damaged]):
        with pytest.raises(InputError, match=":31:3: value 'x'"):
            collect(TextRows(inputs, threads=threads, chunk_bytes=chunk_bytes))


@pytest.mark.parametrize("first", [b"1 qid:1 1:1\n", b"1 1:1\n"])
@pytest.mark.parametrize("chunk_bytes", [1, 30, 1 << 20])
@pytest.mark.parametrize("threads", [1, 3])
def test_qid_on_all_rows_or_none_over_blocks_and_files(
    tmp_path: Path, first: bytes, chunk_bytes: int, threads: int
) -> None:
    other = b"2 1:1\n" if b"qid" in first else b"2 qid:7 1:1\n"
    start, rest = tmp_path / "start", tmp_path / "rest"
    start.write_bytes(b"# comment\n" * 9 + first * 3)
    rest.write_bytes(b"# comment\n" * 9 + other + first + other * 20 + first)
    options: dict[str, Any] = {"chunk_bytes": chunk_bytes, "threads": threads}
    with pytest.raises(InputError, match=rf"^{rest}:10:3: .*\(row 4\)"):
        collect(TextRows([start, rest], **options))
    rows = TextRows([start, rest], bad_lines="skip", **options)
    assert collect(rows)[0] == [1.0] * 5
    assert rows.counts.bad_lines == 21


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("chunk_bytes", [1, 200, 1 << 20])
def test_rejected_lines(tmp_path: Path, threads: int, chunk_bytes: int) -> None:
    text = random_text(2500, bad_share=0.5)
    path, reject = write(tmp_path, text), tmp_path / "rejected"
    lines = text.split(b"\n")
    bad = [(number, line) for number, line in enumerate(lines, 1) if b"bad" in line]
    good = parse(b"\n".join(line for line in lines if b"bad" not in line))
    options: dict[str, Any] = {"bad_lines": "skip", "threads": threads, "chunk_bytes": chunk_bytes}
    rows = TextRows(path, reject_file=reject, **options)
    assert collect(rows)[0] == [row.label for row in good.rows]
    assert rows.counts.bad_lines == len(bad) > 1000
    assert rows.counts.lines == len(lines)
    notes = reject.read_bytes().split(b"\n")
    assert notes[1::2] == [line for _, line in bad]
    for note, (number, line) in zip(notes[:-1:2], bad, strict=True):
        assert note.startswith(f"# {path}:{number}:{line.index(b' ') + 2}: value 'bad".encode())
    collect(TextRows(path, max_bad_lines=len(bad), **options))
    number, _ = bad[-1]
    with pytest.raises(InputError, match=rf":{number}:.*more than {len(bad) - 1} bad lines"):
        collect(TextRows(path, max_bad_lines=len(bad) - 1, **options))
    with pytest.raises(InputError, match=rf":{bad[0][0]}:.*more than 0 bad lines"):
        collect(TextRows(path, max_bad_lines=0, **options))


def test_reject_file_is_readable_once_repaired(tmp_path: Path) -> None:
    path, reject = write(tmp_path, b"1 1:1\n2 1:x # \xff\r\n"), tmp_path / "rejected"
    collect(TextRows(path, bad_lines="skip", reject_file=reject))
    assert reject.read_bytes().endswith(b"\n2 1:x # \xff\r\n")
    reject.write_bytes(reject.read_bytes().replace(b":x ", b":3 "))
    assert collect(TextRows(reject))[3] == [3.0]


def test_reject_file_is_never_an_input_and_must_be_writable(tmp_path: Path) -> None:
    path = write(tmp_path, b"1 1:1\n")
    (tmp_path / "link").symlink_to(path)
    for reject in (path, tmp_path / "link"):
        with pytest.raises(UsageError, match="cannot go there"):
            TextRows(path, bad_lines="skip", reject_file=reject)
    assert path.read_bytes() == b"1 1:1\n"
    with pytest.raises(StorageError, match="cannot be written"):
        collect(TextRows(path, bad_lines="skip", reject_file=tmp_path / "missing" / "rejected"))


@pytest.mark.fault
def test_full_disk_at_the_reject_file(tmp_path: Path) -> None:
    path = write(tmp_path, b"1 1:1\n" + b"bad\n" * 5000)
    with pytest.raises(
        StorageError, match="/dev/full: cannot be written: No space left on device; free space"
    ):
        collect(TextRows(path, bad_lines="skip", reject_file="/dev/full"))
    path = write(tmp_path, b"1 1:1\nbad\n")  # so little that only closing the file writes it
    with pytest.raises(
        StorageError, match="/dev/full: cannot be written: No space left on device; free space"
    ):
        collect(TextRows(path, bad_lines="skip", reject_file="/dev/full"))


def test_inputs_are_checked_before_the_first_row(tmp_path: Path) -> None:
    good = write(tmp_path, b"1 1:1\n")
    (tmp_path / "empty").touch()
    (tmp_path / "plain.gz").write_bytes(b"1 1:1\n")
    for bad in (tmp_path / "missing", tmp_path / "empty", tmp_path, tmp_path / "plain.gz"):
        with pytest.raises(InputError):
            TextRows([good, bad])


@pytest.mark.parametrize(
    "options",
    [
        {"index_base": 2},
        {"dtype": "int8"},
        {"threads": 0},
        {"chunk_bytes": 0},
        {"bad_lines": "warn"},
        {"max_bad_lines": 3},
        {"reject_file": "x"},
        {"bad_lines": "skip", "max_bad_lines": -1},
    ],
)
def test_options_that_make_no_sense(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        TextRows(write(tmp_path, b"1 1:1\n"), **options)


def test_inputs_that_make_no_sense() -> None:
    with pytest.raises(UsageError, match="no input"):
        TextRows([])
    with pytest.raises(UsageError, match="only once"):
        TextRows(["-", "-"])


@contextmanager
def standard_input(text: bytes) -> Iterator[None]:
    """Standard input becomes a pipe that another thread writes to in small pieces."""
    reading, writing = os.pipe()
    saved = os.dup(0)
    os.dup2(reading, 0)
    os.close(reading)

    def feed() -> None:
        for k in range(0, len(text), 100):
            os.write(writing, text[k : k + 100])
        os.close(writing)

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        os.dup2(saved, 0)
        os.close(saved)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_standard_input(tmp_path: Path, suffix: str, threads: int) -> None:
    text = random_text(300)
    path = write(tmp_path, text)
    with standard_input(COMPRESSORS[suffix](text)):
        rows = TextRows([path, "-"], threads=threads, chunk_bytes=1000)
        got = collect(rows)
    once = collect(TextRows(path))
    assert got == tuple(part * 2 for part in once)
    assert rows.total_bytes is None
    assert (rows.opened[1].name, rows.opened[1].size) == ("standard input", None)


@pytest.mark.parametrize("text", [b"", b"1 1:1\n1 x\n"])
def test_standard_input_in_messages(text: bytes) -> None:
    with standard_input(text), pytest.raises(InputError, match=r"standard input(:2:3| is empty)"):
        collect(TextRows("-"))


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_leaving_early_ends_threads_and_closes_files(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path, random_text(2000), suffix)
    threads, descriptors = threading.active_count(), len(os.listdir("/proc/self/fd"))
    iterator = iter(TextRows(path, threads=3, chunk_bytes=500))
    next(iterator)
    assert threading.active_count() > threads
    iterator.close()  # type: ignore[attr-defined]
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.fault
@pytest.mark.parametrize("threads", [1, 3])
def test_file_replaced_before_its_turn_is_noticed(tmp_path: Path, threads: int) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(b"1 1:1\n" * 100)
    second.write_bytes(b"1 1:1\n")
    iterator = iter(TextRows([first, second], threads=threads, chunk_bytes=60))
    next(iterator)
    second.write_bytes(b"2 2:2\n3 3:3\n")
    with pytest.raises(InputError, match=f"{second}: the file changed"):
        list(iterator)


@settings(max_examples=examples(300), deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(
    st.one_of(
        st.lists(st.one_of(good_line(), good_line(), any_line(), tails), max_size=12),
        st.lists(short_lines, max_size=12),
    ),
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
    st.sampled_from([1, 2, 30, 1000]),
    st.sampled_from([1, 3]),
    st.sampled_from(list(COMPRESSORS)),
    st.sampled_from(READS),
)
def test_same_verdict_as_the_reference(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[str],
    mark: bytes,
    chunk_bytes: int,
    threads: int,
    suffix: str,
    read_bytes: int,
) -> None:
    """Rows, line and column, wherever chunks and reads are cut, and whether bad lines end the text or not."""
    text = mark + "\n".join(lines).encode()
    folder = tmp_path_factory.getbasetemp()
    path, reject = write(folder, text, suffix), folder / "rejected"
    for how, reject_file in (("stop", None), ("skip", reject)):
        expected = parse(text, skip=how == "skip")
        labels: list[float] = []
        message = ""
        try:
            rows = TextRows(
                path,
                chunk_bytes=chunk_bytes,
                threads=threads,
                read_bytes=read_bytes,
                bad_lines=how,
                reject_file=reject_file,
            )
            for block in rows:
                labels.extend(block.labels.tolist())
            assert rows.counts.n_features == expected.n_features
        except InputError as error:
            message = str(error)
        expected_labels = [row.label for row in expected.rows]
        if not text:
            assert "empty" in message or "no data" in message
            return
        if how == "stop" and expected.errors:
            [(line, column)] = expected.errors
            assert message.startswith(f"{path}:{line}:{column}: ")
            assert labels == expected_labels[: len(labels)]
            continue
        assert labels == expected_labels
        assert ("no rows" in message) == (not labels)
        if how == "skip":
            notes = reject.read_bytes().split(b"\n")[:-1]
            body = text.removeprefix(b"\xef\xbb\xbf").split(b"\n")
            assert notes[1::2] == [body[line - 1] for line, _ in expected.errors]
            for note, (line, column) in zip(notes[::2], expected.errors, strict=True):
                assert note.startswith(f"# {path}:{line}:{column}: ".encode())

"""Labels that are names: a ``#`` in them, and names that are not readable, which are bad lines."""

from __future__ import annotations

import numpy as np
import pytest

from ooc_svm.errors import InputError
from ooc_svm.text.reader import TextRows


def names_in(path, **options):
    """The names in row order, and the reader after its last block."""
    rows = TextRows(path, labels="text", **options)
    numbers = [int(label) for block in rows for label in block.labels]
    return [rows.label_names[number] for number in numbers], rows


@pytest.mark.parametrize("chunk_bytes", [1, 20, 1000])
def test_a_hash_in_a_name_is_no_comment(tmp_path, chunk_bytes):
    path, reject = tmp_path / "a.svm", tmp_path / "rejected"
    path.write_text("java 1:1 2:1\n  C# 1:5 3:2\nC 2:1\nC# 1:5 3:2\nC#\r\nC#:1\n")
    with pytest.raises(InputError, match=r"a\.svm:2:3: label 'C#' has a '#', and names have no '#': .*row 2"):
        names_in(path, chunk_bytes=chunk_bytes)
    found, rows = names_in(path, chunk_bytes=chunk_bytes, bad_lines="skip", reject_file=reject)
    assert found == ["java", "C"]
    assert (rows.counts.bad_lines, rows.counts.nonzeros) == (4, 3)
    notes = reject.read_text().splitlines()
    assert [note.split(" ")[1] for note in notes[::2]] == [
        f"{path}:{n}:" for n in ("2:3", "4:1", "5:1", "6:1")
    ]


def test_comments_stay_comments(tmp_path):
    (tmp_path / "a.svm").write_text("#C 1:1\n\t# C\nC # 1:1\nC\t#\nC 1:1# 2:1\n")
    found, rows = names_in(tmp_path / "a.svm")
    assert found == ["C"] * 3
    assert (rows.counts.comment_lines, rows.counts.nonzeros) == (2, 1)


UNREADABLE = [
    b"\xff\xfe",
    b"a\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xc0\xaf",
    b"a\x01",
    b"a\xe2\x80\xa8b",
    b"\x7f",
]


@pytest.mark.parametrize("label", UNREADABLE)
def test_a_name_that_is_not_readable_is_named_with_its_line(tmp_path, label):
    (tmp_path / "a.svm").write_bytes(b"\xc3\xa9 1:1\n# c\n  " + label + b" 1:2\nb 1:x\n")
    with pytest.raises(
        InputError, match=r"a\.svm:3:3: label '.*' is no name of printable characters in UTF-8; .*row 2"
    ):
        names_in(tmp_path / "a.svm")


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("chunk_bytes", [1, 40, 1000, 1 << 20])
def test_names_that_are_not_readable_are_skipped(tmp_path, chunk_bytes, threads):
    path, reject = tmp_path / "a.svm", tmp_path / "rejected"
    rng = np.random.default_rng(0)
    lines, good, bad = [], [], []
    for number in range(1, 4001):
        kind = rng.integers(4)
        name = [b"\xc3\xa9", b"b", UNREADABLE[number % len(UNREADABLE)], b"c"][kind]
        lines.append(b" " * (number % 3) + name + (b" 1:x" if kind == 3 else b" 1:2 3:4"))
        if kind < 2:
            good.append(name.decode())
        else:
            bad.append(number)
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    options = {"chunk_bytes": chunk_bytes, "threads": threads}
    found, rows = names_in(path, bad_lines="skip", reject_file=reject, **options)
    assert found == good
    assert list(rows.label_names) == list(dict.fromkeys(good))
    assert (rows.counts.bad_lines, rows.counts.lines) == (len(bad), len(lines))
    assert rows.counts.nonzeros == 2 * len(good)
    notes = reject.read_bytes().split(b"\n")
    assert notes[1::2] == [lines[number - 1] for number in bad]
    assert [int(note.split(b":")[1]) for note in notes[:-1:2]] == bad
    with pytest.raises(InputError, match=rf"a\.svm:{bad[-1]}:.*more than {len(bad) - 1} bad lines"):
        names_in(path, bad_lines="skip", max_bad_lines=len(bad) - 1, **options)


def test_more_names_that_are_not_readable_than_there_may_be_classes(tmp_path):
    bad = b"".join(b"\xff%d 1:2\n" % i for i in range(2500))
    (tmp_path / "a.svm").write_bytes(b"a 1:1\n" + bad + b"b 1:1\n")
    found, rows = names_in(tmp_path / "a.svm", bad_lines="skip")
    assert found == ["a", "b"]
    assert rows.counts.bad_lines == 2500


@pytest.mark.parametrize("chunk_bytes", [1, 1000])
def test_a_skipped_name_does_not_say_whether_rows_have_a_qid(tmp_path, chunk_bytes):
    # The first line would be the first row, with a qid, and \xfe the first one without.
    text = b"\xff qid:1 1:1\n\xfe 1:1\na 1:1\n\xfe qid:2 2:1\nb qid:3 1:1\nc 2:1\n"
    (tmp_path / "a.svm").write_bytes(text)
    found, rows = names_in(tmp_path / "a.svm", bad_lines="skip", chunk_bytes=chunk_bytes)
    assert found == ["a", "c"]
    assert rows.counts.bad_lines == 4
    with pytest.raises(InputError, match=r":1:1: label '\\xff' is no name"):
        names_in(tmp_path / "a.svm", chunk_bytes=chunk_bytes)

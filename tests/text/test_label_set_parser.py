"""Sets of labels and names in text, against a slow reference; and how sets are named and numbered."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
from helpers.reference_parser import parse
from helpers.text_lines import any_line, blanks, good_line, tails
from helpers.thinning import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ooc_svm.data import label_sets
from ooc_svm.data.label_sets import LabelSets, has_label, in_order, labels_of, name_of
from ooc_svm.errors import DamageError, InputError, MemoryBudgetError
from ooc_svm.text import label_set_names
from ooc_svm.text.reader import TextRows

EXAMPLES = settings(
    max_examples=examples(150), deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
TOKEN = re.compile(rb"(?:[^ \t#\r\n]|\r(?!\Z))*")

label = st.one_of(
    st.sampled_from(["1", "2", "10", "01", "-3", "cat", "été", "a.b"]), st.integers(0, 9).map(str)
)
good_set = st.lists(label, min_size=1, max_size=4).map(",".join)
any_set = st.one_of(
    good_set,
    good_set,
    st.sampled_from([",", "1,", ",1", "1,,3", "1:2", "1,2:3", "a\0", "1,\r2", "x" * 256]),
    # What looks like a comment, what is not UTF-8 (alone, and cut in two), and what cannot be printed.
    st.sampled_from(["c#", "c#,1", "1,c#2", "1#", "\udcff", "1,\udcc3,\udca9", "a\u2028b", "1,\x01"]),
)


@st.composite
def line_of_set(draw: st.DrawFn, sets: st.SearchStrategy[str] = any_set) -> str:
    row = draw(st.one_of(good_line(), any_line()))
    rest = row[len(row.split(" ", 1)[0]) :] if " " in row else ""
    empty = draw(st.booleans())
    return (draw(blanks) if empty else draw(sets)) + rest + draw(tails)


def is_name(member: bytes) -> bool:
    """By the guide: printable characters in UTF-8, up to 255 bytes, without blanks, colons and ``#``."""
    try:
        name = member.decode()
    except UnicodeDecodeError:
        return False
    return 0 < len(member) <= 255 and name.isprintable() and not set(name) & set(" #:")


def reference(text: bytes, labels: str) -> tuple[dict[int, list[str]], bytes]:
    """The labels of each line that may be a row, and the text with a number in place of the labels."""
    found, lines = {}, []
    for number, line in enumerate(text.split(b"\n")[:-1], 1):
        bare = line.lstrip(b" \t")
        blank = line[: len(line) - len(bare)]
        if bare in (b"", b"\r") or bare.startswith(b"#"):
            lines.append(line)
        elif blank and labels == "sets":
            found[number] = []
            lines.append(b"1" + line)
        else:
            token = TOKEN.match(bare).group()
            rest = bare[len(token) :]
            members = token.split(b",") if labels == "sets" else [token]
            well = all(map(is_name, members)) and not rest.startswith(b"#")
            found[number] = [member.decode(errors="replace") for member in members]
            lines.append(blank + (b"1" if well else b"x") + rest)
    return found, b"".join(line + b"\n" for line in lines)


@EXAMPLES
@given(
    st.lists(line_of_set(), max_size=6),
    st.sampled_from([1, 16, 10**6]),
    st.sampled_from(["sets", "text"]),
    st.sampled_from(["stop", "skip"]),
)
def test_same_rows_and_labels_as_the_reference(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], chunk_bytes: int, labels: str, how: str
) -> None:
    path = tmp_path_factory.mktemp("sets") / "a.svm"
    text = "".join(line + "\n" for line in ["first 1:1"] * (how == "skip") + lines)
    encoded = text.encode(errors="surrogateescape") + b"last 1:1\n"
    path.write_bytes(encoded)
    found, plain = reference(encoded, labels)
    expected = parse(plain, skip=how == "skip")
    rows = TextRows(path, labels=labels, chunk_bytes=chunk_bytes, bad_lines=how)
    sets: list[list[str]] = []
    ids: list[list[int]] = []
    qids: list[int | None] = []
    failure = ""
    try:
        for block in rows:
            names = [rows.label_names[int(number)] for number in block.labels]
            sets += [labels_of(name) if labels == "sets" else [name] for name in names]
            pointers = block.rows.indptr.tolist()
            ids += [block.rows.indices[first:last].tolist() for first, last in pairwise(pointers)]
            qids += [None] * len(block.labels) if block.qids is None else block.qids.tolist()
    except InputError as error:
        failure = str(error)
    if how == "stop" and expected.errors:
        assert f"a.svm:{expected.errors[0][0]}:" in failure
        return
    assert not failure
    bad = {line for line, _ in expected.errors}
    assert rows.counts.bad_lines == len(bad)
    assert sets == [in_order(own) for line, own in found.items() if line not in bad]
    assert ids == [row.ids for row in expected.rows]
    assert qids == [row.qid for row in expected.rows]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("chunk_bytes", [1, 17, 1000])
def test_any_chunks_give_the_same_numbers(tmp_path, threads, chunk_bytes):
    lines = [
        "3,1 1:1",
        "1,3 2:1",
        " 1:0.5",
        "\t2:1",
        "3,3,1 1:1",
        "cat 1:1",
        "10,9,cat 3:1",
        "# 1,2",
        "2,10 1:1",
    ]
    (tmp_path / "a.svm").write_text("\n".join(lines * 20))
    rows = TextRows(tmp_path / "a.svm", labels="sets", chunk_bytes=chunk_bytes, threads=threads)
    for _ in range(2):
        numbers = np.concatenate([block.labels for block in rows])
        assert numbers.tolist() == [0, 0, 1, 1, 0, 2, 3, 4] * 20
        assert list(rows.label_names) == ["1,3", ",", "cat", "9,10,cat", "2,10"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"1,,3 1:1\n", r":1:1: labels '1,,3' have nothing before, after or between commas"),
        (b"1 1:1\n1, 1:1\n", r":2:1: labels '1,' have nothing"),
        (b",1 1:1\n", r":1:1: labels ',1' have nothing"),
        (b"1:1 2:1\n", r":1:1: label '1:1' has a colon: .*a row without labels with a blank"),
        (b"1,2:1 2:1\n", r":1:1: label '2:1' has a colon"),
        (b"1,2 3 2:1\n", r":1:5: '3' is not a feature"),
        (b"1, 3 2:1\n", r":1:1: labels '1,' have nothing"),
        (b" 1,2 2:1\n", r":1:2: '1,2' is not a feature"),
        (b"a," + b"x" * 256 + b" 1:1\n", r":1:1: label 'a,x+'\.\.\. is longer than 255 bytes"),
        (b",".join(b"%0250d" % i for i in range(300)) + b" 1:1\n", r":1:1: the labels of the row are longer"),
        (b"a,c#,d 1:1\n", r":1:1: label 'c#' has a '#', and names have no '#'"),
        (b"a 1:1\n1,3# comment\n", r":2:1: label '3#' has a '#', .*put a blank before a comment \(row 2\)"),
        (b"1 1:1\n1,\xff 1:1\n", r":2:1: label '\\xff' is no name of printable characters .* \(row 2\)"),
        (b"1,\xc3,\xa9 1:1\n", r":1:1: label '\\xc3' is no name of printable characters"),
        (b"1,\0 1:1\n", r":1:1: a NUL byte"),
    ],
)
def test_what_is_no_set(tmp_path, text, message):
    (tmp_path / "a.svm").write_bytes(text)
    with pytest.raises(InputError, match=message):
        list(TextRows(tmp_path / "a.svm", labels="sets"))


def test_comments_after_labels(tmp_path):
    (tmp_path / "a.svm").write_text("#a,b 1:1\na,b # c 1:1\n # c\nb,a\t#\na,b 1:1# c\n")
    rows = TextRows(tmp_path / "a.svm", labels="sets")
    assert np.concatenate([block.labels for block in rows]).tolist() == [0, 0, 0]
    assert (rows.counts.comment_lines, rows.counts.nonzeros) == (2, 1)


def test_limits(tmp_path, monkeypatch):
    monkeypatch.setattr(label_set_names, "MAX_LABELS", 4)
    (tmp_path / "a.svm").write_text("1,2 1:1\n3,4 1:1\n 1:1\n1 1:1\n")
    assert sum(len(block.labels) for block in TextRows(tmp_path / "a.svm", labels="sets")) == 4
    (tmp_path / "b.svm").write_text("1,2 1:1\n3,4 1:1\n5 1:1\n")
    with pytest.raises(InputError, match="have more than 4 different labels; leave out those of few rows"):
        list(TextRows(tmp_path / "b.svm", labels="sets"))
    monkeypatch.setattr(label_set_names, "MAX_SETS", 3)
    with pytest.raises(InputError, match="more than 3 different sets of labels"):
        list(TextRows(tmp_path / "a.svm", labels="sets"))


def test_memory_of_names(tmp_path):
    (tmp_path / "a.svm").write_text("1,2 1:1\n3,4 1:1\n 1:1\n1 1:1\n")
    list(TextRows(tmp_path / "a.svm", labels="sets", names_bytes=4 * 320 + 8))
    with pytest.raises(MemoryBudgetError, match=r"first 4 different sets of labels take 1\.29 kB, and"):
        list(TextRows(tmp_path / "a.svm", labels="sets", names_bytes=4 * 320 + 7))


def test_more_sets_than_there_may_be_classes(tmp_path):
    rng = np.random.default_rng(0)
    chosen = [sorted(rng.choice(40, 4, replace=False).tolist()) for _ in range(6000)]
    (tmp_path / "a.svm").write_text("".join(f"{','.join(map(str, own))} 1:1\n" for own in chosen))
    rows = TextRows(tmp_path / "a.svm", labels="sets", threads=2, chunk_bytes=20_000)
    numbers = np.concatenate([block.labels for block in rows]).astype(int)
    assert [labels_of(rows.label_names[number]) for number in numbers] == [[*map(str, own)] for own in chosen]
    assert len(rows.label_names) == len({tuple(own) for own in chosen}) > 5000


sets_of_labels = st.lists(st.sets(label, max_size=5), max_size=30)


@EXAMPLES
@given(sets_of_labels, st.data())
def test_members_of_sets(sets: list[set[str]], data: st.DataObject) -> None:
    names = list(dict.fromkeys(name_of(own) for own in sets))
    found = LabelSets.of(names, "the store")
    assert set(found.labels) == {one for own in sets for one in own}
    assert [name_of(labels_of(name)) for name in names] == names
    counts = {float(k): data.draw(st.integers(0, 5)) for k in range(len(names))}
    for k, own in enumerate(found.labels):
        expected = [own in labels_of(name) for name in names]
        assert found.sets_with(k).tolist() == expected
        assert has_label(found.members[k], np.arange(len(names))).tolist() == expected
        assert found.rows(counts)[k] == sum(
            n for n, has in zip(counts.values(), expected, strict=True) if has
        )


def test_labels_in_order() -> None:
    assert in_order(["b", "10", "9", "-1", "a", "2.5", "9"]) == ["-1", "9", "10", "2.5", "a", "b"]
    assert name_of([]) == label_sets.EMPTY_SET
    assert labels_of(name_of([])) == []


@pytest.mark.parametrize("names", [["2,1"], ["1,1"], ["1,"], [""], ["1,,2"]])
def test_names_that_are_none_of_sets(names):
    with pytest.raises(DamageError, match=r"set of labels|labels in sets"):
        LabelSets.of(names, "the store")

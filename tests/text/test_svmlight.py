"""The parser and the writer of SVMlight text, against a slow parser that follows the grammar."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.reference_parser import Row, Verdict, parse
from helpers.text_lines import any_line, good_line, tails
from helpers.thinning import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ooc_svm.data.blocks import LabelledRows, RowBlock
from ooc_svm.errors import InputError
from ooc_svm.text.decimals import PADDING
from ooc_svm.text.diagnostics import FeatureLimit, explain, show, token_at
from ooc_svm.text.svmlight import (
    DONE,
    ERROR_OFFSET,
    FULL,
    LARGEST_ID,
    LINES,
    N_FEATURES,
    NONZEROS,
    OTHER_THAN_ONE,
    POSITION,
    QID_ON_ALL,
    QID_RULE,
    ROWS,
    RowArrays,
    parse_lines,
)
from ooc_svm.text.writer import format_rows

EXAMPLES = settings(
    max_examples=examples(150), deadline=None, database=None, suppress_health_check=list(HealthCheck)
)


def parse_text(
    text: bytes, index_base: int = 1, dtype: str = "float32", features: int = LARGEST_ID + 1
) -> tuple[int, RowArrays]:
    """Code and arrays of one call for a text of whole lines."""
    arrays = RowArrays.for_text(16 * len(text) + 16, dtype)
    buffer = np.frombuffer(text + bytes(PADDING), np.uint8).copy()
    code = parse_lines(
        buffer,
        len(text),
        index_base,
        features,
        arrays.labels,
        arrays.qids,
        arrays.indptr,
        arrays.indices.view(np.uint32),
        arrays.values,
        arrays.state,
    )
    return code, arrays


def verdict_of(text: bytes, index_base: int, dtype: str, features: int = LARGEST_ID + 1) -> Verdict:
    """What the compiled parser makes of a text, in the terms of the reference."""
    code, arrays = parse_text(text, index_base, dtype, features)
    state = arrays.state
    verdict = Verdict(n_features=int(state[N_FEATURES]))
    for row in range(state[ROWS]):
        part = slice(arrays.indptr[row], arrays.indptr[row + 1])
        qid = int(arrays.qids[row]) if state[QID_RULE] == QID_ON_ALL else None
        ids, values = arrays.indices[part].tolist(), arrays.values[part].tolist()
        verdict.rows.append(Row(float(arrays.labels[row]), qid, ids, values))
    if code != DONE:
        line = int(state[POSITION])
        assert text[:line].count(b"\n") == state[LINES]
        verdict.errors = [(int(state[LINES]) + 1, int(state[ERROR_OFFSET]) - line + 1)]
        end = text.index(b"\n", line)
        token = token_at(text[line:end], int(state[ERROR_OFFSET]) - line)
        assert explain(code, token, index_base, dtype, FeatureLimit(features))
    stored = arrays.values[: state[NONZEROS]]
    assert bool(state[OTHER_THAN_ONE]) == bool((stored != 1).any())
    return verdict


texts = st.lists(st.one_of(good_line(), good_line(), any_line(), tails), max_size=6).map(
    lambda lines: "".join(line + "\n" for line in lines).encode()
)


@EXAMPLES
@given(
    texts,
    st.sampled_from([0, 1]),
    st.sampled_from(["float32", "float64"]),
    st.sampled_from([1, 3, LARGEST_ID, LARGEST_ID + 1]),
)
def test_same_verdict_as_the_reference(text: bytes, index_base: int, dtype: str, features: int) -> None:
    assert verdict_of(text, index_base, dtype, features) == parse(text, index_base, dtype, features=features)


@EXAMPLES
@given(st.lists(good_line(), min_size=1, max_size=4), st.data())
def test_same_verdict_on_mutated_text(lines: list[str], data: st.DataObject) -> None:
    text = bytearray("".join(line + "\n" for line in lines).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(text) - 1))
        text[place] = data.draw(
            st.one_of(st.sampled_from(b" \t\n\r#:.-+eqid0123456789\x00\x0b\x0c"), st.integers(0, 255))
        )
    assert verdict_of(bytes(text) + b"\n", 1, "float32") == parse(bytes(text) + b"\n")


@EXAMPLES
@given(st.one_of(st.binary(max_size=60), st.text("01 :.e+-q\n\r\t#", max_size=40).map(str.encode)))
def test_same_verdict_on_random_bytes(text: bytes) -> None:
    text = text.removeprefix(b"\xef\xbb\xbf") + b"\n"
    assert verdict_of(text, 1, "float32") == parse(text)


def test_every_pair_and_triple_of_telling_bytes() -> None:
    alphabet = [b"1", b":", b" ", b".", b"\r", b"#", b"e", b"-", b"qid:", b"\x0b"]
    for a in alphabet:
        for b in alphabet:
            for c in alphabet:
                text = b"1 1:1" + a + b + c + b"\n"
                assert verdict_of(text, 1, "float32") == parse(text), text
                text = a + b + c + b"2\n"
                assert verdict_of(text, 1, "float32") == parse(text), text


def blocks(dtype: type[np.floating], with_qid: bool) -> st.SearchStrategy[LabelledRows]:
    width = 32 if dtype is np.float32 else 64
    numbers = st.floats(width=width, allow_nan=False, allow_infinity=False).filter(lambda value: value != 0)
    row = st.dictionaries(st.integers(0, 2**31 - 2), numbers, max_size=5)
    labels = st.floats(allow_nan=False, allow_infinity=False)
    lines = st.lists(st.tuples(labels, st.integers(0, 2**63 - 1), row), min_size=1, max_size=6)

    def build(parts: list[tuple[float, int, dict[int, float]]]) -> LabelledRows:
        indptr = np.cumsum([0] + [len(row) for _, _, row in parts])
        indices = np.array([id_ for _, _, row in parts for id_ in sorted(row)], np.int32)
        values = np.array([row[id_] for _, _, row in parts for id_ in sorted(row)], dtype)
        groups = np.array([qid for _, qid, _ in parts]) if with_qid else None
        return LabelledRows(
            RowBlock(0, indptr, indices, values), np.array([part[0] for part in parts]), groups
        )

    return lines.map(build)


@pytest.mark.parametrize("with_qid", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@settings(EXAMPLES, max_examples=60)
@given(st.data())
def test_written_rows_read_back_as_they_were(
    dtype: type[np.floating], with_qid: bool, data: st.DataObject
) -> None:
    block = data.draw(blocks(dtype, with_qid))
    text = format_rows(block)
    code, arrays = parse_text(text, 1, np.dtype(dtype).name)
    n_rows, n = arrays.state[ROWS], arrays.state[NONZEROS]
    assert code == DONE
    np.testing.assert_array_equal(arrays.labels[:n_rows], block.labels)
    np.testing.assert_array_equal(arrays.indptr[: n_rows + 1], block.rows.indptr)
    np.testing.assert_array_equal(arrays.indices[:n], block.rows.indices)
    np.testing.assert_array_equal(arrays.values[:n], block.rows.values)
    if block.qids is not None:
        np.testing.assert_array_equal(arrays.qids[:n_rows], block.qids)


def one_row(values: list[float] | None, dtype: str = "float64", label: float = 1.0) -> LabelledRows:
    n = 3 if values is None else len(values)
    array = None if values is None else np.array(values, dtype)
    rows = RowBlock(0, np.array([0, n]), np.arange(n, dtype=np.int32), array)
    return LabelledRows(rows, np.array([label]))


@pytest.mark.parametrize("rest", ["", " 3:1", "  3:1", "\t3:1", " 3:1 4:1", " # 3:1", " qid:5 3:1", "\r"])
def test_labels_of_few_digits_and_values_that_are_1(rest: str) -> None:
    texts = ["0", "-0", "+0", "7", "-7", "+7", "007", "12345678", "-87654321", "123456789", "1.5", "-1e2"]
    code, arrays = parse_text("".join(f"{text}{rest}\n" for text in texts).encode(), dtype="float64")
    assert code == DONE
    labels, n_rows = np.array([float(text) for text in texts]), len(texts)
    np.testing.assert_array_equal(arrays.labels[:n_rows].view(np.int64), labels.view(np.int64))
    width = rest.partition("#")[0].count(":1")
    assert arrays.state[NONZEROS] == width * n_rows
    assert (arrays.values[: width * n_rows] == 1.0).all()
    assert (arrays.indices[: width * n_rows].reshape(n_rows, width) == np.arange(2, 2 + width)).all()


def test_written_form_of_numbers() -> None:
    values = [1, 0.5, 1e-5, 1.5e-6, 12345, 123.25, 1e14, 1e15, 1.5e300, 5e-324, -0.1, 0.1 + 0.2]
    text = format_rows(one_row(values, label=-2.5)).decode().split()
    assert text[0] == "-2.5"
    written = [
        "1",
        "0.5",
        "0.00001",
        "1.5e-6",
        "12345",
        "123.25",
        "100000000000000",
        "1e15",
        "1.5e300",
        "5e-324",
    ]
    assert [token.partition(":")[2] for token in text[1:]] == [*written, "-0.1", "0.30000000000000004"]
    assert format_rows(one_row([0.1, 3.4028235e38, 1e-45], "float32")) == b"1 1:0.1 2:3.4028235e38 3:1e-45\n"
    assert format_rows(one_row(None)) == b"1 1:1 2:1 3:1\n"


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_text_cannot_hold_are_refused(bad: float) -> None:
    with pytest.raises(InputError, match="finite"):
        format_rows(one_row([1.0, bad]))
    with pytest.raises(InputError, match="finite"):
        format_rows(one_row([1.0], label=bad))


def test_stops_before_the_row_that_does_not_fit_and_goes_on() -> None:
    text = b"1 1:1\n" * 10
    arrays = RowArrays.for_text(len(text), "float32")
    assert len(arrays.labels) == 4
    buffer = np.frombuffer(text + bytes(PADDING), np.uint8).copy()
    found = []
    code = FULL
    while code == FULL:
        arrays.clear(int(arrays.state[POSITION]), int(arrays.state[QID_RULE]))
        indices = arrays.indices.view(np.uint32)
        code = parse_lines(
            buffer,
            len(text),
            1,
            LARGEST_ID + 1,
            arrays.labels,
            arrays.qids,
            arrays.indptr,
            indices,
            arrays.values,
            arrays.state,
        )
        found.append(int(arrays.state[ROWS]))
    assert code == DONE
    assert found == [4, 4, 2]


def test_tokens_in_messages_are_cut() -> None:
    assert show(b"x" * 80) == repr("x" * 80)
    assert show(b"x" * 81) == repr("x" * 80) + "..."
    assert show(b"\xff\n") == r"'\xff\n'"

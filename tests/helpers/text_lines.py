"""Lines of SVMlight text, right and wrong, for hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

number_pieces = st.one_of(
    st.sampled_from(
        ["0", "1", "-1", "+1", "0.5", "1e-3", ".25", "3.", "-0.0", "1e39", "1e400", "1e-400", "nan", "inf"]
    ),
    st.integers(2**53 - 3, 2**53 + 3).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr),
    st.from_regex(r"[+-]?[0-9]{0,25}\.?[0-9]{0,25}([eE][+-]?[0-9]{1,3})?", fullmatch=True),
    st.sampled_from(["", "0x10", "1_0", "1,5", "1d5", "--1", "1e", "e5", ".", "\u0661", "1\r", "1\0", "1\v"]),
)
index_pieces = st.one_of(
    st.integers(0, 30).map(str),
    st.integers(0, 2**32).map(str),
    st.sampled_from(
        ["2147483646", "2147483647", "2147483648", "4294967297", "18446744073709551617", "007", "00000000005"]
    ),
    st.sampled_from(["", "+1", "-1", "1.0", "x", "qid"]),
)
features = st.builds("{}:{}".format, index_pieces, number_pieces)
blanks = st.sampled_from([" ", " ", " ", "\t", "  ", " \t "])
tails = st.sampled_from(
    ["", "", "", " ", " # tail 3:4", "#", "# \r x", "# \0", "\r", " \r", " \r\r", "# é\f"]
)
qids = st.sampled_from(
    ["", "", "", " qid:1", " qid:9223372036854775807", " qid:9223372036854775808", " qid:", " qi", " q"]
)


# More rows than there is room for at once.
short_lines = st.sampled_from(["1", " 1", "\t  -1 ", " 1 x", "\t x", "  1 qid", " 1 qid:1", " # \0"])


@st.composite
def good_line(draw: st.DrawFn) -> str:
    ids = sorted(draw(st.sets(st.integers(1, 10**7), max_size=5)))
    values = st.floats(width=32, allow_nan=False, allow_infinity=False)
    return draw(st.sampled_from(["1", "-1.5", "+2"])) + "".join(f" {id_}:{draw(values)!r}" for id_ in ids)


@st.composite
def any_line(draw: st.DrawFn) -> str:
    text = draw(number_pieces) + draw(qids)
    for feature in draw(st.lists(features, max_size=4)):
        text += draw(blanks) + feature
    return draw(st.sampled_from(["", "", " ", "\t  "])) + text + draw(tails)

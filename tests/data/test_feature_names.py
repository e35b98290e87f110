"""Names of features: a sequence of str in two arrays, and finding one list of names in another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ooc_svm.data.feature_names import FeatureNames
from ooc_svm.errors import InputError

TEXTS = st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=5), max_size=30)


@given(TEXTS)
def test_it_is_a_sequence_of_the_names(names):
    found = FeatureNames.of(names)
    assert list(found) == names
    assert len(found) == len(names)
    assert [found[j] for j in range(-len(names), len(names))] == names + names
    assert found[1:4] == names[1:4]
    assert found == FeatureNames.from_lengths(found.text, found.lengths)
    assert (found == FeatureNames.of([*names, "more"])) is False
    assert found.nbytes == sum(len(name.encode()) for name in names) + 8 * (len(names) + 1)


@given(TEXTS)
def test_the_first_name_that_stands_twice_is_found(names):
    again = [(names.index(name), j) for j, name in enumerate(names) if name in names[:j]]
    assert FeatureNames.of(names).first_double() == (again[0] if again else None)


@given(TEXTS, TEXTS)
def test_names_are_found_in_others(names, others):
    names = list(dict.fromkeys(names))
    expected = [names.index(name) if name in names else -1 for name in others]
    assert FeatureNames.of(names).places_of(FeatureNames.of(others)).tolist() == expected


@pytest.mark.parametrize("modulus", [1, 3])
@settings(max_examples=30)
@given(names=TEXTS, others=TEXTS)
def test_equal_hashes_of_different_names_change_nothing(names, others, modulus):
    """As Python's hashes of different names may be."""
    whole = FeatureNames._hashes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FeatureNames, "_hashes", lambda self: whole(self) % modulus)
        test_the_first_name_that_stands_twice_is_found.hypothesis.inner_test(names)
        test_names_are_found_in_others.hypothesis.inner_test(names, others)
        # One hash on either side, of different names
        assert FeatureNames.of(["a"]).places_of(FeatureNames.of(["b", "a", "a"])).tolist() == [-1, 0, 0]


def test_what_is_no_name_is_refused():
    for names, words in (
        ("abc", "give a sequence of str"),
        (3, "give a sequence of str"),
        (["a", ""], "feature 1, from 0, is ''"),
        (["a", 2], "feature 1, from 0, is 2"),
        (["\ud800"], "no valid text"),
    ):
        with pytest.raises(InputError, match=words):
            FeatureNames.of(names)


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        *((b"abc", starts) for starts in ([0, 2], [1, 3], [0, 4], [0, 2, 1, 3], [])),
        *((b"\xff", [0, 1]), (b"\xc3\xa9", [0, 1, 2]), (b"\xc3", [0, 1])),
    ],
)
def test_arrays_that_are_no_names_are_refused(text, starts):
    with pytest.raises(ValueError):
        FeatureNames(np.frombuffer(text, np.uint8), np.array(starts, np.int64))


def test_names_at_the_end_may_be_empty_where_a_store_has_such():
    assert list(FeatureNames.joined([b"a", b"", b""])) == ["a", "", ""]

"""The names that the package offers."""

from __future__ import annotations

import pytest

import ooc_svm


def test_every_public_name_is_what_it_says_each_time():
    assert sorted(ooc_svm.__all__) == list(ooc_svm.__all__) == sorted(ooc_svm._HOMES)
    for name in ooc_svm.__all__:
        first = getattr(ooc_svm, name)
        assert callable(first), f"{name} is hidden by a module"
        assert getattr(ooc_svm, name) is first
        assert first.__name__ == name
        assert first.__doc__
    with pytest.raises(AttributeError, match="no attribute 'tarin'"):
        ooc_svm.tarin  # noqa: B018

"""The page of public names, which is read off the program."""

from __future__ import annotations

import reference


def test_it_has_the_estimators():
    page = reference.public_names()
    assert ".. autoclass:: OocSVC\n   :members:" in page
    assert ".. autofunction:: train" in page

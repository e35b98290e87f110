"""From labels to binary problems."""

from __future__ import annotations

import numpy as np
import pytest

from ooc_svm.data.classes import MAX_CLASSES, OTHERS, binary_problems, check_classes, label_text
from ooc_svm.errors import InputError


def problems_of(counts, positive=(), class_weight=None, named_others=OTHERS, names=None):
    """Problems where all rows are trained on."""
    return binary_problems(counts, positive, class_weight, None, named_others, names)


@pytest.mark.parametrize(
    ("label", "text"),
    [(1.0, "1"), (-3.0, "-3"), (0.5, "0.5"), (-0.0, "0"), (2.0**60, "1.152921504606847e+18")],
)
def test_labels_as_people_write_them(label, text):
    assert label_text(label) == text


def test_two_labels_make_one_problem():
    classes, problems = problems_of({7.0: 10, 3.0: 30})
    assert classes.tolist() == [3.0, 7.0]
    (problem,) = problems
    assert (problem.positive, problem.negative) == (7.0, 3.0)
    assert (problem.sign.tolist(), problem.weight.tolist()) == ([-1.0, 1.0], [1.0, 1.0])


def test_messages_have_the_names_of_labels():
    with pytest.raises(InputError, match=r"at least two classes, found \{egg\}; add rows"):
        problems_of({1.0: 5}, names=("spam", "egg"))
    with pytest.raises(InputError, match=r"no row has the label ham; the labels are spam, egg"):
        problems_of({0.0: 5, 1.0: 5}, (2.0,), names=("spam", "egg", "ham"))


def test_more_labels_make_one_each():
    _, problems = problems_of({1.0: 5, 2.0: 6, 5.0: 7})
    assert [(p.positive, p.negative) for p in problems] == [(1.0, None), (2.0, None), (5.0, None)]
    np.testing.assert_array_equal([p.sign for p in problems], 2.0 * np.eye(3) - 1.0)


@pytest.mark.parametrize(
    ("counts", "positive", "label", "negative"),
    [
        ((1, 2, 5), (5, 1), 1.0, 2.0),
        ((1, 2, 5), (2,), 2.0, -1.0),
        ((-1, 0, 1), (1,), 1.0, -1.0),
        ((-1, 0, 1), (-1,), -1.0, 0.0),
        ((-1, 1), (-1,), -1.0, 1.0),
    ],
)
def test_named_labels_against_the_others(counts, positive, label, negative):
    classes, (problem,) = problems_of(dict.fromkeys(map(float, counts), 4), positive)
    assert (problem.positive, problem.negative) == (label, negative)
    np.testing.assert_array_equal(problem.sign, np.where(np.isin(classes, positive), 1.0, -1.0))


@pytest.mark.parametrize(("named", "negative"), [(0.0, 2.0), (2.0, -1.0), (None, -1.0)])
def test_a_label_whose_name_is_that_of_all_others(named, negative):
    """Of labels with names, the one that is called -1 has another number."""
    counts = dict.fromkeys(map(float, range(4)), 4)
    _, (problem,) = problems_of(counts, (0.0, 1.0), named_others=named)
    assert (problem.positive, problem.negative) == (0.0, negative)


def test_balanced_weights_weigh_the_sides_of_each_problem():
    counts = {1.0: 10, 2.0: 30, 5.0: 60}
    for problem in problems_of(counts, class_weight="balanced")[1]:
        rows = np.array(list(counts.values())) * problem.weight
        assert rows[problem.sign > 0].sum() == pytest.approx(50.0)
        assert rows[problem.sign < 0].sum() == pytest.approx(50.0)


def test_weights_by_label_are_the_same_in_each_problem():
    for problem in problems_of({1.0: 1, 2.0: 1, 5.0: 1}, class_weight={5.0: 0.0, 1: 3.0})[1]:
        assert problem.weight.tolist() == [3.0, 1.0, 0.0]


def test_labels_without_rows_are_no_classes():
    assert check_classes({1.0: 4, 2.0: 0, 3.0: 1}, None).tolist() == [1.0, 3.0]


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({}, r"at least two classes, found \{\}"),
        ({4.0: 9}, r"at least two classes, found \{4\}"),
        ({4.0: 9, 5.0: 0}, r"at least two classes, found \{4\}"),
        ({0.5: 2, 0.7: 3}, r"values, not classes \(for example 0\.5\).*problem='svr'"),
        ({1.0: 2, float("nan"): 3}, "values, not classes"),
        (None, f"more than {MAX_CLASSES} different labels.*problem='svr'"),
        ({float(i): 1 for i in range(MAX_CLASSES + 1)}, f"more than {MAX_CLASSES} different labels"),
    ],
)
def test_refused_labels(counts, message):
    with pytest.raises(InputError, match=message):
        problems_of(counts)


def test_refused_names():
    counts = {1.0: 2, 2.0: 2}
    for options in ({"positive": (3.0,)}, {"class_weight": {3.0: 1.0}}):
        with pytest.raises(InputError, match="no row has the label 3; the labels are 1, 2"):
            problems_of(counts, **options)
    with pytest.raises(InputError, match="all labels are named as positive"):
        problems_of(counts, positive=(1.0, 2.0))

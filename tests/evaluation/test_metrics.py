"""Metrics equal scikit-learn's and plain counting, whatever the memory and the ties."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import sklearn.metrics
from helpers.thinning import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from ooc_svm.data.blocks import row_slices
from ooc_svm.errors import InputError
from ooc_svm.evaluation import metrics
from ooc_svm.evaluation.metrics import (
    METRICS,
    BinaryCounts,
    ClassCounts,
    OrderCounts,
    ValueSums,
    lower_is_better,
)
from ooc_svm.ops.sort_keys import order_key, scores_of_keys
from ooc_svm.rowvectors import score_ranges
from ooc_svm.rowvectors.score_ranges import TieRuns, sorted_ties
from ooc_svm.rowvectors.vector import DiskVector, MemoryVector, RowVector

ORDERED = [name for name, metric in METRICS.items() if OrderCounts in metric.counts]
BINARY = [name for name, metric in METRICS.items() if {BinaryCounts, OrderCounts} & {*metric.counts}]
VALUES = [name for name, metric in METRICS.items() if ValueSums in metric.counts]

ordinary = st.floats(allow_nan=False, allow_infinity=False)
tied = st.sampled_from([-1.5, -0.0, 0.0, 5e-324, -5e-324, 1.0, 1.0000000000000002, 1e308])


def vectors(scores: Any, targets: Any) -> tuple[MemoryVector, MemoryVector]:
    return (
        MemoryVector.wrap(np.asarray(scores, np.float64)),
        MemoryVector.wrap(np.asarray(targets, np.int8)),
    )


def compute_metrics(
    names: list[str], scores: RowVector, targets: RowVector, memory: int, slice_rows: int = 1 << 16
) -> dict[str, float]:
    """Metrics of scores that are there already, counted and summed slice by slice."""
    kinds = {METRICS[name].counts[0] for name in names}
    binary, sums = BinaryCounts(), ValueSums()
    for start, stop in row_slices(scores.n_rows, slice_rows):
        part = scores.read(start, stop), targets.read(start, stop).astype(np.float64)
        if kinds & {BinaryCounts, OrderCounts}:
            binary.add(*part)
        if ValueSums in kinds:
            sums.add(*part)
    order = OrderCounts(binary.positives, binary.negatives)
    if OrderCounts in kinds:
        for groups in sorted_ties(scores, targets, memory):
            order.add(groups)
    counts = {BinaryCounts: binary, OrderCounts: order, ValueSums: sums}
    return {name: METRICS[name].function(counts[METRICS[name].counts[0]]) for name in names}


def brute_prbep(scores: np.ndarray, targets: np.ndarray) -> float:
    """Rows above the cut count whole, rows at it in the share in which they are needed."""
    n_positive = int((targets > 0).sum())
    cut = sorted(scores.tolist(), reverse=True)[n_positive - 1]
    above, at = scores > cut, scores == cut
    share = Fraction(n_positive - int(above.sum()), int(at.sum()))
    hits = int((above & (targets > 0)).sum()) + share * int((at & (targets > 0)).sum())
    return float(hits / n_positive)


def brute_groups(scores: np.ndarray, targets: np.ndarray) -> list[tuple[float, int, int]]:
    return [
        (
            score,
            int(((scores == score) & (targets > 0)).sum()),
            int(((scores == score) & (targets < 0)).sum()),
        )
        for score in sorted(set((scores + 0.0).tolist()))
    ]


def listed(groups: Any) -> list[tuple[float, int, int]]:
    return [
        item
        for part in groups
        for item in zip(part.scores.tolist(), part.positives.tolist(), part.negatives.tolist(), strict=True)
    ]


# ---------------------------------------------------------------- the order of the scores


@given(st.lists(ordinary | tied, min_size=2))
@settings(deadline=None)
def test_keys_order_as_scores_do(scores):
    numbers = np.array(scores)
    keys = np.array([order_key(bits) for bits in numbers.view(np.uint64)], np.uint64)
    for i in range(len(scores) - 1):
        assert (keys[i] < keys[i + 1]) == (scores[i] < scores[i + 1])
        assert (keys[i] == keys[i + 1]) == (scores[i] == scores[i + 1])
    assert scores_of_keys(keys).tobytes() == (numbers + 0.0).tobytes()


DISTRIBUTIONS = {
    "normal": lambda random, n: random.normal(size=n),
    "rounded": lambda random, n: random.normal(size=n).round(1),
    "all equal": lambda random, n: np.full(n, -2.5),
    "zeros of both signs": lambda random, n: random.choice([-0.0, 0.0, 5e-324], n),
    "crowded": lambda random, n: 1 + random.integers(0, n // 2, n) * 2.0**-52,
    "a crowd and a few": lambda random, n: np.where(random.random(n) < 0.9, 0.75, random.normal(size=n)),
    "all magnitudes": lambda random, n: (
        random.integers(0, 2**63 - 2**52, n).view(np.float64) * random.choice([-1, 1], n)
    ),
}


@pytest.mark.parametrize("memory", [0, 4000, 60_000, 1 << 24])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_groups_of_any_distribution_in_any_memory(name, memory):
    random = np.random.default_rng(3)
    scores = DISTRIBUTIONS[name](random, 3000)
    targets = random.choice(np.array([-1, 1], np.int8), 3000, p=[0.7, 0.3])
    parts = list(sorted_ties(*vectors(scores, targets), memory))
    values, place = np.unique(scores + 0.0, return_inverse=True)
    expected = list(
        zip(
            values.tolist(),
            np.bincount(place[targets > 0], minlength=len(values)).tolist(),
            np.bincount(place[targets < 0], minlength=len(values)).tolist(),
            strict=True,
        )
    )
    assert listed(parts) == expected
    if memory <= 4000 and len(values) > 1000:
        assert len(parts) >= len(values) // 500


@given(st.lists(st.tuples(tied | ordinary, st.sampled_from([-1, 1])), max_size=300), st.integers(0, 5000))
@settings(max_examples=examples(150), deadline=None)
def test_groups_equal_plain_counting(rows, memory):
    scores = np.array([score for score, _ in rows], np.float64)
    targets = np.array([target for _, target in rows], np.int8)
    assert listed(sorted_ties(*vectors(scores, targets), memory)) == brute_groups(scores, targets)


class CountingVector(MemoryVector):
    """Counts the rows that are read, and refuses to hand out long views."""

    longest = rows_read = 0

    def _read(self, start: int, stop: int, out: Any) -> Any:
        self.longest = max(self.longest, stop - start)
        self.rows_read += stop - start
        return super()._read(start, stop, out)


def counted(scores: Any, targets: Any, memory: int) -> tuple[list[TieRuns], CountingVector]:
    vector = CountingVector.wrap(np.asarray(scores, np.float64))
    assert isinstance(vector, CountingVector)
    parts = list(sorted_ties(vector, MemoryVector.wrap(np.asarray(targets, np.int8)), memory))
    return parts, vector


def test_reads_are_as_many_as_documented():
    n_rows = 400_000
    scores = np.random.default_rng(0).normal(size=n_rows)
    targets = np.ones(n_rows, np.int8)
    for memory, gathers in ((n_rows * 16, 1), (n_rows * 4, 4)):
        parts, vector = counted(scores, targets, memory)
        reads = vector.rows_read / n_rows
        assert 2 + gathers <= reads <= 2 + gathers + 2
        assert sum(int(part.positives.sum()) for part in parts) == n_rows
        assert max(len(part.scores) for part in parts) * 48 <= max(memory // 8, 64 * 48)
    assert counted(np.full(5000, 3.0), targets[:5000], 1000)[1].rows_read == 2 * 5000
    assert counted(scores[:5000], targets[:5000], 8000)[1].longest <= 8000 // 8 // 9


def test_vectors_on_disk(tmp_path):
    random = np.random.default_rng(1)
    scores, targets = random.normal(size=9000).round(2), random.choice([-1, 1], 9000).astype(np.int8)
    on_disk: list[RowVector] = []
    for array in (scores, targets):
        vector = DiskVector(9000, array.dtype, tmp_path)
        vector.write(0, array)
        on_disk.append(vector)
    found = compute_metrics(BINARY + VALUES, *on_disk, 4000)
    assert found == compute_metrics(BINARY + VALUES, *vectors(scores, targets), 1 << 24)
    for vector in on_disk:
        vector.close()


@pytest.mark.parametrize(
    ("scores", "targets", "message"),
    [
        ([0.0, math.nan], [1, -1], "row 1 has the score nan"),
        ([math.inf, 0.0], [1, -1], "row 0 has the score inf"),
        ([0.0, 1.0, -math.inf], [1, -1, 1], "row 2 has the score -inf"),
        ([0.0, 1.0], [1, 0], "row 1 has the .*target 0"),
        ([0.0, 1.0], [2, 1], "row 0 has the .*target 2"),
    ],
)
def test_what_has_no_order_is_refused_with_its_row(scores, targets, message):
    with pytest.raises(InputError, match=message):
        list(sorted_ties(*vectors(scores, targets), 4000))
    for name in BINARY:
        with pytest.raises(InputError, match=r"row \d has the"):
            compute_metrics([name], *vectors(scores, targets), 4000)


def test_the_row_of_an_error_counts_from_the_first_slice():
    scores = np.zeros(1000)
    scores[777] = np.nan
    with pytest.raises(InputError, match="row 777 "):
        list(sorted_ties(*vectors(scores, np.ones(1000)), 0))
    for name in ("accuracy", "mse"):
        with pytest.raises(InputError, match="row 777 "):
            compute_metrics([name], *vectors(scores, np.ones(1000)), 0, slice_rows=100)


def test_vectors_of_other_types_are_a_mistake():
    with pytest.raises(TypeError, match="float32"):
        list(sorted_ties(MemoryVector(3, "float32"), MemoryVector(3, "int8"), 0))
    with pytest.raises(TypeError, match="4 targets"):
        list(sorted_ties(MemoryVector(3, "float64"), MemoryVector(4, "int8"), 0))


@pytest.mark.fault
def test_scores_that_change_between_reads_are_noticed():
    class Changing(CountingVector):
        def _read(self, start: int, stop: int, out: Any) -> Any:
            part = super()._read(start, stop, out)
            return part if self.rows_read <= 2 * self.n_rows else np.zeros_like(part)

    vector = Changing.wrap(np.arange(1.0, 101.0))
    with pytest.raises(score_ranges.StorageError, match="changed while"):
        list(sorted_ties(vector, MemoryVector(100, "int8", fill=1), 1 << 20))


# ---------------------------------------------------------------- two classes


@pytest.mark.parametrize("memory", [4000, 1 << 22])
@pytest.mark.parametrize("decimals", [0, 1, 16])
@pytest.mark.parametrize("share", [0.03, 0.5, 0.98])
def test_binary_metrics_equal_scikit_learn(memory, decimals, share):
    random = np.random.default_rng(int(100 * share) + decimals)
    targets = np.where(random.random(4000) < share, 1, -1).astype(np.int8)
    scores = (random.normal(size=4000) + 0.7 * targets).round(decimals)
    predicted = np.where(scores > 0, 1, -1)
    found = compute_metrics(BINARY, *vectors(scores, targets), memory)
    expected = {
        "accuracy": sklearn.metrics.accuracy_score(targets, predicted),
        "error": sklearn.metrics.zero_one_loss(targets, predicted),
        "balanced-accuracy": sklearn.metrics.balanced_accuracy_score(targets, predicted),
        "f1": sklearn.metrics.f1_score(targets, predicted),
        "precision": sklearn.metrics.precision_score(targets, predicted),
        "recall": sklearn.metrics.recall_score(targets, predicted),
        "auc": sklearn.metrics.roc_auc_score(targets, scores),
        "prbep": brute_prbep(scores, targets),
    }
    assert list(found) == BINARY
    assert found == pytest.approx(expected, rel=1e-12)


@given(
    st.lists(st.tuples(tied | st.floats(-3, 3), st.sampled_from([-1, 1])), min_size=2, max_size=80),
    st.integers(0, 5000),
)
@settings(max_examples=examples(150), deadline=None)
def test_auc_and_prbep_equal_counting_by_definition(rows, memory):
    scores = np.array([score for score, _ in [*rows, (0.0, 1), (0.0, -1)]])
    targets = np.array([target for _, target in [*rows, (0.0, 1), (0.0, -1)]])
    upper, lower = scores[targets > 0], scores[targets < 0]
    halves = sum(2 * int((u > lower).sum()) + int((u == lower).sum()) for u in upper)
    found = compute_metrics(ORDERED, *vectors(scores, targets), memory)
    assert found["auc"] == halves / (2 * len(upper) * len(lower))
    assert found["prbep"] == brute_prbep(scores, targets)


def test_prbep_is_the_mean_over_orders_of_ties():
    scores = np.array([3.0, 1.0, 1.0, 1.0, 1.0, 0.0])
    targets = np.array([-1, 1, -1, 1, -1, 1])
    random = np.random.default_rng(0)
    hits = []
    for _ in range(4000):
        order = np.lexsort((random.random(6), -scores))
        hits.append((targets[order[:3]] > 0).mean())
    found = compute_metrics(["prbep"], *vectors(scores, targets), 0)["prbep"]
    assert found == pytest.approx(1 / 3)
    assert np.mean(hits) == pytest.approx(found, abs=0.02)


def test_counts_past_64_bits_stay_exact():
    n_positive, n_negative = 2**40 + 1, 2**41 + 3
    order = OrderCounts(n_positive, n_negative)
    order.add(TieRuns(np.array([0.0, 1.0]), np.array([0, 1]), np.array([n_negative - 2, 0])))
    order.add(TieRuns(np.array([2.0, 3.0]), np.array([n_positive - 2, 1]), np.array([2, 0])))
    twice = 2 * (n_negative - 2) + (n_positive - 2) * (2 * (n_negative - 2) + 2) + 2 * n_negative
    assert order.ordered_halves == twice > 2**64
    assert metrics.auc(order) == twice / (2 * n_positive * n_negative)
    assert order.positives_below == 1 + Fraction(n_positive - 2, n_positive)


def test_one_large_group_past_64_bits():
    order = OrderCounts(2**33, 2**33)
    order.add(TieRuns(np.array([0.0]), np.array([2**33]), np.array([2**33])))
    assert order.ordered_halves == 2**66
    assert metrics.auc(order) == 0.5
    assert metrics.prbep(order) == 0.5


def test_one_class_only():
    positive = vectors([0.5, -1.0, 2.0], [1, 1, 1])
    negative = vectors([0.5, -1.0, 2.0], [-1, -1, -1])
    with pytest.raises(InputError, match="no row is negative"):
        compute_metrics(["auc"], *positive, 0)
    with pytest.raises(InputError, match="no row is positive"):
        compute_metrics(["auc"], *negative, 0)
    with pytest.raises(InputError, match="no row is positive"):
        compute_metrics(["prbep"], *negative, 0)
    assert compute_metrics(["prbep", "recall"], *positive, 0) == {"prbep": 1.0, "recall": 2 / 3}
    assert compute_metrics(["recall", "precision", "f1"], *negative, 0) == {
        "recall": 0.0,
        "precision": 0.0,
        "f1": 0.0,
    }


def test_a_score_of_zero_is_a_negative_prediction():
    found = compute_metrics(["precision", "recall", "f1"], *vectors([0.0, -0.0], [1, -1]), 0)
    assert found == {"precision": 0.0, "recall": 0.0, "f1": 0.0}


def test_counts_may_come_in_any_pieces():
    random = np.random.default_rng(0)
    scores, targets = random.normal(size=100), random.choice([-1.0, 1.0], 100)
    whole, pieces = BinaryCounts(), BinaryCounts()
    whole.add(scores, targets)
    for start in range(0, 100, 7):
        pieces.add(scores[start : start + 7], targets[start : start + 7])
    pieces.add(scores[:0], targets[:0])
    assert vars(whole) == vars(pieces)
    assert whole.n_rows == 100
    assert whole.true_positives == int(((scores > 0) & (targets > 0)).sum())


# ---------------------------------------------------------------- values


def exact_value_metrics(targets: np.ndarray, values: np.ndarray) -> dict[str, float]:
    """The definitions in rational numbers."""
    truths, guesses = map(Fraction, targets.tolist()), map(Fraction, values.tolist())
    pairs = list(zip(truths, guesses, strict=True))
    mean = sum(truth for truth, _ in pairs) / len(pairs)
    squares = sum((truth - guess) ** 2 for truth, guess in pairs)
    spread = sum((truth - mean) ** 2 for truth, _ in pairs)
    return {
        "mse": float(squares / len(pairs)),
        "mae": float(sum(abs(truth - guess) for truth, guess in pairs) / len(pairs)),
        "r2": float(1 - squares / spread) if spread else float(squares == 0),
    }


@pytest.mark.parametrize("offset", [0.0, -1e8, 1e12])
@pytest.mark.parametrize("n_rows", [1, 2, 1001])
@pytest.mark.parametrize("slice_rows", [1, 64, 1 << 16])
def test_value_metrics_equal_the_definitions(n_rows, offset, slice_rows):
    random = np.random.default_rng(n_rows)
    targets = offset + random.normal(size=n_rows)
    values = targets + 0.3 * random.normal(size=n_rows)
    found = compute_metrics(
        VALUES, MemoryVector.wrap(values), MemoryVector.wrap(targets), 0, slice_rows=slice_rows
    )
    assert found == pytest.approx(exact_value_metrics(targets, values), rel=1e-13)


@pytest.mark.parametrize("n_rows", [2, 70_000])
def test_value_metrics_equal_scikit_learn(n_rows):
    random = np.random.default_rng(n_rows)
    targets = 1e6 + random.normal(size=n_rows)
    values = targets + 0.3 * random.normal(size=n_rows)
    found = compute_metrics(VALUES, MemoryVector.wrap(values), MemoryVector.wrap(targets), 0, slice_rows=999)
    expected = {
        "mse": sklearn.metrics.mean_squared_error(targets, values),
        "mae": sklearn.metrics.mean_absolute_error(targets, values),
        "r2": sklearn.metrics.r2_score(targets, values),
    }
    assert found == pytest.approx(expected, rel=1e-12)


def test_small_errors_after_large_ones_are_kept():
    values, targets = np.r_[2.0**27, np.full(5000, 0.75)], np.zeros(5001)
    found = compute_metrics(VALUES[:2], MemoryVector.wrap(values), MemoryVector.wrap(targets), 0, 1)
    assert found == {name: exact_value_metrics(targets, values)[name] for name in VALUES[:2]}
    assert found["mse"] > 2.0**54 / 5001  # what a plain sum gives


@pytest.mark.parametrize("target", [2.0, 0.1, -1e300, 5e-324])
@pytest.mark.parametrize("slice_rows", [1, 2, 1 << 16])
def test_r2_of_equal_targets(target, slice_rows):
    # The mean of three times 0.1 is not 0.1 in float64: no spread must come of that.
    targets, slices = MemoryVector.wrap(np.full(7, target)), {"slice_rows": slice_rows}
    assert compute_metrics(["r2"], targets, targets, 0, **slices) == {"r2": 1.0}
    if abs(target) < 1e150:
        wrong = MemoryVector.wrap(target + np.arange(7.0))
        assert compute_metrics(["r2"], wrong, targets, 0, **slices) == {"r2": 0.0}


def test_values_that_overflow_or_are_not_finite_are_refused():
    for values, targets in (([1e200], [0.0]), ([0.0, 0.0], [1e200, -1e200]), ([1e308], [-1e308])):
        with pytest.raises(InputError, match="range of float64"):
            compute_metrics(
                ["mse"], MemoryVector.wrap(np.array(values)), MemoryVector.wrap(np.array(targets)), 0
            )
    sums = ValueSums()
    sums.add(np.zeros(3), np.zeros(3))
    sums.add(np.zeros(0), np.zeros(0))
    with pytest.raises(InputError, match="row 4 has the target inf"):
        sums.add(np.zeros(2), np.array([0.0, np.inf]))
    with pytest.raises(InputError, match="row 3 has the value nan"):
        sums.add(np.array([np.nan]), np.zeros(1))


def test_class_metrics_of_values_say_what_to_choose():
    values = MemoryVector.wrap(np.array([0.5, 2.0]))
    with pytest.raises(InputError, match=r"row 1 has the target 2.5; .*mse, mae or r2"):
        compute_metrics(["accuracy"], values, MemoryVector.wrap(np.array([1.0, 2.5])), 0)


# ---------------------------------------------------------------- many classes


@given(
    st.integers(2, 6),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=60),
)
@settings(deadline=None)
def test_multiclass_metrics_equal_scikit_learn(n_classes, pairs):
    actual = np.array([a for a, _ in pairs]) % n_classes
    predicted = np.array([p for _, p in pairs]) % n_classes
    counts = ClassCounts(n_classes)
    half = len(pairs) // 2
    counts.add(actual[:half], predicted[:half])
    counts.add(actual[half:], predicted[half:])
    found = {name: METRICS[name].function(counts) for name in ("accuracy", "error", "macro-f1")}
    assert found == pytest.approx(
        {
            "accuracy": sklearn.metrics.accuracy_score(actual, predicted),
            "error": 1 - sklearn.metrics.accuracy_score(actual, predicted),
            "macro-f1": sklearn.metrics.f1_score(actual, predicted, average="macro"),
        }
    )


def test_codes_are_checked():
    counts = ClassCounts(3)
    for bad in ([3], [-1]):
        with pytest.raises(ValueError, match="from 0 to 2"):
            counts.add(np.array(bad), np.array([0]))
        with pytest.raises(ValueError, match="from 0 to 2"):
            counts.add(np.array([0]), np.array(bad))


def test_whether_the_lower_value_is_better() -> None:
    """Errors and losses say so in their definition: every metric of a perfect prediction is 1, or 0."""
    low = {name for name in METRICS if lower_is_better(name)}
    assert low == {
        *("error", "hamming-loss", "log-loss", "brier-score", "calibration-error"),
        *("mse", "mae", "swapped-pairs"),
    }
    assert not lower_is_better("ndcg@10")
    assert not lower_is_better("accuracy@3")

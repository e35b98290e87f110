"""Metrics of rankings against scikit-learn, SciPy and counting by definition, in memory and beyond it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import sklearn.metrics
from helpers.thinning import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau

from ooc_svm.errors import InputError, MemoryBudgetError, UsageError
from ooc_svm.evaluation import large_rankings
from ooc_svm.evaluation.large_rankings import LargeRanking, TopRows
from ooc_svm.evaluation.metrics import METRICS, requested_metrics
from ooc_svm.evaluation.query_rows import ENTRY_BYTES, QueryRows
from ooc_svm.evaluation.ranking_metrics import PairSums
from ooc_svm.evaluation.rankings import PairCounts, RankedQueries, Rankings
from ooc_svm.evaluation.workspace import Workspace
from ooc_svm.model.decision import RANKINGS
from ooc_svm.rowvectors import group_numbers
from ooc_svm.rowvectors.group_numbers import GroupNumbers
from ooc_svm.rowvectors.score_ranges import TieRuns
from ooc_svm.rowvectors.vector import DiskVector, MemoryVector
from ooc_svm.rowvectors.views import ConstantVector, MappedVector, signs

NAMES = ["ndcg@1", "ndcg@3", "ndcg@10", "ndcg@1000", "map", "kendall-tau", "swapped-pairs"]
PAIR_FIELDS = ("graded", "scored", "swapped", "tied")

scores_of_rows = st.sampled_from([-1.5, -0.0, 0.0, 5e-324, 1.0, 1.0000000000000002, 1e308]) | st.floats(-3, 3)
whole_grades = st.integers(0, 3).map(float)
any_grades = whole_grades | st.floats(0, 2)
groups_of_rows = st.lists(
    st.lists(st.tuples(scores_of_rows, whole_grades), min_size=1, max_size=12), min_size=1, max_size=6
)


def brute_pairs(scores: np.ndarray, grades: np.ndarray) -> dict[str, int]:
    higher = grades[:, None] > grades[None, :]
    return {
        "graded": int(higher.sum()),
        "scored": int((scores[:, None] > scores[None, :]).sum()),
        "swapped": int((higher & (scores[:, None] < scores[None, :])).sum()),
        "tied": int((higher & (scores[:, None] == scores[None, :])).sum()),
    }


def peer_metrics(groups: list[tuple[np.ndarray, np.ndarray]]) -> dict[str, float]:
    """All metrics with scikit-learn and SciPy, by the rules of the README."""
    found: dict[str, float] = {}
    for k in (1, 3, 10, 1000):
        values = [
            # A single row: scikit-learn refuses it.
            sklearn.metrics.ndcg_score([grades], [scores], k=k) if len(grades) > 1 else float(grades[0] > 0)
            for scores, grades in groups
        ]
        found[f"ndcg@{k}"] = float(np.mean(values))
    relevant = [(scores, grades > 0) for scores, grades in groups if (grades > 0).any()]
    if relevant:
        found["map"] = float(
            np.mean([sklearn.metrics.average_precision_score(right, scores) for scores, right in relevant])
        )
    graded = [(scores, grades) for scores, grades in groups if len(set(grades)) > 1]
    if graded:
        taus = [
            kendalltau(grades, scores).statistic if len(set(scores + 0.0)) > 1 else 0.0
            for scores, grades in graded
        ]
        found["kendall-tau"] = float(np.mean(taus))
        pairs = [brute_pairs(*group) for group in graded]
        halves = sum(2 * each["swapped"] + each["tied"] for each in pairs)
        found["swapped-pairs"] = halves / (2 * sum(each["graded"] for each in pairs))
    return found


class Counted:
    """The counts of some metrics, and the metrics from them."""

    def __init__(self, names: Any = NAMES) -> None:
        self.requested = requested_metrics(RANKINGS, names, probabilities=False)
        self.counts = {each.key: each.new_counts() for each in self.requested}

    def add(self, groups: RankedQueries) -> None:
        for counts in self.counts.values():
            counts.add(groups)

    def value(self, name: str) -> float:
        (each,) = (each for each in self.requested if each.name == name)
        return each.function(self.counts[each.key])


def found_metrics(groups: RankedQueries, names: Any = NAMES) -> dict[str, float]:
    counted = Counted(names)
    counted.add(groups)
    found = {}
    for name in names:
        try:
            found[name] = counted.value(name)
        except InputError:
            continue
    return found


def in_memory(groups: Any) -> Rankings:
    sizes = [len(scores) for scores, _ in groups]
    scores, grades = (np.concatenate([group[place] for group in groups]) for place in (0, 1))
    return Rankings(scores, grades, np.concatenate([[0], np.cumsum(sizes)]))


def large(scores: np.ndarray, grades: np.ndarray, memory: int) -> LargeRanking:
    return LargeRanking(MemoryVector.wrap(scores), MemoryVector.wrap(grades), memory)


# ---------------------------------------------------------------- groups in memory


@given(groups_of_rows)
@settings(max_examples=80, deadline=None)
def test_metrics_equal_scikit_learn_and_scipy(rows):
    groups = [tuple(np.array(column) for column in zip(*group, strict=True)) for group in rows]
    found = found_metrics(in_memory(groups))
    assert found == pytest.approx(peer_metrics(groups), rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("decimals", [0, 1, 16])
def test_metrics_of_many_groups(decimals):
    random = np.random.default_rng(decimals)
    groups = []
    for size in random.integers(1, 60, 300):
        grades = random.integers(0, 5, size) * (random.random() < 0.9) * 1.0
        groups.append(((random.normal(size=size) + 0.4 * grades).round(decimals), grades))
    found = found_metrics(in_memory(groups))
    assert found == pytest.approx(peer_metrics(groups), rel=1e-12)
    assert len(found) == len(NAMES)
    assert 0.1 < found["ndcg@10"] < 0.95
    assert 0.1 < found["swapped-pairs"] < 0.45


@given(st.lists(st.tuples(scores_of_rows, any_grades), min_size=1, max_size=60))
@settings(max_examples=examples(150), deadline=None)
def test_pairs_equal_counting_by_definition(rows):
    scores, grades = (np.array(column) for column in zip(*rows, strict=True))
    counts = in_memory([(scores, grades)]).pair_counts()
    assert {name: int(getattr(counts, name)[0]) for name in PAIR_FIELDS} == brute_pairs(scores, grades)


def test_swapped_pairs_of_two_labels_are_the_rest_of_the_auc():
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 500) * 1.0
    scores = (random.normal(size=500) + labels).round(1)
    found = found_metrics(in_memory([(scores, labels)]), ["swapped-pairs"])["swapped-pairs"]
    assert found == pytest.approx(1 - sklearn.metrics.roc_auc_score(labels, scores), rel=1e-13)


def test_ties_are_the_mean_over_their_orders():
    scores, grades = np.array([3.0, 1.0, 1.0, 1.0, 0.0]), np.array([0.0, 2.0, 0.0, 1.0, 3.0])
    random = np.random.default_rng(0)
    values = []
    for _ in range(3000):
        untied = scores + 1e-6 * random.permutation(5)
        values.append(found_metrics(in_memory([(untied, grades)]), ["ndcg@3"])["ndcg@3"])
    found = found_metrics(in_memory([(scores, grades)]), ["ndcg@3"])["ndcg@3"]
    assert np.mean(values) == pytest.approx(found, abs=0.01)
    assert np.std(values) > 0.02


# ---------------------------------------------------------------- rules


def group(scores: list[float], grades: list[float]) -> tuple[np.ndarray, np.ndarray]:
    return np.array(scores), np.array(grades)


def test_groups_that_say_nothing():
    good = group([3.0, 2.0, 1.0], [2.0, 1.0, 0.0])
    alone = found_metrics(in_memory([good]))
    assert alone == dict.fromkeys(NAMES, 1.0) | {"swapped-pairs": 0.0}
    no_relevant, single = group([1.0, 2.0], [0.0, 0.0]), group([5.0], [0.0])
    both = found_metrics(in_memory([good, no_relevant, single]))
    assert both == alone | {name: pytest.approx(1 / 3) for name in NAMES if name.startswith("ndcg")}
    one_grade = group([1.0, 2.0], [3.0, 3.0])
    assert found_metrics(in_memory([good, one_grade])) == pytest.approx(alone)
    assert found_metrics(in_memory([no_relevant, single])) == dict.fromkeys(NAMES[:4], 0.0)
    assert found_metrics(in_memory([one_grade])) == dict.fromkeys(NAMES[:5], 1.0)


def test_equal_scores_of_different_grades_are_no_correlation():
    equal = group([2.0, 2.0, -0.0, 0.0][:2], [1.0, 0.0])
    assert found_metrics(in_memory([equal]), ["kendall-tau", "swapped-pairs"]) == {
        "kendall-tau": 0.0,
        "swapped-pairs": 0.5,
    }
    zeros = group([-0.0, 0.0], [1.0, 0.0])
    assert found_metrics(in_memory([zeros]), ["swapped-pairs"]) == {"swapped-pairs": 0.5}


def test_no_value_is_said():
    counted = Counted()
    counted.add(in_memory([group([1.0, 2.0], [-1.0, -1.0])]))
    for name, reason in (
        ("ndcg@10", "the grade -1, and ndcg is for grades from 0 on"),
        ("map", "no grade is above 0"),
        ("kendall-tau", "no two rows of different labels"),
        ("swapped-pairs", "no two rows of different labels"),
    ):
        with pytest.raises(InputError, match=reason):
            counted.value(name)


def test_negative_grades_are_compared_and_not_relevant():
    scores, labels = np.array([0.5, 2.0, 1.0, 3.0]), np.array([-1.0, 1.0, -1.0, 1.0])
    found = found_metrics(in_memory([(scores, labels)]))
    assert found == {"map": 1.0, "kendall-tau": pytest.approx(kendalltau(labels, scores).statistic)} | {
        "swapped-pairs": 0.0
    }


def test_counts_past_64_bits_stay_exact():
    class Vast:
        n_queries = 1

        def pair_counts(self) -> PairCounts:
            exact = {"graded": 2**70, "scored": 2**70, "swapped": 2**68 + 1, "tied": 6}
            return PairCounts(**{name: np.array([number], object) for name, number in exact.items()})

    sums = PairSums()
    sums.add(Vast())  # type: ignore[arg-type]
    sums.add(Vast())  # type: ignore[arg-type]
    assert (sums.pairs, sums.swapped_halves) == (2**71, 2 * (2**69 + 2) + 12)
    assert METRICS["swapped-pairs"].function(sums) == (2**69 + 8) / 2**71
    assert METRICS["kendall-tau"].function(sums) == 0.5


@pytest.mark.parametrize(
    ("name", "k"),
    [
        ("ndcg@1", 1),
        ("ndcg@010", None),
        ("ndcg@0", None),
        ("ndcg@-1", None),
        ("ndcg@", None),
        ("ndcg@k", None),
        ("ndcg@1.5", None),
        ("ndcg@\u0661", None),
        ("NDCG@3", None),
        ("ndcg@" + "9" * 18, 10**18 - 1),
        ("ndcg@" + "9" * 19, None),
        ("map", None),
    ],
)
def test_names_of_ndcg(name, k):
    if k is None and name != "map":
        with pytest.raises(UsageError):
            requested_metrics(RANKINGS, name, probabilities=False)
        return
    (requested,) = requested_metrics(RANKINGS, name, probabilities=False)
    assert (requested.name, requested.k) == (name, k)


def test_more_ranks_than_rows_cost_nothing():
    groups = [group([3.0, 2.0, 1.0], [0.0, 1.0, 2.0])]
    found = found_metrics(in_memory(groups), ["ndcg@3", f"ndcg@{10**18 - 1}"])
    assert found["ndcg@3"] == found[f"ndcg@{10**18 - 1}"]


# ---------------------------------------------------------------- one large group

GRADES = {
    "few": lambda random, n: random.integers(0, 4, n) * 1.0,
    "two": lambda random, n: (random.random(n) < 0.1) * 1.0,
    "all different": lambda random, n: random.permutation(n) / 7,
    "rounded": lambda random, n: np.abs(random.normal(size=n)).round(1),
    "one": lambda random, n: np.full(n, 2.0),
    "a crowd and a few": lambda random, n: np.where(random.random(n) < 0.8, 0.3, random.random(n)),
}
SCORES = {
    "normal": lambda random, n: random.normal(size=n),
    "rounded": lambda random, n: random.normal(size=n).round(1),
    "all equal": lambda random, n: np.full(n, -2.5),
    "a crowd and a few": lambda random, n: np.where(random.random(n) < 0.8, -0.0, random.normal(size=n)),
}


@pytest.mark.parametrize("memory", [0, 60_000, 1 << 22])
@pytest.mark.parametrize("grades", GRADES)
@pytest.mark.parametrize("scores", SCORES)
def test_a_large_group_has_the_same_bits(scores, grades, memory):
    random = np.random.default_rng(len(scores) + 31 * len(grades))
    columns = SCORES[scores](random, 3000), GRADES[grades](random, 3000)
    small, other = in_memory([columns]), large(*columns, memory)
    for k in (1, 10, 700):
        if k * 64 <= memory:
            for expected, found in zip(small.discounted_gains(k), other.discounted_gains(k), strict=True):
                assert found.tobytes() == expected.tobytes()
    assert other.average_precisions().tobytes() == small.average_precisions().tobytes()
    assert other.lowest_grade() == small.lowest_grade()
    assert other.relevant().tolist() == small.relevant().tolist()
    for name in PAIR_FIELDS:
        expected, found = getattr(small.pair_counts(), name), getattr(other.pair_counts(), name)
        assert found.tolist() == expected.tolist()


@given(st.lists(st.tuples(scores_of_rows, any_grades), min_size=1, max_size=200))
@settings(max_examples=60, deadline=None)
def test_large_groups_equal_counting_by_definition(rows):
    scores, grades = (np.array(column) for column in zip(*rows, strict=True))
    counts = large(scores, grades, 0).pair_counts()
    assert {name: int(getattr(counts, name)[0]) for name in PAIR_FIELDS} == brute_pairs(scores, grades)


@given(st.lists(st.tuples(scores_of_rows, any_grades), min_size=1, max_size=60), st.integers(1, 70))
@settings(max_examples=examples(150), deadline=None)
def test_top_rows_of_any_pieces(rows, k):
    scores, grades = (np.array(column) for column in zip(*rows, strict=True))
    whole, pieces = TopRows(k), TopRows(k)
    whole.add(scores, grades)
    for start in range(0, len(scores), 3):
        pieces.add(scores[start : start + 3], grades[start : start + 3])
    for one, other in zip(whole.runs(), pieces.runs(), strict=True):
        assert one.tobytes() == other.tobytes()
    values = np.unique(scores + 0.0)
    cut = np.sort(scores)[-k] if k <= len(scores) else -np.inf
    assert whole.runs()[0].tolist() == [int((scores == value).sum()) for value in values if value >= cut]


def test_ranks_that_do_not_fit_the_memory_are_refused():
    scores = np.arange(1000.0)
    with pytest.raises(MemoryBudgetError, match=r"ndcg@900 holds the first 900 rows .* smaller k"):
        large(scores, scores, 50_000).discounted_gains(900)
    assert large(scores, scores, 50_000).discounted_gains(700)[0] > 0


class CountingVector(MemoryVector):
    """Counts the rows that are read, and the longest read."""

    longest = rows_read = 0

    def _read(self, start: int, stop: int, out: Any) -> Any:
        self.longest = max(self.longest, stop - start)
        self.rows_read += stop - start
        return super()._read(start, stop, out)


def test_reads_of_a_large_group():
    n_rows, memory = 20_000, 480_000
    random = np.random.default_rng(0)
    scores, grades = (CountingVector.wrap(random.normal(size=n_rows)) for _ in range(2))
    ranking = LargeRanking(scores, grades, memory)
    ranking.discounted_gains(10)
    assert (scores.rows_read, grades.rows_read) == (n_rows, n_rows)
    ranking.pair_counts()
    # Two reads to count equal rows and one for each part of them that is gathered. The grades are read two or
    # three times more to cut them, and with the scores once to sort them.
    gathers = -(-n_rows // (memory // 2 // 8))
    assert 1 + 2 + gathers + 1 <= scores.rows_read / n_rows <= 1 + 4 + gathers + 1
    assert 1 + 2 + gathers + 3 <= grades.rows_read / n_rows <= 1 + 4 + gathers + 6
    for vector in (scores, grades):
        assert vector.longest <= max(memory // 8 // 9, memory // 2 // 96)


def test_a_large_group_on_disk(tmp_path):
    random = np.random.default_rng(1)
    columns = random.normal(size=5000).round(2), random.integers(0, 4, 5000) * 1.0
    vectors = []
    for column in columns:
        vectors.append(DiskVector(5000, np.float64, tmp_path))
        vectors[-1].write(0, column)
    found = found_metrics(LargeRanking(*vectors, 100_000))
    assert found == found_metrics(in_memory([columns])) | {"ndcg@1000": found["ndcg@1000"]}
    for vector in vectors:
        vector.close()


def test_mapped_vectors(tmp_path):
    vector = DiskVector(5, np.float64, tmp_path)
    vector.write(0, np.array([1.0, -2.0, 0.0, 5.0, -0.0]))
    assert signs(vector).read(0, 5).tolist() == [1, -1, -1, 1, -1]
    buffer = np.zeros(3, np.int8)
    part = signs(vector).read(1, 3, buffer)
    assert part.tolist() == [-1, -1]
    assert np.shares_memory(part, buffer)
    constant = ConstantVector(5, np.int8, 1)
    assert constant.read(3, 5).tolist() == [1, 1]
    assert (constant.in_memory, constant.nbytes) == (False, 5)
    constant.close()
    mapped = MappedVector(vector, np.float64, np.abs)
    mapped.close()
    assert mapped.read(0, 2).tolist() == [1.0, 2.0]
    assert not mapped.in_memory
    for each in (mapped, constant):
        with pytest.raises(TypeError, match="cannot be written"):
            each.write(0, np.zeros(1, each.dtype))
    vector.close()


# ---------------------------------------------------------------- rows into groups


def cut_into_groups(
    columns: tuple[np.ndarray, np.ndarray], qids: np.ndarray | None, block: int, memory: int
) -> tuple[dict[str, float], list[type], int]:
    """Metrics of rows that come in blocks; and how groups were passed on."""
    counted = Counted()
    kinds: list[type] = []

    def take(groups: RankedQueries) -> None:
        kinds.append(type(groups))
        counted.add(groups)

    with Workspace(memory, ENTRY_BYTES) as workspace:
        groups = QueryRows(take, workspace)
        for start in range(0, len(columns[0]), block):
            part = slice(start, start + block)
            groups.add(columns[0][part], columns[1][part], None if qids is None else qids[part])
        groups.finish("rows")
    n_queries = next(counts for counts in counted.counts.values()).n_queries
    return {name: counted.value(name) for name in NAMES}, kinds, n_queries


@pytest.mark.parametrize("block", [1, 7, 100, 5000])
def test_groups_are_the_same_however_rows_come(block):
    random = np.random.default_rng(5)
    sizes = random.integers(1, 30, 60)
    sizes[20] = 1000
    qids = np.repeat(random.permutation(10_000)[:60], sizes)
    columns = random.normal(size=len(qids)).round(1), random.integers(0, 3, len(qids)) * 1.0
    starts = np.cumsum(sizes)[:-1]
    expected = found_metrics(
        in_memory(list(zip(*(np.split(column, starts) for column in columns), strict=True)))
    )
    for memory in (1 << 22, 100_000):
        found, kinds, n_queries = cut_into_groups(columns, qids, block, memory)
        assert found == expected
        assert n_queries == 60
        assert kinds.count(LargeRanking) == (memory == 100_000)


def test_without_qids_all_rows_are_one_query():
    random = np.random.default_rng(5)
    columns = random.normal(size=900).round(1), random.integers(0, 3, 900) * 1.0
    expected = found_metrics(in_memory([columns]))
    for memory, kind in ((1 << 22, Rankings), (80_000, LargeRanking)):
        assert cut_into_groups(columns, None, 100, memory) == (expected, [kind], 1)


def test_a_group_in_two_places_is_refused():
    columns = np.arange(6.0), np.arange(6.0)
    with pytest.raises(InputError, match=r"rows: rows of the group qid:3 are in several places; .*sort"):
        cut_into_groups(columns, np.array([3, 3, 1, 1, 3, 3]), 2, 1 << 20)
    assert cut_into_groups(columns, np.array([3, 3, 1, 1, 2, 2]), 2, 1 << 20)[2] == 3


@pytest.mark.parametrize("memory", [0, 1000, 1 << 20])
def test_numbers_of_queries_in_any_memory(memory, monkeypatch):
    monkeypatch.setattr(group_numbers, "_NUMBER_BYTES", 16)
    random = np.random.default_rng(0)
    numbers = np.unique(random.integers(0, 2**62, 300))[::-1].copy()
    for again in ([], [0], [17], [299]):
        seen = GroupNumbers(memory)
        for part in np.array_split(numbers, 7):
            seen.add(part)
        seen.add(numbers[again])
        if again:
            with pytest.raises(InputError, match=f"qid:{numbers[again[0]]} "):
                seen.check("rows")
        else:
            seen.check("rows")
        seen.close()


def test_ascending_numbers_need_no_comparison(monkeypatch):
    seen = GroupNumbers(1000)
    seen.add(np.array([0, 1, 5]))
    seen.add(np.array([6, 2**62]))
    monkeypatch.setattr(seen, "_slices", None)
    seen.check("rows")
    seen.add(np.array([7]))
    with pytest.raises(TypeError):
        seen.check("rows")
    seen.close()


def test_nothing_is_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found_metrics(in_memory([group([1.0], [0.0]), group([1.0, 1.0], [0.0, 0.0])]))


@pytest.mark.parametrize("n_rows", [2**31, 2**31 + 1, 2**32 - 1, 2**40])
def test_pairs_of_a_tie_past_64_bits_stay_exact(n_rows, monkeypatch):
    ties = TieRuns(np.zeros(1), np.array([n_rows]), np.zeros(1, np.int64))
    monkeypatch.setattr(large_rankings, "sorted_ties", lambda *arguments: iter([ties]))
    vector = ConstantVector(n_rows, np.float64, 1.0)
    assert LargeRanking(vector, vector, 1 << 20)._pairs_of_equal(vector) == n_rows * (n_rows - 1) // 2

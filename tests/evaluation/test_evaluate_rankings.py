"""Evaluation of rankings over every form of the data, with groups and without, in bounded memory."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sklearn.metrics
from helpers.scored_data import Data, linear_model, random_data, regressor
from scipy.stats import kendalltau
from typer.testing import CliRunner

from ooc_svm.cli.app import app
from ooc_svm.errors import InputError, MemoryBudgetError, UsageError
from ooc_svm.evaluation import query_rows, workspace
from ooc_svm.evaluation.evaluate import evaluate
from ooc_svm.evaluation.metrics import requested_metrics
from ooc_svm.model.decision import predicted_by
from ooc_svm.model.file import save_model
from ooc_svm.model.model import Model
from ooc_svm.rowvectors.growing import GrowingVector

N_FEATURES = 30
NAMES = ["ndcg@5", "map", "kendall-tau", "swapped-pairs"]


def graded_data(model: Model, n_queries: int = 40, seed: int = 0) -> Data:
    """Grades from 0 to 3 that the model mostly orders, in groups of 12 to 39 rows."""
    random = np.random.default_rng(seed)
    sizes = random.integers(12, 40, n_queries)
    data = random_data(int(sizes.sum()), N_FEATURES, seed=seed)
    hidden = data.scores(model)[:, 0] + random.normal(size=len(data.labels))
    grades = np.digitize(hidden, [0.5, 1.5, 2.5]).astype(np.float64)
    return Data(data.matrix, grades, np.repeat(random.permutation(500)[:n_queries], sizes))


@pytest.fixture
def model() -> Model:
    return regressor(np.random.default_rng(1).normal(size=N_FEATURES), 0.25)


def expected_metrics(data: Data, scores: Any, starts: Any) -> dict[str, float]:
    """By scikit-learn and SciPy; every group has different grades and scores."""
    groups = list(zip(np.split(scores, starts), np.split(data.labels, starts), strict=True))
    gains = [sklearn.metrics.ndcg_score([grades], [own], k=5) for own, grades in groups]
    precisions = [sklearn.metrics.average_precision_score(grades > 0, own) for own, grades in groups]
    wrong = pairs = 0.0
    for own, grades in groups:
        higher = grades[:, None] > grades[None, :]
        wrong += (higher & (own[:, None] < own[None, :])).sum()
        wrong += (higher & (own[:, None] == own[None, :])).sum() / 2
        pairs += higher.sum()
    return {
        "ndcg@5": float(np.mean(gains)),
        "map": float(np.mean(precisions)),
        "kendall-tau": float(np.mean([kendalltau(own, grades).statistic for own, grades in groups])),
        "swapped-pairs": wrong / pairs,
    }


@pytest.fixture
def graded(model: Model) -> Data:
    data = graded_data(model)
    starts = np.flatnonzero(np.diff(data.qids)) + 1
    assert all(grades.min() < grades.max() for grades in np.split(data.labels, starts))
    return data


def forms(data: Data, folder: Path) -> list[tuple[Any, dict[str, Any]]]:
    return [
        (data.text(folder / "rows.svm"), {}),
        (data.store(folder / "rows.zarr"), {}),
        (data.matrix, {"labels": data.labels, "qid": data.qids}),
    ]


def test_groups_of_any_form_of_the_data(model: Model, graded: Data, tmp_path: Path) -> None:
    scores = graded.scores(model)[:, 0]
    expected = expected_metrics(graded, scores, np.flatnonzero(np.diff(graded.qids)) + 1)
    assert 0 < expected["swapped-pairs"] < 0.4
    found = []
    for form, options in forms(graded, tmp_path):
        for threads in (1, 2):
            found.append(evaluate(model, form, NAMES, threads=threads, **options))
            assert list(found[-1]) == NAMES
    assert found[0] == pytest.approx(expected, rel=1e-12)
    assert all(each == found[0] for each in found)  # the same bits


def test_without_groups_all_rows_are_one(model: Model, graded: Data, tmp_path: Path) -> None:
    data = Data(graded.matrix, graded.labels)
    expected = expected_metrics(data, data.scores(model)[:, 0], [])
    for form, options in forms(data, tmp_path):
        assert evaluate(model, form, NAMES, **options) == pytest.approx(expected, rel=1e-12)


def test_metrics_of_values_and_of_their_order(model: Model, graded: Data) -> None:
    given = {"labels": graded.labels, "qid": graded.qids}
    both = evaluate(model, graded.matrix, ["map", "mse", "ndcg@5"], **given)
    assert list(both) == ["map", "mse", "ndcg@5"]
    for name, value in both.items():
        assert evaluate(model, graded.matrix, name, **given) == {name: value}
    assert list(evaluate(model, graded.matrix, **given)) == ["mse", "mae", "r2"]


@pytest.mark.parametrize("grouped", [False, True])
def test_two_classes_are_the_grades_1_and_0(grouped: bool) -> None:
    model = linear_model(np.random.default_rng(1).normal(size=N_FEATURES), 0.25)
    data = graded_data(model)
    labels = np.where(data.labels > 1, 1.0, -1.0)
    given = {"labels": labels, "qid": data.qids if grouped else None}
    values = regressor(model.weights, 0.25)
    names = ["auc", *NAMES, "f1"]
    found = evaluate(model, data.matrix, names, **given)
    assert list(found) == names
    assert found["auc"] == pytest.approx(sklearn.metrics.roc_auc_score(labels, data.scores(model)[:, 0]))
    expected = evaluate(values, data.matrix, NAMES, **(given | {"labels": (labels + 1) / 2}))
    assert {name: found[name] for name in NAMES} == expected
    if not grouped:
        assert found["swapped-pairs"] == pytest.approx(1 - found["auc"], rel=1e-13)


def test_scores_on_disk_give_the_same_bits(
    model: Model, graded: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors: list[GrowingVector] = []

    def on_disk(dtype: Any, memory_bytes: int, **options: Any) -> GrowingVector:
        vectors.append(GrowingVector(dtype, 0, tmp_path, **options))
        return vectors[-1]

    whole = Data(graded.matrix, graded.labels)
    for data, name in ((whole, "whole"), (graded, "graded")):
        store = data.store(tmp_path / f"{name}.zarr")
        expected = evaluate(model, store, NAMES)
        with monkeypatch.context() as patch:
            patch.setattr(workspace, "GrowingVector", on_disk)
            patch.setattr(query_rows, "ROW_BYTES", 1 << 40)  # no group fits
            assert evaluate(model, store, NAMES) == expected
    assert not any(vector.in_memory for vector in vectors if vector.n_rows)
    assert max(vector.n_rows for vector in vectors) == len(graded.labels)


def test_a_group_in_two_places(model: Model, graded: Data, tmp_path: Path) -> None:
    qids = graded.qids.copy()
    qids[-1] = qids[0]
    torn = Data(graded.matrix, graded.labels, qids)
    for form, options in forms(torn, tmp_path):
        with pytest.raises(InputError, match=rf"rows of the group qid:{qids[0]} are in several places; "):
            evaluate(model, form, "map", **options)
        assert len(evaluate(model, form, **options)) == 3  # groups do not matter here


def test_grades_below_0(model: Model, graded: Data) -> None:
    labels = np.where(graded.labels == 0, -3.0, graded.labels)
    given = {"labels": labels, "qid": graded.qids}
    with pytest.raises(InputError, match="has the grade -3, and ndcg is for grades from 0 on"):
        evaluate(model, graded.matrix, ["map", "ndcg@5"], **given)
    same = [name for name in NAMES if name != "ndcg@5"]
    assert evaluate(model, graded.matrix, same, **given) == pytest.approx(
        evaluate(model, graded.matrix, same, labels=graded.labels, qid=graded.qids)
    )


def test_rows_that_cannot_be_compared(model: Model) -> None:
    matrix = np.ones((3, 30))
    with pytest.raises(InputError, match="no two rows of different labels"):
        evaluate(model, matrix, "swapped-pairs", labels=[1.0, 2.0, 3.0], qid=[1, 2, 3])
    with pytest.raises(InputError, match="no grade is above 0"):
        evaluate(model, matrix, "map", labels=[0.0, 0.0, 0.0])
    with pytest.raises(InputError, match="no rows to evaluate"):
        evaluate(model, np.ones((0, 30)), "map", labels=[])


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ndcg@0", r"'ndcg@0' does not say how many ranks count; write for example ndcg@10"),
        ("ndcg@k", r"'ndcg@k' does not say how many ranks count"),
        ("ndcg", r"there is no metric 'ndcg'; .* mse, mae, r2, ndcg@k, map, swapped-pairs, kendall-tau"),
    ],
)
def test_names_that_are_refused(name: str, reason: str, model: Model) -> None:
    with pytest.raises(UsageError, match=reason):
        evaluate(model, "missing.svm", name)


@pytest.mark.parametrize(
    ("problem", "default", "refused"),
    [
        ("ordinal", ("swapped-pairs", "kendall-tau"), "auc"),
        ("roc-area", ("auc", "swapped-pairs"), "accuracy"),
        ("ranking", ("ndcg@10", "map", "swapped-pairs"), "mse"),
    ],
)
def test_metrics_of_the_problems_of_pairs(problem: str, default: tuple[str, ...], refused: str) -> None:
    predicted = predicted_by(SimpleNamespace(problem=problem))  # type: ignore[arg-type]

    def metric_names(names: Any = None) -> tuple[str, ...]:
        return tuple(each.name for each in requested_metrics(predicted, names, probabilities=False))

    assert metric_names() == default
    everything = ("ndcg@3", "ndcg@10", "map", "kendall-tau", "swapped-pairs")
    assert metric_names(everything) == everything
    with pytest.raises(UsageError, match=rf"{refused} is no metric for .*; .* {', '.join(default)}, "):
        metric_names(refused)


def roc_area(model: Model, positive: list[float]) -> Model:
    """The same functions as a model of the ROC area."""
    model.problem, model.loss, model.options = "roc-area", "hinge", {"positive": positive}
    return model


@pytest.mark.parametrize("order", ["mixed", "ascending", "descending"])
@pytest.mark.parametrize("pair", [(-1.0, 1.0), (1.0, 2.0), (-3.0, -2.0)])
def test_the_larger_of_two_labels(
    pair: tuple[float, float], order: str, model: Model, tmp_path: Path
) -> None:
    data = graded_data(model)
    rows = {"mixed": np.arange(len(data.labels)), "ascending": np.argsort(data.labels > 1, kind="stable")}
    rows["descending"] = rows["ascending"][::-1]
    scores, right = data.scores(model)[rows[order], 0], (data.labels > 1)[rows[order]]
    sided = Data(data.matrix[rows[order]], np.array(pair)[right.astype(int)])
    own = roc_area(model, [])
    expected = sklearn.metrics.roc_auc_score(right, scores)
    for form, options in forms(sided, tmp_path):
        found = evaluate(own, form, **options)
        assert found == pytest.approx({"auc": expected, "swapped-pairs": 1 - expected}, rel=1e-12)
    asked = evaluate(own, sided.matrix, ["map", "prbep"], labels=sided.labels)
    assert asked["map"] == pytest.approx(sklearn.metrics.average_precision_score(right, scores), rel=1e-12)


def test_labels_named_as_the_higher_rank(model: Model, graded: Data) -> None:
    right = np.isin(graded.labels, [0.0, 2.0])
    found = evaluate(roc_area(model, [2.0, 0.0]), graded.matrix, labels=graded.labels)
    expected = sklearn.metrics.roc_auc_score(right, graded.scores(model)[:, 0])
    assert found["auc"] == pytest.approx(expected, rel=1e-12)


def test_rows_of_one_label_wait_on_disk(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = graded_data(model)
    labels = np.where(np.arange(len(data.labels)) < 600, 2.0, 1.0)
    own, given = roc_area(model, []), {"labels": labels, "qid": data.qids}
    monkeypatch.setattr("ooc_svm.prediction.scores.TILE_SCORES", 64)
    expected = evaluate(own, data.matrix, ["auc", "map"], **given)
    vectors: list[GrowingVector] = []

    def on_disk(dtype: Any, memory_bytes: int, **options: Any) -> GrowingVector:
        vectors.append(GrowingVector(dtype, 0, tmp_path, **options))
        return vectors[-1]

    monkeypatch.setattr(workspace, "GrowingVector", on_disk)
    assert evaluate(own, data.matrix, ["auc", "map"], **given) == expected
    assert [vector.n_rows for vector in vectors].count(576) == 2
    assert not any(vector.in_memory for vector in vectors if vector.n_rows)


def test_labels_that_are_not_two(model: Model, graded: Data) -> None:
    ones = np.ones(len(graded.labels))
    with pytest.raises(InputError, match=r"and there are 0, 1, 2; .*as positive$"):
        evaluate(roc_area(model, []), graded.matrix, labels=graded.labels)
    with pytest.raises(InputError, match="all have the label 1; evaluate on rows of both"):
        evaluate(roc_area(model, []), graded.matrix, labels=ones)
    with pytest.raises(InputError, match="no row is positive"):
        evaluate(roc_area(model, [7.0]), graded.matrix, "auc", labels=graded.labels)
    with pytest.raises(InputError, match="no rows to evaluate"):
        evaluate(roc_area(model, []), np.ones((0, 30)), labels=[])


def test_rankings_do_not_fit_several_classes() -> None:
    several = linear_model(np.ones((3, 1)), positive=[1.0, 2.0, 3.0], negative=None, classes=(1.0, 2.0, 3.0))
    with pytest.raises(UsageError, match="ndcg@10 is no metric for several classes"):
        evaluate(several, "missing.svm", "ndcg@10")


def test_ranks_that_do_not_fit_the_memory(
    model: Model, graded: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_rows, "ROW_BYTES", 1 << 40)
    monkeypatch.setattr("ooc_svm.evaluation.large_rankings._TOP_ROW_BYTES", 1 << 40)
    with pytest.raises(MemoryBudgetError, match=r"ndcg@7 holds the first 7 rows .* allow more \(memory\)"):
        evaluate(model, graded.matrix, "ndcg@7", labels=graded.labels)


def test_the_command(model: Model, graded: Data, tmp_path: Path) -> None:
    save_model(model, tmp_path / "model")
    text = str(graded.text(tmp_path / "rows.svm"))
    options = [part for name in NAMES for part in ("--metric", name)]
    expected = evaluate(model, text, NAMES)
    done = CliRunner().invoke(app, ["evaluate", str(tmp_path / "model"), text, *options, "--json", "-"])
    assert done.exit_code == 0
    assert json.loads(done.stdout) == expected
    done = CliRunner().invoke(app, ["evaluate", str(tmp_path / "model"), text, *options])
    assert [line.split() for line in done.stdout.splitlines()] == [
        [name, f"{value:.6g}"] for name, value in expected.items()
    ]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_gains_beyond_the_numbers_are_refused(tmp_path: Path, sign: float) -> None:
    """Whether the gains of a query pass the range of float64, or only the largest that it can have."""
    grades = np.concatenate([np.ones(20), 1e308 + 1e300 * np.arange(10)])
    model = regressor([sign], problem="ranking", loss="hinge")
    matrix, given = np.arange(30.0)[:, None], {"labels": grades, "qid": np.zeros(30, np.int64)}
    with pytest.raises(InputError, match="grades of a group pass the range of float64; scale the grades"):
        evaluate(model, matrix, "ndcg@10", **given)
    assert evaluate(model, matrix, "ndcg@1", **given)["ndcg@1"] == pytest.approx(float(sign > 0))
    save_model(model, tmp_path / "m")
    lines = [f"{grade!r} qid:1 1:{row}" for row, grade in enumerate(grades.tolist())]
    (tmp_path / "rows.svm").write_text("\n".join(lines) + "\n")
    arguments = ["evaluate", str(tmp_path / "m"), str(tmp_path / "rows.svm"), "--metric", "ndcg@10"]
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, result.stdout) == (3, "")
    assert "scale the grades" in result.stderr

"""Maps of scores to probabilities: their fits against independent ones, and their place in a model's file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.scored_data import linear_model, one_vs_rest, regressor
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.isotonic import IsotonicRegression

from ooc_svm import DamageError, UsageError, load_model, save_model
from ooc_svm.catalog import CALIBRATIONS
from ooc_svm.model import file as model_file
from ooc_svm.model.calibration import Calibration, map_of
from ooc_svm.model.decision import Decision
from ooc_svm.model.file import MODEL_FILE, json_ready, model_info
from ooc_svm.model.isotonic import Isotonic
from ooc_svm.model.sigmoid import Sigmoid, targets_of
from ooc_svm.system.arrayfile import write_arrays

RNG = np.random.default_rng(4)


def counts(n_bins: int = 60, seed: int = 1, slope: float = 2.0) -> tuple[Any, Any, Any]:
    """Bins with weights of both classes, more of the positive one the higher the score."""
    rng = np.random.default_rng(seed)
    scores = np.sort(rng.standard_normal(n_bins))
    weights = rng.random(n_bins) * 5
    share = rng.beta(*(5 * np.array([expit(slope * scores), expit(-slope * scores)]) + 0.1))
    return scores, weights * (1 - share), weights * share


def likelihood(z: Any, negatives: Any, positives: Any) -> float:
    """Minus the logarithm of Platt's likelihood."""
    hits = targets_of(negatives, positives)
    return float(((negatives + positives) * np.logaddexp(0.0, z) - hits * z).sum())


class TestSigmoid:
    @pytest.mark.parametrize("seed", range(5))
    def test_it_has_the_largest_likelihood(self, seed):
        scores, negatives, positives = counts(seed=seed)
        found = Sigmoid.fit(scores, negatives, positives)
        own = likelihood(found.log_odds(scores), negatives, positives)

        def loss(numbers: Any) -> float:
            return likelihood(numbers[0] * scores + numbers[1], negatives, positives)

        best = minimize(loss, [0.0, 0.0], method="BFGS", options={"gtol": 1e-9})
        assert own <= best.fun + 1e-9
        np.testing.assert_allclose(found, best.x, atol=1e-4)
        # The likelihood is flat there: the mean probability is the mean target.
        errors = (negatives + positives) * expit(found.log_odds(scores)) - targets_of(negatives, positives)
        assert abs(errors.sum()) < 1e-6
        assert abs(errors @ scores) < 1e-6

    @pytest.mark.parametrize(("size", "shift"), [(1e-9, 0.0), (1e9, 0.0), (1e-3, 1e3), (1e150, -1e150)])
    def test_units_of_the_scores_do_not_matter(self, size, shift):
        scores, negatives, positives = counts()
        plain = Sigmoid.fit(scores, negatives, positives)
        moved = Sigmoid.fit(size * scores + shift, negatives, positives)
        odds = plain.log_odds(scores)
        np.testing.assert_allclose(moved.log_odds(size * scores + shift), odds, atol=1e-6)

    def test_targets_are_those_of_platt(self):
        sums = targets_of(np.array([3.0, 0.0]), np.array([0.0, 2.0]))
        np.testing.assert_allclose(sums, [3.0 / 5.0, 2.0 * 3.0 / 4.0])

    def test_classes_that_are_apart_have_no_probability_of_1(self):
        scores = np.array([-2.0, -1.0, 1.0, 2.0])
        found = Sigmoid.fit(scores, np.array([5.0, 5.0, 0.0, 0.0]), np.array([0.0, 0.0, 5.0, 5.0]))
        p = expit(found.log_odds(scores))
        assert found.slope > 1.0
        assert ((p > 0.0) & (p < 1.0)).all()
        assert np.mean(p) == pytest.approx(0.5, abs=1e-6)

    @pytest.mark.parametrize("scores", [[0.0], [3.5], [1.0, 1.0 + 1e-16], [1e-320, 2e-320]])
    def test_equal_scores_give_the_base_rate(self, scores):
        bins = len(scores)
        negatives, positives = np.full(bins, 30.0 / bins), np.full(bins, 10.0 / bins)
        found = Sigmoid.fit(np.array(scores), negatives, positives)
        assert found.slope == 0.0
        targets = (30 / 32 + 10 * 11 / 12) / 40
        np.testing.assert_allclose(expit(found.log_odds(np.array([-1e9, 0.0, 7.0]))), targets, rtol=1e-12)
        assert abs(targets - 0.25) < 0.01

    def test_scores_that_fall_with_the_class_give_the_base_rate(self):
        scores, negatives, positives = counts(slope=3.0)
        found = Sigmoid.fit(scores, positives, negatives)
        assert found.slope == 0.0
        # As isotonic regression does.
        flat = Isotonic.fit(scores, positives, negatives).probabilities
        assert flat.max() - flat.min() < 0.3

    @pytest.mark.parametrize(("negatives", "positives"), [([4.0, 4.0], [0.0, 0.0]), ([0.0, 0.0], [9.0, 9.0])])
    def test_one_class_alone(self, negatives, positives):
        found = Sigmoid.fit(np.array([-1.0, 1.0]), np.array(negatives), np.array(positives))
        p = expit(found.log_odds(np.array([-1.0, 1.0])))
        np.testing.assert_allclose(p, 0.1 if positives[0] == 0.0 else 19 / 20, rtol=1e-9)

    @given(st.floats(allow_nan=False, allow_infinity=False), st.floats(0.0, 1e300), st.floats(-1e300, 1e300))
    def test_log_odds_are_finite(self, score, slope, offset):
        assert np.isfinite(Sigmoid(slope, offset).log_odds(np.array([score]))).all()


class TestIsotonic:
    @pytest.mark.parametrize("seed", range(5))
    def test_it_is_that_of_scikit_learn_with_platts_targets(self, seed):
        scores, negatives, positives = counts(200, seed=seed, slope=1.0)
        found = Isotonic.fit(scores, negatives, positives)
        found.check()
        rows = negatives + positives
        reference = IsotonicRegression(out_of_bounds="clip")
        reference.fit(scores, targets_of(negatives, positives) / rows, sample_weight=rows)
        points = np.concatenate([scores, RNG.uniform(-5.0, 5.0, 500)])
        np.testing.assert_allclose(expit(found.log_odds(points)), reference.predict(points), atol=1e-9)
        assert len(found.scores) <= len(scores)

    def test_no_probability_is_0_or_1(self):
        scores = np.array([-2.0, -1.0, 1.0, 2.0])
        negatives, positives = np.array([5.0, 5.0, 0.0, 0.0]), np.array([0.0, 0.0, 5.0, 5.0])
        found = Isotonic.fit(scores, negatives, positives)
        np.testing.assert_allclose(found.probabilities, [1 / 12, 1 / 12, 11 / 12, 11 / 12])
        assert np.isfinite(found.log_odds(np.array([-1e308, 1e308]))).all()

    def test_equal_scores_give_the_base_rate(self):
        found = Isotonic.fit(np.array([3.5]), np.array([30.0]), np.array([10.0]))
        p = expit(found.log_odds(np.array([-9.0, 3.5, 9.0])))
        np.testing.assert_allclose(p, (30 / 32 + 10 * 11 / 12) / 40)


def calibrated(method: str, n: int = 1) -> Calibration:
    return Calibration(method, tuple(map_of(method).fit(*counts(seed=seed)) for seed in range(n)))


class TestModel:
    @pytest.mark.parametrize("method", CALIBRATIONS)
    def test_the_file_has_its_bits_and_a_version_of_its_own(self, method, tmp_path, monkeypatch):
        plain = one_vs_rest(RNG.standard_normal((3, 4)), 0.1, (1.0, 2.0, 3.0))
        model = replace(plain, calibration=calibrated(method, 3))
        save_model(model, tmp_path / "m")
        again = load_model(tmp_path / "m")
        X = RNG.standard_normal((20, 4))
        assert again.predict_proba(X).tobytes() == model.predict_proba(X).tobytes()
        assert model_info(again)["calibration"] == method
        assert model_info(again)["format_version"] == 3
        save_model(again, tmp_path / "n")
        assert (tmp_path / "m").read_bytes() == (tmp_path / "n").read_bytes()
        # A model without a calibration is for older programs as well, which refuse the calibrated one.
        save_model(plain, tmp_path / "plain")
        monkeypatch.setattr(model_file, "MODEL_FILE", model_file._PLAIN_FILE)
        assert load_model(tmp_path / "plain").calibration is None
        with pytest.raises(DamageError, match="format version 3, this release reads up to 1"):
            load_model(tmp_path / "m")

    def test_temperatures_take_another_version(self, tmp_path):
        own = replace(calibrated("sigmoid", 3), temperatures=np.full(3, 0.7))
        model = one_vs_rest(RNG.standard_normal((3, 4)), 0.1, (1.0, 2.0, 3.0), calibration=own)
        save_model(model, tmp_path / "m")
        again, X = load_model(tmp_path / "m"), RNG.standard_normal((20, 4))
        assert model_info(again)["format_version"] == 4
        assert again.predict_proba(X).tobytes() == model.predict_proba(X).tobytes()
        cold = replace(model, calibration=replace(own, temperatures=None)).predict_proba(X) ** (1.0 / 0.7)
        np.testing.assert_allclose(again.predict_proba(X), cold / cold.sum(axis=1, keepdims=True), rtol=1e-12)

    def test_probabilities_of_several_classes_are_divided_by_their_sum(self):
        model = one_vs_rest(
            RNG.standard_normal((3, 4)), 0.1, (1.0, 2.0, 3.0), calibration=calibrated("sigmoid", 3)
        )
        X = RNG.standard_normal((20, 4))
        each = np.column_stack(
            [
                expit(own.log_odds(column))
                for own, column in zip(model.calibration.maps, model.decision_function(X).T, strict=True)
            ]
        )
        np.testing.assert_allclose(model.predict_proba(X), each / each.sum(axis=1, keepdims=True), rtol=1e-12)

    def test_maps_follow_the_order_of_the_labels(self):
        """Functions may come in any order; probabilities are in that of `classes_`."""
        weights = RNG.standard_normal((3, 4))
        own = calibrated("sigmoid", 3)
        first = one_vs_rest(weights, 0.0, (1.0, 2.0, 3.0), calibration=own)
        order = [2, 0, 1]
        positive = [first.positive[k] for k in order]
        other = replace(
            one_vs_rest(weights[order], 0.0, (1.0, 2.0, 3.0)), positive=positive, calibration=own.of(order)
        )
        X = RNG.standard_normal((20, 4))
        np.testing.assert_allclose(other.predict_proba(X), first.predict_proba(X), rtol=1e-12)

    def test_each_c_has_its_own(self):
        model = linear_model(
            [[1.0], [2.0]], positive=[1.0, 1.0], C=(0.1, 1.0), calibration=calibrated("sigmoid", 2)
        )
        for k, C in enumerate(model.C):
            expected = expit(model.calibration.maps[k].log_odds(np.array([model.weights[k, 0]])))
            np.testing.assert_allclose(model.predict_proba(np.ones((1, 1)), C=C)[:, 1], expected)

    @pytest.mark.parametrize(
        ("calibration", "message"),
        [
            (calibrated("sigmoid", 2), "the calibration has 2 maps for 1 models"),
            ("sigmoid", "calibration of a model is 'sigmoid', not Calibration"),
        ],
    )
    def test_parts_that_do_not_fit(self, calibration, message):
        with pytest.raises(UsageError, match=message):
            linear_model([1.0], calibration=calibration)

    def test_values_have_no_classes(self):
        with pytest.raises(UsageError, match="svr gives scores, and the model has a calibration"):
            regressor([1.0], calibration=calibrated("sigmoid"))

    @pytest.mark.parametrize(
        ("method", "maps", "message"),
        [
            ("plain", (), "the calibration is 'plain', this release knows sigmoid, isotonic"),
            ("isotonic", (Sigmoid(1.0, 0.0),), "a map of the method isotonic is a Sigmoid"),
            ("sigmoid", (Sigmoid(-1.0, 0.0),), "slope -1.0"),
            ("sigmoid", (Sigmoid(1.0, np.nan),), "offset nan"),
            ("isotonic", (Isotonic(np.array([1.0, 1.0]), np.array([0.1, 0.2])),), "scores .* do not rise"),
            ("isotonic", (Isotonic(np.array([1.0, 2.0]), np.array([0.3, 0.2])),), "probabilities .* fall"),
            ("isotonic", (Isotonic(np.array([1.0, 2.0]), np.array([0.3, 1.0])),), "reach 0 or 1"),
            ("isotonic", (Isotonic(np.array([1.0, np.inf]), np.array([0.3, 0.5])),), "do not rise"),
            ("isotonic", (Isotonic(np.array([1.0, 2.0]), np.array([np.nan, 0.5])),), "fall, or reach"),
        ],
    )
    def test_what_is_no_calibration(self, method, maps, message):
        with pytest.raises(ValueError, match=message):
            Calibration(method, maps)

    @pytest.mark.parametrize("temperatures", [[1.0], [1.0, 0.0], [1.0, np.inf], [[1.0, 1.0]], [1.0, -1.0]])
    def test_what_are_no_temperatures(self, temperatures):
        with pytest.raises(ValueError, match="temperatures are not a positive number for each function"):
            replace(calibrated("sigmoid", 2), temperatures=np.array(temperatures))

    def test_the_decision_says_that_it_has_probabilities(self):
        plain = linear_model([1.0])
        assert not Decision.of(plain).has_probabilities
        assert Decision.of(replace(plain, calibration=calibrated("isotonic"))).has_probabilities


KNOTS, TWO = np.array([[0.0, 0.2], [1.0, 0.4]]), np.array([2], np.int32)


@pytest.mark.fault
@pytest.mark.parametrize(
    ("method", "arrays"),
    [
        ("sigmoid", {}),
        ("sigmoid", {"sigmoids": np.zeros((1, 3))}),
        ("sigmoid", {"sigmoids": np.zeros((1, 2), np.float32)}),
        ("sigmoid", {"sigmoids": np.zeros((2, 2))}),
        ("sigmoid", {"sigmoids": np.array([[-1.0, 0.0]])}),
        ("sigmoid", {"sigmoids": np.array([[1.0, np.inf]])}),
        ("isotonic", {"isotonic_knots": KNOTS}),
        ("isotonic", {"isotonic_knots": KNOTS, "isotonic_lengths": np.array([3], np.int32)}),
        ("isotonic", {"isotonic_knots": KNOTS, "isotonic_lengths": np.array([2, 0], np.int32)}),
        ("isotonic", {"isotonic_knots": KNOTS, "isotonic_lengths": np.array([], np.int32)}),
        ("isotonic", {"isotonic_knots": KNOTS, "isotonic_lengths": np.array([3, -1], np.int32)}),
        ("isotonic", {"isotonic_knots": KNOTS, "isotonic_lengths": np.array([[2]], np.int32)}),
        ("isotonic", {"isotonic_knots": KNOTS[::-1], "isotonic_lengths": TWO}),
        ("isotonic", {"isotonic_knots": KNOTS.ravel(), "isotonic_lengths": TWO}),
        ("sigmoid", {"sigmoids": np.zeros((1, 2)), "temperatures": np.ones(2)}),
        ("sigmoid", {"sigmoids": np.zeros((1, 2)), "temperatures": np.ones(1, np.float32)}),
        ("plain", {"sigmoids": np.zeros((1, 2))}),
        (7, {"sigmoids": np.zeros((1, 2))}),
    ],
)
def test_files_that_hold_none_are_damage(method: Any, arrays: Any, tmp_path: Path) -> None:
    model = linear_model([1.0])
    content = {name: json_ready(getattr(model, name)) for name in model_file._CONTENT_TYPES}
    for name, given_arrays in (("good", {"sigmoids": np.zeros((1, 2))}), ("bad", arrays)):
        content["calibration"] = "sigmoid" if name == "good" else method
        with (tmp_path / name).open("wb") as file:
            write_arrays(file, MODEL_FILE, content, model.functions.to_arrays() | given_arrays)
    load_model(tmp_path / "good")
    with pytest.raises(DamageError) as caught:
        load_model(tmp_path / "bad")
    assert "damaged model" in str(caught.value)

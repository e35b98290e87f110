"""The mean of the labels: finite for finite labels, and of ordinary ones with the bits of a plain sum."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from ooc_svm.cli.app import app
from ooc_svm.store import open_store
from ooc_svm.store.label_summary import LabelCollector, LabelSummary

LARGEST = float(np.finfo(np.float64).max)


def summary(labels: np.ndarray, length: int = 4, cut: int = 7) -> LabelSummary:
    collector = LabelCollector(length)
    for start in range(0, len(labels), cut):
        collector.add(labels[start : start + cut])
    return collector.summary()


@pytest.mark.parametrize(
    ("labels", "mean"),
    [
        ([1.5e308, 3e307, -1.0, 1.5e308], 8.25e307),
        ([LARGEST] * 103, LARGEST),
        ([-LARGEST] * 103, -LARGEST),
        ([LARGEST] * 40 + [-LARGEST] * 40, 0.0),
        ([1.0] * 50 + [1e308] * 50, 5e307),
        ([1e308] * 20 + [2.0] * 20, 5e307),
    ],
)
def test_it_is_finite_where_the_sum_is_not(labels: list[float], mean: float) -> None:
    for cut in (1, 7, 200):
        found = summary(np.array(labels), cut=cut)
        assert found.minimum <= found.mean <= found.maximum
        assert found.mean == pytest.approx(mean, rel=1e-14, abs=1e294)
        assert found.mean == summary(np.array(labels), cut=3).mean


def test_ordinary_labels_have_the_bits_of_a_plain_sum() -> None:
    rng = np.random.default_rng(0)
    for labels in (rng.normal(size=1001), rng.integers(-3, 4, 1001) * 1.0, rng.normal(size=1001) * 1e300):
        total = 0.0
        for start in range(0, 1001, 64):
            total += float(labels[start : start + 64].sum())
        assert summary(labels, length=64).mean == total / 1001


def test_a_store_of_such_labels_opens(tmp_path: Path) -> None:
    text, store = tmp_path / "h.svm", tmp_path / "h.zarr"
    text.write_text("1.5e308 1:1\n3e307 1:2\n-1 1:3\n1.5e308 1:3\n")
    for arguments in (["convert", text, "-o", store], ["verify", store], ["info", store]):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert result.exit_code == 0, result.stderr
    assert open_store(store).labels.mean == pytest.approx(8.25e307)

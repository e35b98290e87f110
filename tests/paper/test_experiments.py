"""The experiments of the papers run on data of their names, and what they measure is what it says."""

import bz2
import sys
from pathlib import Path

import charts
import experiment
import joachims
import nie
import numpy as np
import platt
import pytest
from scipy import sparse

import ooc_svm


def write_text(path: Path, seed: int, classes: int = 2) -> None:
    """60 rows of 12 columns as text, of overlapping classes."""
    rng = np.random.default_rng(seed)
    labels = np.arange(60) % classes
    path.parent.mkdir(exist_ok=True)
    with bz2.open(path, "wt") as file:
        for label in labels:
            x = rng.random(12) < np.where(np.arange(12) % classes == label, 0.5, 0.3)
            pairs = " ".join(f"{column + 1}:1" for column in np.flatnonzero(x))
            file.write(f"{2 * label - 1 if classes == 2 else label} {pairs}\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("data")
    write_text(path / "adult/a9a.bz2", 0)
    write_text(path / "adult/a9a.t.bz2", 1)
    write_text(path / "web/w8a.bz2", 2)
    write_text(path / "nie/connect-4.svm.bz2", 3, classes=3)
    return path


@pytest.fixture
def printed(capsys, monkeypatch):
    """Gives what a script prints."""

    def run(module, *arguments):
        monkeypatch.setattr(sys, "argv", [module.__name__, *map(str, arguments)])
        module.main()
        return capsys.readouterr().out

    return run


def first_cells(text: str) -> list[str]:
    """The first cell of each line of the tables."""
    return [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")]


def test_platt_prints_its_tables(printed):
    text = printed(platt, "nowhere", "--only", "adult-linear", "noise-linear", "--largest", "500")
    assert first_cells(text) == ["set", "set", "noise 500"]


def test_joachims_prints_and_draws(printed, folder, tmp_path):
    text = printed(joachims, folder, "--only", "epsilon", "--pictures", tmp_path)
    assert first_cells(text) == ["set", "a9a", "w8a"] * 4
    assert "<svg" in (tmp_path / "joachims-epsilon.svg").read_text()


def test_nie_prints_both_tables(printed, folder):
    text = printed(nie, folder, "--quick", "--only", "table1", "table2")
    assert first_cells(text) == ["set", "w8a", "connect-4"] * 2


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    rows = sparse.csr_matrix(rng.standard_normal((80, 5)).astype(np.float32))
    return experiment.Data("made", rows, np.where(rows @ np.ones(5) + rng.standard_normal(80) > 0, 1.0, -1.0))


def test_liblinear_comes_to_the_same_objective(data):
    """By its Newton method; its dual solvers draw rows at random and leave up to 3 % of so few rows."""
    run = experiment.trained(data, solver="streamed-smo", loss="squared-hinge", bias="none", tol=1e-6)
    w, b, _ = experiment.Liblinear(2).train(data, 1.0, 1e-6)
    assert experiment.objective(data, w, b, 1.0, p=2.0) == pytest.approx(run.report["primal"], rel=1e-5)
    assert run.points[-1].primal == run.report["primal"]
    assert run.within(run.report["primal"], 0.0)[1] == run.reads


def test_a_run_ends_by_the_epsilon_of_the_paper(data):
    C, epsilon = 50.0, 0.01
    optimum = joachims.optimum(data, C, 1e-6).report["primal"]
    tol = joachims.relative(epsilon, C, optimum)
    run = joachims.Measured(1_000).run(data, C, "cutting-plane", tol)
    assert run.report["converged"]
    assert run.report["gap"] <= epsilon * C


def test_all_pairs_have_the_objective_of_roc_area(data):
    pairs = joachims.all_pairs(data)
    C = 10.0
    own = ooc_svm.train(pairs.rows, pairs.labels, C=C / len(pairs), bias="none", tol=1e-5)
    paired = ooc_svm.train(data.rows, data.labels, problem="roc-area", C=C, tol=1e-5)
    expected = paired.report["models"][0]["primal"]
    assert own.report["models"][0]["primal"] == pytest.approx(expected, rel=1e-4)


def test_a_picture_is_the_same_again(tmp_path):
    panels = [charts.Panel("a", "n", "s", {"one": ([1, 10], [1.0, None]), "two": ([1, 10], [2.0, 3.0])}, 1.0)]
    pictures = []
    for _ in range(2):
        charts.draw(tmp_path / "picture.svg", panels)
        pictures.append((tmp_path / "picture.svg").read_bytes())
    assert pictures[0] == pictures[1]

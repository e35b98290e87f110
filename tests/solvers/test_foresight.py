"""The last read makes no more steps once its first rounds tell that it is the last."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.dual_data import plain_conjugates, plain_losses, read_all
from helpers.smo_runs import Run
from helpers.train_data import bits
from scipy import sparse

from ooc_svm import train
from ooc_svm.passes.base import Overlap
from ooc_svm.passes.rowwise import RowPass
from ooc_svm.solvers.streamed_smo import foresight
from ooc_svm.solvers.streamed_smo.foresight import Foresight, RowGaps
from ooc_svm.solvers.streamed_smo.solver import StreamedSmo
from ooc_svm.solvers.streamed_smo.sweep import ScorePass, SweepPass

OF_VALUES = ("epsilon-insensitive", "squared-epsilon-insensitive")
FORESEEN = [("hinge", 0.1), ("hinge", 10.0), *((loss, 1.0) for loss in OF_VALUES)]


def rows(n_rows=4000, n_features=600):
    rng = np.random.default_rng(0)
    matrix = sparse.random_array((n_rows, n_features), density=12 / n_features, format="csr", rng=rng)
    norms = np.maximum(np.sqrt(matrix.multiply(matrix).sum(axis=1)), 1e-9)
    matrix = sparse.csr_array(sparse.diags_array(1.0 / norms) @ matrix)
    scores = matrix @ rng.standard_normal(n_features)
    return matrix, np.where(scores + 0.2 * rng.standard_normal(n_rows) > 0, 1, -1)


def options(loss, **more):
    problem = {"problem": "svr"} if loss in OF_VALUES else {}
    return {"loss": loss, "resident": 0.5, "tol": 1e-3, **problem, **more}


@pytest.fixture
def served(monkeypatch):
    """Of each round the number of its read, and the kinds of its passes."""
    found, passes = [], StreamedSmo._passes

    def kept(self, *args):
        result = passes(self, *args)
        if self.model.space.n_features == 600:  # no warm-up
            found.append((self.certificate.passes, {type(each) for each in result}))
        return result

    monkeypatch.setattr(StreamedSmo, "_passes", kept)
    return found


def kinds_of(served, number):
    return [kinds for read, kinds in served if read == number]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("loss", "C"), FORESEEN)
def test_the_rest_of_the_last_read_scores_rows_alone(served, loss, C, threads, monkeypatch):
    found = train(*rows(), **options(loss, C=C, threads=threads)).report["models"][0]
    assert found["converged"]
    last = kinds_of(served, found["passes"] - 1)
    without = [kinds == {ScorePass} for kinds in last]
    assert 10 <= sum(without) < len(last)
    assert without == sorted(without)
    assert all(SweepPass in kinds for read, kinds in served if read < found["passes"] - 1)

    monkeypatch.setattr(foresight, "SURE", 1e-300)
    served.clear()
    expected = train(*rows(), **options(loss, C=C)).report["models"][0]
    assert expected["passes"] == found["passes"]
    assert expected["row_visits"] > found["row_visits"]
    assert all(SweepPass in kinds for _, kinds in served)


@pytest.mark.parametrize("kind", [{"bias": "free"}, {"loss": "squared-hinge"}, {"loss": "logistic"}], ids=str)
def test_steps_go_on_where_more_is_wanted_of_them(served, kind):
    report = train(*rows(), **options("hinge", C=0.1) | kind).report
    assert report["converged"]
    assert all(SweepPass in kinds for _, kinds in served)


def test_several_models_each_for_itself(served):
    costs = [0.1, 1.0, 10.0]
    models = train(*rows(), **options("hinge", C=costs)).report["models"]
    assert all(model["converged"] for model in models)
    assert sum(kinds == {ScorePass} for _, kinds in served) >= 10


@pytest.fixture
def wrong(monkeypatch):
    """The second read is taken for the last one after its first rounds; gives the numbers of such reads."""
    found, certifies = [], Foresight._certifies

    def hopeful(self, gap):
        if self.state.certificate.passes == 1:
            found.append(self.state.certificate.passes)
            return True
        return certifies(self, gap)

    monkeypatch.setattr(Foresight, "_certifies", hopeful)
    return found


def test_after_a_wrong_guess_all_steps_are_made(served, wrong):
    report = train(*rows(), **options("hinge", C=1.0)).report["models"][0]
    assert report["converged"]
    assert wrong
    assert report["passes"] > 2
    assert any(kinds == {ScorePass} for kinds in kinds_of(served, 1))
    assert all(SweepPass in kinds for kinds in kinds_of(served, 2))


def test_a_run_that_goes_on_from_a_checkpoint_knows_of_a_wrong_guess(served, wrong, tmp_path):
    whole = train(*rows(), **options("hinge", C=1.0))
    train(*rows(), **options("hinge", C=1.0, max_passes=2, checkpoint=tmp_path))
    assert len(wrong) == 4
    served.clear()
    resumed = train(*rows(), **options("hinge", C=1.0, checkpoint=tmp_path, resume=True))
    assert bits(resumed) == bits(whole)
    assert all(SweepPass in kinds for kinds in kinds_of(served, 2))


@pytest.mark.parametrize("bias", ["none", "penalized"])
@pytest.mark.parametrize("loss", ["hinge", *OF_VALUES])
def test_row_gaps_are_those_of_the_start_of_the_read(loss, bias, monkeypatch):
    """Of the rows that have been met and were not held, at the weights and the multipliers of that moment."""
    monkeypatch.setattr(foresight, "TELLING", 1e-9)
    monkeypatch.setattr(Foresight, "_certifies", lambda self, gap: self._asked == 0)
    run, reads, checked = Run(loss, bias=bias, share=0.3), -1, 0
    run.solver.stopping = replace(run.solver.stopping, tol=1e-6)
    data = run.data
    for request in run.moments():
        certificate = run.solver.certificate
        if certificate.passes > reads:
            reads = certificate.passes
            v, held, theirs = run.multipliers(), run.state.multipliers.working_set.ids, run.state.w.copy()
        for each in request.requests if isinstance(request, Overlap) else ():
            if not (isinstance(each, RowPass) and isinstance(each.rule, RowGaps)):
                continue
            met = np.zeros(len(v), np.bool_)
            for part in (part for segment in each.rows.segments for part in segment):
                met[part.start : part.stop : part.step] = True
            met[held] = False
            scores = data.matrix @ theirs + data.rho * v.sum()
            gaps = plain_losses(data.loss, data.t, scores, data.cost, data.eps)
            gaps += plain_conjugates(data.loss, v, data.t, data.cost, data.eps) - v * (data.t - scores)
            [[answer]] = run.engine.serve([request])
            assert answer[0] == pytest.approx(gaps[met].sum(), rel=1e-9, abs=1e-9)
            assert 0 < met.sum() < len(v)
            newest = read_all(run.vectors, run.model.newest)
            np.testing.assert_allclose(newest[met], (data.matrix @ theirs)[met], rtol=1e-9, atol=1e-12)
            checked += 1
    assert checked > 0

"""The last read makes no more steps once its first rounds tell that it is the last."""

from __future__ import annotations

import signal
from dataclasses import replace

import numpy as np
import pytest
from helpers.dual_data import plain_conjugates, plain_losses, read_all
from helpers.smo_runs import Run, multipliers_of
from helpers.train_data import bits
from scipy import sparse

from ooc_svm import train
from ooc_svm.errors import Interrupted
from ooc_svm.passes.base import Overlap
from ooc_svm.passes.rowwise import RowPass
from ooc_svm.solvers.streamed_smo import effort, foresight
from ooc_svm.solvers.streamed_smo.foresight import Foresight, RowGaps
from ooc_svm.solvers.streamed_smo.solver import StreamedSmo
from ooc_svm.solvers.streamed_smo.state import SmoState
from ooc_svm.solvers.streamed_smo.sweep import ScorePass, SweepPass
from ooc_svm.system import signals

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
    return {"loss": loss, "resident": 0.5, "tol": 1e-3} | problem | more


@pytest.fixture(autouse=True)
def _twenty_rounds(monkeypatch):
    """A read has 20 rounds, of which some are left when the end is foreseen; half of the rows are held."""
    monkeypatch.setitem(effort.EFFORTS, 0, replace(effort.EFFORTS[0], many=2.0))


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


def test_several_models_each_for_itself(monkeypatch):
    found, only_score = [], StreamedSmo._only_score

    def kept(self, first, reference):
        if self.model.space.n_features == 600:  # no warm-up
            found.append(self.model.C)
        return only_score(self, first, reference)

    monkeypatch.setattr(StreamedSmo, "_only_score", kept)
    models = train(*rows(), **options("hinge", C=[0.1, 1.0, 10.0])).report["models"]
    assert all(model["converged"] for model in models)
    assert len(set(found)) >= 2


@pytest.fixture
def wrong(monkeypatch):
    """The second and the third read are taken for the last one after their first rounds, if they may be."""
    found, certifies = [], Foresight._certifies

    def hopeful(self, gap):
        passes = self.state.certificate.passes
        if passes in (1, 2):
            found.append(passes)
            return True
        return certifies(self, gap)

    monkeypatch.setattr(Foresight, "_certifies", hopeful)
    return found


def test_after_a_wrong_guess_all_steps_are_made(served, wrong):
    report = train(*rows(), **options("hinge", C=1.0)).report["models"][0]
    assert report["converged"]
    assert set(wrong) == {1}
    assert report["passes"] > 2
    assert any(kinds == {ScorePass} for kinds in kinds_of(served, 1))
    assert all(SweepPass in kinds for kinds in kinds_of(served, 2))


def interrupted(data, folder, monkeypatch, *, reads, **more):
    """A run that a signal ends before its next read."""
    done = []

    def count(event):
        if event.kind == "pass":
            done.append(event)

    with monkeypatch.context() as patch:
        patch.setattr(signals, "stop_requested", lambda: signal.SIGTERM if len(done) == reads else None)
        with pytest.raises(Interrupted):
            train(*data, **options("hinge", **more), checkpoint=folder, progress=count)
    assert len(done) == reads


def test_a_run_that_goes_on_after_an_interruption_knows_of_a_wrong_guess(
    served, wrong, tmp_path, monkeypatch
):
    whole = train(*rows(), **options("hinge", C=1.0))
    interrupted(rows(), tmp_path, monkeypatch, reads=2, C=1.0)
    assert set(wrong) == {1}
    served.clear()
    resumed = train(*rows(), **options("hinge", C=1.0, checkpoint=tmp_path, resume=True))
    assert bits(resumed) == bits(whole)
    assert all(SweepPass in kinds for kinds in kinds_of(served, 2))


@pytest.mark.parametrize("tol", [1e-5, 3e-8, 1e-8])
@pytest.mark.parametrize("reads", [2, 3])
def test_a_run_that_goes_on_counts_all_rounding(tol, reads, tmp_path, monkeypatch):
    data, kind = rows(1500), {"C": 1.0, "tol": tol, "resident": 0.2}
    whole = train(*data, **options("hinge") | kind)
    interrupted(data, tmp_path, monkeypatch, reads=reads, **kind)
    resumed = train(*data, **options("hinge") | kind, checkpoint=tmp_path, resume=True)
    assert bits(resumed) == bits(whole)
    assert resumed.report["models"][0]["rounding"] == whole.report["models"][0]["rounding"]


class Several:
    """Models of three costs that share the resident rows, each with wrong guesses of its own."""

    def __init__(self, loss, bias, lanes, n_blocks):
        self.run = Run(loss, bias=bias, lanes=lanes, n_blocks=n_blocks, share=0.2)
        first = self.run.solver
        first.stopping = replace(first.stopping, tol=1e-6, max_passes=8)
        self.solvers = [first, *(self.other(first, ratio) for ratio in (0.5, 3.0))]

    def other(self, first, ratio):
        model = replace(first.model, C=first.model.C * ratio, name=f"times {ratio}")
        resident = first.state.multipliers.working_set.rows
        state = SmoState.fresh(first.model.space.n_features, len(first.rounds), resident)
        solver = StreamedSmo(
            model, first.stopping, state, first.rounds, first.n_nonzeros, first.effort, company=first.company
        )
        for name, dtype in solver.vectors.items():
            self.run.vectors.create(name, dtype)
        return solver

    def multipliers(self, solver):
        """All multipliers of a model, those of rows that have left since the last round as well."""
        names = solver.model.dual, solver.model.step
        v = multipliers_of(solver, *(read_all(self.run.vectors, name) for name in names))
        for ids, multipliers in solver._leaving:
            v[ids] = multipliers
        return v


@pytest.mark.parametrize(("lanes", "n_blocks"), [(1, 1), (2, 1), (1, 40), (4, 3)])
@pytest.mark.parametrize("bias", ["none", "penalized"])
@pytest.mark.parametrize("loss", ["hinge", "epsilon-insensitive"])
def test_every_multiplier_is_where_it_should_be(loss, bias, lanes, n_blocks, monkeypatch):
    """Between any two requests, though models rest while others take and drop resident rows."""
    rng, rests, checks = np.random.default_rng(lanes), [], []
    only_score = StreamedSmo._only_score

    def counted(self, first, reference):
        rests.append(first)
        return only_score(self, first, reference)

    monkeypatch.setattr(foresight, "TELLING", 1e-9)
    monkeypatch.setattr(Foresight, "_certifies", lambda *_: rng.random() < 0.5)
    monkeypatch.setattr(StreamedSmo, "_only_score", counted)
    several = Several(loss, bias, lanes, n_blocks)
    serve, data = several.run.engine.serve, several.run.data

    def checked(waiting):
        for solver in several.solvers:
            if solver.certificate.stop_reason is None:
                v, state = several.multipliers(solver), solver.state
                w = data.weights(v)
                np.testing.assert_allclose(state.w, w, rtol=1e-9, atol=1e-12 * max(np.abs(w).max(), 1e-9))
                assert abs(state.multipliers.total - v.sum()) <= 1e-12 * max(np.abs(v).sum(), 1e-9)
                checks.append(solver)
        return serve(waiting)

    several.run.engine.serve = checked
    several.run.engine.run(several.solvers)
    assert len(rests) >= 3
    assert len(checks) > 50


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

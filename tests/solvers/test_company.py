"""Models that share the rows in memory: what is kept, whose it is, and that each stays right."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.dual_data import dual_data, dual_model, read_all
from helpers.smo_runs import multipliers_of
from helpers.streamed_data import make_stores
from helpers.train_data import answers, bits
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.sparse import linalg

import ooc_svm.training.run
from ooc_svm import train, tune
from ooc_svm.losses.functions import FREE_PRIORITY
from ooc_svm.options import TrainOptions
from ooc_svm.solvers.streamed_smo.admission import SEVERAL, Claim, admit, squarings_of
from ooc_svm.solvers.streamed_smo.company import MOST_OFFERS, Company, room_of
from ooc_svm.solvers.streamed_smo.plan import _n_copies
from ooc_svm.solvers.streamed_smo.resident_rows import ResidentRows
from ooc_svm.solvers.streamed_smo.sweep import CandidateRows, CopiedRows, ScorePass, SweepPass
from ooc_svm.solvers.streamed_smo.working_set import WorkingSet
from ooc_svm.system.arrayfile import read_arrays, write_arrays
from ooc_svm.training.checkpoint import CHECKPOINT_FILE, state_path

pytestmark = pytest.mark.usefixtures("few_held")

N_ROWS = 200
COSTS = [0.02, 0.3, 2.0, 9.0]


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    return make_stores(tmp_path_factory.mktemp("stores"))


def copies_of(data, ids):
    part = data.matrix[ids]
    return CopiedRows(ids, part.indptr.astype(np.int64), part.indices.astype(np.int32), part.data)


def candidates(data, ids, resident, dual, priority, copies=None):
    """Rows that a lane offers, ascending; copies that are given have those that are not resident."""
    is_copied = ~np.isin(ids, resident)
    copies = copies_of(data, ids[is_copied]) if copies is None else copies
    places = np.where(is_copied, np.searchsorted(copies.ids, ids), -1)
    known = data.targets[ids], dual[ids], np.zeros(len(ids)), priority[ids]
    return CandidateRows(ids, copies, places, *known)


@given(
    seed=st.integers(0, 10**6),
    capacity=st.integers(50, 1500),
    n_models=st.sampled_from([1, 2, 3, 5, SEVERAL + 1]),
)
@settings(deadline=None, max_examples=60)
def test_the_rows_worth_most_to_any_model_are_kept_once(seed, capacity, n_models):
    rng, data = np.random.default_rng(seed), dual_data("hinge", n_rows=N_ROWS, n_features=30)
    model, sizes, order = dual_model(data), np.diff(data.matrix.indptr) + 1, 2 ** squarings_of(n_models)
    rows = ResidentRows(capacity, np.empty(0), False)
    sets = [WorkingSet(rows) for _ in range(n_models)]
    weights = rng.uniform(0.02, 1.0, n_models)
    weights[rng.integers(n_models)] = 1.0
    for _ in range(4):
        fresh, claims, worth = rng.permutation(N_ROWS)[:90], [], np.zeros(N_ROWS)
        before = [dict(zip(own.ids.tolist(), own.dual.tolist(), strict=True)) for own in sets]
        wanted = [set() for _ in sets]
        # Some models are swept as one.
        shared = copies_of(data, np.sort(np.setdiff1d(fresh, rows.ids)))
        for own, weight, asked in zip(sets, weights, wanted, strict=True):
            dual, priority = rng.random(N_ROWS), np.round(4 * rng.random(N_ROWS), 2)
            offered = np.sort(np.setdiff1d(rng.permutation(fresh)[:40], own.ids))
            own.stationarity[:] = rng.normal(size=len(own.ids))
            of_own, least = own.priorities(model, 1.0), float(rng.choice([0.0, 0.8]))
            copies = shared if rng.random() < 0.5 else None
            found = candidates(data, offered, rows.ids, dual, priority, copies)
            claims.append(Claim(own, of_own, [found], 1.0, least, float(weight)))
            ids, values = np.concatenate([own.ids, offered]), np.concatenate([of_own, priority[offered]])
            of = np.where(values >= FREE_PRIORITY, weight, weight**2 / n_models) * values
            worth[ids[values >= least]] += of[values >= least] ** order
            asked.update(ids[values >= least].tolist())
        worth **= 1.0 / order
        leaving = admit(rows, claims)
        assert len(set(rows.ids.tolist())) == len(rows.ids)
        assert rows.is_sound(30)
        assert (abs(data.matrix[rows.ids] - as_csr(rows, data)).sum() if len(rows.ids) else 0.0) == 0.0
        kept = set(rows.ids.tolist())
        # Whoever wants a row that is kept has it, and none that it does not want.
        for own, asked, had, gone in zip(sets, wanted, before, leaving, strict=True):
            assert set(own.ids.tolist()) == asked & kept
            assert own.is_sound(30)
            assert dict(zip(*(part.tolist() for part in gone), strict=True)) == {
                i: v for i, v in had.items() if i not in asked & kept
            }
            np.testing.assert_array_equal(own.targets, data.targets[own.ids])
        # What is left out is worth no more than what is kept, but for rounding.
        out = [i for i in set.union(*wanted) - kept if sizes[i] <= capacity]
        if out:
            assert worth[out].max() <= worth[list(kept)].min() + 1e-3
            assert sizes[list(kept)].sum() + sizes[out].max() > capacity


def claims_of(data, rows, sets, ids, priorities):
    """What each model asks for: the same rows, each with priorities of its own."""
    offers = (candidates(data, ids, rows.ids, np.zeros(N_ROWS), own) for own in priorities)
    model = dual_model(data)
    return [
        Claim(own, own.priorities(model, 1.0), [offer], 1.0, 0.0)
        for own, offer in zip(sets, offers, strict=True)
    ]


@pytest.mark.parametrize("most", [1, 40, 10_000])
def test_of_too_many_pairs_those_worth_most_are_kept(most):
    rng, data = np.random.default_rng(4), dual_data("hinge", n_rows=N_ROWS, n_features=30)
    rows = ResidentRows(10**6, np.empty(0), False, most_pairs=most)
    sets, ids = [WorkingSet(rows) for _ in range(3)], np.arange(50)
    priorities = np.round(FREE_PRIORITY * rng.uniform(0.1, 0.9, (3, N_ROWS)), 2)
    left = admit(rows, claims_of(data, rows, sets, ids, priorities))
    held = [set(own.ids.tolist()) for own in sets]
    assert sum(map(len, held)) == min(most, 150)
    assert set.union(*held) == set(rows.ids.tolist())
    kept = [own[i] for own, has in zip(priorities, held, strict=True) for i in has]
    out = [own[i] for own, has in zip(priorities, held, strict=True) for i in ids if i not in has]
    assert not out or max(out) <= min(kept) + 1e-3
    assert all(not len(numbers) for numbers, _ in left), "a candidate that is not taken stays where it was"
    assert all(own.is_sound(30) for own in sets)


def as_csr(rows, data):
    """The resident rows as a matrix of SciPy."""
    indptr, indices, values = rows.matrix
    shape = (len(rows.ids), data.matrix.shape[1])
    return type(data.matrix)((values, indices.astype(np.int64), indptr.astype(np.int64)), shape=shape)


def test_candidates_that_have_left_meanwhile_are_not_taken():
    data = dual_data("hinge", n_rows=N_ROWS, n_features=30)
    rows, ids = ResidentRows(1000, np.empty(0), False), np.arange(5)
    own = WorkingSet(rows)
    found = candidates(data, ids, ids, np.zeros(N_ROWS), np.ones(N_ROWS))
    [(left, multipliers)] = admit(rows, [Claim(own, np.empty(0), [found], 1.0, 0.0)])
    assert len(left) == len(multipliers) == len(rows.ids) == len(own.ids) == 0


def test_many_models_offer_no_more_together_than_some():
    assert room_of(1) == room_of(MOST_OFFERS) == 1.0
    for n_models in (MOST_OFFERS + 1, 100, 1000):
        assert n_models * room_of(n_models) == pytest.approx(MOST_OFFERS)
    few, many = (
        Company([None] * 300, _n_copies([1] * n_copies, TrainOptions(bias="none")) is not None)
        for n_copies in (MOST_OFFERS, MOST_OFFERS + 1)
    )
    assert few.room(at_once=True) == 1.0
    assert few.room(at_once=False) == many.room(at_once=True) == room_of(300)


@pytest.fixture
def offered(monkeypatch):
    """What the models of little data, whose rows are all held, have offered: a list for each admission."""
    monkeypatch.setattr("ooc_svm.solvers.streamed_smo.plan.ALL_ELEMENTS", 20_000_000)
    found = []

    def kept(rows, claims):
        found.append([part for claim in claims for part in claim.candidates])
        return admit(rows, claims)

    monkeypatch.setattr("ooc_svm.solvers.streamed_smo.company.admit", kept)
    return found


@pytest.mark.parametrize("threads", [1, 2])
def test_models_that_offer_the_same_rows_share_the_copies(offered, threads):
    """Each of many offers all rows at once, and the copies are there once."""
    report = train(*short_rows(300, 20), bias="none", threads=threads).report
    assert report["converged"]
    parts = max(offered, key=len)
    assert len(parts) == 20 > MOST_OFFERS
    assert all(len(part.ids) == len(part.copies.ids) == 300 for part in parts)
    assert len({id(part.copies) for part in parts}) == 1
    assert len({id(part.dual) for part in parts}) == 20


def test_models_of_all_folds_share_the_copies(offered):
    tune(*short_rows(300, 2), C=[0.1, 0.2, 0.4, 0.8, 1.6], folds=3)
    parts = max(offered, key=len)
    assert len(parts) == 20
    assert len({id(part.copies) for part in parts}) == 1
    assert len(parts[0].copies.ids) == 300
    assert {len(part.ids) for part in parts} <= {*range(198, 203), 300}


def short_rows(n_rows, n_classes):
    """Short rows of many classes: the free ones are ten times as many as there is room for."""
    rng = np.random.default_rng(0)
    classes = rng.integers(0, n_classes, n_rows)
    own = classes[:, None] * 30 + rng.integers(0, 30, (n_rows, 20))
    any_word = rng.zipf(1.2, (n_rows, 20)) % 2000
    words = np.where(rng.random((n_rows, 20)) < 0.3, own, any_word)
    matrix = sparse.csr_matrix((np.ones(words.size), (np.repeat(np.arange(n_rows), 20), words.ravel())))
    return sparse.csr_matrix(matrix.multiply(1.0 / linalg.norm(matrix, axis=1)[:, None])), classes


def test_many_models_need_little_room(monkeypatch):
    """By the sum of what rows are worth to all models there were 86 reads, by the norm there are 40."""
    monkeypatch.setattr("ooc_svm.solvers.streamed_smo.plan.USEFUL_ROWS", 1)
    models = train(*short_rows(600, 30), resident=0.1, tol=1e-2).report["models"]
    assert all(model["converged"] for model in models)
    assert max(model["passes"] for model in models) <= 40


@pytest.mark.parametrize("bias", ["penalized", "free"])
def test_with_little_room_a_run_goes_on_to_the_bit(bias, tmp_path, monkeypatch):
    monkeypatch.setattr("ooc_svm.solvers.streamed_smo.plan.USEFUL_ROWS", 1)
    rows, options = short_rows(300, 10), {"resident": 0.1, "bias": bias, "tol": 1e-4}
    whole = train(*rows, max_passes=5, **options)
    train(*rows, max_passes=2, checkpoint=tmp_path, **options)
    resumed = train(*rows, max_passes=5, checkpoint=tmp_path, resume=True, **options)
    assert whole.report["passes"] == 5
    assert bits(resumed) == bits(whole)
    assert answers(resumed.report) == answers(whole.report)


@pytest.mark.parametrize("blocks", ["few", "many"])
@pytest.mark.parametrize(
    "options",
    [
        {"loss": "hinge", "bias": "none", "scale": "std"},
        {"loss": "squared-hinge", "bias": "free", "lanes": 2, "threads": 2},
        {"loss": "logistic", "C": [*COSTS, 20.0, 30.0]},
        {"problem": "svr", "C": [*COSTS, 20.0]},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_passes_served_as_one_change_no_bit(stores, options, blocks, monkeypatch):
    """The products of several models at a time, and of each by itself."""
    served, fuse = [], SweepPass.fuse

    def counted(parts):
        served.append(len(parts))
        return fuse(parts)

    monkeypatch.setattr(SweepPass, "fuse", staticmethod(counted))
    options = {"C": COSTS, "resident": 0.1, "max_passes": 4, **options}
    found = []
    for least, most in ((2, 3), (10**9, 10**9)):
        for kind in (SweepPass, ScorePass):
            monkeypatch.setattr(kind, "fewest", least)
            monkeypatch.setattr(kind, "most", most)
        served.clear()
        found.append(train(stores[options.get("problem", "svc"), blocks], **options))
        assert (max(served, default=0) in (2, 3)) if least == 2 else not served
    together, apart = found
    assert bits(together) == bits(apart)
    assert answers(together.report) == answers(apart.report)


@pytest.fixture
def runs(monkeypatch):
    """The runs of the trainings of a test, with row vectors as they are at the end."""
    found, make_model = [], ooc_svm.training.run.make_model

    def keep(run, **options):
        vectors = {name: read_all(run.engine.vectors, name) for name in run._saved_vectors()}
        found.append((run.solvers, vectors))
        return make_model(run, **options)

    monkeypatch.setattr(ooc_svm.training.run, "make_model", keep)
    return found


@pytest.mark.parametrize("bias", ["none", "penalized", "free"])
@pytest.mark.parametrize("problem", ["svc", "svr"])
def test_models_that_end_give_their_rows_back(stores, runs, problem, bias):
    options = {"problem": problem, "bias": bias, "C": [1e-5, *COSTS], "resident": 0.1, "tol": 1e-4}
    model = train(stores[problem, "many"], **options)
    assert model.report["converged"]
    solvers, vectors = runs[-1]
    passes = [solver.certificate.passes for solver in solvers]
    assert min(passes) < max(passes)
    for solver in solvers:
        state, held = solver.state, solver.state.multipliers.working_set
        assert len(held.places) == 0 or solver.certificate.passes >= max(passes) - 1
        assert held.rows is solvers[0].state.multipliers.working_set.rows
        v = multipliers_of(solver, vectors[solver.model.dual], vectors[solver.model.step])
        assert state.multipliers.total == pytest.approx(v.sum(), abs=1e-7 * np.abs(v).sum())
        if bias == "free" and not len(held.places):
            assert abs(v.sum()) <= 1e-9 * np.abs(v).sum()
    held = solvers[0].state.multipliers.working_set.rows
    assert len(held.ids) + len(held.indices) <= held.capacity


@pytest.mark.parametrize("bias", ["none", "penalized", "free"])
def test_threads_and_resumption_change_no_bits(stores, tmp_path, bias):
    options = {"bias": bias, "C": COSTS, "resident": 0.1, "tol": 1e-5}
    store = stores["svc", "few"]
    whole = train(store, **options, threads=1)
    assert whole.report["passes"] > 3
    assert bits(train(store, **options, threads=3)) == bits(whole)
    # Stopped after each pass: what any of the stops changed would be seen at the end.
    for passes in range(1, whole.report["passes"] + 1):
        own = {"checkpoint": tmp_path / "stopped", "resume": passes > 1, "max_passes": passes}
        gone_on = train(store, **options, **own)
    assert answers(gone_on.report) == answers(whole.report)
    assert bits(gone_on) == bits(whole)


def as_older(folder):
    """Make the checkpoints of a folder those of a release whose models each had resident rows."""
    for place in (0, 1):
        path = state_path(folder, place)
        content, arrays = read_arrays(path, CHECKPOINT_FILE)
        n_models = len(content["facts"]["C"])
        parameters = content["facts"]["parameters"]
        content["facts"]["parameters"] = {"capacity": -(-parameters["resident_elements"] // n_models)}
        ids, indptr, indices, values, least = (
            arrays[f"0/residents/{name}"] for name in ("ids", "indptr", "indices", "values", "least")
        )
        for k in range(n_models):
            places = arrays.pop(f"{k}/residents/places")
            parts = [np.arange(indptr[i], indptr[i + 1]) for i in places]
            chosen = np.concatenate([np.empty(0, np.int64), *parts])
            lengths = np.concatenate([[0], np.cumsum(np.diff(indptr)[places])])
            own = {"ids": ids[places], "indptr": lengths, "indices": indices[chosen], "least": least}
            own["values"] = values[chosen] if len(values) else values
            arrays |= {f"{k}/residents/{name}": array for name, array in own.items()}
        with path.open("wb") as file:
            write_arrays(file, CHECKPOINT_FILE, content, arrays)


@pytest.mark.parametrize("costs", [[2.0], COSTS])
@pytest.mark.parametrize("bias", ["none", "free"])
def test_a_run_whose_models_each_had_rows_goes_on(stores, tmp_path, bias, costs):
    """The rows of all are put together: what one has besides is as if it had been resident here."""
    # A quarter of that is cut into as many rounds.
    store, options = stores["svc", "many"], {"bias": bias, "C": costs, "tol": 1e-5, "resident": 0.248}
    own = {"checkpoint": tmp_path / "c"}
    train(store, **options, **own, max_passes=2)
    as_older(tmp_path / "c")
    gone_on, whole = train(store, **options, **own, resume=True), train(store, **options)
    assert gone_on.report["converged"]
    assert abs(gone_on.report["passes"] - whole.report["passes"]) <= 1
    # Whoever goes on once more finds what this release has saved.
    assert train(store, **options, **own, resume=True).report["passes"] == gone_on.report["passes"]

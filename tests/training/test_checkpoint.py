"""Checkpoints: what resumes has the same bits as what was never stopped, and what is damaged says so."""

from __future__ import annotations

import errno
import math
import os
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.killed_runs import run_all
from helpers.train_data import answers, bits, make_store, store_rows

from ooc_svm import train
from ooc_svm.errors import DamageError, MemoryBudgetError, StorageError, UsageError
from ooc_svm.solvers.cutting_plane import bundle
from ooc_svm.solvers.cutting_plane.master import solve_master
from ooc_svm.solvers.streamed_smo import effort
from ooc_svm.system.arrayfile import read_arrays, write_arrays
from ooc_svm.training import engines, together
from ooc_svm.training.checkpoint import CHECKPOINT_FILE, saved_parameters

pytestmark = pytest.mark.usefixtures("few_held")

module = sys.modules[train.__module__]

SOLVERS = ["ocas", "cutting-plane", "streamed-smo", "smo"]
FASTER = ["ocas", "streamed-smo"]
BLOCKS = {"chunk_elements": 500, "chunk_rows": 100, "block_rows": 100}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Rows with weights in a handful of blocks."""
    weights = np.random.default_rng(1).integers(0, 3, 300) * 0.5
    return make_store(tmp_path_factory.mktemp("store") / "s", *store_rows(), weights=weights, **BLOCKS)


@pytest.fixture(autouse=True)
def _every_pass(monkeypatch):
    """A checkpoint is written after every pass, however long the last one took."""
    monkeypatch.setattr("ooc_svm.training.run.CHECKPOINT_SHARE", math.inf)


class Stop(Exception):
    """Ends a run from its progress callback."""


@pytest.mark.parametrize("inside", ["", "states", "X/states"])
def test_no_checkpoint_lies_in_a_store(store, inside):
    before = sorted(store.rglob("*"))
    with pytest.raises(UsageError, match=r"nothing is saved in the Zarr store .*; give checkpoint another f"):
        train(store, checkpoint=store / inside)
    assert sorted(store.rglob("*")) == before


def stopped(data, *arguments, passes, **options):
    """Train until the checkpoint of this pass is written."""

    def progress(event):
        if event.kind == "pass" and event.passes == passes + 1:
            raise Stop

    with pytest.raises(Stop):
        train(data, *arguments, progress=progress, **options)


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


def newest(folder: Path) -> int:
    """The place of the newest state."""
    passes = [read_arrays(folder / f"checkpoint-{n}.state", CHECKPOINT_FILE)[0]["pass"] for n in (0, 1)]
    return int(np.argmax(passes))


@pytest.mark.fault
class TestKilled:
    @pytest.mark.parametrize(
        "options",
        [
            {"solver": "ocas", "cut_groups": 2},
            {"solver": "ocas", "C": [0.1, 1.0], "scale": "std"},
            {"solver": "cutting-plane", "C": [0.1, 1.0], "scale": "maxabs", "bias": "penalized"},
            {"solver": "ocas", "C": [0.1, 1.0], "bias": "free", "cut_groups": 2},
            {"solver": "cutting-plane", "problem": "nu-svc", "nu": 0.6},
            {"solver": "ocas", "problem": "nu-svr", "nu": 0.4},
            {"solver": "streamed-smo", "C": [0.1, 1.0], "scale": "maxabs", "bias": "penalized"},
            {"solver": "streamed-smo", "problem": "nu-svc", "nu": 0.6, "scale": "std"},
            {"solver": "streamed-smo", "problem": "nu-svr", "nu": 0.4, "C": [0.1, 1.0]},
        ],
    )
    def test_after_every_pass(self, fork_server, store, tmp_path, options):
        options = options | {"max_passes": 4}
        whole = train(store, **options)
        numbers = [row["pass"] for row in whole.report["history"]]
        runs = []
        for number in numbers:
            wanted = options | {"checkpoint": str(tmp_path / str(number))}
            runs.append({"data": str(store), "options": wanted, "kill_pass": number})
            runs.append({"data": str(store), "options": wanted | {"resume": True}})
        ends = run_all(fork_server, runs, tmp_path)
        for end in ends[1::2]:
            assert end.answer["bits"] == bits(whole).hex()
            assert answers(end.answer["report"]) == answers(whole.report)
            assert end.answer["report"]["passes"] == whole.report["passes"]

    @pytest.mark.parametrize("solver", FASTER)
    def test_at_every_step_of_writing(self, fork_server, store, tmp_path, solver):
        options = {"solver": solver, "max_passes": 3}
        whole = train(store, **options)
        run = {"data": str(store), "options": options | {"checkpoint": str(tmp_path / "whole")}}
        calls = run_all(fork_server, [run], tmp_path)[0].calls
        # Three checkpoints of two files: each file and its folder are synced, and it is renamed.
        assert calls == 3 * 2 * 3
        runs = []
        for call in range(1, calls + 1):
            wanted = options | {"checkpoint": str(tmp_path / str(call))}
            runs.append({"data": str(store), "options": wanted, "kill_call": call})
            runs.append({"data": str(store), "options": wanted | {"resume": True}})
        ends = run_all(fork_server, runs, tmp_path)
        for end in ends[1::2]:
            assert end.answer["bits"] == bits(whole).hex()
            assert answers(end.answer["report"]) == answers(whole.report)
        for call in range(1, calls + 1):
            assert leftovers(tmp_path / str(call)) == []


class TestResume:
    @pytest.mark.parametrize("solver", SOLVERS)
    def test_with_other_threads_and_memory(self, store, tmp_path, solver):
        options = {"solver": solver, "checkpoint": tmp_path / "c"}
        stopped(store, passes=4, threads=1, memory="400MB", **options)
        resumed = train(store, resume=True, threads=3, memory="1GB", **options)
        assert bits(resumed) == bits(train(store, solver=solver))

    @pytest.mark.parametrize("solver", FASTER)
    def test_with_row_vectors_on_disk(self, store, tmp_path, monkeypatch, solver):
        whole = train(store, solver=solver)
        divide = engines.divide
        monkeypatch.setattr(engines, "divide", lambda *a, **k: replace(divide(*a, **k), row_vector_bytes=0))
        options = {"solver": solver, "checkpoint": tmp_path / "c"}
        stopped(store, passes=4, **options)
        assert bits(train(store, resume=True, **options)) == bits(whole)

    @pytest.mark.parametrize("solver", SOLVERS)
    def test_of_a_matrix(self, tmp_path, solver):
        rows = store_rows()
        options = {"solver": solver, "checkpoint": tmp_path / "c"}
        stopped(*rows, passes=2, **options)
        resumed = train(*rows, resume=True, **options)
        assert bits(resumed) == bits(train(*rows, solver=solver))

    def test_the_share_of_the_saved_state_is_kept(self, store, tmp_path, monkeypatch):
        whole = train(store)
        stopped(store, passes=4, checkpoint=tmp_path / "c")
        monkeypatch.setattr("ooc_svm.solvers.streamed_smo.plan.SHARES", (0.05,))
        resumed = train(store, resume=True, checkpoint=tmp_path / "c")
        assert bits(resumed) == bits(whole) != bits(train(store))
        assert resumed.report["resident"] == whole.report["resident"] == pytest.approx(0.1, abs=1e-3)

    @pytest.mark.parametrize("says", [True, False])
    def test_so_are_its_rounds(self, tmp_path, monkeypatch, says):
        """Releases before did not name them, but for how a read is cut."""
        store = make_store(tmp_path / "s", *store_rows(3000), chunk_rows=1000, block_rows=1000)
        whole = train(store, tol=1e-6)
        stopped(store, passes=2, tol=1e-6, checkpoint=tmp_path / "c")
        own = effort.EFFORTS[0]
        monkeypatch.setitem(effort.EFFORTS, 0, replace(own, rounds=2, max_round_ratio=9.0))
        if not says:

            def unnamed(saved):
                del saved["parameters"]["rounds"]
                return saved_parameters(saved)

            monkeypatch.setattr(together, "saved_parameters", unnamed)
        resumed = train(store, tol=1e-6, resume=True, checkpoint=tmp_path / "c")
        assert bits(resumed) == bits(whole) != bits(train(store, tol=1e-6))

    def test_the_parameters_of_the_saved_state_are_kept(self, store, tmp_path, monkeypatch):
        options = {"checkpoint": tmp_path / "c", "cut_groups": 3}
        monkeypatch.setattr("ooc_svm.solvers.cutting_plane.plan.PLAIN_CUTS", 60)
        whole = train(store, cut_groups=3)
        stopped(store, passes=4, **options)
        monkeypatch.setattr("ooc_svm.solvers.cutting_plane.plan.PLAIN_CUTS", 200)
        resumed = train(store, resume=True, **options)
        assert bits(resumed) == bits(whole)
        assert resumed.report["max_cuts"] == whole.report["max_cuts"] == 60

    def test_with_less_memory_than_the_saved_cuts_need(self, tmp_path):
        matrix, labels = store_rows(200, 50_000, density=2e-3)
        options = {"solver": "ocas", "checkpoint": tmp_path / "c"}
        stopped(matrix, labels, passes=2, memory="1GB", **options)
        small = train(matrix, labels, memory="343MB", max_passes=1, solver="ocas")
        assert small.report["max_cuts"] < 200
        with pytest.raises(MemoryBudgetError, match=r"needs .* allowed are 343 MB"):
            train(matrix, labels, resume=True, memory="343MB", **options)

    @pytest.mark.parametrize("solver", SOLVERS)
    def test_to_a_tighter_tolerance(self, store, tmp_path, solver):
        options = {"solver": solver, "checkpoint": tmp_path / "c", "C": (0.1, 1.0)}
        loose = train(store, tol=0.05, **options).report
        tight = train(store, tol=1e-3, resume=True, **options).report
        assert tight["converged"]
        assert all(row["relative_gap"] <= 1e-3 for row in tight["models"])
        assert len({row["passes"] for row in loose["models"]}) == 2
        assert tight["passes"] < sum(row["passes"] for row in tight["models"])
        assert tight["history"][: len(loose["history"])] == loose["history"]
        assert [row["pass"] for row in tight["history"]] == list(range(1, tight["passes"] + 1))

    @pytest.mark.parametrize("solver", SOLVERS)
    def test_with_more_passes_allowed(self, store, tmp_path, solver):
        options = {"solver": solver, "C": (0.01, 1.0)}
        saved = {"checkpoint": tmp_path / "c"}
        assert not train(store, max_passes=3, **options, **saved).report["converged"]
        resumed = train(store, resume=True, **options, **saved)
        whole = train(store, **options)
        assert bits(resumed) == bits(whole)
        assert answers(resumed.report) == answers(whole.report)

    @pytest.mark.parametrize("solver", SOLVERS)
    def test_where_some_models_are_done(self, store, tmp_path, solver):
        options = {"solver": solver, "C": (0.001, 1.0)}
        whole = train(store, **options)
        first, last = (row["passes"] for row in whole.report["models"])
        assert first + 1 < last
        stopped(store, passes=first + 1, checkpoint=tmp_path / "c", **options)
        resumed = train(store, resume=True, checkpoint=tmp_path / "c", **options)
        assert bits(resumed) == bits(whole)
        assert answers(resumed.report) == answers(whole.report)

    @pytest.mark.parametrize("solver", SOLVERS)
    def test_of_a_run_that_is_done(self, store, tmp_path, solver):
        done = train(store, checkpoint=tmp_path / "c", solver=solver)
        again = train(store, checkpoint=tmp_path / "c", solver=solver, resume=True)
        assert bits(again) == bits(done)
        assert answers(again.report) == answers(done.report)
        assert again.report["passes"] == done.report["passes"]
        # One read more, which is not counted: what the state says is checked.
        assert again.report["bytes_read"] > done.report["bytes_read"]

    @pytest.mark.parametrize("solver", FASTER)
    def test_of_a_run_without_progress(self, tmp_path, solver):
        matrix, labels = store_rows(60, 5, seed=11)
        options = {"tol": 1e-17, "checkpoint": tmp_path / "c", "solver": solver}
        done = train(matrix, labels, **options)
        again = train(matrix, labels, resume=True, **options)
        assert done.report["stop_reason"] in ("no-progress", "certified")
        assert answers(again.report) == answers(done.report)

    def test_from_nothing_begins_anew(self, store, tmp_path):
        for folder in (tmp_path / "absent", tmp_path):
            model = train(store, resume=True, checkpoint=folder)
            assert bits(model) == bits(train(store))
            assert (folder / "checkpoint-0.state").exists()

    def test_without_a_folder(self, store):
        with pytest.raises(UsageError, match="resume needs checkpoint, the folder"):
            train(store, resume=True)

    def test_beside_the_state_of_another_run(self, store, tmp_path):
        train(store, C=0.1, checkpoint=tmp_path / "c")
        stopped(store, passes=1, checkpoint=tmp_path / "c")
        resumed = train(store, resume=True, checkpoint=tmp_path / "c")
        assert bits(resumed) == bits(train(store))

    def test_only_what_the_data_cannot_give_again_is_saved(self, store, tmp_path):
        train(store, checkpoint=tmp_path / "plain", solver="cutting-plane")
        train(store, checkpoint=tmp_path / "search", solver="ocas")
        train(store, checkpoint=tmp_path / "sweeps", solver="streamed-smo")
        names = ("plain", "search", "sweeps")
        sizes = [(tmp_path / name / "checkpoint-0.vectors").stat().st_size for name in names]
        assert sizes == [0, 2 * 8 * 300, 4 * 8 * 300]


class TestRefused:
    def test_other_data_or_options(self, store, tmp_path):
        matrix, labels = store_rows()
        options = {"checkpoint": tmp_path / "c", "max_passes": 2}
        train(matrix, labels, **options)
        wider = matrix.copy()
        wider.resize(300, 41)
        other = matrix.copy()
        other.data[0] += 1.0
        manifest, content = "the checksums in the manifest", "all bytes of the matrix"
        for data, how in (((wider, labels), content), ((other, labels), content), ((store,), manifest)):
            with pytest.raises(DamageError, match=f"a run on other data .*{how}.*; give data and options"):
                train(*data, resume=True, **options)
        changed = [{"C": 2.0}, {"bias": "none"}, {"scale": "std"}, {"solver": "cutting-plane"}]
        changed += [{"class_weight": "balanced"}, {"positive": -1}, {"cut_groups": 2}, {"C": (1.0, 2.0)}]
        changed += [{"bias": "free"}, {"seed": 1}, {"resident": 0.1}, {"loss": "squared-hinge"}]
        for each in changed:
            [name] = each
            named = rf"was saved by a run with other options \(.*{name}.*\); give data and"
            with pytest.raises(DamageError, match=named):
                train(matrix, labels, resume=True, **(options | each))
        for changed_labels, weights in ((-labels, None), (labels, np.ones(300))):
            with pytest.raises(DamageError, match="a run on other data"):
                train(matrix, changed_labels, sample_weight=weights, resume=True, **options)
        train(matrix, labels, resume=True, **options)

    def test_a_folder_that_cannot_be_made(self, store, tmp_path):
        (tmp_path / "file").touch()
        for name in ("file", "file/c"):
            with pytest.raises(StorageError, match="cannot be made for checkpoints"):
                train(store, checkpoint=tmp_path / name)


@pytest.mark.fault
class TestDamage:
    @pytest.fixture(params=SOLVERS)
    def saved(self, request, store, tmp_path):
        """Options of a run that was stopped, with two checkpoints."""
        options = {"solver": request.param, "checkpoint": tmp_path / "c"}
        stopped(store, passes=4, **options)
        return options

    def flip(self, path):
        content = bytearray(path.read_bytes())
        # The arrays have zeros between them, which are checked in another way.
        middle = next(k for k in range(len(content) // 2, len(content)) if content[k])
        content[middle] ^= 4
        path.write_bytes(content)

    def cut(self, path):
        os.truncate(path, path.stat().st_size - 1)

    @pytest.mark.parametrize("how", ["flip", "cut", "unlink"])
    @pytest.mark.parametrize("part", ["state", "vectors"])
    def test_the_newest(self, store, saved, how, part):
        place = newest(saved["checkpoint"])
        path = saved["checkpoint"] / f"checkpoint-{place}.{part}"
        if path.stat().st_size == 0:
            pytest.skip("this solver saves no row vectors")
        {"flip": self.flip, "cut": self.cut, "unlink": os.unlink}[how](path)
        if (how, part) == ("unlink", "state"):  # as if it had never been written
            resumed = train(store, resume=True, **saved)
        else:
            with pytest.warns(UserWarning, match=rf"{path.name}.*; going on from pass 3"):
                resumed = train(store, resume=True, **saved)
        assert bits(resumed) == bits(train(store, solver=saved["solver"]))

    def test_both(self, store, saved):
        for place in (0, 1):
            self.flip(saved["checkpoint"] / f"checkpoint-{place}.state")
        with pytest.raises(DamageError, match=r"checkpoint-\d.state: .*checksum"):
            train(store, resume=True, **saved)

    def test_a_state_with_the_row_vectors_of_another_pass(self, store, tmp_path):
        stopped(store, passes=4, checkpoint=tmp_path / "c")
        place = newest(tmp_path / "c")
        names = [tmp_path / "c" / f"checkpoint-{n}.vectors" for n in (place, 1 - place)]
        shutil.copy(names[1], names[0])
        with pytest.warns(UserWarning, match=r"checksum of the row vectors is wrong; going on from pass 3"):
            resumed = train(store, resume=True, checkpoint=tmp_path / "c")
        assert bits(resumed) == bits(train(store))

    @pytest.mark.parametrize("solver", FASTER)
    @pytest.mark.parametrize("call", ["fsync", "rename"])
    def test_a_full_disk_ends_the_run_and_the_state_before_is_whole(
        self, store, tmp_path, monkeypatch, call, solver
    ):
        original, calls = getattr(os, call), []

        def full(*arguments):
            calls.append(arguments)
            if len(calls) == 8:
                raise OSError(errno.ENOSPC, "No space left on device")
            return original(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(os, call, full)
            with pytest.raises(StorageError, match=r"checkpoint-\d.*No space left on device"):
                train(store, checkpoint=tmp_path / "c", solver=solver)
        assert len(calls) >= 8
        assert leftovers(tmp_path / "c") == []
        resumed = train(store, resume=True, checkpoint=tmp_path / "c", solver=solver)
        assert bits(resumed) == bits(train(store, solver=solver))


@pytest.fixture(scope="module", params=SOLVERS)
def written(request, store, tmp_path_factory):
    """Solver and folder of a run with two checkpoints."""
    folder = tmp_path_factory.mktemp("written") / "c"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ooc_svm.training.run.CHECKPOINT_SHARE", math.inf)
        train(store, solver=request.param, checkpoint=folder, max_passes=3)
    return request.param, folder


def changed(path, change):
    """What changes one of the arrays."""
    return lambda content, arrays: arrays.update({path: change(arrays[path])})


def parameters(**values):
    return lambda content, arrays: content["facts"]["parameters"].update(values)


COMMON = [
    lambda content, arrays: content.pop("facts"),
    lambda content, arrays: content.update({"pass": "3"}),
    lambda content, arrays: content["facts"].pop("parameters"),
    lambda content, arrays: content["facts"]["parameters"].clear(),
    parameters(more=1.0),
    parameters(groups=1.0),
    parameters(resident_elements=0, max_cuts=0),
    lambda content, arrays: content["facts"].update(history=None),
    lambda content, arrays: content["facts"].update(passes="3"),
    lambda content, arrays: content["vectors"].update(names=["codes"]),
    lambda content, arrays: content["vectors"].update(names=None),
    lambda content, arrays: arrays.pop("0/w"),
    changed("0/w", lambda w: w[:-1]),
    changed("0/best", lambda w: w.astype(np.float32)),
    changed("0/best", lambda w: w[None]),
    changed("0/certificate/passes", lambda passes: np.array([1, 2])),
    changed("0/certificate/history", lambda rows: np.ones((3, 2))),
]
CUTS, SWEEPS, PLATT = ("ocas", "cutting-plane"), ("streamed-smo",), ("smo",)
OWN = [
    (CUTS, changed("0/bundle/planes", lambda planes: planes[:, 1:])),
    (CUTS, changed("0/bundle/gram", lambda gram: gram[1:])),
    (CUTS, changed("0/bundle/beta", lambda beta: beta[1:])),
    (CUTS, changed("0/bundle/group", lambda group: group + 7)),
    (CUTS, changed("0/bundle/group", lambda group: group - 1)),
    (CUTS, lambda content, arrays: content["facts"]["parameters"].pop("max_cuts")),
    (CUTS, parameters(groups=0)),
    (CUTS, parameters(points=4)),
    (CUTS, parameters(bins=2**31)),
    (CUTS, parameters(max_cuts=-5)),
    (CUTS, parameters(max_cuts=2)),
    (SWEEPS, changed("0/residents/ids", lambda ids: ids[1:])),
    (SWEEPS, changed("0/residents/indices", lambda ids: ids + 40)),
    (SWEEPS, changed("0/residents/indices", lambda ids: -ids - 1)),
    (SWEEPS, changed("0/residents/indices", lambda ids: ids.astype(np.int64))),
    (SWEEPS, changed("0/residents/indptr", lambda indptr: indptr + 1)),
    (SWEEPS, changed("0/residents/indptr", lambda indptr: indptr[::-1].copy())),
    (SWEEPS, changed("0/residents/indptr", lambda indptr: indptr[:-1])),
    (SWEEPS, changed("0/residents/values", lambda values: values[1:])),
    (SWEEPS, changed("0/residents/values", lambda values: values.astype(np.float32))),
    (SWEEPS, changed("0/residents/targets", lambda targets: targets[:, 1:])),
    (SWEEPS, changed("0/residents/targets", lambda targets: targets[1:])),
    (SWEEPS, lambda content, arrays: arrays.update({"0/residents/box": np.ones((3, 4))})),
    (SWEEPS, lambda content, arrays: arrays.pop("0/residents/targets")),
    (SWEEPS, changed("0/residents/dual", lambda dual: dual[1:])),
    (SWEEPS, changed("0/residents/stationarity", lambda entries: entries[1:])),
    (SWEEPS, changed("0/residents/firm", lambda firm: firm - 1.0)),
    (SWEEPS, changed("0/residents/firm", lambda firm: firm + np.inf)),
    (SWEEPS, changed("0/thetas", lambda thetas: thetas[1:])),
    (SWEEPS, changed("0/gaps", lambda gaps: np.append(gaps, 1.0))),
    (SWEEPS, changed("0/returned", lambda ids: np.append(ids, 3))),
    (SWEEPS, changed("0/multipliers", lambda entries: np.append(entries, 3.0))),
    (SWEEPS, lambda content, arrays: content["facts"]["parameters"].pop("resident_elements")),
    (SWEEPS, parameters(resident_elements=-5)),
    (SWEEPS, parameters(resident_elements=2)),
    (SWEEPS, parameters(elements_cut_for=0)),
    (SWEEPS, parameters(elements_cut_for=2)),
    (SWEEPS, parameters(rounds=3)),
    (SWEEPS, parameters(rounds=10**9)),
    (SWEEPS, parameters(parts=3)),
    (SWEEPS, changed("0/residents/places", lambda places: places[1:])),
    (SWEEPS, changed("0/residents/places", lambda places: places + 1)),
    (SWEEPS, changed("0/residents/places", lambda places: places - 1)),
    (SWEEPS, changed("0/residents/places", np.zeros_like)),
    (PLATT, changed("0/held/ids", lambda ids: ids[1:])),
    (PLATT, changed("0/held/indices", lambda ids: ids + 40)),
    (PLATT, changed("0/held/indices", lambda ids: -ids - 1)),
    (PLATT, changed("0/held/indptr", lambda indptr: indptr + 1)),
    (PLATT, changed("0/held/indptr", lambda indptr: indptr[::-1].copy())),
    (PLATT, changed("0/held/values", lambda values: values[1:])),
    (PLATT, changed("0/held/known", lambda known: known[:, 1:])),
    (PLATT, changed("0/held/known", lambda known: known * np.nan)),
    (PLATT, changed("0/run", lambda numbers: numbers[1:])),
    (PLATT, changed("0/best", lambda w: w * 1.5)),
    (PLATT, changed("0/certificate/dual", lambda dual: dual + 100.0)),
    (PLATT, changed("0/certificate/primal", lambda primal: primal * 0.9)),
    (PLATT, changed("0/w", lambda w: w * np.nan)),
    (PLATT, parameters(rounds=0)),
]


@pytest.mark.fault
class TestHostile:
    """Checkpoints with right checksums that no run wrote: refused before any compiled function sees them."""

    def rewrite(self, folder, change):
        for place in (0, 1):
            path = folder / f"checkpoint-{place}.state"
            content, arrays = read_arrays(path, CHECKPOINT_FILE)
            change(content, arrays)
            with path.open("wb") as file:
                write_arrays(file, CHECKPOINT_FILE, content, arrays)

    @pytest.mark.parametrize("change", COMMON)
    def test_changed(self, store, written, tmp_path, change):
        self.refused(store, *written, tmp_path, change)

    @pytest.mark.parametrize(("solvers", "change"), OWN)
    def test_what_is_a_solvers_own(self, store, written, tmp_path, solvers, change):
        if written[0] in solvers:
            self.refused(store, *written, tmp_path, change)

    def refused(self, store, solver, folder, tmp_path, change):
        copy = shutil.copytree(folder, tmp_path / "c")
        self.rewrite(copy, change)
        with pytest.raises(DamageError):
            train(store, solver=solver, checkpoint=copy, resume=True)

    def test_unchanged(self, store, written, tmp_path):
        assert self.resumed(store, *written, tmp_path, lambda content, arrays: None).report["converged"]

    @pytest.mark.parametrize(
        ("solvers", "change"),
        [
            (SOLVERS, parameters(unknown=1)),
            (SOLVERS, parameters(unknown=0, others=-1)),
            (CUTS, parameters(capacity=7)),
            (SWEEPS, parameters(groups=1, points=1, bins=0, max_cuts=0)),
            (CUTS, lambda content, arrays: content["facts"]["parameters"].pop("groups")),
            (CUTS, lambda content, arrays: content["facts"]["parameters"].pop("points")),
            (CUTS, lambda content, arrays: content["facts"]["parameters"].pop("bins")),
        ],
    )
    def test_parameters_of_another_version(self, store, written, tmp_path, solvers, change):
        """One that is unknown here is left out; one that is new here has its default."""
        if written[0] in solvers:
            unchanged = self.resumed(store, *written, tmp_path / "a", lambda content, arrays: None)
            assert bits(self.resumed(store, *written, tmp_path / "b", change)) == bits(unchanged)

    def resumed(self, store, solver, folder, tmp_path, change):
        copy = shutil.copytree(folder, tmp_path / "c")
        self.rewrite(copy, change)
        return train(store, solver=solver, checkpoint=copy, resume=True)


@pytest.mark.parametrize("names", [("auto", "streamed-smo"), ("streamed-smo", "auto")])
def test_resumes_where_the_solver_is_named_or_not(store, tmp_path, names):
    first, second = names
    options = {"tol": 1e-6, "checkpoint": tmp_path}
    stopped(store, passes=2, solver=first, **options)
    went_on = []
    model = train(
        store, solver=second, resume=True, progress=lambda event: went_on.append(event.message), **options
    )
    assert any("going on after" in message for message in went_on)
    assert bits(model) == bits(train(store, solver=second, tol=1e-6))


@pytest.mark.parametrize("solver", CUTS)
def test_a_time_limit_inside_a_master_problem(store, tmp_path, monkeypatch, solver):
    """What was computed of it is thrown away, so that a run that goes on comes to the same bits."""
    options = {"solver": solver, "cut_groups": 2, "tol": 1e-3}
    whole = train(store, **options)
    calls = []

    def slow(*arguments, deadline, **rest):
        solution = solve_master(*arguments, deadline=deadline, **rest)
        calls.append(deadline)
        if len(calls) < 4:
            return solution
        time.sleep(max(deadline - time.monotonic(), 0.0))
        return replace(solution, beta=solution.beta * 0.5, in_time=False)

    with monkeypatch.context() as patch:
        patch.setattr(bundle, "solve_master", slow)
        limited = train(store, checkpoint=tmp_path, time_limit=1.0, **options)
    assert (limited.report["stop_reason"], limited.report["passes"], len(calls)) == ("time-limit", 4, 4)
    resumed = train(store, checkpoint=tmp_path, resume=True, **options)
    assert bits(resumed) == bits(whole)
    assert resumed.report["models"] == whole.report["models"]

"""Work that several solvers have in common: done once, before theirs, when all have come as far."""

from __future__ import annotations

import time

import pytest
from helpers.engine_data import ENGINES, requests_of, sweep_setup

from ooc_svm.engine.local import LocalEngine
from ooc_svm.engine.serial import SerialEngine
from ooc_svm.passes.base import Overlap
from ooc_svm.passes.rowwise import RowPass
from ooc_svm.solvers.streamed_smo.dual import TargetSums


class Failure(Exception):
    """Of a task."""


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("with_requests", [False, True])
def test_is_done_once_before_all_works(build, name, with_requests):
    source, models, vectors, rounds = sweep_setup(23, n_models=4)
    engine, done = build(name, source, vectors, rounds), []

    def first():
        time.sleep(0.02)
        done.append("first")

    for number, each in enumerate(rounds[:3], 1):
        engine.serve(
            [
                Overlap(
                    requests_of(m, each) if with_requests else (), lambda: done.append("work"), first=first
                )
                for m in models
            ]
        )
        assert done == number * ["first", *4 * ["work"]]


def test_is_done_once_for_each_that_is_another():
    source, _, vectors, _ = sweep_setup(23, n_models=4)
    done, tasks = [], [lambda k=k: done.append(k) for k in range(2)]
    with LocalEngine(source, vectors, threads=3) as engine:
        engine.serve([Overlap((), lambda: None, first=tasks[k % 2]) for k in range(4)])
    assert sorted(done) == [0, 1]


@pytest.mark.parametrize("name", ENGINES)
def test_no_work_goes_on_where_it_fails(build, name):
    source, models, vectors, rounds = sweep_setup(23, n_models=2)
    engine, done = build(name, source, vectors, rounds), []

    def fail():
        raise Failure

    with pytest.raises(Failure):
        engine.serve([Overlap((), lambda: done.append(1), first=fail) for _ in models])
    assert not done


class Solver:
    """Some requests of row vectors, then the work, then a read."""

    def __init__(self, model, each, n_before, log, first):
        self.model, self.each, self.n_before, self.log, self.first = model, each, n_before, log, first

    def steps(self):
        for _ in range(self.n_before):
            yield RowPass(TargetSums(self.model), None)
            self.log.append("before")
        yield Overlap((), lambda: self.log.append("work"), first=self.first)
        yield Overlap(requests_of(self.model, self.each), first=self.first)
        self.log.append("read")


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_waits_until_no_solver_has_quick_requests(threads):
    source, models, vectors, rounds = sweep_setup(23, n_models=3)
    engine = LocalEngine(source, vectors, threads=threads) if threads else SerialEngine(source, vectors)
    log = []

    def first():
        log.append("first")

    with engine:
        before = zip((0, 3, 1), models, strict=True)
        engine.run([Solver(model, rounds[0], n, log, first) for n, model in before])
    assert log == [*4 * ["before"], "first", *3 * ["work"], *3 * ["read"]]

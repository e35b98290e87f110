"""How memory is divided, and that a run keeps to it."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from itertools import pairwise, product
from types import SimpleNamespace

import numpy as np
import pytest

from ooc_svm.catalog import SOLVERS, load
from ooc_svm.data.blocks import LabelledRows, RowBlock
from ooc_svm.engine.local import BLOCKS_A_THREAD
from ooc_svm.errors import DamageError, MemoryBudgetError
from ooc_svm.options import TrainOptions
from ooc_svm.solvers.base import DataSize, FunctionKinds
from ooc_svm.solvers.cutting_plane.plan import GROUP_CHOICES, MANY_POINTS, CutParameters
from ooc_svm.solvers.streamed_smo.plan import (
    ALL_ELEMENTS,
    CANDIDATE_BYTES,
    FEW_ELEMENTS,
    MOST_TOGETHER,
    PAIR_BYTES,
    PAIRS_A_ROW,
    ROOMY_PART,
    SHARES,
    SmoParameters,
)
from ooc_svm.store import StoreWriter, open_store
from ooc_svm.system.memory import APART_BYTES, parse_size
from ooc_svm.training import memory_plan
from ooc_svm.training.memory_plan import SLACK, Workload, room_of
from ooc_svm.training.on_cluster import client_budget, worker_budget

MB = 10**6

# A hundred million nonzeros of a text, in blocks of 32 MB.
TEXT = Workload(
    DataSize(n_rows=1_000_000, n_nonzeros=100_000_000, dimension=50_000, n_models=1, value_bytes=4),
    target_bytes=2,
    block_nbytes=34 * MB,
    data_nbytes=1200 * MB,
    threads=2,
)
OCAS, PLAIN, STREAMED = (TrainOptions(solver=s) for s in ("ocas", "cutting-plane", "streamed-smo"))


def changed(work, **changes):
    """Other sizes of the data, or of a workload."""
    size = {name: changes.pop(name) for name in tuple(changes) if name in DataSize.__dataclass_fields__}
    return replace(work, size=replace(work.size, **size), **changes)


def package(options):
    return load(SOLVERS[options.resolved_solver].home)


def divide(work, options, total, *, keep=None):
    kept = None if keep is None else asdict(keep)
    return memory_plan.divide(work, package(options), options, total, kept=kept)


def resident_bytes(plan):
    """Bytes of the resident rows; of a plan or a budget."""
    return next(item.nbytes for item in plan.items if item.name == "resident rows")


def row_bytes(work, budget):
    return work.size.n_rows * (work.target_bytes + budget.plan.row_bytes)


WORKLOADS = [
    TEXT,
    changed(TEXT, n_models=20),
    changed(TEXT, threads=16),
    changed(TEXT, dimension=3_000_000),
    changed(TEXT, dimension=30),
    changed(TEXT, dimension=0, n_nonzeros=0),
    changed(TEXT, n_rows=10**9),
    changed(TEXT, block_nbytes=0, data_nbytes=0, threads=1),
]


def fewest(work, options=OCAS, **more):
    """The least memory that fits, to a thousandth."""
    low, high = MB, 10**15
    while high - low > high // 1000:
        middle = math.isqrt(low * high)
        try:
            divide(work, options, middle, **more)
            high = middle
        except MemoryBudgetError:
            low = middle
    return high


@pytest.mark.parametrize("options", [OCAS, PLAIN, STREAMED])
@pytest.mark.parametrize("work", WORKLOADS)
def test_what_is_divided_is_never_more_than_what_is_allowed(work, options):
    for total in (fewest(work, options), 500 * MB, 700 * MB, 10**9, 3 * 10**9, 10**11, 10**13):
        try:
            budget = divide(work, options, total)
        except MemoryBudgetError:
            continue
        assert budget.total == total
        assert budget.needed == sum(item.nbytes for item in budget.items)
        plan = package(options).plan(work.size, options, room_of(work, total))
        assert budget.plan == plan
        assert budget.items[1 : 1 + len(plan.items)] == plan.items
        assert budget.needed + budget.cache_bytes <= total * (1 - SLACK)
        assert min(item.nbytes for item in budget.items) >= 0
        assert 0 <= budget.cache_bytes <= work.data_nbytes
        assert 0 <= budget.row_vector_bytes <= row_bytes(work, budget)
        used = budget.plan.parameters
        if options is STREAMED:
            assert used.resident_elements >= SHARES[-1] * (work.size.n_rows + work.size.n_nonzeros)
        else:
            assert used.max_cuts > used.groups * used.points
    generous = divide(work, options, 10**15)
    assert generous.cache_bytes == work.data_nbytes
    assert generous.row_vector_bytes == row_bytes(work, generous)


@pytest.mark.parametrize("options", [OCAS, PLAIN, STREAMED])
@pytest.mark.parametrize("work", WORKLOADS)
def test_too_little_is_refused_with_the_sum_and_the_sum_would_do(work, options):
    with pytest.raises(MemoryBudgetError) as caught:
        divide(work, options, 100 * MB)
    message = str(caught.value)
    assert caught.value.exit_code == 6
    assert "allowed are 100 MB" in message
    with pytest.raises(MemoryBudgetError) as alone:
        divide(changed(work, threads=1), options, 100 * MB)
    helps = alone.value.needed < caught.value.needed
    assert message.endswith("; allow more (memory)" + (", or use fewer threads" if helps else ""))
    assert helps == (work.threads > 1 and options is not STREAMED)
    own = ("lanes", "resident rows") if options is STREAMED else ("sums of a pass", "cuts")
    for name in ("Python and libraries", "weights", "blocks being read", "row vectors", *own):
        assert name in message
    named = parse_size(message.split("training needs ")[1].split(" of memory")[0].replace("bytes", ""))
    parts = message.partition(": ")[2].partition(";")[0].split(" + ")
    sizes = [parse_size(" ".join(part.split()[-2:]).replace(" bytes", "")) for part in parts]
    assert parts[-1].startswith("reserve ")
    assert sum(sizes) == pytest.approx(named, rel=0.01)
    assert fewest(work, options) <= named * 1.01
    divide(work, options, int(named * 1.01))


def named_sum(error):
    """The sum that a refusal names, as a user would give it."""
    text = str(error).split("training needs ")[1].split(" of memory")[0]
    named = parse_size(text)
    assert 0 < error.needed <= named <= 1.01 * error.needed
    return named


PROBLEMS = {
    "svc": ("streamed-smo", "ocas", "cutting-plane"),
    "svr": ("streamed-smo",),
    "ordinal": ("ocas", "cutting-plane"),
    "roc-area": ("ocas", "cutting-plane"),
    "ranking": ("ocas", "cutting-plane"),
}
RUNS = [(problem, solver) for problem, solvers in PROBLEMS.items() for solver in solvers]
SHAPES = {
    "of a few rows": {"n_rows": 50, "n_nonzeros": 400, "dimension": 9, "block_nbytes": 5000},
    "narrow": {"dimension": 30},
    "of text": {},
    "wide": {"dimension": 3_000_000},
    "long": {"n_rows": 10**9, "n_nonzeros": 10**11, "block_nbytes": 70 * MB},
    "in memory": {"block_nbytes": 0, "data_nbytes": 0, "threads": 1},
}


def each_run(problem, solver, shape):
    """Workloads and options: models, threads, weights, scales and biases, and options that ask for memory.

    Of all combinations a half, in which any values of three of these meet.
    """
    n_ranks = {"ordinal": 5, "roc-area": 2}.get(problem, 0)
    asked = [{}, {"resident": 0.3}, {"lanes": 8}] if solver == "streamed-smo" else [{}, {"cut_groups": 7}]
    biases = ("penalized", "free") if solver == "streamed-smo" else ("none", "none")
    ways = tuple(zip(("none", "std"), (False, True), biases, strict=True))
    lists = (1, 40), (1, 16), ways, asked
    for places in product(*(range(len(values)) for values in lists)):
        if sum(places) % 2 == 0:
            n_models, threads, way, extra = (values[k] for values, k in zip(lists, places, strict=True))
            scale, has_weight, bias = way
            options = TrainOptions(problem=problem, solver=solver, scale=scale, bias=bias, **extra)
            sizes = {"n_models": n_models, "threads": threads, "has_weight": has_weight}
            sizes |= {"n_ranks": n_ranks, "in_queries": problem == "ranking"}
            yield changed(TEXT, **sizes | SHAPES[shape]), options


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("problem", "solver"), RUNS)
def test_the_sum_that_is_named_is_enough_and_hardly_more(problem, solver, shape):
    for work, options in each_run(problem, solver, shape):
        least = fewest(work, options)
        # As little as possible, and nearly enough: the plan follows from what is allowed.
        for allowed in (MB, least // 2, int(0.9 * least), int(0.99 * least), int(0.998 * least)):
            with pytest.raises(MemoryBudgetError) as refused:
                divide(work, options, allowed)
            named = named_sum(refused.value)
            assert 0.999 * least <= named <= 1.02 * least
        # Whatever is more is enough as well.
        for total in np.geomspace(named, 100 * least, 12).astype(int).tolist():
            divide(work, options, total)


@pytest.mark.parametrize("solver", ["streamed-smo", "ocas", "cutting-plane"])
def test_the_sum_that_is_named_is_enough_for_a_saved_state(solver):
    options = TrainOptions(solver=solver)
    keep = divide(TEXT, options, 10**11).plan.parameters
    with pytest.raises(MemoryBudgetError) as refused:
        divide(TEXT, options, 100 * MB, keep=keep)
    divide(TEXT, options, named_sum(refused.value), keep=keep)


def on_cluster(work, options, memory, members, parts):
    """Divide the memory of a client and its workers, each of which has some part of the rows."""
    prepared = SimpleNamespace(solver=package(options), options=options)
    workers = [Member(memory, threads) for threads in members]
    whole = client_budget(prepared, work, memory, workers, None).plan
    for worker, part in zip(workers, parts, strict=True):
        rows = {"n_rows": int(part * work.size.n_rows), "n_nonzeros": int(part * work.size.n_nonzeros)}
        own = changed(work, threads=worker.threads, data_nbytes=int(part * work.data_nbytes), **rows)
        worker_budget(prepared, own, whole, worker)


@pytest.mark.parametrize("shape", ["narrow", "of text", "wide", "long"])
@pytest.mark.parametrize(("problem", "solver"), RUNS)
def test_the_sum_that_is_named_is_enough_on_a_cluster(problem, solver, shape):
    for work, options in each_run(problem, solver, shape):
        for members, parts in (((1, 1), (0.5, 0.5)), ((4,), (1.0,)), ((1, 2, 8), (0.1, 0.1, 0.8))):
            with pytest.raises(MemoryBudgetError) as refused:
                on_cluster(work, options, 100 * MB, members, parts)
            named = named_sum(refused.value)
            # Here the client may have enough, and a worker not.
            for allowed in (0.8 * named, 0.97 * named):
                with pytest.raises(MemoryBudgetError) as refused:
                    on_cluster(work, options, int(allowed), members, parts)
                assert named_sum(refused.value) <= 1.02 * named
                on_cluster(work, options, named_sum(refused.value), members, parts)
            for total in np.geomspace(named, 50 * named, 8).astype(int).tolist():
                on_cluster(work, options, total, members, parts)


def test_more_work_needs_more():
    for options in (OCAS, PLAIN, replace(STREAMED, lanes=2)):
        streamed = options.resolved_solver == "streamed-smo"
        least = fewest(TEXT, options)
        for change in ({"n_models": 3}, {"dimension": 10**6}, {"block_nbytes": 80 * MB}):
            assert fewest(changed(TEXT, **change), options) > least
        alone, many = (fewest(changed(TEXT, threads=threads), options) for threads in (1, 5))
        # No more threads sweep than there are lanes.
        assert alone < least
        assert many == least if streamed else many > least
        huge = fewest(changed(TEXT, n_rows=10**10, n_nonzeros=10**12, data_nbytes=10**13), options)
        assert huge == least if not streamed else least < huge < 1.2 * least
    # In one lane there is one thread that sweeps.
    alone, many = (fewest(changed(TEXT, threads=threads), STREAMED) for threads in (1, 5))
    assert alone == many


def test_groups_points_and_cuts_shrink_with_the_memory():
    work = changed(TEXT, dimension=90_000, n_models=4, n_nonzeros=10**9)
    totals = np.geomspace(20 * fewest(work), fewest(work), 60).astype(int)
    budgets = [divide(work, OCAS, int(total)) for total in totals]
    used = [budget.plan.parameters for budget in budgets]
    sizes = [parameters.groups * parameters.points for parameters in used]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == GROUP_CHOICES[0] * MANY_POINTS > sizes[-1]
    for first, second in pairwise(used):
        if (first.groups, first.points) == (second.groups, second.points):
            assert first.max_cuts >= second.max_cuts
        assert first.groups >= second.groups


def test_groups_follow_from_the_data():
    sizes = [divide(changed(TEXT, n_nonzeros=n), OCAS, 10**12).plan.parameters for n in (10**5, 10**8, 10**9)]
    assert [(parameters.groups, parameters.points) for parameters in sizes] == [
        (1, 1),
        (2, MANY_POINTS),
        (8, MANY_POINTS),
    ]


@pytest.mark.parametrize("groups", [1, 3, 50])
def test_groups_asked_for_are_given_or_refused(groups):
    for solver in ("ocas", "cutting-plane"):
        options = TrainOptions(solver=solver, cut_groups=groups)
        for total in (fewest(TEXT, options), 10**11):
            assert divide(TEXT, options, total).plan.parameters.groups == groups


def test_the_parameters_of_a_saved_state_are_kept_or_refused():
    cuts = (CutParameters(groups=2, points=7, max_cuts=300), CutParameters(max_cuts=57))
    sets = (SmoParameters(3 * 10**7, 10**6, 10**6, rounds=7), SmoParameters(10**4, 50, 10**4, rounds=100))
    for options, keep in [(OCAS, kept) for kept in cuts] + [(STREAMED, kept) for kept in sets]:
        least = fewest(TEXT, options, keep=keep)
        for total in (least, 10**12):
            assert divide(TEXT, options, total, keep=keep).plan.parameters == keep
        with pytest.raises(MemoryBudgetError):
            divide(TEXT, options, int(least * 0.99), keep=keep)


def test_the_resident_share_shrinks_with_the_memory():
    size = TEXT.size.n_rows + TEXT.size.n_nonzeros
    totals = np.geomspace(fewest(TEXT, STREAMED), 4 * 10**9, 60).astype(int)
    shares = [divide(TEXT, STREAMED, int(total)).plan.parameters.resident_elements / size for total in totals]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(SHARES[0])
    assert len(set(shares)) >= 5
    assert {min(SHARES, key=lambda share: abs(share - found)) for found in shares} <= set(SHARES)


def test_few_rows_are_all_held_where_they_fit():
    for n_nonzeros in (6, FEW_ELEMENTS + 10, ALL_ELEMENTS - 10, ALL_ELEMENTS + 10):
        work = changed(TEXT, n_rows=2, n_nonzeros=n_nonzeros, dimension=8 * n_nonzeros)
        capacity = divide(work, STREAMED, 10**12).plan.parameters.resident_elements
        few = n_nonzeros < ALL_ELEMENTS
        assert capacity == (n_nonzeros + 2 if few else math.ceil(SHARES[0] * (n_nonzeros + 2)))
        # A share of a few rows holds them all.
        asked = divide(work, replace(STREAMED, resident=0.5), 10**12).plan.parameters.resident_elements
        assert asked == n_nonzeros + 2
        if n_nonzeros > 10**4:
            assert divide(work, STREAMED, fewest(work, STREAMED)).plan.parameters.resident_elements < capacity
        if n_nonzeros == FEW_ELEMENTS + 10:
            thousand = changed(work, n_models=1000)
            tight = int(1.002 * fewest(thousand, STREAMED))
            many = divide(thousand, STREAMED, tight).plan.parameters.resident_elements
            assert many == math.ceil(min(MOST_TOGETHER * SHARES[0], 1.0) * (n_nonzeros + 2))


@pytest.mark.parametrize(
    ("changes", "options", "copies"),
    [
        ({}, {}, 1),
        ({"n_models": 1}, {}, 1),
        ({"n_models": 5}, {}, 5),
        ({"n_models": 64}, {}, 2),
        ({"n_losses": 2}, {}, 8),
        ({"n_models": 12, "n_losses": 2}, {}, 2),
        ({"n_models": 300}, {}, 8),
        ({}, {"bias": "free"}, 8),
        ({}, {"resident": 0.5}, 4),
    ],
)
def test_rows_that_models_copy_together_are_counted_once(changes, options, copies):
    work = changed(TEXT, **{"n_rows": 60_000, "n_nonzeros": 14_000_000, "n_models": 10} | changes)
    held = divide(work, replace(STREAMED, **options), 10**12).plan
    nbytes = resident_bytes(held)
    n_pairs = int(held.report["resident"] * work.size.n_rows) * work.size.n_models
    of_rows = nbytes - (PAIR_BYTES + CANDIDATE_BYTES) * n_pairs
    element = 4 + work.size.value_bytes
    assert of_rows / (held.parameters.resident_elements * element) == pytest.approx(1 + copies, abs=0.01)
    again = divide(work, replace(STREAMED, **options), 10**12, keep=held.parameters).plan
    assert again.items == held.items


def test_all_rows_are_candidates_of_all_models_however_few_pairs_are_held():
    work = changed(TEXT, n_rows=60_000, n_nonzeros=600_000, n_models=200)
    options = replace(STREAMED, resident=1.0)
    plan = divide(work, options, fewest(work, options)).plan
    assert plan.parameters.resident_pairs == PAIRS_A_ROW * work.size.n_rows
    nbytes = resident_bytes(plan)
    assert nbytes > (200 * CANDIDATE_BYTES + PAIRS_A_ROW * PAIR_BYTES) * work.size.n_rows


def test_large_data_of_few_columns_are_planned_as_they_are_solved():
    work = changed(TEXT, dimension=30, n_models=12)
    held = divide(work, replace(STREAMED, resident=1.0), 10**12).plan
    assert held.parameters.rounds == 1
    nbytes = resident_bytes(held)
    a_pair = PAIR_BYTES + CANDIDATE_BYTES + 60  # with its part of a proximal step
    assert nbytes < 2.1 * 8 * work.size.elements + 12 * a_pair * work.size.n_rows


def test_models_are_cramped_where_one_alone_would_hold_many_more_rows():
    total = 3 * fewest(changed(TEXT, n_models=16), STREAMED)
    alone = divide(TEXT, STREAMED, total).plan
    assert not alone.cramped
    most = ROOMY_PART * min(alone.parameters.resident_elements, SHARES[0] * TEXT.size.elements)
    found = [divide(changed(TEXT, n_models=n), STREAMED, total).plan for n in (2, 4, 8, 16)]
    assert [plan.cramped for plan in found] == [plan.parameters.resident_elements < most for plan in found]
    assert [found[0].cramped, found[-1].cramped] == [False, True]
    asked = divide(changed(TEXT, n_models=16), replace(STREAMED, resident=0.01), total).plan
    assert not asked.cramped, "that many are wanted"


def test_where_memory_is_short_each_resident_row_is_held_for_fewer_models():
    work, options = changed(TEXT, n_models=200), replace(STREAMED, resident=0.1)
    rows = 100_000
    assert divide(work, options, 10**13).plan.parameters.resident_pairs == 200 * work.size.n_rows
    least = fewest(work, options)
    plan = divide(work, options, least).plan
    assert plan.parameters.resident_pairs == PAIRS_A_ROW * rows
    assert plan.parameters.resident_elements == 0.1 * work.size.elements
    assert any(f"at most {PAIRS_A_ROW * rows:,} pairs" in item.note for item in plan.items)
    some = divide(work, options, least + 3 * 10**9).plan.parameters.resident_pairs
    assert PAIRS_A_ROW * rows < some < 200 * rows
    # Of few models all are counted.
    few = divide(changed(TEXT, n_models=PAIRS_A_ROW), options, least).plan
    assert few.parameters.resident_pairs == PAIRS_A_ROW * work.size.n_rows


def test_a_share_holds_some_rows_at_least():
    for n_rows, length, share, most in (
        (10**4, 100, 0.5, 505_000),
        (10**4, 50, 0.02, 1024 * 51),
        (10**4, 1000, 1e-6, FEW_ELEMENTS),
        (10**4, 10**6, 1e-9, 8 * (10**6 + 1)),
    ):
        work = changed(TEXT, n_rows=n_rows, n_nonzeros=n_rows * length)
        assert (
            divide(work, replace(STREAMED, resident=share), 10**13).plan.parameters.resident_elements == most
        )


def test_rows_are_held_before_blocks():
    """A larger share would not have fitted."""
    work = changed(TEXT, n_nonzeros=60_000_000)
    for total in np.geomspace(fewest(work, STREAMED), 10**9, 40).astype(int).tolist():
        used = divide(work, STREAMED, total)
        share = used.plan.parameters.resident_elements / (work.size.n_rows + work.size.n_nonzeros)
        place = min(range(len(SHARES)), key=lambda k: abs(SHARES[k] - share))
        rows = resident_bytes(used)
        assert place == 0 or rows * SHARES[place - 1] / share > used.cache_bytes


@dataclass(frozen=True)
class Member:
    """What a division asks of a worker."""

    memory: int
    threads: int = 1
    address: str = "w"


@pytest.mark.parametrize("n_nonzeros", [60_000_000, 100_000_000, 10**9])
@pytest.mark.parametrize("part", [1.0, 0.4])
def test_workers_have_room_for_what_the_client_holds(n_nonzeros, part):
    """Each as much memory as the client, or less: where workers can hold all rows at all, they fit."""
    work = changed(TEXT, n_nonzeros=n_nonzeros, n_rows=n_nonzeros // 100)
    prepared = SimpleNamespace(solver=package(STREAMED), options=STREAMED)
    shares = []
    for total in np.geomspace(400 * MB, 40 * 10**9, 60).astype(int).tolist():
        member = Member(int(part * total))
        try:
            divide(changed(work, threads=1), STREAMED, member.memory)
        except MemoryBudgetError:
            continue
        kept = client_budget(prepared, work, total, [Member(total), member], None).plan.parameters
        divide(changed(work, threads=1), STREAMED, member.memory, keep=kept)
        shares.append(kept.resident_elements / (work.size.n_rows + n_nonzeros))
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(SHARES[0])
    assert len(set(shares)) >= 4


def test_measuring_the_columns_needs_blocks_for_every_thread():
    work = changed(TEXT, n_nonzeros=60_000_000, threads=8)
    plain = divide(work, STREAMED, 10**12).items
    scaled = divide(work, TrainOptions(scale="maxabs"), 10**12).items
    notes = [next(i.note for i in items if i.name == "blocks being read") for items in (plain, scaled)]
    assert [note.split()[0] for note in notes] == [str(BLOCKS_A_THREAD + 1), str(8 * BLOCKS_A_THREAD)]


def test_the_resident_share_does_not_follow_from_threads():
    for options in (STREAMED, replace(STREAMED, lanes=8)):
        least = fewest(changed(TEXT, threads=8), options)
        for total in np.geomspace(least, 4 * 10**9, 100).astype(int).tolist():
            made = [divide(changed(TEXT, threads=threads), options, total) for threads in (1, 2, 8)]
            assert len({budget.plan.parameters.resident_elements for budget in made}) == 1


@pytest.mark.parametrize("share", [0.003, 0.1, 1.0])
def test_the_resident_share_asked_for_is_given_or_refused(share):
    options = TrainOptions(resident=share)
    least = fewest(TEXT, options)
    for total in (least, 10**12):
        capacity = divide(TEXT, options, total).plan.parameters.resident_elements
        assert capacity == math.ceil(share * (TEXT.size.n_rows + TEXT.size.n_nonzeros))
    with pytest.raises(MemoryBudgetError, match="resident rows"):
        divide(TEXT, options, int(least * 0.99))


def test_rows_without_values_and_each_model_are_counted():
    options = TrainOptions(resident=0.1)
    least = fewest(TEXT, options)
    assert (
        fewest(changed(TEXT, value_bytes=0), options) < least < fewest(changed(TEXT, value_bytes=8), options)
    )
    assert fewest(changed(TEXT, n_models=2), options) > least + 0.1 * TEXT.size.n_nonzeros * 8


def test_row_vectors_go_to_disk_before_anything_is_refused():
    work = changed(TEXT, n_rows=10**9)
    for options in (OCAS, PLAIN, STREAMED):
        budget = divide(work, options, 10**9)
        assert budget.row_vector_bytes < row_bytes(work, budget)
        assert "GB of it in a scratch file" in budget.items[-1].note
        assert budget.cache_bytes == 0


SCRIPT = """
import json, sys
from ooc_svm import train
options = {"threads": 1, "max_passes": 2, "solver": sys.argv[3]}
print(json.dumps(train(sys.argv[1], memory=sys.argv[2], **options).report))
"""


@pytest.fixture(scope="module")
def large_store(tmp_path_factory):
    """Rows of 480 MB, the same thousand over and over, which compress well."""
    path = tmp_path_factory.mktemp("large") / "s"
    rng = np.random.default_rng(0)
    n, k, d = 20_000, 50, 2000
    ids = np.sort(rng.integers(0, d // k, (n, k)) + np.arange(k) * (d // k), axis=1).astype(np.int32)
    values = rng.integers(1, 5, (n, k)).astype(np.float32)
    labels = np.where((values * rng.normal(size=d)[ids]).sum(axis=1) > 0, 1.0, -1.0)
    rows = RowBlock(0, np.arange(n + 1, dtype=np.int64) * k, ids.ravel(), values.ravel())
    with StoreWriter(path, n_features=d) as writer:
        for _ in range(64):
            writer.append(LabelledRows(rows, labels))
        writer.commit()
    return path


@pytest.mark.parametrize("memory", [APART_BYTES - 10 * MB, APART_BYTES + 10 * MB])
@pytest.mark.parametrize("solver", ["ocas", "streamed-smo"])
def test_the_peak_of_a_run_stays_under_the_memory_allowed(large_store, tmp_path, solver, memory):
    store = open_store(large_store)
    assert sum(span.nbytes for span in store.blocks) > 1.1 * memory
    run = [sys.executable, "-c", SCRIPT, str(large_store), str(memory), solver]
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    # The first run on a machine compiles, the second one finds what was compiled.
    for _ in range(2):
        done = subprocess.run(run, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert report["passes"] == 2
        assert 200 * MB < report["peak_memory_bytes"] < memory
        assert len(list(tmp_path.rglob("*.nbc"))) > 5


def pairs(n_ranks, **sizes):
    """A workload over pairs of rows, and its parameters where memory is no matter."""
    problem = "roc-area" if n_ranks == 2 else "ordinal"
    sizes = {"n_ranks": n_ranks} | sizes
    return changed(TEXT, **sizes), TrainOptions(problem=problem)


@pytest.mark.parametrize(
    ("n_ranks", "dimension", "points", "bins"),
    [
        (2, 100, 4, 256),
        (10, 100, 4, 256),
        (50, 100, 4, 64),
        (2, 50_000, 4, 16),
        (2, 10**6, 1, 0),
        (0, 100, 1, 0),
        (10_000, 100, 1, 0),
    ],
)
def test_bins_are_as_many_as_cost_little(n_ranks, dimension, points, bins):
    work, options = pairs(n_ranks, dimension=dimension, n_nonzeros=10**8)
    found = divide(work, options, 10**13).plan.parameters
    assert (found.points, found.bins) == (points, bins)
    assert found.bins * n_ranks * dimension * (points - 1) <= max(1 << 20, 10**8 // 16)


def test_bins_shrink_with_the_memory():
    work, options = pairs(2, dimension=20_000, n_nonzeros=10**9)
    totals = np.geomspace(20 * fewest(work, options), fewest(work, options), 40).astype(int)
    found = [divide(work, options, int(total)) for total in totals]
    sizes = [(one.plan.parameters.points, one.plan.parameters.bins) for one in found]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == (4, 256)
    assert sizes[-1] == (1, 0)
    sums = {item.name: item for item in found[0].items}["sums of a pass"]
    assert "256 bins of 2 rank(s)" in sums.note
    assert sums.nbytes > 8 * 20_000 * 3 * 256 * 2


def can_follow(work, options, kept):
    """Whether a run may go on with these parameters: what the solver says, and training with it."""
    try:
        plan = package(options).plan(work.size, options, room_of(work, 10**13), asdict(kept))
    except ValueError:
        with pytest.raises(DamageError, match="the checkpoint cannot be of this run"):
            divide(work, options, 10**13, keep=kept)
        return False
    assert plan.parameters == divide(work, options, 10**13, keep=kept).plan.parameters == kept
    return True


def test_only_parameters_of_the_data_can_be_kept():
    work, options = pairs(2, dimension=100, n_nonzeros=10**8)
    kept = divide(work, options, 10**12).plan.parameters
    assert can_follow(work, options, kept)
    for changes in ({"bins": 2**31}, {"bins": 0}, {"points": 3}, {"groups": 0}, {"max_cuts": 0}):
        assert not can_follow(work, options, replace(kept, **changes))
    assert not can_follow(changed(work, n_ranks=0), options, kept)
    resident = divide(TEXT, STREAMED, 10**12).plan.parameters
    assert can_follow(TEXT, STREAMED, resident)
    assert can_follow(TEXT, STREAMED, replace(resident, rounds=resident.rounds + 1))
    for changes in (
        {"resident_elements": 0},
        {"resident_elements": -1},
        {"elements_cut_for": 0},
        {"elements_cut_for": TEXT.size.elements},
        {"rounds": 1},
        {"rounds": -1},
        {"rounds": 101},
    ):
        assert not can_follow(TEXT, STREAMED, replace(resident, **changes))


@pytest.mark.parametrize("options", [OCAS, PLAIN, STREAMED])
def test_parameters_of_another_version_are_left_out(options):
    """Those that all solvers had in version 0.1.0, and one that no version has had."""
    solver, room = package(options), room_of(TEXT, 10**12)
    kept = asdict(divide(TEXT, options, 10**12).plan.parameters)
    others = {"groups": 1, "points": 1, "max_cuts": 0, "bins": 0, "capacity": 0, "unknown": 3}
    found = solver.plan(TEXT.size, options, room, others | kept)
    assert found == solver.plan(TEXT.size, options, room, kept)
    del kept["resident_elements" if options is STREAMED else "max_cuts"]
    for less in (kept, {}):
        with pytest.raises(ValueError, match="no run on these data has"):
            solver.plan(TEXT.size, options, room, less)


def test_rows_of_older_runs_that_are_in_parts_have_no_factor():
    """Their columns have numbers, in whose order no products of rows are found."""
    work = changed(TEXT, n_rows=60, n_nonzeros=60 * 70_000, dimension=70_000)
    new = divide(work, STREAMED, 10**12).plan
    assert new.parameters.parts == 1
    assert new.kinds == FunctionKinds(by_factor=True)
    older = divide(work, STREAMED, 10**12, keep=replace(new.parameters, parts=2)).plan
    assert older.kinds == FunctionKinds(long_rows=True, many_columns=True)

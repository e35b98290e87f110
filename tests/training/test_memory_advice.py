"""What a plan and a refusal say of memory: a line for each use, and advice that would help."""

from __future__ import annotations

import pytest
from helpers.train_data import make_store, problem_rows

from ooc_svm import MemoryBudgetError, TrainOptions, plan, train
from ooc_svm.catalog import SOLVERS, load
from ooc_svm.solvers.base import DataSize
from ooc_svm.training.memory_plan import LEAST_VALIDATION_BYTES, VALIDATION_PART, Workload, divide

MB = 10**6


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder, rows = tmp_path_factory.mktemp("stores"), problem_rows("two classes", 120, 12, noise=0.5)
    return [make_store(folder / name, *rows) for name in ("a.zarr", "other.zarr")]


@pytest.mark.parametrize(
    ("asked", "threads", "advice"),
    [
        ({}, 1, ""),
        ({}, 2, ""),  # one thread needs as much
        ({"solver": "ocas"}, 2, ", or use fewer threads"),
        ({"C": [0.1, 1.0]}, 2, ", or use fewer values of C"),
        ({"solver": "ocas", "C": [0.1, 1.0]}, 2, ", or use fewer values of C or threads"),
        ({"resident": 0.5}, 1, ", or give a smaller resident"),
        ({"solver": "ocas", "cut_groups": 9}, 2, ", or use fewer threads, or give a smaller cut_groups"),
    ],
)
def test_a_refusal_advises_what_would_help(asked, threads, advice):
    options = TrainOptions(**{"solver": "streamed-smo"} | asked)
    work = Workload(
        DataSize(10**6, 10**8, 50_000, n_models=len(options.C), value_bytes=4),
        target_bytes=2,
        block_nbytes=34 * MB,
        data_nbytes=1200 * MB,
        threads=threads,
    )
    with pytest.raises(MemoryBudgetError) as caught:
        divide(work, load(SOLVERS[options.resolved_solver].home), options, 100 * MB)
    assert str(caught.value).endswith(f"; allow more (memory){advice}")


class TestAnotherStore:
    @pytest.mark.parametrize(
        ("memory", "nbytes"), [("1GB", 10**9 // VALIDATION_PART), ("480MB", LEAST_VALIDATION_BYTES)]
    )
    @pytest.mark.parametrize("kernel", ["linear", "rbf"])
    def test_its_buffers_have_a_line(self, stores, memory, nbytes, kernel):
        data, other = stores
        without, found = (
            {item.name: item.nbytes for item in plan(data, memory=memory, kernel=kernel, **measured).items}
            for measured in ({}, {"validation": other})
        )
        assert found["Python and libraries"] == without["Python and libraries"]
        assert found["measuring on other.zarr"] == nbytes
        assert "measuring on other.zarr" not in without

    def test_a_refusal_names_them(self, stores):
        data, other = stores
        with pytest.raises(MemoryBudgetError, match=r" \+ measuring on other.zarr 64.* MB \+ "):
            train(data, memory="100MB", validation=other)

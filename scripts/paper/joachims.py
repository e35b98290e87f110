"""Table 1 and figures 1 to 9 of Joachims, Training Linear SVMs in Linear Time (2006).

    scripts/paper/joachims FOLDER [--only PART ...] [--quick] [--stores FOLDER] [--pictures FOLDER]

FOLDER holds covtype/covtype.multiclass.bz2, arxiv/arxiv.svm.bz2 (counts of words; classes 5 to 11 are
astro-ph), adult/a9a.bz2 and a9a.t.bz2, and web/w8a.bz2; what is missing is left out. The parts are

table1   CPU seconds of classification and of ordinal regression with two ranks (ROC area)
pairs    ordinal regression by SMO over all pairs, which the paper calls intractable
growth   figures 1 and 2: time and iterations against n
epsilon  figures 4, 5, 6 and 7 (right): accuracy, iterations, time and objective against epsilon
cost     figures 3, 7 (left), 8 and 9: accuracy, objective, iterations and time against C

The paper's C multiplies the mean loss, and so it does here: ours is C / n. Its epsilon bounds the mean loss,
so that a run ends when P - D is at most epsilon C. SMO stands for SVM-light: both work on pairs of
multipliers. Nothing but SMO has a bias. Quality is accuracy, of text PRBEP, in percent on the rows for
testing. A run that takes more than --max-passes reads, and one of SMO or of pairs that takes a minute, is a
dash.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from charts import Panel, draw
from experiment import (
    Data,
    Liblinear,
    Run,
    accuracy,
    break_even,
    growth,
    load,
    machine,
    number,
    objective,
    options_of,
    print_table,
    trained,
)
from scipy import sparse

import ooc_svm

ASTRO_PH = range(5, 12)
EPSILON = 1e-3  # The paper's
EXACT = 1e-6  # Relative gap of what stands for the true optimum
LONG = 20.0  # CPU seconds after which a solver is not run on four times the rows or ten times the C
MOST = 60.0  # Seconds after which a run of SMO or of ordinal regression ends
QUICK_ROWS = 4_000
SIZES = [1_000 * 4**k for k in range(5)]
EPSILONS = [0.1, 0.03, 0.01, 0.003, 1e-3, 3e-4, 1e-4]
COSTS = [1e2, 1e3, 1e4, 1e5, 1e6]
PAIRED_ROWS = [125, 250, 500, 1_000]


@dataclass(frozen=True)
class Task:
    """Data, and how the paper trains on them."""

    name: str
    whole: Data  # What times are measured on
    train: Data
    test: Data
    C: float  # The paper's
    quality: Callable[[ooc_svm.Model, Data], float] = accuracy
    smo_rows: int = 1 << 62  # SMO takes too long on more
    is_large: bool = False  # For times against n alone

    def first(self, n: int) -> Task:
        """The task with fewer rows."""
        return replace(self, whole=self.whole.first(n), train=self.train.first(n))


def tasks(folder: Path, stores: Path) -> Iterator[Task]:
    """The tasks whose files are there."""
    a9a = [folder / "adult/a9a.bz2", folder / "adult/a9a.t.bz2"]
    train, both = load("a9a", a9a[:1], stores), load("a9a", a9a, stores)
    if train is not None and both is not None:
        own = both.first(len(train))
        yield Task("a9a", own, own, both.after(len(train)), 0.05 * len(train))
    w8a = load("w8a", [folder / "web/w8a.bz2"], stores)
    if w8a is not None:
        yield split(w8a.shuffled(), 0.8, float(len(w8a)))
    covtype = load("covtype 1", [folder / "covtype/covtype.multiclass.bz2"], stores)
    if covtype is not None:
        yield split(covtype.against_rest(1).shuffled().scaled(), 0.9, 1e6, smo_rows=16_000)
    arxiv = load("arXiv astro-ph", [folder / "arxiv/arxiv.svm.bz2"], stores)
    if arxiv is not None:
        every = arxiv.against_rest(*ASTRO_PH).tf_idf()
        yield split(every.first(62_369), 29_882 / 62_369, 2e4, quality=break_even)
        every = replace(every, name="arXiv astro-ph, all")
        yield split(every, 0.9, 2e4, quality=break_even, is_large=True)


def split(data: Data, share: float, C: float, **options: Any) -> Task:
    """A task of which this share is for training."""
    n = round(share * len(data))
    return Task(data.name, data, data.first(n), data.after(n), C, **options)


def relative(epsilon: float, C: float, optimum: float) -> float:
    """The ``tol`` with which P - D is at most epsilon C at the end, where P may be above the optimum."""
    share = epsilon * C / optimum
    return share / (1.0 + share)


def optimum(data: Data, C: float, tol: float = 1e-3) -> Run:
    """A run that knows the optimum of classification up to a relative gap."""
    return trained(data, solver="streamed-smo", bias="none", C=C / len(data), tol=tol)


def paired_optimum(data: Data, C: float) -> float:
    """The optimum of ordinal regression up to a relative gap of 1e-3."""
    return trained(data, solver="ocas", problem="roc-area", C=C).report["primal"]


class Measured:
    """Runs of at most so many reads."""

    def __init__(self, max_passes: int) -> None:
        self.max_passes = max_passes

    def run(self, data: Data, C: float, solver: str, tol: float) -> Run:
        """Classification."""
        own: dict[str, Any] = {"bias": "free", "time_limit": MOST} if solver == "smo" else {"bias": "none"}
        return trained(data, solver=solver, C=C / len(data), tol=tol, max_passes=self.max_passes, **own)

    def paired(self, data: Data, C: float, solver: str, tol: float) -> Run:
        """Ordinal regression with two ranks."""
        own = {"max_passes": self.max_passes, "time_limit": MOST}
        return trained(data, solver=solver, problem="roc-area", C=C, tol=tol, **own)


def certified_seconds(run: Run) -> float | None:
    """CPU seconds of a run; None if it was not certified."""
    return run.seconds if run.report["converged"] else None


def seconds(run: Run) -> str:
    """CPU seconds of a run for a table; a dash if it was not certified."""
    return number(certified_seconds(run))


def power_of(sizes: Sequence[float], values: Sequence[float | None]) -> str:
    """The fitted power of the sizes for a table; a dash with fewer than two values."""
    known = [(x, y) for x, y in zip(sizes, values, strict=True) if y is not None]
    return f"{growth(*zip(*known, strict=True)):.2f}" if len(known) > 1 else "-"


def table1(task: Task, measured: Measured) -> list[str]:
    """A line of Table 1."""
    data, C = task.whole, task.C
    reference = optimum(data, C, 1e-4)
    tol = relative(EPSILON, C, reference.report["primal"])
    runs = {name: measured.run(data, C, name, tol) for name in ("cutting-plane", "ocas", "streamed-smo")}
    few = data.first(task.smo_rows)
    smo = seconds(measured.run(few, C * len(few) / len(data), "smo", tol))
    if len(few) < len(data):
        smo += f" ({len(few):,} rows)"
    w, b, spent = Liblinear(3).train(data, C / len(data), 0.1)
    above = objective(data, w, b, C / len(data)) / reference.report["primal"] - 1.0
    tol = relative(EPSILON, C, paired_optimum(data, C))
    paired = {name: measured.paired(data, C, name, tol) for name in ("cutting-plane", "ocas")}
    density = data.rows.nnz / np.prod([float(size) for size in data.rows.shape])
    return [
        task.name,
        f"{len(data):,}",
        f"{data.rows.shape[1]:,}",
        f"{100.0 * density:.2g} %",
        f"{seconds(runs['cutting-plane'])} ({runs['cutting-plane'].reads})",
        smo,
        f"{number(spent)} ({number(100.0 * above, 1)} %)",
        f"{seconds(runs['ocas'])} ({runs['ocas'].reads})",
        f"{seconds(runs['streamed-smo'])} ({runs['streamed-smo'].reads})",
        f"{seconds(paired['cutting-plane'])} ({paired['cutting-plane'].reads})",
        f"{seconds(paired['ocas'])} ({paired['ocas'].reads})",
    ]


def print_table1(all_tasks: Sequence[Task], measured: Measured, pictures: Path | None) -> None:
    """Table 1."""
    print("## Table 1: CPU seconds (reads), epsilon 0.001\n")
    header = ["set", "n", "N", "s", "Algorithm 1", "`smo`", "LIBLINEAR (above the optimum)", "`ocas`"]
    header += ["`streamed-smo`", "ROC area: Algorithm 2", "ROC area: `ocas`"]
    print_table(header, (table1(task, measured) for task in all_tasks))


def all_pairs(data: Data) -> Data:
    """Differences of the rows of each pair of a positive and a negative one, every second turned round."""
    positive, negative = (np.flatnonzero(data.labels == sign) for sign in (1.0, -1.0))
    higher, lower = (ids.ravel() for ids in np.meshgrid(positive, negative))
    signs = np.where(np.arange(higher.size) % 2 == 0, 1.0, -1.0)
    rows = sparse.diags_array(signs) @ (data.rows[higher] - data.rows[lower])
    return Data(data.name, sparse.csr_matrix(rows, dtype=np.float32), signs)


def print_pairs(all_tasks: Sequence[Task], measured: Measured, pictures: Path | None) -> None:
    """Ordinal regression by SMO over all pairs, beside Algorithm 2 on the same rows."""
    print("## Ordinal regression as classification of all pairs: CPU seconds\n")

    def lines() -> Iterator[list[str]]:
        for task in all_tasks:
            times, sizes = [], []
            for n in PAIRED_ROWS:
                data = task.whole.first(n)
                if times and times[-1] > LONG:
                    break
                if len(np.unique(data.labels)) < 2:
                    continue
                goal = paired_optimum(data, task.C)
                tol = relative(EPSILON, task.C, goal)
                pairs = all_pairs(data)
                own = {"solver": "smo", "bias": "none", "C": task.C / len(pairs), "tol": tol}
                run = trained(pairs, time_limit=MOST, **own)
                algorithm2 = measured.paired(data, task.C, "cutting-plane", tol)
                both = f"{run.report['dual']:.5g} | {run.report['primal']:.5g} | {goal:.5g}"
                yield [task.name, f"{n:,}", f"{len(pairs):,}", seconds(run), seconds(algorithm2), both]
                sizes.append(n)
                times.append(run.seconds)
            if len(sizes) > 1:
                yield [f"{task.name}: power of n", "", "", f"{growth(sizes, times):.1f}", "", " | | "]

    print_table(["set", "n", "pairs", "`smo`", "Algorithm 2", "D", "P", "optimum of `roc-area`"], lines())


@dataclass
class Growth:
    """What the runs on more and more rows of a task took."""

    sizes: list[int]
    found: dict[str, list[float | None]]  # By the name of a table
    costs: list[float]  # The best C for each size


GROWTH = {
    "Algorithm 1: CPU seconds": ("Figure 1, first panel", 0.8),
    "`smo`: CPU seconds": ("Figure 1, second panel", 1.7),
    "Algorithm 1 with the best C: CPU seconds": ("Figure 1, third panel", 1.0),
    "Algorithm 2 (ROC area): CPU seconds": ("Figure 1, fourth panel", 0.8),
    "Algorithm 1: iterations": ("Figure 2", 0.0),
}


def best_cost(train: Data, test: Data, quality: Callable[..., float]) -> float:
    """The C that is best on the test rows; of equal ones the least."""
    found = {}
    for C in COSTS:
        model = trained(train, solver="streamed-smo", bias="none", C=C / len(train), tol=1e-2).model
        found[C] = quality(model, test)
    return max(found, key=lambda C: (round(found[C], 2), -C))


def measure_growth(task: Task, measured: Measured) -> Growth:
    """Figures 1 and 2 for one task."""
    sizes = [n for n in SIZES if n < len(task.whole)] + [len(task.whole)]
    found: dict[str, list[float | None]] = {name: [] for name in GROWTH}
    costs = []
    for n in sizes:
        data = task.whole.first(n)
        tol = relative(EPSILON, task.C, optimum(data, task.C).report["primal"])
        run = measured.run(data, task.C, "cutting-plane", tol)
        C = best_cost(task.train.first(n), task.test, task.quality)
        best_tol = relative(EPSILON, C, optimum(data, C).report["primal"])
        best = measured.run(data, C, "cutting-plane", best_tol)
        paired, smo = None, None
        if is_short(found["Algorithm 2 (ROC area): CPU seconds"]):
            paired_tol = relative(EPSILON, task.C, paired_optimum(data, task.C))
            paired = certified_seconds(measured.paired(data, task.C, "cutting-plane", paired_tol))
        if n <= task.smo_rows and is_short(found["`smo`: CPU seconds"]):
            smo = certified_seconds(measured.run(data, task.C, "smo", tol))
        values = [certified_seconds(run), smo, certified_seconds(best), paired]
        iterations = float(run.reads) if run.report["converged"] else None
        for name, value in zip(GROWTH, [*values, iterations], strict=True):
            found[name].append(value)
        costs.append(C)
    return Growth(sizes, found, costs)


def is_short(before: Sequence[float | None]) -> bool:
    """Whether what was run on fewer rows took so little time that it is run on more."""
    return all(each is not None and each < LONG for each in before)


def print_growth(all_tasks: Sequence[Task], measured: Measured, pictures: Path | None) -> None:
    """Figures 1 and 2."""
    found = {task.name: measure_growth(task, measured) for task in all_tasks}
    widest = max((each.sizes[:-1] for each in found.values()), key=len)
    for name, (title, power) in GROWTH.items():
        print(f"## {title}. {name}, against n; the paper's power is {power}\n")
        rows = []
        for task, each in found.items():
            values = each.found[name]
            cells = [number(value, 3) for value in values[:-1]]
            cells += [""] * (len(widest) - len(cells))
            last = f"{number(values[-1], 3)} ({each.sizes[-1]:,})"
            rows.append([task, *cells, last, power_of(each.sizes, values)])
        print_table(["set", *(f"{n:,}" for n in widest), "all (n)", "power"], rows)
    for task, each in found.items():
        best = ", ".join(f"{C:g} with {n:,} rows" for n, C in zip(each.sizes, each.costs, strict=True))
        print(f"The C that is best on the rows for testing, {task}: {best}.\n")
    if pictures is not None:
        panels = [
            Panel(
                name.replace("`", "").partition(":")[0],
                "n",
                name.partition(": ")[2],
                {task: (each.sizes, each.found[name]) for task, each in found.items()},
                power,
            )
            for name, (_, power) in GROWTH.items()
        ]
        draw(pictures / "joachims-growth.svg", panels)


@dataclass(frozen=True)
class Column:
    """One figure over epsilon or C: its title, what is on the vertical axis, the paper's power."""

    title: str
    label: str
    power: float | None = None
    linear: bool = False


Found = dict[str, dict[str, list[float | None]]]  # By column and task, a value for each epsilon or C


def print_columns(columns: Sequence[Column], found: Found, points: Sequence[float], name: str) -> None:
    """A table for each figure: a line for each task."""
    for column in columns:
        print(f"## {column.title}. {column.label}, against {name}\n")
        rows = [[task, *(number(v, 3) for v in values)] for task, values in found[column.title].items()]
        if column.power is not None:
            for row, values in zip(rows, found[column.title].values(), strict=True):
                row.append(power_of(points, values))
        last = [] if column.power is None else [f"power (paper: {column.power:g})"]
        print_table(["set", *(f"{point:g}" for point in points), *last], rows)


def draw_columns(
    columns: Sequence[Column], found: Found, points: Sequence[float], name: str, path: Path
) -> None:
    """A panel for each figure."""
    panels = [
        Panel(
            column.title.replace("`", ""),
            name,
            column.label.replace("`", ""),
            {task: (points, values) for task, values in found[column.title].items()},
            column.power,
            column.linear,
        )
        for column in columns
    ]
    draw(path, panels, columns=2 if len(panels) == 4 else 3)


def below(run: Run, reference: Run) -> float | None:
    """By which share of the optimum the objective of the master problem is below it, in percent."""
    if not run.report["converged"]:
        return None
    return max(100.0 * (1.0 - run.report["dual"] / reference.report["primal"]), 1e-5)


BY_EPSILON = (
    Column("Figure 4", "Quality minus that at 0.001, points", linear=True),
    Column("Figure 5", "Iterations of Algorithm 1", -0.3),
    Column("Figure 6", "CPU seconds of Algorithm 1", -0.4),
    Column("Figure 7, right", "Objective below the optimum, %"),
)


def print_epsilon(all_tasks: Sequence[Task], measured: Measured, pictures: Path | None) -> None:
    """Figures 4 to 7, on the rows for training."""
    found: Found = {column.title: {} for column in BY_EPSILON}
    for task in (each for each in all_tasks if not each.is_large):
        reference = optimum(task.train, task.C, EXACT)
        qualities, iterations, times, objectives = (
            found[column.title].setdefault(task.name, []) for column in BY_EPSILON
        )
        for epsilon in EPSILONS:
            tol = relative(epsilon, task.C, reference.report["primal"])
            run = measured.run(task.train, task.C, "cutting-plane", tol)
            converged = run.report["converged"]
            qualities.append(task.quality(run.model, task.test) if converged else None)
            iterations.append(float(run.reads) if converged else None)
            times.append(certified_seconds(run))
            objectives.append(below(run, reference))
        usual = qualities[EPSILONS.index(EPSILON)]
        qualities[:] = [None if None in (usual, own) else own - usual for own in qualities]
    print_columns(BY_EPSILON, found, EPSILONS, "epsilon")
    if pictures is not None:
        draw_columns(BY_EPSILON, found, EPSILONS, "epsilon", pictures / "joachims-epsilon.svg")


BY_COST = (
    Column("Figure 3", "Quality minus that of the optimum", linear=True),
    Column("Figure 7, left", "Objective below the optimum, %"),
    Column("Figure 8", "Iterations of Algorithm 1", 0.5),
    Column("Figure 9, left", "CPU seconds of Algorithm 1", 1.0),
    Column("Figure 9, right", "CPU seconds of `smo`", 1.0),
)


def print_cost(all_tasks: Sequence[Task], measured: Measured, pictures: Path | None) -> None:
    """Figures 3 and 7 to 9, on the rows for training; SMO on as many as it can take."""
    found: Found = {column.title: {} for column in BY_COST}
    for task in (each for each in all_tasks if not each.is_large):
        columns = [found[column.title].setdefault(task.name, []) for column in BY_COST]
        few, slow = task.train.first(min(task.smo_rows, len(task.train))), False
        for C in COSTS:
            reference = optimum(task.train, C, EXACT)
            tol = relative(EPSILON, C, reference.report["primal"])
            run = measured.run(task.train, C, "cutting-plane", tol)
            converged = run.report["converged"]
            smo = None if slow else measured.run(few, C * len(few) / len(task.train), "smo", tol)
            slow = smo is None or smo.seconds > LONG
            better = task.quality(run.model, task.test) - task.quality(reference.model, task.test)
            values = [
                better if converged else None,
                below(run, reference),
                float(run.reads) if converged else None,
                certified_seconds(run),
                None if smo is None else certified_seconds(smo),
            ]
            for column, value in zip(columns, values, strict=True):
                column.append(value)
    print_columns(BY_COST, found, COSTS, "C")
    if pictures is not None:
        draw_columns(BY_COST, found, COSTS, "C", pictures / "joachims-cost.svg")


PARTS = {
    "table1": print_table1,
    "pairs": print_pairs,
    "growth": print_growth,
    "epsilon": print_epsilon,
    "cost": print_cost,
}


def main() -> None:
    """Print the tables."""
    parser = options_of(__doc__, PARTS, QUICK_ROWS)
    parser.add_argument("--max-passes", type=int, default=6_000, metavar="N", help="reads of a run at most")
    arguments = parser.parse_args()
    print(machine() + "\n", flush=True)
    with tempfile.TemporaryDirectory() as own:
        found = list(tasks(arguments.folder, arguments.stores or Path(own)))
        if arguments.quick or arguments.rows:
            found = [task.first(arguments.rows or QUICK_ROWS) for task in found]
        if arguments.quick:
            found = [task for task in found if not task.is_large]
        for part in arguments.only:
            PARTS[part](found, Measured(arguments.max_passes), arguments.pictures)


if __name__ == "__main__":
    main()

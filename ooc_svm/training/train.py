"""One call that puts data, problem, solver and engine together."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from ooc_svm.cluster.connection import connect
from ooc_svm.data.blocks import Float64Array
from ooc_svm.data.classes import label_text
from ooc_svm.data.source import MatrixSource, Source
from ooc_svm.engine.base import Engine
from ooc_svm.engine.local import LocalEngine
from ooc_svm.engine.serial import MemoryEngine
from ooc_svm.errors import DamageError, InputError, Interrupted, UsageError
from ooc_svm.model.model import Model
from ooc_svm.options import TrainOptions
from ooc_svm.passes.columns import ColumnPass, ColumnSums
from ooc_svm.problems.pairwise import HEADS, RANKS
from ooc_svm.rowvectors.vector import RowVectors
from ooc_svm.solvers.certificate import Certificate
from ooc_svm.solvers.space import LinearSpace
from ooc_svm.solvers.stopping import CERTIFIED, SIGNAL, Stopping
from ooc_svm.solvers.streamed_smo.solver import StreamedSmo
from ooc_svm.solvers.streamed_smo.sweep import opening
from ooc_svm.store import Store
from ooc_svm.system import signals
from ooc_svm.system.malloc import share_freed_memory
from ooc_svm.system.memory import memory_budget, parse_size
from ooc_svm.training.assembly import (
    CODES,
    TARGET,
    WEIGHT,
    AnySolver,
    Task,
    counted_vectors,
    data_rounds,
    make_solvers,
    resident_share,
    smo_effort,
)
from ooc_svm.training.checkpoint import Checkpoints, run_keys
from ooc_svm.training.data import (
    Data,
    fill_pair_vectors,
    fill_row_vectors,
    make_tasks,
    named_labels,
    names_of,
    open_data,
    workload,
)
from ooc_svm.training.memory_plan import Budget, Parameters, can_follow, divide
from ooc_svm.training.progress import Progress, Recorder, run_report
from ooc_svm.training.warmstart import families, warm_start
from ooc_svm.training.warmup import warm_up

# Reads after which the columns are looked at, and the spread of their sizes that is worth a word.
HINT_PASSES, LARGE_SPREAD = 1, 100.0

# A checkpoint is written when the last one took less than this share of the time since.
CHECKPOINT_SHARE = 0.1

# Options that a resumed run may have changed.
KEY_LEAVES_OUT = (
    *("memory", "threads", "engine", "scheduler", "insecure_cluster"),
    *("max_passes", "time_limit", "checkpoint", "resume", "warm_start", "tol"),
)


def train(
    data: Any,
    labels: Any = None,
    *,
    sample_weight: Any = None,
    qid: Any = None,
    progress: Callable[[Progress], None] | None = None,
    **options: Any,
) -> Model:
    """Train a linear support vector machine to a certified gap.

    What is minimised is one of ::

        P(w, b) = 1/2 |w|^2 + C sum_i omega_i loss(w.x_i + b)
        P(w)    = 1/2 |w|^2 + C/m sum_ij omega_ij max(0, 1 - w.(x_i - x_j))

    The loss is ``max(0, 1 - y_i s)`` or its square for classes, ``max(0, |z_i - s| - epsilon)`` or its square
    for values. ``omega_i`` is the weight of the row times that of its class; b is 0 (``bias="none"``), the
    weight of a constant feature, ``|w|^2 + b^2`` being penalised (``bias="penalized"``), or free of penalty
    (``bias="free"``). The second form is that of "ordinal", "roc-area" and "ranking": the sum is over the
    pairs of rows of which i has the higher label, for "ranking" inside groups of equal qid; m is the sum of
    their weights ``omega_ij``, the product of those of the rows or the weight of the group.

    Parameters
    ----------
    data : path, Store, or sparse matrix
        A store made by `ooc_svm.convert`, any AnnData Zarr file with a CSR ``X``, or rows in memory.
    labels : array_like of shape (n_rows,), optional
        With a matrix only: stores bring their labels.
    sample_weight : array_like of shape (n_rows,), optional
        With a matrix only: weights of the rows' losses, not negative.
    qid : array_like of int of shape (n_rows,), optional
        With a matrix only: numbers of the groups of "ranking"; rows of a group follow one another.
    progress : callable, optional
        Called with a `Progress` after each block and each pass.
    **options
        See `ooc_svm.options.TrainOptions`.

    Returns
    -------
    Model
        With the certificate of each decision function in ``report``.

    Raises
    ------
    UsageError
        Options that are not possible or contradict the data.
    InputError
        Labels that are no classes, fewer than two classes, negative weights, values that overflow.
    DamageError, StorageError
        The store or a checkpoint is damaged, reading or writing failed.
    MemoryBudgetError
        What is needed does not fit ``memory``; nothing was run.
    Interrupted
        By a signal, after a checkpoint if one was asked for.
    """
    wanted = TrainOptions(**normal_options(options))
    if isinstance(data, str | os.PathLike | Store):
        share_freed_memory()
    return _Run(open_data(data, labels, sample_weight, wanted, qid), wanted, progress).model()


class _Run:
    """One training, from options to model."""

    def __init__(
        self, data: Data, options: TrainOptions, progress: Callable[[Progress], None] | None
    ) -> None:
        self._data, self._options = data, options
        self._progress = progress
        self._classes, self._tasks = make_tasks(data, options)
        self._families = families(data.id(), options) if options.checkpoint or options.warm_start else [""]
        self._checkpoints = self._open_checkpoints()
        facts = self._checkpoints.newest_facts() if self._checkpoints and options.resume else None
        self._keep = None if facts is None else _kept(facts)
        self._resuming = facts is not None
        self._budget: Budget
        self._last_saved = time.monotonic()
        self._save_seconds = 0.0

    def model(self) -> Model:
        """Run it."""
        source, options = self._data.source, self._options
        with ExitStack() as stack:
            engine = self._open_engine(stack)
            vectors, budget = engine.vectors, self._budget
            engine.sorting_bytes = budget.sorting_bytes
            certificates: list[Certificate] = []
            recorder = Recorder(engine, lambda: certificates, options.tol, self._progress)
            warm_up(options, self._data.value_type, source.has_weight, recorder.note)
            pairs = None
            if options.over_pairs:
                pairs = fill_pair_vectors(vectors, self._data, self._classes, options, budget.sorting_bytes)
            else:
                engine.fill(partial(fill_row_vectors, labels=self._classes, problem=options.problem))
            scale = self._scale(engine)
            space = LinearSpace(source.n_features, scale, options.bias == "penalized")
            deadline = None if options.time_limit is None else time.monotonic() + options.time_limit
            stopping = Stopping(options.tol, options.max_passes, deadline)
            value_type = self._data.value_type
            solvers, wanted = make_solvers(
                self._tasks, options, budget.parameters, source, value_type, space, stopping, pairs
            )
            for name, dtype in wanted.items():
                vectors.create(name, dtype)
            if options.warm_start is not None and not self._resuming:
                smo = [solver for solver in solvers if isinstance(solver, StreamedSmo)]
                start = warm_start(
                    options.warm_start, smo, self._tasks, vectors, self._families, source.blocks
                )
                recorder.note(f"starting from {start}")
            if self._resuming:
                self._restore(solvers, vectors, engine, recorder)
            certificates += [solver.state.certificate for solver in solvers]
            # What overflows is said by the certificate. The master problem's products are made by one
            # thread: a linear algebra library adds in another order on another number of processors.
            with np.errstate(over="ignore", invalid="ignore"), threadpool_limits(1, user_api="blas"):
                engine.run(solvers, lambda: self._between(solvers, vectors, engine, recorder))
            recorder.passed()
            if self._checkpoints is not None:
                self._save(solvers, vectors, engine, recorder)
            return self._finish(solvers, engine, recorder)

    def _open_engine(self, stack: ExitStack) -> Engine:
        """Divide the memory, and open what the options ask for."""
        source, options = self._data.source, self._options
        work, total = workload(self._data, options), memory_budget(options.memory)
        if self._keep is not None and not can_follow(work, options, self._keep):
            raise DamageError(f"the checkpoint was made with impossible {self._keep}; start the run anew")
        if options.engine == "dask":
            assert isinstance(source, Store)
            # Before what follows is imported: workers load theirs meanwhile.
            cluster = stack.enter_context(
                connect(
                    options.scheduler,
                    workers=work.threads,
                    memory=None if options.memory is None else parse_size(options.memory),
                    insecure=options.insecure_cluster,
                    visible=source.path,
                )
            )
            from ooc_svm.training import on_cluster as on_cluster

            members = cluster.workers()
            budget = self._budget = on_cluster.client_budget(work, options, total, members, self._keep)
            rounds = data_rounds(options, budget.parameters, source)
            return stack.enter_context(on_cluster.open_engine(cluster, source, options, work, budget, rounds))
        budget = self._budget = divide(work, options, total, keep=self._keep)
        vectors = stack.enter_context(RowVectors(source.n_rows, budget.row_vector_bytes))
        if isinstance(source, MatrixSource):
            return MemoryEngine(source, vectors)
        engine = stack.enter_context(
            LocalEngine(source, vectors, threads=work.threads, cache_bytes=budget.cache_bytes)
        )
        rounds = data_rounds(options, budget.parameters, source)
        if rounds and options.scale == "none" and not self._resuming:
            # While compiled functions are loaded.
            engine.read_ahead(opening(rounds))
        return engine

    def _open_checkpoints(self) -> Checkpoints | None:
        options = self._options
        if options.checkpoint is None:
            return None
        return Checkpoints(options.checkpoint, run_keys(self._data.id(), options, KEY_LEAVES_OUT))

    def _scale(self, engine: Engine) -> Float64Array | None:
        """Factors of the columns, from one read of the data; None without scaling."""
        if self._options.scale == "none":
            return None
        sums: ColumnSums = engine.stream([ColumnPass(engine.source.n_features)])[0]
        with np.errstate(over="ignore", invalid="ignore"):
            spread = sums.largest if self._options.scale == "maxabs" else sums.deviation(engine.source.n_rows)
            # A column without spread keeps its unit.
            scale = 1.0 / np.where(spread == 0.0, 1.0, spread)
            # Dual solvers work with the squares.
            impossible = ~np.isfinite(scale**2) | (scale**2 == 0.0)
        if impossible.any():
            column = int(np.argmax(impossible))
            raise InputError(
                f"the feature {column + self._data.index_base} has values too large or too small to be "
                f"divided by their spread, {spread[column]}; mend it or choose another --scale"
            )
        return scale

    def _between(
        self, solvers: Sequence[AnySolver], vectors: RowVectors, engine: Engine, recorder: Recorder
    ) -> None:
        """Before every read of the data: history, checkpoint, interruption."""
        recorder.passed()
        signal = signals.requested()
        if self._checkpoints is not None and engine.counters.passes:
            since = time.monotonic() - self._last_saved
            if signal is not None or self._save_seconds <= CHECKPOINT_SHARE * since:
                self._save(solvers, vectors, engine, recorder)
        if signal is not None:
            kept = (
                "there is no checkpoint to go on from; ask for one with --checkpoint"
                if self._checkpoints is None
                else f"go on with --resume from {self._checkpoints.folder}"
            )
            whole = all(solver.state.certificate.passes for solver in solvers)
            model = self._finish(solvers, engine, recorder) if whole else None
            raise Interrupted(signal, f"interrupted after {engine.counters.passes} passes; {kept}", model)
        if engine.counters.passes == HINT_PASSES and self._options.scale == "none":
            self._hint_at_scale(solvers, recorder)

    def _hint_at_scale(self, solvers: Sequence[AnySolver], recorder: Recorder) -> None:
        """Say so where the columns' units are what keeps a run from ending."""
        first = solvers[0]
        if isinstance(first, StreamedSmo):
            spread = first.state.residents.column_spread(self._data.source.n_features)
            if spread > LARGE_SPREAD:
                recorder.note(
                    f"the columns differ in size by a factor of {spread:.0e}: that takes many passes; "
                    "--scale maxabs or std trains on columns of one size"
                )

    def _save(
        self, solvers: Sequence[AnySolver], vectors: RowVectors, engine: Engine, recorder: Recorder
    ) -> None:
        assert self._checkpoints is not None
        began = time.monotonic()
        facts = {
            "C": [task.C for task in self._tasks],
            "family": self._families[0],
            "parameters": asdict(self._budget.parameters),
            "cut": self._cut(),
            "seconds": recorder.seconds,
            "history": recorder.history,
            "passes": engine.counters.passes,
            "bytes_read": engine.counters.bytes_read,
        }
        states = [solver.state for solver in solvers]
        self._checkpoints.save(engine.counters.passes, states, vectors, _own_vectors(vectors, solvers), facts)
        self._last_saved = time.monotonic()
        self._save_seconds = self._last_saved - began

    def _cut(self) -> list[int]:
        """Rounds and lanes of a read, which saved steps are to be understood by; none for other solvers."""
        if self._options.resolved_solver != "streamed-smo":
            return []
        effort = smo_effort(self._options, self._budget.parameters, self._data.source)
        return [effort.rounds, effort.lanes]

    def _restore(
        self, solvers: Sequence[AnySolver], vectors: RowVectors, engine: Engine, recorder: Recorder
    ) -> None:
        assert self._checkpoints is not None
        states = [solver.state for solver in solvers]
        facts = self._checkpoints.restore(states, vectors, _own_vectors(vectors, solvers))
        if _fact(facts, "cut", list) != self._cut() or not all(solver.is_sound() for solver in solvers):
            raise DamageError(
                f"the checkpoint in {self._checkpoints.folder} does not fit the data; start anew"
            )
        scaling_passes = engine.counters.passes
        engine.counters.passes = _fact(facts, "passes")
        engine.counters.bytes_read = _fact(facts, "bytes_read")
        recorder.resume(_fact(facts, "history", list), _fact(facts, "seconds", float))
        for solver in solvers:
            if solver.state.certificate.passes:
                solver.state.certificate.reopen(solver.stopping)
        recorder.note(
            f"going on after {engine.counters.passes} passes"
            + (f" ({scaling_passes} more for the scale of the columns)" if scaling_passes else "")
        )

    def _finish(self, solvers: Sequence[AnySolver], engine: Engine, recorder: Recorder) -> Model:
        """The model of the best points so far."""
        options, data = self._options, self._data
        weights, biases, rows = [], [], []
        for task, solver in zip(self._tasks, solvers, strict=True):
            w, bias = solver.solution()
            weights.append(w)
            biases.append(bias)
            row = _model_report(task, bias, solver.state.certificate, data.label_names)
            if isinstance(solver, StreamedSmo):
                row["visited"] = solver.state.visited / data.source.n_rows
            rows.append(row)
        positive = [task.classes.positive for task in self._tasks if task.classes is not None]
        negative = None if self._tasks[0].classes is None else self._tasks[0].classes.negative
        named = named_labels(data, options)[0]
        classes = self._classes if options.problem == "svc" else np.empty(0)
        report = {
            "problem": options.problem,
            "loss": options.resolved_loss,
            "solver": options.resolved_solver,
            "kernel": options.kernel,
            **_parameter_report(options, self._budget.parameters, data.source),
            "value_type": data.value_type,
            **run_report(recorder, engine, rows),
        }
        return Model(
            problem=options.problem,
            loss=options.resolved_loss,
            solver=options.resolved_solver,
            kernel=options.kernel,
            weights=np.array(weights),
            bias=np.array(biases),
            positive=positive,
            negative=negative,
            classes=tuple(classes.tolist()),
            label_names=names_of(classes, data.label_names) if len(classes) else None,
            C=tuple(task.C for task in self._tasks),
            index_base=data.index_base,
            scale=solvers[0].problem.space.scale,
            options=replace(options, positive=named).to_json(),
            report=report,
        )


def _own_vectors(vectors: RowVectors, solvers: Sequence[AnySolver]) -> list[str]:
    """Names of the row vectors that solvers go on from; the others are made from the data or counted anew."""
    counted = [name for solver in solvers for name in counted_vectors(solver)]
    return [n for n in vectors.names() if n not in (CODES, TARGET, WEIGHT, RANKS, HEADS, *counted)]


def _kept(facts: Mapping[str, Any]) -> Parameters:
    """The parameters that a checkpoint was made with."""
    found = _fact(facts, "parameters", dict)
    if set(found) != set(Parameters.__dataclass_fields__) or any(type(n) is not int for n in found.values()):
        raise DamageError("the checkpoint does not say its parameters; start the run anew")
    return Parameters(**found)


def _parameter_report(options: TrainOptions, parameters: Parameters, source: Source) -> dict[str, Any]:
    """What the memory allowed, where another answer within the gap would follow from other values."""
    if options.resolved_solver == "streamed-smo":
        effort, resident = smo_effort(options, parameters, source), resident_share(parameters, source)
        return {"resident": resident, "rounds": effort.rounds, "lanes": effort.lanes}
    return {
        "cut_groups": parameters.groups,
        "cut_points": parameters.points,
        "bins": parameters.bins,
        "max_cuts": parameters.max_cuts,
    }


def _fact(facts: Mapping[str, Any], name: str, kind: type = int) -> Any:
    """One of the facts of a checkpoint, which may come from anywhere."""
    if type(facts.get(name)) is not kind:
        raise DamageError(f"the checkpoint does not say {name}; start the run anew")
    return facts[name]


def _model_report(
    task: Task, bias: float, certificate: Certificate, names: tuple[str, ...] | None
) -> dict[str, Any]:
    label = None
    if task.classes is not None:
        positive = task.classes.positive
        label = label_text(positive) if names is None else names[int(positive)]
    return {
        "label": label,
        "C": task.C,
        "primal": certificate.primal,
        "dual": certificate.dual,
        "gap": certificate.gap,
        "relative_gap": certificate.relative_gap,
        "passes": certificate.passes,
        "bias": bias,
        "n_support": None if certificate.stop_reason is None else certificate.n_support,
        "converged": certificate.stop_reason == CERTIFIED,
        "stop_reason": certificate.stop_reason or SIGNAL,
    }


def normal_options(options: dict[str, Any]) -> dict[str, Any]:
    """Options as `TrainOptions` takes them: numbers of Python, C and positive labels in tuples."""
    unknown = set(options) - set(TrainOptions.__dataclass_fields__)
    if unknown:
        raise UsageError(f"unknown option {sorted(unknown)[0]!r}; see ooc_svm.options.TrainOptions")
    normal = {name: _plain(value) for name, value in options.items()}
    for name in ("C", "positive"):
        if name in normal:
            value = normal[name]
            single = isinstance(value, str) or np.ndim(value) == 0
            normal[name] = (value,) if single else tuple(_plain(item) for item in value)
    if isinstance(normal.get("class_weight"), Mapping):
        normal["class_weight"] = {_plain(k): _plain(v) for k, v in normal["class_weight"].items()}
    return normal


def _plain(value: Any) -> Any:
    """A number of NumPy as one of Python."""
    return value.item() if isinstance(value, np.generic) else value

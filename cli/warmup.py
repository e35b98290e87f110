"""``ooc-svm warmup``: compiles what the commands need."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ooc_svm.cli.options import Quiet
from ooc_svm.cli.progress import write_line
from ooc_svm.system.amounts import format_seconds

if TYPE_CHECKING:
    from pathlib import Path

    from ooc_svm.options import TrainOptions


def warmup(
    problems: Annotated[
        list[str] | None,
        typer.Option(
            "--problem",
            metavar="NAME",
            help="Only for this problem; may be given several times. Default: all.",
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Compile what the commands need, so that none of them waits for it.

    It is kept for this version on this machine; the last line says where. Other options than the common ones
    still compile something when they are first used.
    """
    from ooc_svm.catalog import PROBLEMS
    from ooc_svm.errors import StorageError, UsageError
    from ooc_svm.ops.compiled import cache_folder

    chosen = list(dict.fromkeys(problems or PROBLEMS))
    for name in chosen:
        if name not in PROBLEMS:
            raise UsageError(f"--problem must be one of {', '.join(PROBLEMS)}, not {name!r}")
    folder = cache_folder()
    if folder is None:
        raise StorageError(
            "there is no folder where compiled functions can be kept; name one that can be written with "
            "NUMBA_CACHE_DIR"
        )
    begin = time.monotonic()
    steps = _steps(chosen)
    for number, (what, step) in enumerate(steps, 1):
        step_begin = time.monotonic()
        step()
        if not quiet:
            write_line(f"{number} of {len(steps)}: {what}, {format_seconds(time.monotonic() - step_begin)}")
    typer.echo(f"compiled in {format_seconds(time.monotonic() - begin)}; kept in {folder}")


def _steps(problems: list[str]) -> list[tuple[str, Callable[[], None]]]:
    """What is compiled: names, and functions that run it on made-up rows."""
    from functools import partial

    steps: list[tuple[str, Callable[[], None]]] = []
    for problem in problems:
        for what, options in _trainings(problem):
            for values in ("ones", "float32", "float64"):
                steps.append((f"train {what}, {values}", partial(_train, options, values)))
    steps += [(f"convert, verify, tune, predict, evaluate, {each}", partial(_use, each)) for each in problems]
    return steps


def _trainings(problem: str) -> list[tuple[str, TrainOptions]]:
    """The solver that is chosen for each loss, with each bias and with a scale."""
    from ooc_svm.catalog import PROBLEMS
    from ooc_svm.options import TrainOptions

    found = []
    for loss in PROBLEMS[problem].losses:
        for bias in PROBLEMS[problem].biases:
            for scale in ("none", "maxabs"):
                options = TrainOptions(problem=problem, loss=loss, bias=bias, scale=scale)
                what = [problem, loss, *([f"bias {bias}"] if bias != "none" else [])]
                found.append((", ".join([*what, *(["scaled"] if scale != "none" else [])]), options))
    return found


def _train(options: TrainOptions, values: str) -> None:
    from ooc_svm.solvers.base import FunctionKinds
    from ooc_svm.training.warmup import warm_up

    warm_up(options, values, False, lambda message: None)
    if options.resolved_solver == "streamed-smo":
        for name in FunctionKinds._fields:
            warm_up(options, values, False, lambda message: None, kinds=FunctionKinds(**{name: True}))


def _use(problem: str) -> None:
    """Run the other commands' functions on a few rows of each type of values, from text and from a store."""
    from ooc_svm.errors import HintWarning
    from ooc_svm.system.folders import default_scratch_folder, private_folder

    advice = "name another folder in TMPDIR"
    with (
        private_folder(default_scratch_folder(), "ooc-svm-warmup", advice) as folder,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", HintWarning)  # these models are of no use, and need not be
        text, target = folder / "rows.svm", folder / "rows.zarr"
        for dtype, value in (("float32", "1"), ("float32", "0.5"), ("float64", "0.1")):
            rows = [f"{row % 3} qid:{row // 6 + 1} {row % 5 + 1}:{value} 7:{value}\n" for row in range(60)]
            if problem in ("svc", "nu-svc"):  # also of two classes
                _use_rows(problem, dtype, text, target, [f"{int(r[0]) % 2}{r[1:]}" for r in rows])
            _use_rows(problem, dtype, text, target, rows)


def _use_rows(problem: str, dtype: str, text: Path, target: Path, rows: list[str]) -> None:
    from ooc_svm.conversion.convert import convert
    from ooc_svm.evaluation.evaluate import evaluate
    from ooc_svm.prediction.predict import predict
    from ooc_svm.store import verify_store
    from ooc_svm.training.train import train
    from ooc_svm.training.tune import tune

    text.write_text("".join(rows))
    convert(text, target, dtype=dtype, overwrite=True, threads=1)
    verify_store(target)
    positive: dict[str, Any] = {"positive": [1, 2]} if problem == "roc-area" else {}
    model = train(target, problem=problem, max_passes=1, threads=1, **positive)
    tune(target, problem=problem, folds=2, max_passes=1, threads=1, **positive)
    for data in (target, text):
        predict(model, data, threads=1)
    evaluate(model, target, threads=1)

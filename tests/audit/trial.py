"""One case: trained as it says, judged, and compared with easier twins where it did badly."""

from __future__ import annotations

import math
import os
import tempfile
import time
import traceback
import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
from audit.data import DEFAULTS, make_rows
from audit.judge import Finding, judge
from audit.objective import Rows, make_objectives

import ooc_svm
from ooc_svm.errors import InputError, OocSvmError

CHUNK = {"chunk_elements": 2000, "block_chunks": 2}
OUT_OF_RANGE = ("non-finite objective", "too large or too small")  # What a run says of such numbers
LATE_SECONDS = 0.25  # Seconds that a run may take beyond its limit: one read and its master problem
EASY_READS, EASY_TOL = 6, 1e-3
SMALL_SHARE_READS = 30
ORDINARY = ("spread", "size", "offset", "target_offset", "target_size", "weights")
ROUNDING = 1e-7  # Of P, where these parts of a description are as they are by default


class Outcome(Exception):
    """A run that ended without a model: what it says is not a defect in itself."""


def try_case(case):
    """All that is wrong with a case, and the models' report (None without a model)."""
    with tempfile.TemporaryDirectory(prefix="audit-") as folder:
        try:
            return _try(case, Path(folder))
        except Outcome as outcome:
            return [], {"models": [], "outcome": str(outcome)}
        except OocSvmError as error:
            kind = "internal" if error.exit_code == 1 else "refused"
            return [Finding(kind, f"{type(error).__name__}: {error}")], None
        except Exception as error:
            line = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__}: {error} ({line.filename}:{line.lineno})"
            return [Finding("crash", text)], None


def _try(case, folder):
    options, how = dict(case["options"]), case["how"]
    rows = make_rows(options["problem"], **case["data"])
    data = _place(rows, how, folder)
    if _weigh_nothing(rows, options):
        return _refused(data, options), None
    limit = options.get("time_limit")
    if how.get("threads"):
        options["threads"] = how["threads"]
    if how.get("dask"):
        options |= {"engine": "dask", "time_limit": None, "max_passes": 15}
        limit = None
    warm = _warm_start(data, options, how, folder)
    model, took = _timed(data, options | warm)
    findings = list(judge(model, rows, options))
    if limit is not None and took > limit + _late_seconds(model):
        again_model, again = _timed(data, options | warm)  # The first run may have compiled
        if again > limit + _late_seconds(again_model):
            text = f"took {again:.3g} seconds with a limit of {limit:g}"
            findings.append(Finding("time", text))
    if how.get("interrupt"):
        findings += _resumed(data, options, how, folder, model)
    findings += _reads(case, rows, model)
    findings += _rounding(case, model.report)
    return findings, model.report


def _late_seconds(model):
    """How late a run may end: no read begins after its limit, and one that has begun is ended.

    Those of SMO solve the resident rows in a read.
    """
    if model.solver not in ("streamed-smo", "smo"):
        return LATE_SECONDS
    ends = [0.0, *(row["seconds"] for row in model.report["history"])]
    longest = max((after - before for before, after in pairwise(ends)), default=0.0)
    return max(LATE_SECONDS, 2.0 * longest)


def _weigh_nothing(rows, options):
    """Whether all pairs of rows have the weight 0, so that there is nothing to train on."""
    with np.errstate(invalid="ignore"):
        objectives = make_objectives(rows, options)
    return any(each.second is not None and np.isnan(each.cost).any() for _, _, each in objectives)


def _refused(data, options):
    try:
        _train(data, **options)
    except InputError as error:
        raise Outcome(str(error)) from error
    return [Finding("accepted", "no pair of rows weighs anything, and a model was trained")]


def _place(rows: Rows, how, folder):
    """Arguments of ``train``: a matrix, or a store of small blocks."""
    if not how.get("store"):
        return {"data": rows.matrix, "labels": rows.labels, "sample_weight": rows.weights, "qid": rows.qid}
    from helpers.store_data import write_store

    rows_of_chunk = how["store"]
    fsync, os.fsync = os.fsync, lambda descriptor: None
    try:
        write_store(
            folder / "rows.zarr", rows.matrix, rows.labels, qids=rows.qid, weights=rows.weights,
            batches=(500,), chunk_rows=rows_of_chunk, block_rows=rows_of_chunk, dtype=str(rows.matrix.dtype),
            **CHUNK,
        )  # fmt: skip
    finally:
        os.fsync = fsync
    return {"data": folder / "rows.zarr"}


def _train(data, **options):
    """A model; what overflows is no defect, and any other warning or error is, but for hints."""
    data = dict(data)
    with warnings.catch_warnings(action="error"):
        warnings.simplefilter("ignore", ooc_svm.HintWarning)
        try:
            return ooc_svm.train(data.pop("data"), data.pop("labels", None), **data, **options)
        except InputError as error:
            if any(told in str(error) for told in OUT_OF_RANGE):
                raise Outcome(str(error)) from error
            raise


def _timed(data, options):
    """A model, and the seconds that it took: of the clock or of processors, whichever are fewer.

    Others on the machine make the first more, and threads the second.
    """
    began = time.monotonic(), time.process_time()
    model = _train(data, **options)
    return model, min(time.monotonic() - began[0], time.process_time() - began[1])


def _warm_start(data, options, how, folder):
    if not how.get("warm"):
        return {}
    first = {**options, "max_passes": 10}
    if "C" in options:
        first["C"] = _times(options["C"], 1.0 / how["ratio"])
    if how["warm"] == "model":
        ooc_svm.save_model(_train(data, **first), folder / "first.model")
        return {"warm_start": folder / "first.model"}
    _train(data, **first, checkpoint=folder / "first")
    return {"warm_start": folder / "first"}


def _times(costs, factor):
    return [C * factor for C in costs] if isinstance(costs, list) else costs * factor


def _resumed(data, options, how, folder, model):
    """The same run, interrupted and resumed, has the same bits."""
    reads, states = how["interrupt"], folder / "states"
    stopped_by_time = any(row["stop_reason"] == "time-limit" for row in model.report["models"])
    if model.report["passes"] <= reads or stopped_by_time:
        return
    without = {name: value for name, value in options.items() if name != "time_limit"}
    _train(data, **without | {"max_passes": reads}, checkpoint=states)
    again = _train(data, **without, checkpoint=states, resume=True)
    old_arrays, new_arrays = (each.functions.to_arrays() for each in (model, again))
    for name in old_arrays.keys() | new_arrays.keys():
        old, new = (arrays.get(name, np.empty(0)) for arrays in (old_arrays, new_arrays))
        if old.tobytes() != new.tobytes():
            off = f"{abs(new - old).max(initial=0.0):.3g}" if old.shape == new.shape else "of another shape"
            yield Finding("resume", f"resumed after {reads} reads, {name} of the model is {off} off")
    for old, new in zip(model.report["models"], again.report["models"], strict=True):
        if (old["primal"], old["dual"], old["passes"]) != (new["primal"], new["dual"], new["passes"]):
            yield Finding("resume", f"resumed after {reads} reads, the report is {new} instead of {old}")


def _rounding(case, report):
    """What is allowed for rounding is little where nothing is large, far from 0 or of different size."""
    data = case["data"]
    plain = all(data.get(name, DEFAULTS[name]) == DEFAULTS[name] for name in ORDINARY)
    plain = plain and data.get("values") != "heavy" and "warm" not in case["how"]
    # P of a margin may vanish, and values of a kernel are of float32 as long as they serve.
    plain = plain and case["options"]["problem"] != "nu-svc" and "kernel" not in case["options"]
    for row in report["models"]:
        share = row.get("rounding", 0.0) > ROUNDING * row["primal"] and not row.get("absolute")
        if plain and 1e-3 <= row["C"] <= 100.0 and share:
            text = f"rounding of {row['rounding']:.3g} is allowed for, P {row['primal']!r}"
            yield Finding("loose", text)


def _reads(case, rows, model):
    """Reads that a case should not take, since an easier twin of it does not."""
    options, data, report = case["options"], case["data"], model.report
    if options["problem"] == "svr" and np.ptp(rows.labels) == 0.0 and options["bias"] == "free":
        for row in report["models"]:
            if not row["converged"] or row["passes"] > 2:
                yield Finding(
                    "constant", f"constant targets, ended by {row['stop_reason']} after {row['passes']} reads"
                )
        return
    if options["solver"] != "streamed-smo" or case["how"].get("warm"):
        return
    passes = max(row["passes"] for row in report["models"])
    done = all(row["converged"] for row in report["models"])
    worst = max(report["models"], key=lambda row: row["relative_gap"])
    lost = worst.get("rounding", 0.0) > 0.1 * options["tol"] * worst["primal"]
    in_time = worst["stop_reason"] != "time-limit" and not lost
    easy = {name: value for name, value in data.items() if name not in _shifts(rows, options)}
    if easy != data and options["tol"] >= EASY_TOL and passes > EASY_READS and in_time:
        twin = _twin(case, data=easy)
        if twin is not None and _ended(twin) and passes > max(EASY_READS, 2 * twin["passes"] + 2):
            yield Finding(
                "slow",
                f"{passes} reads to a gap of {worst['relative_gap']:.3g}, and {twin['passes']} where "
                "features and targets are near 0",
            )
            return
    if not done and in_time and worst["relative_gap"] > 0.5 and options.get("resident", 1.0) < 1.0:
        twin = _twin(case, options={**options, "resident": 1.0})
        if twin is not None and _ended(twin) and twin["passes"] <= SMALL_SHARE_READS:
            yield Finding(
                "stuck",
                f"a gap of {worst['relative_gap']:.3g} after {passes} reads, ended by "
                f"{worst['stop_reason']}; certified after {twin['passes']} with all rows resident",
            )


def _shifts(rows, options):
    """Parts of a description that a free bias makes no difference of.

    Zeros have no offset: where there are some, it makes another problem.
    """
    if options.get("bias") != "free":
        return ()
    full = rows.matrix.count_nonzero() == math.prod(rows.matrix.shape) and rows.matrix.dtype == np.float64
    whole = full and options.get("scale") != "maxabs"
    return ("target_offset", "offset") if whole else ("target_offset",)


def _twin(case, **changes):
    """The report of a case with some parts changed; None without one."""
    changed = {**case, **changes, "how": {}}
    rows = make_rows(changed["options"]["problem"], **changed["data"])
    try:
        return _train(_place(rows, {}, Path()), **changed["options"]).report
    except (OocSvmError, Outcome):
        return None


def _ended(report):
    return all(row["converged"] for row in report["models"])


def size_of(case):
    """How large a description is: what shrinking makes smaller."""
    told = sum(DEFAULTS.get(name) != value for name, value in case["data"].items())
    return (case["data"]["n"] * case["data"]["d"], told + len(case["options"]) + len(case["how"]))

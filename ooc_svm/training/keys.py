"""What tells a run by its data and options from others: keys of checkpoints and of warm starts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ooc_svm.catalog import owners
from ooc_svm.options import TrainOptions, family_fields, identity_fields

if TYPE_CHECKING:
    from ooc_svm.training.preparation import Preparation


@dataclass(frozen=True, slots=True)
class RunKey:
    """What tells a run from others.

    ``texts``: the key of today, then those that version 0.1.0 gave it.
    ``data``: what tells its data from others.
    ``known_by``: what ``data`` follows from, for messages.
    """

    texts: list[str]
    data: str
    known_by: str

    def difference(self, saved: Mapping[str, Any], besides: str = "") -> str:
        """What is different about the run that saved this; version 0.1.0 did not save what would tell."""
        other_data = f"on other data (these are known by {self.known_by})"
        other_options = f"with other options{besides}"
        if not isinstance(saved.get("data"), str):
            return f"{other_data} or {other_options}"
        return other_options if saved["data"] == self.data else other_data


def run_key(
    data_id: str, known_by: str, options: TrainOptions, part: Mapping[str, Any] | None = None
) -> RunKey:
    """The key of a run; ``part``: what else tells its models from others, by name."""
    return RunKey(_keys(data_id, options, identity_fields(), part or {}), data_id, known_by)


def family_key(
    data_id: str, known_by: str, options: TrainOptions, part: Mapping[str, Any] | None = None
) -> RunKey:
    """The key that runs share whose states differ by C alone."""
    return RunKey(_keys(data_id, options, family_fields(), part or {}), data_id, known_by)


def key_of(prepared: Preparation) -> RunKey:
    """What tells a run from others, for its checkpoints."""
    return run_key(prepared.data.id(), prepared.data.known_by, prepared.options, _part_of(prepared))


def family_of(prepared: Preparation) -> RunKey:
    """What a run has in common with those that it can start from, or they from it."""
    return family_key(prepared.data.id(), prepared.data.known_by, prepared.options, _part_of(prepared))


def _part_of(prepared: Preparation) -> dict[str, Any]:
    """What of folds, of a batch and of a grid does not follow from data and options."""
    found: dict[str, Any] = {}
    if prepared.folds is not None:
        found["folds"] = [prepared.folds.n_folds, prepared.options.seed, prepared.folds.by_query]
    if prepared.batch is not None:
        found["batch"] = [prepared.batch.number, prepared.batch.total]
    if len(prepared.variants) > 1:
        found["grid"] = [dict(each.settings) for each in prepared.variants]
    return found


def _keys(
    data_id: str, options: TrainOptions, counted: Collection[str], part: Mapping[str, Any]
) -> list[str]:
    record = {name: value for name, value in options.to_json().items() if name in counted}
    # Version 0.1.0 held no rows out. A store that is only looked at changes no answer.
    record.pop("validation")
    # Version 0.2.0 had neither nu nor p, no numbers of a kernel, no sparse cuts and no landmarks.
    kernels = (name for name in record if "kernel" in owners(name))
    later = {"nu", "p", "sparse_cuts", "landmarks", *kernels}
    record = {
        name: value
        for name, value in record.items()
        if name not in later or (value is not None and value is not False)
    }
    if options.held_out_share is not None:
        record["held_out"] = [options.held_out_share, options.seed]
    record |= part
    solvers = [options.resolved_solver]
    if replace(options, solver="auto").resolved_solver == solvers[0]:
        # Version 0.1.0 wrote "auto" where that was asked for.
        solvers.append("auto")
    texts = [json.dumps([data_id, record | {"solver": solver}], sort_keys=True) for solver in solvers]
    return [hashlib.sha256(text.encode()).hexdigest() for text in texts]

"""What tells a run by its data and options from others: keys of checkpoints and of warm starts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ooc_svm.catalog import owners
from ooc_svm.errors import parameter, parameter_spelling, shown
from ooc_svm.options import TrainOptions, family_fields, identity_fields

if TYPE_CHECKING:
    from ooc_svm.training.preparation import Preparation


LONGEST = 60  # Characters of an option with its value, above which a message leaves the value out


@dataclass(frozen=True, slots=True)
class RunKey:
    """What tells a run from others.

    ``texts``: the key of today, then those that version 0.1.0 gave it.
    ``data``: what tells its data from others.
    ``known_by``: what ``data`` follows from, for messages.
    ``options``: those that tell it from others, by name; for messages, saved as JSON.
    """

    texts: list[str]
    data: str
    known_by: str
    options: dict[str, Any]

    def difference(self, saved: Mapping[str, Any], apart: str = "") -> str:
        """What is different about the run that saved this.

        Version 0.1.0 did not save what tells the data, and 0.2.0 did not save the options.
        """
        other_data = f"on other data (these are known by {self.known_by})"
        other_options = f"with other options{apart}"
        if not isinstance(saved.get("data"), str):
            return f"{other_data} or {other_options}"
        if saved["data"] != self.data:
            return other_data
        named = self._other_options(saved.get("options"))
        return f"{other_options} ({named})" if named else other_options

    def _other_options(self, saved: Any) -> str:
        """The options that differ, with the value of the run that saved them and that of this one."""
        if not isinstance(saved, dict):
            return ""
        found: list[str] = []
        for name, value in self.options.items():
            other = saved.get(name)
            if other != value and not (name == "calibrate" and other and value):  # the method may be another
                both = _written(name, other), _written(name, value)
                short = max(map(len, both)) <= LONGEST
                found.append(" instead of ".join(both) if short else f"another {parameter(name)}")
        return ", ".join(found)


def run_key(
    data_id: str, known_by: str, options: TrainOptions, part: Mapping[str, Any] | None = None
) -> RunKey:
    """The key of a run; ``part``: what else tells its models from others, by name."""
    return _key(data_id, known_by, options, identity_fields(), part or {})


def family_key(
    data_id: str, known_by: str, options: TrainOptions, part: Mapping[str, Any] | None = None
) -> RunKey:
    """The key that runs share whose states differ by C alone."""
    return _key(data_id, known_by, options, family_fields(), part or {})


def key_of(prepared: Preparation) -> RunKey:
    """What tells a run from others, for its checkpoints."""
    key = run_key(prepared.data.id(), prepared.data.known_by, prepared.options, _part_of(prepared))
    return _named_by_calibration(key, prepared)


def family_of(prepared: Preparation) -> RunKey:
    """What a run has in common with those that it can start from, or they from it."""
    key = family_key(prepared.data.id(), prepared.data.known_by, prepared.options, _part_of(prepared))
    return _named_by_calibration(key, prepared)


def _named_by_calibration(key: RunKey, prepared: Preparation) -> RunKey:
    """The key of a run with folds for a calibration alone, which come from no option of their own."""
    compared = prepared.tuning is not None and not prepared.tuning.on_store
    if prepared.folds is None or compared:
        return key
    return replace(key, options=key.options | {"folds": None, "calibrate": prepared.options.calibrate})


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


def _key(
    data_id: str, known_by: str, options: TrainOptions, counted: Collection[str], part: Mapping[str, Any]
) -> RunKey:
    texts = _keys(data_id, options, counted, part)
    return RunKey(texts, data_id, known_by, _named(options, counted, part))


def _named(options: TrainOptions, counted: Collection[str], part: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a key is made of, by the names under which they are given."""
    named = {name: value for name, value in options.to_json().items() if name in counted}
    named |= {"solver": options.resolved_solver, "validation": options.held_out_share}
    named |= {"folds": part["folds"][0] if "folds" in part else None, "calibrate": None}
    if named["validation"] is not None or named["folds"] is not None:
        named["seed"] = options.seed  # The rows that are left out follow from it
    points = part.get("grid", ())
    for name in points[0] if points else ():
        named[name] = sorted({point[name] for point in points})
    return named


def _written(name: str, value: Any) -> str:
    """An option with a value, as it is given; the value may come from anywhere."""
    if value is None or value is False:
        return f"no {parameter(name)}"
    parts = value if isinstance(value, list) else [value]
    if parameter_spelling() is None:
        return f"{parameter(name)}={shown(parts[0] if len(parts) == 1 else parts)}"
    if value is True:
        return parameter(name)
    texts = (":".join(map(_plain, each)) if isinstance(each, list) else _plain(each) for each in parts)
    return f"{parameter(name)} {','.join(texts)}"


def _plain(value: Any) -> str:
    """A number or a text without quotes."""
    return shown(value).strip("'")


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

"""What tells a run by its data and options from others: keys of checkpoints and of warm starts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import replace

from ooc_svm.options import TrainOptions, family_fields, identity_fields


def run_keys(data_id: str, options: TrainOptions) -> list[str]:
    """What tells a run from others: the key of today, then those that version 0.1.0 gave it."""
    return _keys(data_id, options, identity_fields())


def families(data_id: str, options: TrainOptions) -> list[str]:
    """Texts that runs share whose states differ by C alone; today's, then those of version 0.1.0."""
    return _keys(data_id, options, family_fields())


def _keys(data_id: str, options: TrainOptions, counted: Collection[str]) -> list[str]:
    record = {name: value for name, value in options.to_json().items() if name in counted}
    solvers = [options.resolved_solver]
    if replace(options, solver="auto").resolved_solver == solvers[0]:
        # Version 0.1.0 wrote "auto" where that was asked for.
        solvers.append("auto")
    texts = [json.dumps([data_id, record | {"solver": solver}], sort_keys=True) for solver in solvers]
    return [hashlib.sha256(text.encode()).hexdigest() for text in texts]

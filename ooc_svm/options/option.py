"""What is known of an option of training: its kind, what it decides, and its help."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field
from enum import Enum
from typing import Any, NamedTuple

from ooc_svm.parameters import Kind, choice


class Role(Enum):
    """What an option decides."""

    IDENTITY = "identity"  # which answer is computed; a checkpoint is of use for one value only
    # A resumed run may have another value of the others.
    RESOURCE = "resource"  # with what it is computed
    ROWS = "rows"  # which rows it is computed from; those are part of what the data are known by
    LIMIT = "limit"  # when the run ends
    RESULT = "result"  # what is made of the answer in the end
    PLACE = "place"  # where the run starts from and where it is saved; data are known by their content


# Headings under which the help lists options: by their role, and of those that belong together.
HEADINGS = {
    Role.IDENTITY: "Problem",
    Role.LIMIT: "Limits",
    Role.RESOURCE: "Resources",
    Role.ROWS: "Data",
    Role.RESULT: "Model",
    Role.PLACE: "Saved states",
}
SOLVER_HEADING, CLUSTER_HEADING = "Solver", "Cluster"


class Option(NamedTuple):
    """What is known of an option apart from its name.

    `metavar` stands for its value in the help and is empty for a flag. `varies`: whether a warm start may
    come from a run with another value, for the role "identity". `heading`: under which the help lists it.
    """

    kind: Kind
    default: Any
    role: Role
    help: str
    metavar: str = ""
    varies: bool = False
    heading: str = ""


def train_option(kind: Kind, default: Any, role: Role, help: str, metavar: str = "", **details: Any) -> Any:
    """A field of `ooc_svm.TrainOptions`; see `Option`."""
    option = Option(kind, default, role, help, metavar, **{"heading": HEADINGS[role], **details})
    return field(default=default, metadata={"option": option, "kind": kind})


def name_option(names: Collection[str], default: Any, role: Role, help: str, **details: Any) -> Any:
    """A field of `ooc_svm.TrainOptions` that is one of a few names."""
    return train_option(choice(*names), default, role, help, "|".join(names), **details)

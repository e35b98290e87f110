"""What is run under faults: commands with their inputs, their outputs, and what the outputs hold."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from faults.data import FOREIGN, LIMITS, NATIVE, SMO

from ooc_svm.errors import OocSvmError
from ooc_svm.model.file import load_model
from ooc_svm.store import open_store, verify_store

STDOUT = "stdout"
DAMAGED = "damaged"
ABSENT = "absent"


@dataclass(frozen=True)
class Scene:
    """A command and its files, by their names in the folder of a run.

    ``inputs`` are copied there, ``old`` are copied to the names of outputs; ``outputs`` say how to read them;
    ``again`` are arguments that the next run has in addition; ``rejects`` is a file that may appear as well.
    """

    name: str
    arguments: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: dict[str, str] = field(default_factory=dict)
    old: dict[str, str] = field(default_factory=dict)
    again: tuple[str, ...] = ()
    rejects: str | None = None

    def lay_out(self, base: Path, folder: Path) -> None:
        """Copy the inputs, and the old versions of the outputs."""
        for name, source in {**{name: name for name in self.inputs}, **self.old}.items():
            copy = shutil.copytree if (base / source).is_dir() else shutil.copy2
            copy(base / source, folder / name)

    def renamed(self, names: dict[str, str]) -> Scene:
        """The same with other names; an argument that begins with a dash follows ``--`` or an option."""
        return replace(
            self,
            arguments=tuple(names.get(each, each) for each in self.arguments),
            inputs=tuple(names.get(each, each) for each in self.inputs),
            outputs={names.get(name, name): kind for name, kind in self.outputs.items()},
        )

    def outcome(self, folder: Path) -> dict[str, object]:
        """What each output holds: its content, ABSENT, or DAMAGED with the reason."""
        return {name: read_output(folder / name, kind) for name, kind in self.outputs.items()}


def read_output(path: Path, kind: str) -> object:
    """The content of a file or store as far as two runs must agree on it."""
    if not path.exists():
        return ABSENT
    try:
        return READERS[kind](path)
    except (OocSvmError, ValueError) as error:
        return f"{DAMAGED}: {error}"


def _store(path: Path) -> object:
    verify_store(path)
    return open_store(path).id


def _model(path: Path) -> object:
    model = load_model(path)
    return (model.weights.tobytes().hex(), model.bias.tobytes().hex(), *_answers(model.report))


def _report(path: Path) -> object:
    return _answers(json.loads(path.read_text()))


def _answers(report: dict) -> tuple:
    models = [{name: value for name, value in row.items() if name != "seconds"} for row in report["models"]]
    return (json.dumps(models, sort_keys=True), report["stop_reason"])


def _bytes(path: Path) -> object:
    return path.read_bytes()


def _plan(path: Path) -> object:
    return {name: value for name, value in json.loads(path.read_text()).items() if "seconds" not in name}


READERS: dict[str, Callable[[Path], object]] = {
    "store": _store,
    "model": _model,
    "report": _report,
    "plan": _plan,
    "bytes": _bytes,
}


def _convert(name: str, text: str, *options: str, old: bool = False, rejects: bool = False) -> Scene:
    return Scene(
        f"convert-{name}",
        (
            "convert",
            text,
            "-o",
            "out.zarr",
            "--quiet",
            "--threads",
            "2",
            *options,
            *(("--overwrite",) if old else ()),
        ),
        (text,),
        {"out.zarr": "store"},
        {"out.zarr": "old.zarr"} if old else {},
        () if old else ("--overwrite",),
        "out.zarr.rejected" if rejects else None,
    )


def _train(name: str, store: str, *options: str, old: bool = False, inputs: tuple[str, ...] = ()) -> Scene:
    options = options if "--solver" in options else (*SMO, *options)
    return Scene(
        f"train-{name}",
        ("train", store, "-o", "new-model", *LIMITS, "--report", "report.json", *options),
        (store, *inputs),
        {"new-model": "model", "report.json": "report"},
        {"new-model": "old-model"} if old else {},
        ("--resume",) if "--checkpoint" in options and "--resume" not in options else (),
    )


def _reading(command: str, data: str, *options: str) -> Scene:
    return Scene(f"{command}-{data}", (command, data, *options), (data,), {STDOUT: "bytes"})


WRITING = (
    _convert("new", "text.svm"),
    _convert("gz", "text.svm.gz"),
    _convert("overwrite", "text.svm", old=True),
    _convert("shuffle", "text.svm", "--shuffle", "1", old=True),
    _convert("rejects", "bad.svm", "--bad-lines", "skip", rejects=True),
    *(_train(store, store) for store in NATIVE),
    *(_train(store, store) for store in FOREIGN),
    _train("overwrite", "plain.zarr", old=True),
    _train("checkpoint", "plain.zarr", "--checkpoint", "saves"),
    _train("ocas", "plain.zarr", "--checkpoint", "saves", "--solver", "ocas"),
    _train("resume", "plain.zarr", "--checkpoint", "saved", "--resume", inputs=("saved",)),
    Scene(
        "predict-store",
        ("predict", "model", "float64.zarr", "-o", "scores", "--scores"),
        ("model", "float64.zarr"),
        {"scores": "bytes"},
    ),
    Scene(
        "predict-text",
        ("predict", "model", "text.svm", "-o", "scores"),
        ("model", "text.svm"),
        {"scores": "bytes"},
    ),
    Scene(
        "evaluate",
        ("evaluate", "model", "ones.zarr", "--json", "metrics.json"),
        ("model", "ones.zarr"),
        {"metrics.json": "bytes"},
    ),
    Scene(
        "export",
        ("export", "model", "-o", "exported", "--to", "liblinear"),
        ("model",),
        {"exported": "bytes"},
    ),
)

READING = (
    *(_reading("info", data, "--json") for data in (*NATIVE, *FOREIGN, "model")),
    *(_reading("verify", data) for data in (*NATIVE, *FOREIGN)),
    Scene("plan", ("plan", "plain.zarr", "--json", *LIMITS[2:4]), ("plain.zarr",), {STDOUT: "plan"}),
    Scene("predict-stdout", ("predict", "model", "plain.zarr"), ("model", "plain.zarr"), {STDOUT: "bytes"}),
)

SCENES = {scene.name: scene for scene in (*WRITING, *READING)}

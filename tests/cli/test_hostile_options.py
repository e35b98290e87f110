"""Every option and argument of every command with what it cannot be: exit code 2 and one sentence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import ooc_svm
from ooc_svm.cli.app import app
from ooc_svm.errors import UsageError, parameter
from ooc_svm.options import OPTIONS

GROUP = typer.main.get_command(app)
COMMANDS = GROUP.commands

HOSTILE = ["", "0", "-1", "1.5", "nan", "inf", "1e400", "1_0", "0x10", "\u0661", "9" * 5000, "no", "\ud800"]
TEXT = {"0", "-1", "1.5", "nan", "inf", "1e400", "1_0", "0x10", "\u0661", "9" * 5000, "no"}
# Which of these an option may be.
ALLOWED = {
    **dict.fromkeys(
        [
            "cache",
            "checkpoint",
            "warm_start",
            "label",
            "layer",
            "labels_file",
            "positive",
            "path",
            "data",
            "model",
        ],
        TEXT,
    ),
    **dict.fromkeys(["inputs", "reports", "to_obs", "confusion", "feature_names"], TEXT),
    **dict.fromkeys(["output", "store", "report", "log", "json_file", "scheduler", "validation"], TEXT),
    "cache": TEXT,
    "C": {"1.5"},
    "epsilon": {"0", "1.5"},
    "p": {"1.5"},
    "gamma": {"1.5"},
    "coef0": {"0", "-1", "1.5"},
    "price_get": {"0", "1.5"},
    "price_gb": {"0", "1.5"},
    "time_limit": {"1.5"},
    "seed": {"0", "-1"},
    "index_base": {"0"},
    "max_bad_lines": {"0"},
    # Typer sees what follows as the next option.
    "shuffle": {"0", "", "no", "nan", "inf", "\ud800"},
    # The names that there are depend on the model.
    "metrics": {*HOSTILE},
}
ARGUMENTS = {
    "convert": ["missing.svm", "-o", "new.zarr"],
    "info": ["missing"],
    "verify": ["missing"],
    "train": ["missing.zarr", "-o", "new"],
    "predict": ["missing", "missing.svm"],
    "evaluate": ["missing", "missing.svm"],
    "export": ["missing", "-o", "new", "--to", "svmlight"],
    "plan": ["missing.zarr"],
    "report": ["missing.json"],
}


def valued(command):
    """Options and arguments of a command that have a value."""
    return [p for p in COMMANDS[command].params if not getattr(p, "is_flag", False) and p.name != "help"]


CALLS = [
    (command, p.name)
    for command in ARGUMENTS
    for p in valued(command)
    if command != "plan" or p.name not in OPTIONS  # those of train
]


@pytest.fixture(autouse=True)
def built_once(monkeypatch):
    """Typer would make the commands again for each command line."""
    monkeypatch.setattr("typer.testing._get_command", lambda app: GROUP)


def refusal(command, arguments):
    """What a command line says that is refused."""
    done = CliRunner().invoke(app, [command, *arguments])
    assert done.exit_code == 2, (done.exit_code, done.stderr)
    assert done.stdout == ""
    [sentence] = done.stderr.splitlines()
    assert sentence.startswith("ooc-svm: error: ")
    assert len(sentence) < 400
    return sentence.removeprefix("ooc-svm: error: ")


def typed(command, name, value):
    """A command line with a value in a place, and how messages write that place."""
    [known] = [p for p in COMMANDS[command].params if p.name == name]
    if known.param_type_name == "option":
        return [*ARGUMENTS[command], f"{known.opts[0]}={value}"], known.opts[0]
    place = ["model", "data"].index(name) if command in ("predict", "evaluate") else 0
    arguments = list(ARGUMENTS[command])
    arguments[place] = value
    arguments = ["--", *arguments] if len(arguments) == 2 else [*arguments[1:], "--", value]
    return arguments, known.metavar


@pytest.mark.parametrize(("command", "name"), CALLS)
def test_what_cannot_be_is_refused(command, name, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    allowed = ALLOWED.get(name, set())
    for value in HOSTILE:
        if value in allowed or (name == "shuffle" and not value.isdecimal()):
            continue
        arguments, written = typed(command, name, value)
        sentence = refusal(command, arguments)
        assert sentence.startswith(written), (value, sentence)
        ends = f" not {value}", f" not {value}.0"
        assert repr(value)[:60] in sentence or sentence.endswith(ends), (value, sentence)
    assert os.listdir(tmp_path) == []


PATHS = {"path", "data", "model", "inputs", "output", "report", "reports", "json_file", "checkpoint"}
PATHS |= {"warm_start", "log", "validation"}


@pytest.mark.parametrize(("command", "name"), [call for call in CALLS if call[1] in PATHS])
@pytest.mark.parametrize("address", ["hdfs://host/a.zarr", "https://me:secret@host/a.svm"])
def test_an_address_that_is_not_read_is_refused_at_once(command, name, address, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sentence = refusal(command, typed(command, name, address)[0])
    written = typed(command, name, address)[1]
    assert sentence.startswith(f"{written} ")
    assert (
        "a secret in it; give the address alone" in sentence or "is an address that is not read" in sentence
    )
    assert "me:secret" not in sentence
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "call",
    [
        lambda path: ooc_svm.train(path),
        lambda path: ooc_svm.convert("a.svm", path),
        lambda path: ooc_svm.convert(path, "a.zarr"),
        lambda path: ooc_svm.predict("a.model", path),
        lambda path: ooc_svm.evaluate(path, "a.svm"),
        lambda path: ooc_svm.load_model(path),
        lambda path: ooc_svm.open_store(path),
        lambda path: ooc_svm.train("a.zarr", checkpoint=path),
    ],
)
@pytest.mark.parametrize("path", ["hdfs://bucket/a", Path("hdfs://bucket/a")])
def test_an_address_is_no_path_of_the_library(call, path, nothing_done):
    with pytest.raises(UsageError, match=r"^[a-z]+ 'hdfs:/+bucket/a' is an address"):
        call(path)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("2", "'2' is 2 bytes, too little; write for example 2GB"),
        ("600", "'600' is 600 bytes, too little; write for example 600MB"),
        ("0", "'0' is 0 bytes, too little; write for example 600MB"),
        ("2KB", "'2KB' is 2 kB, too little; write for example 600MB"),
    ],
)
def test_a_size_without_its_unit_is_too_little(typed, said):
    assert refusal("plan", ["missing.zarr", f"--memory={typed}"]) == f"--memory {said}"
    with pytest.raises(UsageError, match=r"^memory 2 is 2 bytes, too little"):
        ooc_svm.predict("missing", "missing", memory=2)


class TestNames:
    """Messages write parameters as the user does: keywords of functions, options of commands."""

    @pytest.mark.parametrize(
        ("options", "typed", "of_library", "of_command"),
        [
            ({"max_passes": 0}, ["--max-passes=0"], "max_passes must be an", "--max-passes must be an"),
            (
                {"resume": True},
                ["--resume"],
                "resume needs checkpoint, the folder to go on from; add it",
                "--resume needs --checkpoint, the folder to go on from; add it",
            ),
            (
                {"scheduler": "a"},
                ["--scheduler=a"],
                "scheduler needs engine='dask'; add it",
                "--scheduler needs --engine dask; add it",
            ),
            (
                {"solver": "ocas", "resident": 0.5},
                ["--solver=ocas", "--resident=.5"],
                "resident is for the solver 'streamed-smo'",
                "--resident is for the solver 'streamed-smo'",
            ),
            (
                {"problem": "ranking", "bias": "free"},
                ["--problem=ranking", "--bias=free"],
                "problem 'ranking' has no bias, it would cancel in every pair; leave bias out",
                "problem 'ranking' has no bias, it would cancel in every pair; leave --bias out",
            ),
        ],
    )
    def test_of_options_of_training(self, options, typed, of_library, of_command):
        with pytest.raises(UsageError) as error:
            ooc_svm.train("missing.zarr", **options)
        assert str(error.value).startswith(of_library)
        assert refusal("train", ["missing.zarr", "-o", "new", *typed]).startswith(of_command)

    def test_of_conversions(self, tmp_path: Path):
        text = tmp_path / "a.svm"
        text.write_text("1 0:1\n")
        arguments = [str(text), "-o", str(tmp_path / "a.zarr")]
        with pytest.raises(ooc_svm.InputError, match=r"if 0 is the first column here, use index_base=0 "):
            ooc_svm.convert(text, tmp_path / "a.zarr")
        done = CliRunner().invoke(app, ["convert", *arguments])
        assert "if 0 is the first column here, use --index-base 0 " in done.stderr
        both = refusal("convert", [*arguments, "--group", "--shuffle=1"])
        assert both == "--shuffle and --group are two orders of the rows: choose one"
        with pytest.raises(UsageError, match=r"^max_bad_lines needs bad_lines='skip': add it$"):
            ooc_svm.convert(text, tmp_path / "a.zarr", max_bad_lines=3)
        skip = refusal("convert", [*arguments, "--max-bad-lines=3"])
        assert skip == "--max-bad-lines needs --bad-lines skip: add it"

    def test_keywords_are_back_when_a_command_has_ended(self):
        refusal("train", ["missing.zarr", "-o", "", "--tol=1e-4"])
        assert parameter("max_passes", 3) == "max_passes=3"

"""The commands, run in this process."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import typer
from conftest import SmallData
from helpers.store_data import random_rows
from helpers.train_data import make_anndata
from typer.testing import CliRunner

from ooc_svm.cli.app import app
from ooc_svm.model.file import load_model, save_model

COMMANDS = typer.main.get_command(app).commands
TRAINING = (
    "--problem --loss --solver --kernel --bias --C --class-weight --positive --label --layer --scale --tol"
    " --unlabelled --max-passes --time-limit --memory --cut-groups --resident --epsilon --threads --seed"
    " --checkpoint --resume --engine --validation"
)
OPTIONS = {
    "convert": "-o --index-base --features --feature-names --dtype --overwrite --bad-lines --max-bad-lines"
    " --shuffle --group --layer --labels-file --threads --memory --quiet",
    "info": "--json --label --layer --top",
    "verify": "--quiet --label --layer",
    "train": f"-o {TRAINING} --report --log --feature-names --quiet",
    "predict": "-o --scores --to-obs --overwrite --C --label --layer --feature-names --missing-features"
    " --index-base --threads --memory",
    "evaluate": "--metric --json --confusion --C --label --layer --unlabelled --feature-names"
    " --missing-features --index-base --threads --memory",
    "export": "-o --to --C",
    "tune": f"-o {TRAINING} --folds --metric --rule --report --log --feature-names --quiet",
    "plan": f"{TRAINING} --folds --json",
    "report": "-o",
    "warmup": "--problem --quiet",
}


def run(*arguments: object, code: int = 0) -> tuple[str, str]:
    """Run a command line; its standard output and standard error."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, (result.exit_code, result.stdout, result.stderr)
    if code not in (0, 130, 143):
        assert result.stderr.splitlines()[-1].startswith("ooc-svm: error: ")
        assert "Traceback" not in result.stderr
    return result.stdout, result.stderr


def facts(text: str) -> dict[str, str]:
    """The aligned block of a command as a dict."""
    pairs = [line.split("  ", 1) for line in text.split("\n\n")[0].splitlines()]
    return {name.strip(): value.strip() for name, value in pairs}


def test_what_is_for_stores_is_refused_for_a_model(model: Path) -> None:
    for option in ("--label", "--layer"):
        assert (
            f"{option} is for stores, and {model} is none; leave it out"
            in run("info", model, option, "a", code=2)[1]
        )


@pytest.fixture(scope="module")
def model(small: SmallData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "m.model"
    run("train", small.store, "-o", path, "--quiet", "--C", "0.1,1", "--bias", "penalized")
    return path


def test_help_names_every_command() -> None:
    out, _ = run("--help")
    listed = {line.split()[0] for line in out.partition("Commands:")[2].splitlines() if line.strip()}
    assert listed == set(OPTIONS)


def sections(text: str) -> dict[str, str]:
    """The parts of a help text by their headings."""
    parts = re.split(r"^(\S[^:]*):\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_help_lists_options_in_groups() -> None:
    found = {name: re.findall(r"^  (?:-\w, )?(--[\w-]+)", text, re.MULTILINE) for name, text in sections(
        run("train", "--help")[0]
    ).items()}  # fmt: skip
    assert found["Options"] == ["--output", "--report", "--log", "--feature-names", "--quiet", "--help"]
    assert found["Limits"] == ["--tol", "--max-passes", "--time-limit"]
    assert found["Solver"][0] == "--solver"
    assert {"Problem", "Resources", "Saved states", "Cluster"} < set(found)
    assert sum(map(len, found.values())) == len(COMMANDS["train"].params)  # with --help, without STORE
    assert {"Text", "Order of the rows", "Resources", "Cluster"} < set(sections(run("convert", "--help")[0]))


@pytest.mark.parametrize("command", OPTIONS)
def test_help_ends_with_an_example_that_can_be_typed(command: str) -> None:
    [line] = sections(run(command, "--help")[0])["Example"].split("\n\n")[0].splitlines()
    program, name, *arguments = line.split()
    assert (program, name) == ("ooc-svm", command)
    COMMANDS[command].make_context(name, arguments)


@pytest.mark.parametrize("command", ["train", "convert"])
def test_help_says_what_an_option_is_by_default(command: str) -> None:
    """Not of flags, nor of those that name a file or a place, which nothing takes the place of."""
    places = {
        "report",
        "log",
        "checkpoint",
        "warm_start",
        "max_bad_lines",
        "shuffle",
        "feature_names",
        "labels_file",
        "store",
        "cache",
        "output",
    }
    for each in COMMANDS[command].params:
        if each.param_type_name == "option" and not (each.is_flag or each.required or each.name in places):
            assert each.default is not None or "by default" in each.help.lower(), each.name


def completions(*words: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What bash is told that the last word may be completed to."""
    monkeypatch.setenv("_OOC_SVM_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", " ".join(("ooc-svm", *words)))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    return CliRunner().invoke(app, [], prog_name="ooc-svm").stdout.split()


def test_shells_complete_commands_options_and_names(monkeypatch: pytest.MonkeyPatch) -> None:
    assert completions("ex", monkeypatch=monkeypatch) == ["export"]
    assert completions("train", "a.zarr", "--max-p", monkeypatch=monkeypatch) == ["--max-passes"]
    found = completions("train", "a.zarr", "--problem", "s", monkeypatch=monkeypatch)
    assert found == ["svc", "svr"]
    assert completions("convert", "a.svm", "--dtype", "", monkeypatch=monkeypatch) == ["float32", "float64"]
    assert completions("train", "a.zarr", "--memory", "", monkeypatch=monkeypatch) == []
    twice = ("train", "a.zarr", "--C", "1", "--C", "2", "--max-p")
    assert completions(*twice, monkeypatch=monkeypatch) == ["--max-passes"]


@pytest.mark.parametrize("command", OPTIONS)
def test_help_names_every_option(command: str) -> None:
    out, _ = run(command, "--help")
    words = out.replace(",", " ").split()
    for option in OPTIONS[command].split():
        assert option in words


def test_no_command_is_a_usage_error_with_help() -> None:
    result = CliRunner().invoke(app, [])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Commands:" in result.stderr


def test_from_text_to_export(small: SmallData, tmp_path: Path) -> None:
    store, model, report = tmp_path / "s.zarr", tmp_path / "m.model", tmp_path / "r.json"
    out, _ = run("convert", small.text, "-o", store, "--quiet")
    assert facts(out)["rows"] == "300"
    assert facts(out)["features"] == "25"
    assert facts(out)["labels"].startswith("-1: ")

    out, _ = run("info", store, "--json")
    found = json.loads(out)
    assert set(found) == {
        "n_rows", "n_features", "n_nonzeros", "labels", "qid_groups", "bytes", "chunks", "format_version"
    }  # fmt: skip
    assert found["n_rows"] == 300
    assert sum(found["labels"].values()) == 300
    assert (
        facts(run("info", store)[0])["made from"].startswith("train.svm")
        or "train.svm" in run("info", store)[0]
    )

    assert "whole" in run("verify", store, "--quiet")[0]

    out, err = run("train", store, "-o", model, "--report", report, "--tol", "1e-4")
    passes = [line for line in err.splitlines() if line.startswith("pass ")]
    assert len(passes) >= 2
    assert all(" gap " in line and "(target 1e-4)" in line for line in passes)
    found = json.loads(report.read_text())
    assert found["converged"] is True
    assert found == load_model(model).report
    assert facts(out)["certified"].startswith("yes")
    assert float(facts(out)["objective P"]) == pytest.approx(found["models"][0]["primal"], rel=1e-9)
    assert float(facts(out)["lower bound D"]) == pytest.approx(found["models"][0]["dual"], rel=1e-9)
    assert facts(out)["passes"].startswith(f"{found['passes']} ")
    assert facts(out)["model"].startswith(str(model))

    assert "certified" in run("info", model)[0]
    assert json.loads(run("info", model, "--json")[0])["n_features"] == 25

    predictions = tmp_path / "p.txt"
    assert run("predict", model, small.test, "-o", predictions)[0] == ""
    assert run("predict", model, small.test)[0] == predictions.read_text()
    predicted = [float(line) for line in predictions.read_text().split()]
    truth = [float(line.split()[0]) for line in small.test.read_text().splitlines()]
    accuracy = float(np.mean(np.array(predicted) == np.array(truth)))
    assert accuracy > 0.8

    metrics = json.loads(run("evaluate", model, small.test, "--json", "-")[0])
    assert metrics["accuracy"] == pytest.approx(accuracy)
    json_file = tmp_path / "metrics.json"
    out, _ = run("evaluate", model, small.test, "--metric", "auc", "--metric", "f1", "--json", json_file)
    assert json.loads(json_file.read_text()) == {name: metrics[name] for name in ("auc", "f1")}
    assert list(facts(out)) == ["auc", "f1"]

    exported = tmp_path / "m.liblinear"
    run("export", model, "-o", exported, "--to", "liblinear")
    assert exported.read_text().splitlines()[2] == "label 1 -1"


def test_quiet_leaves_standard_error_empty(small: SmallData, tmp_path: Path) -> None:
    out, err = run("train", small.store, "-o", tmp_path / "m", "--quiet")
    assert err == ""
    assert out.startswith("certified")


def test_a_limit_that_was_set_is_no_failure(small: SmallData, tmp_path: Path) -> None:
    out, _ = run("train", small.store, "-o", tmp_path / "m", "--max-passes", 1, "--tol", "1e-9", "--quiet")
    assert facts(out)["certified"].startswith("no, stopped by max-passes")
    assert load_model(tmp_path / "m").report["converged"] is False


def test_several_classes_and_values_of_c_are_listed(small_classes: SmallData, tmp_path: Path) -> None:
    out, _ = run("train", small_classes.store, "-o", tmp_path / "m", "--quiet", "--C", "0.5,2")
    head, *rows = out.split("\n\n")[1].splitlines()
    assert head.split()[:4] == ["label", "C", "P", "D"]
    assert [row.split()[:2] for row in rows] == [[label, C] for C in ("0.5", "2") for label in "125"]


def test_options_of_training_reach_the_model(small_classes: SmallData, tmp_path: Path) -> None:
    path = tmp_path / "m"
    options = [
        "--solver",
        "cutting-plane",
        "--bias",
        "penalized",
        "--C",
        " 0.5 , 2e0",
        "--class-weight",
        "5:3,1:0.5",
    ]
    options += [
        "--positive",
        "5,2",
        "--scale",
        "maxabs",
        "--tol",
        "0.01",
        "--seed",
        "11",
        "--cut-groups",
        "1",
    ]
    run("train", small_classes.store, "-o", path, "--quiet", *options)
    kept = load_model(path).options
    assert kept["solver"] == "cutting-plane"
    assert kept["bias"] == "penalized"
    assert kept["C"] == [0.5, 2.0]
    assert sorted(kept["positive"]) == [2.0, 5.0]
    assert kept["scale"] == "maxabs"
    assert kept["tol"] == 0.01
    assert kept["seed"] == 11
    assert {float(label): weight for label, weight in kept["class_weight"]} == {5.0: 3.0, 1.0: 0.5}


def test_a_value_of_c_is_chosen(model: Path, small: SmallData, tmp_path: Path) -> None:
    default = run("predict", model, small.test, "--scores")[0]
    assert run("predict", model, small.test, "--scores", "--C", 1)[0] == default
    other = run("predict", model, small.test, "--scores", "--C", "0.1")[0]
    assert other != default
    loaded = load_model(model)
    x = np.zeros(25)
    for pair in small.test.read_text().splitlines()[0].split()[1:]:
        index, value = pair.split(":")
        x[int(index) - 1] = np.float32(value)
    head, first = (line.split("\t") for line in other.splitlines()[:2])
    assert head == ["label", "score"]
    assert float(first[1]) == pytest.approx(loaded.weights[0] @ x + loaded.bias[0], rel=1e-12)
    for C, target in (("0.1", "a"), ("1", "b")):
        run("export", model, "-o", tmp_path / target, "--to", "liblinear", "--C", C)
    assert (tmp_path / "a").read_text() != (tmp_path / "b").read_text()
    for command in (
        ["predict", model, small.test],
        ["evaluate", model, small.test],
        ["export", model, "-o", tmp_path / "c", "--to", "liblinear"],
    ):
        assert "0.1, 1.0" in run(*command, "--C", "0.3", code=2)[1]


@pytest.mark.parametrize(
    ("arguments", "seed"),
    [
        (["--shuffle", "{text}", "-o", "{store}"], 0),
        (["{text}", "-o", "{store}", "--shuffle"], 0),
        (["{text}", "--shuffle", "-o", "{store}"], 0),
        (["--shuffle", "42", "{text}", "-o", "{store}"], 42),
        (["{text}", "-o", "{store}", "--shuffle=42"], 42),
    ],
)
def test_the_seed_of_a_shuffle_may_be_left_out(
    arguments: list[str], seed: int, small: SmallData, tmp_path: Path
) -> None:
    from ooc_svm.conversion.convert import convert

    store = tmp_path / "s.zarr"
    run("convert", *(word.format(text=small.text, store=store) for word in arguments), "--quiet")
    expected = convert(small.text, tmp_path / "expected.zarr", shuffle=seed)
    assert expected.id != convert(small.text, tmp_path / "plain.zarr").id
    from ooc_svm.store import open_store

    assert open_store(store).id == expected.id


def test_bad_lines_are_skipped_when_asked(tmp_path: Path) -> None:
    text, store = tmp_path / "t.svm", tmp_path / "s.zarr"
    text.write_text("1 1:1\nx 1:1\n-1 2:0 3:1\n\n# note\n")
    _, err = run("convert", text, "-o", store, code=3)
    assert f"{text}:2:1" in err
    assert not store.exists()
    out, _ = run("convert", text, "-o", store, "--bad-lines", "skip")
    assert facts(out)["bad lines"].startswith("1, see ")
    assert facts(out)["explicit zeros"].startswith("1,")
    assert facts(out)["lines without a row"].startswith("1 blank, 1 of comment")
    assert run(
        "convert", text, "-o", store, "--overwrite", "--bad-lines", "skip", "--max-bad-lines", 0, code=3
    )


def test_one_class_is_a_warning_and_then_an_error(tmp_path: Path) -> None:
    text, store = tmp_path / "t.svm", tmp_path / "s.zarr"
    text.write_text("1 1:1\n1 2:1\n")
    assert "ooc-svm: warning: " in run("convert", text, "-o", store, "--quiet")[1]
    assert "two classes" in run("train", store, "-o", tmp_path / "m", code=3)[1]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--C", "one"], "'one'"),
        (["--C", "0"], "0.0"),
        (["--C", "1_0"], "'1_0'"),
        (["--C", "nan"], "'nan'"),
        (["--C", "1,1"], "twice"),
        (["--C", "1", "--C", "2"], "--C is given 2 times; give it once"),
        (["--tol", "2"], "--tol must be a relative gap between 0 and 1, not 2.0"),
        (["--tol", "x"], "--tol"),
        (["--loss", "log"], "'log'"),
        (["--problem", "nu-svm"], "'nu-svm'"),
        (["--problem", "svr", "--loss", "hinge"], "epsilon-insensitive"),
        (["--problem", "svr", "--positive", "1"], "positive"),
        (["--problem", "svr", "--class-weight", "balanced"], "--class-weight is for"),
        (["--problem", "svr", "--epsilon=-1"], "epsilon"),
        (["--problem", "svr", "--epsilon", "nan"], "epsilon"),
        (["--problem", "svr", "--epsilon", "x"], "--epsilon"),
        (["--epsilon", "0.1"], "epsilon"),
        (["--loss", "epsilon-insensitive"], "hinge"),
        (
            ["--loss", "squared-hinge", "--solver", "ocas"],
            "'squared-hinge' is for the solvers 'streamed-smo', 'block-smo', 'alm' and 'inexact-alm'",
        ),
        (
            ["--loss", "squared-hinge", "--cut-groups", "2"],
            "; loss 'squared-hinge' is for the solvers 'streamed-smo', 'block-smo', 'alm' and 'inexact-alm'",
        ),
        (["--solver", "streamed-smo", "--cut-groups", "2"], "--cut-groups is for"),
        (["--solver", "ocas", "--resident", "0.1"], "resident"),
        (["--cut-groups", "2", "--resident", "0.1"], "resident"),
        (["--resident", "0"], "resident"),
        (["--resident", "1.5"], "resident"),
        (["--resident", "nan"], "resident"),
        (["--resident", "x"], "--resident"),
        (["--threads", "0"], "--threads"),
        (["--memory", "lots"], "'lots'"),
        (["--class-weight", "heavy"], "'heavy'"),
        (["--class-weight", "1:2,1:3"], "twice"),
        (["--class-weight", "1:x"], "'x'"),
        (["--positive", "1,"], "empty label"),
        (["--positive", "a\nb"], r"--positive: 'a\nb' has a line break outside of double quotes"),
        (["--class-weight", "1:2,\r3:4"], r"--class-weight: '1:2,\r3:4' has a line break outside"),
        (["--positive", "yes"], "'yes'"),
        (["--resume"], "checkpoint"),
        (["--max-passes", "0"], "--max-passes must be an integer of at least 1, not 0"),
        (["--nonsense"], "--nonsense"),
        (["second"], "second"),
    ],
)
def test_wrong_options_of_training(
    arguments: list[str], named: str, small: SmallData, tmp_path: Path
) -> None:
    _, err = run("train", small.store, "-o", tmp_path / "m", *arguments, code=2)
    assert named in err
    assert err.count("\n") == 1
    assert not (tmp_path / "m").exists()


def test_the_targets_are_checked_before_training(small: SmallData, tmp_path: Path) -> None:
    precious = tmp_path / "thesis.txt"
    precious.write_text("years of work")
    _, err = run("train", small.store, "-o", precious, code=2)
    assert "pass" not in err
    assert precious.read_text() == "years of work"
    _, err = run("train", small.store, "-o", tmp_path / "nowhere" / "m", code=5)
    assert "pass" not in err
    run("train", small.store, "-o", tmp_path / "m", "--report", tmp_path / "nowhere" / "r", code=5)
    run("train", small.store, "-o", tmp_path / "m", "--report", tmp_path / "m", code=2)
    _, err = run("train", small.store, "-o", tmp_path / "m", "--report", precious, code=2)
    assert "pass" not in err
    run("train", small.store, "-o", tmp_path / "m", "--quiet")
    run("evaluate", tmp_path / "m", small.test, "--json", tmp_path / "m", code=2)
    run("info", tmp_path / "m")
    assert precious.read_text() == "years of work"


def test_missing_and_foreign_things(small: SmallData, tmp_path: Path, model: Path) -> None:
    run("info", tmp_path / "none", code=3)
    run("verify", tmp_path / "none", code=3)
    run("train", tmp_path / "none", "-o", tmp_path / "m", code=3)
    run("convert", tmp_path / "none", "-o", tmp_path / "s", code=3)
    run("predict", tmp_path / "none", small.test, code=3)
    run("info", small.text, code=4)
    run("predict", small.text, small.test, code=4)
    run("evaluate", model, small.test, "--metric", "beauty", code=2)
    run("convert", small.text, "-o", small.store, code=2)


def test_a_model_whose_report_has_a_number_beyond_floats(model: Path, tmp_path: Path) -> None:
    other = load_model(model)
    other.report["bytes_read"] = 10**400
    save_model(other, tmp_path / "m")
    assert "the report in this model is malformed" in run("info", tmp_path / "m", code=4)[1]


def test_a_damaged_chunk_is_named(small: SmallData, tmp_path: Path) -> None:
    store = tmp_path / "s.zarr"
    run("convert", small.text, "-o", store, "--quiet")
    chunk = max((store / "X" / "data" / "c").iterdir(), key=lambda path: path.stat().st_size)
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 1
    chunk.write_bytes(content)
    assert "X/data" in run("verify", store, "--quiet", code=4)[1]
    run("train", store, "-o", tmp_path / "m", "--quiet", code=4)
    assert not (tmp_path / "m").exists()


def test_data_without_checksums_are_said_to_be_so_in_one_line(small: SmallData, tmp_path: Path) -> None:
    matrix, labels = random_rows(1)
    store = make_anndata(tmp_path / "a.zarr", matrix, label=labels)
    line = "have no checksums: there is nothing to check their bytes against"
    for command in (("verify", store), ("train", store, "-o", tmp_path / "m")):
        assert "".join(run(*command)).count(line) == 1
    for command in (("verify", small.store), ("train", small.store, "-o", tmp_path / "m")):
        assert line not in "".join(run(*command))


@pytest.mark.parametrize("solver", ["streamed-smo", "ocas"])
def test_training_goes_on_from_a_checkpoint(small: SmallData, tmp_path: Path, solver: str) -> None:
    at_once, later, states = tmp_path / "a", tmp_path / "b", tmp_path / "states"
    common = ["--tol", "1e-6", "--threads", "1", "--solver", solver]
    run("train", small.store, "-o", at_once, *common, "--quiet")
    run("train", small.store, "-o", later, *common, "--quiet", "--checkpoint", states, "--max-passes", 1)
    _, err = run("train", small.store, "-o", later, *common, "--checkpoint", states, "--resume")
    assert "going on after 1 passes" in err
    assert np.array_equal(load_model(at_once).weights, load_model(later).weights)


def test_too_little_memory_is_refused_with_the_sum(small: SmallData, tmp_path: Path) -> None:
    _, err = run("train", small.store, "-o", tmp_path / "m", "--memory", "1MB", code=6)
    assert "MB" in err
    assert "pass" not in err.split("error:")[0]


def test_plan_runs_nothing(small: SmallData, tmp_path: Path) -> None:
    out, _ = run("plan", small.store, "--C", "1,2")
    assert "weights" in out or "memory" in out
    found = json.loads(run("plan", small.store, "--json")[0])
    assert isinstance(found, dict)
    run("plan", small.store, "--memory", "1MB", code=6)

"""Options of other programs, typed by habit: a sentence with what is theirs here, before any work."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from conftest import SmallData
from test_cli import run

from ooc_svm.cli.habits import LIBLINEAR_TYPES, LIBSVM_TYPES, PREDICTING, TRAINING, explained

ROOT = Path(__file__).parents[2]


def sentence(*arguments: object) -> str:
    _, error = run(*arguments, code=2)
    [line] = error.splitlines()
    return line.removeprefix("ooc-svm: error: ")


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("-s 3", "write --loss hinge --bias none for -s 3"),
        ("-s 0", "write --loss logistic --bias none for -s 0"),
        ("-s 12", "write --problem svr --loss squared-epsilon-insensitive --bias none for -s 12"),
        ("-s 21", "leave -s 21 out (there is no one-class machine)"),
        ("-s 99", "leave -s 99 out (there is no such type)"),
        ("-c 0.5", "write --C 0.5 for -c 0.5"),
        ("-B 1", "write --bias penalized for -B 1 (the default)"),
        ("-B 2", "write --bias penalized for -B 2 (whose constant feature is 1)"),
        ("-B -1", "write --bias none for -B -1"),
        ("-B 1 -R", "write --bias free for -B 1 -R"),
        ("-R -s 2 -B 1", "write --loss squared-hinge for -s 2; write --bias free for -B 1 -R"),
        ("-R", "write --bias free for -R"),
        ("-p 0.2", "write --epsilon 0.2 for -p 0.2"),
        ("-n 4", "write --threads 4 for -n 4"),
        ("-n 0.2", "write --nu 0.2 for -n 0.2 (with --problem nu-svc or nu-svr)"),
        (
            "-s 1 -n 0.2",
            "write --problem nu-svc for -s 1; write --nu 0.2 for -n 0.2 (with --problem nu-svc or nu-svr)",
        ),
        (
            "-s 4 -t 0 -p 0.1",
            "write --problem nu-svr for -s 4; leave -t 0 out (the default); write --epsilon 0.1 for -p 0.1",
        ),
        ("-q", "write --quiet for -q"),
        (
            "-t 2 -b 1",
            "write --kernel rbf for -t 2; write --calibrate sigmoid for -b 1 (predict --probabilities writes "
            "them then)",
        ),
        ("-f m", "write -o m for -f m"),
        ("-w1 5 -w-1 2", "write --class-weight 1:5,-1:2 for -w1 5 -w-1 2"),
        ("-s 3 -c 1", "write --loss hinge --bias none for -s 3; write --C 1 for -c 1"),
        ("-s 3 -B 1", "write --loss hinge for -s 3; write --bias penalized for -B 1 (the default)"),
        ("-s 3 -t 0", "write --problem svr --bias free for -s 3; leave -t 0 out (the default)"),
    ],
)
def test_an_option_of_another_program(small: SmallData, typed: str, answer: str) -> None:
    assert sentence("train", *typed.split(), small.store) == f"options of another program: {answer}"


@pytest.mark.parametrize("option", sorted(TRAINING))
def test_every_option_has_an_answer(small: SmallData, option: str) -> None:
    assert f" {option} 7" in sentence("train", option, "7", small.store) or not TRAINING[option].has_value


@pytest.mark.parametrize("option", sorted(PREDICTING))
@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_those_of_predicting(command: str, option: str) -> None:
    assert sentence(command, option, "1", "m").startswith("options of another program: ")


@pytest.mark.parametrize(
    "ours",
    sorted({answer.ours for answer in (*LIBLINEAR_TYPES.values(), *LIBSVM_TYPES.values())}),
)
def test_what_is_to_be_written_is_taken(small: SmallData, ours: str) -> None:
    run("plan", *shlex.split(ours), small.store)


def test_other_options_stay_unknown(small: SmallData) -> None:
    assert sentence("train", "-z", small.store).startswith("no such option: -z")
    assert sentence("train", "--c", "3", small.store).startswith("no such option: --c")
    assert sentence("info", "-s", "3", small.store).startswith("no such option: -s")


def test_the_model_in_its_place_of_old(small: SmallData) -> None:
    expected = "m.model does not exist; if it is to be the model, name it by -o m.model"
    assert sentence("train", small.text, "m.model") == expected


@pytest.mark.parametrize(
    ("command", "order"), [("predict", "MODEL DATA -o FILE"), ("evaluate", "MODEL DATA")]
)
def test_the_order_of_old_of_data_model_and_output(command: str, order: str) -> None:
    expected = f"more than a model and data are named; write ooc-svm {command} {order}"
    assert sentence(command, "test.svm", "m.model", "predicted") == expected


def table_of_the_tutorial() -> list[tuple[str, str]]:
    """Options of the other program, and those of this one, as the tutorial has them."""
    page = (ROOT / "docs" / "tutorials" / "liblinear.md").read_text()
    rows = [line.split("|")[1:3] for line in page.splitlines() if line.startswith("| `")]
    pairs = [(theirs, ours.strip().strip("`")) for theirs, ours in rows]
    return [(each.strip(" `"), ours) for theirs, ours in pairs for each in theirs.split(",")]


@pytest.mark.parametrize(("theirs", "ours"), table_of_the_tutorial())
def test_the_table_of_the_tutorial(theirs: str, ours: str) -> None:
    arguments = theirs.split()
    predicting = arguments[0] == "predict"
    sentence = explained(arguments[predicting:], PREDICTING if predicting else TRAINING)
    assert sentence is not None
    written = ours.removeprefix("predict ")
    assert (
        f"write {written}" in sentence
        if written
        else sentence.startswith("options of another program: leave")
    )


def test_the_table_of_the_tutorial_is_whole() -> None:
    listed = {theirs.split()[0] for theirs, _ in table_of_the_tutorial()}
    kernels_and_others = {"-t", "-d", "-g", "-r", "-b", "-f"}
    assert set(TRAINING) <= listed | kernels_and_others | {"-R"}
    types = {theirs.split()[1] for theirs, _ in table_of_the_tutorial() if theirs.startswith("-s ")}
    assert types == set(LIBLINEAR_TYPES)

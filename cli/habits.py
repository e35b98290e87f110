"""Options of LIBLINEAR, LIBSVM and Vowpal Wabbit, typed by habit: one sentence with what is theirs here."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from itertools import pairwise
from typing import Any, NamedTuple

import typer

from ooc_svm.cli.help import Command
from ooc_svm.cli.options import NUMBER
from ooc_svm.errors import UsageError, flag, shown

_OPTION = re.compile("-[A-Za-z].*", re.DOTALL)


class Answer(NamedTuple):
    """What is written here in place of an option, "" if nothing is; and what is different, if anything."""

    ours: str
    remark: str = ""


class Habit(NamedTuple):
    """An option of another program: its answer by its value, and whether it has one."""

    answer: Callable[[str], Answer]
    has_value: bool = True


_SQUARED = "--loss squared-hinge"
_SVR = "--problem svr"
_LOGISTIC = "--loss logistic"
_NO_L1 = Answer(_SQUARED, "the nearest, |w| is always penalised by its square")
_NO_ONE_CLASS = Answer("", "there is no one-class machine")

LIBLINEAR_TYPES = {
    "0": Answer(_LOGISTIC),
    "1": Answer(_SQUARED),
    "2": Answer(_SQUARED),
    "3": Answer("--loss hinge"),
    "4": Answer("--loss hinge", "the nearest, several classes are trained each against the rest"),
    "5": _NO_L1,
    "6": Answer(_LOGISTIC, "the nearest, |w| is always penalised by its square"),
    "7": Answer(_LOGISTIC),
    "11": Answer(f"{_SVR} --loss squared-epsilon-insensitive"),
    "12": Answer(f"{_SVR} --loss squared-epsilon-insensitive"),
    "13": Answer(f"{_SVR} --loss epsilon-insensitive"),
    "21": _NO_ONE_CLASS,
}
"""The types of ``-s`` of LIBLINEAR."""

LIBSVM_TYPES = {
    "0": Answer("--loss hinge --bias free"),
    "1": Answer("--problem nu-svc"),
    "2": _NO_ONE_CLASS,
    "3": Answer(f"{_SVR} --bias free"),
    "4": Answer("--problem nu-svr"),
}
"""The types of ``-s`` of LIBSVM, which is meant where one of its own options is given as well."""

_LIBSVM_ONLY = {"-t", "-g", "-r", "-b"}


def _type(types: Mapping[str, Answer]) -> Callable[[str], Answer]:
    return lambda value: types.get(value, Answer("", "there is no such type"))


def _types_of(args: Sequence[str]) -> Mapping[str, Answer]:
    """The types that ``-s`` means next to these arguments."""
    if any(each in _LIBSVM_ONLY for each in args) or _names_nu(args):
        return LIBSVM_TYPES
    if "-B" in args:
        return LIBLINEAR_TYPES
    # Machines of LIBLINEAR have no bias unless they are asked for one.
    return {
        name: each._replace(ours=f"{each.ours} --bias none") if each.ours else each
        for name, each in LIBLINEAR_TYPES.items()
    }


def _names_nu(args: Sequence[str]) -> bool:
    """Whether a machine of LIBSVM that has a nu is asked for with one."""
    values = {option: value for option, value in pairwise(args) if option in ("-s", "-n")}
    return values.get("-s") in ("1", "4") and _is_nu(values.get("-n", ""))


def _is_nu(value: str) -> bool:
    """Whether ``-n`` is a share of the rows, not a number of threads."""
    return bool(NUMBER.fullmatch(value)) and not value.isdecimal()


def _bias(value: str) -> Answer:
    if not NUMBER.fullmatch(value) or float(value) <= 0:
        return Answer("--bias none")
    return Answer("--bias penalized", "the default" if float(value) == 1 else "whose constant feature is 1")


def _kernel(value: str) -> Answer:
    names = {"0": "linear", "1": "poly", "2": "rbf", "3": "sigmoid"}
    if value == "0":
        return Answer("", "the default")
    known = "|".join(names.values())
    return Answer(f"--kernel {names.get(value, known)}")


def _threads(value: str) -> Answer:
    if re.fullmatch("[0-9]+", value):
        return Answer(f"--threads {value}")
    return Answer(f"--nu {value}", "with --problem nu-svc or nu-svr") if _is_nu(value) else _NO_ONE_CLASS


def _data(value: str) -> Answer:
    if NUMBER.fullmatch(value):
        return Answer(f"--degree {value}", "with --kernel poly")
    return Answer(value, "the data have no option before them")


def _always(ours: str, remark: str = "") -> Callable[[str], Answer]:
    return lambda value: Answer(ours.format(value), remark)


TRAINING: dict[str, Habit] = {
    "-s": Habit(_type(LIBLINEAR_TYPES)),
    "-c": Habit(_always("--C {}")),
    "-p": Habit(_always("--epsilon {}")),
    "-e": Habit(_always("--tol", "the relative gap to be certified, by default 1e-3: another measure")),
    "-B": Habit(_bias),
    "-R": Habit(_always("--bias free"), has_value=False),
    "-v": Habit(_always("tune --folds {}", "a command of its own, all folds in the same reads")),
    "-C": Habit(
        _always("tune --C 0.01,0.1,1", "a command of its own, all trained in the same reads"),
        has_value=False,
    ),
    "-q": Habit(_always("--quiet"), has_value=False),
    "-n": Habit(_threads),
    "-M": Habit(_always("", "several classes are trained each against the rest")),
    "-t": Habit(_kernel),
    "-g": Habit(_always("--gamma {}")),
    "-r": Habit(_always("--coef0 {}")),
    "-b": Habit(_always("--calibrate sigmoid", "predict --probabilities writes them then")),
    "-d": Habit(_data),
    "-f": Habit(_always("-o {}")),
}
"""By the options of ``train`` of LIBLINEAR and ``svm-train`` of LIBSVM; ``-d`` and ``-f`` of Vowpal Wabbit.

``-w1 5`` is no option of a fixed name: see `explained`."""

PREDICTING: dict[str, Habit] = {
    "-b": Habit(_always("--probabilities", "of a model trained with --calibrate or --loss logistic")),
    "-q": Habit(_always("", "only results are written"), has_value=False),
}
"""By the options of ``predict`` of LIBLINEAR and ``svm-predict`` of LIBSVM."""


_OF_RUNS = {"inputs", "output", "overwrite", "sweep", "quiet"}
"""The parameters of convert that say nothing of what is in the store."""

_OF_FILES = ("-o", "--output", "--overwrite", "--report", "--log", "--feature-names", "--quiet")
"""Options of training that make no difference to what plan shows."""


def _refused(command: str | None, name: str | None) -> str | None:
    """What to do about an option that other commands have and this one does not; None if they do not."""
    if command == "plan" and name in _OF_FILES:
        return f"plan only shows what a run will need; leave {name} out"
    if name == "--overwrite":
        return f"a model that is there is replaced; leave {name} out"
    from ooc_svm.cli.convert import convert

    if name in {flag(each) for each in signature(convert).parameters if each not in _OF_RUNS}:
        return f"{name} is an option of convert; make a store with it, and give that store"
    return None


class WithHabits(Command):
    """A command that answers options of other programs in place of "no such option"."""

    habits: Mapping[str, Habit] = TRAINING

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Parse; `UsageError` with the options of this program for those of another one."""
        typed = list(args)
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter.__base__ as error:  # type: ignore[misc]  # of usage, in any release of Typer
            name = getattr(error, "option_name", None)
            sentence = None if name is None else explained(typed, self.habits)
            if sentence is None and self.habits is not PREDICTING:
                sentence = _refused(self.name, name)
            if sentence is None:
                raise
            raise UsageError(sentence) from error


class TuneCommand(WithHabits):
    """The same of the command that cross-validates itself."""

    habits: Mapping[str, Habit] = {
        **TRAINING,
        "-v": Habit(_always("--folds {}")),
        "-C": Habit(_always("--C 0.01,0.1,1"), has_value=False),
    }


class PredictsWithHabits(WithHabits):
    """The same of a command that takes a model."""

    habits = PREDICTING

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Parse; `UsageError` for data, model and output in the order of the other program as well."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter.__base__ as error:  # type: ignore[misc]
            if "unexpected extra argument" not in str(error.message):
                raise
            order = "MODEL DATA -o FILE" if self.name == "predict" else "MODEL DATA"
            raise UsageError(
                f"more than a model and data are named; write ooc-svm {self.name} {order}"
            ) from error


def explained(args: Sequence[str], habits: Mapping[str, Habit]) -> str | None:
    """What to write in place of the options of other programs in a command line; None if there are none."""
    if "-s" in habits:
        habits = {**habits, "-s": Habit(_type(_types_of(args)))}
    free_bias = "-B" in args and "-R" in args  # one option of this program for both
    answers: list[str] = []
    weights: list[tuple[str, str]] = []
    rest = iter(args)
    for each in rest:
        if each == "--":
            break
        if not _OPTION.fullmatch(each):
            continue
        if habits is not PREDICTING and re.fullmatch(r"-w.+", each):
            weights.append((f"{each} {(value := next(rest, ''))}", f"{each[2:]}:{value}"))
        elif each in habits and not (each == "-R" and free_bias):
            value = next(rest, "") if habits[each].has_value else ""
            typed, answer = f"{each} {value}".rstrip(), habits[each].answer(value)
            if each == "-B" and free_bias:
                typed, answer = f"{typed} -R", habits["-R"].answer("")
            answers.append(_written(typed, answer))
    if weights:
        given = " ".join(typed for typed, _ in weights)
        ours = f"--class-weight {','.join(weight for _, weight in weights)}"
        answers.append(_written(given, Answer(ours)))
    if not answers:
        return None
    return f"options of another program: {'; '.join(answers)}"


def _written(typed: str, answer: Answer) -> str:
    """``write --C 1 for -c 1``, and what is different."""
    remark = f" ({answer.remark})" if answer.remark else ""
    if not answer.ours:
        return f"leave {_plain(typed)} out{remark}"
    return f"write {answer.ours} for {_plain(typed)}{remark}"


def _plain(typed: str) -> str:
    """What was typed, cut and without control characters where it has any."""
    return typed if len(typed) <= 80 and typed.isprintable() else shown(typed)

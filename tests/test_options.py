"""The list of options, and what is derived from it."""

from __future__ import annotations

import inspect
import json
import math
import pydoc

import pytest
import typer
from option_table import option_rows

import ooc_svm
from ooc_svm.cli.app import app
from ooc_svm.cli.options import training_options
from ooc_svm.errors import UsageError, flag
from ooc_svm.options import (
    OPTIONS,
    Role,
    TrainOptions,
    default_text,
    family_fields,
    identity_fields,
)
from ooc_svm.training.keys import family_key, run_key

COMMANDS = typer.main.get_command(app).commands

SVR = {"problem": "svr", "epsilon": 0.2, "C": (0.5, 2.0), "seed": 3, "resident": 0.25, "lanes": 2}
SVR |= {"bias": "free", "scale": "std", "tol": 0.1, "memory": "1GB", "checkpoint": "c"}
OCAS = {"solver": "ocas", "cut_groups": 4, "class_weight": {"1": 2.0, -1: 0.5}, "positive": ("1",)}
OCAS |= {"label": "x", "loss": "hinge", "bias": "penalized", "engine": "dask", "threads": 3}
# First digits of the keys of version 0.1.0 for these runs: of a checkpoint, of a warm start's family.
KEYS = [
    ({"bias": "none"}, ["355103a91ac276c3", "1935409ae7cce0ae"], ["34cb658c5a064552", "fb6d95737a309ea6"]),
    (SVR, ["b9117a6d1cb41de0", "499946b75a548dcf"], ["502d311c10144b04", "400619262430e443"]),
    (OCAS, ["53bca2d2c19e9265", "7eae7648c202dd60"], ["acb3628ee76fb4cf", "7bed16622d3d38c2"]),
]


class TestRoles:
    def test_every_option_has_one(self):
        names = {role: [n for n, option in OPTIONS.items() if option.role is role] for role in Role}
        assert names == {
            Role.IDENTITY: identity_fields(),
            Role.RESOURCE: [
                "memory",
                "threads",
                "cache",
                "cache_size",
                "engine",
                "scheduler",
                "insecure_cluster",
            ],
            Role.ROWS: ["unlabelled"],
            Role.LIMIT: ["polish", "tol", "max_passes", "time_limit"],
            Role.RESULT: ["calibrate", "prune"],
            Role.PLACE: ["layer", "checkpoint", "resume", "warm_start"],
        }

    def test_a_family_differs_in_c_and_nu_and_in_the_course_of_the_run(self):
        assert set(identity_fields()) - set(family_fields()) == {"C", "nu", "seed", "resident"}

    @pytest.mark.parametrize(("options", "keys", "shared"), KEYS)
    def test_keys_are_those_of_the_first_version(self, options, keys, shared):
        run = TrainOptions(**options)
        assert [key[:16] for key in run_key("data", "their name", run).texts] == keys
        assert [key[:16] for key in family_key("data", "their name", run).texts] == shared


@pytest.mark.parametrize("function", [ooc_svm.train, ooc_svm.plan])
def test_a_signature_shows_every_option(function):
    shown = inspect.signature(function).parameters
    assert [name for name in shown if name in OPTIONS] == list(OPTIONS)
    for name, option in OPTIONS.items():
        assert shown[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert shown[name].default == option.default
        assert shown[name].annotation == TrainOptions.__annotations__[name]
    assert "class_weight: 'str | Mapping[float | str, float] | None' = None" in pydoc.render_doc(function)
    assert "options" not in shown


class TestCommandLine:
    @pytest.mark.parametrize("command", ["train", "plan"])
    def test_it_has_every_option(self, command):
        parameters = {parameter.name: parameter for parameter in COMMANDS[command].params}
        assert [name for name in parameters if name in OPTIONS] == list(OPTIONS)
        for name, option in OPTIONS.items():
            assert parameters[name].opts == [flag(name)]
            assert parameters[name].help.startswith(option.help)
            assert bool(option.metavar) != parameters[name].is_flag

    @pytest.mark.parametrize("name", ["label", "memory", "threads", "scheduler", "insecure_cluster"])
    def test_shared_options_have_one_help(self, name):
        found = [p.help for command in COMMANDS.values() for p in command.params if p.name == name]
        assert len(found) >= 3
        assert set(found) == {OPTIONS[name].help}

    def test_its_defaults_are_those_of_the_library(self):
        arguments = ["train", "store", "-o", "model"]
        context = COMMANDS["train"].make_context("train", arguments[1:])
        assert TrainOptions(**training_options(context.params)) == TrainOptions()


class TestDocumentation:
    def test_the_table_has_a_row_for_each(self):
        table = {row[0]: row[1:] for row in option_rows()}
        assert list(table) == list(OPTIONS)
        assert table["tol"][:3] == ("--tol FLOAT", "0.001", "limit")
        assert table["resident"][-1] == "streamed-smo"
        assert table["cut_groups"][-1] == "ocas, cutting-plane"
        assert table["resume"] == ("--resume", "", "place", OPTIONS["resume"].help, "")

    def test_defaults_are_written_as_they_are_typed(self):
        assert {name: default_text(name) for name in OPTIONS if default_text(name)} == {
            "problem": "svc",
            "solver": "auto",
            "kernel": "linear",
            "unlabelled": "error",
            "C": "1",
            "scale": "none",
            "tol": "0.001",
            "seed": "0",
            "engine": "local",
        }

    def test_helps_are_sentences(self):
        for option in OPTIONS.values():
            assert option.help.endswith(".")
            assert option.help[0].isupper()

    def test_the_docstring_lists_them(self):
        for name in OPTIONS:
            assert f"\n    {name} : " in TrainOptions.__doc__


class TestValues:
    def test_json_holds_what_was_resolved(self):
        record = json.loads(json.dumps(TrainOptions(**OCAS).to_json()))
        assert list(record) == list(OPTIONS)
        assert record["class_weight"] == [["1", 2.0], [-1, 0.5]]
        assert (record["loss"], record["epsilon"], record["solver"]) == ("hinge", 0.0, "ocas")
        assert TrainOptions(problem="svr").to_json()["epsilon"] == 0.1

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"lanes": 3}, "lanes must be a power of two up to 64, not 3"),
            ({"epsilon": math.inf, "problem": "svr"}, "epsilon must be finite and not negative, not inf"),
            ({"engine": "cloud"}, "engine must be 'local' or 'dask', not 'cloud'"),
            (
                {"class_weight": "even"},
                "class_weight must be 'balanced' or a dict of weights by label, not 'even'",
            ),
            ({"insecure_cluster": True}, "insecure_cluster needs engine='dask'; add it, or leave it out"),
            (
                {"cut_groups": 2, "loss": "squared-hinge"},
                "no solver takes all of the options: cut_groups is for the solvers 'ocas' and "
                "'cutting-plane'; loss 'squared-hinge' is for the solvers 'streamed-smo', 'block-smo', 'alm' "
                "and 'inexact-alm'",
            ),
            (
                {"problem": "ranking", "lanes": 2},
                "no solver takes all of the options: problem 'ranking' is for the solvers 'ocas' and "
                "'cutting-plane'; lanes is for the solver 'streamed-smo'",
            ),
        ],
    )
    def test_what_is_wrong_is_one_sentence(self, options, message):
        with pytest.raises(UsageError) as refused:
            TrainOptions(**options)
        assert str(refused.value) == message

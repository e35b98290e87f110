"""What a command line names: nothing is destroyed, and files of the wrong kind are told by what they are."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import SmallData
from typer.testing import CliRunner

from ooc_svm import InputError, UsageError, export_model, open_store, save_model, train, verify_store
from ooc_svm.cli.app import app
from ooc_svm.options import TrainOptions


def run(*arguments: object, code: int = 0) -> tuple[str, str]:
    """Run a command line; its standard output, and standard error, which is one sentence if it fails."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, (result.exit_code, result.stdout, result.stderr)
    if code:
        assert len(result.stderr.splitlines()) == 1, result.stderr
    return result.stdout, result.stderr


def content(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def model(small: SmallData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "m.model"
    run("train", small.store, "-o", path, "--quiet", "--checkpoint", path.parent / "states")
    return path


@pytest.mark.parametrize("inside", ["", "states"])
@pytest.mark.parametrize("command", [["train"], ["tune", "--C=1,2", "--folds=2"]])
def test_no_checkpoint_goes_into_a_store(
    small: SmallData, tmp_path: Path, command: list[str], inside: str
) -> None:
    before = content(small.store)
    name, *more = command
    folder = small.store / inside
    _, error = run(name, small.store, "-o", tmp_path / "m", *more, "--checkpoint", folder, code=2)
    assert "nothing is saved in the Zarr store" in error
    assert content(small.store) == before
    assert not (tmp_path / "m").exists()


def test_nothing_else_is_written_into_a_store(small: SmallData, model: Path, tmp_path: Path) -> None:
    before = content(small.store)
    link = tmp_path / "link"
    link.symlink_to(small.store)
    metadata, new = link / "zarr.json", tmp_path / "new"
    for arguments in (
        ["convert", small.text, "-o", link / "inner"],
        ["train", small.store, "-o", link / "m"],
        ["train", small.store, "-o", new, "--report", metadata],
        ["train", small.store, "-o", new, "--log", link / "log"],
        ["predict", model, small.test, "-o", metadata],
        ["evaluate", model, small.test, "--json", metadata],
        ["evaluate", model, small.test, "--confusion", link / "c.csv"],
        ["export", model, "-o", metadata, "--to", "liblinear"],
    ):
        _, error = run(*arguments, code=2)
        assert "lies in the Zarr store" in error
    assert content(small.store) == before
    assert not new.exists()


def test_results_replace_results_alone(small: SmallData, model: Path, tmp_path: Path) -> None:
    rows, archive, names = tmp_path / "rows.svm", tmp_path / "m.npz", tmp_path / "names"
    rows.write_bytes(small.text.read_bytes())
    sp.save_npz(archive, sp.eye(3, format="csr"))
    names.write_text("".join(f"f{j}\n" for j in range(small.n_features)))
    link = tmp_path / "link"
    link.symlink_to(names)
    before = content(tmp_path)
    for target in (rows, archive, tmp_path / "m.npz"):
        for command in (["predict", model, small.test], ["export", model, "--to", "svmlight"]):
            _, error = run(*command, "-o", target, code=2)
            assert "is no file of results, so it is not replaced" in error
        run("evaluate", model, small.test, "--confusion", target, code=2)
    _, error = run("predict", model, small.test, "-o", link, "--feature-names", names, code=2)
    assert "is an input" in error
    assert content(tmp_path) == before
    out = tmp_path / "out"
    for more in ([], ["--scores"]):
        run("predict", model, small.test, "-o", out, *more)
        run("predict", model, small.test, "-o", out)
    run("export", model, "-o", out, "--to", "liblinear")
    run("export", model, "-o", out, "--to", "svmlight")
    assert out.read_text().startswith("SVM-light")


@pytest.mark.parametrize(
    "first", ["# rows\n", "\n" * 20, "spam\n", "1\n" * 9, " 3:0.5 7:1\n", "1 qid:1\n", "1,2 3:0.5 7:1\n"]
)
def test_rows_of_text_are_kept_however_they_begin(
    small: SmallData, model: Path, tmp_path: Path, first: str
) -> None:
    rows = tmp_path / "rows.svm"
    rows.write_text(first + "1 3:0.5 7:1\n" * 30)
    before = content(tmp_path)
    _, error = run("predict", model, small.test, "-o", rows, code=2)
    assert "is no file of results, so it is not replaced" in error
    assert content(tmp_path) == before


@pytest.mark.parametrize("to", ["liblinear", "libsvm"])
def test_the_names_of_classes_replace_no_data(tmp_path: Path, to: str) -> None:
    save_model(train(sp.eye(4, format="csr"), ["a", "b", "a", "b"]), tmp_path / "m")
    labels = tmp_path / "out.labels"
    labels.write_text("1 1:0.5 2:1\n")
    before = content(tmp_path)
    _, error = run("export", tmp_path / "m", "-o", tmp_path / "out", "--to", to, code=2)
    assert f"{labels}: is no file of results, so it is not replaced" in error
    assert content(tmp_path) == before
    labels.unlink()
    for _ in range(2):
        run("export", tmp_path / "m", "-o", tmp_path / "out", "--to", to)
    assert labels.read_text().startswith("1\t")


def test_a_dash_is_standard_output(
    small: SmallData, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("predict", model, small.test, "-o", "-") == run("predict", model, small.test)
    for name in ("liblinear", "libsvm", "svmlight"):
        run("export", model, "-o", name, "--to", name)
        assert run("export", model, "-o", "-", "--to", name)[0] == Path(name).read_text()
        Path(name).unlink()
    for arguments in (
        ["train", small.store, "-o", "-"],
        ["train", small.store, "--report=-"],
        ["train", small.store, "--log=-"],
        ["train", small.text, "--store=-"],
        ["train", small.store, "--checkpoint=-"],
        ["tune", small.store, "-o", "-"],
        ["convert", small.text, "-o", "-"],
        ["evaluate", model, small.test, "--confusion=-"],
    ):
        _, error = run(*arguments, code=2)
        assert re.search("--[a-z]+ cannot be -, standard output: name a ", error)
    assert list(tmp_path.iterdir()) == []


def test_names_of_classes_need_a_file(tmp_path: Path) -> None:
    with open(tmp_path / "out", "wb") as file, open(tmp_path / "text", "w") as text:
        named = train(sp.eye(4, format="csr"), ["a", "b", "a", "b"])
        with pytest.raises(UsageError, match="a second file next to the model; name a file"):
            export_model(named, file, "liblinear")
        with pytest.raises(UsageError, match="a path, or a binary stream"):
            export_model(named, text, "svmlight")  # type: ignore[arg-type]
        export_model(named, file, "svmlight")
    assert (tmp_path / "out").read_bytes().startswith(b"SVM-light")


@pytest.mark.parametrize(
    ("row", "advice", "option"),
    [
        ("1 0:1", "if 0 is the first column here, use --index-base 0", "--index-base 0"),
        ("spam 1:1", "write class names as numbers", "--labels text"),
        ("1,3 1:1", "write one label a row, with a decimal point", "--labels sets"),
        ("1 1:1e39", "scale the values", "--dtype float64"),
    ],
)
def test_advice_fits_the_command(model: Path, tmp_path: Path, row: str, advice: str, option: str) -> None:
    text = tmp_path / "rows.svm"
    text.write_text(f"{row}\n")
    for command in ("predict", "evaluate"):
        _, error = run(command, model, text, code=3)
        assert f"{advice} (row 1)" in error
    _, error = run("convert", text, "-o", tmp_path / "new.zarr", code=3)
    assert option in error


def test_usage_names_the_options_that_are_needed() -> None:
    assert "{INPUT}... -o STORE\n" in run("convert", "--help")[0]
    assert " -o FILE --to liblinear|libsvm|svmlight\n" in run("export", "--help")[0]
    assert "[OPTIONS] {DATA}...\n" in run("train", "--help")[0]


@pytest.fixture(scope="module")
def wrong(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "p.png").write_bytes(b"\x89PNG\r\n\x1a\nrest")
    sp.save_npz(folder / "m.npz", sp.csr_matrix(np.eye(3)))
    (folder / "folder").mkdir()
    names = {name: folder / name for name in ("p.png", "m.npz", "folder")}
    return {**names, "model": model, "state": model.parent / "states" / "checkpoint-0.state"}


@pytest.mark.parametrize(
    ("command", "name", "sentence", "code"),
    [
        *(
            (command, name, f" is {what}, not data; check the path", 3)
            for command in ("verify X", "train X", "tune X", "plan X", "predict MODEL X", "convert X -o new")
            for name, what in (("model", "a model of ooc-svm"), ("p.png", "a picture"), ("state", "a saved"))
        ),
        ("train STORE --validation X", "model", " is a model of ooc-svm, not data", 3),
        ("tune X", "m.npz", "is an archive (.npz), no text; make a store", 3),
        ("plan X", "m.npz", "is an archive (.npz), no text; make a store", 3),
        ("convert X -o new", "folder", " is a folder, and no Zarr store", 3),
        ("report X", "folder", "is no report of a training", 3),
        ("info X", "m.npz", "is neither a store nor a model", 4),
        ("info X", "state", "is a saved state of a training, not a model", 4),
        *(
            (command, name, what, 4)
            for command in ("predict X TEXT", "evaluate X TEXT", "export X -o new --to svmlight")
            for name, what in (
                ("folder", "is a folder, not a model"),
                ("state", "is a saved state of a training, not a model; go on with train --resume"),
            )
        ),
        ("predict STORE X", "model", "write ooc-svm predict MODEL DATA", 2),
        ("evaluate TEXT X", "model", "write ooc-svm evaluate MODEL DATA", 2),
        ("export STORE -o new --to svmlight", "model", "is a Zarr store, not a model", 4),
    ],
)
def test_a_file_of_the_wrong_kind(
    small: SmallData,
    model: Path,
    wrong: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    name: str,
    sentence: str,
    code: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    places = {"X": wrong[name], "MODEL": model, "STORE": small.store, "TEXT": small.test}
    _, error = run(*(places.get(word, word) for word in command.split()), code=code)
    assert sentence.split(",")[0] in error, error
    assert sentence.rpartition(",")[2] in error, error
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_of_labels(wrong: dict[str, Path], tmp_path: Path) -> None:
    for name in ("labels", "labels.npy"):
        missing = tmp_path / name
        _, error = run("convert", wrong["m.npz"], "-o", tmp_path / "new", "--labels-file", missing, code=3)
        assert f"{missing}: there is no such file of labels; check the path" in error


@pytest.mark.parametrize(
    ("name", "what"), [("model", "a model of"), ("state", "a saved state"), ("p.png", "a pic")]
)
def test_no_store_is_told_by_what_it_is(wrong: dict[str, Path], name: str, what: str) -> None:
    for function in (open_store, verify_store):
        with pytest.raises(InputError, match=f" is {what}.*, not data; check the path"):
            function(wrong[name])
    with pytest.raises(InputError, match="is a file, not a Zarr store; convert it first"):
        open_store(wrong["m.npz"])


def test_names_that_are_too_few(small: SmallData, tmp_path: Path) -> None:
    names = tmp_path / "names"
    names.write_text("a\nb\n")
    _, error = run("convert", small.text, "-o", tmp_path / "s", "--feature-names", names, code=3)
    assert re.search(
        r":\d+:\d+: index '\d+' is too large: --feature-names has 2 names; give one name to each f", error
    )


def test_options_that_text_does_not_take(small: SmallData) -> None:
    _, error = run("train", small.text, "--unlabelled", "skip", code=2)
    assert "--unlabelled is for rows of AnnData without a label" in error
    for command, *option in (("train", "--shuffle", "1"), ("tune", "--dtype=float64"), ("plan", "--group")):
        _, error = run(command, small.text, *option, code=2)
        name = option[0].partition("=")[0]
        assert f"{name} is an option of convert; make a store with it, and give that store" in error
    for command in ("train", "tune"):
        _, error = run(command, small.store, "--overwrite", code=2)
        assert "a model that is there is replaced; leave --overwrite out" in error
        assert "no such option: --sweep" in run(command, small.store, "--sweep", code=2)[1].lower()


@pytest.mark.parametrize(
    "option", ["-o", "--output", "--overwrite", "--report", "--log", "--feature-names", "--quiet"]
)
def test_options_of_training_that_plan_does_not_take(small: SmallData, option: str) -> None:
    expected = f"plan only shows what a run will need; leave {option} out"
    assert expected in run("plan", small.store, option, "f", code=2)[1]


@pytest.mark.parametrize(
    ("options", "names_kernel"),
    [
        ({"kernel": "rbf", "loss": "logistic"}, True),
        ({"kernel": "rbf", "problem": "ranking"}, True),
        ({"landmarks": 5}, True),
        ({"resident": 0.5, "cut_groups": 2}, False),
    ],
)
def test_no_solver_because_of_the_kernel(options: dict[str, object], names_kernel: bool) -> None:
    with pytest.raises(UsageError, match="no solver takes all of the options") as error:
        TrainOptions(**options)
    kernel = options.get("kernel", "linear")
    assert (f"kernel '{kernel}' is for the solvers" in str(error.value)) is names_kernel


def test_no_solver_because_of_a_default(small: SmallData) -> None:
    """A default is named only if another value would do."""
    _, error = run("train", small.store, "--kernel", "rbf", "--prune", "0.1", code=2)
    assert "--prune is for the solvers " in error
    assert "; kernel 'rbf' is for the solvers " in error
    assert "bias" not in error
    with pytest.raises(UsageError, match=r"sparse_cuts is for .*; bias 'penalized' is for "):
        TrainOptions(kernel="rbf", sparse_cuts=True)
    with pytest.raises(UsageError, match="bias 'none' is for "):
        TrainOptions(kernel="rbf", sparse_cuts=True, prune=0.1, bias="none")


def test_values_are_no_classes(tmp_path: Path) -> None:
    text, store = tmp_path / "r.svm", tmp_path / "r.zarr"
    text.write_text("0.5 1:1\n0.5 2:1\n2 1:1\n")
    values = "0.5 to 2, mean 1, 2 different values"
    assert values in run("convert", text, "-o", store, "--quiet")[0]
    assert values in run("info", store)[0]


def test_a_report_of_progress_is_one_line(small: SmallData) -> None:
    lines: list[str] = []
    train(small.text, progress=lambda event: lines.append(str(event)))
    assert all("Progress(" not in line and "\n" not in line for line in lines)
    assert re.fullmatch(r"convert [\d.]+ kB  [\d,]+ rows  .*s", lines[0])
    assert any(re.fullmatch(r"pass 1  block \d of \d  .*s", line) for line in lines)
    number = r"-?[\d.e+-]+"
    last = rf"pass \d+  gap {number} \(target 0\.001\)  P {number}  D {number}  (.+ read|rows in memory)  .*s"
    assert any(re.fullmatch(last, line) for line in lines), lines

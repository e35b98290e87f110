"""What is in the way of a file or folder that a command would write is refused before anything is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import SmallData
from test_cli import run


@pytest.mark.parametrize("command", ["train", "tune"])
@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("-o", "choose another name"),
        ("--report", "is a folder, and a file is to be written; choose another name"),
        ("--log", "is a folder, and a file is to be written; choose another name"),
    ],
)
@pytest.mark.parametrize("name", ["folder", "other.zarr"])
def test_a_folder_in_the_way_of_a_file(
    small: SmallData, tmp_path: Path, command: str, option: str, message: str, name: str
) -> None:
    place = tmp_path / name
    if name == "folder":
        place.mkdir()
    else:
        run("convert", small.text, "-o", place, "--quiet")
    model = () if option == "-o" else ("-o", tmp_path / "m")
    # Of data that do not exist nothing was read.
    _, err = run(command, tmp_path / "none.zarr", option, place, *model, code=2)
    assert str(place) in err
    assert message in err
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("command", ["train", "tune"])
def test_a_file_in_the_way_of_a_folder(tmp_path: Path, command: str) -> None:
    place = tmp_path / "saved"
    place.write_text("notes")
    _, err = run(command, tmp_path / "none.zarr", "-o", tmp_path / "m", "--checkpoint", place, code=2)
    assert f"{place}: is not a folder, so nothing is saved in it; give --checkpoint another name" in err
    assert place.read_text() == "notes"


@pytest.mark.parametrize("command", ["train", "tune"])
@pytest.mark.parametrize("option", ["-o", "--report", "--log"])
def test_one_name_for_a_file_and_the_folder_of_checkpoints(
    small: SmallData, tmp_path: Path, command: str, option: str
) -> None:
    model = () if option == "-o" else ("-o", tmp_path / "m")
    _, err = run(command, small.store, option, tmp_path / "x", *model, "--checkpoint", tmp_path / "x", code=2)
    assert f"--checkpoint and {option} name the same file or folder" in err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_the_way_of_results(small: SmallData, tmp_path: Path) -> None:
    run("train", small.store, "-o", tmp_path / "m", "--quiet")
    for command in (
        ("evaluate", tmp_path / "m", small.store, "--json"),
        ("evaluate", tmp_path / "m", small.store, "--confusion"),
        ("predict", tmp_path / "m", small.store, "-o"),
        ("export", tmp_path / "m", "--to", "svmlight", "-o"),
    ):
        _, err = run(*command, tmp_path, code=2)
        assert "is a folder, and a file is to be written; choose another name" in err


def test_pictures_replace_no_folder_and_are_not_written_into_a_store(
    small: SmallData, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    run("train", small.store, "-o", tmp_path / "m", "--quiet")
    (tmp_path / "a.png").mkdir()
    _, err = run("report", tmp_path / "m", "-o", tmp_path / "a.png", code=2)
    assert "is a folder, and a file is to be written; choose another name" in err
    run("convert", small.text, "-o", tmp_path / "s.zarr", "--quiet")
    _, err = run("report", tmp_path / "m", "-o", tmp_path / "s.zarr" / "a.png", code=2)
    assert "s.zarr" in err
    assert not (tmp_path / "s.zarr" / "a.png").exists()

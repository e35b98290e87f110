"""Damage to bytes: of one file, or of the files of a folder."""

from __future__ import annotations

import random
import shutil
from pathlib import Path


def files_of(place: Path) -> list[Path]:
    """All files of a folder, or the file."""
    return sorted(path for path in place.rglob("*") if path.is_file()) if place.is_dir() else [place]


def flip(rng: random.Random, path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def replace_byte(rng: random.Random, path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] = rng.choice(b'\x00\xff"0-9{}[],.:n\\')
    path.write_bytes(content)


def truncate(rng: random.Random, path: Path) -> None:
    path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size)])


def zero(rng: random.Random, path: Path) -> None:
    content = bytearray(path.read_bytes())
    start = rng.randrange(len(content))
    content[start:] = bytes(len(content) - start)
    path.write_bytes(content)


def empty(rng: random.Random, path: Path) -> None:
    path.write_bytes(b"")


def extend(rng: random.Random, path: Path) -> None:
    with path.open("ab") as file:
        file.write(rng.randbytes(rng.choice((1, 4, 100))))


def delete(rng: random.Random, path: Path) -> None:
    path.unlink()


def swap(rng: random.Random, path: Path) -> None:
    """Exchange the contents of two files of the same folder, or of the whole store."""
    other = rng.choice(_others(path))
    mine, theirs = path.read_bytes(), other.read_bytes()
    path.write_bytes(theirs)
    other.write_bytes(mine)


def duplicate(rng: random.Random, path: Path) -> None:
    shutil.copyfile(path, rng.choice(_others(path)))


def add(rng: random.Random, path: Path) -> None:
    """Put a copy of the file next to it, under a name that is like those there."""
    last = path.name[-1]
    shutil.copyfile(
        path, path.with_name(f"{path.name[:-1]}{int(last) + 50}" if last.isdigit() else f"{path.name}2")
    )


def _others(path: Path) -> list[Path]:
    top = next((each for each in path.parents if each.suffix == ".zarr"), path.parent)
    near = [each for each in files_of(path.parent) if each != path]
    return near or [each for each in files_of(top) if each != path] or [path]


WAYS = (flip, replace_byte, truncate, zero, empty, extend, delete, swap, duplicate, add)

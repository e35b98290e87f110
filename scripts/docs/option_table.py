"""The options of training as a table; ``python scripts/docs/option_table.py`` prints it in Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from ooc_svm.catalog import owners
from ooc_svm.errors import flag
from ooc_svm.options import OPTIONS, default_text

HEAD = ("name", "option", "default", "role", "help", "only for")


def option_rows() -> Iterator[tuple[str, ...]]:
    """Name, option with its value, default, role, help, and what it belongs to, of each option."""
    for name, option in OPTIONS.items():
        belongs_to = ", ".join(owner for names in owners(name).values() for owner in names)
        typed = f"{flag(name)} {option.metavar}".rstrip()
        yield name, typed, default_text(name), option.role.value, option.help, belongs_to


def main() -> None:
    """Print a table in Markdown."""
    for row in (HEAD, ["---"] * len(HEAD), *option_rows()):
        print("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")


if __name__ == "__main__":
    main()

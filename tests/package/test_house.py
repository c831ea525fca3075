"""Sizes a reader can hold, and commands that the README may show."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [path for room in ("exporter", "scaler") for path in (ROOT / room).rglob("*.py") if "_pb2" not in path.name]


def test_no_module_is_longer_than_a_reader_can_hold():
    assert [str(path.relative_to(ROOT)) for path in SOURCES if path.read_text().count("\n") > 400] == []


def test_every_shell_line_of_the_readme_begins_with_a_command_that_exists():
    from scaler.cli import main  # noqa: PLC0415

    lines = re.findall(r"^\$ (?:tidegate/bin/)?tidegate (\S+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert lines
    assert [name for name in lines if name not in main.commands] == []

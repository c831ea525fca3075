"""Sizes a reader can hold."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [path for room in ("exporter", "scaler") for path in (ROOT / room).rglob("*.py") if "_pb2" not in path.name]


def test_no_module_is_longer_than_a_reader_can_hold():
    assert [str(path.relative_to(ROOT)) for path in SOURCES if path.read_text().count("\n") > 600] == []

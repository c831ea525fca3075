"""docs/how-to/collect-only.md matches the code."""

import re
from pathlib import Path

import pytest

from exporter.catalog import export
from scaler.config.agent import ExportConfig
from scaler.config.pydantic_errors import sections_in
from scaler.config.schema import defaults_of

DOCS = (Path(__file__).parents[3] / "docs/how-to/collect-only.md").read_text(encoding="utf-8")
# Described in docs/reference/configuration.md, which the row links.
ELSEWHERE = ("access.", "log.")


def keys(section, prefix=""):
    for name, field in section.model_fields.items():
        yield prefix + name
        is_list = "tuple" in str(field.annotation)
        for inner in sections_in(field.annotation):
            yield from keys(inner, f"{prefix}{name}.0." if is_list else f"{prefix}{name}.")


def test_every_key_is_documented():
    required = [key for key in keys(ExportConfig) if not any(part in key for part in ELSEWHERE)]
    assert [key for key in required if key not in ("scrape", "log") and f"| `{key}` |" not in DOCS] == []


@pytest.mark.parametrize(("key", "default"), [
    ("listen", defaults_of(ExportConfig)["listen"]),
    ("scrape.interval", defaults_of(ExportConfig)["scrape"]["interval"]),
    ("scrape.timeout", defaults_of(ExportConfig)["scrape"]["timeout"]),
    ("scrape.body_limit", defaults_of(ExportConfig)["scrape"]["body_limit"]),
])  # fmt: skip
def test_documented_defaults_are_those_of_the_model(key, default):
    assert f"| `{key}` | `{default}` |" in DOCS


def test_documented_families_are_exported():
    exported = {name for row in export.EXPORT.rows for name in row.names}
    exported |= {f"{export.PREFIX}source_{name}_total" for name in ("scrapes", "failures", "dropped_lines")}
    assert set(re.findall(rf"{export.PREFIX}\w+", DOCS)) <= exported

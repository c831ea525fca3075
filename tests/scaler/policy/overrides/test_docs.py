"""docs/how-to/overrides.md agrees with the code."""

import re
from pathlib import Path

from scaler.config import parse
from scaler.lint.run import override_lines
from scaler.policy.overrides import moment, read_brake

_TEXT = (Path(__file__).parents[4] / "docs/how-to/overrides.md").read_text(encoding="utf-8")
_YAML = re.findall(r"```yaml\n(.*?)```", _TEXT, flags=re.DOTALL)
_NOW = moment("2026-11-22T12:00Z")


def test_page_has_its_examples():
    assert len(_YAML) == 3


def test_every_brake_of_the_page_is_parsed():
    block = re.search(r"```text\n(freeze\n.*?)```", _TEXT, flags=re.DOTALL)[1]
    typed = re.findall(r'tidegate\.dev/brake="([^"]*)"', _TEXT)
    lines = [*block.splitlines(), *typed]
    assert [read_brake(line).action for line in lines] == ["freeze", "never_down", "floor 4", "freeze"]


def test_output_of_check_is_as_documented():
    shown = {}
    for text in _YAML:
        if "workloads:" in text:
            shown |= override_lines(parse(text, "orders.md")[0], _NOW)
    printed = re.search(r"```text\n(  all workloads.*?)```", _TEXT, flags=re.DOTALL)[1].splitlines()
    assert set(printed) <= {f"  {name}: {line}" for name, lines in shown.items() for line in lines}

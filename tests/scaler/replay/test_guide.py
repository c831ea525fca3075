"""The list of policies in docs/how-to/replay.md is the one in the code."""

from __future__ import annotations

from pathlib import Path

from scaler.replay.policies import FAMILIES

GUIDE = Path(__file__).parents[3] / "docs/how-to/replay.md"
BEGIN, END = "<!-- policies: tests/scaler/replay/test_guide.py -->\n", "<!-- end of policies -->\n"


def plain(value):
    return f"{value:g}" if isinstance(value, float) else str(value)


def table():
    lines = ["| policy | is | parameters and defaults | grid |", "|---|---|---|---|"]
    for family in FAMILIES.values():
        parameters = ", ".join(f"`{key}={plain(one.default)}` {one.about}" for key, one in family.parameters.items())
        grid = "; ".join(f"`{key}` {', '.join(map(plain, values))}" for key, values in family.grid.items())
        lines.append(f"| `{family.name}` | {family.about} | {parameters} | {grid} |")
    return "\n".join(lines) + "\n"


def test_the_guide_lists_the_policies_their_parameters_and_the_grid():
    written = GUIDE.read_text(encoding="utf-8")

    assert table() == written[written.index(BEGIN) + len(BEGIN) : written.index(END)]

"""The list of policies in docs/how-to/replay.md is the one in the code."""

from __future__ import annotations

from pathlib import Path

from scaler.replay.policies import FAMILIES

GUIDE = Path(__file__).parents[2] / "docs/how-to/replay.md"
BEGIN, END = "<!-- policies: tests/replay/test_guide.py -->\n", "<!-- end of policies -->\n"


def test_the_guide_lists_every_policy():
    written = GUIDE.read_text(encoding="utf-8")
    rows = [f"| `{family.name}` | {family.about} |" for family in FAMILIES.values()]

    assert (
        "\n".join(["| policy | is |", "|---|---|", *rows, ""])
        == written[written.index(BEGIN) + len(BEGIN) : written.index(END)]
    )

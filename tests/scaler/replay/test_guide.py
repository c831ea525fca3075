"""Checks that docs/how-to/replay.md names every policy; `--policy list` has the rest."""

from __future__ import annotations

import re
from pathlib import Path

from scaler.replay.policies import FAMILIES

GUIDE = Path(__file__).parents[3] / "docs/how-to/replay.md"


def test_guide_names_every_policy_and_no_other():
    section = GUIDE.read_text(encoding="utf-8").partition("## Policies\n")[2].partition("\n## ")[0]

    assert set(re.findall(r"`([a-z][a-z+-]*)`", section)) == set(FAMILIES)

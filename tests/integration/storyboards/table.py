"""The table of benchmarks/SCALE-TO-ZERO.md: `python -m tests.integration.storyboards.table` runs every scenario again.

Worked example: a scenario with a wait of 602 s and no error has the row `| a model that loads for ten minutes | 1 h | 3
| 0 | 0 | 0 | 1 | 602 s | 0.3 | 0.1 | |`.
"""

from __future__ import annotations

import re
from math import isnan
from pathlib import Path

from .scenarios import COSTED, SCENARIOS

GUIDE = Path(__file__).parents[3] / "benchmarks/SCALE-TO-ZERO.md"
HEAD = (
    "| scenario | time | requests | lost | wrong sleeps | wrong wakes | starts | longest wait | GPU-hours | "
    "of them idle | regret |\n|---|---|---|---|---|---|---|---|---|---|---|"
)
TABLE = re.compile(r"(?<=<!-- the scenarios -->\n).*?(?=<!-- end -->)", re.DOTALL)


def row(name):
    stage = SCENARIOS[name]()
    score = stage.score()
    hours = (stage.clock.now - stage.begin) / 3600.0
    time = f"{hours:.0f} h" if hours < 48 else f"{hours / 24:.0f} d"
    regret = "" if name not in COSTED or isnan(score.regret) else f"{score.regret:.2f}"
    cells = [
        name,
        time,
        score.requests,
        *score.harm,
        score.wakes,
        f"{score.worst_wait_s:.0f} s" if score.requests else "",
        f"{score.replica_hours:.1f}",
        f"{score.idle_hours:.1f}",
        regret,
    ]
    return f"| {' | '.join(map(str, cells))} |".replace("|  |", "| |")


def rows():
    return TABLE.search(GUIDE.read_text(encoding="utf-8"))[0].splitlines()


def write():
    table = "\n".join([HEAD, *map(row, SCENARIOS), ""])
    GUIDE.write_text(TABLE.sub(lambda _: table, GUIDE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write()

"""Tests the machine code of the simulator: it is cached, and recompiled when one of its sources changes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import exporter
import scaler

# A step of 0.01 s and a prompt of 100 tokens at 1000/s: the first token is generated at 5.11 s.
PLAYED = """
import numpy as np
from scaler.replay.columns import FIRST, ReplayWorld, ServerColumns
from scaler.replay.engine import advance, scale
from scaler.replay.metric_pages import look
world = ReplayWorld.of(np.array([5.0]), np.array([100]), np.array([3]), 4, 8)
server = ServerColumns(0.01, 0.0, 0.0, 1000.0, 2048, 8, 1e9, 0)
scale(world, 1, np.zeros(1))
advance(world, server, 10.0)
hits = [sum(one.stats.cache_hits.values()) for one in (advance, scale, look)]
print(round(world.request_times[0, FIRST], 6), hits)
"""


@pytest.fixture
def copied(tmp_path):
    """`copied(script)`: the output of a script with a copy of the packages and of the machine code beside them."""
    for package in (exporter, scaler):
        folder = Path(package.__file__).parent
        shutil.copytree(folder, tmp_path / folder.name, ignore=shutil.ignore_patterns("*.pyc"))

    def run(script):
        # The CPU is the suite's, or everything would be compiled here for another one.
        foreign = ("NUMBA_CACHE", "NUMBA_DISABLE", "PYTHON")
        keep = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
        done = subprocess.run(
            [sys.executable, "-B", "-c", script],
            cwd=tmp_path, env=keep,
            capture_output=True, text=True, timeout=300, check=True,
        )  # fmt: skip
        return done.stdout.strip()

    run.folder = tmp_path
    return run


def test_simulator_is_compiled_once_and_again_after_a_change_of_its_sources(copied):
    # Each import of the simulator leaves its machine code beside its sources; of what has none, the first run does.
    assert copied(PLAYED).startswith("5.11 [")
    assert copied(PLAYED) == "5.11 [1, 1, 1]"

    # `run_s` is in another file than the engine: this doubles the time of a step.
    columns = copied.folder / "scaler" / "replay" / "columns.py"
    columns.write_text(columns.read_text().replace("first = server.step +", "first = 2 * server.step +"))
    assert copied(PLAYED) == "5.12 [0, 0, 0]"

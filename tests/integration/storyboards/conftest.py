"""Runs each scenario once, prints its numbers, and compares them with its row in benchmarks/SCALE-TO-ZERO.md."""

import pytest

from .scenarios import SCENARIOS
from .table import HEAD, row, rows


@pytest.fixture
def play():
    """`play(scenarios.stock_out)`: the stage of a scenario that ended well: no lost request, no wrong sleep, no wrong
    wake.
    """

    def play(scenario):
        (name,) = [name for name, each in SCENARIOS.items() if each is scenario]
        stage = scenario()
        print(f"\n{HEAD.splitlines()[0]}\n{row(name)}")  # noqa: T201 - what `pytest -s` is for
        assert stage.judge.wrong_sleeps == []
        assert stage.judge.wrong_wakes == []
        assert stage.score().harm == (0, 0, 0)
        assert row(name) in rows(), (
            "benchmarks/SCALE-TO-ZERO.md shows other numbers: python -m tests.integration.storyboards.table writes it "
            "anew"
        )
        return stage

    return play

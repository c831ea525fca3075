"""How a story is told: played once, its numbers printed, and held against its row in
benchmarks/SCALE-TO-ZERO.md."""

import pytest

from .stories import STORIES
from .table import HEAD, row, rows


@pytest.fixture
def told():
    """`told(stories.stock_out)`: the stage of a story that ended well: nothing lost, no wrong sleep, no wrong wake."""

    def play(story):
        (name,) = [name for name, each in STORIES.items() if each is story]
        stage = story()
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

"""Answers about people that are remembered: for how long, how many, and at whose cost."""

import asyncio

import pytest

from scaler.api.metrics_api import auth
from scaler.api.metrics_api.auth import ReviewCache


class Asked:
    """Answers whatever it is told to, and counts."""

    def __init__(self):
        self.answer, self.count = "yes", 0

    async def __call__(self):
        self.count += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def asked():
    return Asked()


@pytest.fixture
def remembered(clock):
    return ReviewCache(lambda answer: answer == "yes", clock.now)


async def test_a_no_that_became_a_yes_is_a_yes_and_the_other_way_round(remembered, asked, clock):
    for answer in ("no", "yes", "no", "yes"):
        asked.answer = answer
        assert await remembered.get("k", asked) == answer
        clock.advance(auth.CACHED_S)
    # Nobody's answer is kept twice.
    assert [len(kept) for kept in remembered._cached] == [1, 0]


async def test_negative_results_are_bounded_and_evict_no_positive_one(remembered, asked, monkeypatch):
    monkeypatch.setattr(auth, "CACHED", 3)
    await remembered.get("good", asked)
    noes = Asked()
    noes.answer = "no"
    for n in range(10):
        await remembered.get(n, noes)
    await remembered.get("good", asked)
    assert asked.count == 1
    assert [len(kept) for kept in remembered._cached] == [1, 3]


async def test_a_failure_reaches_every_waiting_caller_and_is_not_cached(remembered, asked):
    asked.answer = OSError("gone")
    answers = await asyncio.gather(*(remembered.get("k", asked) for _ in range(3)), return_exceptions=True)
    assert [str(answer) for answer in answers] == ["gone"] * 3
    asked.answer = "yes"
    assert (await remembered.get("k", asked), asked.count) == ("yes", 2)


async def test_who_gives_up_costs_the_others_nothing(remembered):
    gate = asyncio.Event()

    async def slow():
        await gate.wait()
        return "yes"

    first, second = (asyncio.create_task(remembered.get("k", slow)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    gate.set()
    assert await second == "yes"


async def test_nothing_is_under_way_once_it_is_stopped(remembered):
    asking = asyncio.create_task(remembered.get("k", asyncio.Event().wait))
    await asyncio.sleep(0)
    await remembered.stop()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert remembered._in_progress == {}

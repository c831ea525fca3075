"""ReviewCache bounds the age and the number of cached reviews and shares requests in progress."""

import asyncio

import pytest

from scaler.api.metrics_api import auth
from scaler.api.metrics_api.auth import ReviewCache


class Review:
    """Returns or raises `answer`, and counts its calls."""

    def __init__(self):
        self.answer, self.count = "yes", 0

    async def __call__(self):
        self.count += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def review():
    return Review()


@pytest.fixture
def cache(clock):
    return ReviewCache(lambda answer: answer == "yes", clock.now)


async def test_expired_result_is_replaced_by_the_new_one(cache, review, clock):
    for answer in ("no", "yes", "no", "yes"):
        review.answer = answer
        assert await cache.get("k", review) == answer
        clock.advance(auth.CACHED_S)
    # No result is stored twice.
    assert [len(kept) for kept in cache._cached] == [1, 0]


async def test_negative_results_are_bounded_and_evict_no_positive_one(cache, review, monkeypatch):
    monkeypatch.setattr(auth, "CACHED", 3)
    await cache.get("good", review)
    negative = Review()
    negative.answer = "no"
    for n in range(10):
        await cache.get(n, negative)
    await cache.get("good", review)
    assert review.count == 1
    assert [len(kept) for kept in cache._cached] == [1, 3]


async def test_failure_reaches_every_waiting_caller_and_is_not_cached(cache, review):
    review.answer = OSError("gone")
    answers = await asyncio.gather(*(cache.get("k", review) for _ in range(3)), return_exceptions=True)
    assert [str(answer) for answer in answers] == ["gone"] * 3
    review.answer = "yes"
    assert (await cache.get("k", review), review.count) == ("yes", 2)


async def test_cancelled_caller_does_not_cancel_the_shared_review(cache):
    gate = asyncio.Event()

    async def slow():
        await gate.wait()
        return "yes"

    first, second = (asyncio.create_task(cache.get("k", slow)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    gate.set()
    assert await second == "yes"


async def test_stop_cancels_reviews_in_progress(cache):
    asking = asyncio.create_task(cache.get("k", asyncio.Event().wait))
    await asyncio.sleep(0)
    await cache.stop()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert cache._in_progress == {}

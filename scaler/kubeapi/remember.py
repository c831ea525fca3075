"""Answers that stay true for a moment, so that the same question is not asked a hundred times a second.

Questions that are equal and come while the first one is under way share its answer. What is remembered is bounded, and
noes are kept apart from yeses: whoever sends a thousand bad tokens makes nobody forget a good one. A failure is not an
answer and is not remembered.

Worked example: of `get("t", ask)` three times within 10 s the first calls `ask()`, and all three get its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# As long as Kubernetes' own delegating servers do: a right that is taken away is gone after it.
KEPT_S = 10.0
KEPT = 4096  # of each kind
AT_ONCE = 64


class TooManyQuestions(Exception):  # noqa: N818 - an answer of its own kind
    """So many different questions are under way that this one is not asked."""


class Remembered(Generic[K, V]):
    """is_yes: which kind an answer is of. now: seconds."""

    def __init__(self, is_yes: Callable[[V], bool], now: Callable[[], float]) -> None:
        self._is_yes, self._now = is_yes, now
        self._kept: tuple[dict[K, tuple[float, V]], dict[K, tuple[float, V]]] = ({}, {})
        self._under_way: dict[K, asyncio.Task[V]] = {}

    async def get(self, key: K, ask: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """ask: called where the answer is not remembered. Raises what it does, and TooManyQuestions."""
        now = self._now()
        for kept in self._kept:
            if key in kept and now < kept[key][0]:
                return kept[key][1]
        task = self._under_way.get(key)
        if task is None:
            if len(self._under_way) >= AT_ONCE:
                raise TooManyQuestions
            task = asyncio.create_task(self._find(key, ask), name="a question to the API server")
            self._under_way[key] = task
            task.add_done_callback(lambda _: self._under_way.pop(key))
        # The first one to ask may give up; the others still want to know.
        return await asyncio.shield(task)

    async def stop(self) -> None:
        """End what is under way."""
        tasks = tuple(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _find(self, key: K, ask: Callable[[], Coroutine[Any, Any, V]]) -> V:
        value = await ask()
        yes, no = self._kept
        kept, other = (yes, no) if self._is_yes(value) else (no, yes)
        other.pop(key, None)
        kept.pop(key, None)  # the newest stand last
        kept[key] = (self._now() + KEPT_S, value)
        if len(kept) > KEPT:
            del kept[next(iter(kept))]
        return value

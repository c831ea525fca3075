"""Measures the time of a call with its spread: several rounds of many calls, the median round and the extremes.

It knows only the stopwatch, not the timed code. The median is the expected value; the distance from `least` to `most`
shows how reliable it is on this machine on this day.

Worked example: five rounds of 1,000 calls took 1.0, 1.1, 1.1, 1.2 and 3.0 ms; per call that is `Spread(1.1e-6, 1.0e-6,
3.0e-6)`: once another process used the processor.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple


class Spread(NamedTuple):
    """Several measurements of one quantity, in the unit of its column."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        ranked = sorted(values)
        return cls(median(ranked), ranked[0], ranked[-1])

    def times(self, factor: float) -> Spread:
        """The same in another unit."""
        return Spread(*(factor * value for value in self))


def seconds(call: Callable[[], Any], *, rounds: int = 7, round_s: float = 0.1) -> Spread:
    """Seconds per call. A round is as many calls as fill `round_s`, and at least one."""
    calls = 1
    while (took := _round(call, calls)) < round_s and calls < 1_000_000:
        calls = max(2 * calls, int(calls * round_s / max(took, 1e-9)))
    return Spread.of(_round(call, calls) / calls for _ in range(rounds))


def _round(call: Callable[[], Any], calls: int) -> float:
    begun = perf_counter()
    for _ in range(calls):
        call()
    return perf_counter() - begun


@contextmanager
def objects_set_aside() -> Iterator[None]:
    """Excludes the benchmark's own objects from garbage collection while code is timed."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()

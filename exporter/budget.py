"""Divides one amount of memory between an unknown number of holders.

A holder may hold at most as much as stays free (the dynamic threshold of Choudhury and Hahne 1998, with a factor of
one). So a single holder gets half, n greedy holders get 1/(n + 1) each, the same amount stays free, and a small holder
is refused only after very many large ones.

Worked example: of a budget of 12, one share grows to 6 and is refused 7; a second one then grows to 3.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import Self

# All responses being received may take so many times `scrape.body_limit`, and those that wait to be parsed as much: of
# eight endless ones the first takes its whole limit, the last half of it, and small ones always pass.
BODIES = 8
# Selected lines remembered for all targets. Measured with 120,000: 2 KB each, with what is built on them.
SERIES, SERIES_BYTES = 100_000, 2048


@dataclass(slots=True, eq=False)
class Budget:
    """total: in the unit of the caller. Its shares may be resized in any thread."""

    total: int
    used: int = 0
    lock: Lock = field(default_factory=Lock)

    def share(self) -> BudgetShare:
        """Returns a new share of size 0."""
        return BudgetShare(self)


class BudgetShare:
    """The part of a budget that one holder has. It is free again when the share is closed or no longer referenced."""

    __slots__ = ("_budget", "held")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.held = 0

    def resize(self, amount: int) -> bool:
        """Changes the share to `amount`. Returns False, without a change, if less than `amount` would stay free."""
        budget = self._budget
        with budget.lock:
            free = budget.total - budget.used + self.held - amount
            if amount > self.held and amount > free:
                return False
            budget.used += amount - self.held
            self.held = amount
        return True

    def close(self) -> None:
        self.resize(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

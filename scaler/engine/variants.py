"""Keeps the order of queues that prices decide, as columns over all workloads, and says why it is so. Pure.

`policy.variants` decides. The order is written into the array that the shares of a queue are made with, so it holds
from the next reading on.

Worked example: `chat-l4` and `chat-h100` share a queue, and their replicas cost 0.8 and 6.9 an hour: the order is 0 for
the one and 1 for the other: "second of 2 by the price of a replica for an hour: chat-l4 0.8, chat-h100 6.9".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from typing import Any

import numpy as np

from exporter.model import Floats
from scaler.columns import Array, Mask, Rows, named
from scaler.policy.columns import Ints
from scaler.policy.groups import BY_PRICE, NONE, Sharing
from scaler.policy.variants import UNORDERED, Learned, PriceUnit, Ranks, learned_capacity, ordered, prices
from scaler.workloads.spec import WorkloadSpec

_COUNTS = ("first", "second", "third")
# A price per hour and request a second is that of 3600 requests.
_PER_UNIT = {
    PriceUnit.REPLICAS: (1.0, "a replica for an hour"),
    PriceUnit.IN_HAND: (1.0, "a request in hand for an hour"),
    PriceUnit.REQUESTS: (1e6 / 3600.0, "a million requests"),
}
_MOST_SHOWN = 3  # prices of others, so that a sentence stays one


class Variants:
    """The orders of a fixed list of workloads. sharing: its `order` and `learned` are changed in place."""

    def __init__(self, plans: Sequence[WorkloadSpec], sharing: Sharing) -> None:
        self._plans, self._sharing = plans, sharing
        members = [plan.member for plan in plans]
        wished = np.array([each is not None and each.order == BY_PRICE for each in members], dtype=np.bool_)
        takes = (sharing.queue != NONE) & (sharing.weight > 0.0)
        # A queue with another order beside prices has that alone: such a configuration is refused.
        configured = np.unique(sharing.queue[takes & ~wished])
        self.rows: Rows = np.flatnonzero(takes & wished & ~np.isin(sharing.queue, configured))
        self._queue: Ints = np.unique(sharing.queue[self.rows], return_inverse=True)[1].astype(np.int64)
        holds = [nan if each is None else each.holds for each in members]
        self._holds: Floats = np.array(holds, dtype=np.float64)[self.rows]
        self._ranks = Ranks.blank(len(plans))
        unknown: Floats = np.full(len(self.rows), np.nan)
        self._prices = prices(unknown, unknown, unknown, self._queue)

    def update(self, hour: Floats, estimates: Floats, itl: Floats, now: float) -> Rows:
        """Returns the workloads with another rank. The arguments are of all workloads.

        hour: of a replica. estimates: of `sizing`. itl: of the SLO that sizes the workload. now: POSIX seconds.
        """
        rows = self.rows
        if not len(rows):
            return rows
        learned = self._learn(estimates, itl)
        self._prices = prices(hour[rows], self._holds, learned.rate, self._queue)
        before = Ranks(self._ranks.rank[rows], self._ranks.since[rows])
        after = ordered(self._queue, self._prices.price, before, now)
        for column, new in zip(self._ranks, after, strict=True):
            column[rows] = new
        self._apply()
        changed: Rows = rows[after.rank != before.rank]
        return changed

    def _learn(self, estimates: Floats, itl: Floats) -> Learned:
        """The learned capacity of a replica. Without `objectives.work` it also says how much of the queue one holds."""
        learned = learned_capacity(estimates[self.rows], itl[self.rows], self._queue)
        self._sharing.learned[self.rows] = np.where(np.isnan(self._holds), learned.holds, np.nan)
        return learned

    def _apply(self) -> None:
        self._sharing.order[self.rows] = np.maximum(self._ranks.rank[self.rows], 0)

    def evidence(self, rows: Rows) -> list[Mapping[str, Any]]:
        """The fields of `Evidence` about the order of each of `rows`; none where prices decide none."""
        if not len(self.rows):
            return [{}] * len(rows)
        index = np.full(len(self._plans), NONE, dtype=np.int64)
        index[self.rows] = np.arange(len(self.rows))
        return [{} if at == NONE else {"queue_order": self._sentence(at)} for at in index[rows].tolist()]

    def _sentence(self, at: int) -> str:
        mates = np.flatnonzero(self._queue == self._queue[at])
        mates = mates[np.argsort(self._ranks.rank[self.rows[mates]], kind="stable")]
        unknown = [self._name(mate) for mate in mates.tolist() if np.isnan(self._prices.price[mate])]
        missing = f"the price of {' and '.join(unknown[:_MOST_SHOWN])} is not known"
        mine = int(self._ranks.rank[self.rows[at]])
        if mine == UNORDERED:
            return f"by weight: {missing}"
        rank = f"{_COUNTS[mine] if mine < len(_COUNTS) else f'number {mine + 1}'} of {len(mates)}"
        if unknown:
            return f"{rank} by price, as before: {missing}"
        times, unit = _PER_UNIT[PriceUnit(self._prices.unit[at])]
        costs = [f"{self._name(mate)} {times * self._prices.price[mate]:.3g}" for mate in mates[:_MOST_SHOWN].tolist()]
        return f"{rank} by the price of {unit}: {', '.join(costs)}"

    def _name(self, index: int) -> str:
        name: str = self._plans[self.rows[index]].workload.name
        return name

    def columns(self) -> dict[str, Array]:
        """The state that a checkpoint keeps, one slot per workload."""
        return named("variants", self._ranks._asdict())

    def restore(self, estimates: Floats, itl: Floats) -> None:
        """Applies restored columns; `ordered` notices ranks that make no order. The arguments: as for `update`."""
        mine: Mask = np.zeros(len(self._ranks.rank), dtype=np.bool_)
        mine[self.rows] = True
        for column, blank in zip(self._ranks, Ranks.blank(1), strict=True):
            column[~mine] = blank[0]
        self._apply()
        if len(self.rows):
            self._learn(estimates, itl)

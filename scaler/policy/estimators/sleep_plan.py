"""Plans the sleep of engines from recorded pauses, prices and wake times, and gives keep-warm its prices. Pure.

`sleep_tiers.plan` does the arithmetic; this is what it is fed with. The price of a replica asleep is a configured part
of its price ready. A wake costs the GPU for its time, and the wait that exceeds the SLO, at the price of the error
budget: a wake within the SLO delays nobody, and counts as such before one is measured. If sleep pays, going to zero
saves only what a replica asleep costs, and costs what a start takes beyond a wake: keep-warm is given these prices, and
keeps its guarantee at them.

Worked example: a second of a replica costs 1, a second of waiting 12, the SLO is 2 s to the first token. Asleep it
costs 0.1 of that. A wake of 5 s costs 5 * 1 + 3 * 12 = 41, a start of 75 s costs 975. Keep-warm is told: 0.1 for a
second, and 934 for a start.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exporter.model import Floats
from scaler.columns import Array, Columns, Mask, Rows
from scaler.model import USUAL_START_S

from ..columns import Specs
from ..sleep_tiers import TierBounds, TierCosts, TierPlan, plan
from .idle_time import Gaps, IdleEnds
from .keep_warm import KeepWarmRules, Stakes, start_cost
from .wake_time import UNLEARNED_WAKE_S, WakeTimes


class SleepConfig(NamedTuple):
    """The sleep mode of one workload. Times in seconds.

    share:    part of the price of its GPUs that it costs asleep.
    after:    idle so long before sleep; None: chosen.
    earliest: the least that is chosen: as many readings as prove idleness.
    timeout:  of a call of an engine; None: Tidegate calls none.
    """

    share: float
    after: float | None
    earliest: float
    timeout: float | None


class SleepRules(NamedTuple):
    """`SleepConfig` by field, shape (rows,); NaN without sleep mode."""

    share: Floats
    after: Floats
    earliest: Floats
    timeout: Floats

    @classmethod
    def stack(cls, configs: list[SleepConfig | None]) -> SleepRules:
        blank = [np.nan] * len(cls._fields)
        table = np.array([config or blank for config in configs], dtype=float).reshape(-1, len(blank))
        return cls(*(column.copy() for column in table.T))

    @property
    def enabled(self) -> Mask:
        return ~np.isnan(self.share)


class SleepPlans:
    """The plans of a fixed list of workloads. plan: that of the present pause. wakes: how long wakes take.

    rows: the workloads with sleep mode.
    """

    def __init__(self, rules: SleepRules, keep_warm: KeepWarmRules, specs: Specs) -> None:
        rows = len(rules.share)
        self.rules, self._keep_warm, self._specs = rules, keep_warm, specs
        self.plan = TierPlan(*np.full((len(TierPlan._fields), rows), np.nan))
        self.wakes = WakeTimes(rows)
        self._costs: Floats = np.full((rows, len(TierCosts._fields)), np.nan)  # that the plan was made with
        self._due: Mask = np.zeros(rows, dtype=np.bool_)
        self.rows: Rows = np.flatnonzero(rules.enabled)

    def replan(self, rows: Rows, fresh: SleepPlans) -> None:
        """Takes the rules of `rows` from `fresh`, which has only these, in their order."""
        for column, new in zip(self.rules, fresh.rules, strict=True):
            column[rows] = new
        self.rows = np.flatnonzero(self.rules.enabled)
        self._due[rows] = True
        for column in self.plan:
            column[rows] = np.nan

    def learn(self, ended: IdleEnds, gaps: Gaps, stakes: Stakes, now: float) -> Stakes:
        """Plans anew where pauses have ended or prices changed. Returns the prices for keep-warm.

        stakes: of a replica that is ready until it goes to zero, of all workloads.
        """
        if not len(self.rows):
            return stakes
        rules, rows = self.rules, self.rows
        start = np.where(np.isnan(stakes.start[rows]), USUAL_START_S, stakes.start[rows])
        idle, waiting = stakes.idle[rows], stakes.waiting[rows]
        wake = self.wakes.typical[rows]
        within = np.nan_to_num(self._specs.ttft[rows])
        # With an SLO the wait is so dear that a first wake that seems late would never be tried, and so never measured.
        beyond = np.maximum(np.where(np.isnan(wake), np.where(within > 0.0, 0.0, UNLEARNED_WAKE_S), wake) - within, 0.0)
        wake = np.where(np.isnan(wake), UNLEARNED_WAKE_S, wake)
        costs = TierCosts(
            idle=idle,
            asleep=rules.share[rows] * idle,
            wake=wake * idle + beyond * waiting,
            start=start * (idle + waiting),
        )
        self._due[ended.rows] = True
        table = np.stack(costs, axis=1)
        changed = (table != self._costs[rows]).any(axis=1)
        due = (self._due[rows] | changed) & np.isfinite(table).all(axis=1)
        if due.any():
            self._make(rows[due], TierCosts(*(column[due] for column in costs)), gaps, stakes, now)
            self._costs[rows[due]] = table[due]
            self._due[rows[due]] = False
        return self._at_prices_of_sleep(rows, costs, stakes)

    def _make(self, rows: Rows, costs: TierCosts, gaps: Gaps, stakes: Stakes, now: float) -> None:
        warm, rules = self._keep_warm, self.rules
        fixed = ~warm.learns[rows] | np.isnan(stakes.start[rows])
        never = ~self._specs.sleeps[rows]
        bounds = TierBounds(
            earliest=rules.earliest[rows],
            zero_from=np.where(never, np.inf, np.where(fixed, warm.constant[rows], warm.lowest[rows])),
            zero_until=np.where(never, np.inf, np.where(fixed, warm.constant[rows], warm.highest[rows])),
        )
        histograms = gaps.histograms
        found = plan(histograms.shares(rows), histograms.weight(now, rows), histograms.edges, costs, bounds)
        for column, new in zip(self.plan, found, strict=True):
            column[rows] = new
        chosen = rules.after[rows]
        self.plan.after[rows] = np.where(np.isnan(chosen), found.after, chosen)

    def _at_prices_of_sleep(self, rows: Rows, costs: TierCosts, stakes: Stakes) -> Stakes:
        """The stakes with those of the workloads that sleep first: each second asleep, and a start beyond a wake."""
        pays = ~np.isnan(self.plan.after[rows]) & (costs.start > costs.wake) & np.isfinite(stakes.start[rows])
        sleepers = rows[pays]
        if not len(sleepers):
            return stakes
        idle, waiting = stakes.idle.copy(), stakes.waiting.copy()
        idle[sleepers] = costs.asleep[pays]
        beyond = (start_cost(stakes)[sleepers] - costs.wake[pays]) / stakes.start[sleepers] - idle[sleepers]
        waiting[sleepers] = np.maximum(beyond, 0.0)
        return stakes._replace(idle=idle, waiting=waiting)

    def columns(self) -> dict[str, Array]:
        """The state that a checkpoint keeps, one slot per workload."""
        return self.wakes.columns()

    def take(self, columns: Columns, rows: Rows, source_rows: Rows) -> None:
        """Copies state from `columns[source_rows]` into `rows`, pairwise."""
        self.wakes.take(columns, rows, source_rows)
        self._due[rows] = True

"""Keeps the sleep state of each workload, and says which engines have to be called for it. Pure.

`policy.sleep_tiers` decides; here are its inputs, its memory, and what follows: the evidence, the time of a wake that
others make, and the calls that are due. A call is due while the last response of an engine shows another state than
the workload's: so a restart, a new leader, or a call that was lost need no record.

Worked example: `chat` is `asleep`, and of its two engines one is awake: one call of `/sleep` is due. A request comes:
it is `ready`, and one call of `/wake_up` is due, to the engine that sleeps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isnan
from typing import Any

import numpy as np

from exporter.model import Floats, WorkloadKey
from scaler.columns import Array, Columns, Mask, Rows, copy_into, named, zero_if_unknown
from scaler.config.scalars import write_duration
from scaler.policy.columns import NOT_YET, Constraints
from scaler.policy.estimators.sleep_plan import SleepPlans
from scaler.policy.groups import Decided
from scaler.policy.sleep_tiers import ASLEEP, READY, TIERS, TierInputs, TierMemory, decide_tiers
from scaler.signals.aggregate import Aggregate
from scaler.signals.latest import LatestSamples
from scaler.workloads.spec import WorkloadSpec

from .engine_calls import CALL_S, Action, EngineCall


class SleepTiers:
    """The states of a fixed list of workloads. plans: with the rules and the wake times. latest: of their targets."""

    def __init__(self, workloads: Sequence[WorkloadSpec], plans: SleepPlans, latest: LatestSamples) -> None:
        rows = len(workloads)
        self._latest, self._plans, self._memory = latest, plans, TierMemory.blank(rows)
        self._rows = {each.workload: row for row, each in enumerate(workloads)}
        self._due: Mask = np.zeros(rows, dtype=np.bool_)  # an engine may be in another state
        self._called_at: Floats = np.full(rows, np.nan)  # POSIX seconds of a wake that Tidegate does not call
        self._failures: dict[WorkloadKey, str] = {}

    @property
    def any(self) -> bool:
        """Whether a workload has sleep mode."""
        return bool(len(self._plans.rows))

    @property
    def prices(self) -> Floats:
        """The part of its price that a replica of each workload costs asleep; NaN without sleep mode."""
        return self._plans.rules.share

    def found_asleep(self, rows: Rows, totals: Aggregate) -> Mask | None:
        """Which of `rows` have sleep mode and only engines that sleep; None if none has sleep mode."""
        if not self.any:
            return None
        pods = totals.readings.pods_fresh
        asleep: Mask = (pods > 0.0) & (totals.sleeping >= pods) & ~np.isnan(self._plans.rules.share[rows])
        return asleep

    def decide(
        self, rows: Rows, decided: Decided, totals: Aggregate, standing: Constraints, now: float, *, raise_only: bool
    ) -> Rows:
        """Decides the states of `rows`. Returns those that have changed. standing: the constraints of `rows`."""
        if not self.any and not self._memory.owed.any():
            return rows[:0]
        tier = self._memory.tier[rows]
        concerned = ~np.isnan(self._plans.rules.share[rows]) | (tier != NOT_YET) | self._memory.owed[rows]
        if raise_only:  # what is ready, with engines that are awake, cannot rise
            concerned &= (tier != READY) | (totals.sleeping > 0.0) | ~np.isnan(self._called_at[rows])
        places = np.flatnonzero(concerned)
        if not len(places):
            return rows[:0]
        mine, before = rows[places], TierMemory._make(column[rows[places]] for column in self._memory)
        inputs = self._inputs(places, mine, decided, totals, standing)
        after = decide_tiers(inputs, before, now, raise_only=raise_only)
        self._learn_wakes(mine, before, after, inputs, now)
        for column, new in zip(self._memory, after, strict=True):
            column[mine] = new
        sleeps = (after.tier == ASLEEP) & (inputs.sleeping < inputs.engines)
        self._due[mine] = (sleeps & inputs.calls) | (after.wakes & (inputs.calls | after.owed))
        changed: Rows = mine[after.tier != before.tier]
        return changed

    def _inputs(
        self, places: Rows, mine: Rows, decided: Decided, totals: Aggregate, standing: Constraints
    ) -> TierInputs:
        readings, verdicts = totals.readings, decided.verdicts
        in_hand = sum(zero_if_unknown(column) for column in (readings.waiting, readings.running, readings.held))
        columns: dict[str, Any] = {
            "replicas": verdicts.replicas,
            "active": verdicts.active,
            "reason": verdicts.reason,
            "idle_since": decided.memory.idle_since,
            "active_at": np.fmax(readings.active_at, readings.refused_at),
            "in_hand": in_hand,
            "shows_next": readings.waker_fresh & ~np.isnan(totals.open),
            "engines": readings.pods_fresh,
            "sleeping": totals.sleeping,
            "wanted_up": (standing.floor > 0.0) | (decided.needed > 0.0),
            "stays_up": standing.frozen | standing.never_down,
        }
        rules = self._plans.rules
        return TierInputs(
            enabled=~np.isnan(rules.share[mine]),
            calls=~np.isnan(rules.timeout[mine]),
            after=self._plans.plan.after[mine],
            earliest=np.nan_to_num(rules.earliest[mine]),
            **{name: column[places] for name, column in columns.items()},
        )

    def _learn_wakes(self, mine: Rows, before: TierMemory, after: TierMemory, inputs: TierInputs, now: float) -> None:
        """Measures the wakes that others make: from the state `ready` to the first response of an awake engine."""
        uncalled = np.isnan(self._plans.rules.timeout[mine])
        begun = uncalled & (before.tier == ASLEEP) & (after.tier == READY) & after.wakes
        self._called_at[mine[begun]] = now
        ended = ~np.isnan(self._called_at[mine]) & (inputs.sleeping < inputs.engines)
        for row in mine[ended].tolist():
            self._plans.wakes.learn(row, now - float(self._called_at[row]))
        self._called_at[mine[ended | (after.tier != READY)]] = np.nan

    def calls(self) -> list[EngineCall]:
        """The calls that are due, by the last responses of the engines."""
        return [call for row in np.flatnonzero(self._due).tolist() for call in self._calls_of(row)]

    def _calls_of(self, row: int) -> Iterator[EngineCall]:
        action = Action.WAKE_UP if self._memory.wakes[row] else Action.SLEEP
        configured = float(self._plans.rules.timeout[row])
        timeout_s = CALL_S if isnan(configured) else configured
        for target, sleeps, at in self._latest.engines(row):
            if sleeps == (action is Action.WAKE_UP):
                yield EngineCall(self._latest.sources[row].workload, target, action, at, timeout_s)

    def called(self, workload: WorkloadKey, action: Action, took_s: float, failure: str | None) -> None:
        """Takes the result of a call. failure: why it failed; None if it did not."""
        row = self._rows.get(workload)
        if row is None:
            return
        if failure is not None:
            self._failures[workload] = failure
            return
        self._failures.pop(workload, None)
        if action is Action.WAKE_UP:
            self._plans.wakes.learn(row, took_s)

    def replan(self, rows: Rows) -> None:
        """The rules of `rows` have changed."""
        self._called_at[rows] = np.nan
        self._due[rows] = False

    def evidence(self, rows: Rows, workloads: Sequence[WorkloadKey]) -> list[Mapping[str, Any]]:
        """The fields of `Evidence` about sleep of each of `rows`; none without sleep mode."""
        if not self.any:
            return [{}] * len(rows)
        return [
            {} if self._memory.tier[row] == NOT_YET else self._fields(row, workload)
            for row, workload in zip(rows.tolist(), workloads, strict=True)
        ]

    def _fields(self, row: int, workload: WorkloadKey) -> dict[str, Any]:
        after, wake = float(self._plans.plan.after[row]), float(self._plans.wakes.typical[row])
        return {
            "sleep_tier": TIERS[self._memory.tier[row]],
            "sleep_after_s": None if isnan(after) else after,
            "wake_s": None if isnan(wake) else wake,
            "sleep": self._sentence(row, after, wake, self._failures.get(workload)),
        }

    def _sentence(self, row: int, after: float, wake: float, failure: str | None) -> str:
        plan, share = self._plans.plan, float(self._plans.rules.share[row])
        costs = [float(column[row]) for column in (plan.ready, plan.asleep, plan.zero)]
        when = "sleep does not pay" if isnan(after) else f"its engines sleep after {write_duration(round(after))} idle"
        took = "no wake is measured yet" if isnan(wake) else f"a wake takes {wake:.2g} s"
        parts = [f"{when}, at {share:.0%} of the price", took]
        if not isnan(costs[0]):
            ready, asleep, zero = (f"{cost:.3g}" for cost in costs)
            parts.append(f"a pause costs {ready} ready, {asleep} asleep, {zero} without sleep")
        if failure is not None:
            parts.append(failure)
        if isnan(self._plans.rules.timeout[row]):
            parts.append(self._uncalled(row))
        return "; ".join(parts)

    def _uncalled(self, row: int) -> str:
        """Who calls its engines, because Tidegate does not, and what is to be done."""
        if self._memory.wakes[row]:
            return "requests wait until another controller wakes its engines: calls is off"
        if self._memory.tier[row] == ASLEEP and not self._memory.slept[row]:
            return "another controller is to put its engines to sleep, and has not yet: calls is off"
        return "another controller calls its engines"

    def columns(self) -> dict[str, Array]:
        """The state that a checkpoint keeps, one slot per workload."""
        return named("sleep", self._memory._asdict())

    def take(self, columns: Columns, rows: Rows, source_rows: Rows) -> None:
        """Copies state from `columns[source_rows]` into `rows`, pairwise; an impossible state is none."""
        copy_into(self.columns(), columns, rows, source_rows)
        memory = self._memory
        wrong = rows[~((memory.tier[rows] >= NOT_YET) & (memory.tier[rows] < len(TIERS)))]
        for column, blank in zip(memory, TierMemory.blank(1), strict=True):
            column[wrong] = blank[0]

"""Validates restored state, and keeps the state of workloads that have not appeared yet. Pure, on columns.

After a start workloads appear one after the other: those of the configuration at once, those of the cluster when its
API has answered. Until then their state stays unclaimed and is written into every checkpoint, so that a second restart
loses nothing. State may come from an older disk, another version or another replica: values that this version could not
have produced are reset. An idle time from before a gap continues only if the workload is proven to have rested.

Worked example: state of `chat` and `code` is restored, and `chat` appears: `claim([chat])` returns its part, `rest` is
that of `code`. A reason that only a newer version knows becomes `held`; 0 replicas that are active become unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import inf
from typing import NamedTuple

import numpy as np

from exporter.model import Floats, WorkloadKey
from scaler.columns import Mask, Rows, State
from scaler.model import Decision, Reason
from scaler.policy.columns import REASONS, Memory, Readings, Specs
from scaler.policy.overrides.brake import MOST_REPLICAS
from scaler.signals.restart_proof import RestartProof

from .checkpoint_format import LARGEST_BYTES, size_of

# A workload that has not appeared in so long has been deleted.
FORGOTTEN_AFTER_S = 7 * 86400.0
# Each restart may leave a few parts behind: those of workloads that were deleted meanwhile.
MOST_PARTS = 256


class UnclaimedState:
    """Holds parts of states, newest first. Of a workload in several parts only the newest counts."""

    def __init__(self, states: Sequence[State] = ()) -> None:
        self._states = list(states)

    def keep(self, state: State) -> None:
        """Keeps a state that another replica sent, in place of older state of the same workloads."""
        if state.workloads:
            rest = (each.without(state.workloads) for each in self._states)
            self._states = _bounded([state, *(each for each in rest if each.workloads)])

    def claim(self, workloads: Collection[WorkloadKey]) -> list[State]:
        """Removes and returns the state of these workloads."""
        claimed: list[State] = []
        wanted = set(workloads)
        for state in self._states:
            part = state.only(wanted)
            if part.workloads:
                claimed.append(part)
                wanted -= set(part.workloads)
        gone = set(workloads)
        rest = [state.without(gone) for state in self._states] if gone else self._states
        self._states = [state for state in rest if state.workloads]
        return claimed

    def rest(self, now: float) -> list[State]:
        """The states for the next checkpoint. now: POSIX seconds."""
        return [state for state in self._states if abs(now - state.at) <= FORGOTTEN_AFTER_S][:MOST_PARTS]


def _bounded(states: Sequence[State]) -> list[State]:
    """The newest states within the limits: a replica that sends ever new workloads must not fill the memory."""
    kept, total = [], 0
    for state in states[:MOST_PARTS]:
        total += size_of(state)
        if total > LARGEST_BYTES:
            break
        kept.append(state)
    return kept


def make_sound(memory: Memory, rows: Rows, specs: Specs, now: float) -> None:
    """Resets values that this version could not have produced. now: POSIX seconds; later times become now.

    More replicas than the workload's maximum are unknown: then what the cluster has is held. In one process (`now` is
    infinite) they stand: they are from before the maximum was lowered, and are taken down by fresh readings.
    """
    replicas, active, reason = memory.replicas[rows], memory.active[rows], memory.reason[rows]
    most = MOST_REPLICAS if now == inf else specs.maximum[rows]
    wrong = ~((replicas >= 0.0) & (replicas <= most) & (replicas == np.floor(replicas)))
    wrong |= (replicas == 0.0) == active
    memory.replicas[rows] = np.where(wrong, np.nan, replicas)
    memory.active[rows] = active & ~wrong
    unknown = (reason < Memory.blank(1).reason) | (reason >= len(REASONS))
    memory.reason[rows] = np.where(unknown, REASONS.index(Reason.HELD), reason)
    for since in (memory.idle_since, memory.held_since, memory.woken_at, memory.incomplete_since):
        since[rows] = np.minimum(since[rows], now)
    floor = memory.floor[rows]
    memory.floor[rows] = np.where(floor >= 0.0, np.minimum(floor, specs.maximum[rows]), np.nan)
    memory.floor_until[rows] = np.minimum(memory.floor_until[rows], now + specs.young[rows])


def forget(memory: Memory, rows: Rows) -> None:
    """Resets these workloads to no state."""
    for column, blank in zip(memory, Memory.blank(len(rows)), strict=True):
        column[rows] = blank


class DecisionLimits(NamedTuple):
    """The decisions that the configuration of one workload allows.

    minimum, maximum: replicas while active. sleeps: may it go to zero?
    tolerance: of its HPA, a ratio: how far the published number may exceed the replicas.
    observed:  published for people only; controllers get an error.
    """

    minimum: float
    maximum: float
    sleeps: bool
    tolerance: float
    observed: bool

    @classmethod
    def of(cls, specs: Specs, row: int, tolerance: float, *, observed: bool) -> DecisionLimits:
        # Jobs end by themselves: their zero is the next one's.
        sleeps = bool(specs.sleeps[row] or specs.jobs[row])
        return cls(float(specs.minimum[row]), float(specs.maximum[row]), sleeps, tolerance, observed)


def allows(bounds: DecisionLimits, decision: Decision) -> bool:
    """Whether a replica with this configuration could have decided so. If not, a follower publishes its own decision.

    Refused and not clamped: a clamped answer would be neither replica's, with evidence that does not lead to it. Every
    answer of a fresh reading is inside the bounds, whatever the orders. A brake or a hold may keep a number from before
    the bounds were changed: then the follower's own brake or hold keeps what the cluster has.

    Worked example: with bounds 0 to 8 and a tolerance of 0.1 a decision of 8 that is published as 9 is allowed;
    a decision of 9, and one of 8 that is published as 11, are not.
    """
    replicas, published = decision.replicas, decision.published
    if decision.observed != bounds.observed:
        return False
    if replicas is None or published is None:
        return True
    if replicas == 0:
        return bounds.sleeps
    # `past_band` rounds to the first number past the tolerance, and past two errors of rounding.
    return (
        max(1.0, bounds.minimum) <= replicas <= bounds.maximum
        and published <= replicas * (1.0 + bounds.tolerance) + 2.0
    )


class Rests:
    """Idle times from before a gap, until it is proven that they continued.

    since: POSIX seconds since when the workload was idle; NaN where nothing waits to be proven.
    until: when waiting for the proof ends; NaN is: `hold` seconds from the next decision on.
    """

    def __init__(self, rows: int) -> None:
        self.since, self.until = np.full((2, rows), np.nan)

    def adopt(self, other: Rests, rows: Rows, source_rows: Rows) -> None:
        self.since[rows], self.until[rows] = other.since[source_rows], other.until[source_rows]

    def prove(
        self, memory: Memory, proof: RestartProof, rows: Rows, readings: Readings, hold: Floats, now: float
    ) -> None:
        """Continues idle times in `memory` where all targets show that no request was served meanwhile.

        seen, hold: with a slot for each of `rows`; seconds. A workload of which everything is known, and not that,
        begins anew.
        """
        here = np.flatnonzero(~np.isnan(self.since[rows]))
        if not len(here):
            return
        waiting = rows[here]
        self.until[waiting] = np.where(np.isnan(self.until[waiting]), now + hold[here], self.until[waiting])
        whole = np.isnan(memory.held_since[waiting]) & ~readings.gpus_stale[here]
        over = now > self.until[waiting]
        proven = whole & ~over & ~np.isnan(memory.idle_since[waiting]) & proof.rested(waiting)
        since = np.fmax(self.since[waiting], readings.active_at[here])
        memory.idle_since[waiting[proven]] = since[proven]
        done = waiting[whole | over]
        self.since[done] = np.nan
        proof.give_up(done)


class Uncounted:
    """Tracks workloads without a replica count.

    One without state is not decided before: its first readings say nothing of the replicas that they leave out. After
    `young` seconds it is: the count may never come, as where rights are missing.

    awaited: whether the count is. young: seconds for which it is waited for.
    """

    def __init__(self, young: Floats) -> None:
        self.awaited = np.zeros(len(young), dtype=np.bool_)
        self._young, self._until = young, np.full(len(young), np.nan)  # POSIX seconds; NaN before the first decision

    def adopt(self, other: Uncounted, rows: Rows, source_rows: Rows) -> None:
        self.awaited[rows], self._until[rows] = other.awaited[source_rows], other._until[source_rows]

    def undecidable(self, rows: Rows, before: Memory, now: float) -> Mask:
        """Which of `rows` have no state, and no count yet. before: with a slot for each of `rows`."""
        until = self._until[rows]
        begun = np.isnan(until)
        if begun.any():
            self._until[rows] = until = np.where(begun, now + self._young[rows], until)
        if not self.awaited[rows].any():
            return np.zeros(len(rows), dtype=np.bool_)
        without: Mask = np.isnan(before.replicas) & np.isnan(before.floor_until)
        return self.awaited[rows] & without & (now < until)

"""Records when each workload was last active, by its counters, and recognises probes by their regularity. Pure.

A request may start and end between two scrapes: its counter has risen. A counter that falls was restarted, and its
whole value is new; the first value of one is a baseline. Tokens are always activity, and so is a request that was
rejected because there is no replica. Requests that come like a clock are probes and no activity.

A prober sends a request every so many seconds, so its counter stays near a straight line. Sampled at times t, the count
of one clock is a whole number N with N <= line(t) < N + 1: all samples are within a band one request high. Of two
clocks the band is two high, of three three, whatever their periods. So a stream counts as probes while the samples
around its last rises fit a band of 1 or 2 (after 30 rises) or 3 (after 45: within 1.5 of the line), at a mean distance
of at most the workload's `probe_period`.

Random requests leave the band: the count of a Poisson stream strays like a random walk, by the root of 30, 5.5
requests. Of 45,000 such windows (mean distances 5, 10 and 60 s, scraped every 5 s) none fitted a band of 2 over 30
rises (7 fitted 2.5, 73 fitted 3), and none fitted 3 over 45. A stream is checked again at each rise: of 600 streams of
400 requests none ever counted as probes. A rare one that does leaves the band a few rises later.

A steady client looks the same, and must not be put to sleep for being steady. So tokens, a request in flight or a busy
GPU on any target of the workload is work, and the 30 rises begin anew after it; a rise that does not fit is a request,
at once; and if a workload is woken within two periods after it fell asleep, the request may have been one of the
regular stream: then that was a client, and the workload's regular requests count again.

That verdict is a guess from one request, so it ends. It holds for an hour after the first such wake-up and four times
as long after each further one, at most seven days; a sleep that lasts longer than two periods takes one step back.
After 1 + 4 + 16 + 64 h a steady client is put to sleep once in seven days. A wake-up beside which tokens or a busy GPU
are visible proves nothing: the stream makes neither. Nor, once until a sleep lasts, if the request ran on a replica, or
came at another time than the clock's next ones. Once, because a client with a clock that stops while its request hangs
comes at another time as well.

Worked example: a counter has 100 finished requests, then 101: active at that scrape's time. It has 3: it was restarted,
and 3 more have finished. A load balancer sends a probe every 10 s and nothing else happens: for 5 minutes each probe is
activity; then they are recognised, and the keep-warm time runs. A request comes between: two rises where one was due,
so it is activity, at that scrape; the next probe is none. One request each 7 minutes is further apart than
`probe_period` and always counts.
"""

from __future__ import annotations

from math import ceil, inf, isnan, nan
from typing import NamedTuple

import numpy as np

from exporter.model import Floats, Quantity
from scaler.columns import Array, Mask, Rows, copy_into, named
from scaler.model import Reason
from scaler.policy.columns import REASONS, Readings, Verdicts
from scaler.policy.overrides import written

from .queues import QueuePage
from .slots import ACTIVITY

TOKENS = frozenset({Quantity.TOKENS_PROMPT, Quantity.TOKENS_GENERATED})
BY_REQUESTS = [
    REASONS.index(reason) for reason in (Reason.QUEUED, Reason.SERVING, Reason.CAPPED, Reason.CAPACITY_LIMITED)
]
# The counters for accounting, in this order: requests once, at the engine that finished them, not at a gateway.
COUNTED = (Quantity.REQUESTS_FINISHED, Quantity.TOKENS_PROMPT, Quantity.TOKENS_GENERATED)
IN_HAND = (Quantity.REQUESTS_WAITING, Quantity.REQUESTS_RUNNING, Quantity.REQUESTS_HELD)

RISES = 30  # before a stream of one or two clocks is recognised, and …
MANY_RISES = 45  # … of three
KEPT = 48  # rises that are kept: a stream has to be regular over these, not for days
CLOCKS = 3
SLACK = 0.1  # of a request: clocks and scrapes tremble by some tens of milliseconds
SHORTEST_S = 1.0  # kubelet's shortest period: more frequent requests are work
FIRST_DISTRUST_S, LONGEST_DISTRUST_S = 3600.0, 7 * 86400.0
DISTRUST_GROWTH = 4.0
MOST_WRONG_SLEEPS = 5  # 1, 4, 16, 64 and 256 h: the last is cut to seven days, and more would change nothing
SLOPES = 65  # tried at once, twice: the second time to 1/64 of the distance of the first


class Activity:
    """The activity of a fixed list of workloads: each array has a slot for each of them, POSIX seconds, NaN never.

    active_at:  when a counter of requests or tokens last rose.
    refused_at: when a request was last rejected at a wake source.
    finished:   requests finished since the start of this process, corrected for restarts; NaN without a counter.
    counted:    shape (rows, len(COUNTED)), counted since `take_counted`; NaN without a counter.
    """

    def __init__(self, probe_periods: Floats, slots: int) -> None:
        """probe_periods: seconds; with 0 every request counts. slots: how many there are."""
        rows = len(probe_periods)
        self.active_at, self.refused_at, self.finished = (np.full(rows, nan) for _ in range(3))
        self.counted = np.full((rows, len(COUNTED)), nan)
        self.probes = Probes(probe_periods, slots)

    def adopt(self, other: Activity, rows: Rows, source_rows: Rows) -> None:
        """Takes over the state of another: `source_rows` into `rows`, pairwise, and all slots."""
        copy_into(self.columns(), other.columns(), rows, source_rows)
        self.counted[rows] = other.counted[source_rows]
        self.probes.adopt(other.probes, rows, source_rows)

    def columns(self) -> dict[str, Array]:
        """The state that a checkpoint keeps; live arrays."""
        counted = {"finished": self.finished, "active_at": self.active_at, "refused_at": self.refused_at}
        return {**named("intake", counted), **self.probes.columns()}

    def make_sound(self, rows: Rows, now: float) -> None:
        """Resets impossible values. now: POSIX seconds, or infinity."""
        finished = self.finished[rows]
        self.finished[rows] = np.where((finished >= 0.0) & (finished <= 2.0**53), finished, nan)
        self.probes.make_sound(rows, now)

    def answered(
        self, rows: Rows, readings: Readings, *, was_active: Mask, verdicts: Verdicts, now: float, slack_s: float
    ) -> None:
        """Takes the decisions: a workload that is woken at once was put to sleep wrongly. See `Probes`."""
        if np.isnan(self.probes.period[rows]).all() and np.isnan(self.probes.asleep_at[rows]).all():
            return
        there = (readings.wanted > 0.0) | (readings.ready > 0.0) | (readings.pods_fresh > 0.0)
        woken = ~was_active & verdicts.active & np.isin(verdicts.reason, BY_REQUESTS)
        self.probes.answered(rows, ~verdicts.active, there, woken, now, slack_s)

    def take_counted(self) -> Floats:
        """Returns `counted`, shape (rows, len(COUNTED)), and begins anew."""
        counted, self.counted = self.counted, np.full_like(self.counted, nan)
        return counted

    def land(self, row: int, slot: int, counters: Floats, page: QueuePage, at: float, *, counts: bool) -> None:
        """Takes one response. counters: of its slot, shape (len(ACTIVITY),); updated in place.

        counts: its finished requests are counted by no other target.
        """
        rises = {quantity: _rise(counters, index, page) for index, quantity in enumerate(ACTIVITY)}
        tokens = any(rises[quantity] > 0.0 for quantity in TOKENS)
        if tokens:
            self.probes.worked(row, at)
        elif any(page.sums.get(quantity, nan) > 0.0 for quantity in IN_HAND):
            self.probes.in_hand(row, slot, at, on_replica=not page.wake_source)
        finished, failed = rises[Quantity.REQUESTS_FINISHED], rises[Quantity.REQUESTS_FAILED]
        requests = (0.0 if isnan(finished) else finished) + (0.0 if isnan(failed) else failed)
        is_activity = self.probes.count(row, slot, requests, at)
        if is_activity or tokens:
            self.active_at[row] = at
        # A counter of all requests as they arrive includes probes.
        turned_away = is_activity and finished > 0.0 if page.arrivals else failed > 0.0
        if page.wake_source and turned_away:
            self.active_at[row] = self.refused_at[row] = at
        if counts and not isnan(finished):
            before = self.finished[row]
            self.finished[row] = finished + (0.0 if isnan(before) else before)
        if counts:
            for index, quantity in enumerate(COUNTED):
                rise = rises[quantity]
                if not isnan(rise):
                    before = self.counted[row, index]
                    self.counted[row, index] = rise + (0.0 if isnan(before) else before)


class ProbeSchedule(NamedTuple):
    """The times of a clock's requests: the last one after `after` and by `by`, then one each `period_s`. POSIX seconds.

    period_s: 0 with several clocks: then any time fits.
    """

    after: float
    by: float
    period_s: float

    def has(self, after: float, by: float) -> bool:
        """Whether one of the next requests can have come after `after` and by `by`."""
        if not self.period_s > 0.0 or isnan(after) or isnan(self.after):
            return True
        play = SLACK * self.period_s
        coming = max(1, ceil((after - self.by - play) / self.period_s))
        return self.after + coming * self.period_s - play <= by


class ObservedRequest(NamedTuple):
    """A request that came after `after` and by `by`, POSIX seconds. on_replica: a replica worked on it."""

    after: float = nan
    by: float = -inf
    on_replica: bool = False


def distrust_s(wrong_sleeps: float) -> float:
    """How long regular requests count after so many wrong sleeps, at least 1, in seconds."""
    return float(min(LONGEST_DISTRUST_S, FIRST_DISTRUST_S * DISTRUST_GROWTH ** (wrong_sleeps - 1.0)))


class Probes:
    """The regularity of the requests of each slot, and the workloads with regular requests that count."""

    def __init__(self, periods: Floats, slots: int) -> None:
        """periods: `probe_period` of each workload in seconds; with 0 none is a probe. slots: how many there are."""
        rows = len(periods)
        self._periods = periods
        # By slot, of those with a rise: last sample before it, first with it, the count then; shape (KEPT, 3).
        self._rises: dict[int, Floats] = {}
        self._kept = np.zeros(slots, dtype=np.int64)
        self._clocks = np.zeros(slots, dtype=np.int64)  # 0: no probes
        self._read_at = np.full(slots, np.nan)
        self._real_at = np.full(rows, np.nan)  # POSIX seconds of the last tokens, request in flight or busy GPU
        self.period = np.full(rows, np.nan)  # seconds, of the slowest stream that counts as probes now
        self.asleep_at = np.full(rows, np.nan)  # POSIX seconds since when it has no replica
        self.count_until = np.full(rows, np.nan)  # POSIX seconds until when its regular requests count
        self.wrong_sleeps = np.zeros(rows)  # sleeps that ended at once, less those that lasted since
        self.excused = np.zeros(rows, dtype=np.bool_)  # one early wake-up by a request at another time has not counted
        self._schedules: dict[
            int, dict[int, ProbeSchedule]
        ] = {}  # by row and slot, of the streams that count as probes
        self._last_requests: dict[int, ObservedRequest] = {}  # by row: the last request that came while it was asleep

    def replan(self, rows: Rows, periods: Floats) -> None:
        """Replaces the `probe_period` of `rows`. periods: shape (rows,), seconds."""
        self._periods[rows] = periods

    def columns(self) -> dict[str, Array]:
        """The state that a checkpoint keeps; live arrays. Streams are recognised anew after a restart."""
        learned = {
            "count_until": self.count_until,
            "wrong_sleeps": self.wrong_sleeps,
            "excused": self.excused,
            "period": self.period,
            "asleep_at": self.asleep_at,
        }
        return named("probes", learned)

    def make_sound(self, rows: Rows, now: float) -> None:
        """Resets impossible values of `rows`. now: POSIX seconds, or infinity.

        A verdict ends no later than one of now would; one that is over, or of a workload without `probe_period`, is
        removed.
        """
        sleeps = np.nan_to_num(self.wrong_sleeps[rows], nan=0.0, posinf=0.0, neginf=0.0)
        self.wrong_sleeps[rows] = np.clip(np.floor(sleeps), 0.0, MOST_WRONG_SLEEPS)
        latest = np.array([now + distrust_s(max(1.0, sleeps)) for sleeps in self.wrong_sleeps[rows]])
        until, judged = self.count_until[rows], self._periods[rows] > 0.0
        holds = judged & np.isfinite(until) & ((until > now) | np.isinf(now))
        self.count_until[rows] = np.where(holds, np.minimum(until, latest), np.nan)
        period = self.period[rows]
        possible = judged & (period >= SHORTEST_S) & (period <= CLOCKS * self._periods[rows])
        self.period[rows] = np.where(possible, period, np.nan)
        self.asleep_at[rows] = np.where(
            np.isfinite(self.asleep_at[rows]), np.minimum(self.asleep_at[rows], now), np.nan
        )

    def adopt(self, other: Probes, rows: Rows, source_rows: Rows) -> None:
        """Copies all slots of another instance with the same targets: `source_rows` into `rows`, pairwise."""
        self._rises, self._kept, self._clocks = other._rises, other._kept, other._clocks
        self._read_at = other._read_at
        self._real_at[rows] = other._real_at[source_rows]
        same = list(zip(rows.tolist(), source_rows.tolist(), strict=True))
        self._schedules = {target: other._schedules[source] for target, source in same if source in other._schedules}
        self._last_requests = {
            target: other._last_requests[source] for target, source in same if source in other._last_requests
        }

    def grow(self, slots: int) -> None:
        more = slots - len(self._kept)
        self._kept = np.concatenate([self._kept, np.zeros(more, dtype=np.int64)])
        self._clocks = np.concatenate([self._clocks, np.zeros(more, dtype=np.int64)])
        self._read_at = np.concatenate([self._read_at, np.full(more, np.nan)])

    def clear(self, slot: int) -> None:
        self._rises.pop(slot, None)
        self._kept[slot] = self._clocks[slot] = 0
        self._read_at[slot] = np.nan

    def worked(self, row: int, at: float) -> None:
        """Tokens or a busy GPU: a stream of probes makes neither."""
        self._real_at[row] = at
        self.period[row] = np.nan

    def in_hand(self, row: int, slot: int, at: float, *, on_replica: bool) -> None:
        """Takes a request in hand. While a workload is asleep, it may be one of the regular stream that waits.

        on_replica: it is on an engine, not on a wake source.
        """
        if isnan(self.asleep_at[row]):
            self.worked(row, at)
        else:
            self._real_at[row] = at
            self._last_requests[row] = ObservedRequest(float(self._read_at[slot]), at, on_replica)

    def count(self, row: int, slot: int, rise: float, at: float) -> bool:
        """Takes the rise of the counters of requests in one response. Returns whether it is activity."""
        before, self._read_at[slot] = self._read_at[slot], at
        if not rise > 0.0:
            return False
        if not self._periods[row] > 0.0 or at < self.count_until[row]:
            return True
        if self._kept[slot] and self._rises[slot][0, 1] <= self._real_at[row]:
            self._restart(slot)
        self._append(slot, before, at, rise)
        is_activity = self._is_activity(row, slot, rise)
        if not isnan(self.asleep_at[row]):
            if not is_activity:
                self._last_requests[row] = ObservedRequest()  # one of the stream, even if it is also in hand elsewhere
            elif self._last_requests.get(row, ObservedRequest()).by < at:
                self._last_requests[row] = ObservedRequest(float(before), at)
        return is_activity

    def answered(self, rows: Rows, asleep: Mask, there: Mask, wanted: Mask, now: float, slack_s: float) -> None:
        """Takes the decisions for these workloads; every argument has shape (len(rows),).

        asleep: decided to be at zero. there: a replica still exists. wanted: woken at this moment by requests.
        slack_s: the time until a request is visible, beside two periods.
        """
        judged = ~np.isnan(self.period[rows])
        falling = asleep & judged & (there | np.isnan(self.asleep_at[rows]))
        self.asleep_at[rows[falling]] = now
        ended = ~asleep & ~np.isnan(self.asleep_at[rows])
        soon = now - self.asleep_at[rows] <= 2.0 * self.period[rows] + slack_s
        for row in rows[ended & soon & wanted].tolist():
            if self._came_off_schedule(row) and not self.excused[row]:
                self.excused[row] = True
            else:
                self._distrust(row, now)
        lasted = rows[ended & ~soon & judged]
        self.wrong_sleeps[lasted] = np.maximum(0.0, self.wrong_sleeps[lasted] - 1.0)
        self.excused[lasted] = False
        self.asleep_at[rows[~asleep]] = np.nan

    def _distrust(self, row: int, now: float) -> None:
        self.wrong_sleeps[row] = min(MOST_WRONG_SLEEPS, self.wrong_sleeps[row] + 1.0)
        self.count_until[row] = now + distrust_s(self.wrong_sleeps[row])
        self._real_at[row], self.period[row] = now, np.nan
        self._schedules.pop(row, None)

    def _came_off_schedule(self, row: int) -> bool:
        """Whether the request that woke it is not one of the streams that counted as probes."""
        request = self._last_requests.get(row, ObservedRequest())
        asleep_at = self.asleep_at[row]
        # Without the streams that ended before, as that of a deleted pod.
        current = [
            schedule
            for schedule in self._schedules.get(row, {}).values()
            if schedule.by >= asleep_at - 3.0 * max(schedule.period_s, SHORTEST_S) or not schedule.period_s > 0.0
        ]
        fits = not current or any(schedule.has(request.after, request.by) for schedule in current)
        return bool(request.by >= asleep_at) and (request.on_replica or not fits)

    def verdicts(self, rows: Rows, now: float) -> tuple[Floats, Floats]:
        """The period in seconds of regular requests that count as probes, and POSIX seconds until when they count as
        activity instead, each of shape (len(rows),); NaN if not.
        """
        until = self.count_until[rows]
        return self.period[rows], np.where(until > now, until, np.nan)

    def notes(self, row: int, now: float) -> tuple[str, ...]:
        """Remarks on the regular requests of a workload."""
        if now < self.count_until[row]:
            until = written(float(self.count_until[row]))
            why = "as probes they woke it right after it fell asleep; then they are checked anew"
            return (f"its regular requests count until {until}: {why}",)
        if np.isnan(self.period[row]):
            return ()
        every = f"one each {self.period[row]:.0f} s at the rarest"
        return (f"requests as regular as a clock, {every}, count as probes and keep nothing awake",)

    def _append(self, slot: int, before: float, at: float, rise: float) -> None:
        kept, rises = self._kept[slot], self._rises.get(slot)
        if rises is None:
            rises = self._rises[slot] = np.full((KEPT, 3), np.nan)
        total = rises[kept - 1, 2] if kept else 0.0
        if kept == KEPT:
            rises[:-1] = rises[1:]
            kept -= 1
        rises[kept] = before, at, total + rise
        self._kept[slot] = kept + 1

    def _restart(self, slot: int) -> None:
        self._kept[slot] = self._clocks[slot] = 0

    def _is_activity(self, row: int, slot: int, rise: float) -> bool:
        kept = int(self._kept[slot])
        if kept < RISES:
            return True
        rises = self._rises[slot][:kept]
        span, requests = rises[-1, 1] - rises[0, 1], rises[-1, 2] - rises[0, 2]
        period = span / requests
        if not SHORTEST_S <= period <= self._periods[row]:
            self._clocks[slot] = 0
            return True
        clocks = int(self._clocks[slot])
        if clocks == 0:
            most = CLOCKS if kept >= MANY_RISES else CLOCKS - 1
            clocks = max(1, int(np.ceil(band(rises) - SLACK)))
            if clocks > most:
                return True
            self._clocks[slot] = clocks
        elif band(rises) > clocks + SLACK:
            # A part of the rise was due. If the clocks do not go on without the rest, they were none.
            for extra in range(1, int(rise) + 1):
                rises[-1, 2] -= 1.0
                if band(rises) <= clocks + SLACK or extra == rise:
                    break
            if band(rises) > clocks + SLACK:
                self._restart(slot)
            elif extra == rise:
                self._kept[slot] -= 1  # none of it was a probe
            return True
        schedule = ProbeSchedule(float(rises[-1, 0]), float(rises[-1, 1]), float(period) if clocks == 1 else 0.0)
        self._schedules.setdefault(row, {})[slot] = schedule
        slowest = clocks * period
        self.period[row] = slowest if np.isnan(self.period[row]) else max(self.period[row], slowest)
        return False


def band(rises: Floats) -> float:
    """The height of the lowest band around a straight line that contains all samples, in requests.

    rises: shape (rises, 3): the last sample before each (POSIX seconds), the first with it, and the count then. Before
    the first, nothing is known. The result is too high by about a hundredth: slopes are tried, not solved for.
    """
    # A sample before a rise has the count of the rise before; of the first one that is not kept.
    times = np.concatenate([rises[:, 1], rises[1:, 0]]) - rises[0, 1]
    counts = np.concatenate([rises[:, 2], rises[:-1, 2]])
    known_times = ~np.isnan(times)
    times, counts = times[known_times], counts[known_times]
    mean = (rises[-1, 2] - rises[0, 2]) / (rises[-1, 1] - rises[0, 1])
    low, high, best = 0.8 * mean, 1.2 * mean, np.inf
    for _ in range(2):
        slopes = np.linspace(low, high, SLOPES)
        away = counts - slopes[:, None] * times
        heights = away.max(axis=1) - away.min(axis=1)
        index = int(heights.argmin())
        best = min(best, float(heights[index]))
        step = slopes[1] - slopes[0]
        low, high = slopes[index] - step, slopes[index] + step
    return best


def _rise(counters: Floats, index: int, page: QueuePage) -> float:
    """How much a counter has risen; NaN if not exposed."""
    before, after = float(counters[index]), page.sums.get(ACTIVITY[index], nan)
    if isnan(after):
        return nan
    counters[index] = after
    return 0.0 if isnan(before) else after - before if after >= before else after
